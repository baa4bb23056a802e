"""The abstract graph of a task: its steps in a valid order, the streams between them, and which stream is the clip.

SAND §5.2 builds this graph per task before anything is sampled. Steps may be written in any order; the order here is
the one in which they run, and it is refused with the place of the mistake when there is none. Trade-off: exactly one
stream may be left over at the end, so that nothing is computed in vain and the clip needs no name.
"""

import heapq
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from viewcache.errors import ConfigCode, ConfigError
from viewcache.materializer.choices import BranchType
from viewcache.materializer.spec import OpCall, Place, StepSpec
from viewcache.suggest import did_you_mean

__all__ = ["PROB_TOLERANCE", "SOURCE", "AbstractGraph", "check_graph", "find_mistakes"]

SOURCE = "frame"
"""The stream that the decoder makes."""

PROB_TOLERANCE = 1e-6
"""How far a sum of probabilities may be from 1, for thirds written with six digits."""

# Fewest and most streams that a type of step reads and makes.
_ARITY: dict[BranchType, tuple[tuple[int, float], tuple[int, float]]] = {
    BranchType.SINGLE: ((1, 1), (1, 1)),
    BranchType.CONDITIONAL: ((1, 1), (1, 1)),
    BranchType.RANDOM: ((1, 1), (1, 1)),
    BranchType.MULTI: ((1, 1), (2, math.inf)),
    BranchType.MERGE: ((2, math.inf), (1, 1)),
}

_ARITY_CURE = {"inputs": "; join streams by a merge step", "outputs": "; copy a stream by a multi step"}


@dataclass(frozen=True, slots=True)
class AbstractGraph:
    """The steps of a task as a graph without cycles."""

    steps: tuple[StepSpec, ...]
    """In the order in which they run: each after those it reads from, else as written."""
    streams: tuple[str, ...]
    """``frame`` and then what each step makes, in that order."""
    final: str
    """The stream that is the clip: the only one that no step reads."""
    producer: Mapping[str, int]
    """Stream → index of the step that makes it; ``frame`` has none."""
    consumers: Mapping[str, tuple[int, ...]]
    """Stream → indices of the steps that read it, ascending; empty for the final one."""
    read_ops: tuple[OpCall, ...] = ()
    """Operations at the end of the graph that run when a clip is read, in order; they are part of ``steps`` too."""


def check_graph(
    steps: Sequence[StepSpec],
    stage_of: Callable[[OpCall], str] = lambda _: "frame",
    places: Mapping[tuple[int, str, str], Place] | None = None,
) -> AbstractGraph:
    """Order the steps and refuse what cannot run.

    Args:
        steps: as written.
        stage_of: the stage of an operation, ``frame``, ``time`` or ``read``; read-time ones may only end the graph.
        places: (index of the step, ``inputs`` or ``outputs``, stream) → where it is written, for messages.

    Returns:
        The graph; for steps that are already in order, ``steps`` is unchanged.

    Raises:
        ConfigError: wrong number of streams, a stream made twice, never or in a circle, one that nothing reads,
            conditions without ``else`` at the end, probabilities that do not sum to 1, a read-time operation too early.
    """
    graph = find_mistakes(steps, _raised, stage_of=stage_of, places=places or {})
    assert graph is not None  # a mistake was raised
    return graph


def find_mistakes(
    steps: Sequence[StepSpec],
    report: Callable[[ConfigError], None],
    *,
    stage_of: Callable[[OpCall], str],
    places: Mapping[tuple[int, str, str], Place],
    torn: Collection[int] = (),
    missing: bool = False,
) -> AbstractGraph | None:
    """Check the steps as `check_graph` does and report every mistake, but none that may only follow from another.

    Args:
        steps: as written.
        report: takes each mistake; if it raises, the check ends there.
        stage_of: the stage of an operation.
        places: (index of the step, ``inputs`` or ``outputs``, stream) → where it is written.
        torn: indices of the steps of which an operation or branch could not be read.
        missing: whether there are further steps, whose streams are not known.

    Returns:
        The graph; None if there was a mistake or a step is torn or missing.
    """
    return _Check(steps, report, places, torn, missing).graph(stage_of)


def _raised(error: ConfigError) -> None:
    raise error


