"""Worker processes that run jobs: started once, watched, replaced when they die or hang.

Each worker is `python -m viewcache.materializer.worker` on one end of a socket pair, not a `multiprocessing` child: the
user's script is not imported again, so no `if __name__ == "__main__"` is asked of anybody, and nothing is inherited by
fork. Jobs travel pickled, between our own processes only; pixels never do: a worker writes into the store itself.
"""

import contextlib
import logging
import math
import os
import signal
import socket
import struct
import time
from collections.abc import Set
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Literal

from viewcache.materializer.child import start_child
from viewcache.materializer.job import Job, Made, Report
from viewcache.materializer.observe import Observer

__all__ = ["Event", "WorkerPool", "job_bytes"]

_log = logging.getLogger("viewcache.pool")

DEPTH = 4
"""Most jobs that one worker has begun: the one it is on, and those that are paused for it."""

GRACE_S = 30.0
"""Seconds without a word from a busy worker before it counts as hung, on top of the job's own estimate."""


def job_bytes(memory_bytes: int, workers: int) -> int:
    """Most raw bytes that one job may hold of the cache's memory; a worker has up to `DEPTH` of them begun."""
    return max(memory_bytes // workers // (DEPTH + 2), 128 << 20)


@dataclass(frozen=True, slots=True)
class Event:
    """What a worker said, or what became of it."""

    kind: Literal["made", "report", "died"]
    job: Job
    made: Made | None = None
    report: Report | None = None
    reason: str = ""
    """For ``died``: signal or exit status, in words."""
    worker: int = 0
    """Its process id."""
    fresh: bool = False
    """Whether this is the worker's first job, so that the process had to start for it."""


class _Worker:
    """One child process and the jobs that it has begun, the one it is on last."""

    def __init__(self, memory_bytes: int, op_modules: tuple[str, ...], grace_s: float) -> None:
        ours, theirs = socket.socketpair()
        # A job larger than the socket's buffer must not hold up the dispatcher for ever when the worker is stopped.
        seconds, fraction = divmod(grace_s, 1)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(fraction * 1e6)))
        with theirs:
            self.process = start_child(
                "viewcache.materializer.worker", theirs.fileno(), str(memory_bytes), str(os.getpid()), *op_modules
            )
        self.connection = Connection(ours.detach())
        self.jobs: list[Job] = []
        self.silent_since = 0.0
        self.asked_to_yield = 0
        """Number of the last job that was asked."""
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
            self.connection.send(replace(job, laps=True) if laps else job)
        except BlockingIOError:
            self.silent_since = -math.inf  # it does not listen: poll() gives it up at once
        except OSError:
            pass  # it died while idle: poll() sees its end and reports the job as died

    def kill(self) -> str:
        """End the process for certain and say how it ended."""
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        self.connection.close()
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-status).name}"
        return f"exit status {status}"


class WorkerPool:
    """A fixed number of workers, started on first use.

    Not thread-safe: one dispatcher thread owns it.
    """

    def __init__(
        self, workers: int, *, memory_bytes: int, op_modules: tuple[str, ...] = (), grace_s: float = GRACE_S
    ) -> None:
        """Set how many workers, the private memory of each in bytes, and the modules of the user's own operations."""
        self.observer = Observer()
        """Told of jobs and what becomes of them."""
        self._size = workers
        self._memory_bytes = memory_bytes
        self._op_modules = op_modules
        self._grace_s = grace_s
        self._workers: list[_Worker] = []
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)

    @property
    def size(self) -> int:
        """How many jobs run at once."""
        return self._size

    @property
    def busy(self) -> int:
        """How many workers have a job."""
        return sum(bool(worker.jobs) for worker in self._workers)

    def pids(self) -> list[int]:
        """Process ids of the workers that have been started."""
        return [worker.process.pid for worker in self._workers]

    def has_room(self, unwanted: Set[int] = frozenset()) -> bool:
        """Whether `submit` can take a job, if the jobs ``unwanted`` may be paused for it."""
        return self.busy < self._size or self._least(unwanted) is not None

    def submit(self, job: Job, unwanted: Set[int] = frozenset()) -> None:
        """Give a job to an idle worker, else to one whose job is among ``unwanted``, which pauses that for it.

        There must be one (`has_room`). Pausing loses nothing, where giving up a job loses what it has half made.
        """
        worker = next((worker for worker in self._workers if not worker.jobs), None)
        if worker is None and len(self._workers) < self._size:
            worker = _Worker(self._memory_bytes, self._op_modules, self._grace_s)
            self._workers.append(worker)
        worker = worker or self._least(unwanted)
        assert worker is not None, "there was no room for a job"
        paused = worker.number
        worker.give(job, laps=self.observer.laps)
        self.observer.given(job, worker.process.pid, paused)

    def _least(self, unwanted: Set[int]) -> _Worker | None:
        """The worker with the fewest paused jobs of those that may be interrupted."""
        able = [worker for worker in self._workers if worker.number in unwanted and len(worker.jobs) < DEPTH]
        return min(able, key=lambda worker: len(worker.jobs), default=None)

    def ask_to_yield(self, unwanted: Set[int]) -> None:
        """Ask the workers on these jobs to give them up: a reader waits, and nothing more can be paused."""
        for worker in self._workers:
            if worker.number in unwanted and worker.asked_to_yield != worker.number:
                worker.asked_to_yield = worker.number
                with contextlib.suppress(OSError):
                    worker.connection.send(worker.number)

    def wake(self) -> None:
        """Make a waiting `poll` return; may be called from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_in, b"x")

    def poll(self, timeout_s: float) -> list[Event]:
        """Wait for news of the workers, at most ``timeout_s`` seconds."""
        by_connection = {worker.connection: worker for worker in self._workers}
        ready = wait([*by_connection, self._wake_out], timeout=timeout_s)
        events: list[Event] = []
        for source in ready:
            if source is self._wake_out or isinstance(source, int):
                os.read(self._wake_out, 4096)
            elif isinstance(source, Connection):
                events += self._receive(by_connection[source])
        events += self._hung()
        for event in events:
            self.observer.heard(event)
        return events

    def _receive(self, worker: _Worker) -> list[Event]:
        events: list[Event] = []
        try:
            while True:
                number, said = worker.connection.recv()
                worker.silent_since = time.monotonic()
                job = next((job for job in worker.jobs if job.number == number), None)
                who = worker.process.pid, number == worker.first
                if job is not None and isinstance(said, Made):
                    events.append(Event("made", job, said, None, "", *who))
                elif job is not None and isinstance(said, Report):
                    worker.jobs.remove(job)
                    events.append(Event("report", job, None, said, "", *who))
                if not worker.connection.poll():
                    return events
        except (EOFError, OSError):
            return events + self._buried(worker, "")

    def _hung(self) -> list[Event]:
        now = time.monotonic()
        events: list[Event] = []
        for worker in list(self._workers):
            if worker.jobs and now - worker.silent_since > self._grace_s + worker.jobs[-1].estimate_s:
                events += self._buried(worker, "silent for too long, ")
        return events

    def _buried(self, worker: _Worker, before: str) -> list[Event]:
        self._workers.remove(worker)
        reason = before + worker.kill()
        _log.warning("worker %d ended: %s", worker.process.pid, reason, extra={"action": "worker_died"})
        return [Event("died", job, reason=reason, worker=worker.process.pid) for job in worker.jobs]

    def close(self) -> None:
        """End all workers; running jobs leave only temporary files, which are swept."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
        for fd in (self._wake_out, self._wake_in):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._wake_out = self._wake_in = -1  # a late `wake` must not write into what gets the number next
