"""What the scheduling rules decide on: rows, each a clip or a frame to be made, whoever asked for them.

An object's state follows from where it is: it lies in the store, a job makes it, or neither. A row has a note of that,
which is put right when its turn comes, so that a plan of a million rows need not be told of every object.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from viewcache.errors import ViewcacheError
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe, VideoSource
from viewcache.materializer.storage.ledger import Copy
from viewcache.materializer.telemetry.stalls import Arrival, Times
from viewcache.materializer.workers.job import Made

__all__ = [
    "READ_TRIES",
    "SECONDS_PER_FRAME",
    "Demand",
    "Key",
    "Makeable",
    "ObjectStates",
    "Position",
    "RowState",
    "Work",
    "edges_of",
]

SECONDS_PER_FRAME = 0.1
"""A generous guess for decoding, converting and storing one frame, used only to tell a hung worker from a slow one."""

READ_TRIES = 5
"""How often objects are read again when they turn out damaged; each time they have been made anew."""

Key = TypeVar("Key", bound=Hashable)
"""What names an object: its content key, or its number in a simulation."""


class RowState(IntEnum):
    """Of one row."""

    PLANNED = 0
    MAKING = 1
    READY = 2
    FAILED = 3
    LEFT_OUT = 4
    """Behind the last batch of its epoch, as the order stands."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader of a task is: the batch that it needs next, and its pace."""

    epoch: int = 0
    iteration: int = 0
    pace_s: float = 0.0
    """Seconds an iteration; 0 = not known yet."""

    @property
    def place(self) -> tuple[int, int]:
        """Epoch and iteration."""
        return self.epoch, self.iteration


class ObjectStates(Generic[Key]):
    """How far each object is: ready, being made, or planned."""

    def __init__(self, has: Callable[[Key], bool], is_leaving: Callable[[Key], bool] = lambda _: False) -> None:
        """Start with nothing being made.

        Args:
            has: says whether an object lies in the store.
            is_leaving: says whether one has left and its bytes are about to be deleted; until then nobody makes it.
        """
        self.has = has
        self.is_leaving = is_leaving
        self.making: dict[Key, int] = {}
        """Key → number of the job that makes it."""

    def is_planned(self, key: Key) -> bool:
        """Whether an object is neither there nor being made, and may be made."""
        return key not in self.making and self.is_missing(key)

    def is_missing(self, key: Key) -> bool:
        """Whether an object is not there and may be made: one whose old bytes are about to be deleted may not."""
        return not self.has(key) and not self.is_leaving(key)


def edges_of(recipe: Recipe) -> int:
    """Edges of the view graph that making an object takes: each frame decoded, and each operation on it."""
    return len(recipe.frames) * (1 + len(recipe.program.instructions))


