"""Resizing: to an exact shape, or by the short side, fixed or jittered (SlowFast).

All of it goes through the one swscale step that defines the data (``materializer/media/pixels.py``), so a resize gives
the same bytes whether it is fused with the decoder's colour conversion or not.
"""

from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.ops.base import Draw, Fixed, NativeOp, Rows, Size
from viewcache.materializer.ops.fields import MAX_SIDE, REQUIRED, Choice, Field, Params, Sides, Whole, WholeRange
from viewcache.materializer.randomness import scaled

__all__ = ["INTERPOLATIONS", "OPS", "RandomShortSide", "Resize", "short_side_size"]

INTERPOLATIONS = ("bilinear", "bicubic", "area", "lanczos", "nearest")

INTERPOLATION = Field("interpolation", Choice(INTERPOLATIONS), "bilinear", "how pixels are weighted")


def short_side_size(h: np.ndarray, w: np.ndarray, short: int | np.ndarray) -> tuple[Fixed, Fixed]:
    """Scale so that the short side has a given length and the aspect ratio stays.

    The long side is long * short_side / short rounded to the nearest integer, halves up, in integer arithmetic. Height
    and width are treated alike: exchanging them going in exchanges them going out.

    Args:
        h: heights in pixels.
        w: widths.
        short: wanted lengths of the short side.

    Returns:
        Heights and widths, int64.
    """
    h, w, short = (np.asarray(x, dtype=np.int64) for x in (h, w, short))
    less = np.minimum(h, w)
    return (2 * h * short + less) // (2 * less), (2 * w * short + less) // (2 * less)


class _SwscaleResize(NativeOp):
    """What both resizes share: a row (h, w) and the interpolation."""

    columns: ClassVar[tuple[str, ...]] = ("h", "w")
    keyed: ClassVar[tuple[str, ...] | None] = ("interpolation",)
    effect: ClassVar[str] = "resize"
    fingerprint = "1"

    def fits(self, params: Params, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """The long side must stay within MAX_SIDE, even for a frame like a line."""
        return np.asarray(np.maximum(*short_side_size(h, w, self.longest(params))) <= MAX_SIDE)

    def unfit_hint(self, params: Params) -> str:
        """The frame is too narrow."""
        ways = "use a smaller short side, resize to a shape, or leave the file out by `where`"
        return f"would get a side longer than {MAX_SIDE} pixels; {ways}"

    def longest(self, params: Params) -> int:
        """The longest short side that may be asked for; 0 where the shape is exact."""
        raise NotImplementedError

    def target(self, params: Params, row: np.ndarray) -> tuple[int, int, str]:
        """Return height, width and interpolation."""
        height, width = row.tolist()
        return height, width, cast(str, dict(params)["interpolation"])

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Resize an RGB frame; a frame of the right size is returned as it is."""
        height, width, interpolation = self.target(params, row)
        if frame.shape[1:] == (height, width):
            return frame
        # Imported here because pixels loads the decoder's libraries, which planning does not need.
        from viewcache.materializer.media.pixels import resize_rgb

        return resize_rgb(frame, height, width, interpolation)

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """True where the frame has the target size already."""
        return np.asarray((rows[:, 0] == h) & (rows[:, 1] == w))


class Resize(_SwscaleResize):
    """Resize to an exact shape, or so that the short side has a given length."""

    name = "resize"
    fields = (
        Field("shape", Sides(), None, "exact height and width in pixels"),
        Field("short_side", Whole(1, MAX_SIDE), None, "length of the shorter side in pixels; the aspect ratio stays"),
        INTERPOLATION,
    )

    def longest(self, params: Params) -> int:
        """The short side; an exact shape always fits."""
        return cast(int | None, dict(params)["short_side"]) or 0

    def check(self, values: dict[str, object]) -> None:
        """Exactly one of the two ways to say the size."""
        if (values["shape"] is None) == (values["short_side"] is None):
            raise BadInput("resize: give exactly one of shape: [height, width] and short_side: pixels")

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Compute the size of each frame; nothing is drawn."""
        self.require_fit(params, h, w)
        shape = cast(Size | None, dict(params)["shape"])
        if shape is None:
            height, width = short_side_size(h, w, cast(int, dict(params)["short_side"]))
        else:
            height, width = (np.full(len(h), side, dtype=np.int64) for side in shape)
        return np.stack([height, width], axis=1).astype(np.int32), height, width

    def out_size(self, params: Params, size: Size | None) -> Size | None:
        """The shape, or the short side's size if that of the input is known."""
        shape = cast(Size | None, dict(params)["shape"])
        if shape is not None or size is None:
            return shape
        height, width = short_side_size(np.array(size[0]), np.array(size[1]), cast(int, dict(params)["short_side"]))
        return int(height), int(width)

    def size_hint(self, params: Params) -> str:
        """Only short_side depends on the clip."""
        return "short_side keeps each video's aspect ratio; add a crop with a shape, or resize to a shape"


class RandomShortSide(_SwscaleResize):
    """Resize so that the short side has a length drawn uniformly from a range (SlowFast's scale jitter)."""

    name = "random_short_side"
    is_drawn = True
    shorthand = "range"
    fields = (
        Field("range", WholeRange(1, MAX_SIDE), REQUIRED, "shortest and longest short side in pixels, both included"),
        INTERPOLATION,
    )

    def longest(self, params: Params) -> int:
        """The upper end of the range."""
        return cast(tuple[int, int], dict(params)["range"])[1]

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Draw one length per clip."""
        self.require_fit(params, h, w)
        low, high = cast(tuple[int, int], dict(params)["range"])
        height, width = short_side_size(h, w, low + scaled(draw.fraction("side"), high - low + 1))
        return np.stack([height, width], axis=1).astype(np.int32), height, width

    def size_hint(self, params: Params) -> str:
        """Always depends on the clip."""
        return "the short side is drawn for each clip; add a crop with a shape"


OPS = (Resize(), RandomShortSide())
