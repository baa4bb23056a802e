"""What tasks of one group draw alike (docs/design/0005): nested clips and crops, equal choices where operations agree.

And the price: each task alone is uniform all the same (law 2), and an independent one has nothing in common with any.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.draws import EXAMPLES
from tests.ops.references import p_even
from tests.plan.plans import plan_of, task_of, videos_of
from tests.tiny import single
from viewcache.materializer.ops import get
from viewcache.materializer.planning.clip_starts import shared_grid
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.sampling import clip_span

LAST: dict[str, object] = {"center_crop": [8, 8]}
"""Gives all clips one size, whatever was drawn before."""
GREY, BLUR = {"grayscale": {"prob": 1}}, {"blur": {"sigma": [1, 1], "prob": 1}}
RANDOM = [(name, value) for name, values in EXAMPLES.items() if get(name).columns for value in values]
MANY = videos_of(20_000)


def clips_in_order(plan: GenerationPlan) -> NDArray[np.intp]:
    """Rows by epoch, video and sample, so that rows of two tasks are of the same clips."""
    return np.lexsort((plan.sample, plan.video, plan.epoch))


def drawn(plan: GenerationPlan, use: int = 0) -> NDArray[np.int32]:
    """What the operation at a place of the one program drew for each clip."""
    (program,) = plan.resolved.programs
    i = program.instructions[use]
    return plan.resolved.rows[clips_in_order(plan), i.column : i.column + i.width]


def branches(plan: GenerationPlan) -> list[str]:
    """The operation that each clip's branch begins with."""
    names = [program.instructions[0].name for program in plan.resolved.programs]
    return [names[k] for k in plan.resolved.program[clips_in_order(plan)].tolist()]


def one(*steps: object, coordination: str = "shared", videos: int = 20_000) -> GenerationPlan:
    """An epoch of one clip a video of a task with steps of its own."""
    return plan_of(task_of(steps, samples=1, batch=64, coordination=coordination), videos_of(videos), epochs=1)


def step(*operations: object) -> dict[str, object]:
    """A step that ends in one size."""
    return single(*operations, LAST)


def either(probability: float, *operations: object) -> dict[str, object]:
    """A random step of two branches."""
    arms = [(probability, [operations[0], LAST]), (1 - probability, [operations[1], LAST])]
    listed = [{"prob": prob, "config": config} for prob, config in arms]
    return {"branch_type": "random", "inputs": ["frame"], "outputs": ["a"], "branches": listed}


def assert_unrelated(first: NDArray[np.integer], second: NDArray[np.integer]) -> None:
    """Assert that what one draws says nothing about the other: in eighths of their ranks, all pairs come alike."""
    eighths = [np.argsort(np.argsort(each, kind="stable"), kind="stable") * 8 // len(each) for each in (first, second)]
    joint = np.zeros((8, 8), np.int64)
    np.add.at(joint, tuple(eighths), 1)
    assert p_even(joint.ravel()) > 1e-4


# Nested ----------------------------------------------------------------------------------------------------------


@given(
    clips=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), min_size=2, max_size=3),
    frames=st.integers(20, 300),
    spread=st.floats(0.01, 1),
    seed=st.integers(0, 99),
)
def test_shorter_clips_lie_inside_longer_ones(
    clips: list[tuple[int, int]], frames: int, spread: float, seed: int
) -> None:
    """Over the clips of a generation, tasks of any length and stride: inside up to a cell of the common grid.

    A task whose number of starts is no multiple of the grid has another phase now and then, for the sake of uniformity.
    """
    grid = shared_grid(stride for _, stride in clips)
    found = []
    for k, (count, stride) in enumerate(clips):
        task = task_of([step()], frames=count, stride=stride, spread=spread, tag=f"t{k}", batch=1 + k)
        plan = plan_of(task, videos_of(8, frames=frames), epochs=3, grid=grid, seed=seed)
        found.append((clip_span(count, stride), plan.start[clips_in_order(plan)]))
    found.sort(key=lambda each: each[0])
    (short, inner), (long, outer) = found[0], found[-1]
    if long <= frames:
        alike = (inner - outer) % grid == 0
        assert np.all((outer - grid < inner) & (inner + short <= outer + long + grid) | ~alike)
        if (frames - short + 1) % grid == (frames - long + 1) % grid == 0:
            assert alike.all()


