"""Which part of a source frame a clip shows, and what is said of its recipe: against the operations themselves."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from viewcache.api.pictures.windows import window
from viewcache.api.pictures.words import said
from viewcache.materializer.ops import FrameOp, get
from viewcache.materializer.ops.primitives import Primitive

H, W = 90, 120
INVERTS = Primitive.INVERT << 24
"""A number of a policy's row: a primitive that moves no pixel."""

Step = Mapping[str, object]

CROP: Step = {"op": "random_crop", "params": {"shape": [40, 60]}, "drawn": {"y": 13, "x": 22, "h": 40, "w": 60}}
FLIP: Step = {"op": "flip", "params": {"flip_prob": 0.5, "direction": "horizontal"}, "drawn": {"flip": 1}}
KEPT: Step = {**FLIP, "drawn": {"flip": 0}}
UPSIDE: Step = {"op": "flip", "params": {"flip_prob": 0.5, "direction": "vertical"}, "drawn": {"flip": 1}}
QUARTER: Step = {"op": "rotate", "params": {"degrees": [90, 90], "fill": [0, 0, 0]}, "drawn": {"angle": 0, "turns": 1}}
HALF: Step = {**QUARTER, "drawn": {"angle": 0, "turns": 2}}
GREY: Step = {"op": "grayscale", "params": {"prob": 0.5}, "drawn": {"on": 0}}
TILT: Step = {
    "op": "rotate",
    "params": {"degrees": [-30, 30], "fill": [0, 0, 0]},
    "drawn": {"angle": 20 * 4096, "turns": 0},
}
RESIZE: Step = {"op": "resize", "params": {"interpolation": "bilinear"}, "drawn": {"h": 45, "w": 60}}
ZOOM: Step = {
    "op": "random_resized_crop",
    "params": {"shape": [64, 64], "interpolation": "bilinear"},
    "drawn": {"y": 20, "x": 10, "h": 32, "w": 48},
}


def chain(*steps: Step) -> list[Step]:
    """The steps one after the other, as a recipe has them."""
    return [{"from": [k], "to": k + 1, **step} for k, step in enumerate(steps)]


def applied(steps: Sequence[Step]) -> np.ndarray:
    """What the operations make of a frame whose pixels say where they are: red is x, green is y."""
    y, x = np.mgrid[:H, :W]
    frame = np.stack([x, y, 0 * x]).astype(np.uint8)
    for step in steps:
        op, drawn, params = get(str(step["op"])), step["drawn"], step["params"]
        assert isinstance(op, FrameOp)
        assert isinstance(drawn, dict)
        assert isinstance(params, dict)
        frozen = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in params.items())
        frame = op.apply(frozen, np.array(list(drawn.values()), np.int32), frame)
    return np.asarray(frame[:2].transpose(1, 2, 0), np.float64)


def mapped(steps: Sequence[Step], height: int, width: int) -> np.ndarray:
    """Where each pixel of the clip's picture comes from, by the window alone: (height, width, 2) of x and y."""
    corners = window(steps, (H, W))
    assert corners is not None
    v, u = ((np.arange(side) + 0.5) / side for side in (height, width))
    right, down = corners[1] - corners[0], corners[3] - corners[0]
    return np.asarray(corners[0] + u[None, :, None] * right + v[:, None, None] * down - 0.5)


@pytest.mark.parametrize(
    "steps",
    [(CROP,), (FLIP,), (UPSIDE, CROP), (CROP, FLIP, GREY), (QUARTER,), (QUARTER, FLIP), (HALF, UPSIDE), (KEPT, CROP)],
    ids=["crop", "flip", "upside-crop", "crop-flip-grey", "quarter", "quarter-flip", "half-upside", "kept-crop"],
)
def test_windows_of_whole_pixels_are_exact(steps: tuple[Step, ...]) -> None:
    """Crops, flips and quarter turns in any order: every pixel comes from where the window says."""
    made = applied(steps)
    assert np.allclose(mapped(chain(*steps), *made.shape[:2]), made, atol=1e-9)


