"""Verbs of the door about orders: which item stands where in an epoch, and what stands in for bad ones.

A part of ``door.Catalog``, which has the others. An order is a row for each place, or one row for all where it is a
function of what that row has; readers of draws need not know which.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from viewcache.catalog import tasks
from viewcache.catalog.engine import Session
from viewcache.catalog.records import SubstitutionRow

__all__ = ["Draws"]

T = TypeVar("T")


class Draws(ABC):
    """See ``door.Catalog``."""

    def record_draws(self, draws: pa.Table, settled: pa.Table | None = None) -> None:
        """Record an order, ``schemas.DRAW``; what is recorded already may be given again.

        Args:
            draws: the order.
            settled: ``schemas.SETTLED`` of those epochs that are only planned behind a position; None = all is certain.

        Raises:
            Misuse: a position is settled with another video, or its epoch is recorded as a whole by `record_orders`;
                nothing of ``draws`` is recorded then.
        """
        self._plan(lambda session: tasks.record_draws(session, draws, settled))

    def record_orders(self, orders: pa.Table, runs: pa.Table) -> None:
        """Record orders by what they are computed from; what is recorded already may be given again.

        Args:
            orders: ``schemas.ORDER``, certain to their ends.
            runs: ``schemas.RUN``, the items of each version that ``orders`` name.

        Raises:
            Misuse: an epoch has another order on record, or a row for each place; nothing is recorded then.
        """
        self._plan(lambda session: tasks.record_orders(session, orders, runs))

    def settle_draws(self, draws: pa.Table, uses: pa.Table, settled: pa.Table) -> None:
        """Draw planned epochs further, in one transaction: what is settled never changes.

        Args:
            draws: ``schemas.DRAW`` of all positions whose video changes.
            uses: ``schemas.MOVE`` of their clips.
            settled: ``schemas.SETTLED``, how far the epochs are drawn now.

        Raises:
            Misuse: a position is settled with another video; nothing is recorded then.
        """
        self._plan(lambda session: tasks.settle_draws(session, draws, uses, settled))

    def load_draws(self, task_id: int, first_epoch: int, last_epoch: int) -> pa.Table:
        """The order of epochs first…last (inclusive), ``schemas.DRAW`` by (epoch, position), settled or planned."""
        return self._query("read_draws", task_id=task_id, first_epoch=first_epoch, last_epoch=last_epoch)

    def load_draw_rows(self, task_id: int, first_epoch: int, last_epoch: int) -> pa.Table:
        """The same of those orders alone of which each place is a row."""
        return self._query("read_draw_rows", task_id=task_id, first_epoch=first_epoch, last_epoch=last_epoch)

    def load_orders(self, task_id: int, first_epoch: int, last_epoch: int) -> pa.Table:
        """What `record_orders` recorded of epochs first…last (inclusive), ``schemas.ORDER`` by epoch."""
        return self._query("read_orders", task_id=task_id, first_epoch=first_epoch, last_epoch=last_epoch)

    def load_runs(self, version: str) -> pa.Table:
        """The items of a version, ``schemas.RUN`` by place; none where it is not known."""
        return self._query("read_runs", version=version)

    def count_places(self, task_id: int, first_epoch: int, last_epoch: int) -> int:
        """How many places the orders of epochs first…last (inclusive) have, settled or planned."""
        span = {"first_epoch": first_epoch, "last_epoch": last_epoch}
        return int(self._query("count_places", task_id=task_id, **span)["places"][0].as_py())

    def newest_drawn(self, task_id: int, epoch: int) -> int | None:
        """The largest ``item_id`` in the order of an epoch; None where it has none."""
        found: int | None = self._query("newest_drawn", task_id=task_id, epoch=epoch)["video_id"][0].as_py()
        return found

    def is_drawn(self, task_id: int, epoch: int) -> bool:
        """Whether an epoch has an order, settled or planned."""
        return bool(self._query("is_drawn", task_id=task_id, epoch=epoch)["is_drawn"][0].as_py())

    def first_drawn(self, task_id: int) -> pa.Table:
        """(video_id, epoch, label) of each item that a task has drawn: when first, and its label on record."""
        return self._query("first_drawn", task_id=task_id)

    def load_settled(self, task_id: int) -> dict[int, int]:
        """Epoch → positions that are settled, for the epochs that are planned further than that."""
        rows = self._query("read_settled", task_id=task_id)
        return dict(zip(rows["epoch"].to_pylist(), rows["positions"].to_pylist(), strict=True))

    def add_substitutions(self, rows: Sequence[SubstitutionRow]) -> None:
        """Record uses of policies for bad and short videos, before anybody reads what stands in."""
        if rows:
            self._call(lambda session: tasks.add_substitutions(session, rows))

    @abstractmethod
    def _call(self, work: Callable[[Session], T]) -> T:
        """See ``door.Catalog``."""

    @abstractmethod
    def _plan(self, work: Callable[[Session], T]) -> T:
        """See ``door.Catalog``."""

    @abstractmethod
    def _query(self, name: str, /, given: pa.Table | None = None, **parameters: object) -> pa.Table:
        """See ``door.Catalog``."""
