"""The abstract graph of a task: order of work, the final stream, and what is refused."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.errors import ConfigCode, ConfigError
from viewcache.materializer.choices import BranchType
from viewcache.materializer.planning.graph import SOURCE, check_graph
from viewcache.materializer.spec import Branch, OpCall, Place, StepSpec

PLACE = Place("t.yaml", 7, 3)


def step(
    inputs: str,
    outputs: str,
    branch_type: str = "single",
    ops: tuple[OpCall, ...] = (),
    branches: tuple[Branch, ...] = (),
) -> StepSpec:
    """A step named by its outputs; streams are separated by spaces."""
    streams = tuple(inputs.split()), tuple(outputs.split())
    return StepSpec(outputs, BranchType(branch_type), *streams, ops, branches, place=PLACE)


def arm(*ops: OpCall, condition: str | None = None, prob: float | None = None) -> Branch:
    """A branch with a place."""
    return Branch(ops, condition, prob, PLACE)


def stage_of(op: OpCall) -> str:
    """Operations whose name starts with read are read-time ones."""
    return "read" if op.name.startswith("read") else "frame"


@st.composite
def graphs(draw: st.DrawFn) -> list[StepSpec]:
    """Valid graphs of all five types of step, in any order of writing, with one stream left over."""
    steps: list[StepSpec] = []
    loose = [SOURCE]
    for number in range(draw(st.integers(0, 8))):
        source = draw(st.sampled_from(loose))
        kind = draw(st.sampled_from(["single", "conditional", "random", "multi", "merge"]))
        other = f"s{number}"
        arms = {
            "conditional": (arm(condition="epoch < 1"), arm(condition="else")),
            "random": (arm(prob=0.25), arm(prob=0.75)),
        }.get(kind, ())
        if kind == "multi":
            steps.append(step(source, f"{other} {other}b", kind))
            loose = [name for name in loose if name != source] + [other, f"{other}b"]
        elif kind == "merge" and len(loose) > 1:
            steps.append(step(" ".join(loose[:2]), other, kind))
            loose = [*loose[2:], other]
        else:
            steps.append(step(source, other, kind if arms else "single", branches=arms))
            loose = [name for name in loose if name != source] + [other]
    if len(loose) > 1:
        steps.append(step(" ".join(loose), "end", "merge"))
    return list(draw(st.permutations(steps)))


def in_order(steps: Sequence[StepSpec]) -> bool:
    """Whether each step reads only what is there by then."""
    there = {SOURCE}
    for each in steps:
        if not there.issuperset(each.inputs):
            return False
        there.update(each.outputs)
    return True


@given(graphs())
def test_steps_run_after_what_they_read(steps: list[StepSpec]) -> None:
    """Whatever the order of writing, the order of work has every step once, after the steps that it reads from."""
    graph = check_graph(steps)
    assert sorted(graph.steps, key=id) == sorted(steps, key=id)
    assert in_order(graph.steps)


@given(graphs())
def test_the_order_is_stable(steps: list[StepSpec]) -> None:
    """Steps that are in order already stay as they are written, so checking twice changes nothing."""
    graph = check_graph(steps)
    assert check_graph(graph.steps) == graph
    if in_order(steps):
        assert graph.steps == tuple(steps)


@given(graphs())
def test_streams_have_their_producers_and_readers(steps: list[StepSpec]) -> None:
    """Producer and consumers are what the steps say, and the final stream is the only one without a reader."""
    graph = check_graph(steps)
    for stream in graph.streams:
        assert graph.consumers[stream] == tuple(k for k, each in enumerate(graph.steps) if stream in each.inputs)
        assert (stream == graph.final) == (not graph.consumers[stream])
        if stream != SOURCE:
            assert stream in graph.steps[graph.producer[stream]].outputs


@given(graphs(), st.data())
def test_a_graph_with_one_step_less_is_refused(steps: list[StepSpec], data: st.DataObject) -> None:
    """Without a step in the middle, something has no producer or no reader, and the error says so."""
    graph = check_graph(steps)
    inner = [each for each in steps if graph.final not in each.outputs]
    if inner:
        lost = data.draw(st.sampled_from(inner))
        with pytest.raises(ConfigError) as caught:
            check_graph([each for each in steps if each is not lost])
        assert caught.value.code in (ConfigCode.UNKNOWN_STREAM, ConfigCode.UNREAD_STREAM)


def test_no_steps_give_the_decoded_frames() -> None:
    """A task without augmentation has the decoder's stream as its clip."""
    graph = check_graph([])
    assert (graph.final, graph.streams, graph.steps) == (SOURCE, (SOURCE,), ())


OP, READ = OpCall("flip", place=PLACE), OpCall("read", place=PLACE)
ELSE = arm(condition="else")
LATE = arm(condition="epoch > 1")


