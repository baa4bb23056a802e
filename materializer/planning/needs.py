"""What one generation needs of its videos: the distinct frames of each, and about how many packets hold them.

Numbers are columns over videos: of a quarter of a million of them no step is taken one by one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.materializer.arrays import distinct
from viewcache.materializer.dataset.texts import Keys
from viewcache.materializer.keys import hash_of
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.randomness import permutation

__all__ = ["FrameNeeds", "frame_needs"]

MOST_COUNTED = 2000
"""Videos whose packets are counted; it takes about half a second."""

BLOCK = 1 << 16
"""Clips that are looked at together: their frames are some million numbers."""


@dataclass(frozen=True, slots=True)
class FrameNeeds:
    """What one generation needs of each of V videos."""

    video: NDArray[np.int64]
    """(V,) rows of ``plan.videos``, rising."""
    frames: NDArray[np.int32]
    """Distinct source frames, sorted, of one video after the other."""
    bounds: NDArray[np.int64]
    """(V + 1,) where those of each video begin in ``frames``, and the end."""
    packets: NDArray[np.int64]
    """(V,) fewest that a decoder must be fed for them; an estimate if there are very many videos."""
    pixels: NDArray[np.int64]
    """(V,) of one frame."""

    def __len__(self) -> int:
        """Number of videos."""
        return len(self.video)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(V,) distinct frames."""
        return np.diff(self.bounds)

    def decode_s(self, cost: CostModel) -> NDArray[np.float64]:
        """(V,) estimated core seconds to decode and convert what is needed of each."""
        pixels = self.pixels.astype(np.float64)
        return cost.decode_s(self.packets * pixels, self.counts * pixels)

    def lists(self) -> pa.ListArray:
        """The frames of each video as a column."""
        return pa.ListArray.from_arrays(self.bounds.astype(np.int32), self.frames)

    def keys(self, videos: Keys) -> NDArray[np.void]:
        """(V,) of 16 bytes: content keys of the frames of each, from the content keys of the plan's videos."""
        base, data, edges = hash_of("frames"), memoryview(self.frames.tobytes()), (4 * self.bounds).tolist()
        found = bytearray()
        for row, start, end in zip(self.video.tolist(), edges[:-1], edges[1:], strict=True):
            one = base.copy()
            for part in (videos.packed[row].tobytes(), data[start:end]):
                one.update(len(part).to_bytes(8, "little"))
                one.update(part)
            found += one.digest()
        return np.frombuffer(bytes(found), "V16")


def frame_needs(plan: GenerationPlan, index_of: Callable[[int], MediaIndex]) -> FrameNeeds:
    """Work out the distinct frames and the packets of every video that the plan uses.

    Reading a packet index is most of the time that planning takes: of many videos the packets of a sample are counted,
    and those of the others estimated from how far apart their frames are.
    """
    found = [np.zeros((0, 2), np.int32), *_frames(plan)]
    video, frames = (np.concatenate([each[:, column] for each in found]) for column in range(2))
    videos, starts = np.unique(video, return_index=True)
    bounds = np.append(starts, len(video))
    spans = frames[bounds[1:] - 1].astype(np.int64) - frames[starts] + 1
    counted = permutation(0, "needs/sample", len(videos))[:MOST_COUNTED].tolist()
    exact = np.array([index_of(int(videos[k])).cost(frames[bounds[k] : bounds[k + 1]]).packets for k in counted])
    packets = np.ceil(spans * (exact.sum() / spans[counted].sum())).astype(np.int64)
    packets[counted] = exact
    pixels = (plan.videos.height * plan.videos.width)[videos]
    return FrameNeeds(videos.astype(np.int64), frames, bounds, packets, pixels)


def _frames(plan: GenerationPlan) -> Iterator[NDArray[np.int32]]:
    """(n, 2) distinct pairs of a row of the plan's videos and a frame of it, in order, some videos at a time."""
    order = np.argsort(plan.video, kind="stable")
    video, at = plan.video[order], 0
    most = int(plan.videos.frames.max(initial=0)) + 1
    while at < len(order):
        end = int(np.searchsorted(video, video[min(at + BLOCK, len(order)) - 1], side="right"))  # whole videos only
        pairs = distinct(video[at:end, None] * most + plan.frames(order[at:end]))
        yield np.stack(np.divmod(pairs, most), axis=1).astype(np.int32)
        at = end
