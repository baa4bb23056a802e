"""The epochs behind a generation: frames that clips can have, what lasts, and that a longer look never costs more."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.invented import index_of, plan_of, task_of, videos_of
from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.clock import BEGINNING
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.chosen import Chosen, KeepSettings, choose
from viewcache.materializer.retention.horizon import (
    Reach,
    Reached,
    generations_later,
    may_last,
    reached_by_others,
)
from viewcache.materializer.retention.settled import Settled
from viewcache.materializer.retention.ways import Kept, ToCome, Way

INDEX = index_of(300, 48)
BIG = 1 << 40
COST = CostModel(decode_s_per_pixel=2e-8)
"""A machine on which decoding is dear."""
VIDEOS = 100
PICTURES = VIDEOS * 300 * 3 * 256 * 456
"""Raw bytes of all pictures of so many videos after their resize."""


def plan(epochs: int, later: int, number: int = 0, videos: int = 6) -> GenerationPlan:
    """A generation over videos of 300 frames."""
    return plan_of(task_of("train", 16, 4, batch=2), videos_of(videos), epochs=epochs, number=number, later=later)


def chosen(plan: GenerationPlan, budget: int, rule: str = "cheapest") -> Chosen | None:
    """What is kept of it, when nothing is there."""
    rows = np.ones(len(plan), np.bool_)
    each = ToCome(plan, lambda _: INDEX, rows, ~rows)
    return choose([each], COST, KeepSettings(budget, rule, "auto", 1 << 30), 0)


def test_generations_behind() -> None:
    """Counted in generations like the one at hand; what was before it may lie there too."""
    assert generations_later([plan(5, 0)]) == 0
    assert generations_later([plan(5, 5)]) == 1
    assert generations_later([plan(5, 12), plan(5, 0)]) == pytest.approx(2.4)
    assert not may_last([plan(5, 0)])
    assert may_last([plan(5, 1)])
    assert may_last([plan(5, 0, number=1)])


Runs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=12)


@given(Runs)
def test_frames_that_clips_can_have(runs: list[tuple[int, int, int]]) -> None:
    """Those of all items of a video, each once, however they overlap."""
    whole = plan(1, 0, videos=4)
    video, begin, frames = (np.array(column, np.int64) for column in zip(*runs, strict=True))
    columns = {name: getattr(whole.items, name) for name in Items.__dataclass_fields__}
    columns |= {name: np.zeros(len(runs), np.int64) for name in ("ids", "first", "length")}
    columns |= {"video": video, "begin": begin, "frames": frames}
    items = Items(**columns)
    object.__setattr__(whole, "context", _with_items(whole, items))
    count = len(items.videos)
    reach = Reach([Reached.by(whole)], [np.arange(count)], count)
    for k in range(4):
        expected = sorted({frame for v, b, n in runs if v == k for frame in range(b, b + n)})
        assert reach.frames(k).tolist() == expected
        assert reach.counts[k] == len(expected)


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=4), st.data())
def test_pictures_are_the_same_for_whichever_tasks_it_is_decided(strides: list[int], data: st.DataObject) -> None:
    """A task whose generation the others have read finds what was made for all of them."""
    plans = [
        plan_of(task_of(f"task{k}", 4, stride, batch=2), videos_of(3), epochs=2, later=9)
        for k, stride in enumerate(strides)
    ]
    mine = data.draw(st.sets(st.sampled_from(range(len(plans))), min_size=1))

    def keys(among: set[int]) -> dict[str, set[str]]:
        rows = [np.ones(len(plans[k]), np.bool_) for k in sorted(among)]
        to_come = [ToCome(plans[k], lambda _: INDEX, each, ~each) for k, each in zip(sorted(among), rows, strict=True)]
        others = [Reached.by(each) for k, each in enumerate(plans) if k not in among]
        settings = KeepSettings(BIG, "cheapest", "auto", 1 << 30)
        found = choose(to_come, COST, settings, 0, settled=Settled(others=others))
        assert found is not None
        assert found.weighed.lasting is not None
        lasting = found.weighed.lasting
        ways = [way for way in lasting.ways if not way.kept]
        return {
            video: {recipe.key for way in ways for recipe in lasting.recipes(place, way)}
            for place, video in enumerate(lasting.videos)
        }

    assert keys(mine) == keys({*range(len(plans))})


def test_which_other_tasks_count() -> None:
    """Those that go on, and for the generations that they had those that are through, unless it is their only one."""

    def others(mine: int, number: int, *newest: tuple[int, int]) -> list[int]:
        """Videos of the tasks that count for one of them: its number is that of its videos; each has some epochs."""
        plans = {
            videos: (at, plan(5, epochs - 5 * at - 5, number=at, videos=videos))
            for videos, (at, epochs) in enumerate(newest, 1)
        }
        return [len(each.keys) for each in reached_by_others(plans, number, {mine})]

    assert others(1, 0, (0, 30), (0, 30), (0, 5)) == [2], "frames of a validation are not kept for a training"
    assert others(3, 0, (0, 30), (0, 30), (0, 5)) == [1, 2]
    assert others(1, 4, (5, 30), (5, 30)) == [2], "the second has read its last generation"
    assert others(1, 6, (6, 90), (5, 30)) == [], "the first goes on alone"
    assert others(1, 6, (6, 90), (4, 30)) == [2], "the second will come to it"


def _with_items(plan: GenerationPlan, items: Items) -> object:
    return replace(plan.context, items=items)


def test_nothing_lasts_without_epochs_behind() -> None:
    """Then everything is as it was: all clips where they fit, and else by this generation alone."""
    assert chosen(plan(5, 0), BIG) is None
    found = chosen(plan(5, 0), 10_000_000)
    assert found is not None
    assert not any(way.lasts for way in found.weighed.ways)


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_a_longer_look_never_costs_more(share: float) -> None:
    """Over all epochs what is chosen costs no more than the best that ends with its generation."""
    whole = plan(5, 95, videos=VIDEOS)
    found = chosen(whole, int(share * PICTURES))
    assert found is not None
    costs = found.epoch_costs()
    assert costs is not None
    total, rival = (5 * costs.now_s + 95 * later for later in (costs.later_s, costs.without_s))
    assert costs.later_s <= costs.without_s + 1e-9
    assert total <= rival + 5 * costs.now_s
    if share >= 0.3:
        assert costs.later_s < 0.7 * costs.without_s
        assert costs.pays_after < 50
    lasting = {way.lasts for way in found.way_of().values()}
    assert bool(costs.pay_after) == (True in lasting)
    assert costs.pay_after.keys() <= found.ways().keys()
    if len(costs.pay_after) == 1 and lasting == {True}:
        assert [*costs.pay_after.values()] == [costs.pays_after]


def test_what_is_spent_whatever_is_kept_is_told_apart() -> None:
    """Of the first generation with the beginning, of later ones by the batch; it changes nothing of what is kept."""
    whole = plan(5, 95)
    rows = np.ones(len(whole), np.bool_)
    settings = KeepSettings(120_000_000, "cheapest", "auto", 1 << 30)
    each, cost = ToCome(whole, lambda _: INDEX, rows, ~rows), replace(COST, batch_s=0.25, begin_s=3.0)
    plain, found = (choose([each], model, settings, 0) for model in (COST, cost))
    assert plain is not None
    assert found is not None
    before, costs = plain.epoch_costs(), found.epoch_costs()
    assert before is not None
    assert costs is not None
    assert (costs.now_s, costs.later_s, costs.without_s) == (before.now_s, before.later_s, before.without_s)
    assert (found.choice.option == plain.choice.option).all()
    batches = 5 * 3  # six videos, two a batch
    assert costs.now_beside_s * 5 == pytest.approx(3.0 + (batches - BEGINNING) * 0.25)
    assert costs.later_beside_s * 5 == pytest.approx(batches * 0.25)


def test_costs_fall_with_the_budget() -> None:
    """Budgets of 3, 10, 30 and 100 % of the pictures: each costs less over all epochs than the one before."""
    whole, costs = plan(5, 95, videos=VIDEOS), []
    for share in (0.03, 0.1, 0.3, 1.0):
        found = chosen(whole, int(share * PICTURES))
        assert found is not None
        costs.append(found.choice.cost_s)
    assert all(after < before for before, after in pairwise(costs))


def test_few_epochs_keep_clips() -> None:
    """What costs more to make than it saves in the epochs that are left is not made."""
    found = chosen(plan(5, 1), BIG)
    assert found is None or not any(found.weighed.ways[each].lasts for each in found.choice.option)


@pytest.mark.parametrize("rule", ["leaves", "sand"])
def test_the_rivals_look_at_one_generation(rule: str) -> None:
    """Keeping clips until the budget is full, and the paper's rule, are what they were."""
    for budget in (BIG, 10_000_000):
        found = chosen(plan(5, 95), budget, rule)
        assert found is None or not any(found.weighed.ways[each].lasts for each in found.choice.option)


