"""The abstract graph of a task: its steps in a valid order, the streams between them, and which stream is the clip.

SAND §5.2 builds this graph per task before anything is sampled. Steps may be written in any order; the order here is
the one in which they run, and it is refused with the place of the mistake when there is none. Trade-off: exactly one
stream may be left over at the end, so that nothing is computed in vain and the clip needs no name.
"""

import difflib
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from viewcache.errors import ConfigError
from viewcache.materializer.spec import OpCall, Place, StepSpec

__all__ = ["PROB_TOLERANCE", "SOURCE", "AbstractGraph", "check_graph"]

SOURCE = "frame"
"""The stream that the decoder makes."""

PROB_TOLERANCE = 1e-6
"""How far a sum of probabilities may be from 1, for thirds written with six digits."""

# Fewest and most streams that a type of step reads and makes.
_ARITY: dict[str, tuple[tuple[int, float], tuple[int, float]]] = {
    "single": ((1, 1), (1, 1)),
    "conditional": ((1, 1), (1, 1)),
    "random": ((1, 1), (1, 1)),
    "multi": ((1, 1), (2, math.inf)),
    "merge": ((2, math.inf), (1, 1)),
}


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
    return _Check(steps, places or {}).graph(stage_of)


class _Check:
    """One pass over the steps of one task; errors take their place from here."""

    def __init__(self, steps: Sequence[StepSpec], places: Mapping[tuple[int, str, str], Place]):
        self.steps = steps
        self.places = places
        self.producer: dict[str, int] = {}
        """Stream → index of the step as written."""

    def graph(self, stage_of: Callable[[OpCall], str]) -> AbstractGraph:
        for index, step in enumerate(self.steps):
            self._check_arity(index, step)
            _check_branches(step)
        self._find_producers()
        self._check_inputs()
        steps = tuple(self.steps[index] for index in self._order())
        final = self._final()
        producer = {stream: index for index, step in enumerate(steps) for stream in step.outputs}
        streams = (SOURCE, *producer)
        consumers = {stream: tuple(i for i, step in enumerate(steps) if stream in step.inputs) for stream in streams}
        return AbstractGraph(steps, streams, final, producer, consumers, _read_ops(steps, stage_of))

    def _error(self, message: str, index: int, side: str = "", stream: str = "") -> ConfigError:
        return _error_at(self.places.get((index, side, stream), self.steps[index].place), message)

    def _check_arity(self, index: int, step: StepSpec) -> None:
        for side, streams, (least, most) in zip(
            ("inputs", "outputs"), (step.inputs, step.outputs), _ARITY[step.branch_type], strict=True
        ):
            if not least <= len(streams) <= most:
                allowed = "exactly one" if most == least else f"at least {least}"
                raise self._error(
                    f"step {step.name!r} of type {step.branch_type} has {len(streams)} {side}, it takes {allowed}"
                    + _ARITY_CURE[side] * (most == 1),
                    index,
                    side,
                    streams[-1] if streams else "",
                )
            twice = next((stream for stream in streams if streams.count(stream) > 1), None)
            if twice is not None:
                raise self._error(f"step {step.name!r} names {twice!r} twice in {side}", index, side, twice)

    def _find_producers(self) -> None:
        for index, step in enumerate(self.steps):
            for stream in step.outputs:
                if stream == SOURCE:
                    message = f"step {step.name!r} cannot make {SOURCE!r}: the decoder does; choose another name"
                    raise self._error(message, index, "outputs", stream)
                if stream in self.producer:
                    other = self.steps[self.producer[stream]]
                    raise self._error(
                        f"stream {stream!r} is made by step {step.name!r} and by step {other.name!r}"
                        f"{_line(other.place)}; each stream has one producer",
                        index,
                        "outputs",
                        stream,
                    )
                self.producer[stream] = index

    def _check_inputs(self) -> None:
        known = (SOURCE, *self.producer)
        for index, step in enumerate(self.steps):
            for stream in step.inputs:
                if stream not in known:
                    near = difflib.get_close_matches(stream, known, 1)
                    raise self._error(
                        f"no step makes {stream!r}, which step {step.name!r} reads"
                        + (f"; did you mean {near[0]}" if near else "")
                        + f"; streams: {', '.join(known)}",
                        index,
                        "inputs",
                        stream,
                    )

    def _order(self) -> list[int]:
        """Indices in the order of work: what is ready first by the order of writing (Kahn's algorithm)."""
        missing = [sum(stream != SOURCE for stream in step.inputs) for step in self.steps]
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
                for reader in readers.get(stream, ()):
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        heapq.heappush(ready, reader)
        if len(order) < len(self.steps):
            raise self._cycle(set(range(len(self.steps))) - set(order))
        return order

    def _cycle(self, stuck: set[int]) -> ConfigError:
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
        return self._error(f"steps wait for one another in a circle: {names}", circle[0], "inputs", closing)

    def _final(self) -> str:
        read = {stream for step in self.steps for stream in step.inputs}
        left = [stream for stream in self.producer if stream not in read]
        if not left:
            return SOURCE  # only without steps: a graph without cycles has an end
        if len(left) > 1:
            # The last one written is most likely meant as the clip.
            unused, final = left[-2], left[-1]
            raise self._error(
                f"stream {unused!r} is never read; the clip is the one stream left over, here {final!r}: "
                "merge them, or remove the step",
                self.producer[unused],
                "outputs",
                unused,
            )
        return left[0]


