"""The videos of a block as those who weigh see them: by their packet indexes, or by columns where there are many."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.media.sketch import Sketches
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.ways import ToCome, Where

__all__ = ["Indexes", "Sources", "native_bytes_of", "sketches_of"]


class Sources(Protocol):
    """V videos; arrays are (V,)."""

    @property
    def frames(self) -> NDArray[np.int64]:
        """How many each has."""
        ...

    @property
    def pixels(self) -> NDArray[np.int64]:
        """Of one decoded picture."""
        ...

    @property
    def native_bytes(self) -> NDArray[np.int64]:
        """Of one frame in the decoder's own planes; -1 if these are not kept."""
        ...

    @property
    def packet_bytes(self) -> NDArray[np.float64]:
        """Mean size of a packet."""
        ...

    def packets(self, frames: NDArray[np.int32], bounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """Fewest packets for the distinct, sorted frames ``bounds[v]`` to ``bounds[v + 1]`` of each video v."""
        ...

    def span_packets(
        self, video: NDArray[np.int64], first: NDArray[np.int32], last: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Packets of all spans of each video, from where decoding starts for ``first`` to ``last``; videos rise."""
        ...


class Indexes:
    """`Sources` of which everything is known."""

    def __init__(self, indexes: Sequence[MediaIndex]) -> None:
        """Take the packet index of each."""
        self._indexes = indexes
        self.frames = np.array([index.frames for index in indexes], np.int64)
        self.pixels = np.array([index.frame_pixels for index in indexes], np.int64)
        sizes = (index.native_bytes for index in indexes)
        self.native_bytes = np.array([-1 if size is None else size for size in sizes], np.int64)
        self.packet_bytes = np.array([index.packet_bytes.mean() for index in indexes], np.float64)

    def packets(self, frames: NDArray[np.int32], bounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `Sources`."""
        parts = (frames[start:end] for start, end in pairwise(bounds.tolist()))
        return np.array([each.cost(part).packets for each, part in zip(self._indexes, parts, strict=True)], np.float64)

    def span_packets(
        self, video: NDArray[np.int64], first: NDArray[np.int32], last: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """See `Sources`."""
        found, bounds = np.zeros(len(self._indexes)), np.searchsorted(video, np.arange(len(self._indexes) + 1))
        for k, (start, end) in enumerate(pairwise(bounds.tolist())):
            if end > start:
                found[k] = self._indexes[k].span_packets(first[start:end], last[start:end]).sum()
        return found


def native_bytes_of(plans: Sequence[ToCome], where: Where) -> NDArray[np.int64]:
    """(V,) of a frame of each video in the decoder's own planes, by what plans know of it; -1 if these are not kept."""
    found = np.full(len(where.videos), -1, np.int64)
    for number, each in enumerate(plans):
        mine = where.plan == number
        found[mine] = each.plan.videos.native_bytes[where.row[mine]]
    return found


def sketches_of(plan: GenerationPlan, rows: NDArray[np.int64]) -> Sketches:
    """Some rows of a plan's videos, by what it knows of them."""
    videos = plan.videos
    frames = videos.frames[rows]
    return Sketches(
        frames,
        -(-frames // videos.keyframes[rows]),
        (videos.height * videos.width)[rows],
        videos.native_bytes[rows],
        videos.file_bytes[rows] / np.maximum(1, frames),
    )
