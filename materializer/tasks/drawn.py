"""A generation whose order is known, or is being drawn, before it is planned.

What it has in common with a planned one is all that drawing needs (`Drawable`); it has no objects yet.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.records import SubstitutionRow
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.plan import GenerationPlan

__all__ = ["Drawable", "DrawnGeneration", "OrderGroup"]

SomeTask = TypeVar("SomeTask")


class OrderGroup(Protocol[SomeTask]):
    """What a task needs of the group that draws its order; `Group` is one."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while orders change."""

    def settle(self, task: SomeTask, epoch: int, positions: int) -> None:
        """Draw an epoch's order at least so far."""

    def leave(self, task: SomeTask) -> None:
        """Draw no more for a task."""

    def rest(self, task: SomeTask) -> None:
        """Record what is drawn of a task, and draw on from what it has planned then; the lock is held."""

    def reached(self, task: SomeTask, epoch: int, position: int) -> None:
        """Note that a task's reader has had what is before a place."""

    def epoch(self, asking: SomeTask) -> int:
        """The furthest epoch that a task is in besides the one that asks, counted from the group's first."""

    def twins(self, task: SomeTask, number: int) -> list[tuple[GenerationPlan, NDArray[np.int64]]]:
        """Plans of a generation's epochs that tasks of the same definition have, and their rows' objects."""

    def newest_drawn(self, group_generation: int) -> int | None:
        """The largest ``item_id`` that a task whose dataset grows has drawn of a generation; None if none has."""

    def matching_generations(
        self, task: SomeTask, number: int, *, joined: bool = False
    ) -> Iterator[tuple[SomeTask, int]]:
        """The generations of other tasks that belong to the same epochs of the group; see `Group`."""


class Drawable(Protocol):
    """A generation of which an order can be drawn."""

    @property
    def order(self) -> Order:
        """Where its videos stand."""

    @property
    def policies(self) -> dict[int, list[SubstitutionRow]]:
        """Planned index of a video → uses of policies that are recorded once its position is settled."""

    @property
    def number(self) -> int:
        """The generation's number."""

    @property
    def first_epoch(self) -> int:
        """Its first epoch."""

    @property
    def object_ids(self) -> NDArray[np.int64] | None:
        """(n,) of each row's object; None before it is planned."""

    def settled(self, epoch: int) -> int:
        """How many positions of an epoch never change again."""

    def planned_index(self, epoch: int, position: int) -> int:
        """The planned index of the video at a position."""

    def draw(self, epoch: int, position: int, video_id: int) -> tuple[int, int]:
        """Let a video stand at a position that is not settled; returns the positions that changed."""


@dataclass(frozen=True, slots=True)
class DrawnGeneration:
    """An order, and what else a batch of the generation is planned from, besides its videos."""

    number: int
    epochs: range
    order: Order
    grid: int
    joined: int
    group_generation: int
    known: list[SubstitutionRow] = field(default_factory=list)
    """What stood in by record, oldest first."""

    @property
    def first_epoch(self) -> int:
        """First epoch of the generation."""
        return self.epochs.start

    @property
    def object_ids(self) -> None:
        """It has none yet."""
        return None

    @property
    def policies(self) -> dict[int, list[SubstitutionRow]]:
        """None: positions that are not settled are not planned yet."""
        return {}

    def ids(self, epoch: int, first: int = 0) -> NDArray[np.int64]:
        """The videos of an epoch as they stand, from a position on."""
        start = (epoch - self.epochs.start) * self.order.positions
        return np.asarray(self.order.ids[self.order.planned_indexes(start + first, start + self.order.positions)])

    def settled(self, epoch: int) -> int:
        """How many positions of an epoch never change again."""
        return int(self.order.settled[epoch - self.epochs.start])

    def planned_index(self, epoch: int, position: int) -> int:
        """The planned index of the video at a position."""
        return self.order.planned_index(epoch - self.epochs.start, position)

    def draw(self, epoch: int, position: int, video_id: int) -> tuple[int, int]:
        """Let a video stand at a position that is not settled; returns the positions that changed."""
        return self.order.place(epoch - self.epochs.start, position, video_id)
