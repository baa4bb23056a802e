"""Cropping: at random, in the middle, at one of five places, or of random size and aspect.

The windows of random crops come from one fraction per side that all tasks share, so that a smaller crop lies inside a
larger one while each alone is uniform (docs/design/0005). A crop is a view of the frame: it costs no copy.
"""

from decimal import Decimal, localcontext
from functools import lru_cache
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.ops.base import Draw, Fixed, FrameOp, Rows, Size
from viewcache.materializer.ops.fields import REQUIRED, Field, Params, Range, Sides
from viewcache.materializer.ops.resize import INTERPOLATION
from viewcache.materializer.randomness import ONE, nested_offset, scaled

__all__ = [
    "OPS",
    "CenterCrop",
    "FiveCrop",
    "RandomCrop",
    "RandomResizedCrop",
    "TenCrop",
    "ThreeCrop",
    "free_places",
    "random_window",
]

SHAPE = Field("shape", Sides(), REQUIRED, "height and width of the window in pixels")


class _Crop(FrameOp):
    """What the crops of a fixed shape share: a row (y, x, h, w) and slicing."""

    columns: ClassVar[tuple[str, ...]] = ("y", "x", "h", "w")
    keyed: ClassVar[tuple[str, ...] | None] = ()
    fields: ClassVar[tuple[Field, ...]] = (SHAPE,)
    shorthand: ClassVar[str | None] = "shape"
    effect: ClassVar[str] = "crop"
    sizes: ClassVar[bool] = True
    fingerprint = "1"

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return the window as a view."""
        y, x, h, w = row.tolist()
        return frame[:, y : y + h, x : x + w]

    def window(self, row: np.ndarray) -> tuple[int, int, int, int] | None:
        """Its own, unless what inherits from it does more with it."""
        if type(self).apply is not _Crop.apply:
            return None
        y, x, h, w = row.tolist()
        return y, x, h, w

    def fits(self, params: Params, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """The frame must be at least as large as the window."""
        height, width = _shape(params)
        return np.asarray((np.asarray(h) >= height) & (np.asarray(w) >= width))

    def unfit_hint(self, params: Params) -> str:
        """The window is larger."""
        height, width = _shape(params)
        ways = "resize to at least that before it, use a smaller shape, or leave the file out by `where`"
        return f"is smaller than shape [{height}, {width}]; {ways}"

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """True where the window is the whole frame."""
        return np.asarray((rows[:, 2] == h) & (rows[:, 3] == w))

    def out_size(self, params: Params, size: Size | None) -> Size | None:
        """Always the shape."""
        return _shape(params)

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Place one window per clip."""
        shape = _shape(params)
        self.require_fit(params, h, w)
        y, x = self._offsets(shape, draw, np.asarray(h, np.int64), np.asarray(w, np.int64))
        height, width = (np.full(len(h), side, dtype=np.int64) for side in shape)
        return np.stack([y, x, height, width], axis=1).astype(np.int32), height, width

    def _offsets(self, shape: Size, draw: Draw, h: Fixed, w: Fixed) -> tuple[Fixed, Fixed]:
        """Top and left border of each window."""
        raise NotImplementedError


class RandomCrop(_Crop):
    """Crop a window of a fixed shape at a place drawn uniformly, the same for all frames of a clip."""

    name = "random_crop"
    scope = "crop"

    def _offsets(self, shape: Size, draw: Draw, h: Fixed, w: Fixed) -> tuple[Fixed, Fixed]:
        return nested_offset(draw.fraction("y"), h, shape[0]), nested_offset(draw.fraction("x"), w, shape[1])


class CenterCrop(_Crop):
    """Crop a window of a fixed shape from the middle; an odd remainder goes to the bottom and the right."""

    name = "center_crop"

    def _offsets(self, shape: Size, draw: Draw, h: Fixed, w: Fixed) -> tuple[Fixed, Fixed]:
        return (h - shape[0]) // 2, (w - shape[1]) // 2


