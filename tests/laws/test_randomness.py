"""Law 2: each task alone sees uniformly random orders, clip starts and crop positions.

Bounds are five standard deviations of the exact law; seeds are fixed, so that a failure is one of the code.
"""

from collections import Counter
from itertools import permutations
from math import factorial

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.plan.plans import plan_of, task_of, videos_of
from tests.tiny import single
from viewcache.materializer.dataset.stand_ins import stand_in_for
from viewcache.materializer.planning.order import draw_epoch


def assert_even(counts: NDArray[np.int64]) -> None:
    """Assert that counts fit equal chances: chi-square within five standard deviations of its mean."""
    expected = counts.sum() / counts.size
    chi, freedom = float(((counts - expected) ** 2 / expected).sum()), counts.size - 1
    assert abs(chi - freedom) < 5 * (2 * freedom) ** 0.5, f"chi-square {chi:.1f} of {freedom} degrees of freedom"


@pytest.mark.parametrize("vary", ["seed", "epoch", "task"])
def test_every_order_is_as_likely_as_any_other(vary: str) -> None:
    """All 24 orders of four videos come equally often, over seeds, over epochs of one seed, and over tasks."""
    rank = {order: k for k, order in enumerate(permutations(range(4)))}
    counts = np.zeros(factorial(4), np.int64)
    for k in range(6000):
        where: dict[str, tuple[int, str, int]] = {"seed": (k, "t", 3), "epoch": (1, "t", k), "task": (1, f"t{k}", 3)}
        counts[rank[tuple(draw_epoch(*where[vary], 4).tolist())]] += 1
    assert_even(counts)


def test_orders_of_neighbouring_epochs_and_of_tasks_are_independent() -> None:
    """Which order comes next says nothing about the one after it, nor about another task's: all 36 pairs come."""
    rank = {order: k for k, order in enumerate(permutations(range(3)))}
    for other in ("t", "u"):
        counts = np.zeros((6, 6), np.int64)
        for seed in range(6000):
            one, two = draw_epoch(seed, "t", 0, 3), draw_epoch(seed, other, 1, 3)
            counts[rank[tuple(one.tolist())], rank[tuple(two.tolist())]] += 1
        assert_even(counts)


def test_substitutes_are_drawn_evenly_and_without_repeats() -> None:
    """Each video is as likely to stand in; further attempts of one place go through all others, once each."""
    ids, counts = np.arange(10, 15), np.zeros(5, np.int64)
    for position in range(4000):
        drawn = stand_in_for(3, "t", 0, position, ids, np.ones(5, bool))
        assert drawn is not None
        counts[drawn - 10] += 1
    assert_even(counts)
    tried: list[int] = []
    while (drawn := stand_in_for(3, "t", 2, 1, ids, np.ones(5, bool), tried)) is not None:
        tried.append(drawn)
    assert sorted(tried) == ids.tolist()


@pytest.mark.parametrize("coordination", ["shared", "independent"])
@pytest.mark.parametrize(("epoch", "sample"), [(0, 0), (4, 1)])
def test_a_task_starts_its_clips_anywhere_alike(coordination: str, epoch: int, sample: int) -> None:
    """For one epoch and sample, over many videos and generations, every start is as likely, at both ends too."""
    task = task_of(coordination=coordination, frames=4, stride=3, batch=64)
    starts = []
    for number in range(4):
        plan = plan_of(task, videos_of(4000, frames=47), epochs=5, number=number, grid=3)
        starts.append(plan.start[(plan.epoch == 5 * number + epoch) & (plan.sample == sample)])
    assert_even(np.bincount(np.concatenate(starts), minlength=47 - 10 + 1))


@pytest.mark.parametrize("spread", [0.05, 0.4, 1.0])
def test_the_spread_does_not_bend_the_starts(spread: float) -> None:
    """However tight a generation's starts lie together, each of them alone is uniform."""
    plan = plan_of(task_of(spread=spread, samples=1, batch=64), videos_of(20_000, frames=30), epochs=3)
    for epoch in range(3):
        assert_even(np.bincount(plan.start[plan.epoch == epoch], minlength=30 - 7 + 1))


def test_one_video_alone_sees_every_start() -> None:
    """Over many generations of one video too: what is shared within a generation is drawn anew in the next."""
    task, one = task_of(batch=1, samples=1), videos_of(1, frames=19)
    starts = [int(plan_of(task, one, epochs=2, number=number).start[1]) for number in range(1000)]
    assert_even(np.bincount(starts, minlength=19 - 7 + 1))


def test_crops_lie_anywhere_alike() -> None:
    """Every offset of a random crop is as likely, row by row, column by column, and jointly."""
    task = task_of([single({"random_crop": {"shape": [45, 60]}})], samples=1, batch=64)
    plan = plan_of(task, videos_of(20_000), epochs=2)
    y, x = plan.resolved.rows[:, 0], plan.resolved.rows[:, 1]
    joint = np.zeros((4, 5), np.int64)
    np.add.at(joint, (y, x), 1)
    assert_even(joint)


def test_starts_crops_and_flips_are_independent() -> None:
    """Where a clip starts says nothing about where it is cut or whether it is mirrored."""
    task = task_of([single({"random_crop": {"shape": [45, 48]}}, {"flip": 0.5})], samples=1, batch=64)
    plan = plan_of(task, videos_of(20_000, frames=12), epochs=2)
    joint = np.zeros((6, 4, 2), np.int64)
    np.add.at(joint, (plan.start, plan.resolved.rows[:, 0], plan.resolved.rows[:, 4]), 1)
    assert_even(joint)


def test_samples_of_one_video_are_drawn_apart() -> None:
    """The second clip of a video is independent of the first, but for the grid's phase, which a generation shares."""
    plan = plan_of(task_of(batch=64), videos_of(20_000, frames=12), epochs=1)
    order = np.lexsort((plan.sample, plan.video))
    first, second = plan.start[order].reshape(-1, 2).T
    assert np.array_equal(first % 2, second % 2)
    joint = np.zeros((3, 3), np.int64)
    np.add.at(joint, (first // 2, second // 2), 1)
    assert_even(joint)


def test_random_branches_come_as_often_as_they_say() -> None:
    """Over many clips, branches of 0.6, 0.3 and 0.1 are taken in these shares."""
    arms = [{"prob": p, "config": ops} for p, ops in ((0.6, None), (0.3, [{"flip": 1}]), (0.1, [{"grayscale": 1}]))]
    step = {"branch_type": "random", "inputs": ["frame"], "outputs": ["a"], "branches": arms}
    plan = plan_of(task_of([step], batch=64), videos_of(10_000), epochs=2)
    names = [tuple(i.name for i in program.instructions) for program in plan.resolved.programs]
    taken = Counter(names[k] for k in plan.resolved.program.tolist())
    for share, branch in ((0.6, ()), (0.3, ("flip",)), (0.1, ("grayscale",))):
        assert abs(taken[branch] - len(plan) * share) < 5 * (len(plan) * share * (1 - share)) ** 0.5
