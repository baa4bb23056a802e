"""A clip's program: the operations, with every choice resolved, that make it from its frames (SAND §5.2).

A program is static (which operation follows which); a clip adds one row of int32 numbers, what random operations drew.
Programs are compared by value: tasks that wrote the same steps under other names have the same program and so share.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from viewcache.materializer.ops import ClipOp, FrameOp, TimeOp, get
from viewcache.materializer.ops.failures import is_ours, op_failed

if TYPE_CHECKING:
    from viewcache.materializer.spec import OpCall

__all__ = ["FrameStep", "FrameTree", "Instruction", "InstructionKind", "Program", "finish", "grow", "source_frames"]

Params = tuple[tuple[str, object], ...]


class InstructionKind(StrEnum):
    """What an instruction does: one operation, or one of three ways to join streams."""

    OP = "op"
    CONCAT = "concat"
    STACK = "stack"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation, or one joining of streams."""

    kind: InstructionKind
    sources: tuple[int, ...]
    """Streams it reads; 0 is the decoded clip."""
    target: int
    """Stream it makes."""
    name: str = ""
    params: Params = ()
    column: int = 0
    """Its first number in the clip's row."""
    width: int = 0
    """How many numbers of the row are its own."""

    @classmethod
    def of(cls, call: "OpCall", source: int, target: int, column: int) -> "Instruction":
        """The instruction for a call as written in the configuration."""
        width = len(get(call.name).columns)
        return cls(InstructionKind.OP, (source,), target, call.name, call.params, column, width)


@dataclass(frozen=True)
class Program:
    """Instructions in the order they run; the last one's target (or 0) is the clip."""

    instructions: tuple[Instruction, ...]

    @property
    def output(self) -> int:
        """The stream that is the clip."""
        return self.instructions[-1].target if self.instructions else 0

    @property
    def columns(self) -> int:
        """Length of a clip's row."""
        return sum(instruction.width for instruction in self.instructions)

    @cached_property
    def streams(self) -> int:
        """How many arrays as large as the clip are filled at a time while it is made: more for a mean or a `ClipOp`."""
        streams = {0: 1}
        for i in self.instructions:
            held = [streams[source] for source in i.sources]
            streams[i.target] = sum(held) if i.kind == InstructionKind.MEAN else max(held)
            if i.name and isinstance(get(i.name), ClipOp):  # what it reads, and what it makes
                streams[i.target] = max(2, streams[i.target])
        return streams[self.output]

    @cached_property
    def is_remote(self) -> bool:
        """Whether op workers do some of it."""
        return any(get(i.name).out_of_process for i in self.instructions if i.name)

    @cached_property
    def own_ops(self) -> tuple[str, ...]:
        """Names of its operations that are not viewcache's own."""
        return tuple(i.name for i in self.instructions if i.name and not is_ours(type(get(i.name))))

    @cached_property
    def is_chain(self) -> bool:
        """Whether it is operations of single frames, each on what the one before has made."""
        sources = [(0,), *((i.target,) for i in self.instructions)]
        return all(
            i.kind == InstructionKind.OP and i.sources == source and isinstance(get(i.name), FrameOp)
            for i, source in zip(self.instructions, sources, strict=False)
        )

    @cached_property
    def signature(self) -> bytes:
        """16 bytes that change when any operation, parameter or operation's code changes; part of every content key."""
        meaning = [[i.kind, i.sources, i.target, *_effect(i)] for i in self.instructions]
        text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16, person=b"viewcache-progrm").digest()

    def describe(self, row: np.ndarray) -> list[dict[str, object]]:
        """The recipe in words and numbers, as it is stored beside the pixels (JSON-ready)."""
        out: list[dict[str, object]] = []
        for i in self.instructions:
            entry: dict[str, object] = {"from": list(i.sources), "to": i.target}
            if i.kind == InstructionKind.OP:
                entry |= {"op": i.name, **({"params": dict(i.params)} if i.params else {})}
                if i.width:
                    names = get(i.name).columns
                    drawn = row[i.column : i.column + i.width].tolist()
                    entry["drawn"] = dict(zip(names, drawn, strict=True))
            else:
                entry["join"] = i.kind
            out.append(entry)
        return out


def _effect(i: Instruction) -> tuple[object, ...]:
    """What an operation does, whatever it is called and however its row was drawn."""
    if not i.name:
        return ()
    op = get(i.name)
    return op.effect, op.fingerprint, op.key_params(i.params)


class FrameStep(NamedTuple):
    """One step of a frame's way: an operation with its numbers, after a parent (None = the decoded frame).

    A tuple, since what was made is looked up by it: its hash is that of all steps before it, too.
    """

    parent: "FrameStep | None"
    name: str
    params: Params
    row: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FrameTree:
    """What a stream of one clip is, before any pixel exists.

    Either frames, each with its own chain of frame operations (``frames`` and ``nodes``, both of length T), or a
    joining or later operation (``instruction``) over other trees, which needs whole clips.
    """

    frames: np.ndarray
    """int32 (T,): source frame per position; empty when ``inputs`` is set."""
    nodes: tuple[FrameStep | None, ...] = ()
    """Per position: the last operation applied to it."""
    instruction: Instruction | None = None
    row: tuple[int, ...] = ()
    inputs: tuple["FrameTree", ...] = ()

    @property
    def by_frame(self) -> bool:
        """Whether every position can be made from its one source frame alone."""
        return not self.inputs

    def leaves(self) -> list["FrameTree"]:
        """The trees that are made frame by frame."""
        return [self] if self.by_frame else [leaf for tree in self.inputs for leaf in tree.leaves()]


