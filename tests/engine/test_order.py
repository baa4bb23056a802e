"""What is made first, and for whom: scheduling decisions, with a pool that the test plays itself (SAND §5.4)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.kitchen import Kitchen, Reading, ScriptedPool, until
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
def kitchen(store: Path, videos: Path, pool: ScriptedPool) -> Iterator[Kitchen]:
    """An engine with room for everything."""
    with Kitchen(store, videos, pool) as kitchen:
        yield kitchen


def _other_video(kitchen: Kitchen, row: int) -> str:
    return next(key for key in kitchen.videos if key != kitchen.active.video(row))


def test_look_ahead_makes_what_is_due_first_and_its_videos_other_clips(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """Look-ahead starts with the soonest row; its job makes all clips of that video, so a video is decoded once."""
    kitchen.engine.look_ahead([kitchen.active])
    job = pool.nth(0)
    rows = kitchen.rows_of(kitchen.active.video(0))
    assert rows[0] == 0
    assert job.keys == tuple(kitchen.active.key(row) for row in rows)
    assert [kitchen.active.state(row) for row in rows] == [RowState.MAKING] * len(rows)


def test_demand_comes_before_look_ahead(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """While look-ahead has the only worker, a reader of the last batch waits one job, not all of them."""
    kitchen.engine.look_ahead([kitchen.active])
    first = pool.nth(0)
    last = len(kitchen.active.plan) - 1
    while kitchen.active.video(last) == kitchen.active.video(0):
        last -= 1
    reading = Reading(kitchen, [last])
    pool.make(first)
    pool.end(first)
    second = pool.nth(1)
    assert kitchen.active.key(last) in second.keys
    pool.make(second)
    assert reading.end() is None


def test_a_reader_of_other_videos_makes_look_ahead_yield(
    kitchen: Kitchen, pool: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that nobody waits for is asked to stop; what it gave back is made later, and nothing is made twice."""
    monkeypatch.setattr(rules, "PATIENCE_S", 0.0)
    kitchen.engine.look_ahead([kitchen.active])
    first = pool.nth(0)
    reading = Reading(kitchen, kitchen.rows_of(_other_video(kitchen, 0))[:1])
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


