"""Who waits for what, and what is worth making ahead: the list that readers write and the dispatcher works off.

Demand comes before look-ahead (SAND §5.4). The oldest reader is served first and what it waits for is never evicted, so
two readers that together want more than the budget holds take turns instead of evicting each other's clips for ever.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from viewcache.errors import Broken, Closed, Timeout, ViewcacheError
from viewcache.materializer.scheduling.work import RowState, Work
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.telemetry.stalls import Arrival, Times, explain

__all__ = ["Board", "Cancelled", "Fetched"]

CANCEL_S = 0.2
"""How soon a waiting reader notices that it was cancelled; everything else wakes it at once."""


class Cancelled(Protocol):
    """Says whether a reader has lost interest: a `threading.Event`, or anything else that knows."""

    def is_set(self) -> bool:
        """Whether it has."""
        ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a reader waited for."""

    copies: list[Copy]
    """Held for the reader until it gives them back."""
    missed: int
    """How many were not there when they were asked for."""
    waited_s: float
    stalls: Mapping[str, float] = field(default_factory=dict)
    """The same by cause, see `explain`."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A reader and the rows that it waits for."""

    work: Work
    rows: list[int]
    error: ViewcacheError | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    tight: list[Times] = field(default_factory=list)
    """When the dispatcher looked for room for readers."""


