"""Programs run as written: growing, making frame by frame and finishing give what whole clips, op by op, would give."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.plan.plans import clips_of, task_of
from viewcache.materializer.ops import FrameOp, TimeOp, get
from viewcache.materializer.planning.program import FrameStep, FrameTree, Program, finish, grow, source_frames
from viewcache.materializer.planning.resolve import resolve

Pixels = NDArray[np.uint8]

OPERATIONS: list[object] = [
    {"flip": {"flip_prob": 0.5}},
    {"flip": {"direction": "vertical"}},
    {"random_crop": {"shape": [12, 14]}},
    {"grayscale": {"prob": 0.5}},
    {"rotate": 180},
    {"erase": {"prob": 1}},
    {"inv_sample": {"prob": 0.5}},
    {"subsample": {"step": 2}},
    {"subsample": {"frames": 3}},
]


def decoded(number: int) -> Pixels:
    """A frame that no other number has, uint8 (3,20,24)."""
    return np.random.default_rng(number).integers(0, 256, (3, 20, 24), np.uint8)


def naive(program: Program, frames: NDArray[np.int32], row: NDArray[np.int32]) -> tuple[Pixels, NDArray[np.int32]]:
    """Every stream as a whole clip, and the source frame of each position: slow, obvious, and ours alone."""
    streams: dict[int, tuple[Pixels, NDArray[np.int32]]] = {0: (np.stack([decoded(int(f)) for f in frames]), frames)}
    for i in program.instructions:
        arrays = [streams[source][0] for source in i.sources]
        shown = [streams[source][1] for source in i.sources]
        if i.kind == "concat":
            streams[i.target] = np.concatenate(arrays, axis=-4), np.concatenate(shown, axis=-1)
        elif i.kind == "stack":
            streams[i.target] = np.stack(arrays), np.stack(shown)
        elif i.kind == "mean":
            total = sum(array.astype(float) for array in arrays)
            streams[i.target] = np.floor(total / len(arrays) + 0.5).astype(np.uint8), shown[0]
        else:
            op, drawn = get(i.name), row[i.column : i.column + i.width]
            if isinstance(op, TimeOp):
                order = op.frames(i.params, drawn, np.arange(shown[0].shape[-1]))
                streams[i.target] = arrays[0].take(order, axis=-4), shown[0].take(order, axis=-1)
            else:
                assert isinstance(op, FrameOp)
                flat = arrays[0].reshape(-1, *arrays[0].shape[-3:])
                made = np.stack([op.apply(i.params, drawn, frame) for frame in flat])
                streams[i.target] = made.reshape(*arrays[0].shape[:-3], *made.shape[1:]), shown[0]
    return streams[program.output]


def by_frame(tree: FrameTree) -> Pixels:
    """What a worker does: each position from its one source frame, by its own chain."""

    def at(number: int, node: FrameStep | None) -> Pixels:
        if node is None:
            return decoded(number)
        op = get(node.name)
        assert isinstance(op, FrameOp)
        return op.apply(node.params, np.array(node.row, np.int32), at(number, node.parent))

    return np.stack([at(int(number), node) for number, node in zip(tree.frames, tree.nodes, strict=True)])


def chain(of: str, into: str) -> st.SearchStrategy[dict[str, object]]:
    """A step of up to three operations."""
    return st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=3).map(
        lambda ops: {"branch_type": "single", "inputs": [of], "outputs": [into], "config": ops}
    )


@st.composite
def graphs(draw: st.DrawFn) -> list[object]:
    """A first chain, then perhaps two branches that are merged, then perhaps a last chain."""
    first = draw(chain("frame", "a"))
    if not draw(st.booleans()):
        return [first]
    how = draw(st.sampled_from(["concat", "stack", "mean"]))
    steps: list[object] = [first, {"branch_type": "multi", "inputs": ["a"], "outputs": ["b", "c"]}]
    same_shape = [o for o in OPERATIONS if isinstance(o, dict) and not {"random_crop", "subsample"} & o.keys()]
    side = st.lists(st.sampled_from(same_shape), min_size=1, max_size=2)
    steps.append({"branch_type": "single", "inputs": ["c"], "outputs": ["d"], "config": draw(side)})
    streams = ["d", "b"] if draw(st.booleans()) else ["b", "d"]
    steps.append({"branch_type": "merge", "inputs": streams, "outputs": ["m"], "merge": how})
    return [*steps, draw(chain("m", "z"))] if draw(st.booleans()) else steps


@given(steps=graphs(), seed=st.integers(0, 1000), frames=st.lists(st.integers(0, 9), min_size=6, max_size=8))
def test_a_program_does_what_its_steps_say(steps: list[object], seed: int, frames: list[int]) -> None:
    """Any graph of steps, evaluated lazily frame by frame, gives the pixels and frames of the naive evaluation."""
    _, graph = task_of(steps, frames=len(frames))
    found = resolve(graph, len(frames), clips_of(1, height=20, width=24, seed=seed))
    (program,), row, numbers = found.programs, found.rows[0], np.array(frames, np.int32)
    tree = grow(program, numbers, row)
    made = finish(tree, {id(leaf): by_frame(leaf) for leaf in tree.leaves()})
    pixels, shown = naive(program, numbers, row)
    assert np.array_equal(made, pixels)
    assert np.array_equal(source_frames(tree), shown)
    assert made.shape == (*found.lead[0], 3, int(found.shape[0][0]), int(found.shape[1][0]))


@pytest.mark.parametrize("values", [(0, 1), (1, 2), (254, 255), (255, 255), (3, 8)])
def test_a_mean_rounds_half_up(values: tuple[int, int]) -> None:
    """The mean of two pixels is the nearest integer, halves up, and 255 does not overflow."""
    steps: list[object] = [
        {"branch_type": "multi", "inputs": ["frame"], "outputs": ["b", "c"]},
        {"branch_type": "single", "inputs": ["c"], "outputs": ["d"], "config": [{"inv_sample": True}]},
        {"branch_type": "merge", "inputs": ["b", "d"], "outputs": ["m"], "merge": "mean"},
    ]
    _, graph = task_of(steps, frames=2)
    found = resolve(graph, 2, clips_of(1))
    tree = grow(found.programs[0], np.arange(2, dtype=np.int32), found.rows[0])
    made = {
        id(leaf): np.array([values[int(number)] for number in leaf.frames], np.uint8).reshape(2, 1, 1, 1)
        for leaf in tree.leaves()
    }
    assert finish(tree, made).ravel().tolist() == [(sum(values) + 1) // 2] * 2


def test_left_out_frames_are_not_asked_for() -> None:
    """Subsampling is done on frame numbers: what it drops is in no leaf, so nobody decodes it."""
    _, graph = task_of(
        [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": [{"subsample": {"step": 4}}]}],
        frames=8,
    )
    found = resolve(graph, 8, clips_of(1))
    tree = grow(found.programs[0], np.arange(10, 18, dtype=np.int32), found.rows[0])
    assert tree.frames.tolist() == [10, 14]


def test_shared_work_is_one_node() -> None:
    """Positions of one clip that go through the same operations share their nodes, so each frame is made once."""
    _, graph = task_of(
        [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": [OPERATIONS[2], OPERATIONS[0]]}]
    )
    found = resolve(graph, 4, clips_of(1))
    tree = grow(found.programs[0], np.array([3, 3, 5, 5], np.int32), found.rows[0])
    assert len(set(map(id, tree.nodes))) == 1


def test_a_recipe_reads_like_the_steps() -> None:
    """What is stored beside the pixels names operations, parameters and drawn numbers, as plain JSON values."""
    _, graph = task_of()
    found = resolve(graph, 4, clips_of(1))
    words = found.programs[0].describe(found.rows[0])
    assert [entry["op"] for entry in words] == ["resize", "random_crop", "flip"]
    assert words[1]["drawn"] == dict(zip("yxhw", found.rows[0, 2:6].tolist(), strict=True))
    assert words[0]["params"] == {"interpolation": "bilinear", "shape": None, "short_side": 36}


def test_the_signature_is_of_meaning() -> None:
    """Equal effects have equal signatures however they were written; another operation, order or parameter has not."""

    def signature(*ops: object) -> bytes:
        _, graph = task_of([{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": list(ops)}])
        return resolve(graph, 4, clips_of(1)).programs[0].signature

    crop, center = {"random_crop": {"shape": [12, 14]}}, {"center_crop": {"shape": [12, 14]}}
    assert signature(crop) == signature(center), "the row says where; cutting is cutting"
    assert signature({"resize": {"short_side": 24}}) == signature({"resize": {"shape": [24, 32]}})
    different: list[Callable[[], bytes]] = [
        lambda: signature(crop),
        lambda: signature({"flip": 0.5}),
        lambda: signature({"flip": {"direction": "vertical"}}),
        lambda: signature(crop, {"flip": 0.5}),
        lambda: signature({"flip": 0.5}, crop),
        lambda: signature({"resize": {"short_side": 24}}),
        lambda: signature({"resize": {"short_side": 24, "interpolation": "area"}}),
    ]
    assert len({each() for each in different}) == len(different)
