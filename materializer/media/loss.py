"""What of its pictures a task may lose; no more than planning must know (docs/design/0047)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.arrays import by_class

__all__ = ["GROUP", "LOSSY", "Loss", "encoding_order"]

GROUP = 8
"""Frames of a video that are encoded together. It is part of what a path means."""

LOSSY = "h264-lossy"
"""The codec of such groups, a name of `viewcache.store.ENCODED`."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What may be lost; one of the two is given."""

    crf: int | None
    """Constant rate factor of x264: 0 is exact but for rounding, 18 hardly visible, 51 the most."""
    quality_db: float | None
    """Least luma PSNR of every picture, in decibels."""


def encoding_order(frames: int, stride: int) -> NDArray[np.int32]:
    """All frames of a video in the order in which they are encoded, `GROUP` at a time.

    By a stride of two all even frames come first, then all odd ones: a clip needs the groups of one class only.
    """
    return by_class(np.arange(frames, dtype=np.int32), stride)
