"""Real pools of one worker that stands still, with whatever it is given, until the test lets it go."""

import os
import signal
from abc import abstractmethod
from collections.abc import Callable, Set

from viewcache.materializer.workers.job import Job, Made, Report
from viewcache.materializer.workers.pool import Event, JobObserver, Pool, WorkerPool
from viewcache.materializer.workers.thread_pool import ThreadPool

__all__ = ["KINDS", "STOPPED", "StoppedPool", "StoppedProcess", "StoppedThread", "plain_pool"]

KINDS = ("processes", "threads")


class StoppedPool(Pool):
    """Notes what goes in and out; the worker stands from its first job until `go`."""

    def __init__(self) -> None:
        self.given: list[Job] = []
        self.reports: list[tuple[int, Report]] = []
        """(number of the job, report) in the order of their coming."""
        self.made: list[tuple[int, Made]] = []
        """(number of the job, what was made) in the order of their coming."""

    @abstractmethod
    def stop(self) -> None:
        """Let the worker that has just got its first job stand."""

    @abstractmethod
    def go(self) -> None:
        """Let it run."""

    def submit(self, job: Job, preemptible: Set[int] = frozenset()) -> None:
        """Give the job, and stop the worker if it is the first."""
        super().submit(job, preemptible)
        if not self.given:
            self.stop()
        self.given.append(job)

    def poll(self, timeout_s: float) -> list[Event]:
        """Keep what was said."""
        events = super().poll(timeout_s)
        self.reports += [(each.job.number, each.report) for each in events if each.report is not None]
        self.made += [(each.job.number, each.made) for each in events if each.made is not None]
        return events

    def asked(self) -> set[int]:
        """Numbers of the jobs that the worker has been asked to give up."""
        return {number for worker in self._workers for number in worker.asked}


class StoppedProcess(StoppedPool, WorkerPool):
    """A process under SIGSTOP; what it is given lies in its socket."""

    def __init__(self, observer: JobObserver | None = None) -> None:
        WorkerPool.__init__(self, 1, memory_bytes=1 << 30, observer=observer)
        StoppedPool.__init__(self)
        self._stopped = 0

    def stop(self) -> None:
        """Stop it."""
        (self._stopped,) = self.pids()
        os.kill(self._stopped, signal.SIGSTOP)

    def go(self, number: signal.Signals = signal.SIGCONT) -> None:
        """Let it run, or kill it."""
        os.kill(self._stopped, number)


class StoppedThread(StoppedPool, ThreadPool):
    """A thread whose post is held back."""

    def __init__(self, observer: JobObserver | None = None) -> None:
        ThreadPool.__init__(self, 1, observer=observer)
        StoppedPool.__init__(self)
        self._post: list[Job | int] = []
        self._deliver: Callable[[Job | int], None] = self._post.append

    def submit(self, job: Job, preemptible: Set[int] = frozenset()) -> None:
        """Start the worker, hold its post back, then give the job."""
        if not self._workers:
            worker = self._start()
            self._really = worker.send
            worker.send = lambda what: self._deliver(what)  # type: ignore[method-assign]
            self._workers.append(worker)
        super().submit(job, preemptible)

    def stop(self) -> None:
        """It has not got anything yet."""

    def go(self) -> None:
        """Give it all that was held back."""
        self._deliver = self._really
        for what in self._post:
            self._really(what)


def plain_pool(kind: str, workers: int = 1) -> Pool:
    """A pool of one kind."""
    return ThreadPool(workers) if kind == "threads" else WorkerPool(workers, memory_bytes=1 << 30)


STOPPED: dict[str, Callable[..., StoppedPool]] = {"processes": StoppedProcess, "threads": StoppedThread}
