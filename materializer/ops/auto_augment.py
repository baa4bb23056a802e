"""Random and learned policies: RandAugment, TrivialAugment and AutoAugment, with torchvision's parameters.

A clip draws which primitives it gets and how strong, in the order in which torchvision draws them, and all its frames
get the same. Each primitive is one number of the row, and one that changes nothing is left out of it: clips for which
equal changes were drawn are made once.
"""

from functools import cache
from typing import ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.ops.base import Draw, Fixed, FrameOp, Rows
from viewcache.materializer.ops.fields import Channels, Choice, Field, Params, Whole
from viewcache.materializer.ops.primitives import ANGLE_ONE, FACTOR_ONE, INTERPOLATIONS, Primitive, applied
from viewcache.materializer.randomness import scaled, threshold

__all__ = ["OPS", "AutoAugment", "RandAugment", "TrivialAugmentWide", "drawn_words", "moves_pixels"]

MOST_OPS = 8

INTERPOLATION = Field("interpolation", Choice(INTERPOLATIONS), "nearest", "how pixels that move are weighted")
FILL = Field("fill", Channels(0, 255, whole=True), (0, 0, 0), "colour of what comes from outside the frame")


class Strengths(NamedTuple):
    """What the strongest magnitude of a policy's space is."""

    shear: float
    translate: tuple[float, int]
    """A fraction of the side, and pixels beside it."""
    degrees: float
    factor: float
    """Distance from 1 of brightness, colour, contrast and sharpness."""
    lost_bits: int


USUAL = Strengths(shear=0.3, translate=(150 / 331, 0), degrees=30.0, factor=0.9, lost_bits=4)
WIDE = Strengths(shear=0.99, translate=(0.0, 32), degrees=135.0, factor=0.99, lost_bits=6)

_RANDOM = (
    None,
    *(Primitive(number) for number in range(Primitive.SHEAR_X, Primitive.ROTATE + 1)),
    *(Primitive(number) for number in range(Primitive.BRIGHTNESS, Primitive.EQUALIZE + 1)),
)
"""What RandAugment and TrivialAugment choose from, each as likely as any other; None leaves the frame as it is."""