class Board:
    """Demands and look-ahead. ``changed`` is its lock; methods named ``…_locked`` want it held."""

    def __init__(self, ledger: Ledger) -> None:
        """Start with nobody waiting."""
        self.changed = threading.Condition(threading.RLock())
        self._ledger = ledger
        self._waiting: list[_Waiting] = []
        self.ahead: list[Work] = []
        """What is worth making before anybody waits."""
        self.gone: set[int] = set()
        """Tasks that left, until they are announced again."""
        self.given_up: set[str] = set()
        """Keys that a reader wanted who went away without them, until they are asked for again."""
        self._places: dict[int, tuple[int, float]] = {}
        """Task → what its reader needs next, and its seconds an iteration."""
        self._tight_since: float | None = None
        """Since when the dispatcher has been looking for room for a demand."""
        self._fatal: BaseException | None = None
        self._closing = False

    # The readers' side ---------------------------------------------------------------------------------------------

    def wait_for(
        self,
        work: Work,
        rows: list[int],
        *,
        wake: Callable[[], None],
        timeout_s: float | None,
        cancelled: Cancelled | None,
    ) -> Fetched:
        """Wait until all rows' objects are in the store, and hold them; see `Engine.fetch`."""
        begun = time.monotonic()
        deadline = None if timeout_s is None else begun + timeout_s
        cancelled = cancelled or threading.Event()
        with self.changed:
            self._check()
            waiting = _Waiting(work, rows)
            missed = len(self._missing(waiting))
            copies = self._held(waiting)
            if copies is not None:
                return Fetched(copies, 0, 0.0)
            self._waiting.append(waiting)
            self.given_up.difference_update(map(work.key, rows))
            wake()
            try:
                while copies is None:
                    left = CANCEL_S if deadline is None else min(CANCEL_S, deadline - time.monotonic())
                    if left <= 0:
                        raise Timeout(f"{len(self._missing(waiting))} clips were not made within {timeout_s} s")
                    self.changed.wait(left)
                    self._check()
                    if waiting.error is not None:
                        raise waiting.error
                    if cancelled.is_set():
                        raise Closed("the reader was cancelled")
                    copies = self._held(waiting)
                return self._fetched(waiting, copies, missed, begun)
            except ViewcacheError:
                self.given_up.update(work.key(row) for row in self._missing(waiting))
                raise
            finally:
                self._waiting.remove(waiting)
                if not self._waiting:
                    self._tight_since = None

    def _fetched(self, waiting: _Waiting, copies: list[Copy], missed: int, begun: float) -> Fetched:
        now = time.monotonic()
        tight = [*waiting.tight, *([] if self._tight_since is None else [(self._tight_since, now)])]
        return Fetched(copies, missed, now - begun, explain(begun, now, waiting.arrivals, tight))

    def _held(self, waiting: _Waiting) -> list[Copy] | None:
        return self._ledger.hold([waiting.work.key(row) for row in waiting.rows])

    def _missing(self, waiting: _Waiting) -> list[int]:
        return [row for row in waiting.rows if not self._ledger.has(waiting.work.key(row))]

    def _check(self) -> None:
        if self._closing:
            raise Closed("the cache was closed while a reader waited; open it again")
        if self._fatal is not None:
            raise Broken(f"the dispatcher stopped: {type(self._fatal).__name__}: {self._fatal}") from self._fatal

    # The dispatcher's side -----------------------------------------------------------------------------------------

    def next_demand(self) -> tuple[Work, list[int]] | None:
        """The oldest demand that nobody works on: rows of one video."""
        with self.changed:
            for waiting in self._waiting:
                work = waiting.work
                rows = [row for row in self._missing(waiting) if work.state(row) != RowState.MAKING]
                if rows and waiting.error is None:
                    video = work.video(rows[0])
                    return work, [row for row in rows if work.video(row) == video]
            return None

    def announce(self, works: Sequence[Work]) -> None:
        """Say what is worth making ahead; the lock is held."""
        self.ahead = list(works)
        self.gone.difference_update(work.task_id for work in works)
        first: dict[int, int] = {}
        for work in works:
            first[work.task_id] = min(work.at_seq, first.get(work.task_id, work.at_seq))
        for work in works:
            work.at(*self._places.get(work.task_id, (first[work.task_id], 0.0)))

    def withdraw(self, task_id: int) -> None:
        """Nothing of a task is worth making ahead any more; the lock is held."""
        self.ahead = [work for work in self.ahead if work.task_id != task_id]
        self.gone.add(task_id)

    def reached(self, work: Work, rank: int, seq: int, pace_s: float) -> None:
        """Note where a task's reader is, see `Engine.progressed`; the lock is held."""
        work.from_rank = rank
        self._places[work.task_id] = seq, pace_s
        for each in self.ahead:
            if each.task_id == work.task_id:
                each.at(seq, pace_s)

    def next_ahead(self, only_soon: bool = False) -> tuple[Work, list[int]] | None:
        """The row that is due soonest of all that are not made, alone; ``only_soon``: of those that may evict."""
        best: tuple[tuple[float, bool], Work, int] | None = None
        with self.changed:
            for work in self.ahead:
                row = work.next_planned()
                while row is not None and self.is_made(work, row):
                    row = work.next_planned()
                if row is None or (only_soon and not work.is_soon(row)):
                    continue
                rank = work.need_s(row), not work.is_soon(row)
                if best is None or rank < best[0]:
                    best = rank, work, row
        return None if best is None else (best[1], [best[2]])

    def coming(self, count: int) -> list[str]:
        """Keys of the next objects of all look-ahead, the soonest first; the lock is held."""
        needs = sorted((each for work in self.ahead for each in work.coming(count)), key=lambda each: each[0])
        return list(dict.fromkeys(key for _, key in needs))

    def is_made(self, work: Work, row: int) -> bool:
        """Whether a row's object is there, made for somebody else; if so that is noted. The lock is held."""
        made = self._ledger.has(work.key(row))
        if made:
            work.set_state(row, RowState.READY)
        return made

    def wanted_keys(self) -> set[str]:
        """Keys of all that readers wait for."""
        with self.changed:
            return {waiting.work.key(row) for waiting in self._waiting for row in self._missing(waiting)}

    def protected_keys(self) -> set[str]:
        """Keys that must not be evicted: all that the oldest reader wants."""
        with self.changed:
            return {waiting.work.key(row) for waiting in self._waiting[:1] for row in waiting.rows}

    def is_oldest(self, work: Work, rows: list[int]) -> bool:
        """Whether it is the oldest reader that waits for these rows."""
        with self.changed:
            return any(waiting.work is work and not set(rows) - set(waiting.rows) for waiting in self._waiting[:1])

    def is_waited_on(self) -> bool:
        """Whether any reader waits."""
        return bool(self._waiting)

    def waiting(self) -> int:
        """How many readers wait."""
        return len(self._waiting)

    def arrived(self, key: str, arrival: Arrival) -> None:
        """An object is about to be there: let who waits for it know how that came about."""
        with self.changed:
            for waiting in self._waiting:
                if any(waiting.work.key(row) == key for row in waiting.rows):
                    waiting.arrivals.append(arrival)

    def tight(self, *, demanded: bool) -> None:
        """There is no room for a job; what readers wait for waits for that, if it is ``demanded``."""
        if demanded and self._tight_since is None:
            self._tight_since = time.monotonic()

    def eased(self) -> None:
        """There was room for a job."""
        if self._tight_since is None:
            return
        with self.changed:
            for waiting in self._waiting:
                waiting.tight.append((self._tight_since, time.monotonic()))
            self._tight_since = None

    def works(self) -> list[Work]:
        """All work that readers or look-ahead know of."""
        with self.changed:
            return list({id(each): each for each in (*self.ahead, *(w.work for w in self._waiting))}.values())

    def mark(self, work: Work, rows: list[int], state: RowState) -> None:
        """Note how far rows are, and wake who waits."""
        with self.changed:
            for row in rows:
                work.set_state(row, state)
            self.changed.notify_all()

    def unmake(self, copy: Copy, works: list[Work]) -> None:
        """An object is not in the store any more: whoever needs it has it made again."""
        with self.changed:
            for work in works:
                work.set_state_of(copy.key, RowState.PLANNED)

    def fail(self, work: Work, rows: list[int], error: ViewcacheError) -> None:
        """Give an error to the readers that wait for any of the rows."""
        failed = set(rows)
        with self.changed:
            for waiting in self._waiting:
                if waiting.work is work and failed.intersection(waiting.rows):
                    waiting.error = error
            self.changed.notify_all()

    def counts(self, works: Sequence[Work]) -> dict[str, int]:
        """How many rows are in each state."""
        with self.changed:
            total: Counter[str] = Counter()
            for work in works:
                total.update(work.counts())
            return dict(total)

    def stop(self, why: BaseException | None = None) -> None:
        """Send all readers away: the cache closes, or the dispatcher failed with ``why``."""
        with self.changed:
            self._fatal = self._fatal or why
            self._closing = self._closing or why is None
            self.changed.notify_all()
