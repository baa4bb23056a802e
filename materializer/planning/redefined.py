"""What differs between two definitions of a task, in the words of the configuration, and whether views stay the same.

A definition holds more than what decides pixels: it is what a user wrote. Some keys may therefore change under a tag
that was drawn: those after which every path that was read still shows what it showed.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import Any

from viewcache.errors import BadInput
from viewcache.materializer.choices import Media
from viewcache.materializer.media.source import shown
from viewcache.materializer.ops import get
from viewcache.materializer.ops.lossy import LOSSY_OP

__all__ = ["changed_keys", "keeps_views", "names_labels", "refused_keys"]

MOST = 6
"""Keys that are named."""
MOST_CHARACTERS = 100
"""Of a value: from its beginning, or around where it differs."""

_WRITTEN = {
    "dataset.uri": "video_dataset_path",
    "drop_last": "drop_last",
    "seed": "seed",
    "shuffle": "shuffle",
    "epochs_per_generation": "cache.epochs_per_generation",
}
"""Place in a definition → the key, where it is another."""
_ABSENT = object()
_LABELS = (
    "classes",
    "label_column",
    "label_end_column",
    "label_separator",
    "label_start_column",
    "label_video_column",
    "labels",
)

Settings = dict[str, Any]
"""A definition, or a part of it."""


def changed_keys(before: str, now: str) -> str:
    """The keys that differ and both values of each, as ``sampling.spread (0.4 before, 0.5 now)``.

    Args:
        before: as the catalog has it; of an earlier release some keys may be missing that it did not have.
        now: as `canonical` makes it, with or without what follows it.
    """
    return _in_words(_read(before), _read(now))


def refused_keys(before: str, now: str) -> str:
    """The same of those for which the other definition is refused; empty where `keeps_views`.

    What may change is not named: whoever takes that back has changed nothing.
    """
    old, new = _read(before), _read(now)
    return _in_words(*_views(old, new))


def _in_words(old: Settings, new: Settings) -> str:
    media = Media(new.get("dataset", {}).get("media", Media.VIDEO))
    found = [f"{_written(place, media)} ({_values(place, *both)})" for place, *both in _differences("", old, new)]
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return ", ".join(found[:MOST]) + more


def keeps_views(before: str, now: str) -> bool:
    """Whether all that was drawn under one definition means the same under the other.

    So it is where operations that run at reading come or go (`normalize`, `to_dtype`), which are no part of a view;
    where labels are added to videos that had none, or names of classes to labels that had none; between the policies
    for bad videos that draw from the same videos, ``raise`` and ``replace``; where larger frames are allowed than
    before; and where ``drop_last`` comes or goes, unless a condition counts iterations, which are others then. In a
    dataset that grows, labels, that policy and the largest frame decide which videos join.
    """
    if before == now:  # most often
        return True
    old, new = _views(_read(before), _read(now))
    return old == new


def _views(old: Settings, new: Settings) -> tuple[Settings, Settings]:
    """What of two definitions decides views: what may change is left out of both, or is as the new one has it."""
    free = _LABELS if _labels_may_change(old, new) else ()
    return _decisive(_allowed(old, new), free), _decisive(new, free)


def _decisive(settings: Settings, free: Sequence[str]) -> Settings:
    """A definition without some keys of its dataset, and without what runs at reading."""
    dataset = {name: value for name, value in settings.get("dataset", {}).items() if name not in free}
    return settings | {"dataset": dataset, "steps": _without_read_ops(settings.get("steps", []))}


def names_labels(before: str, now: str) -> bool:
    """Whether labels that had no names of classes under one definition have them under the other."""
    if before == now:  # most often
        return False
    old, new = _read(before).get("dataset", {}), _read(now).get("dataset", {})
    return old.get("labels") is not None and not old.get("classes") and bool(new.get("classes"))


def _allowed(old: Settings, new: Settings) -> Settings:
    """The definition of before, with what of the new one changes no view."""
    allowed = dict(old)
    if "drop_last" in old and "drop_last" in new and not _counts_iterations(old):
        allowed["drop_last"] = new["drop_last"]
    before, now = old.get("dataset", {}), new.get("dataset", {})
    if _grows(old) or _grows(new):
        return allowed
    most, more = before.get("max_pixels"), now.get("max_pixels")
    if most and more and most < more and before.get("on_bad_video") != "skip":
        allowed["dataset"] = before = before | {"max_pixels": more}
    if {before.get("on_bad_video"), now.get("on_bad_video")} == {"raise", "replace"}:
        allowed["dataset"] = before | {"on_bad_video": now["on_bad_video"]}
    return allowed


def _grows(settings: Settings) -> bool:
    return bool(settings.get("dataset", {}).get("input_source") == "streaming")


def _counts_iterations(settings: Settings) -> bool:
    """Whether a condition asks for the number of an iteration, which depends on how many an epoch has."""
    branches = (branch for step in settings.get("steps", []) for branch in step.get("branches", []))
    return any("iteration" in (branch.get("condition") or "") for branch in branches)


def _labels_may_change(old: Settings, new: Settings) -> bool:
    """Whether labels are the same, or are added where none were, or get names.

    Their numbers decide no view: `where` and weights go by text. In a dataset that grows they decide which videos join.
    """
    if _grows(old) or _grows(new) or "dataset" not in old or "dataset" not in new:
        return False
    before, now = old["dataset"], new["dataset"]
    others = {name for name in _LABELS if before.get(name) != now.get(name)}
    adds = before.get("labels") is None and "label" not in (before.get("where") or "").lower()
    return adds or others <= ({"classes"} if not before.get("classes") else set())


def _without_read_ops(steps: Sequence[Settings]) -> list[Settings]:
    """Steps as far as they make what is stored; such operations end the graph, so what is left is one, too."""
    left = [step | {"ops": [each for each in step["ops"] if not _runs_at_reading(each)]} for step in steps]
    while left and left[-1]["branch_type"] == "single" and not left[-1]["ops"] and steps[len(left) - 1]["ops"]:
        left.pop()
    return left


def _runs_at_reading(call: Settings) -> bool:
    try:
        return all(get(name).stage == "read" for name in call)
    except BadInput:  # an operation that is not installed any more
        return False


def _read(definition: str) -> Settings:
    try:
        settings, end = json.JSONDecoder().raw_decode(definition)
    except ValueError:  # of an earlier release
        return {"definition": definition}
    epochs = re.search(r"epochs_per_generation=(\d+)", definition[end:])
    found: Settings = _readable(settings | ({"epochs_per_generation": int(epochs[1])} if epochs else {}))
    return _with_intermediate(found)


def _with_intermediate(settings: Settings) -> Settings:
    """The loss that a task allows where it was written, and not among the operations."""
    steps, dataset = settings.get("steps", []), settings.get("dataset", {})
    for step in steps:
        for call in step.get("ops", []):
            if loss := call.get(LOSSY_OP):
                written = {"quality": loss["quality_db"], "crf": loss["crf"], "encoder": loss["encoder"]}
                written["rate_control"] = loss.get("rate_control")
                dataset = dataset | {"intermediate": {name: each for name, each in written.items() if each is not None}}
    left = [step | {"ops": [each for each in step.get("ops", []) if LOSSY_OP not in each]} for step in steps]
    return settings | ({"steps": left, "dataset": dataset} if "steps" in settings else {})


def _readable(value: Any) -> Any:
    """An operation as it is written: its name, and its parameters by name."""
    if isinstance(value, list):
        return [_readable(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"name", "params"}:
        return {value["name"]: dict(value["params"])}
    return {name: _readable(each) for name, each in value.items()}


def _differences(place: str, old: object, new: object) -> Iterator[tuple[str, object, object]]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*old, *new)):
            yield from _differences(f"{place}.{name}".lstrip("."), old.get(name, _ABSENT), new.get(name, _ABSENT))
    elif isinstance(old, list) and isinstance(new, list) and old and new and _is_nested(old + new):
        for number, one, other in _places(old, new):
            yield from _differences(f"{place}[{number}]", one, other)
    else:
        yield place, old, new


def _places(old: list[object], new: list[object]) -> Iterator[tuple[int, object, object]]:
    """The places behind what two lists begin with and before what they end with, each with what both have there."""
    begin = _alike(old, new)
    end = _alike(old[begin:][::-1], new[begin:][::-1])
    middles = (each[begin : len(each) - end] for each in (old, new))
    for number, (one, other) in enumerate(zip_longest(*middles, fillvalue=_ABSENT), begin):
        yield number, one, other


def _alike(one: Sequence[object], other: Sequence[object]) -> int:
    """How many values, or characters, of two sequences are the same before the first that differ."""
    return len(list(takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False))))


def _is_nested(values: list[object]) -> bool:
    return any(isinstance(each, dict) for each in values)


def _written(place: str, media: Media) -> str:
    section, dot, key = _WRITTEN.get(place, place.removeprefix("dataset.")).rpartition(".")
    place = section + dot + media.written(key)
    return re.sub(r"\.ops\b", ".config", re.sub(r"^steps\b", "augmentation", place))


def _values(place: str, old: object, new: object) -> str:
    """Both values; of long ones the part around the first difference."""
    before, now = _text(place, old), _text(place, new)
    if max(len(before), len(now)) > MOST_CHARACTERS:
        same = _alike(before, now)
        before, now = _part(before, same), _part(now, same)
    return f"{before} before, {now} now"


def _text(place: str, value: object) -> str:
    if value is _ABSENT:
        return "not set"
    if place == "dataset.uri" and isinstance(value, str):
        value = shown(value)
    return json.dumps(value, ensure_ascii=False)


def _part(text: str, at: int) -> str:
    """The part of a text around a place that the others are told by."""
    begin = max(0, at - MOST_CHARACTERS // 2)
    end = max(begin, at) + MOST_CHARACTERS
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")
