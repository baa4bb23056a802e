"""Which part of the source frame a clip shows: its corners, taken back through the operations that move pixels.

What is not known to keep every pixel where it is, and is none of those operations, has no answer: an operation of the
user's own may do anything, a policy of augmentations may shear, and a merge has more than one window.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.api.pictures.words import drawn_of, shape_of
from viewcache.materializer.ops.auto_augment import moves_pixels

__all__ = ["window"]

Corners = NDArray[np.float64]
_Size = tuple[int, int]
_Affine = NDArray[np.float64]

_ANGLE_ONE = 4096
"""An angle in a row is in 1/4096 of a degree."""
_STAYS = ("color_jitter", "grayscale", "blur", "erase", "inv_sample", "subsample")
"""Operations that leave every pixel where it is."""


def window(steps: Sequence[Mapping[str, object]], size: _Size) -> Corners | None:
    """The corners of a clip's picture in its source frame.

    Args:
        steps: what was done; see `ClipRecipe.steps`.
        size: height and width of the source frame.

    Returns:
        (4,2) of x and y in pixels, in the order of the clip's own corners: upper left, upper right, lower right, lower
        left; so a clip that is flipped begins at the right. None where the steps do not tell.
    """
    back: _Affine = np.eye(3)
    stream: object = 0
    for step in steps:
        known = _back(step, size) if step.get("from") == [stream] else None
        if known is None:
            return None
        more, size = known
        back, stream = back @ more, step["to"]
    height, width = size
    corners = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]], np.float64)
    return np.asarray((corners @ back.T)[:, :2])


def _back(step: Mapping[str, object], size: _Size) -> tuple[_Affine, _Size] | None:
    """From places in what an operation makes to places in what it reads, and the size of what it makes."""
    (height, width), drawn = size, drawn_of(step)
    match step.get("op"):
        case "resize" | "random_short_side":
            made = drawn["h"], drawn["w"]
            return _scale(width / made[1], height / made[0]), made
        case "random_crop" | "center_crop" | "three_crop" | "five_crop" | "ten_crop":
            turned = _shift(drawn["w"], 0) @ _scale(-1, 1) if drawn.get("flip") else np.eye(3)
            return _shift(drawn["x"], drawn["y"]) @ turned, (drawn["h"], drawn["w"])
        case "random_resized_crop":
            made = shape_of(step) or (drawn["h"], drawn["w"])
            return _shift(drawn["x"], drawn["y"]) @ _scale(drawn["w"] / made[1], drawn["h"] / made[0]), made
        case "flip":
            params = step.get("params")
            vertical = isinstance(params, Mapping) and params.get("direction") == "vertical"
            if not drawn["flip"]:
                return np.eye(3), size
            mirror = (0, height, 1, -1) if vertical else (width, 0, -1, 1)
            return _shift(*mirror[:2]) @ _scale(*mirror[2:]), size
        case "rotate":
            return _turned(drawn["turns"], size) if drawn["turns"] else (_rotated(drawn["angle"], size), size)
        case "rand_augment" | "auto_augment" | "trivial_augment_wide":
            return None if any(map(moves_pixels, drawn.values())) else (np.eye(3), size)
        case name:
            return (np.eye(3), size) if name in _STAYS else None


def _shift(x: float, y: float) -> _Affine:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def _scale(x: float, y: float) -> _Affine:
    return np.diag([x, y, 1.0])


def _turned(turns: int, size: _Size) -> tuple[_Affine, _Size]:
    back: _Affine = np.eye(3)
    for _ in range(turns):
        # Counter-clockwise: what is at the top was at the right.
        back = back @ np.array([[0, -1, size[1]], [1, 0, 0], [0, 0, 1]], np.float64)
        size = size[1], size[0]
    return back, size


def _rotated(angle: int, size: _Size) -> _Affine:
    radians, (height, width) = math.radians(angle / _ANGLE_ONE), size
    cosine, sine = math.cos(radians), math.sin(radians)
    turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]], np.float64)
    return _shift(width / 2, height / 2) @ turn @ _shift(-width / 2, -height / 2)
