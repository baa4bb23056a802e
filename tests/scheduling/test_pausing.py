"""Jobs that nobody waits for are paused for those that somebody waits for: real workers, nothing decoded twice."""

import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.scheduling.harness import WAIT_S, Harness, Reading, Switched, until
from tests.scheduling.stopped import KINDS, STOPPED, StoppedPool, StoppedProcess, plain_pool
from tests.scheduling.trace_events import check, end, inner, read, tracks
from viewcache.materializer.scheduling import rules
from viewcache.materializer.telemetry.trace import Trace
from viewcache.materializer.workers import pool as pools


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """What workers are."""
    return str(request.param)


@pytest.fixture
def pool(kind: str) -> StoppedPool:
    """A worker that waits for `go`."""
    return STOPPED[kind]()


@pytest.fixture
def harness(store: Path, videos: Path, pool: StoppedPool) -> Iterator[Harness]:
    """A dispatcher with that worker, which has got a job of look-ahead."""
    with Harness(store, videos, pool) as harness:
        harness.dispatcher.look_ahead([harness.active])
        until(lambda: len(pool.given) == 1, "a job of look-ahead")
        yield harness


def _row_of_another_video(harness: Harness) -> int:
    return next(row for row in range(16) if harness.active.video(row) != harness.active.video(0))


def _decoded(harness: Harness) -> tuple[int, int]:
    """Packets fed and frames wanted when all that can be made is made."""
    assert harness.dispatcher.wait_idle(WAIT_S)
    return harness.dispatcher.tally.frames["packets"], harness.dispatcher.tally.frames["wanted"]


def test_a_paused_job_goes_on_where_it_was(
    harness: Harness, pool: StoppedPool, kind: str, videos: Path, tmp_path: Path
) -> None:
    """The reader's job is done in the middle of the other, which then ends; as many packets are fed as without it."""
    reading = Reading(harness, [_row_of_another_video(harness)])
    until(lambda: len(pool.given) == 2, "the reader's job")
    assert not pool.reports
    pool.go()
    assert reading.end() is None
    disturbed = _decoded(harness)
    assert [number for number, _ in pool.reports[:2]] == [2, 1]
    assert not any(report.returned or report.error for _, report in pool.reports)
    harness.assert_counted()
    with Harness(tmp_path / "quiet", videos, plain_pool(kind)) as quiet:
        quiet.dispatcher.look_ahead([quiet.active])
        assert _decoded(quiet) == disturbed


@pytest.mark.parametrize("kind", ["processes"])
def test_a_worker_that_dies_with_a_paused_job(harness: Harness, pool: StoppedProcess) -> None:
    """Both jobs are repeated, one after the other, and nobody gets an error."""
    reading = Reading(harness, [_row_of_another_video(harness)])
    until(lambda: len(pool.given) == 2, "the reader's job")
    pool.go(signal.SIGKILL)
    assert reading.end() is None
    _decoded(harness)
    assert {job.video_key for job in pool.given[:2]} == {job.video_key for job in pool.given[2:4]}
    harness.assert_counted()


