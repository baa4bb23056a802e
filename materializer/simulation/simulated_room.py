"""A budget in a simulation: what lies there, when it is needed next, and what leaves first (the policy `demand`).

A heap with stale entries: O(log n) for each object that comes, is read or leaves, for n objects.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from viewcache.materializer.simulation.rehearse import BaseNeeds, SectionKeeping
from viewcache.materializer.simulation.simulated_uses import OBJECT_BYTES, Runs, Section, Trace

__all__ = ["MAKING", "PLANNED", "READY", "Base", "Item", "Reading", "Room"]

PLANNED, MAKING, READY = range(3)
"""States of a clip or base, as in `RowState`."""


@dataclass(slots=True, eq=False)
class Reading:
    """One generation of one task, and how far its reader and its clips are (`ActiveGeneration` in the engine)."""

    section: Section
    clips: list[int]
    """By rank."""
    when: list[float]
    """Seconds from the first batch of all until each use is due, at the task's pace."""
    by_video: dict[int, list[int]]
    """Number of a video → the ranks of its clips."""
    read: int = 0
    """So many uses are past."""
    keeping: SectionKeeping | None = None
    free_bytes: int = 0
    _cursor: int = 0
    _near: int = 0

    @classmethod
    def of(cls, trace: Trace, section: Section, pace_s: float) -> "Reading":
        """At its beginning; every clip is kept."""
        clips = trace.clips_of(section)
        epoch, place = np.divmod(np.arange(len(section)), section.per_epoch)
        seq = (section.first_epoch + epoch) * section.iterations + place // section.batch
        by_video: dict[int, list[int]] = {}
        for rank, clip in enumerate(clips.tolist()):
            by_video.setdefault(trace.clips.video[clip], []).append(rank)
        return cls(section, clips.tolist(), (seq * pace_s).tolist(), by_video)

    @property
    def epochs_read(self) -> int:
        """How many of its epochs are past."""
        return self.read // self.section.per_epoch

    def keep(self, keeping: SectionKeeping | None, free_bytes: int) -> None:
        """Keep these clips from now on; None = all."""
        self.keeping, self.free_bytes = keeping, free_bytes
        self._cursor = self._near = 0

    def is_soon(self, rank: int) -> bool:
        """Whether a use is so near that what is needed later may leave for it."""
        return self.keeping is None or rank < self.read + self.keeping.window

    def is_kept(self, rank: int) -> bool:
        """Whether the clip of a use is to be kept."""
        return self.keeping is None or self.keeping.clips[rank] != 0

    def to_come(self, video: int) -> list[int]:
        """The ranks of one video from the reader on."""
        ranks = self.by_video.get(video, [])
        first = 0
        while first < len(ranks) and ranks[first] < self.read:
            first += 1
        return ranks[first:] if first else ranks

    def next_planned(self, state: bytearray) -> int | None:
        """The first use that is worth making ahead and whose clip nobody has made or is making."""
        clips, count, kept = self.clips, len(self.clips), None if self.keeping is None else self.keeping.clips
        at = max(self._cursor, self.read)
        while at < count and (state[clips[at]] != PLANNED or (kept is not None and not kept[at])):
            at += 1
        self._cursor = at
        if self.keeping is not None:
            near, end = max(self._near, self.read), min(self.read + self.keeping.window, at)
            while near < end and state[clips[near]] != PLANNED:
                near += 1
            self._near = near
            if near < end:
                return near
        return at if at < count else None

    def planned_of(self, video: int, state: bytearray) -> list[int]:
        """The uses of one video that are worth making while it is being decoded."""
        ranks = self.to_come(video)
        if not ranks:
            return []
        clips, keeping = self.clips, self.keeping
        if keeping is None:
            return [rank for rank in ranks if state[clips[rank]] == PLANNED]
        each = self.section.per_epoch
        near, visit, kept = self.read + keeping.window, ranks[0] // each, keeping.clips
        return [
            rank for rank in ranks
            if state[clips[rank]] == PLANNED and (kept[rank] or rank < near or rank // each == visit)
        ]  # fmt: skip

    def is_next(self, rank: int, video: int) -> bool:
        """Whether a use is in the epoch in which the task needs its video next."""
        ranks, each = self.to_come(video), self.section.per_epoch
        return bool(ranks) and rank // each == ranks[0] // each

    def unkept_need_s(self, video: int) -> float:
        """When a clip of a video that is not kept is due next; infinite = never."""
        return next((self.when[rank] for rank in self.to_come(video) if not self.is_kept(rank)), math.inf)

    def unmade(self, rank: int) -> None:
        """The clip of a use is to be made again."""
        self._cursor, self._near = min(self._cursor, rank), min(self._near, rank)


@dataclass(slots=True, eq=False)
class Base:
    """Kept pictures of one video."""

    needs: BaseNeeds
    born: int
    frames: int
    """A bit for each frame, as in `ClipNeeds`."""
    runs: Runs
    users: list[Reading]
    """Whose clips are made from it."""
    state: int = PLANNED
    chosen: bool = True
    """Whether it is still wanted."""

    def need_s(self) -> float:
        """When a clip that is made from it is due next; infinite = never."""
        if not self.chosen:
            return math.inf
        return min((each.unkept_need_s(self.needs.video) for each in self.users), default=math.inf)

    @property
    def stored(self) -> int:
        """Bytes on disk."""
        return min(self.needs.bound, self.needs.raw + OBJECT_BYTES)


Item = int | Base
"""A clip by its number, or a base."""


@dataclass(slots=True, eq=False)
class Room:
    """What lies under a budget. Bytes in it and reserved bytes never exceed the budget."""

    budget: int
    clip_bytes: list[int]
    """Bytes on disk of each clip."""
    uses: list[list[tuple[float, Reading, int]]]
    """Of each clip: when it is due, whose use it is and its rank, soonest first."""
    state: bytearray
    """Of each clip."""
    used: int = 0
    reserved: int = 0
    most: int = 0
    """The most that was used and reserved at once."""
    evictions: int = 0
    held: Counter[Item] = field(default_factory=Counter)
    """What is being read."""
    _heap: list[tuple[float, int, Item]] = field(default_factory=list)
    _pushed: int = 0

    @property
    def free(self) -> int:
        """Bytes that can be reserved."""
        return self.budget - self.used - self.reserved

    def reserve(self, size: int) -> None:
        """Promise bytes to something that is about to be made."""
        self.reserved += size
        self.most = max(self.most, self.used + self.reserved)

    def size(self, item: Item) -> int:
        """Bytes on disk."""
        return self.clip_bytes[item] if isinstance(item, int) else item.stored

    def is_there(self, item: Item) -> bool:
        """Whether something has been made and has not left."""
        return (self.state[item] if isinstance(item, int) else item.state) == READY

    def need_s(self, item: Item) -> float:
        """When something is due next; infinite = never."""
        if not isinstance(item, int):
            return item.need_s()
        return next((when for when, _, _ in self._to_come(item)), math.inf)

    def _to_come(self, clip: int) -> Iterator[tuple[float, Reading, int]]:
        uses = self.uses[clip]
        while uses and uses[0][2] < uses[0][1].read:
            del uses[0]
        return (each for each in uses if each[2] >= each[1].read)

    def add(self, item: Item, reserved: int) -> None:
        """Something was made; its reservation ends."""
        self.reserved -= reserved
        self.used += self.size(item)
        self.note(item)

    def note(self, item: Item) -> None:
        """Something came, or is due at another time than before."""
        self._pushed += 1
        heappush(self._heap, (-self.need_s(item), self._pushed, item))

    def hold(self, items: Iterable[Item]) -> None:
        """Somebody reads these: they stay."""
        self.held.update(items)

    def let_go(self, items: Iterable[Item]) -> None:
        """Holds are given back."""
        for item in items:
            self.held[item] -= 1
            if self.held[item] <= 0:
                del self.held[item]

    def evict(self, need: int, before_s: float | None, spared: Set[int]) -> set[Item]:
        """Let at least ``need`` bytes leave, what is needed last first.

        Args:
            need: bytes.
            before_s: only what is needed later than this, or never; None = anything.
            spared: clips that must stay.

        Returns:
            What left.
        """
        gone, stay, freed = set[Item](), list[tuple[float, int, Item]](), 0
        while self._heap and freed < need:
            entry = heappop(self._heap)
            when, item = -entry[0], entry[2]
            if not self.is_there(item) or self.need_s(item) != when:
                continue  # there is a newer entry, or none is needed
            if item in spared or item in self.held:
                stay.append(entry)
                continue
            if before_s is not None and when <= before_s and not math.isinf(when):
                stay.append(entry)
                break  # all others are needed sooner
            freed += self.size(item)
            gone.add(item)
            self._leave(item)
        for entry in stay:
            heappush(self._heap, entry)
        return gone

    def _leave(self, item: Item) -> None:
        self.used -= self.size(item)
        self.evictions += 1
        if isinstance(item, int):
            self.unmake(item)
        else:
            item.state = PLANNED

    def unmake(self, clip: int) -> None:
        """A clip is to be made again."""
        self.state[clip] = PLANNED
        for _, reading, rank in self._to_come(clip):
            reading.unmade(rank)
