"""What the dispatcher works on: rows, each a clip or a frame to be made, whoever asked for them.

The states live in memory and are the dispatcher's own; what the catalog says of an object is derived from its copies.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from viewcache.materializer.planning.recipe import Recipe, Source
from viewcache.materializer.storage.ledger import Copy
from viewcache.materializer.workers.job import Made

if TYPE_CHECKING:
    from viewcache.materializer.planning.recipe import BaseObject

__all__ = ["READ_TRIES", "SECONDS_PER_FRAME", "RowState", "Work", "edges_of"]

SECONDS_PER_FRAME = 0.1
"""A generous guess for decoding, converting and storing one frame, used only to tell a hung worker from a slow one."""

READ_TRIES = 5
"""How often objects are read again when they turn out damaged; each time they have been made anew."""


class RowState(IntEnum):
    """Of one row."""

    PLANNED = 0
    MAKING = 1
    READY = 2
    FAILED = 3
    LEFT_OUT = 4
    """Behind the last batch of its epoch, as the order stands."""


def edges_of(recipe: Recipe) -> int:
    """Edges of the view graph that making an object takes: each frame decoded, and each operation on it."""
    return len(recipe.frames) * (1 + len(recipe.program.instructions))


class Work(ABC):
    """Rows to be made. Not thread-safe: the engine's lock guards it."""

    task_id: int
    born: int = -1
    """The group's generation that it belongs to, whose clips are decoded together; negative = none."""
    at_seq: int = 0
    """What the task's reader needs next, counted in iterations over all epochs."""
    from_rank: int = 0
    """So many of the rows, in the order of need, have been read."""

    @abstractmethod
    def bound(self, row: int) -> int:
        """Most bytes that a row's object takes on disk."""

    @abstractmethod
    def key(self, row: int) -> str:
        """Content key of a row's object."""

    @abstractmethod
    def video(self, row: int) -> str:
        """Content key of the video that a row is made of."""

    @abstractmethod
    def state(self, row: int) -> RowState:
        """How far a row is."""

    @abstractmethod
    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row is."""

    @abstractmethod
    def set_state_of(self, key: str, state: RowState) -> None:
        """The same for all rows of an object, unless it is being made."""

    @abstractmethod
    def source(self, row: int) -> Source:
        """The video that a row is made of."""

    @abstractmethod
    def recipe(self, row: int) -> Recipe:
        """How a row's object is made."""

    @abstractmethod
    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""

    def held(self, row: int) -> int:
        """Most raw bytes that a worker holds while it makes a row."""
        return self.bound(row)

    def free_bytes(self, row: int) -> int:
        """Room that making a row ahead leaves to what is needed sooner."""
        return 0

    def is_soon(self, row: int) -> bool:
        """Whether a row is needed so soon that what is needed later may be evicted for it."""
        return True

    def is_next(self, row: int) -> bool:
        """Whether a row is of what its task needs next of the row's video."""
        return False

    def bases(self, row: int) -> "Sequence[BaseObject]":
        """Kept pictures that a row may be made from instead of its source."""
        return ()

    def recognize(self, has: Callable[[str], bool]) -> None:  # noqa: B027  -- a hook: single frames are always asked
        """Mark the rows whose object is there, given whether an object is."""

    def counts(self) -> dict[str, int]:
        """How many rows are in each state."""
        return {}

    def next_planned(self) -> int | None:
        """The first row, from where the reader is, that nobody has made or is making; None to make nothing ahead."""
        return None

    def unmade(self) -> list[tuple[int, int]]:
        """Videos of which something is worth making ahead: the soonest row of each, and how many edges are left."""
        row = self.next_planned()
        return [] if row is None else [(row, edges_of(self.recipe(row)))]

    def coming(self, count: int) -> list[tuple[float, str]]:
        """(seconds until it is needed, key) of the next ``count`` objects from where the reader is, soonest first."""
        return []

    def planned_of(self, video: str) -> list[int]:
        """Rows of one video that are worth making while it is being decoded; soonest first."""
        return []

    def next_need_s(self, key: str) -> float | None:
        """Seconds until an object is needed next; None if it is not."""
        return None

    def need_s(self, row: int) -> float:
        """Seconds until a row is needed."""
        return 0.0

    def last_need_s(self) -> float:
        """Seconds until the last row is needed."""
        return 0.0

    def at(self, seq: int, pace_s: float) -> None:  # noqa: B027  -- a hook: single frames have no deadline
        """Note that the task's reader needs ``seq`` next, and its pace in seconds an iteration."""
