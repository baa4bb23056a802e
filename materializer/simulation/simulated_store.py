"""A budget in a simulation: what lies there, when it is needed next, and what leaves first (the policy `demand`).

A heap with stale entries: O(log n) for each object that comes, is read or leaves, for n objects.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from viewcache.materializer.planning.order import Order
from viewcache.materializer.scheduling.intermediate_work import LATER_S
from viewcache.materializer.scheduling.rules import evictable
from viewcache.materializer.scheduling.schedule import Schedule
from viewcache.materializer.scheduling.work import Position, RowState
from viewcache.materializer.simulation.simulated_keeping import IntermediateNeeds
from viewcache.materializer.simulation.simulated_uses import GenerationUses, Runs, UseTrace, stored_bytes

__all__ = ["Item", "SimulatedGeneration", "SimulatedIntermediate", "SimulatedStore"]


class SimulatedGeneration(Schedule["Item"]):
    """One generation of one task: a schedule whose clips are numbers and whose order stays."""

    def __init__(self, trace: UseTrace, section: GenerationUses, position: Position) -> None:
        """Begin with every clip kept, and the task's reader at a position."""
        order = Order(np.zeros((section.epochs, section.per_epoch), np.int64), np.zeros(section.epochs, np.int64))
        super().__init__(order, section.first_epoch, section.iterations, 1, section.batch)
        clips = trace.clips_of(section)
        self.task_id, self.group_generation, self.section = section.task, section.group_generation, section
        self.clips: list[int] = clips.tolist()
        """By rank."""
        self._bounds = trace.clips.bound
        self._fill(np.array(trace.clips.video, np.int64)[clips], len(trace.videos.keys))
        self.at(position)
        self._due = [self.batches_before(rank) * position.pace_s for rank in range(len(self))]

    def key(self, row: int) -> int:
        """The number of a clip."""
        return self.clips[row]

    def video(self, row: int) -> int:
        """The number of its video."""
        return int(self._videos[row])

    def video_number(self, video: Hashable) -> int:
        """The same: videos are numbers."""
        assert isinstance(video, int)  # `video` gives nothing else
        return video

    def bound(self, row: int) -> int:
        """Most bytes that a clip takes on disk."""
        return self._bounds[self.clips[row]]

    @property
    def is_read(self) -> bool:
        """Whether its reader has had all of it."""
        return self.from_rank >= len(self)

    def rows_of(self, key: "Item") -> list[int]:
        """The rows that need a clip; empty if none does."""
        return [row for row, clip in enumerate(self.clips) if clip == key]

    def _due_in_s(self, rank: int) -> float:
        """Seconds from the first batch of all, and not from now: for tasks that keep their pace it is the same order.

        So what is due does not change with time, and a heap can hold it.
        """
        return self._due[rank]


@dataclass(slots=True, eq=False)
class SimulatedIntermediate:
    """Intermediates of one video."""

    needs: IntermediateNeeds
    frames: int
    """A bit for each frame, as in `ClipNeeds`."""
    runs: Runs
    users: list[SimulatedGeneration]
    """Whose clips are made from it."""
    chosen: bool = True
    """Whether it is still wanted."""

    def when(self) -> float:
        """When a clip that is made from it is due next; infinite = never."""
        found = (each.unkept_due_in_s([self.needs.video]) for each in self.users if self.chosen)
        never = LATER_S if self.needs.way.lasts and self.chosen else math.inf
        return min((due for due in found if due is not None), default=never)

    @property
    def stored(self) -> int:
        """Bytes on disk."""
        return min(self.needs.bound, stored_bytes(self.needs.raw * self.needs.rung.packed))


Item = int | SimulatedIntermediate
"""A clip by its number, or an intermediate."""


