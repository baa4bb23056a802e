"""What a cache shows of its randomness: tests of what was recorded, task by task, and what sharing costs (law 2).

Fed by `viewcache verify` while it reads every object anyway. It judges only what was drawn; that the code draws
uniformly for any cache is proved by tests/laws.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from viewcache.api.audit.diversity import OFTEN, Diversity, diversity
from viewcache.api.audit.recorded import (
    CropWindow,
    Drawn,
    Footage,
    are_whole,
    clip_places,
    crop_places,
    load_clips,
    whole_orders,
    windows_of,
)
from viewcache.api.audit.segment_starts import Spans, segment_places
from viewcache.api.audit.uniformity import Check, Verdict, density_check, holm, order_checks
from viewcache.catalog import Catalog
from viewcache.catalog.records import TaskRow
from viewcache.errors import MissingExtra

__all__ = ["Evidence", "Recipes", "TaskEvidence", "gather"]

_TENTHS = 10
_EACH = 5
"""Videos that a cell of the table of places should have."""


@dataclass(frozen=True, slots=True)
class TaskEvidence:
    """What one task drew."""

    task: str
    epochs: int
    """Epochs that are drawn to their end."""
    checks: tuple[Check, ...]
    """Empty if SciPy is missing."""
    places: tuple[tuple[float, ...], ...]
    """Part of the listing by id x part of the epoch → how often its videos stood there, 1 = uniform; at most tenths."""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        checks = [asdict(check) | {"verdict": check.verdict} for check in self.checks]
        return {
            "task": self.task,
            "epochs": self.epochs,
            "checks": checks,
            "places": [list(row) for row in self.places],
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """What all tasks drew."""

    tasks: tuple[TaskEvidence, ...]
    diversity: tuple[Diversity, ...]
    """Of each task, then of the tasks over one dataset together."""
    untested: str = ""
    """Why there are no tests; empty if there are."""

    @property
    def errors(self) -> tuple[str, ...]:
        """One line for each check whose p can be no chance."""
        return tuple(
            f"task {task.task!r}: {check.about} is not uniform (p {check.adjusted:.2g} after Holm, n {check.n})"
            for task in self.tasks
            for check in task.checks
            if check.verdict is Verdict.NOT_UNIFORM
        )

    def check_table(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        """Heads and rows of all checks, but for those of what a task has none of: images have no starts."""
        rows: list[tuple[object, ...]] = [
            (task.task, check.about, check.n, check.statistic, check.law, check.p, check.adjusted, check.verdict)
            for task in self.tasks
            for check in task.checks
            if check.n
        ]
        return ("task", "what", "draws", "statistic", "law if uniform", "p", "adjusted", "verdict"), rows

    def diversity_table(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        """Heads and rows of what sharing costs."""
        rows: list[tuple[object, ...]] = []
        for each in self.diversity:
            shared, alone = each.recorded, each.independent
            frames = [f"{value:,.0f}" for value in (shared.per_epoch, alone.per_epoch, shared.ever, alone.ever)]
            often = [f"{counts.often:.1%}" for counts in (shared, alone)]
            rows.append((" + ".join(each.tasks), each.epochs, each.videos, *frames, *often))
        often_head = f"{OFTEN} times or more"
        head = ("tasks", "epochs", "videos", "frames an epoch", "independent", "frames in all", "independent")
        return (*head, often_head, "independent"), rows

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "tasks": [task.as_dict() for task in self.tasks],
            "diversity": [each.as_dict() for each in self.diversity],
            "untested": self.untested,
            "errors": list(self.errors),
        }


class Recipes:
    """Collects the random crops of stored objects, one after another."""

    def __init__(self, catalog: Catalog) -> None:
        """Read the tasks and their videos."""
        self.tasks = catalog.load_tasks()
        self.footage = {each: Footage.load(catalog, each) for each in {task.dataset_id for task in self.tasks}}
        self.windows: dict[int, list[CropWindow]] = {}

    def add(self, object_id: int, attributes: Mapping[str, object]) -> None:
        """Note one object by what is stored beside its pixels."""
        key = attributes.get("video_key")
        sizes = (footage.sizes.get(str(key)) for footage in self.footage.values())
        try:
            windows = windows_of(attributes, next(filter(None, sizes), None))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return  # another program wrote it: what it says tells nothing of our draws
        if windows:
            self.windows[object_id] = windows


def gather(catalog: Catalog, recipes: Recipes) -> Evidence:
    """Test what was recorded and count frames.

    Args:
        catalog: of the cache.
        recipes: of all objects that lie in its store.
    """
    untested, found = "", list[TaskEvidence]()
    for task in recipes.tasks:
        orders = whole_orders(catalog, task) if Drawn.of(task).order else []
        checks: tuple[Check, ...] = ()
        try:
            checks = (*order_checks(orders), *_clip_checks(catalog, task, recipes))
        except MissingExtra as missing:
            untested = str(missing)
        found.append(TaskEvidence(task.name, len(orders), checks, _places(orders)))
    adjusted = iter(holm([check for task in found for check in task.checks]))
    tasks = tuple(replace(task, checks=tuple(next(adjusted) for _ in task.checks)) for task in found)
    return Evidence(tasks, tuple(diversity(catalog, recipes.tasks, recipes.footage)), untested)


def _clip_checks(catalog: Catalog, task: TaskRow, recipes: Recipes) -> list[Check]:
    """Starts and crops; one generation is in memory at a time."""
    footage = recipes.footage[task.dataset_id]
    starts, rows, columns = ([np.empty(0)] for _ in range(3))
    tested = Drawn.of(task).starts
    spans = None if not tested or are_whole(catalog, task, footage) else Spans.load(catalog, task.dataset_id, footage)
    for generation in catalog.load_generations(task.task_id):
        clips = load_clips(catalog, task, footage, generation.first_epoch, generation.last_epoch)
        which = generation.number, generation.grid or task.frame_stride
        if spans is not None:
            epochs = generation.first_epoch, generation.last_epoch
            starts.append(segment_places(catalog, task, spans, epochs, *which))
        elif tested:
            starts.append(clip_places(clips, footage, *which))
        y, x = crop_places(clips, recipes.windows)
        rows.append(y)
        columns.append(x)
    whose = "video" if spans is None else "item"
    crops = "random crops of stored clips"
    return [
        density_check("start", f"one clip per {whose}, sample and generation", np.concatenate(starts)),
        density_check("crop rows", crops, np.concatenate(rows)),
        density_check("crop columns", crops, np.concatenate(columns)),
    ]


def _places(orders: list[NDArray[np.int64]]) -> tuple[tuple[float, ...], ...]:
    """How often videos of each part of the listing stood in each part of an epoch, relative to even chances."""
    if not orders:
        return ()
    parts = max(1, min(_TENTHS, isqrt(sum(map(len, orders)) // _EACH), *map(len, orders)))
    table, expected = np.zeros((2, parts, parts))
    for order in orders:
        part = np.arange(len(order)) * parts // len(order)
        listed = np.argsort(np.argsort(order))
        np.add.at(table, (part[listed], part), 1)
        sizes = np.bincount(part, minlength=parts)
        expected += np.outer(sizes, sizes) / len(order)
    return tuple(tuple(row) for row in (table / expected).tolist())
