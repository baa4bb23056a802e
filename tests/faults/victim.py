"""A process that uses a cache until it is killed and says, line by line, what it has got: the victim of `test_kill`.

Run as `python -m tests.faults.victim STORE VIDEOS SETTINGS` in the root of the repository; SETTINGS is JSON, the fields
of `Life`. Lines: ``start`` · ``open`` · ``job PID…`` (workers, after one was given a job) · ``read EPOCH ITERATION
DIGEST`` · ``committed KEY…`` (said once the catalog has acknowledged them) · ``end`` (nobody killed it).
"""

import json
import os
import signal
import sys
from collections.abc import Set
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import viewcache
from tests.faults.caches import config, digest_of
from viewcache.api.session.cache import Cache
from viewcache.materializer.workers import start
from viewcache.materializer.workers.job import Job
from viewcache.materializer.workers.pool import Event, WorkerPool

__all__ = ["EPOCHS", "Life"]

EPOCHS = 4
"""Of the task: two generations, so that the later one is planned while the earlier one is read."""


@dataclass(frozen=True, slots=True)
class Life:
    """What a victim does."""

    budget: int = 10**8
    workers: int = 1
    rounds: int = 50
    """How often all batches are read before it ends by itself."""
    commit_every: int = 3
    """Batches between two acknowledged commits."""
    publish: bool = False
    """Publish a snapshot of the catalog after each of those commits."""
    dies_with_worker: bool = False
    """Kill itself when it hears that a worker died, before it does anything about it."""

    def config(self, store: Path, videos: Path) -> dict[str, object]:
        """Of its cache; with room for all nothing leaves, so that what was committed can be looked for."""
        trim = self.budget < Life().budget
        return config(store, videos, budget=self.budget, workers=self.workers, epochs=EPOCHS, eviction={"trim": trim})

    def command(self, store: Path, videos: Path) -> list[str]:
        """How to start it."""
        return [sys.executable, "-m", "tests.faults.victim", str(store), str(videos), json.dumps(asdict(self))]


def main() -> None:
    """Read all batches again and again."""
    store, videos, life = Path(sys.argv[1]), Path(sys.argv[2]), Life(**json.loads(sys.argv[3]))
    _say("start")
    with patch.object(start, "WorkerPool", _pool_of(life)):
        cache = viewcache.open(life.config(store, videos))
        _say("open")
        for _ in range(life.rounds):
            _read(cache, life)
    cache.close()
    _say("end")


def _read(cache: Cache, life: Life) -> None:
    number = 0
    for epoch in range(EPOCHS):
        for iteration in range(cache.task("t").iterations(epoch)):
            _say("read", epoch, iteration, digest_of(cache.read("t", epoch, iteration)))
            number += 1
            if number % life.commit_every == 0:
                known = list(cache.owner.ledger.copies())
                cache.catalog.flush()
                _say("committed", *known)
                if life.publish:
                    cache.catalog.publish_snapshot()


def _pool_of(life: Life) -> type[WorkerPool]:
    class Pool(WorkerPool):
        """Says who works, and passes a worker's death on."""

        def submit(self, job: Job, preemptible: Set[int] = frozenset()) -> None:
            super().submit(job, preemptible)
            _say("job", *self.pids())

        def poll(self, timeout_s: float) -> list[Event]:
            events = super().poll(timeout_s)
            if life.dies_with_worker and any(event.kind == "died" for event in events):
                os.kill(os.getpid(), signal.SIGKILL)
            return events

    return Pool


def _say(*words: object) -> None:
    """One write, so that lines of two threads stay whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


if __name__ == "__main__":
    main()