_ARITY_CURE = {"inputs": "; join streams by a merge step", "outputs": "; copy a stream by a multi step"}


def _check_branches(step: StepSpec) -> None:
    if step.branch_type == "conditional":
        if not step.branches:
            raise _error_at(step.place, f"step {step.name!r} of type conditional has no branches")
        *others, last = step.branches
        for branch in others:
            if branch.condition == "else":
                raise _error_at(branch.place, f"'else' must be the last branch of step {step.name!r}")
        if last.condition != "else":
            raise _error_at(
                last.place,
                f"the last branch of step {step.name!r} must have condition: else "
                "(with config: None frames pass on unchanged)",
            )
    if step.branch_type == "random":
        probs = [branch.prob or 0.0 for branch in step.branches]
        # Rounded: 3 * 0.333333 is off by 1e-6 and by the rounding error of the subtraction.
        if not all(0 <= prob <= 1 for prob in probs) or round(abs(math.fsum(probs) - 1), 12) > PROB_TOLERANCE:
            written = " + ".join(f"{prob:.10g}" for prob in probs) or "nothing"
            raise _error_at(
                step.branches[0].place if step.branches else step.place,
                f"the probabilities of step {step.name!r} must sum to 1, got {written} = {math.fsum(probs):.10g}",
            )


def _read_ops(steps: Sequence[StepSpec], stage_of: Callable[[OpCall], str]) -> tuple[OpCall, ...]:
    """The read-time operations, after checking that nothing else follows one."""
    found: dict[str, OpCall] = {}
    """Stream → the last read-time operation that it has passed."""
    read_ops: list[OpCall] = []
    for step in steps:
        before = next((found[stream] for stream in step.inputs if stream in found), None)
        if before is not None and step.branch_type != "single":
            raise _too_early(before, f"step {step.name!r} of type {step.branch_type}")
        for branch in step.branches:
            for op in branch.ops:
                if stage_of(op) == "read":
                    raise _error_at(
                        op.place,
                        f"operation {op.name!r} runs when a clip is read and cannot be in a branch; "
                        "put it into a single step at the end",
                    )
        for op in step.ops:
            if stage_of(op) == "read":
                before = op
                read_ops.append(op)
            elif before is not None:
                raise _too_early(before, f"operation {op.name!r}")
        if before is not None:
            found.update(dict.fromkeys(step.outputs, before))
    return tuple(read_ops)


def _too_early(op: OpCall, follower: str) -> ConfigError:
    return _error_at(
        op.place, f"operation {op.name!r} runs when a clip is read, so it must come last; {follower} follows it"
    )


def _error_at(place: Place, message: str) -> ConfigError:
    return ConfigError(message, place.file, place.line, place.column)


def _line(place: Place) -> str:
    return f" (line {place.line})" if place.line else ""
