"""What a configuration would make, without making or recording any of it.

The plan is worked out on a copy of the catalog that is thrown away, so that looking at a plan draws nothing for ever,
and works while another process trains. What the catalog knows of the videos is used; only new and changed files are
looked at, and what is found of them stays in the catalog of a cache that nobody has open. A catalog of an older release
is left as it is: its copy alone is upgraded.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from viewcache.api.config.load import Config
from viewcache.api.config.placed import placed
from viewcache.api.preview.keeps import Keep, keeps
from viewcache.api.queries.ask import copy_catalog
from viewcache.api.text import counted
from viewcache.catalog import Catalog
from viewcache.catalog.connecting import connect
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.opening import is_postgresql
from viewcache.catalog.policies import check_policy
from viewcache.catalog.private import private_folder
from viewcache.errors import BadInput, NotFound, ViewcacheError
from viewcache.materializer.choices import BranchType, Media, OnChangedVideo
from viewcache.materializer.dataset.changes import FileChange
from viewcache.materializer.dataset.listing import Progress, list_files
from viewcache.materializer.dataset.listing_spec import files_of
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.rows import Summary
from viewcache.materializer.planning.sharing import Saving, count_savings
from viewcache.materializer.spec import OpCall, StepSpec, TaskSpec
from viewcache.materializer.tasks.group import shares
from viewcache.materializer.tasks.opening import open_task
from viewcache.materializer.tasks.task import Task
from viewcache.store import check_place

__all__ = [
    "KindPreview",
    "Outlook",
    "Preview",
    "generations_of",
    "graph_lines",
    "planned_tasks",
    "previews",
    "refused_policy",
    "refused_store",
]

_CONNECT_S = 5
"""How long a plan waits for PostgreSQL, seconds."""


@dataclass(frozen=True, slots=True)
class KindPreview:
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
    objects: tuple[KindPreview, ...]
    items: int
    """Drawn in an epoch: whole videos and segments of videos."""
    segments: int
    """How many of them are segments."""
    kept_clips: int
    """How many of its distinct clips are kept."""
    summary: Summary
    budget_bytes: int
    minimum_bytes: int
    """The least budget with which the task can be read."""
    warnings: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    """What happened to the task's files since its cache was opened last."""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Some generations of all tasks, before anything runs."""

    tasks: tuple[Preview, ...]
    savings: tuple[tuple[int, tuple[Saving, ...]], ...]
    """Generation → what sharing saves in it; only where several tasks have it."""
    keeps: tuple[Keep, ...] = ()
    """What is kept of each, and what its epochs cost."""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        together = [{"generation": number, "work": [asdict(each) for each in all_]} for number, all_ in self.savings]
        keeps = [asdict(each) for each in self.keeps]
        horizon = {}
        if self.keeps:
            first = self.keeps[0].horizon
            parts = ("epoch_s", first.epoch_s), ("beside_s", first.beside_s)
            horizon = {name: {str(epoch): s for epoch, s in part} for name, part in parts}
        tasks = [task.as_dict() for task in self.tasks]
        return {"tasks": tasks, "together": together, "keeps": keeps, "horizon": horizon}


