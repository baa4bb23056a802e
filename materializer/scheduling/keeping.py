"""What is kept of one generation of a task, as who makes it needs to know."""

from collections.abc import Mapping
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