class _Check:
    """One pass over the steps of one task; errors take their place from here."""

    def __init__(
        self,
        steps: Sequence[StepSpec],
        report: Callable[[ConfigError], None],
        places: Mapping[tuple[int, str, str], Place],
        torn: Collection[int],
        missing: bool,
    ):
        self.steps = steps
        self.places = places
        self.producer: dict[str, int] = {}
        """Stream → index of the step as written."""
        self._tell = report
        self._torn = torn
        self._whole = not missing and not torn
        """Whether all steps were read and nothing was reported."""
        self._outputs_known = not missing
        """Whether every stream that a step was meant to make is known."""
        self._misled: set[int] = set()
        """Indices of steps whose inputs are wrong: what is odd behind them may follow from that."""

    def graph(self, stage_of: Callable[[OpCall], str]) -> AbstractGraph | None:
        for index, step in enumerate(self.steps):
            self._check_arity(index, step)
            if index not in self._torn:
                self._check_branches(step)
        self._find_producers()
        if self._outputs_known:
            self._check_inputs()
        order = self._order()
        final = self._final() if self._whole else None
        if order is None:
            return None
        steps = tuple(self.steps[index] for index in order)
        read_ops = self._read_ops(steps, stage_of)
        if final is None or not self._whole:
            return None
        producer = {stream: index for index, step in enumerate(steps) for stream in step.outputs}
        streams = (SOURCE, *producer)
        consumers = {stream: tuple(i for i, step in enumerate(steps) if stream in step.inputs) for stream in streams}
        return AbstractGraph(steps, streams, final, producer, consumers, read_ops)

    def _report(self, place: Place, code: ConfigCode, message: str) -> None:
        self._whole = False
        self._tell(ConfigError(code, message, place.file, place.line, place.column))

    def _report_stream(self, code: ConfigCode, message: str, index: int, side: str, stream: str = "") -> None:
        self._outputs_known &= side != "outputs" or code is ConfigCode.UNREAD_STREAM
        if side == "inputs":
            self._misled.add(index)
        self._report(self.places.get((index, side, stream), self.steps[index].place), code, message)

    def _check_arity(self, index: int, step: StepSpec) -> None:
        for side, streams, (least, most) in zip(
            ("inputs", "outputs"), (step.inputs, step.outputs), _ARITY[step.branch_type], strict=True
        ):
            if not least <= len(streams) <= most:
                allowed = "exactly one" if most == least else f"at least {least}"
                self._report_stream(
                    ConfigCode.STEP_STREAMS,
                    f"step {step.name!r} of type {step.branch_type} has {len(streams)} {side}, it takes {allowed}"
                    + _ARITY_CURE[side] * (most == 1),
                    index,
                    side,
                    streams[-1] if streams else "",
                )
                continue
            twice = next((stream for stream in streams if streams.count(stream) > 1), None)
            if twice is not None:
                message = f"step {step.name!r} names {twice!r} twice in {side}"
                self._report_stream(ConfigCode.STEP_STREAMS, message, index, side, twice)

    def _find_producers(self) -> None:
        for index, step in enumerate(self.steps):
            for stream in step.outputs:
                if stream == SOURCE:
                    message = f"step {step.name!r} cannot make {SOURCE!r}: the decoder does; choose another name"
                    self._report_stream(ConfigCode.STREAM_MADE_TWICE, message, index, "outputs", stream)
                elif self.producer.get(stream, index) != index:
                    other = self.steps[self.producer[stream]]
                    self._report_stream(
                        ConfigCode.STREAM_MADE_TWICE,
                        f"stream {stream!r} is made by step {step.name!r} and by step {other.name!r}"
                        f"{_line(other.place)}; each stream has one producer",
                        index,
                        "outputs",
                        stream,
                    )
                else:
                    self.producer[stream] = index

    def _check_inputs(self) -> None:
        known = {SOURCE: -1, **self.producer}
        for index, step in enumerate(self.steps):
            unknown = [stream for stream in step.inputs if stream not in known]
            if unknown and self._misled.isdisjoint(self._before(index)):
                for stream in unknown:
                    question = did_you_mean(stream, known)
                    message = f"no step makes {stream!r}, which step {step.name!r} reads; "
                    message += (question and question + " ") + f"streams: {', '.join(known)}"
                    self._report_stream(ConfigCode.UNKNOWN_STREAM, message, index, "inputs", stream)

    def _before(self, index: int) -> set[int]:
        """The step and all steps that it waits for."""
        found: set[int] = set()
        left = [index]
        while left:
            found.add(left[-1])
            makers = {self.producer[stream] for stream in self.steps[left.pop()].inputs if stream in self.producer}
            left += makers - found
        return found

    def _order(self) -> list[int] | None:
        """Indices in the order of work: what is ready first by the order of writing (Kahn's algorithm)."""
        missing = [sum(stream in self.producer for stream in step.inputs) for step in self.steps]
        readers: dict[str, list[int]] = {}
        for index, step in enumerate(self.steps):
            for stream in step.inputs:
                readers.setdefault(stream, []).append(index)
        ready = [index for index, count in enumerate(missing) if count == 0]
        order: list[int] = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for stream in self.steps[index].outputs:
                for reader in readers.get(stream, ()) if self.producer.get(stream) == index else ():
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        heapq.heappush(ready, reader)
        if len(order) < len(self.steps):
            self._report_cycle(set(range(len(self.steps))) - set(order))
            return None
        return order

    def _report_cycle(self, stuck: set[int]) -> None:
        """Walk back from any stuck step over stuck ones until a step comes again: those between are a circle."""
        walk = [min(stuck)]
        while True:
            before = next(self.producer[s] for s in self.steps[walk[-1]].inputs if self.producer.get(s) in stuck)
            if before in walk:
                break
            walk.append(before)
        circle = walk[walk.index(before) :][::-1]
        start = circle.index(min(circle))
        circle = circle[start:] + circle[:start]
        names = " → ".join(self.steps[index].name for index in (*circle, circle[0]))
        closing = next(s for s in self.steps[circle[0]].inputs if self.producer.get(s) == circle[-1])
        message = f"steps wait for one another in a circle: {names}"
        self._report_stream(ConfigCode.GRAPH_CYCLE, message, circle[0], "inputs", closing)

    def _final(self) -> str | None:
        read = {stream for step in self.steps for stream in step.inputs}
        left = [stream for stream in self.producer if stream not in read]
        if not left:
            return SOURCE  # only without steps: a graph without cycles has an end
        if len(left) > 1:
            # The last one written is most likely meant as the clip.
            unused, final = left[-2], left[-1]
            self._report_stream(
                ConfigCode.UNREAD_STREAM,
                f"stream {unused!r} is never read; the clip is the one stream left over, here {final!r}: "
                "merge them, or remove the step",
                self.producer[unused],
                "outputs",
                unused,
            )
            return None
        return left[0]

    def _check_branches(self, step: StepSpec) -> None:
        if step.branch_type == BranchType.CONDITIONAL:
            self._check_conditions(step)
        elif step.branch_type == BranchType.RANDOM:
            probs = [branch.prob or 0.0 for branch in step.branches]
            # Rounded: 3 * 0.333333 is off by 1e-6 and by the rounding error of the subtraction.
            if not all(0 <= prob <= 1 for prob in probs) or round(abs(math.fsum(probs) - 1), 12) > PROB_TOLERANCE:
                written = " + ".join(f"{prob:.10g}" for prob in probs) or "nothing"
                self._report(
                    step.branches[0].place if step.branches else step.place,
                    ConfigCode.PROBABILITIES,
                    f"the probabilities of step {step.name!r} must sum to 1, got {written} = {math.fsum(probs):.10g}",
                )

    def _check_conditions(self, step: StepSpec) -> None:
        if not step.branches:
            message = f"step {step.name!r} of type conditional has no branches"
            self._report(step.place, ConfigCode.MISSING_KEY, message)
            return
        *others, last = step.branches
        early = next((branch for branch in others if branch.condition == "else"), None)
        if early is not None:
            message = f"'else' must be the last branch of step {step.name!r}"
            self._report(early.place, ConfigCode.MISSING_ELSE, message)
        elif last.condition != "else":
            self._report(
                last.place,
                ConfigCode.MISSING_ELSE,
                f"the last branch of step {step.name!r} must have condition: else "
                "(with config: None frames pass on unchanged)",
            )

    def _read_ops(self, steps: Sequence[StepSpec], stage_of: Callable[[OpCall], str]) -> tuple[OpCall, ...]:
        """The read-time operations, after checking that nothing else follows one."""
        found: dict[str, OpCall] = {}
        """Stream → the last read-time operation that it has passed."""
        read_ops: list[OpCall] = []
        for step in steps:
            before = next((found[stream] for stream in step.inputs if stream in found), None)
            if before is not None and step.branch_type != BranchType.SINGLE:
                self._report_too_early(before, f"step {step.name!r} of type {step.branch_type}")
                before = None
            for branch in step.branches:
                for op in branch.ops:
                    if stage_of(op) == "read":
                        self._report(
                            op.place,
                            ConfigCode.READ_OP_ORDER,
                            f"operation {op.name!r} runs when a clip is read and cannot be in a branch; "
                            "put it into a single step at the end",
                        )
            for op in step.ops:
                if stage_of(op) == "read":
                    before = op
                    read_ops.append(op)
                elif before is not None:
                    self._report_too_early(before, f"operation {op.name!r}")
                    before = None
            if before is not None:
                found.update(dict.fromkeys(step.outputs, before))
        return tuple(read_ops)

    def _report_too_early(self, op: OpCall, follower: str) -> None:
        message = f"operation {op.name!r} runs when a clip is read, so it must come last; {follower} follows it"
        self._report(op.place, ConfigCode.READ_OP_ORDER, message)


def _line(place: Place) -> str:
    return f" (line {place.line})" if place.line else ""
