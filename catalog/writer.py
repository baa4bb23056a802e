"""The one thread that writes: small changes gather, large ones wait their turn, each is committed.

Readers and workers drop small changes and go on; they are committed together after a short linger, or at once when
somebody flushes. The trade-off: a kill loses what was not flushed yet, ``LINGER_S`` of it, or up to ``BUSY_S`` where
commits take long, and recovery finds the objects again in the store.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from viewcache import errors
from viewcache.catalog.engine import Engine, Session
from viewcache.catalog.journal import Journal, Recording
from viewcache.catalog.pending import Pending
from viewcache.failpoints import failpoint

__all__ = ["BUSY_S", "LINGER_S", "Writer", "linger_after"]

LINGER_S = 0.05
"""How long a small change waits for company, seconds."""
BUSY_S = 0.5
"""How long it waits at most where commits take long, seconds."""
_REST = 4
"""It waits so many times as long as the last commit took."""
STATISTICS_S = 1.0
"""How long it waits where only places of readers, times of reads and measurements changed: each read changes them."""
_EAGER_ROWS = 1024
"""So many waiting rows are written without lingering."""
_TICK_S = 0.5
"""How often an idle writer looks whether another process asked for a snapshot, seconds."""
_RETRY_S = (1.0, 30.0)
"""First and longest pause after a write that failed, seconds."""
_ATTEMPTS = 3
"""Tries of one transaction when the database is lost or does not answer, or space was freed in between."""

T = TypeVar("T")
_log = logging.getLogger("viewcache.catalog")


def linger_after(commit_s: float) -> float:
    """How long a small change waits for company when the last commit took so many seconds.

    A commit of one row takes as much work as one of a hundred, so commits shall take a fifth of the time and not all.
    """
    return min(max(LINGER_S, _REST * commit_s), BUSY_S)


@dataclass(slots=True)
class _Change(Generic[T]):
    """A change that somebody waits for."""

    work: Callable[[Session], T] | None
    """In a transaction of its own; None for ``between``."""
    between: Callable[[], T] | None
    """Outside any transaction, when nothing is being written."""
    before: Pending
    """Small changes that came earlier; they are committed first."""
    done: "Future[T]" = field(default_factory=Future)


class Writer:
    """Owns every transaction that writes; started by the catalog, ended by ``close``."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal | None,
        name: str,
        make_room: Callable[[], bool],
        idle: Callable[[], None],
    ):
        """Start the thread.

        Args:
            engine: to write to.
            journal: where what is decided is written too, before it is committed.
            name: of this writer among those of the database.
            make_room: frees space on a full disk; False when there is nothing left to free.
            idle: called on the writer's thread at least every half second, between transactions.
        """
        self._engine, self._journal, self._name = engine, journal, name
        self._make_room, self._idle = make_room, idle
        self._awake = threading.Condition()
        self._pending, self._due_at, self._begun_at = Pending(), 0.0, 0.0
        self._linger_s = LINGER_S
        self._failed = Pending()
        """What could not be written and comes before everything else; the thread's own."""
        self._unsure = False
        """Whether the last numbered transaction may have been committed, as nobody could be asked since."""
        self._jobs: deque[_Change[object]] = deque()
        self._closing = False
        self._failure: Exception | None = None
        self._retry_at, self._pause_s = 0.0, _RETRY_S[0]
        rows = engine.query("read_ticket", {"name": self._name})["ticket"].to_pylist()
        self._ticket = int(rows[0] or 0)
        self._thread = threading.Thread(target=self._run, name="viewcache-catalog-writer", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> Exception | None:
        """Why the last write failed; None when it did not."""
        return self._failure

    def backlog(self) -> int:
        """How many small changes wait to be committed."""
        return self._pending.rows

    def waiting(self) -> int:
        """How many callers wait for their turn; the one whose change is being written is not among them."""
        return len(self._jobs)

    def note(self, change: Callable[[Pending], None]) -> None:
        """Add a small change; returns at once.

        Raises:
            Closed: the writer was closed.
        """
        with self._awake:
            self._check_open()
            idle = not self._pending
            change(self._pending)
            now = time.monotonic()
            due_at = now + (STATISTICS_S if self._pending.only_statistics else self._linger_s)
            sooner = idle or due_at < self._due_at
            if idle:
                self._begun_at = now
            if sooner:
                self._due_at = due_at
            if sooner or self._pending.rows >= _EAGER_ROWS:
                self._awake.notify()

    def call(self, work: Callable[[Session], T], timeout_s: float | None = None, *, after_statistics: bool = True) -> T:
        """Run ``work`` in a transaction of its own, after every earlier change, and wait until it is committed.

        Args:
            work: is run again when its transaction was lost, and only then.
            timeout_s: seconds; None waits as long as it takes.
            after_statistics: False lets places of readers, times of reads and measurements wait for their own time:
                to commit these takes as long as most changes of a plan, and none of those asks for them.

        Returns:
            What ``work`` returned.

        Raises:
            Closed: the writer was closed.
            Full: the disk is full.
            Timeout: it was not committed in time; it may be yet.
        """
        return self._submit(work, None, timeout_s, after_statistics)

    def between(self, work: Callable[[], T], timeout_s: float | None = None) -> T:
        """Run ``work`` on the writer's thread outside any transaction; otherwise as ``call``."""
        return self._submit(None, work, timeout_s, True)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every earlier change is committed; arguments and errors as for ``call``."""
        self.between(_nothing, timeout_s)

    def _submit(
        self,
        work: Callable[[Session], T] | None,
        between: Callable[[], T] | None,
        timeout_s: float | None,
        after_statistics: bool,
    ) -> T:
        with self._awake:
            self._check_open()
            if after_statistics:
                before, self._pending = self._pending, Pending()
            else:
                before, self._due_at = self._pending.without_statistics(), self._begun_at + STATISTICS_S
            job = _Change(work, between, before)
            self._jobs.append(job)  # type: ignore[arg-type]
            self._awake.notify()
        try:
            return job.done.result(timeout_s)
        except FutureTimeout as error:
            if job.done.done():
                raise
            raise errors.Timeout(f"the catalog did not commit within {timeout_s} s; it may be yet") from error

    def close(self) -> None:
        """Commit what waits and end the thread."""
        with self._awake:
            self._closing = True
            self._awake.notify()
        self._thread.join()

    def _check_open(self) -> None:
        if self._closing:
            raise errors.Closed("this catalog was closed; open the cache again")

    def _run(self) -> None:
        while True:
            with self._awake:
                self._awake.wait_for(self._is_due, timeout=self._wait_s())
                jobs, self._jobs = self._jobs, deque()
                last = self._closing
                due = last or self._is_pending_due()
                pending, self._pending = (self._pending, Pending()) if due else (Pending(), self._pending)
            for job in jobs:
                self._do(job)
            if due and (pending or self._failed):
                self._write(pending)
            if last:
                return
            self._tick()

    def _is_due(self) -> bool:
        return bool(self._jobs) or self._closing or self._is_pending_due()

    def _is_pending_due(self) -> bool:
        if not (self._pending or self._failed) or time.monotonic() < self._retry_at:
            return False
        return bool(self._failed) or self._pending.rows >= _EAGER_ROWS or time.monotonic() >= self._due_at

    def _wait_s(self) -> float:
        if not (self._pending or self._failed):
            return _TICK_S
        due = max(self._due_at, self._retry_at)
        return min(_TICK_S, max(due - time.monotonic(), 0.0))

    def _do(self, job: "_Change[object]") -> None:
        try:
            # Also what failed before anybody waited for it: who flushes must not be told that all is well.
            if (job.before or self._failed) and not self._write(job.before):
                assert self._failure is not None
                raise self._failure
            if job.work is not None:
                job.done.set_result(self._commit(job.work, numbered=True))
            elif job.between is not None:
                job.done.set_result(job.between())
        except Exception as error:
            job.done.set_exception(error)

    def _write(self, pending: Pending) -> bool:
        """Commit small changes after those that failed; when that fails, all of them wait for the next try."""
        begun = time.monotonic()
        try:
            if self._unsure and self._is_there():
                self._failed = Pending()
            pending, self._failed = self._after_failed(pending), Pending()
            self._commit(pending.write, numbered=pending.adds)
        except Exception as error:
            self._failed = self._after_failed(pending)
            self._failure = error
            self._try_later()
            unforeseen = errors.is_unforeseen(error)
            text = "catalog write failed, will be tried again: %s"
            _log.error(text, error, exc_info=unforeseen, extra={"action": "catalog_write"})
            return False
        self._failure, self._pause_s = None, _RETRY_S[0]
        self._linger_s = linger_after(time.monotonic() - begun)
        return True

    def _after_failed(self, pending: Pending) -> Pending:
        """Small changes, behind those that failed."""
        if not self._failed:
            return pending
        self._failed.merge(pending)
        return self._failed

    def _try_later(self) -> None:
        self._retry_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _RETRY_S[1])

    def _commit(self, work: Callable[[Session], T], *, numbered: bool) -> T:
        """Run ``work`` in a transaction; ``numbered`` when doing it twice would differ from doing it once."""
        for _ in range(_ATTEMPTS):
            self._ticket += numbered
            whole = self._journal.size if self._journal else 0
            try:
                with self._engine.transaction() as session:
                    recording = Recording(session)
                    result = work(recording)
                    ticket = {"name": self._name, "ticket": self._ticket}
                    # What only looked needs no number: then nothing is written, and a full disk is not in its way.
                    # An UPDATE by key takes half the time of an upsert.
                    if numbered and recording.changes and not session.count("move_ticket", ticket):
                        session.run("write_ticket", ticket)
                    if recording.steps and self._journal:
                        # Before the commit: what the catalog has and the journal has not could be lost with it.
                        self._journal.append(self._name, self._ticket, recording.steps)
                    failpoint("catalog.before-commit")
            except (errors.Full, errors.CatalogDamaged, errors.CatalogBusy) as error:
                failure = error
                is_final = isinstance(error, errors.Full) and not self._make_room()
                if self._engine.lost:
                    self._unsure = numbered
                    if self._is_there():
                        return result
                self._take_back(whole)
                if is_final:
                    break
            except BaseException:
                self._take_back(whole)
                raise
            else:
                failpoint("catalog.after-commit")
                return result
        raise failure

    def _take_back(self, whole: int) -> None:
        """Nobody was given what a transaction decided that was not committed."""
        if self._journal:
            self._journal.take_back(whole)

    def _reopen(self) -> None:
        _log.warning("catalog lost its database handle, opening it again", extra={"action": "catalog_reopen"})
        self._engine.reopen()

    def _is_there(self) -> bool:
        """Open a lost database again, and look up what is unsure: a commit that failed may have been written."""
        if self._engine.lost:
            self._reopen()
        is_there = self._unsure and self._was_committed()
        self._unsure = False
        return is_there

    def _was_committed(self) -> bool:
        """Whether the last numbered transaction is there."""
        rows = self._engine.query("read_ticket", {"name": self._name})["ticket"].to_pylist()
        return bool(rows[0] == self._ticket)

    def _tick(self) -> None:
        try:
            if self._engine.lost and time.monotonic() >= self._retry_at:
                self._try_later()  # nothing may be waiting to be written, but readers wait for the database
                self._reopen()
            self._idle()
        except Exception as error:
            unforeseen = errors.is_unforeseen(error)
            _log.error("catalog upkeep failed: %s", error, exc_info=unforeseen, extra={"action": "catalog_upkeep"})


def _nothing() -> None:
    """The work of a flush."""
