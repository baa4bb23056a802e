"""What is kept of each video, without what its other ways would take: of a million images that is a gigabyte."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.retention.ways import Way

__all__ = ["KeptWays", "by_video"]


@dataclass(frozen=True, slots=True)
class KeptWays:
    """Of V videos, as it was chosen for one generation."""

    videos: tuple[str, ...]
    """Content keys."""
    ways: tuple[Way, ...]
    option: NDArray[np.int16]
    """(V,) which of the ways is kept."""
    part_bytes: int
    """Most bytes that are promised to an object of what lasts; 0 = nothing does."""

    def way_of(self) -> dict[str, Way]:
        """What is kept of each video, by its content key."""
        return by_video(self.videos, self.ways, self.option)


def by_video(videos: Sequence[str], ways: Sequence[Way], option: NDArray[np.integer]) -> dict[str, Way]:
    """The way of each video, by its content key."""
    return dict(zip(videos, map(ways.__getitem__, option.tolist()), strict=True))
