"""Why a reader waited: seconds by cause add up to the wait, and each cause is named where it is at work."""

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.faults.caches import config, objects_of
from tests.scheduling.harness import Harness, Reading, ScriptedPool, until
from viewcache.materializer.planning.plan_generation import plan_generation
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.telemetry.stalls import CAUSES, NOTICED_S, Arrival, Stretch, explain
from viewcache.store.format import METADATA_NAME

STAGES = ("decode", "convert", "augment", "store")


def arrival(given: float, *stretches: Stretch, fresh: bool = False) -> Arrival:
    """An object, by what its job did."""
    return Arrival(given, fresh, stretches)


def test_the_last_object_is_what_was_waited_for() -> None:
    """Of two jobs at once only the one that ended last counts, with all of its stages."""
    early = arrival(0.0, Stretch(0.0, 6.0, {"decode": 6.0}))
    late = arrival(0.0, Stretch(0.0, 10.0, {"decode": 4.0, "store": 6.0}))
    assert explain(0.0, 10.0, [late, early]) == pytest.approx({"decode": 4.0, "store": 6.0})


def test_what_came_before_the_last_job_is_explained_by_the_object_before() -> None:
    """One worker makes two videos of a batch, one after the other: both count, and nothing is called a queue."""
    first = arrival(1.0, Stretch(1.0, 5.0, {"decode": 4.0}))
    second = arrival(5.0, Stretch(5.0, 9.0, {"convert": 4.0}))
    found = explain(1.0, 9.5, [first, second])
    assert found == pytest.approx({"decode": 4.0, "convert": 4.0, "handover": 0.5})


def test_a_job_behind_others_waits_in_the_queue() -> None:
    """Until a worker was given the job, and while the worker was on another one in its midst."""
    found = explain(0.0, 10.0, [arrival(3.0, Stretch(4.0, 10.0, {"decode": 2.0}))])
    assert found == pytest.approx({"queue": 3.0 + 1.0 + 4.0, "decode": 2.0})


def test_a_process_that_had_to_start() -> None:
    """What passes between giving a job to a new worker and its first word about it is its start."""
    job = arrival(0.0, Stretch(2.0, 3.0, {"decode": 1.0}), fresh=True)
    assert explain(0.0, 3.0, [job]) == pytest.approx({"start": 2.0, "decode": 1.0})


def test_looking_for_room_is_no_queue() -> None:
    """Where the dispatcher looked for room before it gave the job, that is the cause."""
    job = arrival(8.0, Stretch(8.0, 10.0, {"decode": 2.0}))
    assert explain(0.0, 10.0, [job], [(-5.0, 1.0), (2.0, 6.0)]) == pytest.approx(
        {"room": 5.0, "queue": 3.0, "decode": 2.0}
    )


def test_only_the_part_within_the_wait_counts() -> None:
    """A job that was half done when the reader came explains the other half."""
    job = arrival(0.0, Stretch(0.0, 10.0, {"decode": 8.0, "store": 2.0}))
    assert explain(5.0, 10.0, [job]) == pytest.approx({"decode": 4.0, "store": 1.0})


