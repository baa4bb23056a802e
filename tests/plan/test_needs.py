"""What a generation needs of its videos, by columns, is what counting them one by one gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.invented import index_of
from tests.plan.plans import plan_of, task_of, videos_of
from viewcache.materializer.arrays import by_value, distinct
from viewcache.materializer.keys import content_key
from viewcache.materializer.planning import needs, rows
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.needs import frame_needs


@given(
    lengths=st.lists(st.integers(8, 120), min_size=1, max_size=9),
    samples=st.integers(1, 3),
    epochs=st.integers(1, 3),
    block=st.sampled_from([1, 2, 5, 1 << 16]),
    short=st.sampled_from(["clamp", "loop"]),
)
def test_by_columns(lengths: list[int], samples: int, epochs: int, block: int, short: str) -> None:
    """Frames, packets and content keys of each video, in blocks of any size."""
    plan = plan_of(
        task_of(samples=samples, on_short_video=short), videos_of(len(lengths), frames=lengths), epochs=epochs
    )
    indexes = [index_of(length, 12) for length in lengths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(needs, "BLOCK", block)
        found = frame_needs(plan, indexes.__getitem__)
    assert found.video.tolist() == np.unique(plan.video).tolist()
    lists, keys = found.lists().to_pylist(), found.keys(plan.videos.keys)
    for k, video in enumerate(found.video.tolist()):
        wanted = np.unique(plan.frames(np.flatnonzero(plan.video == video)))
        assert lists[k] == wanted.tolist()
        assert found.packets[k] == indexes[video].cost(wanted).packets
        assert keys[k].tobytes().hex() == content_key(
            "frames", bytes.fromhex(plan.videos.keys[video]), wanted.tobytes()
        )
    assert found.pixels.tolist() == [48 * 64] * len(found)


@given(st.lists(st.integers(-3, 5), max_size=20))
def test_by_value(values: list[int]) -> None:
    """Each distinct number with all places where it stands."""
    found = {value: places.tolist() for value, places in by_value(np.array(values, np.int64))}
    assert [*found] == sorted(set(values))
    assert found == {value: [k for k, each in enumerate(values) if each == value] for value in set(values)}


def test_many_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many videos the packets of some are counted, and of many clips what some take alone: within a seventh."""
    plan = plan_of(task_of(), videos_of(300))
    index = index_of(100, 12)
    exact = frame_needs(plan, lambda _: index)
    whole = rows.summarize(plan, exact, lambda _: index, CostModel())
    assert whole.counted == whole.uses == len(plan)
    monkeypatch.setattr(needs, "MOST_COUNTED", 50)
    monkeypatch.setattr(rows, "MOST_COUNTED", 100)
    about = frame_needs(plan, lambda _: index)
    part = rows.summarize(plan, about, lambda _: index, CostModel())
    assert part.counted == 100
    assert about.packets.sum() == pytest.approx(exact.packets.sum(), rel=0.15)
    assert part.packets_on_demand == pytest.approx(whole.packets_on_demand, rel=0.15)
    assert part.decode_on_demand_s == pytest.approx(whole.decode_on_demand_s, rel=0.15)


@given(st.lists(st.integers(-5, 5)))
def test_distinct(values: list[int]) -> None:
    """As `np.unique`."""
    array = np.array(values, np.int64)
    assert np.array_equal(distinct(array), np.unique(array))
