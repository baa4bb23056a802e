"""A task's canonical definition and its abstract graph: what its paths mean depends on these alone."""

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from math import lcm

from viewcache.materializer import ops
from viewcache.materializer.choices import Exif, Join, Media, OnLowFps
from viewcache.materializer.planning.graph import AbstractGraph, check_graph
from viewcache.materializer.sampling import ClipSelection, SamplingSpec
from viewcache.materializer.spec import ROOT, CacheSpec, DatasetSpec, OpCall, StepSpec, TaskSpec

__all__ = ["NOT_DEFINING", "canonical", "graph_of", "places_of", "seed_of", "stage_of"]

NOT_DEFINING: dict[type, tuple[str, ...]] = {
    TaskSpec: ("name", "epochs", "layout"),
    DatasetSpec: (
        "fields",
        "follow_links",
        "link_roots",
        "on_changed_video",
        "on_missing_video",
        "probe",
        "remote",
        "settle",
    ),
    StepSpec: ("name",),
}
"""What may change between two runs without changing what any path means, so it is no part of a task's definition."""
_LEFT_OUT: dict[type, dict[str, object]] = {
    DatasetSpec: {
        "media": Media.VIDEO,
        "exif": Exif.APPLY,
        "join": Join.GENERATION,
        "on_low_fps": OnLowFps.REPEAT,
        "label_start_column": "start_s",
        "label_end_column": "end_s",
        "label_separator": None,
        "classes": (),
        "split": None,
        "part": None,
        "weight": None,
        "balance": None,
        "mix": (),
        "mix_column": ROOT,
    },
    SamplingSpec: {"fps": None, "clips": ClipSelection.RANDOM},
    TaskSpec: {"shuffle": True, "audio": None},
}
"""What came in a later release is left out where it is as before, so that definitions of earlier ones hold."""


def seed_of(cache: CacheSpec, task: TaskSpec) -> int:
    """Seed of a task's random numbers: the cache's where the task has none."""
    return cache.seed if task.seed is None else task.seed


def canonical(cache: CacheSpec, task: TaskSpec) -> str:
    """A task's definition as canonical JSON: as long as it stays, every path of the task keeps its meaning.

    It holds the dataset, the sampling, the steps in the order of work, drop_last and the seed. It leaves out the task's
    name, which the catalog keeps beside it, and what may change from run to run: places in files, the steps' names,
    ``epochs``, ``layout``, and of the dataset ``fields``, ``follow_links``, ``link_roots``, ``on_changed_video``,
    ``on_missing_video``, ``probe``, ``remote`` and ``settle``.
    """
    values = _plain(replace(task, seed=seed_of(cache, task)))
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def graph_of(task: TaskSpec) -> AbstractGraph:
    """The abstract graph of a task; ``task.steps`` are already in its order."""
    return check_graph(task.steps, stage_of)


def places_of(steps: Sequence[StepSpec]) -> int:
    """How many samples in a row are of one clip, because an operation has a crop for each (``three_crop``)."""
    return lcm(*(ops.get(call.name).places for step in steps for call in step.calls))


def stage_of(op: OpCall) -> str:
    """The stage of an operation: ``frame``, ``time`` or ``read``."""
    return ops.get(op.name).stage


def _plain(value: object) -> object:
    """Plain JSON values of a spec; fields that do not compare, which are places, are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        skipped, usual = NOT_DEFINING.get(type(value), ()), _LEFT_OUT.get(type(value), {})
        named = ((f.name, getattr(value, f.name)) for f in fields(value) if f.compare and f.name not in skipped)
        return {name: _plain(each) for name, each in named if name not in usual or each != usual[name]}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
