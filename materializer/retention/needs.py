"""What the clips of some videos need: how many there are of each kind, and which source frames, by epoch use.

An *epoch use* is what an epoch of the group needs of one video, at about one time. Numbers are arrays over videos.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.arrays import distinct
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.sources import Sources
from viewcache.materializer.retention.ways import ToCome

__all__ = ["ClipCounts", "Decode", "Floats", "NeededFrames", "Rows", "VideoRows"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = tuple[GenerationPlan, Ints, Ints, NDArray[np.bool_]]
"""Some clips of a plan: their rows, which video of a block each is of, and whether it is in the store."""


class VideoRows:
    """The clips to come of one plan by video."""

    def __init__(self, each: ToCome, places: Ints) -> None:
        """Of the plan's videos that have a place, see `places_of`."""
        self._plan, self._ready = each.plan, each.ready
        rows = np.flatnonzero(each.rows)
        video = places[each.plan.video[rows]]
        order = np.argsort(video, kind="stable")
        self._rows, self._video = rows[order], video[order]
        self._starts: list[int] | None = None
        """Where the rows of each video begin, once somebody asked."""

    def first(self, video: int) -> int | None:
        """The first row of a video; None if it has none."""
        if self._starts is None:
            self._starts = np.searchsorted(self._video, np.arange(int(self._video.max(initial=-1)) + 2)).tolist()
        start, end = self._starts[video : video + 2] if 0 <= video < len(self._starts) - 1 else (0, 0)
        return int(self._rows[start]) if end > start else None

    def firsts(self, count: int) -> Ints:
        """(count,) the first row of each of so many videos; -1 of one that has none."""
        found = np.full(count, -1, np.int64)
        there = self._video >= 0
        found[self._video[there][::-1]] = self._rows[there][::-1]  # of several the first is written last
        return found

    def rows(self, start: int, stop: int) -> Rows:
        """The rows of videos start…stop."""
        first, last = np.searchsorted(self._video, (start, stop))
        rows = self._rows[first:last]
        return self._plan, rows, self._video[first:last] - start, self._ready[rows]


@dataclass(frozen=True, slots=True)
class Decode:
    """Of each video."""

    once_s: Floats
    """Seconds for all that is needed of it."""
    share: Floats
    """Part of the packets between the first and the last needed frame that must be decoded."""
    packets: Floats
    """That are read for all that is needed of it."""
    lies: Floats
    """Bytes of pictures that lie there, which are read instead."""
    room: Floats
    """Bytes that all pictures take of which some are read instead: they must stay until clips are made of them."""


@dataclass(frozen=True, slots=True)
class ClipCounts:
    """Of one kind, for each video."""

    stays: Floats
    """Distinct ones that are needed after the next epoch use: what that one reads gives its room to others."""
    missing: Floats
    """Distinct ones that are not in the store."""
    made: Floats
    """Distinct ones of each epoch use, added up: how many are made if none is kept."""
    uses: Floats


class NeededFrames:
    """Source frames that some kinds need of the videos of a block."""

    def __init__(self, codes: Ints, epochs: int, most_frames: int, videos: int) -> None:
        epoch_use, frame = np.divmod(codes, most_frames)
        video = epoch_use // epochs
        frames = distinct(video * most_frames + frame)
        starts = np.flatnonzero(np.diff(epoch_use, prepend=-1))
        ends = np.append(starts[1:], len(epoch_use)) - 1 if len(starts) else starts
        self._spans = video[starts], frame[starts].astype(np.int32), frame[ends].astype(np.int32)
        self._bounds = np.searchsorted(frames, np.arange(videos + 1) * most_frames)
        self._of_video = (frames % most_frames).astype(np.int32)
        self.frames = np.diff(self._bounds).astype(np.float64)
        """Distinct ones, for each video."""
        self.visited = np.bincount(video, minlength=videos).astype(np.float64)
        """Distinct ones of each epoch use, added up."""
        self.visits = np.bincount(self._spans[0], minlength=videos).astype(np.float64)

    def packets(self, sources: Sources) -> Floats:
        """Fewest that a decoder must be fed for all of them."""
        return sources.packets(self._of_video, self._bounds)

    def span_packets(self, sources: Sources, *, by_visit: bool) -> Floats:
        """Packets from the key frame before the first needed frame to the last, of all visits or of all at once."""
        if by_visit:
            return sources.span_packets(*self._spans)
        video = np.flatnonzero(self.frames)
        ends = self._bounds[video], self._bounds[video + 1] - 1
        first, last = (self._of_video[at] for at in ends)
        return sources.span_packets(video, first, last)
