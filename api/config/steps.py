"""Reads the augmentation of a task: steps, branches and operations become specs in the order of work.

SAND §5.1, Fig. 9. Parameters are checked by the operations themselves and conditions by their own grammar; this module
adds the places and the graph's rules to what those say.
"""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from viewcache.api.config.entries import Entries
from viewcache.api.config.keys import SECTIONS, STEP_KEYS
from viewcache.api.config.problems import Part, Problems, Refused
from viewcache.api.config.yaml_subset import Node, error_at
from viewcache.errors import BadInput, ConfigCode, OpWorkerFailed, ViewcacheError
from viewcache.materializer import ops
from viewcache.materializer.choices import BranchType, Merge
from viewcache.materializer.planning.conditions import parse_condition
from viewcache.materializer.planning.definition import stage_of
from viewcache.materializer.planning.graph import find_mistakes
from viewcache.materializer.spec import Branch, OpCall, Place, StepSpec

__all__ = ["read_steps", "told"]


def read_steps(entries: Entries) -> tuple[StepSpec, ...]:
    """The steps of a task in the order of work.

    Args:
        entries: the task's mapping.

    Raises:
        ConfigError: there is no list of steps.
        Refused: a step, branch, operation or condition is wrong, or the steps do not make a graph; that was reported.
    """
    written = entries.items("augmentation")
    parts = [entries.problems.part(partial(_step, node, label, entries.problems)) for node, label in written]
    read = [part.value for part in parts if part]
    places: dict[tuple[int, str, str], Place] = {}
    for index, each in enumerate(read):
        places |= {(index, side, stream): place for (side, stream), place in each.places.items()}
        name = each.name.value_or("")
        if name and any(name == other.name.value_or("") for other in read[:index]):
            message = f"two steps are called {name!r}; names of steps differ"
            entries.problems.report(error_at(each.name_place, ConfigCode.GIVEN_TWICE, message))
    graph = find_mistakes(
        [each.spec for each in read],
        entries.problems.report,
        stage_of=stage_of,
        places=places,
        torn=[index for index, each in enumerate(read) if not each.whole],
        missing=len(read) < len(parts),
    )
    if graph is None:
        raise Refused
    return graph.steps


@dataclass(frozen=True, slots=True)
class _Step:
    """A step whose type and streams are known."""

    spec: StepSpec
    """With those operations and branches that could be read."""
    whole: bool
    """Whether all of them could."""
    name: Part[str]
    name_place: Place
    places: dict[tuple[str, str], Place]
    """(``inputs`` or ``outputs``, stream) → where it is written."""


def _step(node: Node, label: str, problems: Problems) -> _Step:
    entries = Entries(node, SECTIONS["step"], label, problems)
    branch_type = problems.part(partial(entries.value, "branch_type"))
    inputs, outputs = (problems.part(partial(entries.value, side)) for side in ("inputs", "outputs"))
    name = problems.part(lambda: entries.value("name") or outputs.value[0])
    foreign = _foreign_keys(entries, branch_type.value) if branch_type else set()
    merge = problems.part(partial(entries.value, "merge")) if "merge" not in foreign else Part.of(Merge.CONCAT)
    operations: Part[_Operations] = Part.of(_Operations((), whole=True))
    branches: list[Part[_Branch]] = []
    if "config" not in foreign and (branch_type.value_or(None) == BranchType.SINGLE or entries.has("config")):
        operations = problems.part(partial(_operations, entries))
    if branch_type and "branches" not in foreign:
        listed = problems.part(partial(entries.items, "branches"))
        read = (partial(_branch, each, where, branch_type.value, problems) for each, where in listed.value_or([]))
        branches = [Part()] if not listed or entries.misspelt("branches") else [*map(problems.part, read)]
    spec = StepSpec(
        name=name.value_or(label),
        branch_type=branch_type.value,
        inputs=inputs.value,
        outputs=outputs.value,
        ops=operations.value_or(_Operations()).calls,
        branches=tuple(branch.value.spec for branch in branches if branch),
        merge=merge.value_or(Merge.CONCAT),
        place=node.place,
    )
    whole = operations.value_or(_Operations()).whole and all(branch and branch.value.whole for branch in branches)
    places = {
        (side, str(item.value)): item.place for side in ("inputs", "outputs") for item in _listed(entries.child(side))
    }
    return _Step(spec, whole and not foreign and bool(merge) and bool(name), name, entries.place("name"), places)


def _listed(node: Node) -> tuple[Node, ...]:
    return node.value if isinstance(node.value, tuple) else (node,)


def _foreign_keys(entries: Entries, branch_type: BranchType) -> set[str]:
    """Keys that are given although a step of that type has none of the name; each is reported."""
    foreign = {key for keys in STEP_KEYS.values() for key in keys}.difference(STEP_KEYS[branch_type])
    given = {key for key in foreign if entries.has(key)}
    for key in sorted(given):
        types = [kind for kind, keys in STEP_KEYS.items() if key in keys]
        message = f"a step of type {branch_type} has no {key}; it belongs to steps of type {' and '.join(types)}"
        entries.problems.report(error_at(entries.node.keys[key], ConfigCode.MISPLACED_KEY, message))
    return given


