"""Jobs that nobody waits for are paused for those that somebody waits for: real workers, nothing decoded twice."""

import os
import signal
from collections.abc import Iterator, Set
from itertools import pairwise
from pathlib import Path

import pytest

from tests.engine.kitchen import WAIT_S, Kitchen, Reading, until
from tests.engine.trace_events import check, end, inner, read, tracks
from viewcache.materializer import pool as pools
from viewcache.materializer.job import Job, Report
from viewcache.materializer.pool import Event, WorkerPool
from viewcache.materializer.trace import Trace


class StoppedPool(WorkerPool):
    """One worker that is stopped as soon as it is started, until `go`; what it is given lies in its socket."""

    def __init__(self) -> None:
        super().__init__(1, memory_bytes=1 << 30)
        self.given: list[Job] = []
        self.reports: list[tuple[int, Report]] = []
        """(number of the job, report) in the order of their coming."""
        self._stopped: int | None = None

    def submit(self, job: Job, unwanted: Set[int] = frozenset()) -> None:
        """Give the job, and stop the worker if it is the first."""
        super().submit(job, unwanted)
        if self._stopped is None:
            (self._stopped,) = self.pids()
            os.kill(self._stopped, signal.SIGSTOP)
        self.given.append(job)

    def poll(self, timeout_s: float) -> list[Event]:
        """Keep the reports."""
        events = super().poll(timeout_s)
        self.reports += [(each.job.number, each.report) for each in events if each.report is not None]
        return events

    def has_asked(self) -> bool:
        """Whether the worker has been asked to give up its job."""
        return any(worker.asked_to_yield for worker in self._workers)

    def go(self, number: signal.Signals = signal.SIGCONT) -> None:
        """Let the worker run, or kill it."""
        assert self._stopped is not None
        os.kill(self._stopped, number)


@pytest.fixture
def pool() -> StoppedPool:
    """A worker that waits for `go`."""
    return StoppedPool()


@pytest.fixture
def kitchen(store: Path, videos: Path, pool: StoppedPool) -> Iterator[Kitchen]:
    """An engine with that worker, which has got a job of look-ahead."""
    with Kitchen(store, videos, pool) as kitchen:
        kitchen.engine.look_ahead([kitchen.active])
        until(lambda: len(pool.given) == 1, "a job of look-ahead")
        yield kitchen


def _row_of_another_video(kitchen: Kitchen) -> int:
    return next(row for row in range(16) if kitchen.active.video(row) != kitchen.active.video(0))


def _decoded(kitchen: Kitchen) -> tuple[int, int]:
    """Packets fed and frames wanted when all that can be made is made."""
    assert kitchen.engine.wait_idle(WAIT_S)
    return kitchen.engine.frames["packets"], kitchen.engine.frames["wanted"]


def test_a_paused_job_goes_on_where_it_was(kitchen: Kitchen, pool: StoppedPool, videos: Path, tmp_path: Path) -> None:
    """The reader's job is done in the middle of the other, which then ends; as many packets are fed as without it."""
    reading = Reading(kitchen, [_row_of_another_video(kitchen)])
    until(lambda: len(pool.given) == 2, "the reader's job")
    assert not pool.reports
    pool.go()
    assert reading.end() is None
    disturbed = _decoded(kitchen)
    assert [number for number, _ in pool.reports[:2]] == [2, 1]
    assert not any(report.returned or report.error for _, report in pool.reports)
    kitchen.assert_counted()
    with Kitchen(tmp_path / "quiet", videos, WorkerPool(1, memory_bytes=1 << 30)) as quiet:
        quiet.engine.look_ahead([quiet.active])
        assert _decoded(quiet) == disturbed


def test_a_worker_that_dies_with_a_paused_job(kitchen: Kitchen, pool: StoppedPool) -> None:
    """Both jobs are repeated, one after the other, and nobody gets an error."""
    reading = Reading(kitchen, [_row_of_another_video(kitchen)])
    until(lambda: len(pool.given) == 2, "the reader's job")
    pool.go(signal.SIGKILL)
    assert reading.end() is None
    _decoded(kitchen)
    assert {job.video_key for job in pool.given[:2]} == {job.video_key for job in pool.given[2:4]}
    assert not kitchen.engine._tries
    kitchen.assert_counted()


def test_what_cannot_be_paused_gives_up_the_rest(
    kitchen: Kitchen, pool: StoppedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many jobs begun as a worker may have, the innermost returns what it has not made; it is made later."""
    monkeypatch.setattr(pools, "DEPTH", 1)
    reading = Reading(kitchen, [_row_of_another_video(kitchen)])
    until(pool.has_asked, "the job to be asked to give up")
    pool.go()
    assert reading.end() is None
    _decoded(kitchen)
    number, report = pool.reports[0]
    assert (number, bool(report.returned)) == (1, True)
    made = {key for job in pool.given[1:] for key in job.keys}
    assert made >= set(report.returned)
    kitchen.assert_counted()


def test_a_paused_job_holds_the_other_in_the_trace(
    tmp_path: Path, store: Path, videos: Path, pool: StoppedPool
) -> None:
    """On a worker's track the reader's job lies within the one that was paused for it; stages overlap nowhere."""
    pool.observer = Trace(str(tmp_path / "trace.json"), dict)
    with Kitchen(store, videos, pool) as kitchen:
        kitchen.engine.look_ahead([kitchen.active])
        until(lambda: len(pool.given) == 1, "a job of look-ahead")
        reading = Reading(kitchen, [_row_of_another_video(kitchen)])
        until(lambda: len(pool.given) == 2, "the reader's job")
        pool.go()
        assert reading.end() is None
        _decoded(kitchen)
    pool.observer.close()
    events = read(tmp_path / "trace.json")
    check(events)
    (track,) = (slices for name, slices in tracks(events).items() if name.startswith("worker "))
    jobs = {each["args"]["job"]: each for each in track if "job" in each.get("args", {})}
    assert jobs[2] in inner(track, jobs[1])
    laps = [each for each in track if each not in jobs.values()]
    assert all(end(one) <= round(other["ts"] * 1000) for one, other in pairwise(laps))
    assert [event["args"]["pauses_job"] for event in events if "pauses_job" in event.get("args", {})] == [1]