class Work(ABC, Generic[Key]):
    """Rows to be made, as the rules see them. Not thread-safe: whoever drives the rules guards it."""

    task_id: int
    group_generation: int = -1
    """The group's generation that it belongs to, whose clips are decoded together; negative = none."""
    position: Position = Position()
    """Where the task's reader is who is furthest behind."""
    rides: bool = False
    """Whether its objects are best made with whatever needs a decode of their video first."""
    revision: int = 0
    """How often rows have got other keys: another video has come to stand in."""

    @abstractmethod
    def key(self, row: int) -> Key:
        """What names a row's object."""

    def keys(self, rows: Sequence[int]) -> list[Key]:
        """The same of several; pictures of one block have one key."""
        return [*map(self.key, rows)]

    @abstractmethod
    def video(self, row: int) -> Hashable:
        """What names the video that a row is made of."""

    def file_key(self, row: int) -> Hashable:
        """What names the file that a row is made of: of a part of an object of several files, its own."""
        return self.video(row)

    def part_of(self, row: int) -> int:
        """The place of a row in its object, of which several rows are parts."""
        return 0

    def beside(self, row: int) -> Sequence[int]:
        """The rows that are parts of one object with a row, and the row itself."""
        return [row]

    def clip_of(self, row: int) -> int:
        """The row of the clip that a row is of: a clip's audio is a row, and an object, of its own."""
        return row

    @abstractmethod
    def bound(self, row: int) -> int:
        """Most bytes that a row's object takes on disk."""

    @abstractmethod
    def state(self, row: int) -> RowState:
        """How far a row is, as far as it was noted."""

    @abstractmethod
    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row is."""

    @abstractmethod
    def rows_of(self, key: Key) -> Sequence[int]:
        """The rows that need an object; empty if none does."""

    def mark_missing(self, key: Key) -> None:
        """An object is to be made, unless it is being made already: its rows are planned again."""
        for row in self.rows_of(key):
            if self.state(row) != RowState.MAKING:
                self.set_state(row, RowState.PLANNED)

    def mark_present(self, has: Callable[[Key], bool]) -> None:
        """Note of which rows the object is there, given whether an object is; what is being made stays so."""

    def held(self, row: int) -> int:
        """Most raw bytes that a worker holds while it makes a row."""
        return self.bound(row)

    def free_bytes(self, row: int) -> int:
        """Room that making a row ahead leaves to what is needed sooner."""
        return 0

    def is_soon(self, row: int) -> bool:
        """Whether a row is needed so soon that what is needed later may be evicted for it."""
        return True

    def is_unkept(self, row: int) -> bool:
        """Whether it was decided that a row's object is made shortly before it is read, and not kept."""
        return False

    def bytes_to_come(self) -> int:
        """Most bytes on disk of all that readers have not had."""
        return 0

    def uses_to_come(self, key: Key) -> int:
        """How many rows that a reader has not had need an object."""
        return len(self.rows_of(key))

    def is_next(self, row: int) -> bool:
        """Whether a row is of what its task needs next of the row's video."""
        return False

    def counts(self) -> dict[str, int]:
        """How many rows are in each state."""
        return {}

    def next_planned(self) -> int | None:
        """The row that is needed soonest and that nobody has made or is making; None to make nothing ahead."""
        return None

    def edges_left(self) -> list[tuple[int, int]]:
        """Videos of which something is worth making ahead: the soonest row of each, and how many edges are left."""
        return []

    def next_needed(self, count: int) -> list[tuple[float, Key]]:
        """(seconds until it is needed, key) of the next ``count`` objects of each reader, soonest first."""
        return []

    def is_begun(self) -> bool:
        """Whether a reader is in its generation, or behind it."""
        return True

    def recurring(self) -> Iterable[tuple[Key, int]]:
        """Objects that are read in each epoch, since its clips are made from them, and most bytes of each on disk."""
        return ()

    def worth_making(self, video: Hashable) -> list[tuple[float, int, bool]]:
        """Rows of one video that are worth making while it is being decoded, soonest first.

        Each with the seconds until it is needed before it, and after it whether it `is_next`.
        """
        return []

    def next_due_in_s(self, key: Key) -> float | None:
        """Seconds until an object is needed next; None if it is not."""
        return None

    def due_in_s(self, row: int) -> float:
        """Seconds until a row is needed."""
        return 0.0

    def last_due_in_s(self) -> float:
        """Seconds until the last row is needed."""
        return 0.0

    def at(self, *positions: Position) -> None:
        """Note where the task's readers are: at least one."""


@dataclass(slots=True, eq=False)
class Demand(Generic[Key]):
    """A reader and the rows that it waits for."""

    work: Work[Key]
    rows: list[int]
    begun: float = field(default_factory=time.monotonic)
    """When it asked, of `time.monotonic`."""
    error: ViewcacheError | None = None
    """Why it will not get them."""
    arrivals: list[Arrival] = field(default_factory=list)
    """How what it got came to be."""
    tight: list[Times] = field(default_factory=list)
    """When room was looked for, for readers."""
    _places: dict[Key, list[int]] = field(default_factory=dict)
    _together: dict[Key, list[Key]] = field(default_factory=dict)
    _revision: int = -1

    def places(self) -> Mapping[Key, Sequence[int]]:
        """What it waits for: key → which of the rows have it, in their order.

        Worked out once: a batch may be of thousands of images in a few dozen blocks, and this is asked for each job.
        """
        if self._revision != self.work.revision:
            self._work_out()
        return self._places

    def together(self, key: Key) -> Sequence[Key]:
        """Of what it waits for, all that is made of one video with ``key``, and that itself; worked out once, too."""
        if self._revision != self.work.revision:
            self._work_out()
        return self._together[key]

    def _work_out(self) -> None:
        revision = self.work.revision  # before the keys, which may be others meanwhile
        places: dict[Key, list[int]] = {}
        for place, key in enumerate(self.work.keys(self.rows)):
            places.setdefault(key, []).append(place)
        of_video: dict[Hashable, list[Key]] = {}
        together = {key: of_video.setdefault(self.work.video(self.rows[at[0]]), []) for key, at in places.items()}
        for key, keys in together.items():
            keys.append(key)
        self._places, self._together, self._revision = places, together, revision


class Makeable(Work[str]):
    """Rows that a worker can make: each has a recipe."""

    @abstractmethod
    def source(self, row: int) -> VideoSource:
        """The video that a row is made of."""

    @abstractmethod
    def recipe(self, row: int) -> Recipe:
        """How a row's object is made."""

    def recipes(self, rows: Sequence[int]) -> dict[int, Recipe]:
        """How the objects of some rows are made, by row: one job's, which many works find out together."""
        return {row: self.recipe(row) for row in rows}

    def pictures(self, row: int) -> int:
        """How many source frames a row's object is made of, one that comes twice counted twice."""
        return len(self.recipe(row).frames)

    @abstractmethod
    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""

    def intermediates(self, row: int) -> Iterable[IntermediateObject]:
        """Intermediates that a row may be made from instead of its source."""
        return ()
