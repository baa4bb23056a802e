"""The dispatcher: one thread that owns the workers, gives them jobs and takes in what they made (SAND §5.4).

A job takes one video and makes all of its clips that fit, so that a generation decodes a video once. When a reader
waits for other videos, jobs that nobody waits for are paused; what cannot be paused gives up its rest if it takes long.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from viewcache.errors import BadVideo, Broken, Closed, Full, ViewcacheError, WorkerDied
from viewcache.materializer.scheduling.bases import hold_bases
from viewcache.materializer.scheduling.chooser import Chooser, EngineSettings
from viewcache.materializer.scheduling.demand import Board, Cancelled, Fetched
from viewcache.materializer.scheduling.evictor import Room
from viewcache.materializer.scheduling.running import (
    Running,
    Wanted,
    by_work,
    bytes_of,
    describe,
    no_room,
    reserve,
    worth_making,
)
from viewcache.materializer.scheduling.work import RowState, Work
from viewcache.materializer.storage.codecs import trial_rows
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.telemetry.observer import ENGINE_THREAD, Observer
from viewcache.materializer.workers.job import Made, Report
from viewcache.materializer.workers.pool import Event, Pool
from viewcache.store import find_written
from viewcache.store.tier import LOCAL

__all__ = ["Engine", "EngineSettings"]

_log = logging.getLogger("viewcache.engine")

TRIES = 3
"""How often a video is given to a worker when workers die on it."""

TRIAL_EVERY = 16
"""Of so many jobs one tries all codecs on an object."""

IDLE_S = 0.5
"""How long the dispatcher sleeps when nothing happens; everything that matters wakes it."""

BadClip = Callable[[Work, list[int], str], ViewcacheError | None]


class Engine:
    """Makes objects when they are needed, or before. Thread-safe.

    ``on_bad_clip`` is asked what to do about rows whose video cannot give them; it may substitute another video (and
    then return None) or return the error that the reader shall get.
    """

    def __init__(
        self,
        ledger: Ledger,
        tiers: Tiers,
        pool: Pool,
        settings: EngineSettings,
        on_bad_clip: BadClip,
        observer: Observer | None = None,
    ) -> None:
        """Start nothing yet; the first demand or look-ahead starts the thread."""
        self._ledger = ledger
        self._tier = tiers.local
        self._pool = pool
        self._settings = settings
        self.demand_reserve = settings.demand_reserve
        """As in the settings; larger when a task with larger batches joins."""
        self._on_bad_clip = on_bad_clip
        self._board = Board(ledger)
        self.room = Room(ledger, tiers, self._board, self._works, self._freed, observer or Observer())
        """What leaves for what."""
        self.chooser = Chooser(self._board, settings)
        """Who is next; another may be put in its place before anybody reads."""
        self._thread: threading.Thread | None = None
        self._closing = False
        self._running: dict[int, Running] = {}
        self._making: dict[str, Running] = {}
        """Key → the job that makes it."""
        self._jobs = 0
        self._tries: Counter[str] = Counter()
        self._full = False
        """Look-ahead found no room; until a job ends or a reader moves on there will be none."""
        self._choosing = False
        """The dispatcher is looking for work, and may be evicting for it."""
        self._moves = 0
        """How often a reader has asked or moved on; tells a stale finding of no room from a fresh one."""
        self.is_moving: Callable[[], bool] = lambda: False
        """Whether objects are on their way between tiers, so that there may be room soon."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a reader moved on, or look-ahead found no room."""
        self.failure = ""
        """Why the last job failed as a whole (the disk is full, say); empty when it did not."""
        self.busy: Counter[str] = Counter()
        """Worker seconds by stage since the start."""
        self.frames: Counter[str] = Counter()
        """Packets fed, frames decoded and wanted, objects made and their raw bytes since the start."""

    # What readers call ---------------------------------------------------------------------------------------------

    @contextmanager
    def fetch(
        self,
        work: Work,
        rows: Iterable[int],
        timeout_s: float | None = None,
        cancelled: Cancelled | None = None,
    ) -> Iterator[Fetched]:
        """Wait until objects are in the store, then hold them there while the block runs.

        Args:
            work: whose rows.
            rows: which.
            timeout_s: None waits as long as work goes on.
            cancelled: set by another thread, it ends the wait.

        Raises:
            BadVideo: a video cannot give a clip and the policy is ``raise``.
            WorkerDied: workers died on a video too often.
            Full: the disk has no room.
            Timeout: ``timeout_s`` is over.
            Closed: the cache was closed, or ``cancelled`` was set.
        """
        copies: list[Copy] = []
        try:
            fetched = self._board.wait_for(work, list(rows), wake=self._wake, timeout_s=timeout_s, cancelled=cancelled)
            copies = fetched.copies
            yield fetched
        finally:
            self._ledger.release(copies)
            if not self._closing:
                self._pool.wake()  # what was held may be what a demand lacked room for; what nobody wants is given up

    def recognize(self, works: Sequence[Work]) -> None:
        """Mark the rows whose objects are in the store already; otherwise that comes out when their turn comes."""
        with self._board.changed:
            for work in works:
                work.recognize(self._ledger.has)

    def look_ahead(self, works: Sequence[Work]) -> None:
        """Say what is worth making before anybody waits."""
        with self._board.changed:
            self._board.announce(works)
            self._wake()

    def forget(self, task_id: int) -> None:
        """Make nothing ahead for a task any more; jobs that only it wanted are given up."""
        with self._board.changed:
            self._board.withdraw(task_id)
            self._wake()

    @property
    def is_full(self) -> bool:
        """Whether look-ahead waits for room."""
        return self._full

    def guard(self) -> AbstractContextManager[object]:
        """The lock that guards all work, for who changes where its rows stand."""
        return self._board.changed

    def progressed(self, work: Work, rank: int, seq: int, pace_s: float) -> None:
        """Note that a reader has passed ``rank`` rows and needs ``seq`` next, at ``pace_s`` an iteration."""
        with self._board.changed:
            self._board.reached(work, rank, seq, pace_s)
            self._wake()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until all that look-ahead can make is made; True when so, False when the time is over."""
        deadline = time.monotonic() + timeout_s
        with self._board.changed:
            while not self._is_idle():
                left = deadline - time.monotonic()
                if left <= 0 or self._closing:
                    return False
                self._board.changed.wait(left)
            return True

    def counts(self, works: Sequence[Work]) -> dict[str, int]:
        """How many rows of some work are in each state."""
        return self._board.counts(works)

    def close(self) -> bool:
        """Stop the dispatcher and the workers; waiting readers get Closed. False if a thread hangs and was left."""
        self._closing = True
        self._board.stop()
        self._pool.wake()
        if self._thread is not None:
            self._thread.join()
        clean = self._pool.close()
        for running in list(self._running.values()):
            self._salvage(running)
            self._release(running)
        self._tier.sweep()
        return clean

    def _wake(self) -> None:
        """Have the dispatcher look again, starting it if need be; the board's lock is held."""
        if self._closing:
            raise Closed("the cache was closed; open it again")
        self.on_change()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=ENGINE_THREAD, daemon=True)
            thread.start()
            self._thread = thread
        self._freed()

    def _freed(self) -> None:
        """Look again: there is more room, or more to make; the board's lock is held."""
        self._full = False
        self._moves += 1
        self._pool.wake()

    def _is_idle(self) -> bool:
        if self._running or self._choosing or self._board.is_waited_on() or self.is_moving():
            return False
        return self._full or self._thread is None or self._board.next_ahead() is None

    def _works(self) -> list[Work]:
        running = (work for each in list(self._running.values()) for work, _ in each.left())
        return list({id(each): each for each in (*self._board.works(), *running)}.values())

    # Choosing ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                self._dispatch()
                for event in self._pool.poll(IDLE_S):
                    self._handle(event)
        except BaseException as error:
            # Whatever it is, readers must not wait for ever.
            _log.exception("the dispatcher stopped", extra={"action": "engine_stopped"})
            self._board.stop(error)

    def _dispatch(self) -> None:
        self._choosing = True
        try:
            self._give_jobs()
        finally:
            with self._board.changed:
                self._choosing = False
                if not self._running:
                    self._board.changed.notify_all()

    def _give_jobs(self) -> None:
        tight: int | None = None
        lacks_room = False
        while True:
            self.chooser.measure(self._pool.held(), self._running)
            choice = self.chooser.next(ahead=not self._full, only_soon=tight is not None)
            if choice is None:
                if tight is not None:
                    self._found_no_room(tight)
                break
            # After a death jobs run alone until it is clear on whose video workers die. Paused jobs hold memory.
            interrupts = choice.demanded and not self._tries and not self.chooser.pressure.on
            unwanted = self.chooser.unwanted(self._running) if interrupts else frozenset[int]()
            if not self._pool.has_room(unwanted):
                break
            work, rows = choice.work, choice.rows
            if self._join(work, rows):
                continue
            moves, holds, held = self._moves, self._ledger.holds, self._ledger.held
            running = self._prepare(work, rows, demanded=choice.demanded)
            if running is not None:
                try:
                    self._pool.submit(running.job, unwanted)
                except Full as error:
                    self._not_begun(running, error)
                    break
                self._board.eased()
            elif not choice.demanded and tight is None and not work.is_soon(rows[0]):
                tight = moves  # what is only kept evicts nothing, but what is read soon does
            elif not choice.demanded:
                self._found_no_room(moves)
            else:
                # Final only if nobody else had, has or is about to have what could leave instead.
                alone = not self._running and not held and holds == self._ledger.holds
                if alone and self._board.is_oldest(work, rows):
                    self._board.fail(work, rows, no_room(work, rows, self._tier))
                lacks_room = True
                break
        self._pool.ask_to_yield(self.chooser.to_yield(self._running, self._pool.begun(), at_once=lacks_room))
        self._pool.drop(self.chooser.forsaken(self._running))

    def _not_begun(self, running: Running, error: Full) -> None:
        """No worker could be started: jobs that are on go on; if there are none, readers are told and may ask again."""
        _log.warning("%s", error, extra={"action": "worker_not_started"})
        self._release(running)
        self._put_back(running, full=True)
        self.failure = str(error)
        if not self._running:
            for work, rows in running.left():
                self._board.fail(work, rows, error)

    def _found_no_room(self, moves: int) -> None:
        """Look-ahead waits until a job ends or a reader moves on, unless one has moved since."""
        with self._board.changed:
            self._full = self._moves == moves
            self.on_change()
            self._board.changed.notify_all()

    def _join(self, work: Work, rows: list[int]) -> bool:
        """Let rows whose objects are being made for others wait for those; True if there were any."""
        with self._board.changed:
            joined = False
            for row in rows:
                running = self._making.get(work.key(row))
                if running is not None:
                    running.wanted[work.key(row)].append((work, row))
                    work.set_state(row, RowState.MAKING)
                    joined = True
            return joined

    def _prepare(self, work: Work, rows: list[int], *, demanded: bool) -> Running | None:
        """Choose what the job makes beside ``rows``, make room for it and describe it; None if there is no room."""
        keep_free = 0 if demanded else max(self.demand_reserve, work.free_bytes(rows[0]))
        least = sum(work.bound(row) for row in rows)
        memory = self.chooser.allowance(sum(work.held(row) for row in rows), demanded=demanded)
        if not memory:
            return None
        soon = demanded or work.is_soon(rows[0])
        before_s = None if demanded else work.need_s(rows[0]) if soon else math.inf
        # One decode for all that is needed next of the video, or that is kept of it, and not one for each clip. What is
        # only kept waits until there is room for all of it.
        with self._board.changed:
            whole = bytes_of(worth_making(work, rows, self._board.works()), self._ledger.has, only_next=soon)
        whole = max(least, min(whole, memory))
        for size in (whole, least) if soon else (whole,):
            if self._tier.free_bytes < size + keep_free:
                self._board.tight(demanded=demanded)
                self.room.evict(size + keep_free, before_s)
            if self._tier.free_bytes >= size + keep_free:
                break
        with self._board.changed:
            if self._tier.free_bytes < size + keep_free:
                return None
            room = self._tier.free_bytes - keep_free
            return self._start(worth_making(work, rows, self._board.works()), room, memory)

    def _start(self, candidates: Iterator[Wanted], room: int, memory: int) -> Running | None:
        wanted, reservations = reserve(
            candidates, lambda key: self._ledger.has(key) or key in self._making, self._tier, room, memory
        )
        if not wanted:
            return None
        for same in wanted.values():
            for work, row in same:
                work.set_state(row, RowState.MAKING)
        self._jobs += 1
        bases, held = hold_bases(self._ledger, (same[0] for same in wanted.values()))
        codecs = self._settings.codecs
        trial = codecs.is_open(LOCAL) and self._jobs % TRIAL_EVERY == 1
        urgent = self._board.wanted_keys()
        job = describe(self._jobs, wanted, self._settings.place, codecs.for_recipe, bases, urgent, trial=trial)
        running = self._running[job.number] = Running(job, wanted, reservations, held)
        self._making.update(dict.fromkeys(wanted, running))
        return running

    # What workers say ----------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        running = self._running.get(event.job.number)
        if running is None:
            return
        running.fresh = event.fresh
        if event.made is not None:
            self._made(running, event.made)
        elif event.report is not None:
            self._ended(running, event.report)
        else:
            self._died(running, event.reason)

    def _made(self, running: Running, made: Made) -> None:
        counted = made.written.existed and self._ledger.has(made.key)
        running.reservations.pop(made.key).commit(0 if counted else made.written.bytes)
        wanted = self._take(running, made.key)
        work, row = wanted[0]
        self._board.arrived(made.key, running.took(made))  # before readers can find it
        self._ledger.add(work.copy(made, row), made.written)
        self.frames.update(objects=1, object_bytes=made.written.raw_bytes)
        self.busy.update(made.seconds)
        for work, rows in by_work(wanted):
            self._board.mark(work, rows, RowState.READY)

    def _ended(self, running: Running, report: Report) -> None:
        self._release(running)
        self.failure = "" if report.error_kind == BadVideo.kind else report.error
        if not report.error:
            self._tries.pop(running.job.video_key, None)
        self.busy.update(report.seconds)
        self.frames.update({name: report.frames.get(name, 0) for name in ("packets", "decoded", "wanted", "converted")})
        running.seconds.update(report.seconds)
        self.chooser.learn(running)
        codec = next((base.stored.codec for base in running.job.bases), "raw")
        trials = trial_rows(report.trials)
        self._ledger.add_samples(dict(running.seconds), report.frames, running.made, codec, trials)
        for copy in running.held:
            if copy.key in report.damaged:
                _log.warning("rebuilding kept pictures: %s", copy.key, extra={"action": "rebuild"})
                self.room.damaged(copy)
        for key, why in report.failed.items():
            for work, rows in by_work(self._take(running, key)):
                self._bad(work, rows, why)
        if report.error_kind == BadVideo.kind:
            for work, rows in running.left():
                self._bad(work, rows, report.error)
        elif report.error:
            error = Full(report.error) if report.error_kind == Full.kind else Broken(report.error)
            _log.error("job failed: %s", error, extra={"action": "job_failed"})
            for work, rows in running.left():
                self._ledger.add_error(work.task_id, len(rows), error)
                self._board.fail(work, rows, error)
        self._put_back(running, full=bool(report.error))

    def _take(self, running: Running, key: str) -> list[Wanted]:
        """Who wants a key of a job, which has nothing more to do with it."""
        with self._board.changed:  # readers that find damage look through `wanted`
            self._making.pop(key, None)
            return running.wanted.pop(key, [])

    def _bad(self, work: Work, rows: list[int], why: str, failure: ViewcacheError | None = None) -> None:
        """A video cannot give these rows: the task's policy decides; ``failure`` is what readers get if it gives up."""
        error = self._on_bad_clip(work, rows, why)
        self._board.mark(work, rows, RowState.PLANNED if error is None else RowState.FAILED)
        if error is not None:
            self._board.fail(work, rows, failure or error)

    def _died(self, running: Running, reason: str) -> None:
        self._salvage(running)
        self._release(running)
        self._tier.sweep()
        job, left = running.job, running.left()
        self._tries[job.video_key] += 1
        if left and self._tries[job.video_key] >= TRIES:
            del self._tries[job.video_key]
            why = f"{job.uri}: {TRIES} workers died on it, the last was {reason}"
            for work, rows in left:
                self._bad(work, rows, why, WorkerDied(why))
        self._put_back(running, full=False)

    def _salvage(self, running: Running) -> None:
        """Take in what a worker published but did not live to say: it lies there and must be counted."""
        for key in list(running.wanted):
            written = None if self._ledger.has(key) else find_written(self._tier.root, key)
            if written is not None:
                self._made(running, Made(key, written, {}))

    def _release(self, running: Running) -> None:
        for reservation in running.reservations.values():
            reservation.release()
        self._ledger.release(running.held)

    def _put_back(self, running: Running, *, full: bool) -> None:
        """What was not made is planned again; after an error look-ahead waits for a reader to move on."""
        with self._board.changed:
            for work, rows in running.left():
                for row in rows:
                    if work.state(row) == RowState.MAKING:
                        work.set_state(row, RowState.PLANNED)
            for key in running.wanted:
                self._making.pop(key, None)
            # In one step, or `wait_idle` would see no job and a finding of no room from before this one ended.
            self._running.pop(running.job.number, None)
            self._full = full
            self._board.changed.notify_all()
