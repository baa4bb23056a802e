"""What was done to a clip, in words: from its recipe, where each operation stands with what was drawn for it."""

from collections.abc import Mapping, Sequence

from viewcache.materializer.ops.auto_augment import drawn_words

__all__ = ["drawn_of", "said", "shape_of"]

Step = Mapping[str, object]

_ONE = 4096
"""Rows hold fractions in 1/4096: factors of colours, sigmas, degrees."""
_FACTORS = ("brightness", "contrast", "saturation", "hue")


def said(steps: Sequence[Step]) -> list[str]:
    """What was done, one phrase for each operation; nothing for a clip that is as decoded."""
    return [_phrase(step) for step in steps]


def drawn_of(step: Step) -> dict[str, int]:
    """The numbers of an operation by name; empty if it draws none."""
    drawn = step.get("drawn")
    return {str(name): int(value) for name, value in drawn.items()} if isinstance(drawn, Mapping) else {}


def shape_of(step: Step) -> tuple[int, int] | None:
    """The height and width that an operation was configured to give, or None."""
    params = step.get("params")
    shape = params.get("shape") if isinstance(params, Mapping) else None
    return (int(shape[0]), int(shape[1])) if isinstance(shape, list | tuple) else None


def _phrase(step: Step) -> str:
    name, drawn = str(step.get("op", step.get("join"))), drawn_of(step)
    words = name.replace("_", " ")
    match name:
        case "resize" | "random_short_side":
            return f"{words} to {drawn['w']}x{drawn['h']}"
        case "random_crop" | "center_crop" | "three_crop" | "five_crop" | "ten_crop":
            return f"{words} {_window(drawn)}{', flipped' if drawn.get('flip') else ''}"
        case "random_resized_crop":
            height, width = shape_of(step) or (drawn["h"], drawn["w"])
            return f"{words} {_window(drawn)} to {width}x{height}"
        case "flip":
            params = step.get("params")
            vertical = isinstance(params, Mapping) and params.get("direction") == "vertical"
            return ("flipped top to bottom" if vertical else "flipped") if drawn["flip"] else "not flipped"
        case "rotate":
            return f"rotated by {drawn['turns'] * 90 or drawn['angle'] / _ONE:g} degrees"
        case "color_jitter":
            return f"{words} " + " ".join(f"{each} {drawn[each] / _ONE:.2f}" for each in _FACTORS)
        case "grayscale":
            return words if drawn["on"] else f"no {words}"
        case "blur":
            return f"{words} {drawn['sigma'] / _ONE:.2f}" if drawn["sigma"] else f"no {words}"
        case "erase":
            return f"{words} {_window(drawn)}" if drawn["h"] else f"no {words}"
        case "rand_augment" | "auto_augment" | "trivial_augment_wide":
            return f"{words}: {', '.join(filter(None, map(drawn_words, drawn.values()))) or 'nothing'}"
        case "inv_sample":
            return "backwards" if drawn["reverse"] else "not backwards"
        case _:  # one of the user's own, or one that draws nothing
            return " ".join([words, *(f"{column} {value}" for column, value in drawn.items())])


def _window(drawn: Mapping[str, int]) -> str:
    return f"{drawn['w']}x{drawn['h']} at x {drawn['x']} y {drawn['y']}"
