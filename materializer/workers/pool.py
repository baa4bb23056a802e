"""Workers that run jobs: started once, watched, replaced when they die or hang.

`Pool` is what the dispatcher sees. `WorkerPool` has processes: each is `python -m
viewcache.materializer.workers.worker` on one end of a socket pair, not a `multiprocessing` child: the user's script is
not imported again, so no `if __name__ == "__main__"` is asked of anybody, and nothing is inherited by fork. Jobs travel
pickled, between our own processes only; pixels never do: a worker writes into the store itself.
"""

import contextlib
import logging
import math
import os
import select
import signal
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Protocol

from viewcache.errors import Full
from viewcache.materializer.child import start_child
from viewcache.materializer.limits import private_bytes
from viewcache.materializer.op_workers.sources import OpSources
from viewcache.materializer.workers.job import Begun, Job, Made, Report
from viewcache.materializer.workers.post import Post

__all__ = ["GRACE_S", "Event", "Held", "JobObserver", "Message", "Pool", "Worker", "WorkerPool", "job_bytes"]

_log = logging.getLogger("viewcache.pool")

DEPTH = 4
"""Most jobs that one worker has begun: the one it is on, and those that are paused for it."""

MEASURED_S = 0.05
"""How old a measurement of a worker's memory may be: a job is chosen in a fraction of what reading /proc takes."""

GRACE_S = 30.0
"""Seconds without a word from a busy worker before it counts as hung, on top of the job's own estimate."""

_NO_OPS = OpSources()

Message = tuple[int, Begun | Made | Report]
"""What a worker says: the number of a job, and what became of it."""


