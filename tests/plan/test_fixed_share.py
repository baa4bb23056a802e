"""A stated share of the items is kept: so many of them, evenly over the batches, as far as the budget holds them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.invented import index_of, plan_of, task_of, videos_of
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.balance import balance
from viewcache.materializer.retention.choice import Options, WayChoice
from viewcache.materializer.retention.chosen import Chosen, KeepSettings, choose
from viewcache.materializer.retention.fixed_share import keep_share
from viewcache.materializer.retention.settled import Settled
from viewcache.materializer.retention.spread import shuffled
from viewcache.materializer.retention.ways import ToCome

INDEX = index_of(300, 48)
BIG = 1 << 40
BATCH = 32


def equal(items: int, ordered: bool = False) -> Options:
    """Items that are as good as one another, each of 10 bytes if it is kept, in three epochs of batches of ten."""
    size, cost_s = np.tile(np.array([0, 10]), (items, 1)), np.tile(np.array([3.0, 1.0]), (items, 1))
    rng = np.random.default_rng(5)
    batches = np.stack([np.arange(items) // 10, *(rng.permutation(items) // 10 for _ in range(2))]).astype(np.int32)
    ties = None if ordered else shuffled(tuple(f"{k:032x}" for k in range(items)))
    return Options(size, cost_s, cost_s, 1, 0, ties=ties, batches=batches)


def share(options: Options, budget: int, asked: float, before: NDArray[np.bool_] | None = None) -> WayChoice:
    """What is kept of them."""
    none = np.zeros(len(options.bytes), np.bool_)
    return keep_share(options, budget, asked, np.array([False, True]), none if before is None else before)


@given(st.integers(1, 60), st.floats(0, 1), st.integers(0, 700))
def test_so_many_are_kept_as_the_budget_holds(items: int, asked: float, budget: int) -> None:
    """The share, to an item; fewer where there is no room; never more bytes than the budget."""
    chosen = share(equal(items), budget, asked)
    assert chosen.option.sum() == min(round(items * asked), budget // 10)
    assert chosen.bytes <= budget
    assert not chosen.short_bytes


def test_what_was_kept_before_stays() -> None:
    """A larger share keeps it and adds to it; a smaller one keeps of it alone."""
    options, before = equal(100), np.arange(100) % 3 == 0
    more, less = (share(options, BIG, asked, before).option == 1 for asked in (0.5, 0.2))
    assert more.sum() == 50
    assert (more & before).sum() == before.sum()
    assert less.sum() == 20
    assert not (less & ~before).any()


def test_nothing_can_be_kept_of_some() -> None:
    """Of whom there is no way to keep anything nothing is, whatever share is asked."""
    options = equal(20)
    options.cost_s[:5, 1] = np.inf
    assert share(options, BIG, 1.0).option.tolist() == [0] * 5 + [1] * 15


def test_ties_do_not_follow_the_order_of_need() -> None:
    """With room for three of ten equal items, no part of an epoch has more of them than another, to one or two."""
    options = equal(400)
    kept = balance(options, 10 * 120).option == 1
    assert kept.sum() == 120
    assert not kept[:120].all()
    assert options.batches is not None
    found = np.concatenate([np.bincount(each[kept], minlength=40) for each in options.batches])
    assert np.abs(found - 3).max() <= 2
    assert found.std() < 0.9  # 1.4 by dice
    # Taken in the order of need the first epoch has them all in its first third.
    ordered = replace(equal(400, ordered=True), batches=None)
    assert balance(ordered, 10 * 120).option[:120].all()


def plan(videos: int = 320, later: int = 20) -> GenerationPlan:
    """A generation of three epochs over many videos that are alike."""
    return plan_of(task_of("train", 16, 4, batch=BATCH, samples=1), videos_of(videos), epochs=3, later=later)


def chosen(plan: GenerationPlan, mix: float, settled: Settled | None = None) -> Chosen | None:
    """What is kept of it, when nothing is there."""
    rows = np.ones(len(plan), np.bool_)
    settings = KeepSettings(BIG, "cheapest", "auto", 1 << 30, mix=mix)
    each = ToCome(plan, lambda _: INDEX, rows, ~rows)
    return choose([each], CostModel(), settings, 0, settled=settled or Settled())


@pytest.mark.parametrize("later", [0, 20])
@pytest.mark.parametrize("mix", [0.0, 0.3, 0.75])
def test_every_batch_has_its_share(mix: float, later: int) -> None:
    """Of each epoch of the generation, whether or not others come behind it."""
    whole = plan(later=later)
    found = chosen(whole, mix)
    assert found is not None
    kept = np.array([way.keeps for way in found.way_of().values()])
    assert kept.mean() == pytest.approx(mix)
    numbers = {key: bool(is_kept) for key, is_kept in zip(found.weighed.videos, kept, strict=True)}
    of_row = np.array([numbers[key] for key in whole.videos.keys])[whole.video]
    batches = np.bincount(whole.seq - whole.seq.min(), of_row)
    assert len(batches) == 3 * 320 // BATCH
    assert np.abs(batches - mix * BATCH).max() <= 4
    assert batches.std() < 1.6  # by dice 2.4


def test_all_are_kept_as_without_a_share() -> None:
    """A share of 1 where every clip fits and nothing comes behind is no choice."""
    assert chosen(plan(videos=64, later=0), 1.0) is None


def test_later_generations_keep_the_same_items() -> None:
    """What lasts would be made for nothing otherwise."""
    first = chosen(plan(), 0.3)
    assert first is not None
    kept = {key for key, way in first.way_of().items() if way.keeps}
    assert len(kept) == 96
    again = plan_of(task_of("train", 16, 4, batch=BATCH, samples=1), videos_of(320), epochs=3, number=1, later=17)
    second = chosen(again, 0.3, Settled(first.way_of()))
    assert second is not None
    assert {key for key, way in second.way_of().items() if way.keeps} == kept
