"""A dispatcher put together by hand over a real catalog, store and plan, with a real or a scripted pool of workers."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Set
from pathlib import Path
from typing import Any, Self

import numpy as np

from tests.faults.caches import config
from viewcache.api.config.load import load
from viewcache.catalog import Catalog
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.reading.learning import Learning
from viewcache.materializer.scheduling.chooser import Chooser
from viewcache.materializer.scheduling.dispatcher import Dispatcher, DispatcherSettings
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.pressure import Pressure
from viewcache.materializer.storage.codecs import CodecChooser
from viewcache.materializer.storage.ledger import Ledger
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.tasks.opening import open_task
from viewcache.materializer.workers.job import FolderTarget, Job, Made, Report
from viewcache.materializer.workers.pool import Event, EventKind, Pool, WorkerPool
from viewcache.store import ArrayMeta, LocalTier, Written, read_slots

__all__ = ["WAIT_S", "Harness", "Looking", "Reading", "ScriptedPool", "Switched", "until"]

WAIT_S = 20.0
"""Longest that a test waits for something that takes milliseconds."""


def until(condition: Callable[[], bool], what: str, state: Callable[[], object] = lambda: "") -> None:
    """Wait for something that another thread does; fails the test after `WAIT_S`, and says the ``state`` of then."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for: {what} {state()}"
        time.sleep(0.001)


class Looking(threading.Thread, ABC):
    """Looks at something all the time while the ``with`` block lasts."""

    pause_s = 0.0
    """Between two looks."""

    def __init__(self) -> None:
        super().__init__(name="test-looking", daemon=True)
        self._over = threading.Event()

    @abstractmethod
    def look(self) -> None:
        """Look once."""

    def run(self) -> None:
        """Look again and again."""
        while not self._over.wait(self.pause_s):
            self.look()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop."""
        self._over.set()
        self.join()


class Switched(Pressure):
    """There is pressure on memory while the test says so."""

    def note(self, used_bytes: int) -> None:
        """Whatever is measured."""


class ScriptedPool(WorkerPool):
    """A pool without processes: the test says when a job's objects are made (of sevens) and when it ends."""

    def __init__(self, size: int = 1) -> None:
        super().__init__(size, memory_bytes=1 << 30)
        self.given: list[Job] = []
        """All jobs so far."""
        self.running: list[Job] = []
        self.asked: list[int] = []
        """Numbers of jobs that were asked to yield."""
        self._events: deque[Event] = deque()
        self._news = threading.Condition()
        self._woken = False
        """Since the last poll."""
        self.polls = 0
        """How often the dispatcher has come for news."""
        self.deaf = False
        """Say nothing more to the dispatcher: what workers did reaches it no more."""

    @property
    def busy(self) -> int:
        """How many jobs run now."""
        return len(self.running)

    def has_room(self, preemptible: Set[int] = frozenset()) -> bool:
        """Whether a worker is idle; nothing is paused here."""
        return self.busy < self.size

    def submit(self, job: Job, preemptible: Set[int] = frozenset()) -> None:
        """Note the job."""
        with self._news:
            self.given.append(job)
            self.running.append(job)

    def request_preemption(self, preemptible: Set[int]) -> None:
        """Note who was asked."""
        with self._news:
            self.asked += [job.number for job in self.running if job.number in preemptible - set(self.asked)]

    def wake(self) -> None:
        """End a poll, this one or the next."""
        with self._news:
            self._woken = True
            self._news.notify_all()

    def poll(self, timeout_s: float) -> list[Event]:
        """What the test said meanwhile."""
        with self._news:
            self.polls += 1
            if not self._events and not self._woken:
                self._news.wait(timeout_s)
            self._woken = False
            events = [] if self.deaf else list(self._events)
            self._events.clear()
            for event in events:
                if event.kind != "made":
                    self.running.remove(event.job)
            return events

    def write(self, job: Job, recipe: Recipe) -> Written:
        """Publish an object as a worker does, without saying so."""
        meta = ArrayMeta(recipe.shape, recipe.shape, recipe.codec, {})
        return job.target.write(recipe.key, np.full(recipe.shape, 7, np.uint8), meta)

    def make(self, job: Job, *keys: str) -> None:
        """Make some of a job's objects, or all of them."""
        for recipe in job.clips:
            if not keys or recipe.key in keys:
                self.say(Event(EventKind.MADE, job, made=Made(recipe.key, self.write(job, recipe), {})))

    def serve(self, enough: Callable[[], bool], what: str) -> None:
        """Make and end every job, each once, until the test has what it waits for."""
        served: set[int] = set()

        def step() -> bool:
            for job in [job for job in list(self.running) if job.number not in served]:
                served.add(job.number)
                self.make(job)
                self.end(job)
            return enough()

        until(step, what)
        until(lambda: served.isdisjoint(job.number for job in self.running), "the last job to end")

    def count_looks(self) -> Callable[[], int]:
        """How often the dispatcher has looked for work since now; asking makes it look again."""
        before = self.polls

        def looks() -> int:
            self.wake()
            return self.polls - before

        return looks

    def end(self, job: Job, report: Report | None = None) -> None:
        """The job is over."""
        self.say(Event(EventKind.REPORT, job, report=report or Report()))

    def die(self, job: Job) -> None:
        """Its worker is gone."""
        self.say(Event(EventKind.DIED, job, reason="killed by SIGKILL"))

    def say(self, event: Event) -> None:
        """Queue news."""
        with self._news:
            self._events.append(event)
            self._news.notify_all()

    def nth(self, number: int) -> Job:
        """The job with this ordinal from 0, when it has been given."""
        until(lambda: len(self.given) > number, f"job {number} to be given")
        return self.given[number]


