"""Workers that go from one closed cache to the next: starting one takes longer than most steps of the state machine."""

import math
from collections.abc import Set
from typing import ClassVar

from tests.faults.site import state_of
from viewcache.materializer import pool
from viewcache.materializer.job import Job
from viewcache.materializer.pool import Event, WorkerPool

__all__ = ["RecycledPool"]


class RecycledPool(WorkerPool):
    """A pool that takes idle workers over from pools that were closed before, and keeps in mind what it was given."""

    MOST = 4
    """Spare workers that are kept."""
    spare: ClassVar[list[pool._Process]] = []

    def __init__(self, workers: int, *, memory_bytes: int, op_modules: tuple[str, ...] = ()) -> None:
        super().__init__(workers, memory_bytes=memory_bytes, op_modules=op_modules)
        self.jobs: list[Job] = []
        """All that were given, the last one last."""
        self.stopped: set[int] = set()
        """Process ids of workers that the test stopped: for them the time of patience is over at once."""
        while self.spare and len(self._workers) < workers:
            worker = self.spare.pop()
            if state_of(worker.process.pid) in "RSD":
                self._workers.append(worker)
            else:
                worker.end()

    def submit(self, job: Job, unwanted: Set[int] = frozenset()) -> None:
        """Note it."""
        self.jobs.append(job)
        super().submit(job, unwanted)

    def _hung(self) -> list[Event]:
        for worker in self._processes():
            if worker.process.pid in self.stopped:
                worker.silent_since = -math.inf
        return super()._hung()

    def close(self) -> bool:
        """Keep those that are idle and well."""
        for worker in self._processes():
            if not worker.jobs and len(self.spare) < self.MOST and state_of(worker.process.pid) in "RSD":
                self._workers.remove(worker)
                self.spare.append(worker)
        return super().close()

    def _processes(self) -> list[pool._Process]:
        return [worker for worker in self._workers if isinstance(worker, pool._Process)]

    @classmethod
    def end(cls) -> None:
        """End those that are spare."""
        while cls.spare:
            cls.spare.pop().end()
