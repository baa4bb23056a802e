"""Memory: its pressure, what jobs are let in under it, and what workers really hold (SAND §5.4)."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.clips import encode
from tests.scheduling.harness import Harness, Looking, Reading, ScriptedPool, Switched, until
from viewcache.api.session import owner
from viewcache.materializer.scheduling.pressure import Pace, Pressure, allowance, in_use
from viewcache.materializer.scheduling.work import RowState
from viewcache.materializer.workers.pool import DEPTH, Held, Pool

BYTES = st.integers(0, 1 << 40)


@given(st.integers(1, 1 << 40), st.lists(BYTES))
def test_pressure_has_hysteresis(limit: int, seen: list[int]) -> None:
    """Above 80 % of the limit there is pressure, below 70 % none, and between the two it stays as it was."""
    pressure, before = Pressure(limit), False
    for used in seen:
        pressure.note(used)
        assert pressure.on == (used > 0.8 * limit or (before and used >= 0.7 * limit))
        before = pressure.on


@given(st.lists(st.tuples(st.integers(0, 1000), st.lists(st.integers(0, 1000), max_size=DEPTH)), max_size=6))
def test_what_is_in_use(workers: list[tuple[int, list[int]]]) -> None:
    """Of each worker counts what was measured or what its jobs declare, whichever is more."""
    held: list[Held] = []
    declared: dict[int, int] = {}
    for measured, jobs in workers:
        first = len(declared)
        declared |= dict(enumerate(jobs, first))
        held.append(Held(tuple(range(first, first + len(jobs))), measured))
    assert in_use(held, declared) == sum(max(measured, sum(jobs)) for measured, jobs in workers)


@given(st.integers(1, 1000), st.integers(1, 1000), st.lists(st.tuples(st.integers(1, 2000), st.booleans())))
def test_what_jobs_may_hold_is_bounded(limit: int, most: int, asked: list[tuple[int, bool]]) -> None:
    """Jobs together hold no more than the limit, except what readers cannot do without, and one job always goes on."""
    declared, beyond = 0, 0
    for least, demanded in asked:
        allowed = allowance(limit, declared, most, least, demanded=demanded)
        assert allowed == 0 or allowed >= least
        assert allowed <= max(least, most)
        assert allowed or (declared and not demanded)
        if allowed and (declared + allowed > limit or allowed > most):
            assert allowed == least
            beyond += allowed
        declared += allowed
    assert declared <= limit + beyond


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 99), st.floats(0.01, 99)), max_size=9))
def test_what_edges_cost(done: list[tuple[str, int, float]]) -> None:
    """A video's own pace where it was measured, else that of all, else the number of edges; more edges cost more."""
    pace = Pace()
    assert pace.cost("a", 7) == 7
    for video, edges, seconds in done:
        pace.note(video, edges, seconds)
    for video in "abcd":
        own = [each for each in done if each[0] == video] or done
        rate = sum(seconds for *_, seconds in own) / sum(edges for _, edges, _ in own) if own else 1.0
        assert pace.cost(video, 7) == pytest.approx(7 * rate)
        assert pace.cost(video, 8) > pace.cost(video, 7)


@pytest.fixture
def pool() -> ScriptedPool:
    """One worker, played by the test."""
    return ScriptedPool()


def test_deadlines_then_the_shortest_then_deadlines_again(store: Path, videos: Path, pool: ScriptedPool) -> None:
    """Under pressure the video with the least left to do goes first, though others are due sooner, and only then."""
    pressure = Switched(1 << 40)
    with Harness(store, videos, pool, pressure=pressure) as harness:
        video = harness.active.video(15)
        assert video != harness.active.video(0)
        rows = harness.rows_of(video)
        reading = Reading(harness, rows)
        pool.serve(reading.got.is_set, "the clips of a video")
        until(lambda: not harness.dispatcher.state.jobs, "the job to be put away")
        harness.forget([harness.active.key(rows[-1])])
        harness.active.set_state(rows[-1], RowState.PLANNED)  # nobody knew of the work when it was forgotten
        pressure.on = True
        harness.dispatcher.look_ahead([harness.active])
        short = pool.nth(1)
        assert short.keys == (harness.active.key(rows[-1]),)
        pressure.on = False
        pool.make(short)
        pool.end(short)
        assert pool.nth(2).video_key == harness.active.video(0)


