"""Files of far videos beside the ways to keep clips: more budget never costs more, and what lies near has no option."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.invented import index_of, plan_of, task_of, videos_of
from viewcache.materializer.media.kept import CHUNK_BYTES, kept_key
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention import near
from viewcache.materializer.retention.balance import RULES
from viewcache.materializer.retention.chosen import Chosen, KeepSettings, choose
from viewcache.materializer.retention.near import file_recipe
from viewcache.materializer.retention.ways import ToCome
from viewcache.store import ArrayMeta
from viewcache.store.shard_writer import bound_bytes

INDEX = index_of(300, 48)
BIG = 1 << 40
STAMP = Stamp(3_000_000, 1)
COST = CostModel()


def plan(epochs: int = 5, later: int = 20, videos: int = 6) -> GenerationPlan:
    """A generation over videos of 300 frames."""
    return plan_of(task_of("train", 16, 4, batch=2), videos_of(videos), epochs=epochs, number=0, later=later)


def chosen(
    plan: GenerationPlan,
    budget: int,
    far: Callable[[int], Stamp | None] | None = lambda video: STAMP,
    *,
    cost: CostModel = COST,
    has: Callable[[str], bool] = lambda _: False,
    rule: str = "cheapest",
    remote_bytes: int = 0,
) -> Chosen | None:
    """What is kept of it, when nothing else is there."""
    rows = np.ones(len(plan), np.bool_)
    each = ToCome(plan, lambda _: INDEX, rows, ~rows, far)
    where = KeepSettings(budget + remote_bytes, rule, "auto", 1 << 30, remote_bytes)
    return choose([each], cost, where, 0, has=has)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(10, 26), min_size=2, max_size=6, unique=True),
    st.sampled_from([0, 4, 30]),
    st.sampled_from([1e-9, 1e-8, 1e-6]),
)
def test_more_budget_never_costs_more(powers: list[int], later: int, fetch_s: float) -> None:
    """With files among the options too; and the budget holds."""
    mine, costs = plan(later=later), []
    for budget in [1 << power for power in sorted(powers)]:
        found = chosen(mine, budget, cost=CostModel(fetch_s_per_byte=fetch_s))
        if found is not None:
            assert found.choice.bytes <= budget
            costs.append(found.choice.cost_s)
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(costs))


@pytest.mark.parametrize("budget", [1 << 20, 8 << 20, 40 << 20, 200 << 20])
def test_it_is_never_worse_than_without_files(budget: int) -> None:
    """The choice among all options costs no more than that among those without files, at the same price of fetching."""
    found = chosen(plan(), budget)
    assert found is not None
    weighed = found.weighed
    plain = {name: getattr(weighed.options, name)[:, : weighed.plain] for name in ("bytes", "cost_s", "work_s")}
    options = replace(weighed.options, **plain)
    assert found.choice.cost_s <= RULES["cheapest"](options, budget).cost_s * (1 + 1e-9)


def test_a_small_budget_keeps_files_where_fetching_is_dear() -> None:
    """Of a budget that holds no pictures to speak of, files save the most."""
    found = chosen(plan(), 25_000_000, cost=CostModel(fetch_s_per_byte=1e-6))
    assert found is not None
    assert len(found.kept_files()) == 6
    assert "the encoded file" in found.describe()
    assert found.lasts
    costs = found.epoch_costs()
    assert costs is not None
    assert costs.later_s < costs.without_s


def test_where_fetching_is_cheap_no_file_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of a file that saves less than another byte goes to that."""
    monkeypatch.setattr(near, "FETCH_S", 0.0)
    found = chosen(plan(later=2), 25_000_000, cost=CostModel(fetch_s_per_byte=1e-15))
    whole = chosen(plan(later=2), 25_000_000, None)
    assert found is not None
    assert whole is not None
    kept = sum(file.recipe.bound for file in found.kept_files().values())
    assert kept <= found.budget_bytes - whole.choice.bytes, "of room that is left only"


def test_what_lies_there_is_not_fetched() -> None:
    """A copy that lies in the store costs nothing to make."""
    dear = CostModel(fetch_s_per_byte=1e-6)
    one = chosen(plan(), 25_000_000, cost=dear)
    other = chosen(plan(), 25_000_000, cost=dear, has=lambda _: True)
    assert one is not None
    assert other is not None
    saved = one.choice.cost_s - other.choice.cost_s
    assert saved >= 6 * STAMP.size * 1e-6 * 0.99


def test_only_far_videos_have_the_option() -> None:
    """Half of the videos lie near; without any far one the options are as they were."""
    dear = CostModel(fetch_s_per_byte=1e-6)
    mine = plan()
    found = chosen(mine, 25_000_000, lambda video: STAMP if video % 2 else None, cost=dear)
    assert found is not None
    assert set(found.kept_files()) == {mine.videos.keys[video] for video in (1, 3, 5)}
    for nowhere in (None, lambda video: None):
        other = chosen(mine, 25_000_000, nowhere, cost=dear)
        assert other is not None
        assert other.weighed.plain == 0
        assert not other.kept_files()


@pytest.mark.parametrize("other", [{"rule": "leaves"}, {"rule": "sand"}, {"remote_bytes": 10**9}])
def test_no_files_by_other_rules_or_with_a_remote_tier(other: dict[str, object]) -> None:
    """The rival rules look at one generation; and workers read the local tier only."""
    found = chosen(plan(), 25_000_000, cost=CostModel(fetch_s_per_byte=1e-6), **other)  # type: ignore[arg-type]
    assert found is None or not found.kept_files()


@pytest.mark.parametrize("size", [1, 1000, CHUNK_BYTES, CHUNK_BYTES + 1, 10 * CHUNK_BYTES - 5])
def test_room_for_a_copy_is_enough(size: int) -> None:
    """What is promised to a copy is at least what writing it takes, last chunk and metadata included."""
    recipe = file_recipe("ab" * 16, Stamp(size, 2, "e" * 64))
    meta = ArrayMeta(recipe.shape, recipe.chunk_shape, "raw", {"name": "n" * 1000})
    assert recipe.key == kept_key("ab" * 16, Stamp(size, 2, "e" * 64))
    assert recipe.bound >= bound_bytes(meta, recipe.key)
