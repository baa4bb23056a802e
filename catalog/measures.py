"""Verbs of the door about what was measured and what happened: costs of work, core seconds and joules, events.

A part of ``door.Catalog``, which has the others; it stands here because all of these only ever add up. What work costs
is asked for with each decision, so where no other process writes its sums are in memory too, and no statement asks for
them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from viewcache.catalog.engine import Engine, Session
from viewcache.catalog.pending import Pending, add_up
from viewcache.catalog.records import EventRow, IoSampleRow, UsageRow
from viewcache.catalog.rows import from_table, to_table

__all__ = ["Measures"]

T = TypeVar("T")

_Kind = tuple[str, int, str, str]


class Measures(ABC):
    """See ``door.Catalog``."""

    _work: dict[_Kind, IoSampleRow] | None = None
    """Measured work by its kind, committed or not; None where other processes may add to it."""

    def add_io_samples(self, rows: Sequence[IoSampleRow]) -> None:
        """Add measured work (small)."""

        def add(pending: Pending) -> None:  # one thread at a time comes here
            pending.add_io_samples(rows)
            if self._work is not None:
                add_up(self._work, rows)

        self._note(add)

    def load_io_samples(self) -> list[IoSampleRow]:
        """Measured work so far, in no order; where this process alone writes, also what waits to be committed."""
        engine = self._reading()
        return _committed_work(engine) if self._work is None else list(self._work.values())

    def _write_alone(self) -> None:
        """No other process writes from now on."""
        self._work = {row.key: row for row in _committed_work(self._reading())}

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

        def measured(_: Pending) -> None:
            if self._work is not None:
                for key in [key for key, row in self._work.items() if row.op == "read"]:
                    del self._work[key]
                add_up(self._work, rows)

        self._note(measured)

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


def _committed_work(engine: Engine) -> list[IoSampleRow]:
    return from_table(IoSampleRow, engine.query("read_io_samples"))
