"""A finished batch and how it is put together: clips out of the store into consecutive slots of one buffer.

The batch itself is never stored: it is assembled at reading, which costs one copy that a stored batch
would cost too.
"""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import getrefcount

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput

__all__ = ["Batch", "Buffers", "rank_share"]


@dataclass(frozen=True, slots=True)
class Batch:
    """One iteration's clips for one rank; b = videos x samples of that rank's share."""

    task: str
    epoch: int
    iteration: int
    video: NDArray[np.uint8]
    """(b,T,C,H,W), or (b,V,T,C,H,W) after ``stack``."""
    label: NDArray[np.int64]
    """(b,) class numbers; -1 where the dataset has no labels."""
    index: NDArray[np.int64]
    """(b,) ``video_id`` of each clip."""
    frame: NDArray[np.int64]
    """(b,T) source frame numbers."""
    time_s: NDArray[np.float64]
    """(b,T) presentation times in seconds."""
    videos: tuple[str, ...] = ()
    """(b) names of the videos."""
    keys: tuple[str, ...] = ()
    """(b) content keys of the clips."""
    waited_s: float = field(default=0.0, compare=False)
    """How long the read waited for clips to be made."""
    stalls: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Where the read's time went: seconds by cause (`stalls.CAUSES`). All but ``load``, ``plan`` and ``draw`` add up to
    ``waited_s``, with what a worker loaded of intermediates."""


def rank_share(videos: int, samples: int, rank: int, world: int) -> slice:
    """Which clips of a batch of ``videos`` x ``samples`` one rank reads: shares differ by at most one video.

    Raises:
        BadInput: the batch has fewer videos than there are ranks, so that one would have nothing.
    """
    if not 0 <= rank < world:
        raise BadInput(f"rank {rank} of {world}: a rank is at least 0 and below the world's size")
    if videos < world:
        raise BadInput(
            f"a batch of {videos} videos cannot be shared by {world} ranks; use videos_per_batch >= {world}, and "
            "drop_last: true if only the last batch is too short"
        )
    return slice(rank * videos // world * samples, (rank + 1) * videos // world * samples)


class Buffers:
    """Arrays that are used again once nobody refers to them: fresh memory costs more than the read itself.

    Not thread-safe: one reader owns it.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._owners: list[NDArray[np.uint8]] = []

    def take(self, shape: Sequence[int]) -> NDArray[np.uint8]:
        """A writable, page-aligned uint8 array of ``shape`` in memory that nobody refers to any more."""
        size = int(np.prod(shape))
        self._owners = [owner for owner in self._owners if owner.size >= size + mmap.PAGESIZE]
        for owner in self._owners:
            # Every view, through any number of steps, refers to the memory's owner itself; here the list, the loop and
            # getrefcount's argument do, so a fourth reference is a user's.
            if getrefcount(owner) == _IDLE_REFERENCES:
                return _aligned(owner, size).reshape(shape)
        owner = np.empty(size + mmap.PAGESIZE, np.uint8)
        self._owners.append(owner)
        return _aligned(owner, size).reshape(shape)

    def trim(self, most: int) -> None:
        """Let go of memory that nobody refers to, but for ``most`` arrays that are likely to be taken next."""
        idle = [owner for owner in self._owners if getrefcount(owner) == _IDLE_REFERENCES]
        gone = {id(owner) for owner in idle[most:]}
        self._owners = [owner for owner in self._owners if id(owner) not in gone]


_IDLE_REFERENCES = 3


def _aligned(owner: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The first ``size`` bytes from a page's start: the kernel copies into them at twice the speed."""
    start = -owner.ctypes.data % mmap.PAGESIZE
    return owner[start : start + size]
