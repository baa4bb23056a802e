"""The machine of `machine` in a world that is not well: clocks jump, disks fill, workers hang, jobs are done twice.

All is real: a full disk is a limit of the kernel on what workers may write, a hung worker is stopped by a signal.
"""

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from tests.faults.caches import objects_of
from tests.faults.machine import BUDGETS, CacheMachine
from tests.faults.site import EPOCHS, Site, make_site
from tests.seeds import SEED, commit_seed
from viewcache.catalog import files
from viewcache.materializer.workers.job import Job, Made, PassingTarget
from viewcache.materializer.workers.make import make
from viewcache.store.tier import LOCAL

DAY_S = 86_400.0
EXAMPLES, STEPS = 10, 50
"""Sequences of steps in one part of the random run, and steps in each: a part has the time limit of a test."""
PARTS = [0, 1, *(pytest.param(part, marks=pytest.mark.long) for part in range(2, 20))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Made by one undisturbed run; in memory if there is such a file system: a flush costs more than a read."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="viewcache-", dir=memory if memory.is_dir() else None) as folder,
        patch.object(files, "RESERVE_BYTES", 1 << 20),
    ):
        yield make_site(Path(folder))


def of_files(job: Job) -> Job:
    """The part of a job whose objects are files: others pass through memory, and their places come round."""
    if not isinstance(job.target, PassingTarget):
        return job
    files = tuple(recipe for recipe in job.clips if recipe.key not in job.target.places)
    return replace(job, clips=files, target=job.target.folder)


class WorldMachine(CacheMachine):
    """A cache in a world that is not well."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._clock, self._ahead_s = time.time, 0.0
        time.time = lambda: self._clock() + self._ahead_s

    @rule(days=st.sampled_from([-1, 0, 1]))
    def clock_jump(self, days: int) -> None:
        """The clock of the wall is a day wrong from now on."""
        self._count("clock_jump")
        self._ahead_s = days * DAY_S

    @precondition(lambda self: self.hidden is None and not self.full)
    @rule(n=st.integers(0, 15))
    def duplicate_job(self, n: int) -> None:
        """A job is done once more whose objects are all there: nothing changes, not even a file."""
        self._settle()
        ledger, jobs = self._open_cache.owner.ledger, self._pool.jobs
        done = [
            job
            for job in map(of_files, jobs)
            if job.clips
            and not job.intermediates
            and not self.hurt & set(job.keys)
            and all(ledger.find(key, LOCAL) is not None for key in job.keys)
        ]
        if not done:
            return
        self._count("duplicate_job")
        before = {key: folder.stat().st_ino for key, folder in objects_of(self.store).items()}
        made = [said for said in make(done[n % len(done)], lambda: False) if isinstance(said, Made)]
        assert made
        assert all(each.written.existed for each in made)
        assert {key: folder.stat().st_ino for key, folder in objects_of(self.store).items()} == before

    # Not whether there are workers: that depends on the moment, and the same steps must be allowed each time.
    @precondition(lambda self: not self.full)
    @rule()
    def enospc_on(self) -> None:
        """No worker that there is can write any more; without one nothing is hit, and it does not count."""
        if self._pool.pids():
            self._count("enospc_on")
        self.full = True
        self._limit(64)

    @precondition(lambda self: self.full)
    @rule()
    def enospc_off(self) -> None:
        """There is room again."""
        self._count("enospc_off")
        self._make_room()

    def _limit(self, size: int) -> None:
        for pid in self._pool.pids():
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            except ProcessLookupError:
                continue

    def _make_room(self) -> None:
        if self.full:
            self._settle()
            self._limit(resource.RLIM_INFINITY)
            self.full = False

    def _close(self, *, look: bool = False) -> None:
        self._make_room()
        super()._close(look=look)

    def teardown(self) -> None:
        """Set the clock right."""
        try:
            super().teardown()
        finally:
            time.time = self._clock


def test_one_sequence_with_every_fault_of_the_world(site: Site) -> None:
    """Workers that hang and die, a clock that jumps, a full disk, a job done twice, lost power: one after the other."""
    machine = WorldMachine(site)
    machine.begin(BUDGETS[1], EPOCHS, 2, 1, 1)
    steps: list[Callable[[], None]] = [
        lambda: machine.kill_worker(0, True),
        lambda: machine.read_epoch(0),
        lambda: machine.clock_jump(1),
        lambda: machine.duplicate_job(0),
        machine.enospc_on,
        lambda: machine.read_epoch(3),
        machine.enospc_off,
        lambda: machine.read_epoch(3),
        lambda: machine.crash(BUDGETS[1], EPOCHS, 1),
        lambda: machine.kill_worker(2, False),
        lambda: machine.read_epoch(1),
    ]
    try:
        for step in steps:
            step()
            machine.budget_holds()
            machine.only_leases_hold()
    finally:
        machine.teardown()
    assert site.steps.keys() >= {"clock_jump", "duplicate_job", "enospc_on", "worker_hang", "kill_worker", "crash"}


@pytest.mark.parametrize("part", PARTS)
def test_any_sequence_of_faults(site: Site, part: int) -> None:
    """Whatever happens in whatever order: right bytes or the expected error, counts that agree, and the budget."""
    site.steps.clear()

    @seed(commit_seed() + part)
    def machine() -> WorldMachine:
        return WorldMachine(site)

    print(f"{SEED}={commit_seed()}, part {part}")
    run_machine(
        machine,  # type: ignore[arg-type]  # it takes any callable, says its documentation
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            phases=[Phase.generate],  # a step takes a second at worst: shrinking would take an hour
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{sum(site.steps.values())} steps: {dict(site.steps)}")  # seen with -s
    assert len(site.steps) >= 10, "too little happened"
