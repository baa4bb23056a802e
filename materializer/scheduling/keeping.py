"""What is kept of one generation of a task, as who makes it needs to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.recipe import IntermediateObject

__all__ = ["Keeping"]


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept of one task's generation; all others of its clips are made shortly before they are read."""

    clips: NDArray[np.bool_]
    """(n,) rows whose clips are kept."""
    window: int
    """So many clips from each reader on are made ahead though they are not kept."""
    free_bytes: int
    """Room that making what is kept leaves for those."""
    intermediates: Mapping[str, tuple[IntermediateObject, ...]] = field(default_factory=dict)
    """Content key of a video → what its clips are made from."""
    _stretches: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """Of those that were asked for: (2, n) the first and the last source frame of each."""

    def made_from(self, video: str, frames: NDArray[np.int32]) -> Sequence[IntermediateObject]:
        """What a clip of source frames (F,) of a video may be made from, if several are kept: each has a stretch of it.

        It is asked for twice for each clip, and a long video has hundreds.
        """
        found, stretches = self.intermediates[video], self._stretches.get(video)
        if stretches is None:
            ends = [(each.recipe.frames.min(), each.recipe.frames.max()) for each in found]
            stretches = self._stretches[video] = np.array(ends, np.int32).T
        near = (stretches[0] <= frames.max()) & (frames.min() <= stretches[1])
        return [found[k] for k in np.flatnonzero(near).tolist()]