def test_a_video_that_half_the_budget_cannot_hold_is_left_out() -> None:
    """What is promised to all of its objects must fit: else it would be decoded again for each few of them."""
    found = chosen(plan(5, 95), 40_000_000)
    assert found is None or not any(found.weighed.ways[each].lasts for each in found.choice.option)
    enough = chosen(plan(5, 95), 120_000_000)  # packed, as pixels a video takes as much
    assert enough is not None
    assert any(enough.weighed.ways[each].lasts for each in enough.choice.option)


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0, 1.5])
def test_pictures_stay_until_clips_are_made_of_them(share: float) -> None:
    """In the last generation clips are kept besides what lies there, not instead: else it would leave to make room."""
    whole = plan(5, 0, number=19, videos=VIDEOS)
    way, rows = Way(0, ObjectKind.AUG, "raw"), np.ones(len(whole), np.bool_)
    size = PICTURES // VIDEOS
    budget = int(share * PICTURES)
    lying = {key: [Kept(way, size, made=True)] for key in whole.videos.keys[: int(min(1.0, share) * VIDEOS)]}

    def found(ready: NDArray[np.bool_]) -> Chosen:
        each, settings = ToCome(whole, lambda _: INDEX, rows, ready), KeepSettings(budget, "cheapest", "auto", 1 << 30)
        made = choose([each], COST, settings, 0, lying=lambda _: lying)
        assert made is not None
        return made

    to_make, made = found(~rows), found(rows)
    leaf = to_make.weighed.options.leaf
    more = to_make.weighed.options.bytes[:, leaf] - made.weighed.options.bytes[:, leaf]
    assert more.tolist() == [size * (key in lying) for key in to_make.weighed.videos]
    taken = sum(size for key, each in to_make.way_of().items() if key in lying and (each.kept or each.lasts))
    assert taken <= budget
