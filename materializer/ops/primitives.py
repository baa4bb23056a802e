"""What the learned and random policies are made of: fourteen changes of one frame, each with one whole number.

Pixels are those of PIL (``ImageOps``, ``ImageEnhance``, ``Image.transform``), which the papers of AutoAugment and
RandAugment used and torchvision calls for pictures. They come from integers and tables, so they are the same on every
processor; only ``bilinear`` places a sample to 1/32 of a pixel, where PIL uses floating point.
"""

import math
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.ops.color import luma

__all__ = ["ANGLE_ONE", "FACTOR_ONE", "INTERPOLATIONS", "Primitive", "applied"]

INTERPOLATIONS = ("nearest", "bilinear")

FACTOR_ONE = 1 << 16
"""Factors and shears are in 1/65536, as PIL's own fixed point."""

ANGLE_ONE = 1 << 12
"""Angles are in 1/4096 of a degree, as those of ``rotate``."""

Frame = NDArray[np.uint8]
Fill = tuple[int, int, int]


class Primitive(IntEnum):
    """One change of a frame, by torchvision's word; its number is part of stored rows."""

    SHEAR_X = 1
    SHEAR_Y = 2
    TRANSLATE_X = 3
    TRANSLATE_Y = 4
    ROTATE = 5
    BRIGHTNESS = 6
    COLOR = 7
    CONTRAST = 8
    SHARPNESS = 9
    POSTERIZE = 10
    SOLARIZE = 11
    AUTO_CONTRAST = 12
    EQUALIZE = 13
    INVERT = 14


def applied(primitive: int, value: int, frame: Frame, interpolation: str, fill: Fill) -> Frame:
    """Return a frame after one primitive.

    Args:
        primitive: a `Primitive`.
        value: shear or factor in 1/65536, angle in 1/4096 of a degree counter-clockwise, pixels to the right or down,
            bits that are kept, or the lowest value that is inverted; unused where the primitive has no magnitude.
        frame: (3, H, W) uint8 with any strides; never written to.
        interpolation: of ``INTERPOLATIONS``, for what moves pixels.
        fill: colour of what comes from outside the frame.
    """
    if primitive in (Primitive.TRANSLATE_X, Primitive.TRANSLATE_Y):
        return _translated(primitive, value, frame, fill)
    if primitive <= Primitive.ROTATE:
        return _moved(primitive, value, frame, interpolation, fill)
    return _COLORS[primitive](np.ascontiguousarray(frame), value)


# Moving pixels -------------------------------------------------------------------------------------------------------


def _translated(primitive: int, value: int, frame: Frame, fill: Fill) -> Frame:
    along = 2 if primitive == Primitive.TRANSLATE_X else 1
    by = max(-frame.shape[along], min(value, frame.shape[along]))
    to, of = [slice(None)] * 3, [slice(None)] * 3
    to[along], of[along] = (
        (slice(by, None), slice(None, -by or None)) if by >= 0 else (slice(None, by), slice(-by, None))
    )
    out = np.empty(frame.shape, np.uint8)
    out[:] = np.array(fill, np.uint8)[:, None, None]
    out[tuple(to)] = frame[tuple(of)]
    return out


def _moved(primitive: int, value: int, frame: Frame, interpolation: str, fill: Fill) -> Frame:
    import cv2

    smooth = interpolation == "bilinear"
    where, weight, outside = _map(primitive, value, smooth, *frame.shape[1:])
    out = np.empty(frame.shape, np.uint8)
    how = cv2.INTER_LINEAR if smooth else cv2.INTER_NEAREST
    border = cv2.BORDER_REPLICATE if smooth else cv2.BORDER_CONSTANT
    for plane, source, color in zip(out, np.ascontiguousarray(frame), fill, strict=True):
        cv2.remap(source, where, weight, how, plane, border, (color,))
        if outside is not None:
            plane[outside] = color
    return out


@lru_cache(maxsize=8)
def _map(
    primitive: int, value: int, smooth: bool, height: int, width: int
) -> tuple[NDArray[np.int16], NDArray[np.uint16], NDArray[np.bool_] | None]:
    """OpenCV's fixed-point map: whole pixels, weights of their neighbours, and which pixels come from outside.

    One for all frames of a clip. Places are those of PIL's fixed-point transformation, in 1/65536 of a pixel.
    """
    xx, xy, x0, yx, yy, y0 = _inverse(primitive, value, height, width)
    x, y = np.arange(width, dtype=np.int64)[None, :], np.arange(height, dtype=np.int64)[:, None]
    from_x, from_y = (xx * x + xy * y + x0, yx * x + yy * y + y0)
    if not smooth:
        where = np.stack([from_x >> 16, from_y >> 16], axis=-1).astype(np.int16)
        return where, np.empty((0, 0), np.uint16), None
    outside = (from_x < 0) | (from_x >= width << 16) | (from_y < 0) | (from_y >= height << 16)
    # Half a pixel back to the middle of the upper left neighbour, and then in 1/32 of a pixel, to the nearest.
    from_x, from_y = ((place - 32768 + 1024) >> 11 for place in (from_x, from_y))
    where = np.stack([from_x >> 5, from_y >> 5], axis=-1).astype(np.int16)
    return where, (((from_y & 31) << 5) + (from_x & 31)).astype(np.uint16), outside