class Policy(FrameOp):
    """Draws primitives for a clip: one column for each, 0 where there is none."""

    keyed = ("fill", "interpolation")
    fingerprint = "1"

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return a new frame, or the same one if nothing was drawn."""
        values = dict(params)
        fill, interpolation = cast(tuple[int, int, int], values["fill"]), cast(str, values["interpolation"])
        for number in row.tolist():
            if number:
                frame = applied(*_unpacked(number), frame, interpolation, fill)
        return frame

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """True where nothing was drawn that changes a frame."""
        return np.asarray((rows == 0).all(axis=1))

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Draw for each clip."""
        height, width = np.asarray(h, np.int64), np.asarray(w, np.int64)
        rows = np.zeros((len(height), len(self.columns)), np.int32)
        for step, numbers in enumerate(self._drawn(params, draw, height, width)):
            rows[:, step] = numbers
        first = np.argsort(rows == 0, axis=1, kind="stable")  # those that change something come first
        return np.take_along_axis(rows, first, axis=1), height, width

    def _drawn(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> list[NDArray[np.int32]]:
        """Packed numbers of n clips, step by step."""
        raise NotImplementedError


class RandAugment(Policy):
    """Change all frames of a clip by primitives drawn at random, each of one strength (Cubuk et al. 2020)."""

    name = "rand_augment"
    fields = (
        Field("num_ops", Whole(1, MOST_OPS), 2, "primitives one after the other"),
        Field("magnitude", Whole(0, 999), 9, "strength of all of them, below ``num_magnitude_bins``"),
        Field("num_magnitude_bins", Whole(2, 1000), 31, "strengths that there are"),
        INTERPOLATION,
        FILL,
    )
    columns = tuple(f"op_{step}" for step in range(1, MOST_OPS + 1))

    def check(self, values: dict[str, object]) -> None:
        """Refuse a magnitude that is not one of the bins."""
        magnitude, bins = cast(int, values["magnitude"]), cast(int, values["num_magnitude_bins"])
        if magnitude >= bins:
            raise BadInput(
                f"{self.name}: magnitude is {magnitude}; allowed: an integer from 0 to {bins - 1}, "
                f"below num_magnitude_bins ({bins})"
            )

    def _drawn(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> list[NDArray[np.int32]]:
        values = cast(dict[str, int], dict(params))
        magnitude = np.full(len(h), values["magnitude"], np.int64)
        return [
            _random(draw, step, magnitude, values["num_magnitude_bins"], USUAL, h, w)
            for step in range(values["num_ops"])
        ]


class TrivialAugmentWide(Policy):
    """Change all frames of a clip by one primitive of a random strength (Müller and Hutter 2021)."""

    name = "trivial_augment_wide"
    fields = (
        Field("num_magnitude_bins", Whole(2, 1000), 31, "strengths that there are, each as likely as any other"),
        INTERPOLATION,
        FILL,
    )
    columns = ("op_1",)

    def _drawn(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> list[NDArray[np.int32]]:
        bins = cast(int, dict(params)["num_magnitude_bins"])
        return [_random(draw, 0, scaled(draw.fraction("magnitude"), bins), bins, WIDE, h, w)]


class AutoAugment(Policy):
    """Change all frames of a clip by one of 25 pairs of primitives that were learned for a dataset (Cubuk et al. 2019).

    A pair is drawn for each clip; each of its two primitives has a probability and a strength of its own.
    """

    name = "auto_augment"
    shorthand = "policy"
    BINS: ClassVar[int] = 10
    fields = (
        Field("policy", Choice(("imagenet", "cifar10", "svhn")), "imagenet", "what the pairs were learned for"),
        INTERPOLATION,
        FILL,
    )
    columns = ("op_1", "op_2")

    def _drawn(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> list[NDArray[np.int32]]:
        pairs = _pairs(cast(str, dict(params)["policy"]))
        pair = scaled(draw.fraction("policy"), len(pairs))
        steps = []
        for step in range(2):
            chosen = draw.fraction("chance", step) < np.array([threshold(each[step].prob) for each in pairs])[pair]
            numbers = np.zeros(len(h), np.int32)
            negative = _negative(draw, step)
            for number, each in enumerate(pairs):
                mine = chosen & (pair == number)
                bins = np.full(int(mine.sum()), each[step].magnitude, np.int64)
                numbers[mine] = _packed(each[step].primitive, bins, self.BINS, USUAL, h[mine], w[mine], negative[mine])
            steps.append(numbers)
        return steps


def moves_pixels(number: int) -> bool:
    """Whether what one column of a policy's row does leaves any pixel elsewhere than it was."""
    return bool(number) and _unpacked(number)[0] in _GEOMETRIC


def drawn_words(number: int) -> str:
    """What one column of a policy's row does, in words: ``rotate 9 degrees``; empty for 0."""
    if not number:
        return ""
    primitive, value = _unpacked(number)
    name = Primitive(primitive).name.lower().replace("_", " ")
    match primitive:
        case Primitive.SHEAR_X | Primitive.SHEAR_Y:
            return f"{name} {round(value / FACTOR_ONE, 3):g}"
        case Primitive.BRIGHTNESS | Primitive.COLOR | Primitive.CONTRAST | Primitive.SHARPNESS:
            return f"{name} {round(value / FACTOR_ONE, 3):g}"
        case Primitive.TRANSLATE_X | Primitive.TRANSLATE_Y:
            return f"{name} {value} pixels"
        case Primitive.ROTATE:
            return f"{name} {value / ANGLE_ONE:.3g} degrees"
        case Primitive.POSTERIZE:
            return f"{name} to {value} bits"
        case Primitive.SOLARIZE:
            return f"{name} from {value}"
    return name


# Numbers of a row ----------------------------------------------------------------------------------------------------

_VALUE_BITS = 24
"""Of a number of the row: the value, with half of the range added to it; the primitive is above them."""
_ZERO = 1 << (_VALUE_BITS - 1)
_GEOMETRIC = (
    Primitive.SHEAR_X,
    Primitive.SHEAR_Y,
    Primitive.TRANSLATE_X,
    Primitive.TRANSLATE_Y,
    Primitive.ROTATE,
)


def _unpacked(number: int) -> tuple[int, int]:
    return number >> _VALUE_BITS, (number & ((1 << _VALUE_BITS) - 1)) - _ZERO


def _random(
    draw: Draw, step: int, magnitude: NDArray[np.int64], bins: int, most: Strengths, h: Fixed, w: Fixed
) -> NDArray[np.int32]:
    """One primitive for each clip, any of them as likely as another."""
    choice = scaled(draw.fraction("op", step), len(_RANDOM))
    negative = _negative(draw, step)
    numbers = np.zeros(len(h), np.int32)
    for place, primitive in enumerate(_RANDOM):
        mine = choice == place
        if primitive is not None:
            numbers[mine] = _packed(primitive, magnitude[mine], bins, most, h[mine], w[mine], negative[mine])
    return numbers


def _negative(draw: Draw, step: int) -> NDArray[np.bool_]:
    return np.asarray(draw.fraction("sign", step) < threshold(0.5))


def _packed(
    primitive: Primitive,
    magnitude: NDArray[np.int64],
    bins: int,
    most: Strengths,
    h: Fixed,
    w: Fixed,
    negative: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """Numbers of a row for one primitive and the magnitudes of n clips; 0 where it would change nothing."""
    share = magnitude / (bins - 1)
    neutral = 0
    match primitive:
        case Primitive.SHEAR_X | Primitive.SHEAR_Y:
            value = np.rint(share * most.shear * FACTOR_ONE)
        case Primitive.TRANSLATE_X | Primitive.TRANSLATE_Y:
            side = w if primitive == Primitive.TRANSLATE_X else h
            fraction, pixels = most.translate
            value = np.floor(share * (fraction * side + pixels) + _HAIR)
        case Primitive.ROTATE:
            value = np.rint(share * most.degrees * ANGLE_ONE)
        case Primitive.POSTERIZE:
            value, neutral = np.rint(8 - share * most.lost_bits), 8
        case Primitive.SOLARIZE:
            value, neutral = np.ceil((1 - share) * 255 - _HAIR), 256
        case Primitive.AUTO_CONTRAST | Primitive.EQUALIZE | Primitive.INVERT:
            value, neutral = 0 * share, -1
        case _:  # a factor
            value, neutral = np.rint(share * most.factor * FACTOR_ONE), 0
    if primitive <= Primitive.SHARPNESS:
        value = np.where(negative, -value, value)
        if primitive >= Primitive.BRIGHTNESS:
            value, neutral = value + FACTOR_ONE, FACTOR_ONE
    packed = (int(primitive) << _VALUE_BITS) + value.astype(np.int64) + _ZERO
    return np.where(value == neutral, 0, packed).astype(np.int32)


_HAIR = 1e-6
"""So that a length or value that is whole but for float64's rounding counts as whole."""


# What was learned ----------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    primitive: Primitive
    prob: float
    magnitude: int
    """Of ten, from 0; 0 for those that have none."""


@cache
def _pairs(policy: str) -> tuple[tuple[_Step, _Step], ...]:
    """The 25 pairs of a policy."""
    return tuple((_step(first), _step(second)) for first, second in _LEARNED[policy])


def _step(text: str) -> _Step:
    """A step as it is written below: a primitive, its probability in tenths, and its magnitude."""
    name, tenths, *magnitude = text.split()
    return _Step(_WORDS[name], int(tenths) / 10, int(magnitude[0]) if magnitude else 0)


_WORDS = {
    "shear-x": Primitive.SHEAR_X,
    "shear-y": Primitive.SHEAR_Y,
    "translate-x": Primitive.TRANSLATE_X,
    "translate-y": Primitive.TRANSLATE_Y,
    "rotate": Primitive.ROTATE,
    "brightness": Primitive.BRIGHTNESS,
    "color": Primitive.COLOR,
    "contrast": Primitive.CONTRAST,
    "sharpness": Primitive.SHARPNESS,
    "posterize": Primitive.POSTERIZE,
    "solarize": Primitive.SOLARIZE,
    "autocontrast": Primitive.AUTO_CONTRAST,
    "equalize": Primitive.EQUALIZE,
    "invert": Primitive.INVERT,
}

_LEARNED: dict[str, tuple[tuple[str, str], ...]] = {
    "imagenet": (
        ("posterize 4 8", "rotate 6 9"),
        ("solarize 6 5", "autocontrast 6"),
        ("equalize 8", "equalize 6"),
        ("posterize 6 7", "posterize 6 6"),
        ("equalize 4", "solarize 2 4"),
        ("equalize 4", "rotate 8 8"),
        ("solarize 6 3", "equalize 6"),
        ("posterize 8 5", "equalize 10"),
        ("rotate 2 3", "solarize 6 8"),
        ("equalize 6", "posterize 4 6"),
        ("rotate 8 8", "color 4 0"),
        ("rotate 4 9", "equalize 6"),
        ("equalize 0", "equalize 8"),
        ("invert 6", "equalize 10"),
        ("color 6 4", "contrast 10 8"),
        ("rotate 8 8", "color 10 2"),
        ("color 8 8", "solarize 8 7"),
        ("sharpness 4 7", "invert 6"),
        ("shear-x 6 5", "equalize 10"),
        ("color 4 0", "equalize 6"),
        ("equalize 4", "solarize 2 4"),
        ("solarize 6 5", "autocontrast 6"),
        ("invert 6", "equalize 10"),
        ("color 6 4", "contrast 10 8"),
        ("equalize 8", "equalize 6"),
    ),
    "cifar10": (
        ("invert 1", "contrast 2 6"),
        ("rotate 7 2", "translate-x 3 9"),
        ("sharpness 8 1", "sharpness 9 3"),
        ("shear-y 5 8", "translate-y 7 9"),
        ("autocontrast 5", "equalize 9"),
        ("shear-y 2 7", "posterize 3 7"),
        ("color 4 3", "brightness 6 7"),
        ("sharpness 3 9", "brightness 7 9"),
        ("equalize 6", "equalize 5"),
        ("contrast 6 7", "sharpness 6 5"),
        ("color 7 7", "translate-x 5 8"),
        ("equalize 3", "autocontrast 4"),
        ("translate-y 4 3", "sharpness 2 6"),
        ("brightness 9 6", "color 2 8"),
        ("solarize 5 2", "invert 0"),
        ("equalize 2", "autocontrast 6"),
        ("equalize 2", "equalize 6"),
        ("color 9 9", "equalize 6"),
        ("autocontrast 8", "solarize 2 8"),
        ("brightness 1 3", "color 7 0"),
        ("solarize 4 5", "autocontrast 9"),
        ("translate-y 9 9", "translate-y 7 9"),
        ("autocontrast 9", "solarize 8 3"),
        ("equalize 8", "invert 1"),
        ("translate-y 7 9", "autocontrast 9"),
    ),
    "svhn": (
        ("shear-x 9 4", "invert 2"),
        ("shear-y 9 8", "invert 7"),
        ("equalize 6", "solarize 6 6"),
        ("invert 9", "equalize 6"),
        ("equalize 6", "rotate 9 3"),
        ("shear-x 9 4", "autocontrast 8"),
        ("shear-y 9 8", "invert 4"),
        ("shear-y 9 5", "solarize 2 6"),
        ("invert 9", "autocontrast 8"),
        ("equalize 6", "rotate 9 3"),
        ("shear-x 9 4", "solarize 3 3"),
        ("shear-y 8 8", "invert 7"),
        ("equalize 9", "translate-y 6 6"),
        ("invert 9", "equalize 6"),
        ("contrast 3 3", "rotate 8 4"),
        ("invert 8", "translate-y 0 2"),
        ("shear-y 7 6", "solarize 4 8"),
        ("invert 6", "rotate 8 4"),
        ("shear-y 3 7", "translate-x 9 3"),
        ("shear-x 1 6", "invert 6"),
        ("solarize 7 2", "translate-y 6 7"),
        ("shear-y 8 4", "invert 8"),
        ("shear-x 7 9", "translate-y 8 3"),
        ("shear-y 8 5", "autocontrast 7"),
        ("shear-x 7 2", "invert 1"),
    ),
}
"""Tables 7, 8 and 9 of the paper on AutoAugment, in its order: probabilities in tenths, then magnitudes of ten."""

OPS = (RandAugment(), TrivialAugmentWide(), AutoAugment())