@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        ([step("framf", "a")], ConfigCode.UNKNOWN_STREAM, "'framf', which step 'a' reads; did you mean frame?"),
        ([step("frame", "a"), step("frame", "a")], ConfigCode.STREAM_MADE_TWICE, "(line 7)"),
        ([step("frame", "frame")], ConfigCode.STREAM_MADE_TWICE, "'frame'"),
        ([step("a", "a")], ConfigCode.GRAPH_CYCLE, "a → a"),
        ([step("c", "a"), step("a", "b"), step("b", "c")], ConfigCode.GRAPH_CYCLE, "a → b → c → a"),
        ([step("frame", "x"), step("x b", "a", "merge"), step("a", "b")], ConfigCode.GRAPH_CYCLE, "a → b → a"),
        ([step("frame", "a"), step("frame", "b")], ConfigCode.UNREAD_STREAM, "stream 'a'"),
        ([step("frame", "a b", "multi"), step("a", "c")], ConfigCode.UNREAD_STREAM, "stream 'b'"),
        (
            [step("frame", "a b")],
            ConfigCode.STEP_STREAMS,
            "has 2 outputs, it takes exactly one; copy a stream by a multi step",
        ),
        ([step("", "a")], ConfigCode.STEP_STREAMS, "has 0 inputs, it takes exactly one"),
        ([step("frame", "a", "multi")], ConfigCode.STEP_STREAMS, "has 1 outputs, it takes at least 2"),
        ([step("frame", "a", "merge")], ConfigCode.STEP_STREAMS, "has 1 inputs, it takes at least 2"),
        ([step("frame frame", "a", "merge")], ConfigCode.STEP_STREAMS, "names 'frame' twice in inputs"),
        ([step("frame", "a", "conditional")], ConfigCode.MISSING_KEY, "has no branches"),
        ([step("frame", "a", "conditional", branches=(LATE,))], ConfigCode.MISSING_ELSE, "must have condition: else"),
        (
            [step("frame", "a", "conditional", branches=(ELSE, LATE))],
            ConfigCode.MISSING_ELSE,
            "'else' must be the last branch",
        ),
        (
            [step("frame", "a", "conditional", branches=(ELSE, ELSE))],
            ConfigCode.MISSING_ELSE,
            "'else' must be the last",
        ),
        ([step("frame", "a", "random")], ConfigCode.PROBABILITIES, "got nothing = 0"),
        ([step("frame", "a", "random", branches=(arm(prob=0.5),))], ConfigCode.PROBABILITIES, "got 0.5 = 0.5"),
        (
            [step("frame", "a", "random", branches=(arm(prob=0.5), arm(prob=0.500002)))],
            ConfigCode.PROBABILITIES,
            "got 0.5 + 0.500002 = 1.000002",
        ),
        (
            [step("frame", "a", "random", branches=(arm(prob=1.5), arm(prob=-0.5)))],
            ConfigCode.PROBABILITIES,
            "must sum to 1",
        ),
        (
            [step("frame", "a", ops=(READ, OP))],
            ConfigCode.READ_OP_ORDER,
            "'read' runs when a clip is read, so it must come last",
        ),
        (
            [step("frame", "a", ops=(READ,)), step("a", "b", ops=(OP,))],
            ConfigCode.READ_OP_ORDER,
            "operation 'flip' follows it",
        ),
        (
            [step("frame", "a", ops=(READ,)), step("a", "b", "random", branches=(arm(prob=1.0),))],
            ConfigCode.READ_OP_ORDER,
            "'b'",
        ),
        (
            [step("frame", "a", "conditional", branches=(arm(READ, condition="else"),))],
            ConfigCode.READ_OP_ORDER,
            "cannot be in a branch",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_its_place(steps: list[StepSpec], code: ConfigCode, words: str) -> None:
    """Each mistake in a graph is a ConfigError that names the step or stream and a place in the file."""
    with pytest.raises(ConfigError) as caught:
        check_graph(steps, stage_of)
    assert caught.value.code is code
    assert words in str(caught.value)
    assert (caught.value.file, caught.value.line) == ("t.yaml", 7)


def test_a_stream_has_the_place_that_was_given() -> None:
    """Where the reader knows the line of a stream's name, the error points there and not at the step."""
    with pytest.raises(ConfigError) as caught:
        check_graph([step("nope", "a")], places={(0, "inputs", "nope"): Place("t.yaml", 9, 14)})
    assert (caught.value.line, caught.value.column) == (9, 14)


def test_thirds_written_with_six_digits_sum_to_one() -> None:
    """The sum of probabilities may be off by 1e-6."""
    third = arm(prob=0.333333)
    check_graph([step("frame", "a", "random", branches=(third, third, arm(prob=0.333334)))])
    check_graph([step("frame", "a", "random", branches=(third,) * 3)])


def test_a_stream_may_be_read_twice() -> None:
    """Two steps may read one stream without a multi step."""
    graph = check_graph([step("frame", "a"), step("a", "b"), step("a", "c"), step("b c", "d", "merge")])
    assert graph.consumers["a"] == (1, 2)


def test_read_time_operations_are_listed_in_their_order() -> None:
    """Those that end the graph run when a clip is read, in the order of work."""
    first, second, third = OpCall("read_1"), OpCall("read_2"), OpCall("read_3")
    steps = [step("a", "b", ops=(second, third)), step("frame", "a", ops=(OP, first))]
    assert check_graph(steps, stage_of).read_ops == (first, second, third)
