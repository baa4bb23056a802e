"""The Chrome trace event format as far as traces use it, and what must hold of every trace."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import jsonschema

__all__ = ["EVENTS", "Event", "check", "inner", "nested", "read", "tracks"]

Event = dict[str, Any]

_COMMON: dict[str, Any] = {"name": {"type": "string"}, "pid": {"type": "integer"}, "tid": {"type": "integer"}}
_AT: dict[str, Any] = {"ts": {"type": "number", "minimum": 0}}


def _event(ph: str, more: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    properties = {"ph": {"const": ph}, **_COMMON, **more}
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


EVENTS = {
    "type": "array",
    "items": {
        "oneOf": [
            _event(
                "X", {**_AT, "dur": {"type": "number", "minimum": 0}, "args": {"type": "object"}}, optional=("args",)
            ),
            _event("i", {**_AT, "s": {"const": "t"}, "args": {"type": "object"}}),
            _event("C", {**_AT, "args": {"type": "object", "additionalProperties": {"type": "number"}}}),
            _event(
                "M",
                {
                    "name": {"enum": ["process_name", "thread_name", "thread_sort_index"]},
                    "args": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "sort_index": {"type": "integer"}},
                        "additionalProperties": False,
                    },
                },
            ),
        ]
    },
}
"""Strict: a complete event, an instant of a thread, a counter or metadata, each with its fields and no other."""


def read(path: Path) -> list[Event]:
    """A finished trace."""
    events: list[Event] = json.loads(path.read_text())
    return events


def check(events: list[Event]) -> None:
    """The format; every track has a name; slices of a track lie in one another or apart; counters go forward."""
    jsonschema.validate(events, EVENTS)
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert {event["tid"] for event in events if event["ph"] in "Xi"} <= named | {0}
    for slices in tracks(events).values():
        nested(slices)
    for name in {event["name"] for event in events if event["ph"] == "C"}:
        times = [event["ts"] for event in events if event["ph"] == "C" and event["name"] == name]
        assert times == sorted(times)


def tracks(events: list[Event]) -> dict[str, list[Event]]:
    """Slices by the name of their track, outer ones first."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return {name: sorted(slices, key=lambda s: (begin(s), -end(s))) for name, slices in found.items()}


def begin(event: Event) -> int:
    """In nanoseconds."""
    return round(float(event["ts"]) * 1000)


def end(event: Event) -> int:
    """In nanoseconds."""
    return begin(event) + round(float(event["dur"]) * 1000)


def nested(slices: list[Event]) -> None:
    """A slice that begins within another one ends within it."""
    open_slices: list[Event] = []
    for each in slices:
        while open_slices and end(open_slices[-1]) <= begin(each):
            open_slices.pop()
        assert not open_slices or end(each) <= end(open_slices[-1]), (open_slices[-1], each)
        open_slices.append(each)


def inner(slices: list[Event], outer: Event) -> list[Event]:
    """The slices of a track that lie in another one."""
    return [each for each in slices if each is not outer and begin(outer) <= begin(each) and end(each) <= end(outer)]
