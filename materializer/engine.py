"""The dispatcher: who is served first, what is made ahead, what leaves (SAND §5.4, DESIGN §8.7).

One thread owns the workers. Readers put demands in and wait; every demand comes before any look-ahead, and look-ahead goes
by order of need. A job takes one video and makes all of its clips that fit, so that a generation decodes a video once; when
a reader waits for other videos, running jobs are asked to stop at their next group of pictures and are resumed later.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from viewcache.errors import BadVideo, Broken, Closed, Full, Timeout, ViewcacheError, WorkerDied
from viewcache.materializer.work import RowState, Work
from viewcache.materializer.job import Job, Made, Place, Report
from viewcache.materializer.ledger import Copy, Ledger
from viewcache.materializer.pool import Event, WorkerPool
from viewcache.store import LocalTier, Reservation

__all__ = ["Engine", "EngineSettings"]

_log = logging.getLogger("viewcache.engine")

TRIES = 3
"""How often a job is given to a worker when workers die on it."""

IDLE_S = 0.5
"""How long the dispatcher sleeps when nothing happens; everything that matters wakes it."""


CANCEL_S = 0.2
"""How soon a waiting reader notices that it was cancelled; everything else wakes it at once."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the cache's settings say about making things."""

    place: Place
    """Where and how objects are written."""
    job_bytes: int
    """Most raw bytes that one job holds in memory at a time."""
    demand_reserve: int
    """Bytes of the budget that look-ahead leaves free, so that a demand need not wait for an eviction."""


@dataclass(slots=True)
class _Running:
    """A job that a worker has."""

    job: Job
    active: Work
    rows: dict[str, list[int]]
    """Key → rows of the generation that need it."""
    reservations: dict[str, Reservation]
    """Key → room for its object."""


@dataclass(slots=True)
class _Waiting:
    """A reader that waits for rows of a generation."""

    active: Work
    rows: list[int]
    arrival: int
    """Order of arrival; the oldest is served first."""
    error: ViewcacheError | None = None