@dataclass(slots=True, eq=False)
class SimulatedStore:
    """What lies under a budget. Bytes in it and promised bytes never exceed the budget."""

    budget: int
    clip_bytes: list[int]
    """Bytes on disk of each clip."""
    uses: list[list[tuple[float, SimulatedGeneration, int]]]
    """Of each clip: when it is due, whose use it is and its rank, soonest first."""
    ready: set[Item] = field(default_factory=set)
    """What has been made and has not left."""
    used: int = 0
    reserved: int = 0
    most: int = 0
    """The most that was used and reserved at once."""
    evictions: int = 0
    held: Counter[Item] = field(default_factory=Counter)
    """What is being read."""
    passing_budget: int = 0
    """Bytes of memory for clips that pass through it; they take none of the budget."""
    passing: dict[Item, int] = field(default_factory=dict)
    """Clips that lie there, or are about to → their bytes."""
    _heap: list[tuple[float, int, Item]] = field(default_factory=list)
    _pushed: int = 0

    @property
    def free_bytes(self) -> int:
        """Bytes that can be reserved."""
        return self.budget - self.used - self.reserved

    def reserve(self, size: int) -> int:
        """Promise bytes to something that is about to be made."""
        self.reserved += size
        self.most = max(self.most, self.used + self.reserved)
        return size

    def size(self, item: Item) -> int:
        """Bytes on disk."""
        return self.clip_bytes[item] if isinstance(item, int) else item.stored

    def when(self, item: Item) -> float:
        """When something is due next; infinite = never."""
        if not isinstance(item, int):
            return item.when()
        return next((when for when, _, _ in self._to_come(item)), math.inf)

    def _to_come(self, clip: int) -> Iterator[tuple[float, SimulatedGeneration, int]]:
        uses = self.uses[clip]
        while uses and uses[0][2] < uses[0][1].from_rank:
            del uses[0]
        return (each for each in uses if each[2] >= each[1].from_rank)

    def uses_to_come(self, clip: int) -> int:
        """How often a clip will be read."""
        return sum(1 for _ in self._to_come(clip))

    def let_pass(self, clip: Item, size: int) -> bool:
        """Promise a place in memory to a clip; False if there is none."""
        if sum(self.passing.values()) + size > self.passing_budget:
            return False
        self.passing[clip] = size
        return True

    def not_passing(self, clip: Item) -> None:
        """A clip has passed, or will not: its place is free."""
        if self.passing.pop(clip, 0):
            self.ready.discard(clip)

    def add(self, item: Item, reserved: int) -> None:
        """Something was made; its reservation ends."""
        if item in self.passing:
            self.ready.add(item)
            return
        self.reserved -= reserved
        self.used += self.size(item)
        self.ready.add(item)
        self.note(item)

    def note(self, item: Item) -> None:
        """Something came, or is due at another time than before; what has passed is there no more."""
        if item in self.passing:
            if math.isinf(self.when(item)) and item not in self.held:
                self.not_passing(item)
            return
        self._pushed += 1
        heappush(self._heap, (-self.when(item), self._pushed, item))

    def hold(self, items: Iterable[Item]) -> None:
        """Somebody reads these: they stay."""
        self.held.update(items)

    def let_go(self, items: Iterable[Item]) -> None:
        """Holds are given back."""
        for item in items:
            self.held[item] -= 1
            if self.held[item] <= 0:
                del self.held[item]

    def evict(self, need: int, before: float | None, spared: Set[Item]) -> list[Item]:
        """Let at least ``need`` bytes leave, what is needed last first.

        Args:
            need: bytes.
            before: only what is due later than this, or never; None = anything.
            spared: what must stay.

        Returns:
            What left.
        """
        gone = list[Item]()
        stay, freed = list[tuple[float, int, Item]](), 0
        while self._heap and freed < need:
            entry = heappop(self._heap)
            when, item = -entry[0], entry[2]
            if item not in self.ready or self.when(item) != when:
                continue  # there is a newer entry, or none is needed
            if item in spared or item in self.held:
                stay.append(entry)
                continue
            if not evictable(None if math.isinf(when) else when, before):
                stay.append(entry)
                break  # all others are needed sooner
            freed += self.size(item)
            self._leave(item)
            gone.append(item)
        for entry in stay:
            heappush(self._heap, entry)
        return gone

    def _leave(self, item: Item) -> None:
        self.ready.discard(item)
        self.used -= self.size(item)
        self.evictions += 1
        for _, reading, rank in self._to_come(item) if isinstance(item, int) else ():
            if reading.state(rank) != RowState.MAKING:
                reading.set_state(rank, RowState.PLANNED)
