"""Resolve every random choice of a task's steps for many clips at once: abstract to concrete graph (SAND §5.2).

Clips that chose the same branches share a program; what they drew is one int32 row each. Everything is vectorized over
the clips of a generation, so that a plan of a million clips is NumPy work, not a million Python objects.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.choices import BranchType, Merge
from viewcache.materializer.ops import Draw, Rows, get
from viewcache.materializer.ops.failures import op_failed
from viewcache.materializer.planning import conditions
from viewcache.materializer.planning.graph import SOURCE, AbstractGraph
from viewcache.materializer.planning.program import Instruction, InstructionKind, Program
from viewcache.materializer.randomness import ONE, Words
from viewcache.materializer.spec import OpCall, StepSpec

__all__ = ["Clips", "Resolved", "ResolvedStream", "resolve", "resolve_stream"]


@dataclass(frozen=True, slots=True)
class Clips:
    """Where the clips' random numbers have their addresses; all arrays have length n."""

    seed: int
    video: Words
    """Address words of the videos."""
    epoch: NDArray[np.int64]
    """Of the group, which random numbers are drawn for."""
    sample: NDArray[np.int64]
    iteration: NDArray[np.int64]
    """Global iteration number, which conditions compare with."""
    height: NDArray[np.int64]
    """Of the decoded frame, rotation applied."""
    width: NDArray[np.int64]
    named: Callable[[int], str]
    """What messages call the item of the clip at a position."""
    independent: int = 0
    """The task's address word, to share no draw with other tasks; 0 to share."""
    joined: int = 0
    """Epoch of the group in which the task began: its own epochs, which conditions compare with, count from there."""

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.video)

    def subset(self, rows: NDArray[np.int64]) -> "Clips":
        """The clips at the given positions."""
        return replace(
            self,
            video=self.video[rows],
            epoch=self.epoch[rows],
            sample=self.sample[rows],
            iteration=self.iteration[rows],
            height=self.height[rows],
            width=self.width[rows],
            named=lambda k: self.named(int(rows[k])),
        )


@dataclass(frozen=True, slots=True)
class Resolved:
    """n clips, each with a program and a row."""

    programs: tuple[Program, ...]
    program: NDArray[np.int16]
    """(n,) index into ``programs``."""
    rows: Rows
    """(n, P): P = the longest program's columns; the rest is zero."""
    shape: tuple[NDArray[np.int64], ...]
    """Height and width of each clip after the last step, (n,) each."""
    lead: tuple[tuple[int, ...], ...]
    """Per program: the shape before C, (T,) or (V, T)."""

    def taken(self, rows: NDArray[np.int64]) -> "Resolved":
        """Some of the clips, in another order."""
        return replace(
            self,
            program=self.program[rows],
            rows=self.rows[rows],
            shape=tuple(each[rows] for each in self.shape),
        )

    def patched(self, rows: NDArray[np.int64], part: "Resolved") -> "Resolved":
        """The same with other clips at some places, in their order."""
        programs = list(dict.fromkeys((*self.programs, *part.programs)))
        number = np.array([programs.index(each) for each in part.programs], np.int16)
        program = self.program.copy()
        program[rows] = number[part.program]
        columns = max(self.rows.shape[1], part.rows.shape[1])
        drawn = np.zeros((len(self.rows), columns), np.int32)
        drawn[:, : self.rows.shape[1]] = self.rows
        drawn[rows] = 0
        drawn[rows, : part.rows.shape[1]] = part.rows
        shape = tuple(each.copy() for each in self.shape)
        for whole, some in zip(shape, part.shape, strict=True):
            whole[rows] = some
        lead = dict(zip(self.programs, self.lead, strict=True)) | dict(zip(part.programs, part.lead, strict=True))
        return Resolved(tuple(programs), program, drawn, shape, tuple(lead[each] for each in programs))


@dataclass(frozen=True, slots=True)
class ResolvedStream:
    """What one clip drew on the way to one stream."""

    program: Program
    """Of all steps up to there, also those that the stream does not come from."""
    row: NDArray[np.int32]
    """int32 (program.columns,)."""
    number: int
    """The stream's number in ``program``; 0 = the decoded clip."""
    height: int
    width: int