class Engine:
    """Makes objects when they are needed, or before.

    Thread-safe. ``on_bad_clip`` is asked what to do about a clip whose video cannot give it; it may substitute another
    video (and then return None) or return the error that the reader shall get.
    """

    def __init__(
        self,
        ledger: Ledger,
        tier: LocalTier,
        pool: WorkerPool,
        settings: EngineSettings,
        on_bad_clip: Callable[[Work, list[int], str], ViewcacheError | None],
    ) -> None:
        """Start nothing yet; the first demand or look-ahead starts the thread."""
        self._ledger = ledger
        self._tier = tier
        self._pool = pool
        self._settings = settings
        self._on_bad_clip = on_bad_clip
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._fatal: BaseException | None = None
        self._waiting: list[_Waiting] = []
        self._arrivals = 0
        self._ahead: list[Work] = []
        self._running: dict[int, _Running] = {}
        self._jobs = 0
        self._tries: Counter[str] = Counter()
        self._no_room_until = 0.0
        self.busy: Counter[str] = Counter()
        """Worker seconds by stage since the start."""
        self.frames: Counter[str] = Counter()
        """Packets fed, frames decoded and wanted since the start."""

    # What readers call ---------------------------------------------------------------------------------------------

    @contextmanager
    def fetch(
        self,
        active: Work,
        rows: Iterable[int],
        timeout_s: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> Iterator[list[Copy]]:
        """Wait until the clips are in the store, then hold them there while the block runs.

        Args:
            active: the generation.
            rows: its rows.
            timeout_s: None waits as long as work goes on.
            cancelled: set by another thread, it ends the wait.

        Yields:
            Where the clips lie, in the order of ``rows``.

        Raises:
            BadVideo: a video cannot give a clip and the policy is ``raise``.
            WorkerDied: workers died on a clip too often.
            Full: the disk has no room.
            Timeout: ``timeout_s`` is over.
            Closed: the cache was closed, or ``cancelled`` was set.
        """
        copies = self._await(active, list(rows), timeout_s, cancelled)
        try:
            yield copies
        finally:
            self._ledger.release(copies)

    def look_ahead(self, actives: list[Work]) -> None:
        """Say which generations are worth making before anybody waits, most urgent first."""
        with self._changed:
            self._ahead = actives
            self._no_room_until = 0.0
            self._start()
            self._pool.wake()

    def progressed(self, active: Work, row: int, seq: int, pace_s: float) -> None:
        """Note that a reader has passed the rows before ``row``: it is at ``seq``, at ``pace_s`` seconds an iteration."""
        with self._changed:
            active.from_row = row
            for each in self._ahead:
                if each.task_id == active.task_id:
                    each.at(seq, pace_s)
            self._no_room_until = 0.0
            self._pool.wake()

    def damaged(self, copy: Copy) -> None:
        """Forget a copy whose bytes are not what they were; whoever needs it has it made again."""
        with self._changed:  # no job may make the object again before its old bytes are gone
            if self._ledger.drop(copy, "rebuild"):
                self._tier.delete(copy.stored.physical)
                for active in self._actives():
                    active.set_state_of(copy.key, RowState.PLANNED)

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until all that look-ahead can make is made; True when so, False when the time is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._is_idle():
                self._raise_fatal()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(IDLE_S if left is None else min(left, IDLE_S))
            return True

    def close(self) -> None:
        """Stop the dispatcher and the workers; waiting readers get Closed."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._pool.wake()
        if self._thread is not None:
            self._thread.join()
        self._pool.close()
        for running in list(self._running.values()):
            self._release(running)
        self._tier.sweep()

    def _await(
        self, active: Work, rows: list[int], timeout_s: float | None, cancelled: threading.Event | None
    ) -> list[Copy]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        cancelled = cancelled or threading.Event()
        with self._changed:
            waiting = _Waiting(active, rows, self._arrivals)
            self._arrivals += 1
            copies = self._held(waiting)
            if copies is not None:
                return copies
            self._waiting.append(waiting)
            self._start()
            self._pool.wake()
            try:
                while copies is None:
                    self._raise_fatal()
                    if waiting.error is not None:
                        raise waiting.error
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise Timeout(f"{len(self._missing(waiting))} clips were not made within {timeout_s} s")
                    if cancelled.is_set():
                        raise Closed("the reader was cancelled")
                    self._changed.wait(CANCEL_S if left is None else min(left, CANCEL_S))
                    copies = self._held(waiting)
                return copies
            finally:
                self._waiting.remove(waiting)

    def _held(self, waiting: _Waiting) -> list[Copy] | None:
        keys = [waiting.active.key(row) for row in waiting.rows]
        return self._ledger.hold(keys)

    def _missing(self, waiting: _Waiting) -> list[int]:
        return [row for row in waiting.rows if not self._ledger.has(waiting.active.key(row))]

    def _raise_fatal(self) -> None:
        if self._closing:
            raise Closed("the cache was closed while a reader waited; open it again")
        if self._fatal is not None:
            raise Broken(f"the dispatcher stopped: {type(self._fatal).__name__}: {self._fatal}") from self._fatal

    def _actives(self) -> list[Work]:
        seen = {id(each): each for each in self._ahead}
        seen |= {id(w.active): w.active for w in self._waiting}
        seen |= {id(r.active): r.active for r in self._running.values()}
        return list(seen.values())

    def _is_idle(self) -> bool:
        return not self._running and not self._waiting and (self._thread is None or self._next_ahead() is None)

    # The dispatcher's thread ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._run, name="viewcache-engine", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._dispatch()
                for event in self._pool.poll(IDLE_S):
                    self._handle(event)
        except BaseException as error:  # noqa: BLE001 - whatever it is, readers must not wait for ever
            _log.exception("the dispatcher stopped", extra={"action": "engine_stopped"})
            with self._changed:
                self._fatal = error
                self._changed.notify_all()

    def _dispatch(self) -> None:
        while self._pool.busy < self._pool.size:
            with self._changed:
                chosen = self._next_demand()
                demanded = chosen is not None
                if chosen is None and time.monotonic() >= self._no_room_until:
                    chosen = self._next_ahead()
                if chosen is None:
                    return
                active, rows = chosen
            running = self._prepare(active, rows, demanded)
            if running is None:
                if not demanded:
                    with self._changed:
                        # Only progress, an eviction or a finished job makes room; look again when one has happened.
                        self._no_room_until = time.monotonic() + IDLE_S
                        self._changed.notify_all()
                    return
                if not self._running and not self._ledger.held:
                    self._fail_for_room(active, rows)
                return
            self._pool.submit(running.job)
        with self._changed:
            starving = self._next_demand() is not None
            busy_with_demand = {
                number for number, running in self._running.items() if self._wanted_now().intersection(running.rows)
            }
        if starving:
            self._pool.ask_to_yield(set(self._running) - busy_with_demand)

    def _wanted_now(self) -> set[str]:
        return {w.active.key(row) for w in self._waiting for row in self._missing(w)}

    def _next_demand(self) -> tuple[Work, list[int]] | None:
        """The oldest demand that nobody works on: rows of one video."""
        for waiting in self._waiting:
            active = waiting.active
            rows = [row for row in self._missing(waiting) if active.state(row) != RowState.MAKING]
            if rows:
                video = active.video(rows[0])
                return active, [row for row in rows if active.video(row) == video]
        return None

    def _next_ahead(self) -> tuple[Work, list[int]] | None:
        """The clip that is due soonest of all that are not made: its row, alone."""
        best: tuple[float, int, Work, int] | None = None
        for order, active in enumerate(self._ahead):
            row = active.next_planned()
            while row is not None and self._ledger.has(active.key(row)):
                active.set_state(row, RowState.READY)
                row = active.next_planned()
            if row is not None and (best is None or active.need_s(row) < best[0]):
                best = (active.need_s(row), order, active, row)
        return None if best is None else (best[2], [best[3]])

    def _prepare(self, active: Work, rows: list[int], demanded: bool) -> _Running | None:
        """Choose what the job makes beside ``rows``, make room for it and describe it; None if there is no room."""
        bound = active.bound
        keep_free = 0 if demanded else self._settings.demand_reserve
        if self._tier.free_bytes < bound * len(rows) + keep_free:
            self._evict(bound * len(rows) + keep_free, None if demanded else active.due(rows[0]))
        with self._changed:
            room = (self._tier.free_bytes - keep_free) // bound
            if room < len(rows):
                return None
            siblings = [row for row in active.planned_of(active.video(rows[0])) if row not in rows]
            most = max(len(rows), min(room, self._settings.job_bytes // bound))
            return self._describe(active, sorted([*rows, *siblings][:most]))

    def _describe(self, active: Work, rows: list[int]) -> _Running | None:
        by_key: dict[str, list[int]] = {}
        for row in rows:
            by_key.setdefault(active.key(row), []).append(row)
        reservations: dict[str, Reservation] = {}
        for key in list(by_key):
            reservation = None if self._ledger.has(key) else self._tier.reserve(active.bound)
            if reservation is None:
                del by_key[key]
            else:
                reservations[key] = reservation
        if not by_key:
            return None
        for same in by_key.values():
            for row in same:
                active.set_state(row, RowState.MAKING)
        self._jobs += 1
        first_rows = [same[0] for same in by_key.values()]
        job = active.job(self._jobs, first_rows, self._settings.place)
        running = self._running[job.number] = _Running(job, active, by_key, reservations)
        return running

    def _evict(self, need: int, before_seq: int | None) -> None:
        """Free ``need`` bytes in the order of the policy; look-ahead evicts only what is needed later than its own."""
        short = need - self._tier.free_bytes
        with self._changed:
            actives = self._actives()
            oldest = min(self._waiting, key=lambda w: w.arrival, default=None)
            protected = {oldest.active.key(row) for row in oldest.rows} if oldest else set()

        def may_leave(copy: Copy) -> bool:
            needs = [need for active in actives if (need := active.next_need(copy.key)) is not None]
            return before_seq is None or not needs or min(needs) > before_seq

        # A good share at a time: the query costs the same for one object as for a hundred.
        for copy in self._ledger.victims(max(short, self._tier.budget_bytes // 20), protected, may_leave):
            self._tier.delete(copy.stored.physical)
            with self._changed:
                for active in actives:
                    active.set_state_of(copy.key, RowState.PLANNED)

    def _fail_for_room(self, active: Work, rows: list[int]) -> None:
        need = active.bound * len(rows)
        error = Full(
            f"no room for {len(rows)} clips of {need} bytes: {self._tier.used_bytes} of {self._tier.budget_bytes} bytes "
            "are in use; raise cache.budget"
        )
        self._fail(active, rows, error)

    def _fail(self, active: Work, rows: Iterable[int], error: ViewcacheError) -> None:
        failed = set(rows)
        with self._changed:
            for waiting in self._waiting:
                if waiting.active is active and failed.intersection(waiting.rows):
                    waiting.error = error
            self._changed.notify_all()

    # What workers say ----------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        running = self._running.get(event.job.number)
        if running is None:
            return
        if event.made is not None:
            self._made(running, event.made)
        elif event.report is not None:
            self._ended(running, event.report)
        else:
            self._died(running, event.reason)

    def _made(self, running: _Running, made: Made) -> None:
        running.reservations.pop(made.key).commit(0 if made.written.existed else made.written.bytes)
        active = running.active
        rows = running.rows.pop(made.key, [])
        if rows:
            self._ledger.add(active.copy(made, rows), made.written)
        self.busy.update(made.seconds)
        with self._changed:
            for row in rows:
                active.set_state(row, RowState.READY)
            self._changed.notify_all()

    def _ended(self, running: _Running, report: Report) -> None:
        self._release(running)
        self.busy.update(report.seconds)
        self.frames.update(report.frames)
        self._ledger.add_samples(running.job, report)
        left = running.rows
        for key, why in report.failed.items():
            self._bad(running.active, left.pop(key, []), why)
        if report.error:
            self._refused(running, report, [row for rows in left.values() for row in rows])
        self._put_back(running)

    def _refused(self, running: _Running, report: Report, rows: list[int]) -> None:
        if report.error_kind == BadVideo.kind:
            self._bad(running.active, rows, report.error)
        elif report.error_kind == Full.kind:
            with self._changed:
                self._no_room_until = time.monotonic() + IDLE_S
            self._fail(running.active, rows, Full(report.error))
        else:
            self._fail(running.active, rows, Broken(report.error))

    def _bad(self, active: Work, rows: list[int], why: str) -> None:
        """A video cannot give these clips: the task's policy decides."""
        if not rows:
            return
        error = self._on_bad_clip(active, rows, why)
        with self._changed:
            for row in rows:
                active.set_state(row, RowState.PLANNED if error is None else RowState.FAILED)
        if error is not None:
            self._fail(active, rows, error)

    def _died(self, running: _Running, reason: str) -> None:
        self._release(running)
        job, active = running.job, running.active
        self._tier.sweep()
        self._tries[job.video_key] += 1
        rows = [row for same in running.rows.values() for row in same]
        self._ledger.add_error(f"worker died on {job.name}: {reason}")
        if self._tries[job.video_key] >= TRIES:
            why = f"{job.name} ({job.uri}): {TRIES} workers died on it, the last was {reason}"
            error = self._on_bad_clip(active, rows, why)
            if error is not None:
                self._fail(active, rows, WorkerDied(why))
        self._put_back(running)

    def _release(self, running: _Running) -> None:
        for reservation in running.reservations.values():
            reservation.release()
        self._running.pop(running.job.number, None)

    def _put_back(self, running: _Running) -> None:
        with self._changed:
            for rows in running.rows.values():
                for row in rows:
                    if running.active.state(row) == RowState.MAKING:
                        running.active.set_state(row, RowState.PLANNED)
            self._no_room_until = 0.0
            self._changed.notify_all()
