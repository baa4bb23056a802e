"""What nobody wants any more is given up: its room and its memory are free at once (real workers, counts, no times)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import config
from tests.scheduling.harness import WAIT_S, Harness, Reading, until
from tests.scheduling.stopped import KINDS, STOPPED, StoppedPool
from viewcache.api.session import owner as session
from viewcache.errors import Closed


@pytest.fixture(params=KINDS)
def pool(request: pytest.FixtureRequest) -> StoppedPool:
    """A worker that waits for `go`, of each kind."""
    return STOPPED[request.param]()


@pytest.fixture
def harness(store: Path, videos: Path, pool: StoppedPool) -> Iterator[Harness]:
    """A dispatcher with that worker."""
    with Harness(store, videos, pool) as harness:
        yield harness


def _assert_given_up(harness: Harness, pool: StoppedPool, number: int) -> None:
    """A job ended early: it made one object at the most, decoded no more than two groups, and holds nothing."""
    until(lambda: any(each == number for each, _ in pool.reports), "the job to end")
    report = dict(pool.reports)[number]
    clips = next(job for job in pool.given if job.number == number).clips
    assert len(report.returned) >= len(clips) - 1
    assert report.frames["packets"] <= 20
    until(lambda: number not in harness.dispatcher.state.jobs, "the job to be put away")
    harness.assert_counted()
    assert not harness.ledger.held


def test_a_job_of_a_task_that_left_is_given_up(harness: Harness, pool: StoppedPool) -> None:
    """Look-ahead is withdrawn in the middle of a job: the job ends after its group, and no other is begun."""
    harness.dispatcher.look_ahead([harness.active])
    until(lambda: len(pool.given) == 1, "a job of look-ahead")
    harness.dispatcher.forget(harness.active.task_id)
    until(lambda: pool.asked() == {1}, "the job to be asked to give up")
    pool.go()
    _assert_given_up(harness, pool, 1)
    assert len(pool.given) == 1
    assert harness.dispatcher.wait_idle(WAIT_S)


def test_a_paused_job_is_given_up_too(harness: Harness, pool: StoppedPool) -> None:
    """The task of a paused job leaves: who waits still gets its clip, and then neither job goes any further."""
    harness.dispatcher.look_ahead([harness.active])
    until(lambda: len(pool.given) == 1, "a job of look-ahead")
    other = next(row for row in range(16) if harness.active.video(row) != harness.active.video(0))
    reading = Reading(harness, [other])
    until(lambda: len(pool.given) == 2, "the reader's job")
    harness.dispatcher.forget(harness.active.task_id)
    until(lambda: pool.asked() == {1}, "the paused job to be asked to give up")
    pool.go()
    assert reading.end() is None
    _assert_given_up(harness, pool, 1)
    assert [number for number, _ in pool.reports] == [2, 1]
    assert (2, harness.active.key(other)) in [(number, made.key) for number, made in pool.made]


def test_a_job_of_a_cancelled_reader_is_given_up(harness: Harness, pool: StoppedPool) -> None:
    """A reader of what is not made ahead is cancelled: its job ends; asked for again, the same clips are made."""
    rows = harness.rows_of(harness.active.video(0))
    reading = Reading(harness, rows)
    until(lambda: len(pool.given) == 1, "the reader's job")
    reading.cancelled.set()
    assert isinstance(reading.end(), Closed)
    until(lambda: pool.asked() == {1}, "the job to be asked to give up")
    pool.go()
    _assert_given_up(harness, pool, 1)
    assert Reading(harness, rows).end() is None


def test_a_job_that_look_ahead_wants_outlives_its_reader(harness: Harness, pool: StoppedPool) -> None:
    """A cancelled reader's job makes what its task needs next anyway: it is left alone, and nothing is made twice."""
    harness.dispatcher.look_ahead([harness.active])
    reading = Reading(harness, harness.rows_of(harness.active.video(0))[:1])
    until(lambda: len(pool.given) == 1, "a job for both")
    reading.cancelled.set()
    assert isinstance(reading.end(), Closed)
    pool.go()
    assert harness.dispatcher.wait_idle(WAIT_S)
    assert not any(report.returned for _, report in pool.reports)
    made = [made.key for _, made in pool.made]
    assert len(made) == len(set(made))


def test_leaving_a_cache_in_the_middle(
    pool: StoppedPool, store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cache.leave` while its clips are made ahead: the job on the way ends early and nothing stays reserved."""
    monkeypatch.setattr(session, "start_pool", lambda *_: pool)
    with viewcache.open(config(store, videos)) as cache:
        steps = cache.materialize()
        until(lambda: len(pool.given) == 1, "a job")
        cache.leave("t")
        until(lambda: pool.asked() == {1}, "the job to be asked to give up")
        pool.go()
        until(lambda: len(pool.reports) == 1, "the job to end")
        assert pool.reports[0][1].returned
        assert list(steps)[-1]["planned"] > 0
        assert len(pool.given) == 1
        assert cache.tier.reserved_bytes == 0
        assert not cache.owner.ledger.held
