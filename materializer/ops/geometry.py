"""Mirroring and turning frames.

Mirror images and quarter turns are views and lose nothing; other angles are interpolated with integer weights, so that
every machine gives the same bytes.
"""

import math
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.ops.base import Draw, Fixed, FrameOp, Rows, Size
from viewcache.materializer.ops.fields import REQUIRED, Channels, Choice, Field, Params, Range, Real
from viewcache.materializer.randomness import scaled

__all__ = ["OPS", "Flip", "Rotate"]


class Flip(FrameOp):
    """Mirror all frames of a clip, left to right or top to bottom, with a given probability."""

    name = "flip"
    shorthand = "flip_prob"
    fields = (
        Field("flip_prob", Real(0.0, 1.0), 0.5, "probability that a clip is mirrored"),
        Field("direction", Choice(("horizontal", "vertical")), "horizontal", "horizontal exchanges left and right"),
    )
    columns = ("flip",)
    keyed = ("direction",)
    fingerprint = "1"

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return a mirrored view."""
        if not row[0]:
            return frame
        return frame[:, ::-1] if dict(params)["direction"] == "vertical" else frame[:, :, ::-1]

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """True where the clip is not mirrored."""
        return np.asarray(rows[:, 0] == 0)

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Decide for each clip."""
        values = dict(params)
        flip = draw.chance(cast(float, values["flip_prob"]), cast(str, values["direction"]))
        return flip[:, None].astype(np.int32), np.asarray(h, np.int64), np.asarray(w, np.int64)


class Rotate(FrameOp):
    """Turn all frames of a clip counter-clockwise by a fixed angle or one drawn from a range.

    A fixed multiple of 90 degrees moves whole pixels (90 and 270 exchange height and width). Any other angle keeps the
    frame's size, turns about its middle, interpolates bilinearly and fills what comes from outside.
    """

    name = "rotate"
    shorthand = "degrees"
    fields = (
        Field("degrees", Range(-360.0, 360.0), REQUIRED, "one fixed angle, or [low, high] to draw from; in degrees"),
        Field("fill", Channels(0, 255, whole=True), (0, 0, 0), "colour of what comes from outside the frame"),
    )
    columns = ("angle", "turns")
    keyed = ("fill",)
    fingerprint = "1"

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return a view for quarter turns, else a new frame."""
        angle, turns = row.tolist()
        if turns:
            return np.rot90(frame, turns, axes=(1, 2))
        if not angle:
            return frame
        import cv2

        where, weight = _rotation(angle, *frame.shape[1:])
        fill = cast(tuple[int, int, int], dict(params)["fill"])
        out = np.empty(frame.shape, dtype=np.uint8)
        for plane, source, value in zip(out, np.ascontiguousarray(frame), fill, strict=True):
            cv2.remap(source, where, weight, cv2.INTER_LINEAR, plane, cv2.BORDER_CONSTANT, (value,))
        return out

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """True where the angle is a whole turn."""
        return np.asarray((rows == 0).all(axis=1))

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Draw one angle per clip."""
        height, width = np.asarray(h, np.int64), np.asarray(w, np.int64)
        turns = _quarter_turns(params)
        if turns is not None:
            rows = np.repeat(np.array([[0, turns]], dtype=np.int32), len(height), axis=0)
            return (rows, width, height) if turns % 2 else (rows, height, width)
        low, high = (round(degrees * _ANGLE_ONE) for degrees in _degrees(params))
        angle = (low + scaled(draw.fraction("angle"), high - low + 1)) % (360 * _ANGLE_ONE)
        return np.stack([angle, 0 * angle], axis=1).astype(np.int32), height, width

    def out_size(self, params: Params, size: Size | None) -> Size | None:
        """Exchanged by an odd number of quarter turns."""
        return size[::-1] if size is not None and (_quarter_turns(params) or 0) % 2 else size


_ANGLE_ONE = 4096
"""An angle in a row is in 1/4096 of a degree."""
_SINE_BITS = 24
_WEIGHT_BITS = 5
"""OpenCV's fixed-point maps place a sample to 1/32 of a pixel."""


def _degrees(params: Params) -> tuple[float, float]:
    return cast(tuple[float, float], dict(params)["degrees"])


def _quarter_turns(params: Params) -> int | None:
    """0 to 3 for a fixed multiple of 90 degrees, else None."""
    low, high = _degrees(params)
    return int(low // 90) % 4 if low == high and low % 90 == 0 else None


@lru_cache(maxsize=8)
def _rotation(angle: int, height: int, width: int) -> tuple[NDArray[np.int16], NDArray[np.uint16]]:
    """OpenCV's fixed-point map of a rotation: whole pixels and index of the weights; one for all frames of a clip.

    Sine and cosine are rounded to 24 bits and the rest is integer arithmetic, unlike cv2.warpAffine, whose floating
    point differs between processors.
    """
    radians = math.radians(angle / _ANGLE_ONE)
    cosine, sine = (round(f(radians) * (1 << _SINE_BITS)) for f in (math.cos, math.sin))
    # Twice the distance from the middle, an integer for odd and even sides.
    y = 2 * np.arange(height, dtype=np.int64)[:, None] - (height - 1)
    x = 2 * np.arange(width, dtype=np.int64)[None, :] - (width - 1)
    shift = _SINE_BITS + 1 - _WEIGHT_BITS
    half = 1 << (shift - 1)
    middle_y, middle_x = ((side - 1) << _SINE_BITS for side in (height, width))
    from_y = (x * sine + y * cosine + middle_y + half) >> shift
    from_x = (x * cosine - y * sine + middle_x + half) >> shift
    low = (1 << _WEIGHT_BITS) - 1
    where = np.stack([from_x >> _WEIGHT_BITS, from_y >> _WEIGHT_BITS], axis=-1).astype(np.int16)
    weight = ((from_y & low) << _WEIGHT_BITS) + (from_x & low)
    return where, weight.astype(np.uint16)


OPS = (Flip(), Rotate())
