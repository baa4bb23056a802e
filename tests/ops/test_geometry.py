"""Sizes, crops, mirror images and rotations against independent references."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.draws import draws, frame, parse, parse_frame, parse_native
from tests.ops.references import p_even, p_uniform, turned
from viewcache.errors import BadInput
from viewcache.materializer.ops import Params, Rows, static_size
from viewcache.materializer.ops.resize import short_side_size

SIDES = st.integers(1, 5000)


def smooth(h: int, w: int) -> NDArray[np.uint8]:
    """A frame without fine detail, where good resamplers agree."""
    y, x = np.mgrid[0:h, 0:w]
    waves = [128 + 100 * np.sin(x / (9 + 3 * c)) * np.cos(y / (11 - 2 * c)) for c in range(3)]
    return np.round(waves).astype(np.uint8)


def sizes_of(name: str, value: object, h: int, w: int) -> Rows:
    """Resolved rows of one operation for frames of one size."""
    op, params = parse(name, value)
    n = 20_000
    return op.resolve(params, draws(n, op.scope), np.full(n, h), np.full(n, w))[0]


# Resizing


@given(SIDES, SIDES, st.integers(1, 600))
def test_short_side_rounds_half_up(h: int, w: int, short: int) -> None:
    """The long side is the exact ratio rounded half up, the short side is as asked, and h and w are treated alike."""
    out_h, out_w = (int(x) for x in short_side_size(np.array(h), np.array(w), short))
    long = int(Fraction(max(h, w) * short, min(h, w)) + Fraction(1, 2))
    assert sorted((out_h, out_w)) == sorted((short, long))
    assert tuple(int(x) for x in short_side_size(np.array(w), np.array(h), short)) == (out_w, out_h)


def test_short_side_examples() -> None:
    """Common sizes come out as people expect: 240x320 at 256 is 256x341 (341.33), 2x5 at 3 is 3x8 (7.5)."""
    assert [int(x) for x in short_side_size(np.array(240), np.array(320), 256)] == [256, 341]
    assert [int(x) for x in short_side_size(np.array(5), np.array(2), 3)] == [8, 3]


@pytest.mark.parametrize(("h", "w"), [(60, 80), (97, 51)])
def test_resize_agrees_with_torch(h: int, w: int) -> None:
    """Shrinking a smooth frame is within 1.5 grey values of torch's antialiased bilinear, 4 at the borders."""
    op, params = parse_native("resize", {"shape": [h, w]})
    picture = smooth(180, 240)
    rows, *_ = op.resolve(params, draws(1), np.array([180]), np.array([240]))
    want = torch.nn.functional.interpolate(
        torch.from_numpy(picture)[None].float(), (h, w), mode="bilinear", antialias=True
    )[0].numpy()
    error = np.abs(op.apply(params, rows[0], picture) - want)
    assert error.max() <= 4
    assert error[:, 3:-3, 3:-3].max() <= 1.5
    assert error.mean() <= 0.35


def test_resize_gives_its_target_to_the_decoder() -> None:
    """A resize says height, width and interpolation, so that it can be fused with the colour conversion."""
    op, params = parse_native("resize", {"short_side": 256, "interpolation": ["area"]})
    rows, *_ = op.resolve(params, draws(1), np.array([240]), np.array([320]))
    assert op.native
    assert op.target(params, rows[0]) == (256, 341, "area")


def test_resize_needs_exactly_one_size() -> None:
    """A resize with no size or with two is refused, with the two ways to say it."""
    for value in ({}, {"shape": [1, 2], "short_side": 3}):
        with pytest.raises(BadInput, match="exactly one of shape"):
            parse("resize", value)


def test_resize_refuses_giant_results() -> None:
    """A frame like a line would become hundreds of thousands of pixels long; it is refused with the limit."""
    for name, value in (("resize", {"short_side": 256}), ("random_short_side", {"range": [8, 256]})):
        op, params = parse(name, value)
        with pytest.raises(BadInput, match=r"2x9000 .* longer than 16384"):
            op.resolve(params, draws(2), np.array([240, 2]), np.array([320, 9000]))


def test_short_side_jitter_is_uniform() -> None:
    """Every length from the lowest to the highest, both included, is drawn equally often."""
    rows = sizes_of("random_short_side", {"range": [256, 320]}, 100, 200)
    assert p_even(np.bincount(rows[:, 0] - 256, minlength=65)) > 1e-4


# Crops


def test_random_crops_are_uniform() -> None:
    """Law 2: over many clips every offset of the window comes equally often in both directions, independently."""
    rows = sizes_of("random_crop", {"shape": [225, 331]}, 256, 341)
    y, x = rows[:, 0], rows[:, 1]
    assert p_even(np.bincount(y, minlength=32)) > 1e-4
    assert p_even(np.bincount(x, minlength=11)) > 1e-4
    assert p_even(np.bincount(y * 11 + x, minlength=352)) > 1e-4


def test_crops_of_other_sizes_nest() -> None:
    """Tasks with other crop sizes over the same clip get nested windows, so the smaller is part of the larger."""
    outer, inner = (sizes_of("random_crop", {"shape": side}, 256, 341) for side in (224, 160))
    assert (outer[:, :2] <= inner[:, :2]).all()
    assert (inner[:, :2] + 160 <= outer[:, :2] + 224).all()