def test_a_job_that_a_reader_waits_for_is_not_interrupted(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """A job that makes what a reader waits for is left alone, also when a second reader waits for another video."""
    kitchen.engine.look_ahead([kitchen.active])
    first = pool.nth(0)
    one = Reading(kitchen, kitchen.rows_of(kitchen.active.video(0))[:1])
    two = Reading(kitchen, kitchen.rows_of(_other_video(kitchen, 0))[:1])
    pool.make(first)
    assert one.end() is None
    pool.end(first)
    second = pool.nth(1)
    pool.make(second)
    assert two.end() is None


def test_the_oldest_reader_is_served_first(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """Readers are served in the order in which they came, whatever is due sooner."""
    order = [3, 1, 2, 0]
    readings = [Reading(kitchen, kitchen.rows_of(kitchen.videos[video])[:1]) for video in order]
    for number, reading in enumerate(readings):
        job = pool.nth(number)
        assert kitchen.active.key(reading.rows[0]) in job.keys
        pool.make(job)
        pool.end(job)
        assert reading.end() is None


def test_close_sends_waiting_readers_away(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """Readers that wait when the cache closes get Closed, at once; later calls too."""
    readings = [Reading(kitchen, kitchen.rows_of(video)) for video in kitchen.videos[:3]]
    kitchen.engine.close()
    assert {type(reading.end()) for reading in readings} == {Closed}
    with pytest.raises(Closed), kitchen.engine.fetch(kitchen.active, [0]):
        pass
    kitchen.assert_counted()


def test_a_cancelled_reader_stops_waiting(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """Cancelling ends the wait of one reader and leaves the other's alone."""
    one, two = Reading(kitchen, [0]), Reading(kitchen, [0])
    one.cancelled.set()
    assert isinstance(one.end(), Closed)
    pool.make(pool.nth(0))
    assert two.end() is None


def test_a_wait_can_be_bounded(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """A reader with a time limit gets Timeout when its clips are not made by then."""
    with pytest.raises(Timeout, match="1 clips"), kitchen.engine.fetch(kitchen.active, [0], timeout_s=0.05):
        pass
    assert kitchen.waiting() == 0


def test_a_failed_job_fails_its_readers_only(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """An error of a job reaches who waits for its clips, with its kind; the same clips can be asked for again."""
    kinds = ((Full.kind, Full), (BadVideo.kind, BadVideo), ("anything", Broken))
    for number, (kind, error) in enumerate(kinds):
        reading = Reading(kitchen, [0])
        pool.end(pool.nth(number), Report(error="it did not work", error_kind=kind))
        assert type(reading.end()) is error
        assert kitchen.engine.failure == ("" if error is BadVideo else "it did not work")
        until(lambda: kitchen.tier.reserved_bytes == 0, "reservations to be given back")
    reading = Reading(kitchen, [0])
    pool.make(pool.nth(3))
    assert reading.end() is None


def test_a_video_that_kills_three_workers_is_an_error(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """A job is repeated when its worker dies; the third death is the reader's error and names the file."""
    reading = Reading(kitchen, [0])
    for number in range(3):
        assert pool.nth(number).keys == pool.nth(0).keys
        pool.die(pool.nth(number))
    error = reading.end()
    assert isinstance(error, WorkerDied)
    assert pool.nth(0).uri in str(error)
    kitchen.assert_counted()


def test_deaths_are_counted_in_a_row(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """A video whose jobs end well between the deaths of workers is not to blame: a long run outlives many kills."""
    for number in range(4):
        reading = Reading(kitchen, [0])
        pool.die(pool.nth(2 * number))
        again = pool.nth(2 * number + 1)
        pool.make(again)
        pool.end(again)
        assert reading.end() is None
        until(lambda: not pool.running, "the job to end")
        kitchen.forget(again.keys)


def test_what_a_dead_worker_published_is_counted(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """A worker that dies between publishing an object and saying so leaves no byte that the budget does not know of."""
    reading = Reading(kitchen, [0])
    job = pool.nth(0)
    pool.write(job, job.clips[-1])
    pool.die(job)
    again = pool.nth(1)
    assert kitchen.tier.used_bytes == kitchen.tier.measure() > 0
    assert set(again.keys) == set(job.keys[:-1])
    pool.write(again, again.clips[0])  # a writer that finds its object there, as after a death that nobody saw
    pool.make(again)
    pool.end(again)
    assert reading.end() is None
    until(lambda: not pool.running, "the job to end")
    kitchen.assert_counted()


def test_the_third_death_after_all_was_published(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """Workers that die only after their last object have made it: nobody gets an error."""
    for number in range(3):
        reading = Reading(kitchen, kitchen.rows_of(kitchen.videos[0])[:1])
        job = pool.nth(number)
        for clip in job.clips:
            pool.write(job, clip)
        pool.die(job)
        assert reading.end() is None
        until(lambda: kitchen.tier.reserved_bytes == 0, "reservations to be given back")
        kitchen.assert_counted()
        kitchen.forget(job.keys)


def test_what_workers_published_when_the_cache_closed_is_known(kitchen: Kitchen, pool: ScriptedPool) -> None:
    """Closing in the middle of a job leaves no object without a row: what was published is recorded."""
    kitchen.engine.look_ahead([kitchen.active])
    job = pool.nth(0)
    pool.deaf = True
    pool.write(job, job.clips[0])
    pool.make(job, job.clips[1].key)
    kitchen.engine.close()
    kitchen.assert_counted()
    kitchen.catalog.flush()
    rows = {row["physical"] for row in kitchen.catalog.query("read_stored", tier="local").to_pylist()}
    assert rows == {physical_of(clip.key) for clip in job.clips[:2]}
