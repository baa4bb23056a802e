"""What is made first, and for whom: scheduling decisions, with a pool that the test plays itself (SAND §5.4)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scheduling.harness import Harness, Reading, ScriptedPool, until
from viewcache.errors import BadVideo, Broken, Closed, Full, Timeout, WorkerDied
from viewcache.materializer.scheduling import rules
from viewcache.materializer.scheduling.work import RowState
from viewcache.materializer.workers.job import Report
from viewcache.store.format import physical_of


@pytest.fixture
def pool() -> ScriptedPool:
    """One worker, played by the test."""
    return ScriptedPool()


@pytest.fixture
def harness(store: Path, videos: Path, pool: ScriptedPool) -> Iterator[Harness]:
    """A dispatcher with room for everything."""
    with Harness(store, videos, pool) as harness:
        yield harness


def _other_video(harness: Harness, row: int) -> str:
    return next(key for key in harness.videos if key != harness.active.video(row))


def test_look_ahead_makes_what_is_due_first_and_its_videos_other_clips(harness: Harness, pool: ScriptedPool) -> None:
    """Look-ahead starts with the soonest row; its job makes all clips of that video, so a video is decoded once."""
    harness.dispatcher.look_ahead([harness.active])
    job = pool.nth(0)
    rows = harness.rows_of(harness.active.video(0))
    assert rows[0] == 0
    assert job.keys == tuple(harness.active.key(row) for row in rows)
    assert [harness.active.state(row) for row in rows] == [RowState.MAKING] * len(rows)


def test_demand_comes_before_look_ahead(harness: Harness, pool: ScriptedPool) -> None:
    """While look-ahead has the only worker, a reader of the last batch waits one job, not all of them."""
    harness.dispatcher.look_ahead([harness.active])
    first = pool.nth(0)
    last = len(harness.active.plan) - 1
    while harness.active.video(last) == harness.active.video(0):
        last -= 1
    reading = Reading(harness, [last])
    pool.make(first)
    pool.end(first)
    second = pool.nth(1)
    assert harness.active.key(last) in second.keys
    pool.make(second)
    assert reading.end() is None


def test_a_reader_of_other_videos_makes_look_ahead_yield(
    harness: Harness, pool: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that nobody waits for is asked to stop; what it gave back is made later, and nothing is made twice."""
    monkeypatch.setattr(rules, "PATIENCE_S", 0.0)
    harness.dispatcher.look_ahead([harness.active])
    first = pool.nth(0)
    reading = Reading(harness, harness.rows_of(_other_video(harness, 0))[:1])
    until(lambda: pool.asked == [first.number], "the job to be asked to yield")
    pool.make(first, first.keys[0])
    pool.end(first, Report(returned=first.keys[1:]))
    second = pool.nth(1)
    assert not set(second.keys) & set(first.keys)
    pool.make(second)
    pool.end(second)
    assert reading.end() is None
    third = pool.nth(2)
    assert set(third.keys) == set(first.keys[1:])


def test_a_job_that_a_reader_waits_for_is_not_interrupted(harness: Harness, pool: ScriptedPool) -> None:
    """A job that makes what a reader waits for is left alone, also when a second reader waits for another video."""
    harness.dispatcher.look_ahead([harness.active])
    first = pool.nth(0)
    one = Reading(harness, harness.rows_of(harness.active.video(0))[:1])
    two = Reading(harness, harness.rows_of(_other_video(harness, 0))[:1])
    pool.make(first)
    assert one.end() is None
    pool.end(first)
    second = pool.nth(1)
    pool.make(second)
    assert two.end() is None


def test_the_oldest_reader_is_served_first(harness: Harness, pool: ScriptedPool) -> None:
    """Readers are served in the order in which they came, whatever is due sooner."""
    order = [3, 1, 2, 0]
    readings = [Reading(harness, harness.rows_of(harness.videos[video])[:1]) for video in order]
    for number, reading in enumerate(readings):
        job = pool.nth(number)
        assert harness.active.key(reading.rows[0]) in job.keys
        pool.make(job)
        pool.end(job)
        assert reading.end() is None


def test_close_sends_waiting_readers_away(harness: Harness, pool: ScriptedPool) -> None:
    """Readers that wait when the cache closes get Closed, at once; later calls too."""
    readings = [Reading(harness, harness.rows_of(video)) for video in harness.videos[:3]]
    harness.dispatcher.close()
    assert {type(reading.end()) for reading in readings} == {Closed}
    with pytest.raises(Closed), harness.dispatcher.fetch(harness.active, [0]):
        pass
    harness.assert_counted()


def test_a_cancelled_reader_stops_waiting(harness: Harness, pool: ScriptedPool) -> None:
    """Cancelling ends the wait of one reader and leaves the other's alone."""
    one, two = Reading(harness, [0]), Reading(harness, [0])
    one.cancelled.set()
    assert isinstance(one.end(), Closed)
    pool.make(pool.nth(0))
    assert two.end() is None