@dataclass(slots=True)
class _Stream:
    number: int
    height: NDArray[np.int64]
    width: NDArray[np.int64]
    lead: tuple[int, ...]


def resolve(graph: AbstractGraph, frames_per_clip: int, clips: Clips) -> Resolved:
    """Choose branches and draw all numbers.

    Raises:
        BadInput: an operation does not fit a frame, whose item it names, or streams of different sizes are merged;
            names the step.
    """
    taken = [_choices(step, k, clips, graph) for k, step in enumerate(graph.steps)]
    choices = np.stack(taken or [_none(clips)], axis=1)
    combos, which = np.unique(choices, axis=0, return_inverse=True)
    groups = []
    for number, combo in enumerate(combos):
        members = np.flatnonzero(which.reshape(-1) == number)
        groups.append((members, *_Group(graph, clips.subset(members), frames_per_clip).run(combo)))
    programs: dict[Program, int] = {}
    columns = max((program.columns for _, program, *_ in groups), default=0)
    program_of = np.zeros(len(clips), np.int16)
    rows = np.zeros((len(clips), columns), np.int32)
    height, width = np.zeros(len(clips), np.int64), np.zeros(len(clips), np.int64)
    lead: dict[Program, tuple[int, ...]] = {}
    for members, program, drawn, out in groups:
        program_of[members] = programs.setdefault(program, len(programs))
        lead[program] = out.lead
        rows[members[:, None], np.arange(drawn.shape[1])] = drawn
        height[members], width[members] = out.height, out.width
    return Resolved(tuple(programs), program_of, rows, (height, width), tuple(lead[p] for p in programs))


def resolve_stream(graph: AbstractGraph, steps: int, stream: str, frames_per_clip: int, clip: Clips) -> ResolvedStream:
    """Resolve one clip up to a stream that the first ``steps`` steps make: exactly what the whole clip drew there.

    Operations are counted in the order of the steps, so leaving out the end shifts no draw.
    """
    first = replace(graph, steps=graph.steps[:steps], final=stream)
    combo = np.array([_choices(step, k, clip, first)[0] for k, step in enumerate(first.steps)], np.int16)
    program, rows, out = _Group(first, clip, frames_per_clip).run(combo)
    return ResolvedStream(program, rows[0], out.number, int(out.height[0]), int(out.width[0]))


def _none(clips: Clips) -> NDArray[np.int16]:
    return np.zeros(len(clips), np.int16)


def _choices(step: StepSpec, number: int, clips: Clips, graph: AbstractGraph) -> NDArray[np.int16]:
    """Which branch of the step each clip takes; 0 where there is no choice."""
    out = _none(clips)
    if step.branch_type == BranchType.CONDITIONAL:
        taken = np.zeros(len(clips), bool)
        for k, branch in enumerate(step.branches):
            holds = conditions.evaluate(
                branch.condition or "else", iteration=clips.iteration, epoch=clips.epoch - clips.joined
            )
            out[holds & ~taken] = k
            taken |= holds
    elif step.branch_type == BranchType.RANDOM:
        scope = _branch_scope(step)
        ordinal = sum(s.branch_type == BranchType.RANDOM and _branch_scope(s) == scope for s in graph.steps[:number])
        drawn = _draw(clips, scope, ordinal).fraction("branch").astype(np.int64)
        ends = np.cumsum([branch.prob or 0.0 for branch in step.branches])
        borders = (ends / ends[-1] * ONE).round().astype(np.int64)
        out[:] = np.minimum(np.searchsorted(borders, drawn, "right"), len(ends) - 1)
    return out


def _branch_scope(step: StepSpec) -> str:
    """Equal branches draw equal choices, in whichever task they are written."""
    meaning = [[branch.prob, [[op.name, op.params] for op in branch.ops]] for branch in step.branches]
    return "branch/" + hashlib.blake2b(json.dumps(meaning).encode(), digest_size=8).hexdigest()


