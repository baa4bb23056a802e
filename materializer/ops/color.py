"""Changing colours and details: jitter, grey, blur and erasing.

Colours are computed with integers in NumPy, and OpenCV is used where it computes uint8 with integers (blur): its
floating-point colour conversions round differently on different processors, which would break law 3.
"""

from functools import lru_cache
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.ops.base import Draw, Fixed, FrameOp, Rows
from viewcache.materializer.ops.crop import random_window
from viewcache.materializer.ops.fields import Channels, Field, Params, Range, Real
from viewcache.materializer.randomness import scaled

__all__ = ["OPS", "Blur", "ColorJitter", "Erase", "Grayscale"]

ONE = 4096
"""Factors and sigmas in rows are in 1/4096."""

_LUMA = (19595, 38470, 7471)
"""Weights of R, G, B in 1/65536: 0.299, 0.587, 0.114 (ITU-R BT.601), as in PIL."""


def luma(frame: np.ndarray) -> NDArray[np.int32]:
    """Return the grey value of each pixel, (H, W) int32 in 0..255, rounded half up."""
    wide = frame.astype(np.int32)
    return np.asarray((wide[0] * _LUMA[0] + wide[1] * _LUMA[1] + wide[2] * _LUMA[2] + 32768) >> 16)


class _SameSize(FrameOp):
    """What the operations of this module share: the size stays, and a clip is left alone with some probability."""

    fingerprint = "1"

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Draw the values of each clip, or the neutral ones."""
        height, width = np.asarray(h, np.int64), np.asarray(w, np.int64)
        chosen = draw.chance(cast(float, dict(params)["prob"]))
        rows = np.where(chosen[:, None], self._rows(params, draw, height, width), np.array(self.neutral))
        return rows.astype(np.int32), height, width

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """True where the row is neutral."""
        return np.asarray((rows == np.array(self.neutral)).all(axis=1))

    neutral: ClassVar[tuple[int, ...]]
    """The row that changes nothing."""

    def _rows(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> np.ndarray:
        raise NotImplementedError


PROB = Field("prob", Real(0.0, 1.0), 1.0, "probability that a clip is changed at all")


class ColorJitter(_SameSize):
    """Change brightness, contrast, saturation and hue, in this order, by factors drawn per clip.

    A value v draws a factor uniformly from [1 - v, 1 + v]; hue h a shift from [-h, h] of a turn of the colour circle.
    Contrast is relative to the mean grey of each frame.
    """

    name = "color_jitter"
    fields = (
        Field("brightness", Real(0.0, 1.0), 0.0, "largest change of the brightness factor"),
        Field("contrast", Real(0.0, 1.0), 0.0, "largest change of the contrast factor"),
        Field("saturation", Real(0.0, 1.0), 0.0, "largest change of the saturation factor"),
        Field("hue", Real(0.0, 0.5), 0.0, "largest shift of the hue, in turns"),
        PROB,
    )
    columns = ("brightness", "contrast", "saturation", "hue")
    keyed = ()
    neutral = (ONE, ONE, ONE, 0)

    def _rows(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> np.ndarray:
        values = cast(dict[str, float], dict(params))
        shifts = []
        for name in self.columns:
            most = round(values[name] * ONE)
            shifts.append(scaled(draw.fraction(name), 2 * most + 1) - most)
        return np.asarray(np.stack(shifts, axis=1) + np.array(self.neutral))

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return a new frame, or the same one if nothing changes."""
        brightness, contrast, saturation, hue = map(int, row.tolist())
        if brightness != ONE:
            frame = _mapped(frame, brightness, 0)
        if contrast != ONE:
            frame = _mapped(frame, contrast, _mean_grey(frame) * (ONE - contrast))
        if saturation != ONE:
            rest = luma(frame) * (ONE - saturation) + ONE // 2
            frame = np.clip((frame * np.int32(saturation) + rest) >> 12, 0, 255).astype(np.uint8)
        return shift_hue(frame, hue) if hue else frame


