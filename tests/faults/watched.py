"""Workers of the state machine: what they were given is kept in mind."""

import math
from collections.abc import Set

from viewcache.materializer.op_workers.sources import OpSources
from viewcache.materializer.workers.job import Job
from viewcache.materializer.workers.pool import Event, JobObserver, WorkerPool

__all__ = ["WatchedPool"]


class WatchedPool(WorkerPool):
    """A pool that keeps in mind what it was given."""

    def __init__(
        self,
        workers: int,
        *,
        memory_bytes: int,
        ops: OpSources | None = None,
        observer: JobObserver | None = None,
    ) -> None:
        super().__init__(workers, memory_bytes=memory_bytes, ops=ops or OpSources(), observer=observer)
        self.jobs: list[Job] = []
        """All that were given, the last one last."""
        self.stopped: set[int] = set()
        """Process ids of workers that the test stopped: for them the time of patience is over at once."""

    def submit(self, job: Job, preemptible: Set[int] = frozenset()) -> None:
        """Note it."""
        self.jobs.append(job)
        super().submit(job, preemptible)

    def _hung(self) -> list[Event]:
        for worker in self._workers:
            if worker.id in self.stopped:
                worker.silent_since = -math.inf
        return super()._hung()
