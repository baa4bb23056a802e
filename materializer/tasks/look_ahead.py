"""What is made before anybody waits: the generation that each reader is in, and the one after it.

Tasks that share clips are planned and announced together, so that one decode of a video serves all of them (SAND §5.2).
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain

from viewcache.errors import Closed, ViewcacheError
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.retention.kept_ways import KeptWays
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.tasks.task import Task

__all__ = ["LookAhead", "Planned"]

_log = logging.getLogger("viewcache")

DECIDE_S = 1.0
"""How long the first read of a generation waits at most until it is decided what is kept of it. Where that was too
short, the generation is not waited for again."""

TURNS = 2
"""How often it is looked for what is over, while readers stay in a generation and the same is kept of it."""


class LookAhead:
    """Plans in a thread of its own what readers will need, and tells the dispatcher. Thread-safe."""

    def __init__(
        self, dispatcher: Callable[[], Dispatcher], keeper: Keeper, turned: Callable[[], None] = lambda: None
    ) -> None:
        """Start with nobody reading.

        Args:
            dispatcher: asked for when there is something to make.
            keeper: decides what is kept.
            turned: called when a reader has come to another generation, or an epoch further in it, and what it
                needs there is planned and announced.
        """
        self._dispatcher = dispatcher
        self._turned = turned
        self._keeper = keeper
        self._lock, self._announcing = threading.Lock(), threading.Lock()
        self._current: dict[int, tuple[Task, tuple[int, ...]]] = {}
        """Task → the generations that its readers are in, or that others of its group are in while nobody reads it."""
        self._epochs: dict[int, frozenset[int]] = {}
        """Task → the epochs that its readers are in."""
        self._ahead: dict[int, list[Planned]] = {}
        """What is made whoever reads it, until it is made or given up; by the identity of what was asked for."""
        self._queued: dict[int, threading.Event] = {}
        """Tasks that the planner will come to, and what is set when it was decided what is kept of what their readers
        are in: who reads here and there asks once, not for each batch."""
        self._in_vain: set[tuple[int, int]] = set()
        """Tasks and generations for which a reader has waited, and they were not decided in time."""
        self._turns: dict[int, tuple[object, int]] = {}
        """Task → where its readers were when it was told last that they turned, and how often it was told there."""
        self._gone: set[int] = set()
        """Tasks that left; the planner may be at one of them just then."""
        self._planned_now: Task | None = None
        """What the planner is at."""
        self.closed = False
        """Whether nothing more is planned."""
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="viewcache-planner")

    def reading(self, task: Task, number: int) -> None:
        """A generation is being read: make those that readers are in, and plan the next ones meanwhile."""
        active, epochs = task.planned(number), task.seats.epochs()
        with self._lock:
            known = self._epochs.get(task.task_id) == epochs
            if known and (active is None or not self._keeper.is_outdated(active)):
                return
            self._epochs[task.task_id] = epochs  # what work costs was measured meanwhile: what is kept is asked again
            self._current[task.task_id] = task, _generations(task, epochs) or (number,)
            self._gone.discard(task.task_id)
            queued = self._queued.get(task.task_id)
            decided = self._queued.setdefault(task.task_id, queued or threading.Event())
            may_help = (task.task_id, number) not in self._in_vain  # who goes to and fro would wait at each jump
        self.announce()
        try:
            if queued is None:
                self._submit(self._plan, task, decided)
        except BaseException:
            with self._lock:
                self._queued.pop(task.task_id, None)
            decided.set()
            raise
        if may_help and active is not None and not self._keeper.is_decided(active) and self._keeper.is_tight(active):
            # What a reader asks for is made with all else of its videos: of a small budget that could be half.
            decided.wait(DECIDE_S)
            if not self._keeper.is_decided(active):
                with self._lock:
                    self._in_vain.add((task.task_id, number))

    def going(self, tasks: Iterable[Task]) -> list[tuple[int, int | None, bool]]:
        """Of each task the first epoch that a reader is in, and whether it was weighed; see `Catalog.outlived`."""
        readers = [(each.task_id, min(each.seats.epochs(), default=None)) for each in tasks]
        return [(task_id, epoch, self._keeper.has_weighed(task_id)) for task_id, epoch in readers]

    def forget(self, task: Task) -> bool:
        """Nobody reads a task any more; True if it is made ahead all the same."""
        with self._lock:
            gone = self._current.pop(task.task_id, None)
            self._epochs.pop(task.task_id, None)
            self._gone.add(task.task_id)
            self._in_vain = {each for each in self._in_vain if each[0] != task.task_id}
            self._turns.pop(task.task_id, None)
            is_ahead = any(each is task for works in self._ahead.values() for each, _ in works)
        if gone is not None:
            self.announce()
            with suppress(Closed):
                self._submit(self._decide_again)
        return is_ahead

    def is_planning(self, task: Task) -> bool:
        """Whether a generation of a task is being planned: what that needs is not recorded yet."""
        with self._lock:
            return self._planned_now is task or task.is_planning()

    def decide_ahead(self, works: "Sequence[Planned]") -> dict[int, KeptWays | None]:
        """Let some generations be made beside what readers need, until `end_ahead`; `announce` begins it.

        Returns:
            What is kept of each generation, see `Keeper.decide`.

        Raises:
            Closed: the cache was closed.
        """
        with self._lock:
            self._ahead[id(works)] = list(works)
        try:
            return self._decide()
        except BaseException:
            self.end_ahead(works)
            raise

    def announce(self) -> None:
        """Tell the dispatcher what is worth making now."""
        with self._announcing:  # else one that began before a task left would bring it back
            decided = [work for _, work in self._planned() if self._keeper.is_decided(work)]
            works = [each for work in decided for each in work.schedules]
            needed = {work.group_generation for work in decided}  # what was decided for others waits until it is again
            intermediates = [each for each in self._keeper.intermediates() if each.group_generation in needed]
            self._dispatcher().look_ahead([*intermediates, *works])

    def end_ahead(self, works: "Sequence[Planned]") -> None:
        """Make them no more but for who reads them; harmless when done twice."""
        with self._lock:
            ended = self._ahead.pop(id(works), None)
        if ended is not None:
            with suppress(Closed):
                self._submit(self.announce)

    def leave(self, task: Task) -> None:
        """Make nothing of a task ahead any more, whoever asked for it."""
        with self._lock:
            for key, works in self._ahead.items():
                self._ahead[key] = [each for each in works if each[0] is not task]

    def wait_idle(self, timeout_s: float | None = None) -> None:
        """Wait until all that was asked for so far is planned, and decided what is kept of it.

        Raises:
            TimeoutError: it takes longer than that.
        """
        self._planner.submit(lambda: None).result(timeout_s)

    def close(self) -> None:
        """Plan no more."""
        with self._lock:
            self.closed = True
        self._planner.shutdown(cancel_futures=True)

    def _submit(self, work: Callable[..., None], *arguments: object) -> None:
        """Let the planner do something.

        Raises:
            Closed: it has ended, or the interpreter is about to.
        """
        with self._lock:
            # An executor says both in the words for too many threads, which is another matter.
            if self.closed or not threading.main_thread().is_alive():
                raise Closed("the cache was closed; open it again")
            self._planner.submit(self._done, work, *arguments)

    @staticmethod
    def _done(work: Callable[..., None], *arguments: object) -> None:
        """Do something; nobody waits for it, so what goes wrong is logged here."""
        try:
            work(*arguments)
        except Closed:
            pass  # nobody will read it
        except ViewcacheError as error:
            _log.warning("the look-ahead failed: %s", error, extra={"action": "plan_failed"})
        except Exception:
            _log.exception("the look-ahead failed", extra={"action": "plan_failed"})

    def _plan(self, task: Task, decided: threading.Event) -> None:
        """Plan the generation that is read, then the next one, of all tasks that share clips with it; announce them."""
        try:
            with self._lock:
                self._queued.pop(task.task_id, None)
                if task.task_id not in self._current:
                    return  # it has left
                numbers = self._current[task.task_id][1]
                epochs = self._epochs.get(task.task_id, frozenset())
            due = {each + 1 for each in numbers if task.joining.is_due(each, epochs)}
            soon = {*numbers, *_generations(task, (each + 1 for each in epochs))}
            for n in sorted(n for n in {*numbers, *due} if n <= task.last_generation()):
                for each, generation in [
                    (task, n),
                    *(task.group.matching_generations(task, n) if task.group is not None else ()),
                ]:
                    # What another job of its definition has planned is made for that one: a trial may end before.
                    if n in soon or each.group is None or not each.group.twins(each, generation):
                        self._plan_one(each, generation)
                self._decide()
                decided.set()
                self.announce()
            if max(numbers) > 0 and self._may_be_over(task, numbers):
                self._turned()
        except Closed:
            pass  # nobody will read it
        except ViewcacheError as error:
            _log.warning("look-ahead of %s: %s", task.spec.name, error, extra={"action": "plan_failed"})
        finally:
            decided.set()

    def _may_be_over(self, task: Task, numbers: tuple[int, ...]) -> bool:
        """Whether readers of a task that is behind its first generation may have left something behind them.

        That is looked for once more in the epoch after: a batch of the last generation may have been read just then.
        """
        with self._lock:
            place = numbers, tuple(self._current), self._keeper.told.given_up
            before, times = self._turns.get(task.task_id, (None, 0))
            self._turns[task.task_id] = place, times + 1 if before == place else 1
            return before != place or times < TURNS

    def _decide_again(self) -> None:
        self._decide()
        self.announce()

    def _plan_one(self, task: Task, number: int) -> None:
        with self._lock:
            if task.task_id in self._gone:
                return  # what it needs would be recorded, and stay for ever
            self._planned_now = task
        try:
            task.generation(number)
        except Closed:
            raise
        except ViewcacheError as error:
            # The reader that gets there meets it again; until then there is nothing to make.
            name = task.spec.name
            _log.warning("generation %d of %s: %s", number, name, error, extra={"action": "plan_failed"})
        finally:
            with self._lock:
                self._planned_now = None
        with self._lock:
            if task.task_id not in self._gone:
                self._current.setdefault(task.task_id, (task, (number,)))

    def _planned(self) -> "list[Planned]":
        """What is made ahead, and as far as they are planned the generations of readers and the ones after them."""
        with self._lock:
            current, ahead = list(self._current.values()), [*chain.from_iterable(self._ahead.values())]
        near = [(task, sorted({n for each in numbers for n in (each, each + 1)})) for task, numbers in current]
        planned = [(task, task.planned(each)) for task, numbers in near for each in numbers]
        found = [*((task, active) for task, active in planned if active is not None), *ahead]
        return list({id(active): (task, active) for task, active in found}.values())

    def _decide(self) -> dict[int, KeptWays | None]:
        works = self._planned()
        weighed = [(work, self._while_open(task.index_of(work.plan))) for task, work in works]
        dispatcher = self._dispatcher()
        return self._keeper.decide(weighed, lambda: dispatcher.lock, dispatcher.making)

    def _while_open(self, index_of: Callable[[int], MediaIndex]) -> Callable[[int], MediaIndex]:
        """The same until the cache is closed, which must not wait until many videos were weighed."""

        def index(row: int) -> MediaIndex:
            if self.closed:
                raise Closed("the cache was closed; open it again")
            return index_of(row)

        return index


Planned = tuple[Task, ActiveGeneration]
"""A task, and a generation of it that is planned."""


def _generations(task: Task, epochs: Iterable[int]) -> tuple[int, ...]:
    """The generations of some epochs; who is through with all of them needs none."""
    return tuple(sorted({task.generation_of(each) for each in epochs if each < task.spec.epochs}))