def test_what_cannot_be_paused_gives_up_the_rest(
    harness: Harness, pool: StoppedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many jobs begun as a worker may have, the innermost returns what it has not made; it is made later."""
    monkeypatch.setattr(pools, "DEPTH", 1)
    monkeypatch.setattr(rules, "PATIENCE_S", 0.0)
    reading = Reading(harness, [_row_of_another_video(harness)])
    until(lambda: bool(pool.asked()), "the job to be asked to give up")
    pool.go()
    assert reading.end() is None
    _decoded(harness)
    number, report = pool.reports[0]
    assert (number, bool(report.returned)) == (1, True)
    made = {key for job in pool.given[1:] for key in job.keys}
    assert made >= set(report.returned)
    harness.assert_counted()


def test_a_reader_waits_a_while_for_the_rest(
    harness: Harness, pool: StoppedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that cannot be paused is done whole if that is soon: nothing that is half made is made again."""
    monkeypatch.setattr(pools, "DEPTH", 1)
    monkeypatch.setattr(rules, "PATIENCE_S", 600.0)
    reading = Reading(harness, [_row_of_another_video(harness)])
    until(lambda: harness.dispatcher.chooser.patience.stuck is not None, "the dispatcher to see the reader")
    pool.go()
    assert reading.end() is None
    _decoded(harness)
    assert not pool.asked()
    assert not any(report.returned or report.error for _, report in pool.reports)
    harness.assert_counted()


@pytest.mark.parametrize(("patience_s", "asked"), [(0.0, {2}), (600.0, set())])
def test_a_paused_job_does_not_wait_long_for_what_nobody_waits_for(
    harness: Harness, pool: StoppedPool, monkeypatch: pytest.MonkeyPatch, patience_s: float, asked: set[int]
) -> None:
    """A reader comes to a job that was paused for another reader, who has gone: what is over it gives up its rest."""
    monkeypatch.setattr(rules, "PATIENCE_S", patience_s)
    other = Reading(harness, [_row_of_another_video(harness)])
    until(lambda: len(pool.given) == 2, "the other reader's job")
    other.cancelled.set()
    assert other.end() is not None
    assert not pool.asked()  # it makes what is needed next of that video
    reading = Reading(harness, [0])
    until(lambda: harness.dispatcher.chooser.patience.below_since.keys() == {1}, "the dispatcher to see the reader")
    until(lambda: pool.asked() == asked, "the job to be asked to give up, or not")
    pool.go()
    assert reading.end() is None
    _decoded(harness)
    assert [bool(report.returned) for number, report in pool.reports if number == 2] == [bool(asked)]
    harness.assert_counted()


def test_a_paused_job_holds_the_other_in_the_trace(tmp_path: Path, store: Path, videos: Path, kind: str) -> None:
    """On a worker's track the reader's job lies within the one that was paused for it; stages overlap nowhere."""
    trace = Trace(str(tmp_path / "trace.json"), dict)
    pool = STOPPED[kind](trace)
    with Harness(store, videos, pool) as harness:
        harness.dispatcher.look_ahead([harness.active])
        until(lambda: len(pool.given) == 1, "a job of look-ahead")
        reading = Reading(harness, [_row_of_another_video(harness)])
        until(lambda: len(pool.given) == 2, "the reader's job")
        pool.go()
        assert reading.end() is None
        _decoded(harness)
    trace.close()
    events = read(tmp_path / "trace.json")
    check(events)
    (track,) = (slices for name, slices in tracks(events).items() if name.startswith("worker "))
    jobs = {each["args"]["job"]: each for each in track if "job" in each.get("args", {})}
    assert jobs[2] in inner(track, jobs[1])
    laps = [each for each in track if each not in jobs.values()]
    assert all(end(one) <= round(other["ts"] * 1000) for one, other in pairwise(laps))
    assert [event["args"]["pauses_job"] for event in events if "pauses_job" in event.get("args", {})] == [1]


def test_under_pressure_nothing_is_paused(store: Path, videos: Path, pool: StoppedPool) -> None:
    """While memory is short a job is not paused for a reader, which would keep its memory, but asked to give up."""
    pressure = Switched(1 << 40)
    with Harness(store, videos, pool, pressure=pressure) as harness:
        harness.dispatcher.look_ahead([harness.active])
        until(lambda: len(pool.given) == 1, "a job of look-ahead")
        pressure.on = True
        reading = Reading(harness, [_row_of_another_video(harness)])
        until(lambda: pool.asked() == {1}, "the job to be asked to give up")
        assert len(pool.given) == 1
        pool.go()
        assert reading.end() is None
        _decoded(harness)
        assert [number for number, _ in pool.reports[:2]] == [1, 2]
        assert pool.reports[0][1].returned
        harness.assert_counted()