@given(
    outer=st.tuples(st.integers(1, 48), st.integers(1, 64)),
    inner=st.tuples(st.integers(1, 48), st.integers(1, 64)),
    seed=st.integers(0, 99),
)
def test_smaller_crops_lie_inside_larger_ones(outer: tuple[int, int], inner: tuple[int, int], seed: int) -> None:
    """Tasks that crop the same frames to other sizes: the smaller window lies inside, in each direction by itself."""
    low = [min(pair) for pair in zip(outer, inner, strict=True)]
    high = [max(pair) for pair in zip(outer, inner, strict=True)]
    windows = [
        drawn(plan_of(task_of([single({"random_crop": {"shape": size}})], tag=tag), videos_of(8), seed=seed))
        for tag, size in (("small", low), ("large", high))
    ]
    small, large = (window[:, :2] for window in windows)
    assert np.all(large <= small)
    assert np.all(small + low <= large + high)


# Uniform, each alone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strides", [(2, 4), (3, 6), (4, 6), (2, 3, 4)])
def test_each_task_of_a_group_starts_anywhere_alike(strides: Sequence[int]) -> None:
    """Law 2 on a grid that is finer than a task's own stride: every start is as likely for each task alone."""
    for k, stride in enumerate(strides):
        task = task_of([step()], frames=4 + k, stride=stride, samples=1, batch=64, tag=f"t{k}")
        plan = plan_of(task, videos_of(20_000, frames=60), epochs=2, grid=shared_grid(strides))
        for epoch in range(2):
            starts = np.bincount(plan.start[plan.epoch == epoch], minlength=60 - clip_span(4 + k, stride) + 1)
            assert p_even(starts) > 1e-4


@pytest.mark.parametrize("size", [(45, 60), (41, 57), (48, 40)])
def test_each_task_of_a_group_crops_anywhere_alike(size: tuple[int, int]) -> None:
    """Whatever the others crop to, the offsets of one task are uniform over both directions together."""
    corners = drawn(one(single({"random_crop": {"shape": list(size)}})))[:, :2]
    places = (48 - size[0] + 1, 64 - size[1] + 1)
    joint = np.zeros(places, np.int64)
    np.add.at(joint, (corners[:, 0], corners[:, 1]), 1)
    assert p_even(joint.ravel()) > 1e-4


# Alike where operations agree ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), RANDOM)
@given(frames=st.integers(3, 9), stride=st.integers(1, 5), batch=st.integers(1, 5), seed=st.integers(0, 9))
def test_equal_operations_draw_alike(name: str, value: object, frames: int, stride: int, batch: int, seed: int) -> None:
    """Scale, crop, flip, angle, colours: tasks of other clips, batches and names get the same numbers for a clip.

    Operations of other kinds before them change nothing.
    """
    other = "grayscale" if name != "grayscale" else "blur"
    plans = [
        plan_of(task_of([step({name: value})], tag="a"), videos_of(6), seed=seed),
        plan_of(
            task_of([step({other: {"prob": 0.5}}, {name: value})], tag="b", frames=frames, stride=stride, batch=batch),
            videos_of(6),
            seed=seed,
        ),
    ]
    if get(name).stage == "time" and frames != 4:
        return  # how frames are rearranged depends on how many there are
    assert np.array_equal(drawn(plans[0]), drawn(plans[1], 1))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"flip": 0.5}, {"flip": {"direction": "vertical"}}),
        ({"color_jitter": {"brightness": 0.4}}, {"grayscale": {"prob": 0.5}}),
        ({"rotate": {"degrees": [-30, 30]}}, {"random_short_side": {"range": [20, 60]}}),
    ],
)
def test_other_operations_draw_apart(first: dict[str, object], second: dict[str, object]) -> None:
    """What one kind of operation drew says nothing about another, in another task."""
    one_drew, other_drew = (drawn(one(step(operation)))[:, 0] for operation in (first, second))
    cells = [np.unique(each, return_inverse=True)[1].reshape(-1) for each in (one_drew, other_drew)]
    joint = np.zeros([int(each.max()) + 1 for each in cells], np.int64)
    np.add.at(joint, tuple(cells), 1)
    if joint.size <= 16:
        expected = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / joint.sum()
        assert np.all(np.abs(joint - expected) < 5 * expected**0.5)
    else:
        assert abs(np.corrcoef(one_drew, other_drew)[0, 1]) < 5 / len(one_drew) ** 0.5


