"""Which frames of its video a segment has: those whose presentation time is in [start, end).

An order holds *items*: a whole video, or a segment of one. Everything that decides clips of an item counts from its
first frame, and nothing reaches past its last one.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.arrays import same
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.texts import IdPlaces
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.randomness import Words, hash_address

__all__ = ["Items", "KnownItems", "shown_segment"]

_MAY_CHANGE = ("frames", "height", "width", "keyframes", "native_bytes", "file_bytes", "pace", "last")
"""What is known of a video by its header and may turn out otherwise."""


def shown_segment(start_s: float, end_s: float) -> str:
    """A segment as messages say it; empty for a whole video."""
    begin = "" if start_s == -np.inf else f" from {start_s:g} s"
    return begin + ("" if end_s == np.inf else f" to {end_s:g} s")


@dataclass(frozen=True)  # no slots: row_of is cached
class Items:
    """The items that a task draws from; arrays of length m."""

    videos: Videos
    """What they are of: each video once."""
    ids: NDArray[np.int64]
    """``item_id``: of a whole video its ``video_id``."""
    video: NDArray[np.int64]
    """Rows of ``videos``."""
    words: Words
    """Addresses of their random numbers."""
    first: NDArray[np.int64]
    """The first unit of each, see `SamplingSpec`; clips start there or later."""
    length: NDArray[np.int64]
    """Units from its first frame to its last, both included."""
    begin: NDArray[np.int64]
    """Its first frame."""
    frames: NDArray[np.int64]
    """How many it has."""
    start_s: NDArray[np.float64]
    """Where its segment begins, in seconds; -inf where that is where the video does."""
    end_s: NDArray[np.float64]
    """Where it ends; inf where that is where the video does."""

    @classmethod
    def whole(cls, videos: Videos, *, by_time: bool = False) -> "Items":
        """Each video as one item; ``by_time`` if clips are placed in ticks, and not in frames."""
        nothing = np.zeros(len(videos), np.int64)
        return cls(
            videos=videos,
            ids=videos.ids,
            video=np.arange(len(videos)),
            words=videos.words,
            first=nothing,
            length=videos.last + 1 if by_time else videos.frames,
            begin=nothing,
            frames=videos.frames,
            start_s=np.full(len(videos), -np.inf),
            end_s=np.full(len(videos), np.inf),
        )

    def __len__(self) -> int:
        """Number of items."""
        return len(self.ids)

    def joined(self, more: "Items") -> "Items":
        """These and, behind them, some more."""
        place = {key: row for row, key in enumerate(self.videos.keys)}
        new = np.array([key not in place for key in more.videos.keys], bool)
        fresh = np.flatnonzero(new)
        at = np.array([place.get(key, -1) for key in more.videos.keys], np.int64)
        at[fresh] = len(self.videos) + np.arange(len(fresh))
        moved = replace(more, video=at[more.video])
        columns = {
            each.name: np.concatenate([getattr(self, each.name), getattr(moved, each.name)])
            for each in fields(self)
            if each.name != "videos"
        }
        return Items(videos=self.videos.joined(more.videos.taken(fresh)), **columns)

    @cached_property
    def row_of(self) -> IdPlaces:
        """``item_id`` → position in the arrays."""
        return IdPlaces(self.ids)

    @cached_property
    def one_each(self) -> bool:
        """Whether there is one item of each video, in their order."""
        return np.array_equal(self.video, np.arange(len(self.videos)))

    def named(self, row: int) -> str:
        """An item as messages call it."""
        name = self.videos.names[int(self.video[row])]
        return name + shown_segment(float(self.start_s[row]), float(self.end_s[row]))


class KnownItems:
    """The items of listed files: each file as a whole, and the segments that a label table has or had.

    By the names of their videos, the whole video before its segments, these by their times.
    """

    def __init__(
        self,
        files: Files,
        ids: NDArray[np.int64],
        file: NDArray[np.int64],
        start_s: NDArray[np.float64],
        end_s: NDArray[np.float64],
        ordinal: NDArray[np.int64],
        *,
        by_time: bool,
    ) -> None:
        """Take segments of files that are there, in any order; arrays of equal lengths.

        Args:
            files: of the dataset.
            ids: ``item_id`` of each.
            file: row of ``files`` of each.
            start_s: where it begins, in seconds; -inf where that is open.
            end_s: where it ends; inf where that is open.
            ordinal: which of several equal ones it is.
            by_time: whether clips are placed in ticks, and not in frames.
        """
        self.files = files
        self._by_time = by_time
        count = len(files)
        self.given: NDArray[np.int64] = np.arange(count)
        """Which of the files, or behind them of the items that were given, each is."""
        self.file: NDArray[np.int64] = self.given
        self.ids: NDArray[np.int64] = files.ids
        self.start_s, self.end_s, self._ordinal = same(-np.inf, count), same(np.inf, count), same(0, count)
        if len(ids):
            self.file, self.ids = np.concatenate([self.file, file]), np.concatenate([self.ids, ids])
            self.start_s, self.end_s = np.concatenate([self.start_s, start_s]), np.concatenate([self.end_s, end_s])
            self._ordinal = np.concatenate([self._ordinal, ordinal])
            beside = self.ids != files.ids[self.file]
            order = self.given = np.lexsort((self._ordinal, self.end_s, self.start_s, beside, self.file))
            self.file, self.ids, self._ordinal = self.file[order], self.ids[order], self._ordinal[order]
            self.start_s, self.end_s = self.start_s[order], self.end_s[order]
        self.is_whole: NDArray[np.bool_] = (self.start_s == -np.inf) & (self.end_s == np.inf)
        """(m,) whether each has all frames of its video."""
        self.are_videos: NDArray[np.bool_] = self.ids == files.ids[self.file]
        """(m,) whether each is a video, and no row of a table beside it."""
        self._part = np.flatnonzero(~self.is_whole)
        self._at = same(-1, len(self.ids))
        if len(self._part):
            self._at = self._at.copy()
            self._at[self._part] = np.arange(len(self._part))
        self._begin, self._frames, self._first_tick, self._last_tick = np.zeros((4, len(self._part)), np.int64)
        self._seen = np.full((len(self._part), 2), -1, np.int64)
        """What was known of the file of each when its frames were looked up: how many it has, and its index."""

    def __len__(self) -> int:
        """Number of items."""
        return len(self.ids)

    @cached_property
    def row_of(self) -> IdPlaces:
        """``item_id`` → position in the arrays."""
        return IdPlaces(self.ids)

    def words(self, rows: NDArray[np.int64]) -> Words:
        """Addresses of some items' random numbers: that of its name, of a segment one that depends on its times too."""
        words = self.files.words(self.file[rows])
        own = np.flatnonzero(~self.is_whole[rows] | (self._ordinal[rows] > 0))
        if len(own):
            mine = rows[own]
            times = (times[mine].view(np.uint64) for times in (self.start_s + 0.0, self.end_s + 0.0))
            words[own] = hash_address(0, "item", words[own], *times, self._ordinal[mine])
        return words

    def units(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """First unit, length in units, first frame and number of frames of some items, by what is known of them now.

        Items of a video of which nothing is known, or that have no frame, have no frames and no length.
        """
        files, file = self.files, self.file[rows]
        if self._by_time:
            files.time(np.unique(file) if len(self._part) else file)
        first, begin = np.zeros((2, len(rows)), np.int64)
        frames, length = files.frames[file], (files.last[file] + 1 if self._by_time else files.frames[file])
        part = self._at[rows]
        some = np.flatnonzero(part >= 0)
        if len(some):
            part = part[some]
            self._look(part)
            begin[some], frames[some] = self._begin[part], self._frames[part]
            if self._by_time:
                first[some] = self._first_tick[part]
                length[some] = np.where(frames[some] > 0, self._last_tick[part] - self._first_tick[part] + 1, 0)
            else:
                first[some], length[some] = begin[some], frames[some]
        return first, length, begin, frames

    def _look(self, part: NDArray[np.int64]) -> None:
        """Find the frames of some segments, where something else is known of their videos than before."""
        known = self.files.known_of(self.file[self._part[part]])
        part = part[(self._seen[part] != known).any(axis=1)]
        if not len(part):
            return
        rows = self._part[part]
        file = self.file[rows]
        seen = self.files.known_of(file)
        first = self.files.frames_before(file, self.start_s[rows])
        count = np.maximum(self.files.frames_before(file, self.end_s[rows]) - first, 0)
        self._begin[part], self._frames[part] = first, count
        if self._by_time:
            there = np.flatnonzero(count > 0)
            self.files.time(np.unique(file[there]))
            self._first_tick[part[there]] = self.files.ticks_at(file[there], first[there])
            self._last_tick[part[there]] = self.files.ticks_at(file[there], first[there] + count[there] - 1)
        self._seen[part] = seen

    def segment(self, row: int) -> str:
        """The segment of an item as messages say it; empty for a whole video."""
        return shown_segment(float(self.start_s[row]), float(self.end_s[row]))

    def empty(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether it is known of some items that they have no frame."""
        out = np.zeros(len(rows), bool)
        some = np.flatnonzero(~self.is_whole[rows])
        if len(some):
            part = self._at[rows[some]]
            self._look(part)
            out[some] = (self._frames[part] == 0) & (self.files.frames[self.file[rows[some]]] > 0)
        return out

    def taken(self, rows: NDArray[np.int64]) -> Items:
        """Some items, as a plan has them."""
        file, video = np.unique(self.file[rows], return_inverse=True)
        first, length, begin, frames = self.units(rows)
        return Items(
            videos=self._videos(file),
            ids=self.ids[rows],
            video=video.reshape(-1),
            words=self.words(rows),
            first=first,
            length=length,
            begin=begin,
            frames=frames,
            start_s=self.start_s[rows],
            end_s=self.end_s[rows],
        )

    def _videos(self, rows: NDArray[np.int64]) -> Videos:
        """Some files, as a plan has them."""
        files = self.files
        if self._by_time:
            files.time(rows)
        return Videos(
            ids=files.ids[rows],
            names=files.names.taken(rows),
            uris=files.uris.taken(rows),
            keys=files.keys.taken(rows),
            words=files.words(rows),
            frames=files.frames[rows],
            height=files.height[rows],
            width=files.width[rows],
            keyframes=files.keyframes[rows],
            native_bytes=files.native_bytes[rows],
            file_bytes=files.file_bytes[rows],
            pace=files.pace[rows],
            last=files.last[rows],
        )

    def known_now(self, items: Items, video_id: int) -> Items:
        """Items of a plan, those of one video with what is known of it now."""
        videos = items.videos
        at, row = videos.row_of[video_id], self.files.row_of[video_id]
        if self._by_time:
            self.files.time(np.array([row]))
        columns = {name: getattr(videos, name).copy() for name in _MAY_CHANGE}
        for name, column in columns.items():
            column[at] = getattr(self.files, name)[row]
        mine = np.flatnonzero(items.video == at)
        units = self.units(self.row_of.of(items.ids[mine]))
        spans = {name: getattr(items, name).copy() for name in ("first", "length", "begin", "frames")}
        for column, values in zip(spans.values(), units, strict=True):
            column[mine] = values
        return replace(items, videos=replace(videos, **columns), **spans)