TIMES = st.floats(0, 100, allow_nan=False)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Jobs at any times, whose stages never take longer than the time in which they ran."""
    found = []
    for _ in range(draw(st.integers(0, 6))):
        times = sorted(draw(st.lists(TIMES, min_size=2, max_size=5)))
        stretches = []
        for begun, ended in itertools.pairwise(times):
            parts = [draw(st.floats(0, 1)) for _ in STAGES]
            scale = (ended - begun) / max(1.0, sum(parts))
            stretches.append(Stretch(begun, ended, {s: p * scale for s, p in zip(STAGES, parts, strict=True)}))
        given = draw(st.floats(0, times[0]))
        found.append(Arrival(given, draw(st.booleans()), tuple(stretches[: draw(st.integers(0, 4))])))
    return found


@given(arrivals(), st.tuples(TIMES, TIMES).map(sorted), st.lists(TIMES, max_size=6).map(sorted))
def test_causes_add_up_to_the_wait(found: list[Arrival], wait: list[float], times: list[float]) -> None:
    """Whatever jobs did, and whenever: no second is lost, none is counted twice, no cause is unknown."""
    begun, ended = wait
    causes = explain(begun, ended, found, list(zip(times[::2], times[1::2], strict=False)))
    assert sum(causes.values()) == pytest.approx(ended - begun, abs=1e-6)
    assert all(seconds > 0 for seconds in causes.values())
    assert causes.keys() <= CAUSES.keys()


def test_a_cold_read_knows_where_its_time_went(tmp_path: Path, videos: Path) -> None:
    """Causes add up to the wait, the first batch had to start a worker, the sums of all batches are the task's."""
    with viewcache.open(config(tmp_path / "store", videos)) as cache:
        batches = [cache.read("t", 0, iteration) for iteration in range(2)]
        spent = cache.task("t").spent
    assert batches[0].stalls["start"] > 0
    assert batches[0].stalls["decode"] > 0
    for batch in batches:
        waited = {cause: s for cause, s in batch.stalls.items() if cause not in ("load", "plan", "draw")}
        assert sum(waited.values()) == pytest.approx(batch.waited_s, abs=1e-6)
    for cause in spent.stalls:
        assert spent.stalls[cause] == pytest.approx(sum(batch.stalls.get(cause, 0.0) for batch in batches))


def test_a_warm_read_only_loads(tmp_path: Path, videos: Path) -> None:
    """Where nothing was missing there is no other cause than copying the clips, but for planning that took time."""
    with viewcache.open(config(tmp_path / "store", videos)) as cache:
        cache.read("t", 0, 0)
        batch = cache.read("t", 0, 0)
    assert batch.waited_s == 0
    assert batch.stalls.keys() - {"plan", "draw"} == {"load"}
    assert all(seconds >= NOTICED_S for cause, seconds in batch.stalls.items() if cause != "load")


def test_damage_is_a_cause(tmp_path: Path, videos: Path) -> None:
    """A clip that must be made again is waited for because of its damage, whatever a worker does for it."""
    store = tmp_path / "store"
    with viewcache.open(config(store, videos)) as cache:
        key = cache.read("t", 0, 0).keys[0]
        shard = next(
            path for path in objects_of(store)[key].rglob("*") if path.is_file() and path.name != METADATA_NAME
        )
        data = bytearray(shard.read_bytes())
        data[5] ^= 255
        shard.write_bytes(data)
        batch = cache.read("t", 0, 0)
    assert batch.stalls["rebuild"] == pytest.approx(batch.waited_s)
    assert batch.stalls.keys() <= {"rebuild", "load", "plan", "draw"}


def test_planning_on_the_way_is_a_cause(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation that is planned when it is read makes the reader wait for planning."""
    done = threading.Event()

    def slowly(*arguments: Any, **more: Any) -> object:
        done.wait(2 * NOTICED_S)
        return plan_generation(*arguments, **more)

    monkeypatch.setattr("viewcache.materializer.tasks.planner.plan_generation", slowly)
    with viewcache.open(config(tmp_path / "store", videos)) as cache:
        batch = cache.read("t", 0, 0)
    assert batch.stalls["plan"] >= 2 * NOTICED_S


def test_no_room_is_a_cause(store: Path, videos: Path) -> None:
    """A reader whose clips find no room until another one lets go has waited for room."""
    pool = ScriptedPool()
    with Harness(store, videos, pool) as harness:
        one, other = (harness.rows_of(video)[:1] for video in harness.videos[:2])
        harness.tier.resize(harness.bound + harness.bound // 2)
        holder = Reading(harness, one, hold=True)
        pool.make(pool.nth(0))
        pool.end(pool.nth(0))
        until(holder.got.is_set, "the first reader to have its clip")
        waits = []

        def wait() -> None:
            with harness.dispatcher.fetch(harness.active, other) as fetched:
                waits.append(fetched)

        waiting = threading.Thread(target=wait)
        waiting.start()
        board = harness.dispatcher.state
        assert isinstance(board, Board)
        until(lambda: board.tight_since is not None, "the dispatcher to look for room")
        holder.release()
        pool.make(pool.nth(1))
        pool.end(pool.nth(1))
        waiting.join()
    assert waits[0].stalls["room"] > 0
    assert sum(waits[0].stalls.values()) == pytest.approx(waits[0].waited_s)
