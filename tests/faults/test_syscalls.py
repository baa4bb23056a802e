"""Single system calls of a worker that kill it or fail: a full disk, a broken one, too many files.

A fault counts only if strace saw it happen.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import count, product
from pathlib import Path

import numpy as np
import pytest

from tests.faults.strace import Fault, Hits, injected, need_strace
from tests.scheduling.harness import Harness, until
from viewcache.errors import Broken, Full
from viewcache.materializer.workers.pool import WorkerPool
from viewcache.store import read_slots

pytestmark = pytest.mark.usefixtures("no_suspects")

CALLS = ("mkdir", "fallocate", "pwritev2", "ftruncate", "rename")
"""By which a worker writes an object."""

NO_ROOM = ("ENOSPC", "EDQUOT", "EFBIG", "EMFILE")

ROWS = range(8)
"""Of the plan: two batches."""

Clips = dict[int, bytes]


class Bench:
    """A harness with one worker that is ready, and faults for it."""

    def __init__(self, harness: Harness, logs: Path) -> None:
        self.harness = harness
        self._logs, self._numbers = logs, count()
        self.clips = self.read()
        """Of an undisturbed run."""

    def read(self, rows: Iterable[int] = ROWS) -> Clips:
        """Pixels of some rows, each asked for on its own."""
        found: Clips = {}
        for row in rows:
            out = np.empty((1, *self.harness.active.plan.shape), np.uint8)
            with self.harness.dispatcher.fetch(self.harness.active, [row], timeout_s=60) as fetched:
                assert not read_slots(self.harness.tier.root, [copy.stored for copy in fetched.copies], out)
            found[row] = out.tobytes()
        return found

    def forget(self) -> None:
        """Nothing lies in the store any more; the worker is idle and has done nothing wrong yet."""
        self.settle()
        self.harness.forget(list(self.harness.ledger.copies()))

    def settle(self) -> None:
        """The jobs have ended, what they left is counted, and nothing unfinished lies about."""
        until(lambda: self.harness.pool.busy == 0 and not self.harness.dispatcher.state.jobs, "the jobs to end")
        self.harness.assert_counted()
        assert not list((self.harness.store / "tmp").iterdir())

    def fault(self, fault: Fault) -> AbstractContextManager[Hits]:
        """Put a fault into the worker."""
        (worker,) = self.harness.pool.pids()
        return injected(worker, fault, self._logs / f"strace.{next(self._numbers)}")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, empty_store: Path, videos: Path) -> Iterator[Bench]:
    """One for all tests of this module: a worker takes longer to start than a test."""
    need_strace()
    folder = tmp_path_factory.mktemp("bench")
    store = Path(shutil.copytree(empty_store, folder / "store"))
    with Harness(store, videos, WorkerPool(1, memory_bytes=1 << 30)) as harness:
        yield Bench(harness, folder)


def assert_killed(bench: Bench, call: str, number: int) -> None:
    """A worker dies in a call, another takes its place, and every clip is right."""
    bench.forget()
    fault = Fault(call, "signal=SIGKILL", str(number))
    (before,) = bench.harness.pool.pids()
    with bench.fault(fault) as hits:
        assert bench.read() == bench.clips, fault
    assert hits.count() == 1, f"{fault}: the worker was not killed"
    assert before not in bench.harness.pool.pids()
    bench.settle()


@pytest.mark.parametrize("call", CALLS)
def test_a_worker_is_killed_in_a_call(bench: Bench, call: str) -> None:
    """Killed in a call by which it makes an object: the object is whole or not there, nothing unfinished is left."""
    assert_killed(bench, call, 3)


@pytest.mark.long
def test_a_worker_is_killed_in_every_call(bench: Bench) -> None:
    """The same in each call of its first eight objects."""
    for call, number in product(CALLS, range(1, len(ROWS) + 1)):
        assert_killed(bench, call, number)


def assert_told_and_recovers(bench: Bench, fault: Fault, error: str) -> None:
    """The reader gets an error that names the folder and the cure; without the fault the same worker goes on."""
    bench.forget()
    workers = bench.harness.pool.pids()
    with bench.fault(fault) as hits:
        with pytest.raises(Full if error in NO_ROOM else Broken) as told:
            bench.read()
        if "+" not in fault.when:
            assert bench.read() == bench.clips, f"{fault}: it should be over"
    assert hits.count() >= 1, f"{fault}: nothing was hit"
    assert str(bench.harness.store) in str(told.value), fault
    cure = "free disk space" if error in NO_ROOM else "is there and writable"
    assert cure in str(told.value), fault
    bench.settle()
    assert bench.read() == bench.clips, fault
    assert bench.harness.pool.pids() == workers, f"{fault}: an error is no reason to die"


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_every_call_of_a_worker_fails(bench: Bench, every: int) -> None:
    """Each call that an object takes, for each reason, the first time, the third, and for ever: told, and then over.

    Of the 75 ways each fourth, in which every call, every reason and every time are; in the nightly lane all.
    """
    ways = list(product(CALLS, (*NO_ROOM, "EIO"), ("1", "3", "1+")))[::every]
    assert all(len(set(each)) == count for each, count in zip(zip(*ways, strict=True), (5, 5, 3), strict=True))
    for call, error, when in ways:
        assert_told_and_recovers(bench, Fault(call, f"error={error}", when), error)


@pytest.mark.parametrize("when", ["1", "2", "3", "4", "1+"])
def test_too_many_open_files_are_no_bad_video(bench: Bench, when: str) -> None:
    """No descriptor is left for a video or an object: Full, and never a policy's substitute, which would stay."""
    bench.forget()
    with bench.fault(Fault("openat", "error=EMFILE", when)) as hits, pytest.raises(Full, match=r"ulimit -n"):
        bench.read()
    assert hits.count() >= 1
    bench.settle()
    assert bench.read() == bench.clips
