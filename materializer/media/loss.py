"""What of its pictures a task may lose; no more than planning must know (docs/design/0047)."""

from dataclasses import dataclass

__all__ = ["GROUP", "LOSSY", "Loss"]

GROUP = 8
"""Frames of a video that are encoded together: 0 to 7, 8 to 15 and so on. It is part of what a path means."""

LOSSY = "h264-lossy"
"""The codec of such groups, a name of `viewcache.store.ENCODED`."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What may be lost; one of the two is given."""

    crf: int | None
    """Constant rate factor of x264: 0 is exact but for rounding, 18 hardly visible, 51 the most."""
    quality_db: float | None
    """Least luma PSNR of every picture, in decibels."""
