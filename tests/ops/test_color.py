"""Colours and details against PIL, colorsys and SciPy."""

import colorsys
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from tests.ops.draws import draws, frame, parse, parse_frame
from tests.ops.references import gaussian, p_uniform
from viewcache.materializer.ops.color import ONE, luma, shift_hue

Enhancer = Callable[[Image.Image], ImageEnhance.Brightness | ImageEnhance.Contrast | ImageEnhance.Color]
JITTER = {"brightness": 0.4, "contrast": 0.3, "saturation": 0.2, "hue": 0.1}


def jitter(
    brightness: float = 1.0, contrast: float = 1.0, saturation: float = 1.0, hue: float = 0.0
) -> NDArray[np.int_]:
    """Apply a color_jitter with given factors."""
    op, params = parse_frame("color_jitter", JITTER)
    row = np.array([round(x * ONE) for x in (brightness, contrast, saturation, hue)], np.int32)
    return op.apply(params, row, frame()).astype(int)


def picture() -> Image.Image:
    """The test frame for PIL."""
    return Image.fromarray(np.ascontiguousarray(frame().transpose(1, 2, 0)))


def planar(image: Image.Image) -> NDArray[np.int_]:
    """A PIL image as (3,H,W) integers."""
    return np.asarray(image).transpose(2, 0, 1).astype(int)


def test_grey_is_exactly_that_of_pil() -> None:
    """The grey value of a pixel is PIL's mode L, bit for bit."""
    assert np.array_equal(luma(frame()), np.asarray(picture().convert("L")))


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.73, 1.0, 1.4, 2.0])
@pytest.mark.parametrize(
    ("name", "enhance"),
    [("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast), ("saturation", ImageEnhance.Color)],
)
def test_factors_agree_with_pil(name: str, enhance: Enhancer, factor: float) -> None:
    """Brightness, contrast and saturation are within 1 grey value of PIL's (which truncates where we round)."""
    assert np.abs(jitter(**{name: factor}) - planar(enhance(picture()).enhance(factor))).max() <= 1


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.25, 1 / 3, 0.37])
def test_hue_agrees_with_colorsys(turn: float) -> None:
    """Turning the hue is within 1 grey value of converting to HSV and back in floating point."""
    pixels = frame().reshape(3, -1).T / 255
    want = []
    for red, green, blue in pixels:
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        want.append(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value))
    got = shift_hue(frame(), round(turn * ONE)).reshape(3, -1).T
    assert np.abs(got - np.array(want) * 255).max() <= 1


def test_hue_of_grey_and_of_whole_turns() -> None:
    """Grey pixels have no hue to turn, and a third of a turn takes pure red to green and green to blue."""
    grey = np.repeat(frame()[:1], 3, axis=0)
    assert np.array_equal(shift_hue(grey, 777), grey)
    red = np.array([200, 0, 0], np.uint8).reshape(3, 1, 1)
    third = shift_hue(red, round(ONE / 3)).ravel().tolist()
    assert third[0] <= 1
    assert third[1] == 200


def test_jitter_is_applied_in_the_documented_order() -> None:
    """Brightness, contrast, saturation: together they are PIL's steps in this order, and no other order's."""
    steps: tuple[tuple[Enhancer, float], ...] = (
        (ImageEnhance.Brightness, 1.6),
        (ImageEnhance.Contrast, 0.5),
        (ImageEnhance.Color, 1.6),
    )
    errors = {}
    for order in itertools.permutations(range(3)):
        want = picture()
        for step in order:
            want = steps[step][0](want).enhance(steps[step][1])
        errors[order] = np.abs(jitter(1.6, 0.5, 1.6) - planar(want)).mean()
    assert errors[0, 1, 2] < 1
    assert min(error for order, error in errors.items() if order != (0, 1, 2)) > 3


def test_jitter_factors_are_uniform() -> None:
    """Each factor is uniform in [1 - v, 1 + v], hue in [-h, h], and they are independent; prob is the share changed."""
    op, params = parse("color_jitter", {**JITTER, "prob": 1.0})
    size = np.full(20_000, 8)
    changes = op.resolve(params, draws(20_000, op.scope), size, size)[0] / ONE - [1, 1, 1, 0]
    for column, most in zip(changes.T, (0.4, 0.3, 0.2, 0.1), strict=True):
        assert p_uniform((column / most + 1) / 2) > 1e-4
    assert np.abs(np.corrcoef(changes.T) - np.eye(4)).max() < 0.03
    op, params = parse("color_jitter", {**JITTER, "prob": 0.25})
    rows = op.resolve(params, draws(20_000, op.scope), size, size)[0]
    assert op.identity(params, rows, size, size).mean() == pytest.approx(0.75, abs=0.012)


def test_grayscale_repeats_the_grey_plane() -> None:
    """Grayscale gives three equal planes, or the frame itself where it was not chosen."""
    op, params = parse_frame("grayscale", None)
    out = op.apply(params, np.array([1], np.int32), frame())
    assert np.array_equal(out, np.repeat(luma(frame())[None], 3, axis=0))
    assert op.apply(params, np.array([0], np.int32), frame()).tobytes() == frame().tobytes()


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5])
def test_blur_agrees_with_scipy(sigma: float) -> None:
    """Blurring is within 1.5 grey values of SciPy's Gaussian of three standard deviations with mirrored borders."""
    op, params = parse_frame("blur", sigma)
    rows, *_ = op.resolve(params, draws(1), np.array([32]), np.array([45]))
    got = op.apply(params, rows[0], frame())
    radius = int(np.ceil(3 * sigma))
    for plane, out in zip(frame().astype(float), got, strict=True):
        want = gaussian(plane, rows[0, 0] / ONE, radius)
        assert np.abs(out - want).max() <= 1.5


def test_erase_fills_one_window() -> None:
    """Erase fills exactly its window with the colour, the same in every frame; unchosen clips stay as they are."""
    op, params = parse_frame("erase", {"prob": 0.5, "fill": [1, 2, 3]})
    n = 4000
    rows, *_ = op.resolve(params, draws(n, op.scope), np.full(n, 32), np.full(n, 45))
    erased = rows[:, 2] > 0
    assert erased.mean() == pytest.approx(0.5, abs=0.03)
    y, x, h, w = rows[erased][0]
    out = op.apply(params, rows[erased][0], frame())
    inside = np.zeros((32, 45), bool)
    inside[y : y + h, x : x + w] = True
    assert np.array_equal(out[:, ~inside], frame()[:, ~inside])
    assert np.array_equal(out[:, inside], np.repeat([[1], [2], [3]], inside.sum(), axis=1))
    areas = rows[erased][:, 2] * rows[erased][:, 3] / (32 * 45)
    assert areas.min() > 0.01
    assert areas.max() < 0.37
