"""Choosing what to keep: against every choice there is, against the rivals, and with growing budgets."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.retention.balance import RULES
from viewcache.materializer.retention.choice import Options, collapse, leaves_until_full, prune

NOTHING, FRAMES, AUG, LEAF = range(4)


def options(ways: list[list[tuple[int, float, float]]]) -> Options:
    """Of (bytes, cost, work) for frames, aug and leaf; nothing takes no bytes."""
    rows = [[(0, nothing, nothing), *rest] for (_, nothing, _), *rest in ways]
    size, cost, work = (np.array([[each[k] for each in row] for row in rows]) for k in range(3))
    return Options(size.astype(np.int64), cost.astype(float), work.astype(float), LEAF, NOTHING)


way = st.tuples(st.integers(1, 30), st.floats(0, 10, width=16), st.floats(0, 10, width=16))
graphs = st.lists(st.lists(way, min_size=4, max_size=4), min_size=1, max_size=5).map(options)


def cheapest(graph: Options, budget: int) -> float:
    """By trying every choice."""
    videos = range(len(graph.bytes))
    choices = product(range(graph.bytes.shape[1]), repeat=len(videos))
    fitting = [each for each in choices if sum(graph.bytes[v, o] for v, o in zip(videos, each, strict=True)) <= budget]
    return min(float(sum(graph.cost_s[v, o] for v, o in zip(videos, each, strict=True))) for each in fitting)


@given(graphs, st.integers(0, 150))
def test_it_is_within_one_item_of_the_best_choice(graph: Options, budget: int) -> None:
    """Against every choice that fits: off by no more than the largest difference of one video."""
    chosen, best = prune(graph, budget), cheapest(graph, budget)
    assert chosen.bytes <= budget
    assert not chosen.short_bytes
    most = float((graph.cost_s.max(axis=1) - graph.cost_s.min(axis=1)).max())
    assert best - 1e-9 <= chosen.cost_s <= best + most + 1e-9


@given(graphs, st.integers(0, 150))
def test_it_is_never_worse_than_leaves_until_full(graph: Options, budget: int) -> None:
    """Whatever the numbers are."""
    assert prune(graph, budget).cost_s <= leaves_until_full(graph, budget).cost_s + 1e-9


@given(graphs)
def test_more_budget_never_costs_more(graph: Options) -> None:
    """Byte by byte."""
    costs = [prune(graph, budget).cost_s for budget in range(151)]
    assert all(after <= before + 1e-9 for before, after in pairwise(costs))


@given(graphs)
def test_with_room_for_all_every_video_has_its_cheapest_way(graph: Options) -> None:
    """Which need not be the one that keeps most."""
    assert prune(graph, 10**9).cost_s == pytest.approx(float(graph.cost_s.min(axis=1).sum()))


@given(graphs, st.integers(0, 150), st.sampled_from(sorted(RULES)))
def test_every_rule_says_what_it_takes(graph: Options, budget: int, rule: str) -> None:
    """Bytes, seconds and what is missing are those of the ways it chose."""
    chosen = RULES[rule](graph, budget)
    videos = np.arange(len(chosen.option))
    assert chosen.bytes == graph.bytes[videos, chosen.option].sum()
    assert chosen.cost_s == pytest.approx(graph.cost_s[videos, chosen.option].sum())
    assert chosen.short_bytes == max(0, chosen.bytes - budget)


@given(graphs, st.integers(0, 150))
def test_the_papers_algorithm_holds_the_budget_once_its_exits_are_repaired(graph: Options, budget: int) -> None:
    """As printed it stops when it is over the budget, or never."""
    assert collapse(graph, budget).bytes <= budget  # nothing takes no room here, so there is always a way


def video_by_video(graph: Options, budget: int) -> list[int]:
    """Algorithm 1 as it is written, with its exits repaired."""
    option = [LEAF] * len(graph.bytes)
    total, moved = int(graph.bytes[:, LEAF].sum()), True
    while total > budget and moved:
        moved = False
        for video, size in enumerate(graph.bytes.tolist()):
            smaller = [way for way in range(4) if size[way] < size[option[video]] and graph.cost_s[video, way] < np.inf]
            if smaller:
                target = min(smaller, key=lambda way: float(graph.work_s[video, way]))
                total -= size[option[video]] - size[target]
                option[video], moved = target, True
            if total <= budget:
                break
    return option


@given(graphs, st.integers(0, 150))
def test_the_papers_algorithm_by_columns(graph: Options, budget: int) -> None:
    """A round over all videos at once ends where one after the other does."""
    assert collapse(graph, budget).option.tolist() == video_by_video(graph, budget)


def test_a_way_that_is_not_to_be_had_is_not_taken() -> None:
    """Frames of a format that is not kept, or too large for a worker."""
    graph = options([[(0, 9.0, 9.0), (5, 3.0, 2.0), (8, np.inf, np.inf), (20, 1.0, 0.0)]])
    assert prune(graph, 10).option.tolist() == [FRAMES]
    assert collapse(graph, 10).option.tolist() == [FRAMES]


def test_the_papers_algorithm_is_worse_than_no_plan_where_loading_costs_as_much_as_decoding() -> None:
    """It leaves the cost of loading out, so it keeps frames that are dear to read."""
    row = [(0, 10.0, 10.0), (10, 10.5, 1.0), (15, 10.5, 0.5), (20, 1.0, 0.0)]
    graph = options([row] * 10)
    assert collapse(graph, 100).cost_s > leaves_until_full(graph, 100).cost_s
    assert prune(graph, 100).cost_s == leaves_until_full(graph, 100).cost_s


def test_a_budget_that_is_too_small_is_said_with_what_is_missing() -> None:
    """Where something must be kept."""
    graph = Options(np.array([[7, 9]]), np.array([[2.0, 1.0]]), np.array([[1.0, 0.0]]), leaf=1, nothing=0)
    assert prune(graph, 5).short_bytes == 2
    assert collapse(graph, 5).short_bytes == 2


def test_many_videos_are_quick() -> None:
    """A hundred thousand in well under the timeout of a test."""
    rng = np.random.default_rng(0)
    size = np.cumsum(rng.integers(1, 100, (100_000, 4)), axis=1) - 1
    cost = -np.sort(-rng.random((100_000, 4)), axis=1)
    graph = Options(size, cost, cost, LEAF, NOTHING)
    chosen = prune(graph, int(size[:, LEAF].sum()) // 2)
    assert chosen.bytes <= size[:, LEAF].sum() // 2 + 100_000  # every video takes at least its least
    assert chosen.cost_s < leaves_until_full(graph, int(size[:, LEAF].sum()) // 2).cost_s
