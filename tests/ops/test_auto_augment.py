"""Random and learned policies: every primitive against PIL, and what is drawn against the published tables."""

import math
from collections.abc import Callable

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from tests.clips import real_clip
from tests.ops.draws import draws, frame, parse, parse_frame
from tests.ops.references import p_even, p_given
from viewcache.errors import BadInput
from viewcache.materializer.ops import Rows
from viewcache.materializer.ops.auto_augment import drawn_words
from viewcache.materializer.ops.primitives import Primitive as P
from viewcache.materializer.ops.primitives import applied

FILL = (9, 99, 199)
FRAMES = [
    frame(),
    frame(97, 131, 3),
    (frame(64, 64, 5) // 3 + 50).astype(np.uint8),  # few values, in the middle
    np.full((3, 5, 7), 200, np.uint8),  # one value
    frame(2, 2, 1),
]

# PIL, as torchvision calls it for pictures; magnitudes are torchvision's ----------------------------------------------


def picture(planes: NDArray[np.uint8]) -> Image.Image:
    """A frame for PIL."""
    return Image.fromarray(np.ascontiguousarray(planes.transpose(1, 2, 0)))


def planar(image: Image.Image) -> NDArray[np.int_]:
    """A PIL image as (3,H,W) integers."""
    return np.asarray(image).transpose(2, 0, 1).astype(int)


def affine(image: Image.Image, how: Image.Resampling, *matrix: float) -> Image.Image:
    """A picture whose pixel (x, y) comes from the matrix times (x, y, 1)."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix, how, fillcolor=FILL)


By = Callable[[Image.Image, float, Image.Resampling], Image.Image]
MOVING: dict[P, By] = {
    P.SHEAR_X: lambda image, m, how: affine(image, how, 1, m, 0, 0, 1, 0),
    P.SHEAR_Y: lambda image, m, how: affine(image, how, 1, 0, 0, m, 1, 0),
    P.TRANSLATE_X: lambda image, m, how: affine(image, how, 1, 0, -int(m), 0, 1, 0),
    P.TRANSLATE_Y: lambda image, m, how: affine(image, how, 1, 0, 0, 0, 1, -int(m)),
    P.ROTATE: lambda image, m, how: image.rotate(m, how, fillcolor=FILL),
}
FACTORS: dict[P, By] = {
    P.BRIGHTNESS: lambda image, m, _: ImageEnhance.Brightness(image).enhance(1 + m),
    P.COLOR: lambda image, m, _: ImageEnhance.Color(image).enhance(1 + m),
    P.CONTRAST: lambda image, m, _: ImageEnhance.Contrast(image).enhance(1 + m),
    P.SHARPNESS: lambda image, m, _: ImageEnhance.Sharpness(image).enhance(1 + m),
}
OTHERS: dict[P, By] = {
    P.POSTERIZE: lambda image, m, _: ImageOps.posterize(image, int(m)),
    P.SOLARIZE: lambda image, m, _: ImageOps.solarize(image, math.ceil(m)),
    P.AUTO_CONTRAST: lambda image, *_: ImageOps.autocontrast(image),
    P.EQUALIZE: lambda image, *_: ImageOps.equalize(image),
    P.INVERT: lambda image, *_: ImageOps.invert(image),
}
BY_PIL = {**MOVING, **FACTORS, **OTHERS}
MAGNITUDES: dict[P, list[float]] = {
    P.SHEAR_X: [0.09, -0.3, 0.99],
    P.SHEAR_Y: [0.09, -0.3, 0.99],
    P.TRANSLATE_X: [5, -12, 200],
    P.TRANSLATE_Y: [5, -12, 200],
    P.ROTATE: [9, -30, 4.5, 90, 135],
    **{each: [sign * 0.03 * step for step in range(1, 34) for sign in (1, -1)] for each in FACTORS},
    P.POSTERIZE: [1, 4, 5, 8],
    P.SOLARIZE: [0, 127.5, 178.5, 255],
    P.AUTO_CONTRAST: [0],
    P.EQUALIZE: [0],
    P.INVERT: [0],
}


def number(primitive: P, magnitude: float) -> int:
    """What stands in a row for a magnitude of torchvision's."""
    if primitive in FACTORS:
        return round((1 + magnitude) * 65536)
    return {P.SHEAR_X: round(magnitude * 65536), P.SHEAR_Y: round(magnitude * 65536)}.get(
        primitive, round(magnitude * 4096) if primitive == P.ROTATE else math.ceil(magnitude)
    )


def differences(primitive: P, how: str = "nearest") -> NDArray[np.int_]:
    """How far all frames under all magnitudes are from PIL's, in grey values, one after the other."""
    found = []
    for planes in FRAMES:
        for magnitude in MAGNITUDES[primitive]:
            want = planar(BY_PIL[primitive](picture(planes), magnitude, Image.Resampling[how.upper()]))
            found.append(np.abs(applied(primitive, number(primitive, magnitude), planes, how, FILL) - want).ravel())
    return np.concatenate(found)


@pytest.mark.parametrize("primitive", [each for each in BY_PIL if each not in (P.ROTATE, *FACTORS)])
def test_pixels_are_those_of_pil(primitive: P) -> None:
    """Shear, translation, posterize, solarize, autocontrast, equalize and invert are PIL's, pixel by pixel."""
    assert differences(primitive).max() == 0


def test_rotation_is_that_of_pil() -> None:
    """A rotation is PIL's but for at most one pixel of 10,000, whose place lies on the line between two."""
    assert (differences(P.ROTATE) > 0).mean() < 1e-4


@pytest.mark.parametrize("primitive", FACTORS)
def test_factors_are_those_of_pil(primitive: P) -> None:
    """Brightness, colour, contrast and sharpness are PIL's but for one grey value in at most 0.3 % of the pixels."""
    far = differences(primitive)
    assert far.max() <= 1
    assert (far > 0).mean() < 0.003


@pytest.mark.parametrize("primitive", MOVING)
def test_bilinear_is_nearly_that_of_pil(primitive: P) -> None:
    """Places in 1/32 of a pixel are within 5 grey values of PIL's on noise, but for the edge of what is outside."""
    far = differences(primitive, "bilinear")
    assert (far > 5).mean() < 1e-4
    assert far.mean() < 0.6


@pytest.mark.parametrize("name", ["train/bikes_272p_h264.mp4", "train/bbb_720p_vp8.webm"])
def test_frames_of_real_clips_are_those_of_pil(name: str) -> None:
    """Every primitive at magnitude 9 of 31, on a frame of a real clip: PIL's pixels, but for the stated few."""
    with av.open(str(real_clip(name))) as container:
        shown = next(container.decode(video=0)).to_ndarray(format="rgb24")
    planes = np.asarray(shown, np.uint8).transpose(2, 0, 1)
    magnitudes = {each: MAGNITUDES[each][-1] for each in OTHERS} | dict.fromkeys(FACTORS, 0.27)
    magnitudes |= {P.SHEAR_X: 0.09, P.SHEAR_Y: -0.09, P.TRANSLATE_X: 41, P.TRANSLATE_Y: -30, P.ROTATE: 9}
    for primitive, magnitude in magnitudes.items():
        want = planar(BY_PIL[primitive](picture(planes), magnitude, Image.Resampling.NEAREST))
        far = np.abs(applied(primitive, number(primitive, magnitude), planes, "nearest", FILL) - want)
        few = 1e-4 if primitive == P.ROTATE else 0.003 if primitive in FACTORS else 0
        assert (far > 0).mean() <= few, primitive
        assert far.max() <= 1 or primitive == P.ROTATE


# What is drawn -------------------------------------------------------------------------------------------------------

N = 60_000
H, W = 112, 160


def drawn(name: str, value: object) -> Rows:
    """Rows of many clips, one column for each primitive."""
    op, params = parse(name, value)
    return op.resolve(params, draws(N, op.scope), np.full(N, H), np.full(N, W))[0]


def words(rows: Rows) -> list[str]:
    """The primitives of each clip in words, in their order."""
    known = {value: drawn_words(value) for value in np.unique(rows).tolist()}
    return [" | ".join(filter(None, map(known.__getitem__, row))) for row in rows.tolist()]


def expected(probabilities: dict[str, float], rows: Rows) -> float:
    """How likely counts as these are if each outcome has its probability; no other outcome may have come."""
    found, counts = np.unique(words(rows), return_counts=True)
    assert set(found) <= {outcome for outcome, probability in probabilities.items() if probability}
    seen = dict(zip(found.tolist(), counts.tolist(), strict=True))
    likely = [outcome for outcome, probability in probabilities.items() if probability * N >= 5]
    rest = 1 - sum(probabilities[each] for each in likely)
    want = [probabilities[each] * N for each in likely]
    have = [seen.get(each, 0) for each in likely]
    if rest * N >= 5:
        want, have = [*want, rest * N], [*have, N - sum(have)]
    return p_given(np.array(have) * (sum(want) / sum(have)), want)


def outcomes(name: str, magnitude: int, bins: int, wide: bool = False) -> dict[str, float]:
    """What a primitive may do, in words, with its probability; as torchvision's tables of magnitudes say."""
    share = magnitude / (bins - 1)

    def both(text: str, value: float, digits: str = "g", unit: str = "", middle: float = 0) -> dict[str, float]:
        if not value:
            return {"": 1.0}
        return {f"{text} {round(middle + sign * value, 3):{digits}}{unit}": 0.5 for sign in (1, -1)}

    match name:
        case "Identity":
            return {"": 1.0}
        case "ShearX" | "ShearY":
            return both(f"shear {name[-1].lower()}", share * (0.99 if wide else 0.3))
        case "TranslateX" | "TranslateY":
            most = 32.0 if wide else 150 / 331 * (W if name[-1] == "X" else H)
            return both(f"translate {name[-1].lower()}", int(share * most), "d", " pixels")
        case "Rotate":
            return both("rotate", share * (135.0 if wide else 30.0), ".3g", " degrees")
        case "Brightness" | "Color" | "Contrast" | "Sharpness":
            return both(name.lower(), share * (0.99 if wide else 0.9), middle=1)
        case "Posterize":
            bits = round(8 - magnitude / ((bins - 1) / (6 if wide else 4)))
            return {f"posterize to {bits} bits" if bits < 8 else "": 1.0}
        case "Solarize":
            return {f"solarize from {math.ceil(255 * (1 - share) - 1e-6)}": 1.0}
        case _:
            return {{"AutoContrast": "auto contrast"}.get(name, name.lower()): 1.0}


RANDOM = [
    *["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast"],
    *["Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"],
]


def joined(*steps: dict[str, float]) -> dict[str, float]:
    """Independent steps one after the other."""
    found = {"": 1.0}
    for step in steps:
        longer: dict[str, float] = {}
        for before, p in found.items():
            for then, q in step.items():
                both = " | ".join(filter(None, (before, then)))
                longer[both] = longer.get(both, 0.0) + p * q
        found = longer
    return found


def mixed(*choices: dict[str, float]) -> dict[str, float]:
    """One of several, each as likely as another."""
    found: dict[str, float] = {}
    for choice in choices:
        for outcome, p in choice.items():
            found[outcome] = found.get(outcome, 0.0) + p / len(choices)
    return found


@pytest.mark.parametrize(("ops", "magnitude", "bins"), [(1, 9, 31), (2, 9, 31), (1, 0, 31), (1, 10, 11), (3, 5, 10)])
def test_rand_augment_draws_as_published(ops: int, magnitude: int, bins: int) -> None:
    """Fourteen primitives, with repetition and equally likely, at the strength of the table, either way."""
    step = mixed(*(outcomes(name, magnitude, bins) for name in RANDOM))
    rows = drawn("rand_augment", {"num_ops": ops, "magnitude": magnitude, "num_magnitude_bins": bins})
    assert expected(joined(*[step] * ops), rows) > 1e-4


@pytest.mark.parametrize("bins", [31, 10])
def test_trivial_augment_draws_as_published(bins: int) -> None:
    """One primitive at one strength of all, both equally likely, from the wide tables."""
    outcome = mixed(*(outcomes(name, m, bins, wide=True) for name in RANDOM for m in range(bins)))
    assert expected(outcome, drawn("trivial_augment_wide", {"num_magnitude_bins": bins})) > 1e-4


# Tables 7 to 9 of the paper on AutoAugment, as (operation, probability, magnitude) and a line for each sub-policy.
PUBLISHED = {
    "imagenet": """
        Posterize,0.4,8 Rotate,0.6,9; Solarize,0.6,5 AutoContrast,0.6,5; Equalize,0.8,8 Equalize,0.6,3
        Posterize,0.6,7 Posterize,0.6,6; Equalize,0.4,7 Solarize,0.2,4; Equalize,0.4,4 Rotate,0.8,8
        Solarize,0.6,3 Equalize,0.6,7; Posterize,0.8,5 Equalize,1.0,2; Rotate,0.2,3 Solarize,0.6,8
        Equalize,0.6,8 Posterize,0.4,6; Rotate,0.8,8 Color,0.4,0; Rotate,0.4,9 Equalize,0.6,2
        Equalize,0.0,7 Equalize,0.8,8; Invert,0.6,4 Equalize,1.0,8; Color,0.6,4 Contrast,1.0,8
        Rotate,0.8,8 Color,1.0,2; Color,0.8,8 Solarize,0.8,7; Sharpness,0.4,7 Invert,0.6,8
        ShearX,0.6,5 Equalize,1.0,9; Color,0.4,0 Equalize,0.6,3; Equalize,0.4,7 Solarize,0.2,4
        Solarize,0.6,5 AutoContrast,0.6,5; Invert,0.6,4 Equalize,1.0,8; Color,0.6,4 Contrast,1.0,8
        Equalize,0.8,8 Equalize,0.6,3""",
    "cifar10": """
        Invert,0.1,7 Contrast,0.2,6; Rotate,0.7,2 TranslateX,0.3,9; Sharpness,0.8,1 Sharpness,0.9,3
        ShearY,0.5,8 TranslateY,0.7,9; AutoContrast,0.5,8 Equalize,0.9,2; ShearY,0.2,7 Posterize,0.3,7
        Color,0.4,3 Brightness,0.6,7; Sharpness,0.3,9 Brightness,0.7,9; Equalize,0.6,5 Equalize,0.5,1
        Contrast,0.6,7 Sharpness,0.6,5; Color,0.7,7 TranslateX,0.5,8; Equalize,0.3,7 AutoContrast,0.4,8
        TranslateY,0.4,3 Sharpness,0.2,6; Brightness,0.9,6 Color,0.2,8; Solarize,0.5,2 Invert,0.0,3
        Equalize,0.2,0 AutoContrast,0.6,0; Equalize,0.2,8 Equalize,0.6,4; Color,0.9,9 Equalize,0.6,6
        AutoContrast,0.8,4 Solarize,0.2,8; Brightness,0.1,3 Color,0.7,0; Solarize,0.4,5 AutoContrast,0.9,3
        TranslateY,0.9,9 TranslateY,0.7,9; AutoContrast,0.9,2 Solarize,0.8,3; Equalize,0.8,8 Invert,0.1,3
        TranslateY,0.7,9 AutoContrast,0.9,1""",
    "svhn": """
        ShearX,0.9,4 Invert,0.2,3; ShearY,0.9,8 Invert,0.7,5; Equalize,0.6,5 Solarize,0.6,6
        Invert,0.9,3 Equalize,0.6,3; Equalize,0.6,1 Rotate,0.9,3; ShearX,0.9,4 AutoContrast,0.8,3
        ShearY,0.9,8 Invert,0.4,5; ShearY,0.9,5 Solarize,0.2,6; Invert,0.9,6 AutoContrast,0.8,1
        Equalize,0.6,3 Rotate,0.9,3; ShearX,0.9,4 Solarize,0.3,3; ShearY,0.8,8 Invert,0.7,4
        Equalize,0.9,5 TranslateY,0.6,6; Invert,0.9,4 Equalize,0.6,7; Contrast,0.3,3 Rotate,0.8,4
        Invert,0.8,5 TranslateY,0.0,2; ShearY,0.7,6 Solarize,0.4,8; Invert,0.6,4 Rotate,0.8,4
        ShearY,0.3,7 TranslateX,0.9,3; ShearX,0.1,6 Invert,0.6,5; Solarize,0.7,2 TranslateY,0.6,7
        ShearY,0.8,4 Invert,0.8,8; ShearX,0.7,9 TranslateY,0.8,3; ShearY,0.8,5 AutoContrast,0.7,3
        ShearX,0.7,2 Invert,0.1,5""",
}


def published(policy: str) -> dict[str, float]:
    """The outcomes of a published policy with their probabilities."""
    pairs = []
    for line in PUBLISHED[policy].replace("\n", ";").split(";"):
        if not line.strip():
            continue
        steps = []
        for step in line.split():
            name, chance, magnitude = step.split(",")
            done = {each: float(chance) * p for each, p in outcomes(name, int(magnitude), 10).items()}
            done[""] = done.get("", 0.0) + 1 - float(chance)
            steps.append(done)
        pairs.append(joined(*steps))
    assert len(pairs) == 25
    return mixed(*pairs)


@pytest.mark.parametrize("policy", PUBLISHED)
def test_auto_augment_draws_as_published(policy: str) -> None:
    """Each of the 25 pairs, equally likely, with the probabilities and strengths of the paper's table."""
    assert expected(published(policy), drawn("auto_augment", policy)) > 1e-4


def test_draws_of_one_clip_are_independent() -> None:
    """Two primitives of one clip are drawn apart, and a task with three begins with those of one with two."""
    names = drawn("rand_augment", {"num_ops": 2, "magnitude": 9})
    both = names[(names[:, 1] != 0)] >> 24
    table = np.zeros((15, 15))
    np.add.at(table, (both[:, 0], both[:, 1]), 1)
    there = table[table > 0]
    assert len(there) == 13 * 13
    assert p_even(there) > 1e-4
    more = drawn("rand_augment", {"num_ops": 3, "magnitude": 9})
    full = names[:, 1] != 0
    assert np.array_equal(more[full, :2], names[full, :2])


def test_what_changes_nothing_is_left_out() -> None:
    """A clip of which nothing changes stays as it is, and no row has a primitive that does nothing."""
    op, params = parse_frame("rand_augment", {"num_ops": 2, "magnitude": 0})
    sizes = np.full(N, 32)
    rows, *_ = op.resolve(params, draws(N, op.scope), sizes, sizes)
    same = op.identity(params, rows, sizes, sizes)
    # At magnitude 0 only autocontrast, equalize and solarize (of 255 alone) change anything.
    assert same.mean() == pytest.approx((11 / 14) ** 2, abs=0.01)
    assert (rows[~same][:, 0] != 0).all()  # what changes something comes first
    assert op.apply(params, rows[same][0], frame()).tobytes() == frame().tobytes()


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("rand_augment", {"magnitude": 31}, "magnitude is 31; allowed: an integer from 0 to 30, below num_magnitude_b"),
        ("rand_augment", {"magnitude": 10, "num_magnitude_bins": 10}, "allowed: an integer from 0 to 9"),
        ("rand_augment", {"magnitude": -1}, "magnitude is -1; allowed: an integer from 0 to 999"),
        ("rand_augment", {"magnitude": 9.5}, "magnitude is 9.5; allowed: an integer"),
        ("rand_augment", {"num_ops": 0}, "num_ops is 0; allowed: an integer from 1 to 8"),
        ("rand_augment", {"num_magnitude_bins": 1}, "num_magnitude_bins is 1; allowed: an integer from 2"),
        ("rand_augment", {"interpolation": "bicubic"}, "allowed: nearest, bilinear"),
        ("trivial_augment_wide", {"magnitude": 9}, "unknown parameter 'magnitude'"),
        ("auto_augment", "kinetics", "policy is 'kinetics'; allowed: imagenet, cifar10, svhn"),
        ("auto_augment", {"fill": 256}, "fill is 256; allowed"),
    ],
)
def test_bad_parameters_are_refused(name: str, value: object, match: str) -> None:
    """What a policy cannot be is refused with the value and what is allowed."""
    with pytest.raises(BadInput, match=match):
        parse(name, value)