def generations_of(config: Config, epochs: int | None) -> list[int]:
    """The generations that cover the first epochs of the longest task; None, or more than it has = all."""
    wanted = ((task, task.epochs if epochs is None else min(epochs, task.epochs)) for task in config.tasks)
    return list(range(max((-(-most // config.cache.epochs_at_once(task)) for task, most in wanted), default=1)))


def previews(config: Config, generations: Iterable[int], progress: Progress | None = None) -> Outlook:
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
    numbers, unusable = list(generations), (refused_store(config), refused_policy(config), refused_catalog(config))
    refused = tuple(f"`viewcache run` would refuse this: {each}" for each in unusable if each is not None)
    found: list[Preview] = []
    savings: list[tuple[int, tuple[Saving, ...]]] = []
    with planned_tasks(config, progress) as tasks:
        opened = list(tasks)
        for (task, *_), share in zip(opened, shares([task for task, *_ in opened]), strict=True):
            task.share(share)
        kept = tuple(keeps(config, [task for task, *_ in opened], numbers, opened[0][1])) if opened else ()
        for task, catalog, warnings in opened:
            mine = [number for number in numbers if 0 <= number <= task.last_generation()]
            found += [_preview(config, task, number, catalog, (*refused, *warnings)) for number in mine]
            refused = () if mine else refused  # it is the cache's, and told once
        for number in numbers:
            having = [task for task, *_ in opened if 0 <= number <= task.last_generation()]
            if len(having) > 1:
                plans = [task.generation(number).plan for task in having]
                indexes = [task.index_of(plan) for task, plan in zip(having, plans, strict=True)]
                savings.append((number, tuple(count_savings(plans, indexes, CostModel()))))
    if not found:
        k = config.cache.epochs_per_generation
        last = generations_of(config, None)[-1]
        raise BadInput(f"generation {numbers[0]}: the tasks have generations 0 to {last}, of {k} epochs each")
    return Outlook(tuple(found), tuple(savings), kept)


def refused_store(config: Config) -> ViewcacheError | None:
    """Why `viewcache run` could not make the store's folder; None if it could, or that cannot be told."""
    try:
        with suppress(OSError):
            check_place(config.cache.local.url)
    except BadInput as error:
        return error
    return None


def refused_policy(config: Config) -> ViewcacheError | None:
    """Why `viewcache run` would refuse the eviction policy; None if it would not."""
    try:
        check_policy(config.cache.eviction.policy, config.cache.eviction.folder)
    except (BadInput, NotFound) as error:
        return error
    return None


def refused_catalog(config: Config) -> ViewcacheError | None:
    """Why PostgreSQL would not let `viewcache run` in; None if it would, or the catalog is a file."""
    if not is_postgresql(config.cache.catalog):
        return None
    try:
        connect(config.cache.catalog, connect_timeout=_CONNECT_S).close()
    except ViewcacheError as error:
        return error
    return None


@contextmanager
def planned_tasks(
    config: Config, progress: Progress | None = None, *, places: bool = True
) -> Iterator[Iterator[tuple[Task, Catalog, tuple[str, ...]]]]:
    """The tasks of a configuration on a catalog that is thrown away, each with what `viewcache run` would refuse.

    Args:
        config: the configuration.
        progress: told of files that are looked into.
        places: whether errors of a task begin with its place in the configuration, see `placed`.

    Raises:
        BadInput: there is no task.
    """
    if not config.tasks:
        raise BadInput("the configuration has no task; add a dataset: section")
    _look_ahead(config, progress)
    with private_folder() as folder:
        if config.cache.catalog == "duckdb":
            copy_catalog(config.cache.local.url, folder)
        with Catalog.open(folder) as catalog:
            yield (_opened(config, spec, catalog, progress, placed if places else _unplaced) for spec in config.tasks)


def _look_ahead(config: Config, progress: Progress | None) -> None:
    """Read the headers of new files into a cache's own catalog, if it has one that nobody has open.

    What is wrong with its datasets is said when they are listed for the plan.
    """
    cache = config.cache
    if cache.catalog == "duckdb" and CatalogFiles(Path(cache.local.url)).database.exists():
        with suppress(ViewcacheError):
            # An older one stays as it is.
            Catalog.open(cache.local.url, create=False, writable=False).close()
            with Catalog.open(cache.local.url, create=False) as catalog:
                # No replaced file of what was drawn is taken in: the plan tells.
                drawn = {row.name: OnChangedVideo.RAISE for row in catalog.load_tasks()}
                for dataset in dict.fromkeys(files_of(task) for task in config.tasks):
                    list_files(dataset, catalog, workers=cache.workers, progress=progress, policies=drawn, tells=False)


def _unplaced(_: TaskSpec) -> AbstractContextManager[None]:
    """Leaves errors as they are: who asks tells a place that is nearer."""
    return nullcontext()


def _opened(
    config: Config,
    spec: TaskSpec,
    catalog: Catalog,
    progress: Progress | None,
    placing: Callable[[TaskSpec], AbstractContextManager[None]],
) -> tuple[Task, Catalog, tuple[str, ...]]:
    budget = config.cache.local.budget_bytes
    warnings: tuple[str, ...] = ()

    def opened(spec: TaskSpec) -> Task:
        tasks = [spec if each.name == spec.name else each for each in config.tasks]
        with placing(spec):
            return open_task(
                config.cache, spec, catalog, budget_bytes=budget, progress=progress, tasks=tasks, whole=True
            )

    try:
        task = opened(spec)
    except BadInput as error:
        if spec.name not in {row.name for row in catalog.load_tasks()}:
            raise
        # Show the plan nevertheless, and what stands in its way.
        warnings = (f"`viewcache run` would refuse this: {error}",)
        task = _opened_anyway(opened, spec, catalog)
    return task, catalog, warnings


def _opened_anyway(opened: Callable[[TaskSpec], Task], spec: TaskSpec, catalog: Catalog) -> Task:
    """A task that would be refused: with what it drew, if only a file was replaced; else as if it had drawn nothing."""
    if spec.dataset.on_changed_video == OnChangedVideo.RAISE:
        with suppress(BadInput):
            return opened(replace(spec, dataset=replace(spec.dataset, on_changed_video=OnChangedVideo.WARN)))
    catalog.forget_task(spec.name)  # drawn under another definition
    return opened(spec)


def _preview(config: Config, task: Task, number: int, catalog: Catalog, warnings: tuple[str, ...]) -> Preview:
    plan, objects = task.generation(number).plan, _kinds(catalog, task, number)
    drawn = plan.item[(plan.epoch == plan.first_epoch) & (plan.sample == 0)]
    budget = config.cache.local.budget_bytes
    minimum, clips = task.outline.batch_bound()
    if minimum > budget:
        warnings = (
            *warnings,
            f"`viewcache run` would refuse this: a batch of {clips} clips takes up to {minimum} bytes, "
            f"cache.budget is {budget}",
        )
    changes = [each for each in task.changes if each.change != FileChange.BAD]
    warnings = (*warnings, *(str(each) for each in task.changes if each.change == FileChange.BAD))
    return Preview(
        task=task.spec.name,
        generation=number,
        first_epoch=plan.first_epoch,
        last_epoch=plan.last_epoch,
        iterations=plan.iterations,
        shape=plan.shape,
        graph=tuple(graph_lines(task.spec, task.graph)),
        objects=objects,
        items=len(drawn),
        segments=int((np.isfinite(plan.items.start_s[drawn]) | np.isfinite(plan.items.end_s[drawn])).sum()),
        kept_clips=sum(_clips_in(each, plan.clip_bytes) for each in objects),
        summary=task.summary(number),
        budget_bytes=config.cache.room_bytes,
        minimum_bytes=minimum,
        warnings=warnings,
        changes=tuple(map(str, changes)),
    )


def _clips_in(kind: KindPreview, clip_bytes: int) -> int:
    """How many clips lie in the objects of a kind that are kept: those of images lie in blocks."""
    if kind.kind == ObjectKind.BLOCK:
        return kind.kept_bytes // clip_bytes
    return kind.kept if kind.kind == ObjectKind.CLIP else 0


def _kinds(catalog: Catalog, task: Task, number: int) -> tuple[KindPreview, ...]:
    """Objects of a recorded generation, shared ones too, added up per kind."""
    recorded = catalog.load_plan(task.task_id, number)
    if recorded is None:
        return ()
    kinds: dict[str, list[int]] = {}
    columns = (recorded.objects[name].to_pylist() for name in ("kind", "est_bytes", "keep"))
    for kind, size_bytes, keep in zip(*columns, strict=True):
        total = kinds.setdefault(kind, [0, 0, 0, 0])
        total[0] += 1
        total[1] += size_bytes
        total[2] += bool(keep)
        total[3] += size_bytes if keep else 0
    return tuple(KindPreview(kind, *total) for kind, total in sorted(kinds.items()))


def graph_lines(spec: TaskSpec, graph: AbstractGraph) -> list[str]:
    """A task's steps as a tree, from the decoded frames to the clip.

    A step with several inputs stands under the first of them that is reached; the others point to it.
    """
    sampling = spec.sampling
    if spec.dataset.media == Media.IMAGE:
        each = f", {sampling.samples_per_video} pictures of each" if sampling.samples_per_video > 1 else ""
        batch = f"{counted(sampling.videos_per_batch, 'image')} a batch{each}"
    else:
        apart = f"every {sampling.frame_stride}" if sampling.fps is None else f"at {sampling.fps:g} a second"
        batch = (
            f"{sampling.frames_per_video} frames {apart}, "
            f"{sampling.samples_per_video} x {sampling.videos_per_batch} clips a batch"
        )
    lines = [f"{spec.name}: {batch}, {spec.epochs} epochs, from {spec.dataset.uri}"]
    seen: set[int] = set()

    def below(stream: str, indent: str) -> None:
        readers = graph.consumers.get(stream, ())
        for position, index in enumerate(readers):
            last = position == len(readers) - 1
            step = graph.steps[index]
            again = index in seen
            lines.append(f"{indent}{'└─' if last else '├─'} {step.name if again else _described(step, graph.final)}")
            if not again:
                seen.add(index)
                for made in step.outputs:
                    below(made, indent + ("   " if last else "│  "))

    below("frame", "")
    return lines


def _described(step: StepSpec, final: str) -> str:
    if step.branch_type == BranchType.SINGLE:
        what = ", ".join(map(_call, step.ops)) or "nothing"
    elif step.branches:
        arms = [
            f"{_when(each.condition, each.prob)}: {', '.join(map(_call, each.ops)) or 'nothing'}"
            for each in step.branches
        ]
        what = f"{step.branch_type} ({'; '.join(arms)})"
    elif step.branch_type == BranchType.MERGE:
        what = f"merge {' + '.join(step.inputs)} by {step.merge}"
    else:
        what = f"copies to {', '.join(step.outputs)}"
    return f"{step.name}: {what}{'  = the clip' if final in step.outputs else ''}"


def _when(condition: str | None, prob: float | None) -> str:
    return str(condition) if condition is not None else f"{prob or 0:.0%}"


def _call(op: OpCall) -> str:
    given = [f"{name}={value}" for name, value in op.params if value is not None]
    return f"{op.name}({', '.join(given)})" if given else op.name