def test_repeated_crops_and_independent_tasks_draw_apart() -> None:
    """A second crop in one pipeline, and an uncoordinated task, are uncorrelated with the shared draw."""
    op, params = parse("random_crop", 100)
    n, size = 4000, np.full(4000, 300)
    first = op.resolve(params, draws(n, "crop"), size, size)[0]
    for where in ({"ordinal": 1}, {"independent": 7}, {"sample": 1}, {"epoch": 1}, {"seed": 1}):
        other = op.resolve(params, draws(n, "crop", **where), size, size)[0]
        assert abs(np.corrcoef(first[:, 0], other[:, 0])[0, 1]) < 0.06


def test_a_crop_is_a_view() -> None:
    """Crops and mirror images copy nothing: their result shares the frame's memory."""
    picture = frame()
    for name, value in (("random_crop", 10), ("flip", 1.0), ("rotate", 90)):
        op, params = parse_frame(name, value)
        rows, *_ = op.resolve(params, draws(1), np.array([32]), np.array([45]))
        assert np.shares_memory(op.apply(params, rows[0], picture), picture)


def test_center_and_five_crops() -> None:
    """The centre leaves the odd pixel below and right; sample m of five_crop is corner m, then the centre."""
    op, params = parse("center_crop", {"shape": [3, 4]})
    assert op.resolve(params, draws(1), np.array([10]), np.array([11]))[0].tolist() == [[3, 3, 3, 4]]
    op, params = parse("five_crop", {"shape": [3, 4]})
    places = [
        op.resolve(params, draws(1, sample=m), np.array([10]), np.array([11]))[0][0, :2].tolist() for m in range(6)
    ]
    assert places == [[0, 0], [0, 7], [7, 0], [7, 7], [3, 3], [0, 0]]


def test_three_crops_lie_along_the_longer_side() -> None:
    """Left, middle and right of a wide frame, top, middle and bottom of a tall one; then from the first again."""
    op, params = parse("three_crop", {"shape": [3, 4]})
    places = [
        op.resolve(params, draws(2, sample=m), np.array([6, 12]), np.array([11, 6]))[0][:, :2].tolist()
        for m in range(4)
    ]
    assert places == [[[1, 0], [0, 1]], [[1, 3], [4, 1]], [[1, 7], [9, 1]], [[1, 0], [0, 1]]]


def test_ten_crops_are_five_and_their_mirror_images() -> None:
    """Samples 5 to 9 show what 0 to 4 show, mirrored."""
    op, params = parse_frame("ten_crop", {"shape": [30, 40]})
    picture = frame()
    shown = [
        op.apply(params, op.resolve(params, draws(1, sample=m), np.array([32]), np.array([45]))[0][0], picture)
        for m in range(10)
    ]
    for k in range(5):
        assert np.array_equal(shown[k + 5], shown[k][:, :, ::-1])
    assert len({each.tobytes() for each in shown}) == 10


def test_a_crop_larger_than_the_frame_is_refused() -> None:
    """A frame smaller than the window is named with its size, and fits says which frames they are."""
    op, params = parse("random_crop", {"shape": [224, 224]})
    h, w = np.array([256, 200]), np.array([341, 400])
    assert op.fits(params, h, w).tolist() == [True, False]
    with pytest.raises(
        BadInput, match=r"random_crop: a frame of 200x400 .* smaller than shape \[224, 224\]; resize to at least"
    ):
        op.resolve(params, draws(2), h, w)


# Random resized crops


def test_random_windows_have_the_asked_area_and_ratio() -> None:
    """Windows lie in the frame; area and aspect are within the ranges up to rounding of the sides to whole pixels."""
    rows = sizes_of("random_resized_crop", {"shape": 9, "scale": [0.2, 0.6]}, 240, 320).astype(float)
    y, x, h, w = rows.T
    assert (y >= 0).all()
    assert (x >= 0).all()
    assert (y + h <= 240).all()
    assert (x + w <= 320).all()
    area = 240 * 320
    assert ((h + 0.5) * (w + 0.5) >= 0.2 * area).all()
    assert ((h - 0.5) * (w - 0.5) <= 0.6 * area).all()
    assert ((w + 0.5) / (h - 0.5) >= 0.75).all()
    assert ((w - 0.5) / (h + 0.5) <= 4 / 3).all()


def test_random_windows_are_uniform_in_area_log_ratio_and_place() -> None:
    """Where every try fits, area is uniform, the logarithm of the ratio is uniform, and so is the place."""
    rows = sizes_of("random_resized_crop", {"shape": 9, "scale": [0.1, 0.5], "ratio": [0.5, 2.0]}, 2000, 2000)
    y, x, h, w = rows.astype(float).T
    for values in ((h * w / 4e6 - 0.1) / 0.4, np.log2(w / h) / 2 + 0.5, y / (2001 - h), x / (2001 - w)):
        assert p_uniform(values) > 1e-4