@pytest.mark.parametrize("steps", [(ZOOM,), (CROP, {**ZOOM, "drawn": {"y": 4, "x": 8, "h": 32, "w": 48}}), (TILT,)])
def test_windows_of_resized_and_tilted_frames_are_within_a_pixel(steps: tuple[Step, ...]) -> None:
    """Where pixels are interpolated the window is right to a pixel, away from the borders."""
    made = applied(steps)
    difference = np.abs(mapped(chain(*steps), *made.shape[:2]) - made)
    middle = difference[made.shape[0] // 3 : -made.shape[0] // 3, made.shape[1] // 3 : -made.shape[1] // 3]
    assert middle.max() <= 1.0


def test_a_crop_after_a_resize_lies_in_the_source() -> None:
    """A window of 30 x 20 in a frame of half the size is one of 60 x 40 in the source."""
    small: Step = {"op": "center_crop", "params": {"shape": [20, 30]}, "drawn": {"y": 5, "x": 10, "h": 20, "w": 30}}
    corners = window(chain(RESIZE, small), (H, W))
    assert corners is not None
    assert corners.tolist() == [[20, 10], [80, 10], [80, 50], [20, 50]]


def test_what_may_move_pixels_in_any_way_has_no_window() -> None:
    """An operation of a user's own, and a merge, give none; a clip that is as decoded shows the whole frame."""
    assert window(chain(CROP, {"op": "my_warp", "drawn": {"amount": 3}}), (H, W)) is None
    assert window([{"from": [0, 1], "to": 2, "join": "mean"}], (H, W)) is None
    whole = window([], (H, W))
    assert whole is not None
    assert whole.tolist() == [[0, 0], [W, 0], [W, H], [0, H]]


def test_every_operation_is_said_in_words() -> None:
    """Numbers of rows become pixels, factors and degrees; an operation that nobody knows is named with its numbers."""
    jitter: Step = {"op": "color_jitter", "drawn": {"brightness": 4506, "contrast": 4096, "saturation": 4096, "hue": 0}}
    assert said(chain(RESIZE, CROP, FLIP, KEPT, UPSIDE, TILT, QUARTER, GREY, jitter)) == [
        "resize to 60x45",
        "random crop 60x40 at x 22 y 13",
        "flipped",
        "not flipped",
        "flipped top to bottom",
        "rotated by 20 degrees",
        "rotated by 90 degrees",
        "no grayscale",
        "color jitter brightness 1.10 contrast 1.00 saturation 1.00 hue 0.00",
    ]
    assert said(chain(ZOOM)) == ["random resized crop 48x32 at x 10 y 20 to 64x64"]
    assert said([{"from": [0, 1], "to": 2, "join": "concat"}, {"op": "my_warp", "drawn": {"amount": 3}}]) == [
        "concat",
        "my warp amount 3",
    ]
    erased: Step = {"op": "erase", "drawn": {"y": 1, "x": 2, "h": 3, "w": 4}}
    nothing: Step = {"op": "erase", "drawn": {"y": 0, "x": 0, "h": 0, "w": 0}}
    assert said([erased, nothing]) == ["erase 4x3 at x 2 y 1", "no erase"]
    others: list[Step] = [
        {"op": "blur", "drawn": {"sigma": 6144}},
        {"op": "inv_sample", "drawn": {"reverse": 1}},
        {"op": "subsample"},
    ]
    assert said(others) == ["blur 1.50", "backwards", "subsample"]


def test_the_words_of_every_shipped_operation_are_known() -> None:
    """Each operation that draws numbers has a phrase of its own, and says where its pixels come from."""
    from viewcache.materializer.ops import names

    for name in names():
        op = get(name)
        if op.columns:
            drawn = 1 if not name.endswith(("augment", "augment_wide")) else INVERTS
            step = {"op": name, "params": {"shape": [8, 8]}, "drawn": dict.fromkeys(op.columns, drawn)}
            bare = " ".join([name.replace("_", " "), *(f"{each} {drawn}" for each in op.columns)])
            assert said([step])[0] != bare, name
            assert window(chain(step), (H, W)) is not None, name


def test_a_policy_has_a_window_unless_it_moves_pixels() -> None:
    """One that only changes colours shows the whole frame; where one shears, nothing is said."""
    colours = {"op": "rand_augment", "drawn": {"op_1": INVERTS, "op_2": 0}}
    shears = {"op": "rand_augment", "drawn": {"op_1": INVERTS, "op_2": Primitive.SHEAR_X << 24}}
    whole = window(chain(colours), (H, W))
    assert whole is not None
    assert whole.tolist() == [[0, 0], [W, 0], [W, H], [0, H]]
    assert window(chain(shears), (H, W)) is None