def test_a_second_use_draws_apart() -> None:
    """The same operation twice in a task: the second use has draws of its own, the first those of the other task."""
    jitter = {"color_jitter": {"brightness": 0.4}}
    twice, once = one(step(jitter, jitter)), one(step(jitter))
    assert np.array_equal(drawn(twice, 0), drawn(once))
    assert_unrelated(drawn(twice, 1)[:, 0], drawn(once)[:, 0])


def test_chances_of_one_operation_are_nested() -> None:
    """Flips of two chances are two signatures that share a draw: who flips rarely flips only what others flip too."""
    rare, often = (drawn(one(step({"flip": chance})))[:, 0].astype(bool) for chance in (0.2, 0.6))
    assert not np.any(rare & ~often)
    for flips, chance in ((rare, 0.2), (often, 0.6)):
        assert abs(flips.mean() - chance) < 5 * (chance * (1 - chance) / len(flips)) ** 0.5


def test_equal_random_steps_take_equal_branches() -> None:
    """Whatever stands behind them, and whatever the steps and streams are called."""
    step_a, step_b = either(0.5, GREY, BLUR), either(0.5, GREY, BLUR) | {"outputs": ["b"]}
    taken = branches(one(step_a, videos=500))
    assert branches(one(step_b, single({"flip": 0.5}, of="b", into="c"), videos=500)) == taken
    assert set(taken) == {"grayscale", "blur"}


@pytest.mark.parametrize("other", [either(0.5, GREY, {"flip": 1}), either(0.4, GREY, BLUR), either(0.5, BLUR, GREY)])
def test_other_random_steps_take_their_branches_apart(other: dict[str, object]) -> None:
    """Other operations, other chances or another order of branches: the choices are independent."""
    first = np.array([name == "grayscale" for name in branches(one(either(0.5, GREY, BLUR)))])
    second = np.array([name == "grayscale" for name in branches(one(other))])
    joint = np.histogram2d(first, second, 2)[0]
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / joint.sum()
    assert np.all(np.abs(joint - expected) < 5 * expected**0.5)


# Independent -----------------------------------------------------------------------------------------------------


def test_independent_tasks_have_nothing_in_common() -> None:
    """Order, start, crop, flip, colours and branch of an independent task say nothing about those of any other."""
    operations = ({"random_crop": {"shape": [20, 20]}}, {"color_jitter": {"brightness": 0.4}}, {"flip": 0.5})
    steps = [single(*operations)]

    def plan(tag: str, coordination: str) -> GenerationPlan:
        return plan_of(task_of(steps, samples=1, batch=64, tag=tag, coordination=coordination), MANY, epochs=1)

    shared, alone, other = plan("a", "shared"), plan("b", "independent"), plan("c", "independent")
    for first, second in ((shared, alone), (alone, other)):
        assert_unrelated(first.video, second.video)
        assert_unrelated(first.start[clips_in_order(first)], second.start[clips_in_order(second)])
        for use, column in ((0, 0), (0, 1), (1, 0)):
            assert_unrelated(drawn(first, use)[:, column], drawn(second, use)[:, column])
        assert abs(np.mean(drawn(first, 2)[:, 0] == drawn(second, 2)[:, 0]) - 0.5) < 2.5 / len(MANY) ** 0.5
        assert not set(first.hex_keys) & set(second.hex_keys)
    chosen = [branches(one(either(0.5, GREY, BLUR), coordination=mode)) for mode in ("shared", "independent")]
    agreed = np.mean([a == b for a, b in zip(*chosen, strict=True)])
    assert abs(agreed - 0.5) < 2.5 / len(MANY) ** 0.5
