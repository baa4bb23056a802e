"""Workers that die in the middle of a job, in any way: no batch is lost, and work is soon on again.

A death counts only if a job died with the worker.
"""

import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.scheduling.harness import Harness, Reading, until
from viewcache.materializer.scheduling import running
from viewcache.materializer.workers.job import Job
from viewcache.materializer.workers.pool import Event, WorkerPool
from viewcache.store import read_slots

pytestmark = pytest.mark.usefixtures("no_suspects")

ROWS = list(range(8))

Die = Callable[[int], None]


class Watched(WorkerPool):
    """Remembers whose jobs died."""

    def __init__(self, grace_s: float = 30.0) -> None:
        super().__init__(2, memory_bytes=1 << 30, grace_s=grace_s)
        self.died: list[str] = []
        """Reasons, of deaths that cost a job."""
        self.given = 0
        """How many jobs so far."""
        self.last = 0
        """Process id of the worker that got the last one."""

    def poll(self, timeout_s: float) -> list[Event]:
        """Look at what goes by."""
        events = super().poll(timeout_s)
        self.died += [event.reason for event in events if event.kind == "died"]
        return events

    def submit(self, job: Job, preemptible: Set[int] = frozenset()) -> None:
        """Look who gets it."""
        super().submit(job, preemptible)
        self.last = next(pid for pid, worker in zip(self.pids(), self._workers, strict=True) if job in worker.jobs)
        self.given += 1


def by_signal(number: signal.Signals) -> Die:
    """Death by a signal."""
    return lambda pid: os.kill(pid, number)


def move(group: Path, pid: int) -> None:
    """Put a process into a control group."""
    (group / "cgroup.procs").write_text(str(pid))


@contextmanager
def starved() -> Iterator[Die]:
    """Death by the kernel, for want of memory in a group of processes that has none left."""
    root = next((path for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if path.is_dir()), None)
    if root is None or os.geteuid() != 0:
        pytest.skip("needs root and memory control groups")
    group = root / f"viewcache-test-{os.getpid()}"
    group.mkdir()
    limit = group / ("memory.limit_in_bytes" if (group / "memory.limit_in_bytes").exists() else "memory.max")
    if not limit.exists():
        group.rmdir()
        pytest.skip("memory control groups are not mounted here")
    limit.write_text(str(256 << 10))
    try:
        yield lambda pid: move(group, pid)
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()


def assert_survives(harness: Harness, pool: Watched, deaths: dict[str, Die], many: int) -> list[float]:
    """Kill busy workers until so many jobs of each kind have died with them; every clip stays right.

    Returns:
        Seconds from each death to the reader's clips.
    """
    clips, back, confirmed = read(harness), list[float](), Counter[str]()
    names = [name for _ in range(many) for name in deaths]
    for name in names:
        for _ in range(20):  # a job may be done before its worker is dead
            until(lambda: pool.busy == 0, "the jobs to end")
            harness.forget(list(harness.ledger.copies()))
            before, given = len(pool.died), pool.given
            reading = Reading(harness, ROWS)
            until(lambda given=given: pool.given > given, "a job to be given")  # type: ignore[misc]
            started = time.monotonic()
            deaths[name](pool.last)
            assert reading.end() is None
            took = time.monotonic() - started
            if len(pool.died) > before:
                confirmed[name] += 1
                back.append(took)
                break
        assert read(harness) == clips, name
    assert confirmed == dict.fromkeys(deaths, many), "too few deaths cost a job"
    until(lambda: pool.busy == 0, "the jobs to end")
    harness.assert_counted()
    assert not list((harness.store / "tmp").iterdir())
    return back


def read(harness: Harness) -> bytes:
    """Pixels of `ROWS`."""
    out = np.empty((len(ROWS), *harness.active.plan.shape), np.uint8)
    with harness.dispatcher.fetch(harness.active, ROWS, timeout_s=60) as fetched:
        assert not read_slots(harness.tier.root, [copy.stored for copy in fetched.copies], out)
    return out.tobytes()


SIGNALS = {each.name: by_signal(each) for each in (signal.SIGKILL, signal.SIGSEGV)}


def test_busy_workers_are_killed(store: Path, videos: Path) -> None:
    """Twelve workers die with a job in hand, killed or by a fault of their own: each batch arrives, none is wrong."""
    pool = Watched()
    with Harness(store, videos, pool) as harness:
        assert_survives(harness, pool, SIGNALS, 6)
    assert {each.split()[-1] for each in pool.died} == set(SIGNALS)


@pytest.mark.long
def test_a_hundred_busy_workers_die(store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same 25 times each: killed, by a fault of their own, stopped, and for want of memory; back in a second."""
    monkeypatch.setattr(running, "SECONDS_PER_FRAME", 0.01)
    pool = Watched(grace_s=2.0)
    with Harness(store, videos, pool) as harness, starved() as starve:
        back = assert_survives(harness, pool, SIGNALS | {"memory": starve}, 25)
        stopped = assert_survives(harness, pool, {"stopped": by_signal(signal.SIGSTOP)}, 25)
    print(f"\nback after {statistics.median(back):.2f} s, at most {max(back):.2f}; stopped {max(stopped):.2f}")
    assert statistics.median(back) < 1.0