@dataclass(frozen=True, slots=True)
class _Branch:
    spec: Branch
    whole: bool


def _branch(node: Node, label: str, branch_type: BranchType, problems: Problems) -> _Branch:
    entries = Entries(node, SECTIONS["branch"], label, problems)
    own, foreign = ("condition", "prob") if branch_type == BranchType.CONDITIONAL else ("prob", "condition")
    chosen = problems.part(partial(_chosen, entries, branch_type, own, foreign))
    operations = problems.part(partial(_operations, entries))
    spec = Branch(
        ops=operations.value_or(_Operations()).calls,
        condition=chosen.value if own == "condition" else None,
        prob=chosen.value if own == "prob" else None,
        place=node.place,
    )
    return _Branch(spec, operations.value_or(_Operations()).whole)


def _chosen(entries: Entries, branch_type: BranchType, own: str, foreign: str) -> Any:
    """What decides whether a branch is taken: its condition in canonical form, or its probability."""
    if entries.has(foreign):
        message = f"a branch of a {branch_type} step has {own}, not {foreign}"
        raise error_at(entries.node.keys[foreign], ConfigCode.MISPLACED_KEY, message)
    if not entries.has(own):
        entries.require(own, entries.section.key(own).doc, empty=True)
    value = entries.value(own)
    if own == "prob":
        return value
    try:
        return parse_condition(value).text
    except BadInput as error:
        message = f"{entries.name_of('condition')}: {told(error)}"
        raise error_at(entries.place("condition"), ConfigCode.CONDITION, message) from error


@dataclass(frozen=True, slots=True)
class _Operations:
    calls: tuple[OpCall, ...] = ()
    """Those that could be read."""
    whole: bool = False
    """Whether all could."""


def _operations(entries: Entries) -> _Operations:
    """The operations under ``config``; none for an empty value or the paper's ``None``."""
    entries.require("config", "a list of operations, or None")
    node, label = entries.child("config"), entries.name_of("config")
    if node.value is None or node.value == "None":
        return _Operations((), whole=True)
    if not isinstance(node.value, tuple):
        message = f"{label} must be a list of operations ('- resize: …'), or None, got {node.shown()}"
        raise node.error(ConfigCode.WRONG_TYPE, message)
    read = (partial(_operation, item, f"{label}[{k}]", entries.problems) for k, item in enumerate(node.value))
    parts = [entries.problems.part(each) for each in read]
    return _Operations(tuple(part.value for part in parts if part), whole=all(parts))


def _operation(node: Node, label: str, problems: Problems) -> OpCall:
    """One operation: ``- flip: {flip_prob: 0.5}``, or ``- grayscale`` for one without parameters."""
    if isinstance(node.value, str):
        name, place, value = node.value, node.place, None
    elif isinstance(node.value, dict) and node.value:
        name, *others = node.value
        if others:
            raise error_at(
                node.keys[others[0]],
                ConfigCode.OP_PARAMETERS,
                f"{label} has more than one name: indent {others[0]!r} under {name!r} if it is a parameter, "
                "or put '- ' before it if it is the next operation",
            )
        place, value = node.keys[name], node.value[name].plain()
    else:
        message = f"{label} must be an operation such as '- flip: {{flip_prob: 0.5}}', got {node.shown()}"
        raise node.error(ConfigCode.WRONG_TYPE, message)
    try:
        op = ops.latest(name)
        if op.hidden:
            raise BadInput(f"op {name!r} stands for dataset.intermediate; write what may be lost there")
    except BadInput as error:
        refusal = error_at(place, ConfigCode.UNKNOWN_OP, f"{label}: {told(error)}")
        if not problems.ops_missing:
            raise refusal from error
        problems.warn(refusal)
        raise Refused from error
    try:
        params = op.parse(value)
        hash(params)  # specs are values, and a task's definition is JSON; the user's own operations may break both
        json.dumps(params, allow_nan=False)
    except (BadInput, OpWorkerFailed) as error:
        raise error_at(place, ConfigCode.OP_PARAMETERS, f"{label}: {told(error)}") from error
    except Exception as error:  # an operation of the user's own may raise anything
        message = f"{label}: op {name!r} failed on its parameters: {told(error)}"
        raise error_at(place, ConfigCode.OP_PARAMETERS, message) from error
    return OpCall(name, params, place)


def told(error: Exception) -> str:
    """What an error says, in bounded length, because it may hold a value of the file."""
    text = str(error) if isinstance(error, ViewcacheError) else f"{type(error).__name__}: {error}"
    return text if len(text) <= 1000 else text[:1000] + "..."
