"""Reads the augmentation of a task: steps, branches and operations become specs in the order of work.

SAND §5.1, Fig. 9. Parameters are checked by the operations themselves and conditions by their own grammar; this module
adds the places and the graph's rules to what those say.
"""

import json

from viewcache.api.config.keys import SECTIONS, STEP_KEYS
from viewcache.api.config.values import Entries
from viewcache.api.config.yaml_subset import Node, error_at
from viewcache.errors import BadInput
from viewcache.materializer import ops
from viewcache.materializer.planning.conditions import parse_condition
from viewcache.materializer.planning.definition import stage_of
from viewcache.materializer.planning.graph import check_graph
from viewcache.materializer.spec import Branch, OpCall, Place, StepSpec

__all__ = ["read_steps", "told"]


def read_steps(entries: Entries) -> tuple[StepSpec, ...]:
    """The steps of a task in the order of work.

    Args:
        entries: the task's mapping.

    Raises:
        ConfigError: a step, branch, operation or condition is wrong, or the steps do not make a graph.
    """
    steps: list[StepSpec] = []
    places: dict[tuple[int, str, str], Place] = {}
    for index, (node, label) in enumerate(entries.items("augmentation")):
        step = Entries(node, SECTIONS["step"], label)
        steps.append(_step(step))
        if any(other.name == steps[index].name for other in steps[:index]):
            raise error_at(step.place("name"), f"two steps are called {steps[index].name!r}; names of steps differ")
        for side in ("inputs", "outputs"):
            value = step.child(side).value
            for item in value if isinstance(value, tuple) else (step.child(side),):
                places[index, side, str(item.value)] = item.place
    return check_graph(steps, stage_of, places).steps


def _step(entries: Entries) -> StepSpec:
    branch_type = entries.value("branch_type")
    name = entries.value("name") or entries.value("outputs")[0]
    foreign = {key for keys in STEP_KEYS.values() for key in keys}.difference(STEP_KEYS[branch_type])
    for key in sorted(foreign):
        if entries.has(key):
            types = [kind for kind, keys in STEP_KEYS.items() if key in keys]
            raise error_at(
                entries.node.keys[key],
                f"a step of type {branch_type} has no {key}; it belongs to steps of type {' and '.join(types)}",
            )
    branches = tuple(
        _branch(Entries(node, SECTIONS["branch"], label), branch_type) for node, label in entries.items("branches")
    )
    return StepSpec(
        name=name,
        branch_type=branch_type,
        inputs=entries.value("inputs"),
        outputs=entries.value("outputs"),
        ops=_operations(entries) if branch_type == "single" else (),
        branches=branches,
        merge=entries.value("merge"),
        place=entries.node.place,
    )


def _branch(entries: Entries, branch_type: str) -> Branch:
    own, foreign = ("condition", "prob") if branch_type == "conditional" else ("prob", "condition")
    if entries.has(foreign):
        raise error_at(entries.node.keys[foreign], f"a branch of a {branch_type} step has {own}, not {foreign}")
    if not entries.has(own):
        raise entries.node.error(f"{entries.label} needs the key {own}: {entries.section.key(own).doc}")
    condition = entries.value("condition")
    if condition is not None:
        try:
            condition = parse_condition(condition).text
        except BadInput as error:
            raise error_at(entries.place("condition"), f"{entries.name_of('condition')}: {told(error)}") from error
    return Branch(
        ops=_operations(entries),
        condition=condition,
        prob=entries.value("prob"),
        place=entries.node.place,
    )


def _operations(entries: Entries) -> tuple[OpCall, ...]:
    """The operations under ``config``; none for an empty value or the paper's ``None``."""
    if "config" not in entries.node.keys:
        raise entries.node.error(f"{entries.label} needs the key config: a list of operations, or None")
    node, label = entries.child("config"), entries.name_of("config")
    if node.value is None or node.value == "None":
        return ()
    if not isinstance(node.value, tuple):
        raise node.error(f"{label} must be a list of operations ('- resize: …'), or None, got {node.shown()}")
    return tuple(_operation(item, f"{label}[{number}]") for number, item in enumerate(node.value))


def _operation(node: Node, label: str) -> OpCall:
    """One operation: ``- flip: {flip_prob: 0.5}``, or ``- grayscale`` for one without parameters."""
    if isinstance(node.value, str):
        name, place, value = node.value, node.place, None
    elif isinstance(node.value, dict) and node.value:
        name, *others = node.value
        if others:
            raise error_at(
                node.keys[others[0]],
                f"{label} has more than one name: indent {others[0]!r} under {name!r} if it is a parameter, "
                "or put '- ' before it if it is the next operation",
            )
        place, value = node.keys[name], node.value[name].plain()
    else:
        raise node.error(f"{label} must be an operation such as '- flip: {{flip_prob: 0.5}}', got {node.shown()}")
    try:
        params = ops.get(name).parse(value)
        hash(params)  # specs are values, and a task's definition is JSON; the user's own operations may break both
        json.dumps(params, allow_nan=False)
    except BadInput as error:
        raise error_at(place, f"{label}: {told(error)}") from error
    except Exception as error:  # an operation of the user's own may raise anything
        raise error_at(place, f"{label}: op {name!r} failed on its parameters: {told(error)}") from error
    return OpCall(name, params, place)


def told(error: Exception) -> str:
    """What an error says, in bounded length, because it may hold a value of the file."""
    text = str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
    return text if len(text) <= 1000 else text[:1000] + "..."
