"""Real workers that die, hang or fail: replaced, their jobs repeated, the clips right."""

import errno
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scheduling.harness import Harness, Reading, ScriptedPool, until
from viewcache.errors import Full, WorkerDied
from viewcache.failpoints import VARIABLE
from viewcache.materializer.scheduling import running
from viewcache.materializer.scheduling.demand import Fetched
from viewcache.materializer.scheduling.running import describe
from viewcache.materializer.workers.job import FolderTarget, Job
from viewcache.materializer.workers.pool import WorkerPool

pytestmark = pytest.mark.usefixtures("spawned")

Clips = dict[int, bytes]


def _pool(grace_s: float = 30.0) -> WorkerPool:
    return WorkerPool(1, memory_bytes=1 << 30, grace_s=grace_s)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Clips:
    """Every clip of an undisturbed run."""
    with Harness(tmp_path_factory.mktemp("undisturbed"), videos, _pool()) as harness:
        return harness.everything()


@pytest.fixture
def harness(store: Path, videos: Path) -> Iterator[Harness]:
    """A dispatcher with one real worker."""
    with Harness(store, videos, _pool()) as harness:
        yield harness


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
@pytest.mark.usefixtures("no_leaks")
def test_a_killed_worker_is_replaced(harness: Harness, clips: Clips, number: signal.Signals) -> None:
    """A worker that is killed while it has a job is replaced, the job repeated, and every clip is right."""
    pool = harness.pool
    reading = Reading(harness, [0], hold=True)
    until(lambda: bool(pool.pids()) and pool.busy == 1, "a worker to have a job")
    killed = pool.pids()[0]
    os.kill(killed, number)
    until(lambda: bool(pool.pids()) and killed not in pool.pids(), "the worker to be replaced")
    until(reading.got.is_set, "the clip")
    reading.release()
    assert reading.error is None
    assert harness.everything() == clips
    until(lambda: pool.busy == 0, "the jobs to end")
    harness.assert_counted()


def test_an_idle_worker_that_died_is_replaced(harness: Harness, clips: Clips) -> None:
    """A worker that is killed between two jobs costs nobody an error."""
    with harness.dispatcher.fetch(harness.active, [0]):
        pass
    until(lambda: harness.pool.busy == 0, "the job to end")
    os.kill(harness.pool.pids()[0], signal.SIGKILL)
    assert harness.everything() == clips


@pytest.mark.parametrize(
    "place", ["store.temp-made", "store.shard-written", "store.before-rename", "store.after-rename"]
)
def test_workers_that_keep_dying_while_they_publish(
    store: Path,
    videos: Path,
    clips: Clips,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every worker dies at its 6th object, before or after it is in its place: all clips are made, none is wrong."""
    monkeypatch.setenv(VARIABLE, f"{place}:6:kill")
    with Harness(store, videos, _pool()) as harness:
        assert harness.everything() == clips
        until(lambda: harness.pool.busy == 0, "the jobs to end")
        harness.assert_counted()
    deaths = [each for each in caplog.records if getattr(each, "action", "") == "worker_died"]
    assert len(deaths) >= 2
    assert all("SIGKILL" in each.getMessage() for each in deaths)
    assert not list((store / "tmp").iterdir())


def test_a_video_on_which_every_worker_dies(store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With policy `raise` the third death is WorkerDied, which names the file; the next read may try again."""
    monkeypatch.setenv(VARIABLE, "store.shard-written:1:kill")
    with Harness(store, videos, _pool()) as harness:
        with (
            pytest.raises(WorkerDied, match=r"v\d\.mp4.*3 workers.*SIGKILL"),
            harness.dispatcher.fetch(harness.active, [0]),
        ):
            pass
        harness.assert_counted()


def test_a_stopped_worker_is_replaced(store: Path, videos: Path, clips: Clips, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that hangs (SIGSTOP) is killed after its grace and its job repeated."""
    monkeypatch.setattr(running, "SECONDS_PER_FRAME", 0.01)
    with Harness(store, videos, _pool(grace_s=3.0)) as harness:
        reading = Reading(harness, [0])
        until(lambda: bool(harness.pool.pids()) and harness.pool.busy == 1, "a worker to have a job")
        stopped = harness.pool.pids()[0]
        os.kill(stopped, signal.SIGSTOP)
        assert reading.end() is None
        assert stopped not in harness.pool.pids()
        assert harness.everything() == clips


def test_a_worker_that_stops_while_idle_does_not_stop_the_dispatcher(harness: Harness) -> None:
    """A job larger than the socket's buffer, given to a worker that does not listen, is given up after the grace."""
    pool = WorkerPool(1, memory_bytes=1 << 30, grace_s=0.5)
    active = harness.active
    job = describe(1, {active.key(0): [(active, 0)]}, FolderTarget(harness.tier.root, False), lambda recipe, _: recipe)
    try:
        pool.submit(job)
        until(lambda: any(event.kind == "report" for event in pool.poll(0.1)), "the first job's report")
        os.kill(pool.pids()[0], signal.SIGSTOP)
        large = Job(2, job.uri, job.name, job.video_key, bytes(1 << 22), job.clips, job.target, estimate_s=0.1)
        pool.submit(large)
        until(lambda: any(event.kind == "died" for event in pool.poll(0.1)), "the worker to be given up")
        assert pool.busy == 0
    finally:
        pool.close()


def test_no_room_on_the_disk_and_then_room_again(harness: Harness, clips: Clips) -> None:
    """Files may grow no further: the reader gets Full; when there is room again the same worker makes the clip."""
    with harness.dispatcher.fetch(harness.active, [len(harness.active.plan) - 1]):
        pass
    until(lambda: harness.pool.busy == 0, "the job to end")
    (worker,) = harness.pool.pids()
    before = resource.prlimit(worker, resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    row = next(row for row in range(16) if harness.active.video(row) != harness.active.video(15))

    def read() -> Fetched:
        with harness.dispatcher.fetch(harness.active, [row], timeout_s=30) as fetched:
            return fetched

    for _ in range(3):
        with pytest.raises(Full, match="free disk space"):
            read()
    assert not list((harness.store / "tmp").iterdir())
    resource.prlimit(worker, resource.RLIMIT_FSIZE, before)
    assert len(read().copies) == 1
    assert harness.pool.pids() == [worker]
    assert harness.everything() == clips


def test_workers_killed_at_random(store: Path, videos: Path, clips: Clips, no_suspects: None) -> None:
    """Ten kills of workers, busy or just done, while the same is read again and again: nothing is lost or wrong."""
    killed: set[int] = set()
    pool = WorkerPool(2, memory_bytes=1 << 30)
    with Harness(store, videos, pool) as harness:
        while len(killed) < 10:
            reading = Reading(harness, list(range(4)))
            until(lambda: bool(set(pool.pids()) - killed), "a worker that lives")
            victim = max(set(pool.pids()) - killed)
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
            assert reading.end() is None
            harness.forget({harness.active.key(row) for row in range(4)})
        assert harness.everything() == clips
        until(lambda: pool.busy == 0, "the jobs to end")
        harness.assert_counted()


def test_what_a_dead_worker_left_need_not_be_removed_at_once(
    store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor is free when a worker has died: its unfinished files stay for now, and its job is done again."""
    pool = ScriptedPool()
    with Harness(store, videos, pool) as harness:

        def no_descriptors(dead_pid: int | None = None) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(harness.tier, "sweep", no_descriptors)
        reading = Reading(harness, [0])
        pool.die(pool.nth(0))
        again = pool.nth(1)
        pool.make(again)
        pool.end(again)
        assert reading.end() is None