def job_bytes(memory_bytes: int, workers: int) -> int:
    """Most raw bytes that one job may hold of the cache's memory; a worker has up to `DEPTH` of them begun."""
    return max(memory_bytes // workers // (DEPTH + 2), 128 << 20)


class EventKind(StrEnum):
    """What became of a job: an object of it was made, it is over, or its worker died."""

    MADE = "made"
    REPORT = "report"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class Event:
    """What a worker said, or what became of it."""

    kind: EventKind
    job: Job
    made: Made | None = None
    report: Report | None = None
    reason: str = ""
    """For ``died``: signal or exit status, in words."""
    worker: int = 0
    """Its id (`Worker.id`)."""
    begun: str = ""
    """For ``died``: content key of the image that the job had begun; "" of one that names none."""
    fresh: bool = False
    """Whether this is the worker's first job, so that it had to start for it."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one worker holds in memory."""

    jobs: tuple[int, ...]
    """Numbers of the jobs that it has begun."""
    bytes: int
    """Measured, above its size without a job; 0 where that cannot be told."""


class Worker(ABC):
    """One that runs jobs, and the jobs that it has begun, the one it is on last."""

    post: Post | None = None
    """What becomes readable when it says something; None = it wakes the pool."""

    def __init__(self) -> None:
        """Start idle."""
        self.jobs: list[Job] = []
        self.silent_since = 0.0
        self.asked: set[int] = set()
        """Numbers of the jobs that it was asked to give up."""
        self.begun: dict[int, str] = {}
        """Number of a job that names its images → content key of the one that it has begun."""
        self.first = 0
        """Number of its first job."""

    @property
    def number(self) -> int:
        """Number of the job that it is on; 0 = none."""
        return self.jobs[-1].number if self.jobs else 0

    def give(self, job: Job, *, laps: bool = False) -> None:
        """Send a job; it goes before what the worker is on. With ``laps`` it says when each stage was on."""
        self.jobs.append(job)
        self.first = self.first or job.number
        self.silent_since = time.monotonic()
        try:
            self.send(replace(job, laps=True) if laps else job)
        except BlockingIOError:
            self.silent_since = -math.inf  # it does not listen: poll() gives it up at once
        except OSError:
            pass  # it died while idle: poll() sees its end and reports the job as died

    def ask(self, number: int) -> None:
        """Ask, once, that a job be given up."""
        if number not in self.asked:
            self.asked.add(number)
            with contextlib.suppress(OSError):
                self.send(number)

    def on_message(self, number: int, message: Begun | Made | Report) -> Iterator[Event]:
        """Take what it said of a job; a report ends the job."""
        self.silent_since = time.monotonic()
        job = next((job for job in self.jobs if job.number == number), None)
        if job is not None and isinstance(message, Begun):
            self.begun[number] = message.image
        elif job is not None and isinstance(message, Made):
            yield Event(EventKind.MADE, job, made=message, worker=self.id, fresh=number == self.first)
        elif job is not None and isinstance(message, Report):
            self.jobs.remove(job)
            self.asked.discard(number)
            self.begun.pop(number, None)
            yield Event(EventKind.REPORT, job, report=message, worker=self.id, fresh=number == self.first)

    @abstractmethod
    def send(self, what: Job | int) -> None:
        """Send a job, or the number of one to give up.

        Raises:
            BlockingIOError: it does not listen.
            OSError: it is gone.
        """

    @abstractmethod
    def receive(self) -> Iterator[Message]:
        """What it has said and nobody has heard yet; does not wait.

        Raises:
            EOFError: it has ended.
            OSError: it has ended.
        """

    @abstractmethod
    def end(self) -> str:
        """End it as far as that is possible, and say how it ended."""

    @property
    @abstractmethod
    def id(self) -> int:
        """What the system calls it: a process id, or that of a thread, which no process has at the time."""

    def held_bytes(self) -> int:
        """Bytes of memory above its size without a job, measured; 0 where that cannot be told."""
        return 0


class JobObserver(Protocol):
    """Who is told of jobs. Its methods are called by the dispatcher's thread, and must not raise or wait."""

    laps: bool
    """Whether workers shall note when each stage was on, not only how long it took."""

    def given(self, job: Job, worker: int, paused: int) -> None:
        """A job was given to the worker with this id, which pauses job ``paused`` for it (0 = none)."""

    def on_event(self, event: Event) -> None:
        """A worker said something, or died."""


class Pool(ABC):
    """A fixed number of workers, started on first use.

    Not thread-safe: one dispatcher thread owns it.
    """

    def __init__(self, workers: int, grace_s: float = GRACE_S, observer: JobObserver | None = None) -> None:
        """Start no worker yet.

        Args:
            workers: how many.
            grace_s: seconds of silence after which a busy one counts as hung.
            observer: who is told of jobs; None = nobody.
        """
        self._observer = observer
        self._size = workers
        self._grace_s = grace_s
        self._workers: list[Worker] = []
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        self._waiting = select.poll()
        """On the pipe, and on what worker processes say."""
        self._waiting.register(self._wake_out, select.POLLIN)

    @abstractmethod
    def _start(self) -> Worker:
        """Start one more worker."""

    @property
    def size(self) -> int:
        """How many jobs run at once."""
        return self._size

    @property
    def busy(self) -> int:
        """How many workers have a job."""
        return sum(bool(worker.jobs) for worker in self._workers)

    def pids(self) -> list[int]:
        """Process ids of the workers that have been started; none where they are no processes of their own."""
        return []

    def held(self) -> list[Held]:
        """What the busy workers hold in memory."""
        busy = [worker for worker in self._workers if worker.jobs]
        return [Held(tuple(job.number for job in worker.jobs), worker.held_bytes()) for worker in busy]

    def begun(self) -> list[tuple[int, ...]]:
        """Numbers of each busy worker's jobs, the one it is on last."""
        return [tuple(job.number for job in worker.jobs) for worker in self._workers if worker.jobs]

    def has_room(self, preemptible: Set[int] = frozenset()) -> bool:
        """Whether `submit` can take a job, if the jobs ``preemptible`` may be paused for it."""
        return self.busy < self._size or self._least(preemptible) is not None

    def submit(self, job: Job, preemptible: Set[int] = frozenset()) -> None:
        """Give a job to an idle worker, else to one whose job is among ``preemptible``, which pauses that for it.

        There must be one (`has_room`). Pausing loses nothing, where giving up a job loses what it has half made.

        Raises:
            Full: a worker has to be started, and the system has no descriptor, process or thread for it now.
        """
        worker = next((worker for worker in self._workers if not worker.jobs), None)
        if worker is None and len(self._workers) < self._size:
            worker = self._started()
            self._workers.append(worker)
        worker = worker or self._least(preemptible)
        assert worker is not None, "there was no room for a job"
        paused = worker.number
        worker.give(job, laps=self._observer is not None and self._observer.laps)
        if self._observer is not None:
            self._observer.given(job, worker.id, paused)

    def _started(self) -> Worker:
        try:
            worker = self._start()
        except (OSError, RuntimeError) as error:  # threads that cannot be started are a RuntimeError
            raise Full(
                f"no worker could be started: {error}; close files, or raise the limit (ulimit -n, -u)"
            ) from error
        if worker.post is not None:
            self._waiting.register(worker.post, select.POLLIN)
        return worker

    def _least(self, preemptible: Set[int]) -> Worker | None:
        """The worker with the fewest paused jobs of those that may be interrupted."""
        able = [worker for worker in self._workers if worker.number in preemptible and len(worker.jobs) < DEPTH]
        return min(able, key=lambda worker: len(worker.jobs), default=None)

    def request_preemption(self, preemptible: Set[int]) -> None:
        """Ask the workers on these jobs to give them up: a reader waits, and nothing more can be paused."""
        for worker in self._workers:
            if worker.number in preemptible:
                worker.ask(worker.number)

    def cancel(self, numbers: Set[int]) -> None:
        """Ask that these jobs be given up, also where they are paused: nobody wants what they make."""
        for worker in self._workers:
            for job in worker.jobs:
                if job.number in numbers:
                    worker.ask(job.number)

    def wake(self) -> None:
        """Make a waiting `poll` return; may be called from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_in, b"x")

    def poll(self, timeout_s: float) -> list[Event]:
        """Wait for news of the workers, at most ``timeout_s`` seconds."""
        ready = {fd for fd, _ in self._waiting.poll(1e3 * timeout_s)}
        if self._wake_out in ready:
            os.read(self._wake_out, 4096)
        said = [worker for worker in self._workers if worker.post is None or worker.post.fileno() in ready]
        events = [event for worker in said for event in self._receive(worker)] + self._hung()
        if self._observer is not None:
            for event in events:
                self._observer.on_event(event)
        return events

    def _receive(self, worker: Worker) -> list[Event]:
        events: list[Event] = []
        try:
            for number, message in worker.receive():
                events += worker.on_message(number, message)
        except (EOFError, OSError):
            events += self._remove_dead(worker, "")
        return events

    def _hung(self) -> list[Event]:
        now = time.monotonic()
        events: list[Event] = []
        for worker in list(self._workers):
            if worker.jobs and now - worker.silent_since > self._grace_s + worker.jobs[-1].estimate_s:
                events += self._remove_dead(worker, "silent for too long, ")
        return events

    def _remove_dead(self, worker: Worker, before: str) -> list[Event]:
        self._workers.remove(worker)
        if worker.post is not None:
            self._waiting.unregister(worker.post)
        reason = before + worker.end()
        _log.warning("a worker ended: %s", reason, extra={"action": "worker_died"})
        died = partial(Event, EventKind.DIED, reason=reason, worker=worker.id)
        return [died(job, begun=worker.begun.get(job.number, "")) for job in worker.jobs]

    def close(self) -> bool:
        """End all workers; running jobs leave only temporary files, which are swept. True if all have ended."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        for fd in (self._wake_out, self._wake_in):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._wake_out = self._wake_in = -1  # a late `wake` must not write into what gets the number next
        return True


class _Process(Worker):
    """A child process."""

    post: Post

    def __init__(self, memory_bytes: int, ops: OpSources, grace_s: float) -> None:
        super().__init__()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._open(ours, theirs, memory_bytes, ops, grace_s)
        self._idle_bytes: int | None = None
        """Its size when it had loaded all that it needs, and before any job; None until it says so."""
        self._held_bytes, self._measured_at = 0, -math.inf

    def _open(
        self,
        ours: socket.socket,
        theirs: socket.socket,
        memory_bytes: int,
        ops: OpSources,
        grace_s: float,
    ) -> None:
        # A job larger than the socket's buffer must not hold up the dispatcher for ever when the worker is stopped.
        seconds, fraction = divmod(grace_s, 1)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(fraction * 1e6)))
        self.process = start_child(
            "viewcache.materializer.workers.worker",
            theirs.fileno(),
            str(memory_bytes),
            str(os.getpid()),
            ops.to_text(),
        )
        self.post = Post(socket.socket(fileno=ours.detach()))

    @property
    def id(self) -> int:
        return self.process.pid

    def held_bytes(self) -> int:
        """Its anonymous memory above its size before any job."""
        now = time.monotonic()
        if self._idle_bytes is not None and now - self._measured_at > MEASURED_S:
            self._held_bytes, self._measured_at = max(0, private_bytes(self.process.pid) - self._idle_bytes), now
        return self._held_bytes

    def send(self, what: Job | int) -> None:
        self.post.send(what)

    def receive(self) -> Iterator[Message]:
        for message in self.post.receive():
            if isinstance(message, int):
                self._idle_bytes, self.silent_since = message, time.monotonic()
            else:
                yield message

    def end(self) -> str:
        """Kill it, for certain."""
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        self.post.close()
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"process {self.process.pid} was killed by {signal.Signals(-status).name}"
        return f"process {self.process.pid} had exit status {status}"


class WorkerPool(Pool):
    """Worker processes: a death, a hang or too much memory of one harms nobody else."""

    def __init__(
        self,
        workers: int,
        *,
        memory_bytes: int,
        ops: OpSources = _NO_OPS,
        grace_s: float = GRACE_S,
        observer: JobObserver | None = None,
    ) -> None:
        """Set how many workers, the private memory of each in bytes, and where the user's own operations come from."""
        super().__init__(workers, grace_s + ops.silent_s, observer)
        self._memory_bytes = memory_bytes
        self._ops = ops

    def _start(self) -> Worker:
        return _Process(self._memory_bytes, self._ops, self._grace_s)

    def pids(self) -> list[int]:
        """Process ids of the workers that have been started."""
        return [worker.process.pid for worker in self._workers if isinstance(worker, _Process)]
