"""What nobody wants any more is given up: its room and its memory are free at once (real workers, counts, no times)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewcache
from tests.engine.kitchen import WAIT_S, Kitchen, Reading, until
from tests.engine.stopped import KINDS, STOPPED, StoppedPool
from tests.faults.caches import config
from viewcache.api.session import owner as session
from viewcache.errors import Closed


@pytest.fixture(params=KINDS)
def pool(request: pytest.FixtureRequest) -> StoppedPool:
    """A worker that waits for `go`, of each kind."""
    return STOPPED[request.param]()


@pytest.fixture
def kitchen(store: Path, videos: Path, pool: StoppedPool) -> Iterator[Kitchen]:
    """An engine with that worker."""
    with Kitchen(store, videos, pool) as kitchen:
        yield kitchen


def _assert_given_up(kitchen: Kitchen, pool: StoppedPool, number: int) -> None:
    """A job ended early: it made one object at the most, decoded no more than two groups, and holds nothing."""
    until(lambda: any(each == number for each, _ in pool.reports), "the job to end")
    report = dict(pool.reports)[number]
    clips = next(job for job in pool.given if job.number == number).clips
    assert len(report.returned) >= len(clips) - 1
    assert report.frames["packets"] <= 20
    until(lambda: number not in kitchen.engine.state.jobs, "the job to be put away")
    kitchen.assert_counted()
    assert not kitchen.ledger.held


def test_a_job_of_a_task_that_left_is_given_up(kitchen: Kitchen, pool: StoppedPool) -> None:
    """Look-ahead is withdrawn in the middle of a job: the job ends after its group, and no other is begun."""
    kitchen.engine.look_ahead([kitchen.active])
    until(lambda: len(pool.given) == 1, "a job of look-ahead")
    kitchen.engine.forget(kitchen.active.task_id)
    until(lambda: pool.asked() == {1}, "the job to be asked to give up")
    pool.go()
    _assert_given_up(kitchen, pool, 1)
    assert len(pool.given) == 1
    assert kitchen.engine.wait_idle(WAIT_S)


def test_a_paused_job_is_given_up_too(kitchen: Kitchen, pool: StoppedPool) -> None:
    """The task of a paused job leaves: who waits still gets its clip, and then neither job goes any further."""
    kitchen.engine.look_ahead([kitchen.active])
    until(lambda: len(pool.given) == 1, "a job of look-ahead")
    other = next(row for row in range(16) if kitchen.active.video(row) != kitchen.active.video(0))
    reading = Reading(kitchen, [other])
    until(lambda: len(pool.given) == 2, "the reader's job")
    kitchen.engine.forget(kitchen.active.task_id)
    until(lambda: pool.asked() == {1}, "the paused job to be asked to give up")
    pool.go()
    assert reading.end() is None
    _assert_given_up(kitchen, pool, 1)
    assert [number for number, _ in pool.reports] == [2, 1]
    assert (2, kitchen.active.key(other)) in [(number, made.key) for number, made in pool.made]


def test_a_job_of_a_cancelled_reader_is_given_up(kitchen: Kitchen, pool: StoppedPool) -> None:
    """A reader of what is not made ahead is cancelled: its job ends; asked for again, the same clips are made."""
    rows = kitchen.rows_of(kitchen.active.video(0))
    reading = Reading(kitchen, rows)
    until(lambda: len(pool.given) == 1, "the reader's job")
    reading.cancelled.set()
    assert isinstance(reading.end(), Closed)
    until(lambda: pool.asked() == {1}, "the job to be asked to give up")
    pool.go()
    _assert_given_up(kitchen, pool, 1)
    assert Reading(kitchen, rows).end() is None


def test_a_job_that_look_ahead_wants_outlives_its_reader(kitchen: Kitchen, pool: StoppedPool) -> None:
    """A cancelled reader's job makes what its task needs next anyway: it is left alone, and nothing is made twice."""
    kitchen.engine.look_ahead([kitchen.active])
    reading = Reading(kitchen, kitchen.rows_of(kitchen.active.video(0))[:1])
    until(lambda: len(pool.given) == 1, "a job for both")
    reading.cancelled.set()
    assert isinstance(reading.end(), Closed)
    pool.go()
    assert kitchen.engine.wait_idle(WAIT_S)
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
