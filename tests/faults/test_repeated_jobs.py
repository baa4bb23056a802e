"""A job that is done again, twice at a time, or in another order: same bytes, one row."""

import random
import shutil
from collections import deque
from collections.abc import Set
from dataclasses import replace
from pathlib import Path

import pytest

from tests.disk import counted
from tests.faults.caches import objects_of
from tests.scheduling.harness import Harness
from viewcache.catalog import Catalog
from viewcache.materializer.workers.job import FolderTarget, Job, Made
from viewcache.materializer.workers.pool import WorkerPool
from viewcache.store import physical_of

ROWS = range(16)
"""All of the plan: every video, twice an epoch."""


class Noting(WorkerPool):
    """Keeps the jobs that it is given."""

    def __init__(self) -> None:
        super().__init__(1, memory_bytes=1 << 30)
        self.jobs: list[Job] = []

    def submit(self, job: Job, preemptible: Set[int] = frozenset()) -> None:
        """Note it, and have it done."""
        self.jobs.append(job)
        super().submit(job, preemptible)


def contents(store: Path) -> dict[str, dict[str, bytes]]:
    """Key → name → bytes of every file of every object."""
    return {
        key: {file.name: file.read_bytes() for file in folder.iterdir()} for key, folder in objects_of(store).items()
    }


def run(jobs: list[Job], workers: int) -> list[Made]:
    """Have jobs done by so many workers at a time, and collect what they say was made."""
    pool, waiting, left = WorkerPool(workers, memory_bytes=1 << 30), deque(jobs), len(jobs)
    made: list[Made] = []
    try:
        while left:
            while waiting and pool.has_room():
                pool.submit(waiting.popleft())
            for event in pool.poll(10.0):
                assert event.kind != "died"
                assert event.report is None or not event.report.error
                left -= event.kind == "report"
                made += [event.made] if event.made is not None else []
    finally:
        pool.close()
    return made


@pytest.mark.parametrize(("seed", "workers"), [(0, 1), (1, 2), (2, 2)])
def test_jobs_are_done_again(
    store: Path, empty_store: Path, tmp_path: Path, videos: Path, seed: int, workers: int
) -> None:
    """Each job one to three times, in any order, also two workers on the same one: each object as if made once."""
    dice, pool = random.Random(seed), Noting()
    with Harness(store, videos, pool) as harness, harness.dispatcher.fetch(harness.active, ROWS, timeout_s=60):
        expected = contents(store)
    again = Path(shutil.copytree(empty_store, tmp_path / "again"))
    jobs = [job for job in pool.jobs for _ in range(dice.randint(1, 3))]
    if workers == 1:
        dice.shuffle(jobs)  # else the same ones stay side by side
    target = FolderTarget(str(again), False)
    made = run([replace(job, number=number, target=target) for number, job in enumerate(jobs, 1)], workers)
    assert len(made) > len({each.key for each in made}), "nothing was made twice"
    assert contents(again) == expected
    assert not list((again / "tmp").iterdir())
    with Harness(again, videos, pool) as harness:
        rows = {harness.active.key(row): row for row in ROWS}
        for each in made:
            harness.ledger.add(harness.active.copy(each, rows[each.key]), each.written)
    with Catalog.open(str(again)) as catalog:
        stored = catalog.query("read_stored", tier="local").to_pylist()
    assert sorted(row["key"] for row in stored) == sorted(expected)
    assert {row["key"]: row["bytes"] for row in stored} == {key: counted(again / physical_of(key)) for key in expected}
