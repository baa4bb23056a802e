"""Steps become programs: all five types of branch, their chances, and what a draw does not depend on."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.plan.plans import clips_of, task_of
from tests.tiny import single
from viewcache.errors import BadInput
from viewcache.materializer.ops import Draw
from viewcache.materializer.planning.resolve import Clips, Resolved, resolve
from viewcache.materializer.randomness import ONE

FLIP = {"flip": {"flip_prob": 0.5}}
CROP = {"random_crop": {"shape": [32, 32]}}


def random_step(*branches: tuple[float, list[object] | None], of: str = "frame", into: str = "a") -> dict[str, object]:
    """One of several branches by chance."""
    arms = [{"prob": prob, "config": ops} for prob, ops in branches]
    return {"branch_type": "random", "inputs": [of], "outputs": [into], "branches": arms}


def conditional(*branches: tuple[str, list[object] | None], of: str = "frame", into: str = "a") -> dict[str, object]:
    """The first branch whose condition holds."""
    arms = [{"condition": condition, "config": ops} for condition, ops in branches]
    return {"branch_type": "conditional", "inputs": [of], "outputs": [into], "branches": arms}


def multi(*outputs: str, of: str = "frame") -> dict[str, object]:
    """Copies of a stream."""
    return {"branch_type": "multi", "inputs": [of], "outputs": list(outputs)}


def merge(how: str, *inputs: str, into: str = "m") -> dict[str, object]:
    """Several streams become one."""
    return {"branch_type": "merge", "inputs": list(inputs), "outputs": [into], "merge": how}


def resolved(steps: list[object], clips: Clips, frames: int = 4) -> Resolved:
    """The programs and rows of some clips."""
    return resolve(task_of(steps, frames=frames)[1], frames, clips)


def operations(found: Resolved) -> list[tuple[str, ...]]:
    """What each clip goes through, by name."""
    names = [tuple(i.name or i.kind for i in program.instructions) for program in found.programs]
    return [names[k] for k in found.program.tolist()]


def columns(found: Resolved, operation: str) -> NDArray[np.int32]:
    """What an operation drew for the clips; all clips share one program."""
    (program,) = found.programs
    (i,) = [i for i in program.instructions if i.name == operation]
    return found.rows[:, i.column : i.column + i.width]


def test_single_steps_run_in_order() -> None:
    """A chain is its operations one after the other, each reading what the last one made."""
    found = resolved([single(CROP, into="b"), single(FLIP, of="b")], clips_of(3))
    (program,) = found.programs
    assert [i.name for i in program.instructions] == ["random_crop", "flip"]
    assert [(i.sources, i.target) for i in program.instructions] == [((0,), 1), ((1,), 2)]
    assert found.lead == ((4,),)
    assert [side.tolist() for side in found.shape] == [[32] * 3, [32] * 3]


def test_conditions_see_epoch_and_global_iteration() -> None:
    """The first condition that holds decides, clip by clip; ``else`` takes the rest."""
    step = conditional(
        ("iteration >= 4 and epoch < 2", [{"grayscale": {"prob": 1}}]), ("epoch == 0", [FLIP]), ("else", None)
    )
    found = resolved([step], clips_of(4, epoch=np.array([0, 1, 1, 2]), iteration=np.array([0, 3, 4, 5])))
    assert operations(found) == [("flip",), (), ("grayscale",), ()]


def test_random_branches_have_exact_chances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over an even lattice of all fractions each branch comes exactly as often as its probability says."""
    steps = 1 << 12
    lattice = (np.arange(steps, dtype=np.uint64) * np.uint64(ONE // steps)).astype(np.uint64)
    monkeypatch.setattr(Draw, "fraction", lambda draw, what, k=0: lattice)
    small = {"resize": {"shape": [32, 32]}}
    cut = {"center_crop": {"shape": [32, 32]}}
    found = resolved([random_step((0.5, [small]), (0.375, [cut]), (0.125, [cut, {"rotate": 180}]))], clips_of(steps))
    assert Counter(operations(found)) == {
        ("resize",): steps // 2,
        ("center_crop",): steps * 3 // 8,
        ("center_crop", "rotate"): steps // 8,
    }


def test_a_branch_of_chance_zero_never_comes_and_one_of_one_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The borders belong to the right side: the smallest and the largest fraction take a possible branch."""
    ends = np.array([0, ONE - 1], np.uint64)
    monkeypatch.setattr(Draw, "fraction", lambda draw, what, k=0: ends)
    orders: list[list[tuple[float, list[object] | None]]] = [
        [(0.0, [FLIP]), (1.0, None)],
        [(1.0, None), (0.0, [FLIP])],
        [(0.0, [FLIP]), (1.0, None), (0.0, [FLIP])],
    ]
    for arms in orders:
        assert operations(resolved([random_step(*arms)], clips_of(2))) == [(), ()]


def test_probabilities_written_with_few_digits_still_cover_all() -> None:
    """Thirds with six digits sum to just below 1; the rest goes to nobody's surprise: every clip has a branch."""
    third: list[tuple[float, list[object] | None]] = [(0.333333, [CROP]), (0.333333, [{"center_crop": [32, 32]}])]
    counts = Counter(
        operations(resolved([random_step(*third, (0.333334, [{"five_crop": [32, 32]}]))], clips_of(30_000)))
    )
    assert sum(counts.values()) == 30_000
    assert all(abs(count - 10_000) < 4 * (10_000 * 2 / 3) ** 0.5 for count in counts.values())


def test_random_branches_are_drawn_apart_by_clip_and_by_step() -> None:
    """Two random steps of equal branches choose independently: all four pairs come about equally often."""
    steps: list[object] = [
        random_step((0.5, [{"grayscale": {"prob": 1}}]), (0.5, None), into="b"),
        random_step((0.5, [{"grayscale": {"prob": 1}}]), (0.5, None), of="b"),
    ]
    n = 20_000
    found = resolved(steps, clips_of(n))
    counts = Counter(operations(found))
    assert abs(counts[()] - n / 4) < 5 * (n * 3 / 16) ** 0.5
    assert abs(counts[("grayscale", "grayscale")] - n / 4) < 5 * (n * 3 / 16) ** 0.5


def test_a_branch_not_taken_shifts_no_draw() -> None:
    """What a later operation draws is the same whichever branch came before it."""
    clips = clips_of(500)
    after: object = single(CROP, {"grayscale": {"prob": 0.5}}, of="b")
    taken = resolved([conditional(("epoch == 0", [FLIP]), ("else", None), into="b"), after], clips)
    passed = resolved([conditional(("epoch == 9", [FLIP]), ("else", None), into="b"), after], clips)
    for operation in ("random_crop", "grayscale"):
        assert np.array_equal(columns(taken, operation), columns(passed, operation))
    twice = resolved([conditional(("epoch == 9", [CROP]), ("else", None), into="b"), single(CROP, of="b")], clips)
    assert not np.array_equal(columns(twice, "random_crop"), columns(passed, "random_crop"))


def test_equal_operations_in_a_row_draw_apart() -> None:
    """The second flip of a chain is another draw than the first."""
    found = resolved([single(FLIP, FLIP)], clips_of(2000))
    both = found.rows.sum(axis=1)
    assert abs(int((both == 1).sum()) - 1000) < 150


def test_multi_hands_the_same_stream_to_each() -> None:
    """Copies are one stream: with nothing in between, the mean of two is the stream itself."""
    found = resolved([multi("x", "y"), merge("mean", "x", "y")], clips_of(1))
    (program,) = found.programs
    assert [(i.kind, i.sources, i.target) for i in program.instructions] == [("mean", (0, 0), 1)]


@pytest.mark.parametrize(("how", "lead"), [("concat", (8,)), ("stack", (2, 4)), ("mean", (4,))])
def test_merges_have_the_shape_they_promise(how: str, lead: tuple[int, ...]) -> None:
    """``concat`` adds frames, ``stack`` adds an axis before time, ``mean`` adds nothing."""
    steps: list[object] = [multi("x", "y"), single(FLIP, of="y", into="z"), merge(how, "x", "z")]
    assert resolved(steps, clips_of(2)).lead == (lead,)


def test_time_operations_count_frames_after_merges() -> None:
    """Subsampling a concatenation thins the whole; of a stack, each of its members."""
    for how, lead in (("concat", (4,)), ("stack", (2, 2))):
        steps: list[object] = [multi("x", "y"), merge(how, "x", "y"), single({"subsample": {"step": 2}}, of="m")]
        assert resolved(steps, clips_of(2)).lead == (lead,)


def test_concat_takes_streams_of_different_lengths_and_mean_does_not() -> None:
    """Clips of different lengths can follow one another, but not be averaged or stacked; the message shows both."""
    thin = single({"subsample": {"step": 2}}, of="y", into="z")
    assert resolved([multi("x", "y"), thin, merge("concat", "x", "z")], clips_of(1)).lead == ((6,),)
    for how in ("mean", "stack"):
        with pytest.raises(BadInput, match=r"step 'm' merges .* 'x' 4x3x48x64 and 'z' 2x3x48x64"):
            resolved([multi("x", "y"), thin, merge(how, "x", "z")], clips_of(1))


def test_merging_different_sizes_names_the_step_and_both_streams() -> None:
    """Streams of different sizes cannot be joined; the message has both shapes and the cure."""
    steps: list[object] = [multi("x", "y"), single(CROP, of="y", into="z"), merge("concat", "x", "z")]
    with pytest.raises(BadInput, match=r"step 'm' .* 'x' 4x3x48x64 and 'z' 4x3x32x32; crop or resize"):
        resolved(steps, clips_of(1))


def test_a_stack_of_stacks_is_refused() -> None:
    """A batch has one axis of views at most."""
    steps: list[object] = [
        multi("a", "b", "c", "d"),
        merge("stack", "a", "b", into="x"),
        merge("stack", "c", "d", into="y"),
        merge("stack", "x", "y"),
    ]
    with pytest.raises(BadInput, match="step 'm' stacks streams that are stacks already"):
        resolved(steps, clips_of(1))


def test_crops_of_parallel_streams_draw_apart_and_nest() -> None:
    """Two crops on the way to one clip are two draws; the same crop in another task is the same draw, nested."""
    two = resolved(
        [multi("x", "y"), single(CROP, of="x", into="p"), single(CROP, of="y", into="q"), merge("stack", "p", "q")],
        clips_of(400),
    )
    assert not np.array_equal(two.rows[:, :4], two.rows[:, 4:])
    small = resolved([single({"random_crop": {"shape": [16, 16]}})], clips_of(400)).rows
    large = resolved([single(CROP)], clips_of(400)).rows
    assert np.array_equal(large, two.rows[:, :4])
    assert np.all((small[:, :2] >= large[:, :2]) & (small[:, :2] + 16 <= large[:, :2] + 32))


def test_a_task_without_steps_is_the_decoded_clip() -> None:
    """No augmentation: an empty program, nothing drawn, the size of the video."""
    found = resolved([], clips_of(3))
    assert [program.instructions for program in found.programs] == [()]
    assert found.rows.shape == (3, 0)
    assert found.lead == ((4,),)
    assert found.shape[0].tolist() == [48] * 3
