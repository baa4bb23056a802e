"""Many videos by columns: each as its own sketch says, and a choice that hardly differs from that by their indexes."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.invented import index_of
from tests.plan.plans import plan_of, task_of, videos_of
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.media.media_index import DecodeCost
from viewcache.materializer.media.sketch import SketchedIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.retention import options
from viewcache.materializer.retention.balance import RULES
from viewcache.materializer.retention.options import Weighed, weigh
from viewcache.materializer.retention.sources import Indexes, sketches_of
from viewcache.materializer.retention.ways import ToCome

lengths = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 9)), min_size=1, max_size=6)


def invented(each: list[tuple[int, int]]) -> tuple[Videos, list[SketchedIndex]]:
    """Videos of so many frames and key frames, as columns and one by one."""
    videos = videos_of(len(each), frames=[frames for frames, _ in each])
    videos.keyframes[:] = [keys for _, keys in each]
    sketches = [SketchedIndex(frames, (48, 64), (48, 64), "yuv420p", keys, 10_000) for frames, keys in each]
    return videos, sketches


@given(lengths, st.data())
def test_columns_are_sketches(each: list[tuple[int, int]], data: st.DataObject) -> None:
    """Packets of any frames and of any spans."""
    videos, sketches = invented(each)
    plan = plan_of(task_of(frames=1), videos)
    columns, one_by_one = sketches_of(plan, np.arange(len(each))), Indexes(sketches)
    for name in ("frames", "pixels", "native_bytes"):
        assert getattr(columns, name).tolist() == getattr(one_by_one, name).tolist()
    wanted = [sorted(data.draw(st.sets(st.integers(0, frames - 1), min_size=1))) for frames, _ in each]
    flat = np.array(list(chain.from_iterable(wanted)), np.int32)
    bounds = np.cumsum([0, *map(len, wanted)])
    assert columns.packets(flat, bounds).tolist() == one_by_one.packets(flat, bounds).tolist()
    assert all(each.cost(flat[:0]) == DecodeCost(0, 0) for each in sketches)
    video = np.repeat(np.arange(len(each)), [len(mine) for mine in wanted])
    last = np.repeat(flat[bounds[1:] - 1], np.diff(bounds))
    spans = video, flat, last
    assert columns.span_packets(*spans).tolist() == one_by_one.span_packets(*spans).tolist()


def test_a_choice_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of videos with even groups of pictures: the same options, so the same choice under every budget and rule."""
    videos, index = videos_of(60, frames=240), index_of(240, 48, height=48, width=64)
    plans = [plan_of(task_of(tag=tag, frames=frames), videos) for tag, frames in (("a", 4), ("b", 8))]
    whole = [ToCome(plan, lambda _: index, np.ones(len(plan), bool), np.zeros(len(plan), bool)) for plan in plans]

    def weighed() -> Weighed:
        return weigh(whole, CostModel(), most_bytes=1 << 30)

    exact = weighed()
    monkeypatch.setattr(options, "MOST_INDEXES", 1)
    sketched = weighed()
    assert sketched.videos == exact.videos
    for name in ("bytes", "cost_s", "work_s"):
        assert np.allclose(getattr(sketched.options, name), getattr(exact.options, name)), name
    for rule in RULES.values():
        budget = int(exact.options.bytes[:, exact.options.leaf].sum()) // 3
        assert rule(sketched.options, budget).option.tolist() == rule(exact.options, budget).option.tolist()
