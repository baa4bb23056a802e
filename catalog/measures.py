"""Verbs of the door about what was measured and what happened: costs of work, core seconds and joules, events.

A part of ``door.Catalog``, which has the others; it stands here because all of these only ever add up.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from viewcache.catalog.engine import Engine, Session
from viewcache.catalog.pending import Pending
from viewcache.catalog.records import EventRow, IoSampleRow, UsageRow
from viewcache.catalog.rows import from_table, to_table

__all__ = ["Measures"]

T = TypeVar("T")


class Measures(ABC):
    """See ``door.Catalog``."""

    def add_io_samples(self, rows: Sequence[IoSampleRow]) -> None:
        """Add measured work (small)."""
        self._note(lambda pending: pending.add_io_samples(rows))

    def load_io_samples(self) -> list[IoSampleRow]:
        """Measured work so far, in no order."""
        return from_table(IoSampleRow, self._reading().query("read_io_samples"))

    def record_reads(self, rows: Sequence[IoSampleRow], name: str, value: str) -> None:
        """Record what devices were measured to give, instead of what was known of that, and a setting with it.

        Args:
            rows: of the op ``read``; at most one of each size and tier.
            name: of the setting.
            value: its value.
        """

        def write(session: Session) -> None:
            session.run("delete_reads")
            if rows:
                session.run("add_io_samples", given=to_table(rows))
            session.run("write_setting", {"name": name, "value": value})

        self._call(write)

    def add_usage(self, rows: Sequence[UsageRow]) -> None:
        """Add what work has cost to what it had cost before (small)."""
        self._note(lambda pending: pending.add_usage(rows))

    def add_events(self, rows: Sequence[EventRow]) -> None:
        """Add to the log of what happened (small)."""
        self._note(lambda pending: pending.add_events(rows))

    @abstractmethod
    def _reading(self) -> Engine:
        """See ``door.Catalog``."""

    @abstractmethod
    def _call(self, work: Callable[[Session], T]) -> T:
        """See ``door.Catalog``."""

    @abstractmethod
    def _note(self, change: Callable[[Pending], None]) -> None:
        """See ``door.Catalog``."""