class FiveCrop(_Crop):
    """Crop at a corner or in the middle: sample 0 top left, 1 top right, 2 bottom left, 3 bottom right, 4 middle.

    A video's further samples start again, so ``samples_per_video: 5`` gives all five.
    """

    name = "five_crop"
    places = 5

    def _offsets(self, shape: Size, draw: Draw, h: Fixed, w: Fixed) -> tuple[Fixed, Fixed]:
        place = np.asarray(draw.sample) % 5
        y, x = h - shape[0], w - shape[1]
        return np.choose(place, [0 * y, 0 * y, y, y, y // 2]), np.choose(place, [0 * x, x, 0 * x, x, x // 2])


class ThreeCrop(_Crop):
    """Crop along the longer side: sample 0 left (or top), 1 middle, 2 right (or bottom).

    The usual spatial views of a test (SlowFast). A video's further samples start again: with ``clips: uniform``,
    ``samples_per_video: 30`` gives ten clips of three crops each.
    """

    name = "three_crop"
    places = 3

    def _offsets(self, shape: Size, draw: Draw, h: Fixed, w: Fixed) -> tuple[Fixed, Fixed]:
        place = np.asarray(draw.sample) % 3
        y, x = h - shape[0], w - shape[1]
        along_y, along_x = (np.choose(place, [0 * side, side // 2, side]) for side in (y, x))
        tall = np.asarray(h > w)
        return np.where(tall, along_y, y // 2), np.where(tall, x // 2, along_x)


class TenCrop(FiveCrop):
    """Crop as ``five_crop`` does, samples 0 to 4; samples 5 to 9 are their mirror images.

    A video's further samples start again, so ``samples_per_video: 10`` gives all ten.
    """

    name = "ten_crop"
    places = 10
    columns = ("y", "x", "h", "w", "flip")

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Return the window, or its mirror image, as a view."""
        window = super().apply(params, row[:4], frame)
        return window[:, :, ::-1] if row[4] else window

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """True where the window is the whole frame, as it is."""
        return np.asarray(super().identity(params, rows, h, w) & (rows[:, 4] == 0))

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Place one window per clip."""
        rows, height, width = super().resolve(params, draw, h, w)
        mirrored = np.broadcast_to(np.asarray(draw.sample) % 10 >= 5, len(rows)).astype(np.int32)
        return np.concatenate([rows, mirrored[:, None]], axis=1), height, width


class RandomResizedCrop(FrameOp):
    """Crop a window of random area, aspect ratio and place, and resize it to a fixed shape (Inception, MAE)."""

    name = "random_resized_crop"
    fields = (
        Field("shape", Sides(), REQUIRED, "height and width after resizing, in pixels"),
        Field("scale", Range(0.0001, 1.0), (0.08, 1.0), "area of the window as a fraction of the frame's"),
        Field("ratio", Range(0.01, 100.0), (0.75, 4 / 3), "width of the window divided by its height, log-uniform"),
        INTERPOLATION,
    )
    shorthand = "shape"
    columns = ("y", "x", "h", "w")
    keyed = ("shape", "interpolation")
    sizes = True
    fingerprint = "1"

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Resize a view of the frame."""
        y, x, h, w = row.tolist()
        values = dict(params)
        height, width = cast(Size, values["shape"])
        if (h, w) == (height, width):
            return frame[:, y : y + h, x : x + w]
        from viewcache.materializer.media.pixels import resize_rgb

        return resize_rgb(frame[:, y : y + h, x : x + w], height, width, cast(str, values["interpolation"]))

    def out_size(self, params: Params, size: Size | None) -> Size | None:
        """Always the shape."""
        return _shape(params)

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Draw one window per clip."""
        values = dict(params)
        scale, ratio = cast(tuple[float, float], values["scale"]), cast(tuple[float, float], values["ratio"])
        h, w = np.asarray(h, np.int64), np.asarray(w, np.int64)
        rows, found = random_window(draw, h, w, scale, ratio)
        rows = np.where(found[:, None], rows, _largest_window(h, w, ratio))
        height, width = (np.full(len(h), side, dtype=np.int64) for side in _shape(params))
        return rows, height, width


_TRIES = 10
_RATIO_STEPS = 1024
_RATIO_ONE = 65536


def random_window(
    draw: Draw, h: Fixed, w: Fixed, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[Rows, NDArray[np.bool_]]:
    """Draw windows of random area and aspect, as Szegedy et al. 2015 do and torchvision made usual.

    Up to 10 tries to find a window inside the frame. Only integer arithmetic, divisions and square roots, which every
    machine rounds alike.

    Args:
        draw: addresses of n clips.
        h: heights of the frames in pixels.
        w: widths.
        scale: smallest and largest area as a fraction of the frame's.
        ratio: smallest and largest width / height.

    Returns:
        (n, 4) int32: y, x, height, width; and whether a window was found (if not, its row is 0).
    """
    table = _ratio_table(ratio)
    low, width_of_range = int(scale[0] * ONE), int((scale[1] - scale[0]) * ONE) + 1
    rows = np.zeros((len(h), 4), dtype=np.int32)
    found = np.zeros(len(h), dtype=np.bool_)
    for k in range(_TRIES):
        area = (low + scaled(draw.fraction("area", k), width_of_range)) / ONE * (h * w)
        aspect = table[scaled(draw.fraction("ratio", k), len(table))] / _RATIO_ONE
        width = np.floor(np.sqrt(area * aspect) + 0.5).astype(np.int64)
        height = np.floor(np.sqrt(area / aspect) + 0.5).astype(np.int64)
        take = ~found & (width >= 1) & (height >= 1) & (width <= w) & (height <= h)
        y = nested_offset(draw.fraction("y", k), h, np.where(take, height, h))
        x = nested_offset(draw.fraction("x", k), w, np.where(take, width, w))
        rows[take] = np.stack([y, x, height, width], axis=1)[take]
        found |= take
        if found.all():
            break
    return rows, found


def _largest_window(h: Fixed, w: Fixed, ratio: tuple[float, float]) -> Rows:
    """The whole frame, cut to the nearest allowed aspect ratio and centred: where no try gave a window."""
    low, high = (int(_ratio_table(ratio)[i]) for i in (0, -1))
    height = np.where(w * _RATIO_ONE < low * h, np.maximum((w * _RATIO_ONE + low // 2) // low, 1), h)
    width = np.where(w * _RATIO_ONE > high * h, np.maximum((h * high + _RATIO_ONE // 2) // _RATIO_ONE, 1), w)
    return np.stack([(h - height) // 2, (w - width) // 2, height, width], axis=1).astype(np.int32)


@lru_cache(maxsize=64)
def _ratio_table(ratio: tuple[float, float]) -> Fixed:
    """Ratios in 1/65536 at 1,025 even steps of the logarithm.

    In decimal arithmetic, which is exact to its precision everywhere, whereas the last bit of a machine's exp and log
    is its own and would make the same config give other crops elsewhere.
    """
    with localcontext() as context:
        context.prec = 28
        low, high = Decimal(ratio[0]).ln(), Decimal(ratio[1]).ln()
        steps = (low + (high - low) * i / _RATIO_STEPS for i in range(_RATIO_STEPS + 1))
        table = np.array([int((step.exp() * _RATIO_ONE).to_integral_value()) for step in steps], dtype=np.int64)
    table.flags.writeable = False  # shared by the cache
    return table


def free_places(name: str, params: Params, window: Size, frame: Size) -> Size | None:
    """At how many rows and columns a window could have stood, each equally likely; None if nothing was drawn.

    Args:
        name: of the operation that cut it.
        params: its parameters.
        window: height and width of what was cut.
        frame: those of the frame it was cut from.
    """
    if name == RandomResizedCrop.name:
        ratio = cast(tuple[float, float], dict(params)["ratio"])
        # A window of the size that stands in when no try fits may stand in the middle, so it proves nothing.
        standing_in = _largest_window(np.array([frame[0]]), np.array([frame[1]]), ratio)[0]
        if window == tuple(standing_in[2:].tolist()):
            return None
    elif name != RandomCrop.name:
        return None
    return frame[0] - window[0] + 1, frame[1] - window[1] + 1


def _shape(params: Params) -> Size:
    return cast(Size, dict(params)["shape"])


OPS = (RandomCrop(), CenterCrop(), ThreeCrop(), FiveCrop(), TenCrop(), RandomResizedCrop())
