"""What a configuration would make, without making or recording any of it.

The plan is worked out on a copy of the catalog that is thrown away, so that looking at a plan draws nothing for ever, and
works while another process trains. What the catalog knows of the videos is used; only new and changed files are looked at.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from viewcache.api.cli_terminal import duration, size
from viewcache.api.config import Config
from viewcache.api.session import open_task
from viewcache.api.sql_door import copy_catalog
from viewcache.catalog import Catalog
from viewcache.errors import BadInput
from viewcache.materializer.dataset import Progress
from viewcache.materializer.sampling import clip_span
from viewcache.materializer.spec import Branch, OpCall, StepSpec, TaskSpec
from viewcache.materializer.tables import Summary
from viewcache.materializer.task import Task

if TYPE_CHECKING:
    from viewcache.materializer.graph_check import AbstractGraph

__all__ = ["ObjectKind", "Preview", "generations_of", "graph_lines", "previews"]


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """All objects of one kind in a generation."""

    kind: str
    """``frames``, ``aug`` or ``clip``."""
    count: int
    bytes: int
    """Raw."""
    kept: int
    """How many the plan stores under the budget."""
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class Preview:
    """One generation of one task, before anything runs."""

    task: str
    generation: int
    first_epoch: int
    last_epoch: int
    iterations: int
    """Batches in an epoch."""
    shape: tuple[int, ...]
    """Of every clip."""
    graph: tuple[str, ...]
    """The steps as a tree, one line each."""
    objects: tuple[ObjectKind, ...]
    summary: Summary
    budget_bytes: int
    minimum_bytes: int
    """The least budget with which the task can be read at all."""
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Task, graph and generation in words."""
        epochs = f"epoch {self.first_epoch}" + (f" to {self.last_epoch}" if self.last_epoch > self.first_epoch else "")
        shape = "x".join(map(str, self.shape))
        kept, all_clips = self.summary.kept_clips, self.summary.clips
        return [
            *self.graph,
            "",
            f"generation {self.generation}: {epochs}, {self.iterations} batches an epoch, clips of {shape} uint8",
            f"budget {size(self.budget_bytes)}: keeps {kept} of {all_clips} clips ({kept / max(all_clips, 1):.0%})",
        ]

    def object_rows(self) -> list[tuple[object, ...]]:
        """A table of the objects per kind."""
        return [(each.kind, each.count, size(each.bytes), each.kept, size(each.kept_bytes)) for each in self.objects]

    def cost_rows(self) -> list[tuple[object, ...]]:
        """A table of what making costs, with decoding on demand beside it."""
        s = self.summary
        rows: list[tuple[str, float, float]] = [
            ("frames to convert", s.frames, s.frame_uses),
            ("packets to decode", s.packets, s.packets_on_demand),
        ]
        table: list[tuple[object, ...]] = [(name, int(a), int(b), f"{b / max(a, 1):.1f}x") for name, a, b in rows]
        ratio = s.decode_on_demand_s / s.decode_s if s.decode_s else 0.0
        table.append(("core seconds, estimated", duration(s.decode_s), duration(s.decode_on_demand_s), f"{ratio:.1f}x"))
        return table


def generations_of(config: Config, epochs: int | None) -> list[int]:
    """The generations that cover the first epochs of the longest task; None = all."""
    most = max((task.epochs for task in config.tasks), default=1) if epochs is None else epochs
    return list(range(-(-most // config.cache.epochs_per_generation)))


def previews(config: Config, generations: Iterable[int], progress: Progress | None = None) -> list[Preview]:
    """Plan some generations of every task.

    Args:
        config: what is asked.
        generations: their numbers; a task that has fewer is left out of the later ones.
        progress: called while videos are looked at.

    Raises:
        BadInput: no task, or no task has such a generation.
        DatasetNotFound: a dataset is not there.
        BadVideo: a video is bad and the policy is ``raise``.
    """
    if not config.tasks:
        raise BadInput("the configuration has no task; add a dataset: section")
    numbers = list(generations)
    found: list[Preview] = []
    with _scratch(config) as (catalog, notes):
        for spec in config.tasks:
            task, refused = _task(config, spec, catalog, progress)
            found += [
                _preview(config, task, number, catalog, (*notes, *refused))
                for number in numbers
                if 0 <= number <= task.last_generation()
            ]
    if not found:
        k = config.cache.epochs_per_generation
        last = max(-(-task.epochs // k) - 1 for task in config.tasks)
        raise BadInput(f"generation {numbers[0]}: the tasks have generations 0 to {last}, of {k} epochs each")
    return found


@contextmanager
def _scratch(config: Config) -> Iterator[tuple[Catalog, tuple[str, ...]]]:
    """A catalog to plan in: a copy of the cache's, if it has one."""
    where = config.cache.tiers[0].url
    with tempfile.TemporaryDirectory(prefix="viewcache-plan-") as folder:
        notes: tuple[str, ...] = ()
        if config.cache.catalog == "duckdb":
            copy_catalog(where, folder)
        with Catalog.open(folder) as catalog:
            yield catalog, notes


def _task(
    config: Config, spec: TaskSpec, catalog: Catalog, progress: Progress | None
) -> tuple[Task, tuple[str, ...]]:
    """The task, planned under another name where the catalog has draws of another definition under its own."""
    budget = config.cache.tiers[0].budget_bytes
    try:
        return open_task(config, spec, catalog, budget, progress), ()
    except BadInput as error:
        known = {row.name for row in catalog.load_tasks()}
        if spec.name not in known:
            raise
        with tempfile.TemporaryDirectory(prefix="viewcache-plan-") as folder, Catalog.open(folder) as fresh:
            raise BadInput(f"{error}") from error