def test_a_job_that_does_not_fit_waits_for_others(store: Path, videos: Path) -> None:
    """With memory for the clips of one job, a second worker stays idle until it ends; a reader is served at once."""
    pool = ScriptedPool(size=2)
    with Harness(store, videos, pool) as harness:
        clips = len(harness.rows_of(harness.active.video(0)))
        memory = clips * harness.bound
    with Harness(store, videos, pool, pressure=Pressure(memory)) as harness:
        harness.dispatcher.look_ahead([harness.active])
        first = pool.nth(0)
        looks = pool.count_looks()
        until(lambda: looks() >= 20, "the dispatcher to look for work again and again")
        assert len(pool.given) == 1
        other = next(key for key in harness.videos if key != first.video_key)
        reading = Reading(harness, harness.rows_of(other)[:1])
        demanded = pool.nth(1)
        assert demanded.keys == (harness.active.key(reading.rows[0]),)
        pool.make(demanded)
        pool.end(demanded)
        assert reading.end() is None
        pool.make(first)
        pool.end(first)
        assert pool.nth(2).bound <= clips * harness.bound


def test_demanded_rows_beyond_a_jobs_memory_are_several_jobs(store: Path, videos: Path, pool: ScriptedPool) -> None:
    """A reader that wants more of one video than a job may hold gets it in several jobs, in order."""
    with Harness(store, videos, pool) as harness:
        bound = harness.bound
    with Harness(store, videos, pool, job_bytes=2 * bound) as harness:
        rows = harness.rows_of(harness.active.video(0))
        assert len(rows) == 4
        reading = Reading(harness, rows)
        for number in range(2):
            job = pool.nth(number)
            assert job.keys == tuple(harness.active.key(row) for row in rows[2 * number : 2 * number + 2])
            pool.make(job)
            pool.end(job)
        assert reading.end() is None


def test_what_readers_wait_for_is_due_first(store: Path, videos: Path, pool: ScriptedPool) -> None:
    """Readers of late clips get them first of the job that makes all of their video, however many readers there are."""
    with Harness(store, videos, pool) as harness:
        harness.dispatcher.look_ahead([harness.active])
        first = pool.nth(0)
        other = next(key for key in harness.videos if key != first.video_key)
        rows = harness.rows_of(other)
        readings = [Reading(harness, [row]) for row in (rows[3], rows[2])]
        pool.make(first)
        pool.end(first)
        job = pool.nth(1)
        assert [clip.due for clip in job.clips] == [0, 1, 2, 3]
        assert set(job.keys[:2]) == {harness.active.key(row) for row in rows[2:]}
        pool.make(job)
        assert [reading.end() for reading in readings] == [None, None]


DECODER = 48 << 20
"""Bytes of a decoder's own frames, of a clip that is being written, and of what the allocator keeps."""


class _Peak(Looking):
    """Looks all the time at what the workers hold for their jobs, and keeps the most that one had."""

    pause_s = 0.002

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self._pool = pool
        self.bytes = 0

    def look(self) -> None:
        """Look."""
        self.bytes = max(self.bytes, *(each.bytes for each in self._pool.held()), 0)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One clip of 120 frames of 640x480, in groups of 6: 0.9 MB a frame as RGB."""
    folder = tmp_path_factory.mktemp("large")
    noise = np.random.default_rng(1).integers(0, 256, (60, 80, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    encode(folder / "a.mp4", frames=120, size=(640, 480), gop=6, source=[np.roll(noise, n, 1) for n in range(120)])
    return folder


def _config(store: Path, videos: Path) -> dict[str, object]:
    return {
        "cache": {"store": str(store), "budget": "4GB", "workers": 1, "epochs_per_generation": 2, "memory": "1GB"},
        "dataset": {
            "tag": "t",
            "video_dataset_path": str(videos),
            "epochs": 2,
            "sampling": {"videos_per_batch": 1, "frames_per_video": 16, "frame_stride": 5, "samples_per_video": 16},
            "augmentation": [
                {
                    "branch_type": "single",
                    "inputs": ["frame"],
                    "outputs": ["a"],
                    "config": [{"flip": {"flip_prob": 0.5}}],
                }
            ],
        },
    }


def test_a_workers_memory_is_bounded_by_its_job(tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clips that wait for late frames take what a job may hold and no more: jobs are split, frames are freed."""
    most = 64 << 20
    monkeypatch.setattr(owner, "job_bytes", lambda memory, workers: most)
    with viewcache.open(_config(tmp_path / "store", large)) as cache:
        dispatcher = cache.owner.dispatcher_now()
        with _Peak(dispatcher.pool) as peak:
            for step in cache.materialize():
                assert not step["failed"]
        assert dispatcher.tally.frames["object_bytes"] > 3 * most
        assert 0.5 * most < peak.bytes < most + DECODER