def grow(program: Program, frames: np.ndarray, row: np.ndarray) -> FrameTree:
    """Resolve a program for one clip.

    Args:
        program: which operations.
        frames: int32 (F,), source frame numbers in clip order.
        row: int32 (program.columns,), what was drawn for this clip.
    """
    if program.is_chain:
        node: FrameStep | None = None
        for i in program.instructions:
            node = FrameStep(node, i.name, i.params, tuple(row[i.column : i.column + i.width].tolist()))
        return FrameTree(frames, (node,) * len(frames))
    streams = {0: FrameTree(frames, (None,) * len(frames))}
    for i in program.instructions:
        numbers = tuple(row[i.column : i.column + i.width].tolist())
        inputs = tuple(streams[s] for s in i.sources)
        streams[i.target] = _applied(i, numbers, inputs)
    return streams[program.output]


def _applied(i: Instruction, numbers: tuple[int, ...], inputs: tuple[FrameTree, ...]) -> FrameTree:
    pure = all(tree.by_frame for tree in inputs)
    if i.kind == InstructionKind.CONCAT and pure:
        nodes = tuple(node for tree in inputs for node in tree.nodes)
        return FrameTree(np.concatenate([tree.frames for tree in inputs]), nodes)
    op = get(i.name) if i.kind == InstructionKind.OP else None
    if op is not None and not isinstance(op, ClipOp) and pure:
        (tree,) = inputs
        if isinstance(op, TimeOp):
            order = _chosen(op, i.params, numbers, len(tree.nodes))
            return FrameTree(tree.frames[order], tuple(tree.nodes[k] for k in order))
        count = len(tree.nodes)
        if tree.nodes.count(tree.nodes[0]) == count:  # most often; hashing a step costs more than all else here
            return FrameTree(tree.frames, (FrameStep(tree.nodes[0], i.name, i.params, numbers),) * count)
        made: dict[FrameStep | None, FrameStep] = {}
        for node in tree.nodes:
            if node not in made:
                made[node] = FrameStep(node, i.name, i.params, numbers)
        return FrameTree(tree.frames, tuple(made[node] for node in tree.nodes))
    return FrameTree(np.empty(0, np.int32), (), i, numbers, inputs)


def _chosen(op: TimeOp, params: Params, numbers: tuple[int, ...], count: int) -> np.ndarray:
    """Which of a clip's frames an operation takes, in order.

    Raises:
        OpFailed: it raised an error.
    """
    try:
        return op.frames(params, np.array(numbers, np.int32), np.arange(count))
    except Exception as error:  # a user's code may raise anything
        if not op.is_to_blame(error):
            raise
        raise op_failed(op.name, params, error) from None


def finish(tree: FrameTree, made: dict[int, np.ndarray]) -> np.ndarray:
    """Evaluate what needs whole clips.

    Args:
        tree: from `grow`.
        made: ``id(leaf)`` → uint8 (T,C,H,W) for each of ``tree.leaves()``.

    Returns:
        uint8 (T,C,H,W), or (V,T,C,H,W) after ``stack``.
    """
    if tree.by_frame:
        return made[id(tree)]
    arrays = [finish(each, made) for each in tree.inputs]
    i = tree.instruction
    assert i is not None
    if i.kind == InstructionKind.CONCAT:
        return np.concatenate(arrays, axis=arrays[0].ndim - 4)
    if i.kind == InstructionKind.STACK:
        return np.stack(arrays)
    if i.kind == InstructionKind.MEAN:
        total = np.zeros(arrays[0].shape, np.uint32)
        for array in arrays:
            total += array
        # Round half up, in integers: the same on every machine.
        return ((2 * total + len(arrays)) // (2 * len(arrays))).astype(np.uint8)
    op, row = get(i.name), np.array(tree.row, np.int32)
    (array,) = arrays
    if isinstance(op, TimeOp):
        axis = array.ndim - 4
        return np.take(array, _chosen(op, i.params, tree.row, array.shape[axis]), axis=axis)
    if isinstance(op, ClipOp):
        views = array.reshape(-1, *array.shape[-4:])
        out = np.stack([op.run_clip(i.params, row, view) for view in views])
        return out.reshape(*array.shape[:-4], *out.shape[1:])
    assert isinstance(op, FrameOp)  # read-time operations are in no program
    flat = array.reshape(-1, *array.shape[-3:])
    done = np.stack(op.run_all(i.params, row, list(flat)))
    return done.reshape(*array.shape[:-3], *done.shape[1:])


def source_frames(tree: FrameTree) -> np.ndarray:
    """Which source frame each position shows: int32 (T,), or (V,T) after ``stack``; of ``mean``, the first input's."""
    if tree.by_frame:
        return tree.frames
    shown = [source_frames(each) for each in tree.inputs]
    i = tree.instruction
    assert i is not None
    if i.kind == InstructionKind.CONCAT:
        return np.concatenate(shown, axis=-1)
    if i.kind == InstructionKind.STACK:
        return np.stack(shown)
    op = get(i.name) if i.kind == InstructionKind.OP else None
    if isinstance(op, TimeOp):
        return np.take(shown[0], _chosen(op, i.params, tree.row, shown[0].shape[-1]), axis=-1)
    return shown[0]