class Reading(threading.Thread):
    """A reader in a thread: holds what it fetched until `release`."""

    def __init__(self, harness: "Harness", rows: list[int], *, hold: bool = False) -> None:
        super().__init__(name="test-reader", daemon=True)
        self._harness, self.rows = harness, rows
        self.cancelled = threading.Event()
        self.got = threading.Event()
        self._let_go = threading.Event()
        self.error: BaseException | None = None
        if not hold:
            self._let_go.set()
        waiting = harness.waiting()
        self.start()
        until(lambda: harness.waiting() > waiting or self.got.is_set() or self.error is not None, "a reader to wait")

    def run(self) -> None:
        """Fetch, hold, let go."""
        try:
            with self._harness.dispatcher.fetch(self._harness.active, self.rows, cancelled=self.cancelled):
                self.got.set()
                self._let_go.wait(WAIT_S)
        except BaseException as error:
            self.error = error

    def release(self) -> None:
        """Let go of what it holds and end."""
        self._let_go.set()
        self.end()

    def end(self) -> "BaseException | None":
        """Wait for its end; the error it got."""
        self.join(WAIT_S)
        assert not self.is_alive(), "a reader is stuck"
        return self.error


class Harness:
    """Everything below a session, for one task; use it as a context manager."""

    def __init__(
        self,
        store: Path,
        videos: Path,
        pool: Pool,
        *,
        budget: int = 10**8,
        reserve: int = 0,
        on_bad: str = "raise",
        ledger: type[Ledger] = Ledger,
        job_bytes: int = 1 << 28,
        pressure: Pressure | None = None,
        **more: Any,
    ) -> None:
        self.store = store
        self.pool = pool
        self.tier = LocalTier(store, budget)
        self.catalog = Catalog.open(str(store))
        self.ledger = ledger(self.catalog)
        self.tiers = Tiers([self.tier], self.ledger)
        parsed = load(config(store, videos, budget=budget, on_bad_video=on_bad, **more))
        self.task = open_task(parsed.cache, parsed.tasks[0], self.catalog, budget_bytes=budget)
        self.active: ActiveGeneration = self.task.generation(0)
        target = FolderTarget(self.tier.root, False)
        self.dispatcher = Dispatcher(
            self.ledger,
            self.tiers,
            pool,
            DispatcherSettings(target, CodecChooser({"local": "raw"}, list, Prices), job_bytes, reserve),
            lambda work, rows, why: self.task.substitute(self.active, rows, why, gone=False),
            Learning(self.catalog, lambda: [self.task]).learn,
            chooser=lambda board, settings: Chooser(board, settings, pressure),
        )

    @property
    def bound(self) -> int:
        """Most bytes of one clip."""
        return self.active.bound(0)

    @property
    def videos(self) -> tuple[str, ...]:
        """Content keys of all videos, by name."""
        return tuple(self.active.plan.videos.keys)

    def rows_of(self, video: str) -> list[int]:
        """All rows of a video."""
        return [row for row in range(len(self.active.plan)) if self.active.video(row) == video]

    def everything(self) -> dict[int, bytes]:
        """Row → pixels of all clips, read a batch at a time."""
        found: dict[int, bytes] = {}
        for start in range(0, len(self.active.plan), 4):
            rows = list(range(start, start + 4))
            out = np.empty((4, *self.active.plan.shape), np.uint8)
            with self.dispatcher.fetch(self.active, rows, timeout_s=60) as fetched:
                assert not read_slots(self.tier.root, [copy.stored for copy in fetched.copies], out)
            found |= {row: clip.tobytes() for row, clip in zip(rows, out, strict=True)}
        return found

    def waiting(self) -> int:
        """How many readers wait."""
        return len(self.dispatcher.state.demands)

    def assert_counted(self) -> None:
        """The count of the budget is what lies on disk, and nothing is promised, once what was said is worked off."""

        def counted() -> bool:
            return (self.tier.used_bytes, self.tier.reserved_bytes) == (self.tier.measure(), 0)

        until(counted, "the count of the budget to be what lies there")

    def forget(self, keys: Iterable[str]) -> None:
        """Treat objects as damaged: they are deleted and planned again."""
        for copy in self.ledger.hold(list(keys)) or []:
            self.ledger.release([copy])
            self.dispatcher.evictor.damaged(copy)

    def close(self) -> None:
        """Engine and catalog."""
        self.dispatcher.close()
        self.tiers.close()
        self.catalog.close()

    def __enter__(self) -> "Harness":
        """Itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()