def test_a_wait_can_be_bounded(harness: Harness, pool: ScriptedPool) -> None:
    """A reader with a time limit gets Timeout when its clips are not made by then."""
    with pytest.raises(Timeout, match="1 clips"), harness.dispatcher.fetch(harness.active, [0], timeout_s=0.05):
        pass
    assert harness.waiting() == 0


def test_a_failed_job_fails_its_readers_only(harness: Harness, pool: ScriptedPool) -> None:
    """An error of a job reaches who waits for its clips, with its kind; the same clips can be asked for again."""
    kinds = ((Full.kind, Full), (BadVideo.kind, BadVideo), ("anything", Broken))
    for number, (kind, error) in enumerate(kinds):
        reading = Reading(harness, [0])
        pool.end(pool.nth(number), Report(error="it did not work", error_kind=kind))
        assert type(reading.end()) is error
        assert harness.dispatcher.tally.failure == ("" if error is BadVideo else "it did not work")
        until(lambda: harness.tier.reserved_bytes == 0, "reservations to be given back")
    reading = Reading(harness, [0])
    pool.make(pool.nth(3))
    assert reading.end() is None


@pytest.mark.parametrize("kind", [Full.kind, BadVideo.kind])
def test_a_job_that_fails_says_nothing_to_who_asked_since(harness: Harness, pool: ScriptedPool, kind: str) -> None:
    """They may have restored the file or made room before they asked: it is tried again for them, and once only."""
    before = Reading(harness, [0])
    first = pool.nth(0)
    since = Reading(harness, [0])
    pool.end(first, Report(error="the file is not there", error_kind=kind))
    assert isinstance(before.end(), Full if kind == Full.kind else BadVideo)
    second, last = pool.nth(1), Reading(harness, [0])
    pool.end(second, Report(error="the file is still not there", error_kind=kind))
    assert "still" in str(since.end())
    pool.make(pool.nth(2))
    assert last.end() is None
    harness.assert_counted()


def test_a_video_that_kills_three_workers_is_an_error(harness: Harness, pool: ScriptedPool) -> None:
    """A job is repeated when its worker dies; the third death is the reader's error and names the file."""
    reading = Reading(harness, [0])
    for number in range(3):
        assert pool.nth(number).keys == pool.nth(0).keys
        pool.die(pool.nth(number))
    error = reading.end()
    assert isinstance(error, WorkerDied)
    assert pool.nth(0).uri in str(error)
    harness.assert_counted()


def test_deaths_are_counted_in_a_row(harness: Harness, pool: ScriptedPool) -> None:
    """A video whose jobs end well between the deaths of workers is not to blame: a long run outlives many kills."""
    for number in range(4):
        reading = Reading(harness, [0])
        pool.die(pool.nth(2 * number))
        again = pool.nth(2 * number + 1)
        pool.make(again)
        pool.end(again)
        assert reading.end() is None
        until(lambda: not harness.dispatcher.state.jobs, "the job to end")
        harness.forget(again.keys)


def test_what_a_dead_worker_published_is_counted(harness: Harness, pool: ScriptedPool) -> None:
    """A worker that dies between publishing an object and saying so leaves no byte that the budget does not know of."""
    reading = Reading(harness, [0])
    job = pool.nth(0)
    pool.write(job, job.clips[-1])
    pool.die(job)
    again = pool.nth(1)
    assert harness.tier.used_bytes == harness.tier.measure() > 0
    assert set(again.keys) == set(job.keys[:-1])
    pool.write(again, again.clips[0])  # a writer that finds its object there, as after a death that nobody saw
    pool.make(again)
    pool.end(again)
    assert reading.end() is None
    until(lambda: not harness.dispatcher.state.jobs, "the job to end")
    harness.assert_counted()


def test_the_third_death_after_all_was_published(harness: Harness, pool: ScriptedPool) -> None:
    """Workers that die only after their last object have made it: nobody gets an error."""
    for number in range(3):
        reading = Reading(harness, harness.rows_of(harness.videos[0])[:1])
        job = pool.nth(number)
        for clip in job.clips:
            pool.write(job, clip)
        pool.die(job)
        assert reading.end() is None
        until(lambda: harness.tier.reserved_bytes == 0, "reservations to be given back")
        harness.assert_counted()
        harness.forget(job.keys)


def test_what_workers_published_when_the_cache_closed_is_known(harness: Harness, pool: ScriptedPool) -> None:
    """Closing in the middle of a job leaves no object without a row: what was published is recorded."""
    harness.dispatcher.look_ahead([harness.active])
    job = pool.nth(0)
    pool.deaf = True
    pool.write(job, job.clips[0])
    pool.make(job, job.clips[1].key)
    harness.dispatcher.close()
    harness.assert_counted()
    harness.catalog.flush()
    rows = {row["physical"] for row in harness.catalog.query("read_stored", tier="local").to_pylist()}
    assert rows == {physical_of(clip.key) for clip in job.clips[:2]}