def _mapped(frame: np.ndarray, factor: int, shift: int) -> np.ndarray:
    """Return round(value * factor + shift) of each value, by a table; factor and shift in 1/4096."""
    import cv2

    values = (np.arange(256, dtype=np.int64) * factor + shift + ONE // 2) >> 12
    table = np.clip(values, 0, 255).astype(np.uint8)
    rows = np.ascontiguousarray(frame).reshape(-1, frame.shape[2])
    return cv2.LUT(rows, table).reshape(frame.shape)


def _mean_grey(frame: np.ndarray) -> int:
    """Mean grey value of a frame, rounded half up."""
    total: int = sum(weight * int(plane.sum(dtype=np.int64)) for weight, plane in zip(_LUMA, frame, strict=True))
    pixels = int(frame[0].size)
    return (total + (pixels << 15)) // (pixels << 16)


def shift_hue(frame: np.ndarray, turn: int) -> NDArray[np.uint8]:
    """Turn the hue of every pixel in the HSV hexcone; value and saturation stay.

    Args:
        frame: (3, H, W) uint8.
        turn: in 1/4096 of a full turn.
    """
    red, green, blue = frame.astype(np.int32)
    value = frame.max(axis=0)
    chroma = (value - frame.min(axis=0)).astype(np.int32)
    value = value.astype(np.int32)
    is_red, is_green = value == red, value == green
    slope, sector = red - green, np.full(value.shape, 4 * ONE)
    for here, difference, start in ((is_green, blue - red, 2 * ONE), (is_red, green - blue, 0)):
        np.copyto(slope, difference, where=here)
        np.copyto(sector, start, where=here)
    # A grey pixel has no hue; its chroma of 0 cancels whatever comes out. Quotients of such small integers have an
    # exact floor in float64, and that division is five times faster. Negative places count from the table's end.
    place = sector + np.floor(slope * ONE / np.maximum(chroma, 1)).astype(np.int64)
    out = np.empty(frame.shape, dtype=np.uint8)
    for plane, weight in zip(out, _hue_weights(turn), strict=True):
        plane[...] = value - ((chroma * weight[place] + ONE // 2) >> 12)
    return out


@lru_cache(maxsize=8)
def _hue_weights(turn: int) -> NDArray[np.int32]:
    """How much of the chroma each channel lacks at each place of the hexcone, (3, 6 * ONE) in 1/4096.

    The three are one trapezoid of the hue, a third of a turn apart (Smith 1978).
    """
    ramp = np.arange(6 * ONE) + 6 * turn + np.array([[5], [3], [1]]) * ONE
    ramp %= 6 * ONE
    weights: NDArray[np.int32] = np.clip(np.minimum(ramp, 4 * ONE - ramp), 0, ONE).astype(np.int32)
    weights.flags.writeable = False  # shared by the cache
    return weights


class Grayscale(_SameSize):
    """Replace the colours of a clip by its grey values, in all three channels."""

    name = "grayscale"
    shorthand = "prob"
    fields = (PROB,)
    columns = ("on",)
    keyed = ()
    neutral = (0,)

    def _rows(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> np.ndarray:
        return np.ones((len(h), 1), dtype=np.int32)

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return a view that repeats one grey plane three times."""
        return np.broadcast_to(luma(frame).astype(np.uint8), frame.shape) if row[0] else frame


class Blur(_SameSize):
    """Blur with a Gaussian whose standard deviation is fixed or drawn per clip."""

    name = "blur"
    shorthand = "sigma"
    fields = (
        Field("sigma", Range(0.0, 32.0), (0.1, 2.0), "standard deviation in pixels, one number or [low, high]"),
        PROB,
    )
    columns = ("sigma",)
    keyed = ()
    neutral = (0,)

    def _rows(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> np.ndarray:
        low, high = (round(sigma * ONE) for sigma in cast(tuple[float, float], dict(params)["sigma"]))
        return (low + scaled(draw.fraction("sigma"), high - low + 1)).reshape(-1, 1)

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return a new frame; the kernel reaches three standard deviations and borders are mirrored."""
        sigma = int(row[0])
        if not sigma:
            return frame
        import cv2

        side = 2 * ((3 * sigma + ONE - 1) // ONE) + 1
        out = np.empty(frame.shape, dtype=np.uint8)
        for plane, source in zip(out, np.ascontiguousarray(frame), strict=True):
            cv2.GaussianBlur(source, (side, side), sigma / ONE, plane)
        return out


class Erase(_SameSize):
    """Fill a window of random area, aspect and place with one colour (Zhong et al. 2020)."""

    name = "erase"
    fields = (
        Field("prob", Real(0.0, 1.0), 0.5, "probability that a clip is changed at all"),
        Field("scale", Range(0.0001, 1.0), (0.02, 0.33), "area of the window as a fraction of the frame's"),
        Field("ratio", Range(0.01, 100.0), (0.3, 3.3), "width of the window divided by its height, log-uniform"),
        Field("fill", Channels(0, 255, whole=True), (0, 0, 0), "colour of the window"),
    )
    columns = ("y", "x", "h", "w")
    keyed = ("fill",)
    neutral = (0, 0, 0, 0)

    def _rows(self, params: Params, draw: Draw, h: Fixed, w: Fixed) -> np.ndarray:
        values = cast(dict[str, tuple[float, float]], dict(params))
        return random_window(draw, h, w, values["scale"], values["ratio"])[0]

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return a new frame, the same window in all frames of the clip."""
        y, x, h, w = row.tolist()
        if not h:
            return frame
        out = frame.copy()
        out[:, y : y + h, x : x + w] = np.array(dict(params)["fill"], dtype=np.uint8)[:, None, None]
        return out


OPS = (ColorJitter(), Grayscale(), Blur(), Erase())
