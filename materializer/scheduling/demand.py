"""Who waits for what, and what is worth making ahead: what readers write and the dispatcher works off.

Readers wait here until their objects are there or it turns out that they never will be.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from viewcache.errors import Broken, Closed, Timeout, ViewcacheError
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.scheduling.rules import NextJob, State, missing_rows
from viewcache.materializer.scheduling.work import Demand, ObjectStates, Position, RowState, Work
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.telemetry.stalls import Arrival, explain

__all__ = ["Board", "Fetched"]

CANCEL_S = 0.2
"""How soon a waiting reader notices that it was cancelled; everything else wakes it at once."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a reader waited for."""

    copies: list[Copy]
    """Held for the reader until it gives them back."""
    clips: int
    """Of how many clips they are: of one with audio there are two."""
    missed: int
    """How many clips were not there, or lacked their audio, when they were asked for."""
    waited_s: float
    stalls: Mapping[str, float] = field(default_factory=dict)
    """The same by cause, see `explain`."""
    whole: tuple[Copy, ...] = ()
    """The ledger's own copies, where ``copies`` are parts of these; else none."""
    give_back: Callable[[], None] = lambda: None
    """Lets go of the copies. As a context manager it does so at the end."""

    @property
    def originals(self) -> Sequence[Copy]:
        """The copies as the ledger has them, for who says that one is damaged."""
        return self.whole or self.copies

    def __enter__(self) -> Self:
        """Hold the copies while the block runs."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        self.give_back()


class Board(State[str]):
    """Demands and look-ahead. ``changed`` is its lock."""

    def __init__(self, ledger: Ledger) -> None:
        """Start with nobody waiting."""
        super().__init__(ObjectStates(ledger.has, ledger.is_leaving))
        self.changed = threading.Condition(threading.RLock())
        self._ledger = ledger
        self._positions: dict[int, tuple[Position, ...]] = {}
        """Task → where its readers are."""
        self.tight_since: float | None = None
        """Since when the dispatcher has been looking for room for a demand."""
        self._fatal: BaseException | None = None
        self._closing = False

    # The readers' side ---------------------------------------------------------------------------------------------

    def wait_for(
        self,
        work: Work[str],
        rows: list[int],
        wake: Callable[[], None],
        timeout_s: float | None,
        cancelled: Cancelled | None,
    ) -> Fetched:
        """Wait until all rows' objects are in the store, and hold them; see `Dispatcher.fetch`."""
        begun = time.monotonic()
        deadline = None if timeout_s is None else begun + timeout_s
        cancelled = cancelled or threading.Event()
        with self.changed:
            self._check_open()
            waiting = Demand(work, rows, begun)
            missed = self._missing(waiting)
            copies = self._held(waiting)
            if copies is not None:  # also where nothing more can be made
                return Fetched(copies, _clips(work, rows), 0, 0.0)
            self._check()
            if cancelled.is_set():  # while it was planned
                raise Closed("the reader was cancelled")
            self.demands.append(waiting)
            self.given_up.difference_update(work.keys(rows))
            wake()
            try:
                while copies is None:
                    left = CANCEL_S if deadline is None else min(CANCEL_S, deadline - time.monotonic())
                    if left <= 0:
                        raise Timeout(f"{self._missing(waiting)} clips were not made within {timeout_s} s")
                    self.changed.wait(left)
                    self._check()
                    if waiting.error is not None:
                        raise waiting.error
                    if cancelled.is_set():
                        raise Closed("the reader was cancelled")
                    copies = self._held(waiting)
                return self._fetched(waiting, copies, missed, begun)
            except ViewcacheError:
                self.given_up.update(work.key(row) for row in missing_rows(self, waiting))
                raise
            finally:
                self.demands.remove(waiting)
                if not self.demands:
                    self.tight_since = None

    def _fetched(self, waiting: Demand[str], copies: list[Copy], missed: int, begun: float) -> Fetched:
        now = time.monotonic()
        tight = [*waiting.tight, *([] if self.tight_since is None else [(self.tight_since, now)])]
        clips, why = _clips(waiting.work, waiting.rows), explain(begun, now, waiting.arrivals, tight)
        return Fetched(copies, clips, missed, now - begun, why)

    def _missing(self, waiting: Demand[str]) -> int:
        """Clips of which something that a reader waits for is not there."""
        return _clips(waiting.work, missing_rows(self, waiting))

    def _held(self, waiting: Demand[str]) -> list[Copy] | None:
        if not all(map(self.objects.has, waiting.places())):  # as for each block of a batch but the last
            return None
        return self._ledger.hold(waiting.work.keys(waiting.rows))

    def _check_open(self) -> None:
        if self._closing:
            raise Closed("the cache was closed while a reader waited; open it again")

    def _check(self) -> None:
        self._check_open()
        if self._fatal is not None:
            raise Broken(f"the dispatcher stopped: {type(self._fatal).__name__}: {self._fatal}") from self._fatal

    # The dispatcher's side -----------------------------------------------------------------------------------------

    def announce(self, works: Sequence[Work[str]]) -> None:
        """Say what is worth making ahead; the lock is held."""
        self.ahead = list(works)
        self.gone.difference_update(work.task_id for work in works)
        first: dict[int, tuple[int, int]] = {}
        for work in works:
            first[work.task_id] = min(work.position.place, first.get(work.task_id, work.position.place))
        for work in works:
            work.at(*self._positions.get(work.task_id, (Position(*first[work.task_id]),)))

    def withdraw(self, task_id: int) -> None:
        """Nothing of a task is worth making ahead any more; the lock is held."""
        self.ahead = [work for work in self.ahead if work.task_id != task_id]
        self.gone.add(task_id)

    def reached(self, work: Work[str], positions: Sequence[Position]) -> None:
        """Note where a task's readers are, see `Dispatcher.progressed`; the lock is held."""
        if not positions:  # the last reader has left since
            return
        self._positions[work.task_id] = tuple(positions)
        for each in (work, *(each for each in self.ahead if each.task_id == work.task_id and each is not work)):
            each.at(*positions)

    def is_read(self, task_id: int) -> bool:
        """Whether a reader of a task has moved on, and has not left; the lock is held."""
        return task_id in self._positions and task_id not in self.gone

    def next_needed(self, count: int) -> list[str]:
        """Keys of the next objects of all look-ahead, the soonest first; the lock is held."""
        needs = sorted((each for work in self.ahead for each in work.next_needed(count)), key=lambda each: each[0])
        return list(dict.fromkeys(key for _, key in needs))

    def recurring_work(self) -> list[Work[str]]:
        """Work with objects that are read in each epoch, of generations which have begun first; the lock is held."""
        begun = {work.group_generation for work in self.ahead if work.task_id >= 0 and work.is_begun()}
        found = [work for work in self.ahead if any(True for _ in work.recurring())]
        return sorted(found, key=lambda work: work.group_generation not in begun)

    def is_oldest(self, work: Work[str], rows: list[int]) -> bool:
        """Whether it is the oldest reader that waits for these rows."""
        with self.changed:
            return any(_waits_for(demand, work, rows) for demand in self.demands[:1])

    def is_waited_on(self) -> bool:
        """Whether any reader waits."""
        return bool(self.demands)

    def waiting(self) -> int:
        """How many readers wait."""
        return len(self.demands)

    def arrived(self, key: str, arrival: Arrival) -> None:
        """An object is about to be there: let who waits for it know how that came about."""
        with self.changed:
            for waiting in self.demands:
                if key in waiting.places():
                    waiting.arrivals.append(arrival)

    def tight(self, choice: NextJob[str]) -> Demand[str] | None:
        """There is no room for a job; returns the reader who waits for that, if one does."""
        if not choice.demanded:
            return None
        if self.tight_since is None:
            self.tight_since = time.monotonic()
        with self.changed:
            return next((each for each in self.demands if _waits_for(each, choice.work, choice.rows)), None)

    def eased(self) -> None:
        """There was room for a job."""
        if self.tight_since is None:
            return
        with self.changed:
            for waiting in self.demands:
                waiting.tight.append((self.tight_since, time.monotonic()))
            self.tight_since = None

    def mark(self, work: Work[str], rows: list[int], state: RowState) -> None:
        """Note how far rows are, and wake who waits."""
        with self.changed:
            for row in rows:
                work.set_state(row, state)
            if self.demands:
                self.changed.notify_all()

    def fail(self, work: Work[str], rows: list[int], error: ViewcacheError, *, tried: float = math.inf) -> None:
        """Give an error to the readers that wait for any of the rows.

        Args:
            work: whose rows.
            rows: which.
            error: why they cannot be had.
            tried: when it began what has failed, of `time.monotonic`. Who has asked since is no part of that: the file
                may have been restored before they asked. It is tried again for them.
        """
        failed = set(rows)
        with self.changed:
            for waiting in self.demands:
                if waiting.work is work and waiting.begun <= tried and failed.intersection(waiting.rows):
                    waiting.error = error
            self.changed.notify_all()

    def counts(self, works: Sequence[Work[str]]) -> dict[str, int]:
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


def _waits_for(demand: Demand[str], work: Work[str], rows: Sequence[int]) -> bool:
    return demand.work is work and set(rows) <= set(demand.rows)


def _clips(work: Work[str], rows: Sequence[int]) -> int:
    """Of how many clips rows are."""
    return len(set(map(work.clip_of, rows)))
