"""The dispatcher: one thread that owns the workers, gives them jobs and takes in what they made (SAND §5.4).

A job takes one video and makes all of its clips that fit, so that a generation decodes a video once. When a reader
waits for other videos, jobs that nobody waits for are paused; what cannot be paused gives up its rest if it takes long.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from viewcache.errors import BadVideo, Closed, Full, ViewcacheError, WorkerDied
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.scheduling.bad_rows import UNDECIDED_S, BadClip, BadRows, Undecided
from viewcache.materializer.scheduling.chooser import Chooser, DispatcherSettings
from viewcache.materializer.scheduling.deaths import Deaths
from viewcache.materializer.scheduling.demand import Board, Fetched
from viewcache.materializer.scheduling.driver import Driver
from viewcache.materializer.scheduling.evictor import Evictor
from viewcache.materializer.scheduling.moves import Moves
from viewcache.materializer.scheduling.passing import Passing
from viewcache.materializer.scheduling.rules import NextJob, Wanted, missing_among, next_ahead
from viewcache.materializer.scheduling.running import Running, Tally, begin, by_work, makeable, no_room, salvaged, sweep
from viewcache.materializer.scheduling.work import Position, RowState, Work
from viewcache.materializer.storage.codecs import has_trial
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.telemetry.observer import DISPATCHER_THREAD, Observer
from viewcache.materializer.workers.job import Made, OnScanned, Report
from viewcache.materializer.workers.pool import Event, Pool
from viewcache.store import Reservation
from viewcache.store.passing import Passage
from viewcache.store.tier import LOCAL

__all__ = ["Dispatcher", "DispatcherSettings"]

_log = logging.getLogger("viewcache.dispatcher")

IDLE_S = 0.5
"""How long the dispatcher sleeps when nothing happens; everything that matters wakes it."""


class Dispatcher(Driver[str, Reservation | Passage]):
    """Makes objects when they are needed, or before. Thread-safe.

    ``on_bad_clip`` is asked what to do about rows whose video cannot give them; it may substitute another video (and
    then return None), return the error that the reader shall get, or raise `Undecided`. ``on_scanned`` is told what
    workers found of videos that came without their index; it may raise `Undecided` too.
    """

    def __init__(
        self,
        ledger: Ledger,
        tiers: Tiers,
        pool: Pool,
        settings: DispatcherSettings,
        on_bad_clip: BadClip,
        on_scanned: OnScanned,
        observer: Observer | None = None,
        moves: Moves | None = None,
        chooser: Callable[[Board, DispatcherSettings], Chooser] | None = None,
    ) -> None:
        """Start nothing yet; the first demand or look-ahead starts the thread. ``chooser`` makes another `Chooser`."""
        self._ledger = ledger
        self._tier = self.space = tiers.local
        self.pool = pool
        self._settings = settings
        self.demand_reserve = settings.demand_reserve
        """Bytes of the budget that look-ahead leaves to readers."""
        self._on_scanned = on_scanned
        self._board = board = self.state = Board(ledger)
        self._bad = BadRows(board, on_bad_clip)
        self._unlearned: list[Event] = []  # of jobs that found what cannot be taken in just now
        self.lock = board.changed
        self.evictor = Evictor(ledger, tiers, board, self._works, self._freed, self._answered, observer or Observer())
        """Makes room."""
        self.chooser = (chooser or Chooser)(board, settings)
        """Who is next."""
        short = partial(getattr, self.chooser.pressure, "on")
        rooms = tiers.passing, ledger, board, self.evictor, self._works, settings.cost, short
        self.passing: Passing = Passing(*rooms, lambda: tiers.local.free_bytes)
        """Clips that are read once and not stored."""
        self.full = False
        self._thread: threading.Thread | None = None
        self._closing = False
        self._running: dict[int, Running] = {}
        self._jobs = 0
        self._deaths = Deaths()
        self._preemptible = frozenset[int]()
        """Numbers of the jobs that may be paused for the one that is being chosen."""
        self._held_before = True, 0
        """Whether readers held something when room was looked for, and how often they had taken hold."""
        self._choosing = False
        """The dispatcher is looking for work, and may be evicting for it."""
        self._moves_before = self._moves = 0
        """How often a reader asked or moved on, or a job ended; tells a stale finding of no room from a fresh one."""
        self._answers = 0
        """Of these, how often a policy has answered, which changes nothing in what it would answer now."""
        self._tier_moves = moves
        """Objects on their way between tiers; None where nothing moves them."""
        self.tally = Tally(settings.note_trials)
        """What workers have done."""

    # What readers call ---------------------------------------------------------------------------------------------

    def fetch(
        self,
        work: Work[str],
        rows: Iterable[int],
        timeout_s: float | None = None,
        cancelled: Cancelled | None = None,
    ) -> Fetched:
        """Wait until objects are in the store, and hold them there until they are given back.

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
        try:
            fetched = self._board.wait_for(work, list(rows), self._wake, timeout_s, cancelled)
        except BaseException:
            self._give_back([])
            raise
        return replace(fetched, give_back=partial(self._give_back, fetched.copies))

    def _give_back(self, copies: list[Copy]) -> None:
        self._ledger.release(copies)
        self.passing.had(copies)
        if not self._closing and (self._board.is_waited_on() or not copies):
            self.pool.wake()  # what was held may be what a demand lacked room for; what nobody wants is given up

    def mark_present(self, works: Sequence[Work[str]]) -> None:
        """Note of which rows the objects are in the store; otherwise that comes out when their turn comes."""
        with self._board.changed:
            for work in works:
                work.mark_present(self._ledger.has)

    def look_ahead(self, works: Sequence[Work[str]]) -> None:
        """Say what is worth making before anybody waits."""
        with self._board.changed:
            self._board.announce(works)
            self._wake()

    def counted(self) -> None:
        """All that lies in the local tier is counted now: until then nothing is made."""
        with self._board.changed:
            self._freed()

    def forget(self, task_id: int) -> None:
        """Make nothing ahead for a task any more; jobs that only it wanted are given up."""
        with self._board.changed:
            self._board.withdraw(task_id)
            self.passing.left()
            self._wake()

    def making(self) -> set[str]:
        """Content keys of all objects that are being made now."""
        with self._board.changed:
            return set(self._board.objects.making)

    def progressed(self, work: Work[str], *positions: Position) -> None:
        """Note where the readers of some work's task are now."""
        with self._board.changed:
            self._board.reached(work, positions)
            self.passing.moved_on()
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

    def counts(self, works: Sequence[Work[str]]) -> dict[str, int]:
        """How many rows of some work are in each state."""
        return self._board.counts(works)

    def close(self) -> bool:
        """Stop the dispatcher and the workers; waiting readers get Closed.

        Returns:
            False if a thread hangs and was left, or if what dead workers left could not be removed.
        """
        self._closing = True
        self._board.stop()
        self.pool.wake()
        if self._thread is not None:
            self._thread.join()
        self.evictor.close()
        self.passing.close()
        clean = self.pool.close()
        for running in list(self._running.values()):
            self._salvage(running)
            running.release(self._ledger)
        return sweep(self._tier) and clean

    def _wake(self) -> None:
        """Have the dispatcher look again, starting it if need be; the board's lock is held."""
        if self._closing:
            raise Closed("the cache was closed; open it again")
        self._wake_mover()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=DISPATCHER_THREAD, daemon=True)
            thread.start()
            self._thread = thread
        self._freed()

    def _wake_mover(self) -> None:
        """A reader moved on, or look-ahead found no room."""
        if self._tier_moves is not None:
            self._tier_moves.wake()

    def _freed(self) -> None:
        """Look again: there is more room, or more to make; the board's lock is held."""
        self.full = False
        self._moves += 1
        self.pool.wake()

    def _answered(self) -> None:
        """A policy says what may leave: what had no room is looked at again."""
        with self._board.changed:
            self._answers += 1
            self._freed()

    def _is_idle(self) -> bool:
        awaited = self.evictor.is_awaited() or (self._tier_moves is not None and self._tier_moves.is_any())
        if self._running or self._choosing or self._bad or self._board.is_waited_on() or awaited:
            return False
        with self._board.changed:
            return self.full or self._thread is None or next_ahead(self._board) is None

    def _works(self) -> list[Work[str]]:
        running = (work for each in list(self._running.values()) for work, _ in each.left())
        return list({id(each): each for each in (*self._board.works(), *running)}.values())

    # Choosing ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                self._dispatch()
                events = self.pool.poll(UNDECIDED_S if self._bad or self._unlearned else IDLE_S)
                again, self._unlearned = self._unlearned, []
                for event in [*again, *events]:
                    self._handle(event)
                self._bad.ask_again()
                self.passing.rest()
        except BaseException as error:  # whatever it is, readers must not wait for ever
            _log.exception("the dispatcher stopped", extra={"action": "dispatcher_stopped"})
            self._board.stop(error)

    def _dispatch(self) -> None:
        if not self._tier.is_counted():  # who looks for room would evict
            return
        self._choosing = True
        self.passing.learn()
        try:
            # Each object that a worker has made leads here, and most of the time every worker is busy.
            lacks_room = (self._board.is_waited_on() or self.pool.busy < self.pool.size) and self.give_jobs()
            self.pool.request_preemption(self.chooser.to_preempt(self.pool.begun(), at_once=lacks_room))
            self.pool.cancel(self.chooser.abandoned())
        finally:
            with self._board.changed:
                self._choosing = False
                if not self._running:
                    self._board.changed.notify_all()

    def _choose(self, *, only_soon: bool) -> NextJob[str] | None:
        self.chooser.measure(self.pool.held(), self._running, self.passing.bytes)
        return self.chooser.next(ahead=not self.full, only_soon=only_soon)

    def _has_worker(self, choice: NextJob[str]) -> bool:
        # After a death jobs run alone until it is clear on whose video workers die. Paused jobs hold memory.
        interrupts = choice.demanded and not self._deaths and not self.chooser.pressure.on
        self._preemptible = self.chooser.preemptible() if interrupts else frozenset[int]()
        return self.pool.has_room(self._preemptible)

    def _before_start(self) -> int:
        self._moves_before, self.undecided = self._moves, False
        self._held_before = bool(self._ledger.held), self._ledger.holds
        return self._moves_before

    def _found_no_room(self, before: int) -> None:
        with self._board.changed:
            self.full = self._moves == before
            self._wake_mover()
            self._board.changed.notify_all()

    def _lacks_room(self, choice: NextJob[str]) -> None:
        # Final only if nobody else had, has or is about to have what could leave instead; who deletes says so at last.
        is_still = self._held_before == (False, self._ledger.holds) and not self.evictor.is_leaving()
        alone = is_still and self._moves == self._moves_before and not self._running and not self.undecided
        if alone and self._board.is_oldest(choice.work, choice.rows):
            need = sum(map(choice.work.bound, choice.objects)) - self._tier.free_bytes
            if not self.evictor.give_up_irreplaceable(max(need, 1)):
                self._board.fail(choice.work, choice.rows, no_room(choice.work, choice.rows, self._tier))

    def _refuse(self, choice: NextJob[str], error: ViewcacheError) -> None:
        self._board.fail(choice.work, choice.rows, error)

    def _allowance(self, choice: NextJob[str]) -> int:
        return self.chooser.allowance(sum(map(choice.work.held, choice.objects)), demanded=choice.demanded)

    def _make_room(self, need: int, before_s: float | None, choice: NextJob[str]) -> None:
        who, occasion = self._board.tight(choice), (self._moves - self._answers, self._held_before)
        self.undecided |= self.evictor.evict(need, before_s, occasion=occasion, who=who)

    def _describe(
        self, choice: NextJob[str], wanted: dict[str, list[Wanted[str]]], promises: dict[str, Reservation | Passage]
    ) -> int:
        self._jobs += 1
        codecs, urgent = self._settings.codecs, missing_among(self._board, wanted)
        trial = codecs.is_open(LOCAL) and has_trial(self._jobs)
        target_of, packing = partial(self.passing.target, self._settings.target), codecs.for_recipe
        rooms = wanted, promises, self._ledger
        running = begin(self._jobs, *rooms, target_of, packing, urgent, self._settings.near_of, trial=trial)
        running.job = self._deaths.watched(running.job)
        self._running[self._jobs] = running
        return self._jobs

    def _submit(self, number: int) -> bool:
        running = self._running[number]
        try:
            self.pool.submit(running.job, self._preemptible)
        except Full as error:  # jobs that are on go on
            self._in_vain(running, error, "worker_not_started", tells=len(self._running) == 1)
            return False
        self._board.eased()
        return True

    def _in_vain(self, running: Running, error: ViewcacheError, action: str, *, tells: bool = True) -> None:
        """A job ends with nothing done: its readers are told, if it ``tells``, and may ask again."""
        _log.warning("%s", error, extra={"action": action})
        running.release(self._ledger)
        self._end(running, full=True)
        self.tally.failure = str(error)
        for work, rows in running.left() if tells else ():
            self._board.fail(work, rows, error)

    # What workers say ----------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        running = self._running.get(event.job.number)
        if running is None:
            return
        running.fresh = event.fresh
        if event.made is not None:
            self._made(running, event.made)
        elif event.report is not None:
            try:
                self._ended(running, event.report)
            except Undecided:
                self._unlearned.append(event)
        else:
            self._died(running, event)

    def _made(self, running: Running, made: Made) -> None:
        passage = running.passages.pop(made.key, None)
        if passage is None:
            running.reservations.pop(made.key).commit(self._ledger.uncounted(made.key, LOCAL, made.written))
        wanted = self._take(running, made.key)
        making, row = makeable(wanted)
        self._board.arrived(made.key, running.took(made))  # before readers can find it
        if passage is None:
            self._ledger.add(making.copy(made, row), made.written)
        else:
            running.passed.add(made.key)
            self.passing.arrived(passage, making.copy(made, row), made.written)
        self.tally.made(made, passes=passage is not None)
        for work, rows in by_work(wanted):
            self._board.mark(work, rows, RowState.READY)

    def _ended(self, running: Running, report: Report) -> None:
        try:
            for video, found in report.learned(running.job.video_key):
                self._on_scanned(video, found)  # before its clips are planned or asked for again
        except ViewcacheError as unlearned:  # what it says of its clips rests on that
            self._in_vain(running, unlearned, "not_learned")
            return
        running.release(self._ledger)
        self.tally.ended(running, report, self._ledger)
        if not report.error:
            self._deaths.over(running.job)
        self.chooser.learn(running)
        for copy in running.damaged(report):
            self._ledger.errors.rebuilt(copy.key, running.job.file, running.task_id)
            self.evictor.damaged(copy)
        for key, why, failure in report.failures():
            self._bad.add(running.given, {key: self._take(running, key)}, why, failure, report.bad_parts.get(key))
        self._ledger.errors.shortfalls(report.silenced, report.unpacked, report.untracked)
        if report.error_kind == BadVideo.kind:
            self._bad.add(running.given, {key: self._take(running, key) for key in list(running.wanted)}, report.error)
        elif report.error and running.passages:
            self.passing.failed(report.error)
        else:
            for error, waiting in running.failures(report):
                _log.error("job failed: %s", error, extra={"action": "job_failed"})
                for work, rows in waiting:
                    self._ledger.errors.error(work.task_id, len(rows), error)
                    self._board.fail(work, rows, error, tried=running.given)
        self._end(running, full=bool(report.broken or (report.error and not running.passages)))

    def _take(self, running: Running, key: str) -> list[Wanted[str]]:
        """Who wants a key of a job, which has nothing more to do with it."""
        with self._board.changed:  # readers that find damage look through `wanted`
            self._board.objects.making.pop(key, None)
            return running.take(key)

    def _died(self, running: Running, event: Event) -> None:
        self._salvage(running)
        running.release(self._ledger, certain=False)
        sweep(self._tier)
        blame = self._deaths.add(event)
        if not running.wanted:
            self._deaths.over(running.job)
        elif blame is not None:
            failed = [key for key in blame.whole if key in running.wanted]
            self._bad.add(running.given, {key: self._take(running, key) for key in failed}, blame.why, WorkerDied)
            for key, parts in blame.parts.items():
                self._bad.add(running.given, {key: self._take(running, key)}, blame.why, WorkerDied, parts)
        self._end(running, full=False)

    def _salvage(self, running: Running) -> None:
        for made in salvaged(running, self._ledger, self._tier.root):
            self._made(running, made)

    def _end(self, running: Running, *, full: bool) -> None:
        """What was not made is planned again; after an error look-ahead waits for a reader to move on."""
        with self._board.changed:
            self._put_back(running.job.number)
            self._running.pop(running.job.number, None)
            self._moves += 1  # in one step, or `wait_idle` would see no job and a finding of no room from before
            self.full = full
            self._board.changed.notify_all()