def _draw(clips: Clips, scope: str, ordinal: int) -> Draw:
    return Draw(clips.seed, scope, ordinal, clips.video, clips.epoch, clips.sample, clips.independent)


class _Group:
    """Clips that take the same branches."""

    def __init__(self, graph: AbstractGraph, clips: Clips, frames_per_clip: int) -> None:
        self.graph = graph
        self.clips = clips
        self.streams = {SOURCE: _Stream(0, clips.height, clips.width, (frames_per_clip,))}
        self.made = 0
        self.instructions: list[Instruction] = []
        self.rows: list[Rows] = []
        self.column = 0
        self.ordinals: dict[str, int] = {}

    def run(self, combo: NDArray[np.int16]) -> tuple[Program, Rows, _Stream]:
        for step, choice in zip(self.graph.steps, combo.tolist(), strict=False):
            if step.branch_type == BranchType.MERGE:
                self.streams[step.outputs[0]] = self._merge(step)
                continue
            branches = [branch.ops for branch in step.branches] or [step.ops]
            stream = self.streams[step.inputs[0]]
            for k, calls in enumerate(branches):
                for call in calls:
                    op = get(call.name)
                    ordinal = self.ordinals.get(op.scope, 0)
                    self.ordinals[op.scope] = ordinal + 1  # counted in branches not taken too: draws do not shift
                    if k == choice and op.stage != "read":
                        stream = self._apply(step, call, ordinal, stream)
            for output in step.outputs:
                self.streams[output] = stream
        rows = np.concatenate(self.rows, axis=1) if self.rows else np.zeros((len(self.clips), 0), np.int32)
        return Program(tuple(self.instructions)), rows, self.streams[self.graph.final]

    def _apply(self, step: StepSpec, call: OpCall, ordinal: int, stream: _Stream) -> _Stream:
        op = get(call.name)
        draw = _draw(self.clips, op.scope, ordinal)
        try:
            rows, height, width = op.resolve(call.params, draw, stream.height, stream.width)
        except BadInput as bad:
            unfit = np.flatnonzero(~op.fits(call.params, stream.height, stream.width))
            of = f"{self.clips.named(int(unfit[0]))!r} at " if len(unfit) else ""
            raise BadInput(f"{of}step {step.name!r}: {bad}") from bad
        except Exception as error:  # a user's code may raise anything
            if not op.is_to_blame(error):
                raise
            raise op_failed(op.name, call.params, error) from None
        self.made += 1
        self.instructions.append(Instruction.of(call, stream.number, self.made, self.column))
        self.rows.append(rows)
        self.column += rows.shape[1]
        lead = (*stream.lead[:-1], op.out_frames(call.params, stream.lead[-1]))
        return _Stream(self.made, height, width, lead)

    def _merge(self, step: StepSpec) -> _Stream:
        streams = [self.streams[name] for name in step.inputs]
        first = streams[0]
        for name, other in zip(step.inputs[1:], streams[1:], strict=True):
            same = np.array_equal(first.height, other.height) and np.array_equal(first.width, other.width)
            agree = first.lead[:-1] == other.lead[:-1] if step.merge == Merge.CONCAT else first.lead == other.lead
            if not same or not agree:
                raise BadInput(
                    f"step {step.name!r} merges streams of different shapes: {_shape(step.inputs[0], first)} and "
                    f"{_shape(name, other)}; crop or resize them to one shape first"
                )
        if step.merge == Merge.STACK and len(first.lead) > 1:
            raise BadInput(f"step {step.name!r} stacks streams that are stacks already; stack once")
        self.made += 1
        self.instructions.append(
            Instruction(InstructionKind(step.merge.value), tuple(s.number for s in streams), self.made)
        )
        lead = first.lead
        if step.merge == Merge.CONCAT:
            lead = (*lead[:-1], sum(s.lead[-1] for s in streams))
        elif step.merge == Merge.STACK:
            lead = (len(streams), *lead)
        return _Stream(self.made, first.height, first.width, lead)


def _shape(name: str, stream: _Stream) -> str:
    return f"{name!r} {'x'.join(map(str, stream.lead))}x3x{stream.height[0]}x{stream.width[0]}"