def _inverse(primitive: int, value: int, height: int, width: int) -> tuple[int, int, int, int, int, int]:
    """Where the middle of a pixel comes from: x = xx * column + xy * row + x0, and y likewise, in 1/65536."""
    one, half = FACTOR_ONE, FACTOR_ONE // 2
    match primitive:
        case Primitive.SHEAR_X:
            return one, value, _fixed(0.5 + value / one / 2), 0, one, half
        case Primitive.SHEAR_Y:
            return one, 0, half, value, one, _fixed(0.5 + value / one / 2)
    angle = math.radians(value / ANGLE_ONE)
    cosine, sine = math.cos(angle), math.sin(angle)
    middle_x, middle_y = width / 2, height / 2
    x0 = middle_x - cosine * middle_x + sine * middle_y + (cosine - sine) / 2
    y0 = middle_y - sine * middle_x - cosine * middle_y + (cosine + sine) / 2
    return _fixed(cosine), _fixed(-sine), _fixed(x0), _fixed(sine), _fixed(cosine), _fixed(y0)


def _fixed(value: float) -> int:
    return math.floor(value * FACTOR_ONE + 0.5)


# Changing values -----------------------------------------------------------------------------------------------------

_VALUES = np.arange(256, dtype=np.int64)

_NEARLY = 128
"""In 1/65536: PIL cuts off what is behind the point, and a product that is whole but for the factor's rounding (at most
255/2 of 1/65536) counts as whole."""


def _clipped(values: np.ndarray) -> Frame:
    return np.asarray(np.clip(values, 0, 255), np.uint8)


def _looked_up(frame: Frame, table: Frame) -> Frame:
    import cv2

    return np.asarray(cv2.LUT(frame.reshape(-1, frame.shape[2]), table), np.uint8).reshape(frame.shape)


def _brightness(frame: Frame, factor: int) -> Frame:
    return _looked_up(frame, _clipped((_VALUES * factor + _NEARLY) >> 16))


def _contrast(frame: Frame, factor: int) -> Frame:
    grey = luma(frame)
    mean = (2 * int(grey.sum(dtype=np.int64)) + grey.size) // (2 * grey.size)
    return _looked_up(frame, _clipped(mean + (((_VALUES - mean) * factor + _NEARLY) >> 16)))


def _color(frame: Frame, factor: int) -> Frame:
    return _blended(luma(frame), frame, factor)


def _sharpness(frame: Frame, factor: int) -> Frame:
    return _blended(_smooth(frame).astype(np.int32), frame, factor)


def _blended(less: NDArray[np.int32], frame: Frame, factor: int) -> Frame:
    """``less`` where the factor is 0, the frame where it is 1, and beyond it in the same direction."""
    mixed = frame - less
    mixed *= factor
    mixed += _NEARLY
    mixed >>= 16
    mixed += less
    return _clipped(mixed)


def _smooth(frame: Frame) -> Frame:
    """PIL's ``ImageFilter.SMOOTH``: neighbours weigh 1 and the pixel 5, of 13; the outermost pixels stay."""
    import cv2

    out = frame.copy()
    if min(frame.shape[1:]) > 2:
        for smooth, plane in zip(out, frame, strict=True):
            total = cv2.boxFilter(plane, cv2.CV_16U, (3, 3), normalize=False) + 4 * plane.astype(np.uint16)
            smooth[1:-1, 1:-1] = _THIRTEENTHS[total[1:-1, 1:-1]]
    return out


_THIRTEENTHS = ((2 * np.arange(13 * 255 + 1) + 13) // 26).astype(np.uint8)
"""A sum of weights 13 divided by 13, to the nearest."""


def _posterize(frame: Frame, bits: int) -> Frame:
    return frame & np.uint8(256 - (1 << (8 - bits)))


def _solarize(frame: Frame, threshold: int) -> Frame:
    return _looked_up(frame, _clipped(np.where(threshold <= _VALUES, 255 - _VALUES, _VALUES)))


def _auto_contrast(frame: Frame, _: int) -> Frame:
    out = frame.copy()
    for plane in out:
        low, high = int(plane.min()), int(plane.max())
        if low < high:
            scale = 255.0 / (high - low)  # in this order in float64, as PIL: one rounding otherwise is another table
            plane[...] = _looked_up(plane[None], _clipped((_VALUES * scale + -low * scale).astype(np.int64)))[0]
    return out


def _equalize(frame: Frame, _: int) -> Frame:
    out = frame.copy()
    for plane in out:
        counts = _counts(plane)
        last = int(np.flatnonzero(counts)[-1])
        step = (plane.size - int(counts[last])) // 255
        if step:
            below = np.cumsum(counts) - counts
            plane[...] = _looked_up(plane[None], _clipped((below + step // 2) // step))[0]
    return out


def _counts(plane: Frame) -> NDArray[np.int64]:
    """How many pixels have each value, (256,)."""
    import cv2

    if plane.size >= 1 << 24:  # OpenCV counts in float32
        return np.bincount(plane.ravel(), minlength=256)
    return cv2.calcHist([plane], [0], None, [256], [0, 256]).ravel().astype(np.int64)


def _invert(frame: Frame, _: int) -> Frame:
    return ~frame


_COLORS: dict[int, Callable[[Frame, int], Frame]] = {
    Primitive.BRIGHTNESS: _brightness,
    Primitive.COLOR: _color,
    Primitive.CONTRAST: _contrast,
    Primitive.SHARPNESS: _sharpness,
    Primitive.POSTERIZE: _posterize,
    Primitive.SOLARIZE: _solarize,
    Primitive.AUTO_CONTRAST: _auto_contrast,
    Primitive.EQUALIZE: _equalize,
    Primitive.INVERT: _invert,
}