def test_windows_that_never_fit_fall_back_to_the_largest() -> None:
    """If the range of ratios cannot fit, the largest centred window within the range is taken."""
    rows = sizes_of("random_resized_crop", {"shape": 9, "scale": 1.0, "ratio": 1.0}, 100, 300)
    assert np.unique(rows, axis=0).tolist() == [[0, 100, 100, 100]]
    rows = sizes_of("random_resized_crop", {"shape": 9, "scale": 1.0, "ratio": 2.0}, 300, 100)
    assert np.unique(rows, axis=0).tolist() == [[125, 0, 50, 100]]


# Mirror images and rotations


def test_flips_mirror_with_their_probability() -> None:
    """A flip is NumPy's, per direction; 0 never, 1 always, 0.3 in 30 % of the clips; directions draw apart."""
    picture = frame()
    for direction, want in (("horizontal", picture[:, :, ::-1]), ("vertical", picture[:, ::-1])):
        op, params = parse_frame("flip", {"flip_prob": 1.0, "direction": direction})
        assert np.array_equal(op.apply(params, np.array([1], np.int32), picture), want)
    shares = [sizes_of("flip", p, 8, 8).mean() for p in (0.0, 0.3, 1.0)]
    assert shares == [0, pytest.approx(0.3, abs=0.012), 1]
    across, down = (sizes_of("flip", {"direction": d}, 8, 8)[:, 0] for d in ("horizontal", "vertical"))
    assert abs(np.corrcoef(across, down)[0, 1]) < 0.03


@pytest.mark.parametrize(("degrees", "turns"), [(0, 0), (90, 1), (180, 2), (-90, 3), (270, 3), (360, 0)])
def test_quarter_turns_are_exact(degrees: float, turns: int) -> None:
    """A fixed multiple of 90 degrees moves whole pixels counter-clockwise and exchanges the sides if odd."""
    op, params = parse_frame("rotate", degrees)
    rows, h, w = op.resolve(params, draws(1), np.array([32]), np.array([45]))
    want = np.rot90(frame(), turns, axes=(1, 2))
    assert np.array_equal(op.apply(params, rows[0], frame()), want)
    assert (int(h[0]), int(w[0])) == want.shape[1:] == op.out_size(params, (32, 45))
    assert op.out_size(params, None) is None


@pytest.mark.parametrize("degrees", [7.0, -33.3, 181.25])
@pytest.mark.parametrize(("h", "w"), [(90, 120), (61, 64)])
def test_rotation_agrees_with_scipy(degrees: float, h: int, w: int) -> None:
    """Any angle is within 4 grey values of an exact bilinear rotation about the middle, 0.5 on average."""
    op, params = parse_frame("rotate", {"degrees": degrees, "fill": 50})
    picture = smooth(h, w)
    rows, *_ = op.resolve(params, draws(1), np.array([h]), np.array([w]))
    got = op.apply(params, rows[0], picture)
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turn = np.array([[cos, sin], [-sin, cos]])
    middle = np.array([(h - 1) / 2, (w - 1) / 2])
    for plane, out in zip(picture.astype(float), got, strict=True):
        want = turned(plane, turn, middle - turn @ middle, 50)
        error = np.abs(out - want)
        assert error.max() <= 4
        assert error.mean() <= 0.5


def test_angles_are_uniform() -> None:
    """A drawn angle is uniform over its range, negative angles included."""
    rows = sizes_of("rotate", {"degrees": [-30, 60]}, 8, 8)
    degrees = (rows[:, 0] / 4096 + 180) % 360 - 180
    assert p_uniform((degrees + 30) / 90) > 1e-4
    assert not rows[:, 1].any()


# The size of a task's clips


def chain(*calls: tuple[str, object]) -> list[tuple[str, Params]]:
    """Calls as the planner has them."""
    return [(name, parse(name, value)[1]) for name, value in calls]


def test_static_size_of_a_chain() -> None:
    """A crop or an exact shape fixes the size of every clip, whatever stands before and keeps it."""
    slowfast = chain(("random_short_side", {"range": [256, 320]}), ("random_crop", 224), ("flip", 0.5))
    assert static_size(slowfast).size == (224, 224)
    assert static_size(chain(("resize", {"shape": [10, 20]}), ("rotate", 90))).size == (20, 10)
    assert static_size(chain(("resize", {"short_side": 256})), (240, 320)).size == (256, 341)
    assert static_size(chain(("flip", 0.5)), (24, 32)).size == (24, 32)


def test_static_size_names_the_culprit() -> None:
    """If the size is open, the operation that leaves it open is named, with what to do."""
    report = static_size(chain(("flip", 0.5), ("resize", {"short_side": 256}), ("color_jitter", None)))
    assert (report.size, report.culprit) == (None, 1)
    assert "resize: short_side keeps each video's aspect ratio; add a crop" in report.reason
    report = static_size(chain(("random_crop", 300), ("random_short_side", {"range": [256, 320]})))
    assert (report.culprit, report.reason.split(":")[0]) == (1, "random_short_side")
    report = static_size(chain(("flip", 0.5)))
    assert report.culprit is None
    assert "no op sets a size" in report.reason
