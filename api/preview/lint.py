"""All problems of a configuration at once, and what is allowed but most likely not meant.

The loader itself reports them: here it gets a sink that collects instead of one that raises. The rest of this module is
what only the files and the videos tell. Modules of ``cache.op_modules`` are the user's code: they are imported for a
scan alone, which plans the tasks as `viewcache plan` does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from viewcache.api.config.load import Config, assemble, read_documents
from viewcache.api.config.problems import Collected
from viewcache.api.config.yaml_subset import Node
from viewcache.api.text import size
from viewcache.errors import BadInput, BadVideo, BudgetTooSmall, ConfigError, NotFound, ViewcacheError
from viewcache.materializer.choices import Media, ProbeMode
from viewcache.materializer.dataset.changes import FileChange
from viewcache.materializer.dataset.listing import Progress
from viewcache.materializer.spec import Place, TaskSpec
from viewcache.materializer.tasks.task import Task

__all__ = ["Level", "Problem", "lint"]

MOST_PROBLEMS = 100
"""Mistakes that are told; a file with more has another problem."""
_ABOUT = ("where", "split", "part", "weight", "balance", "mix", "fields", "labels", "label_separator")
"""Keys of a task that errors begin with."""
LITTLE = 0.5
"""Of a generation's clips: a budget that keeps less is worth a word."""

_OF_THE_TASK = (BadInput, BadVideo, NotFound)
"""Errors of what a task asks for; others are of the machine or the cache, and no problem of the configuration."""


class Level(StrEnum):
    """How bad a problem is."""

    ERROR = "error"
    """The configuration is refused."""
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of lint."""

    level: Level
    kind: str
    """Of the error; for warnings a word for what is odd."""
    message: str
    place: Place
    code: str = ""
    """Of an error of the kind ``config``: a `ConfigCode`; else empty."""

    @property
    def text(self) -> str:
        """As compilers print it."""
        where = [self.place.file, *(str(n) for n in (self.place.line, self.place.column) if n)]
        return f"{':'.join(where)}: {self.level}: {self.message}"

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


def lint(
    paths: Sequence[str], *, scan: bool = False, full: bool = False, progress: Progress | None = None
) -> list[Problem]:
    """Check configuration files together.

    Args:
        paths: YAML files.
        scan: look at the videos too, and import the modules of ``cache.op_modules``.
        full: with ``scan``, look at every packet of every video.
        progress: called while videos are looked at.

    Returns:
        Errors in the order of the files, then warnings.

    Raises:
        NotFound: a configuration file does not exist.
        Busy: the catalog that ``scan`` asks did not answer.
        Broken: it is damaged, or of another release.
    """
    mistakes = Collected(imports=scan, most=MOST_PROBLEMS)
    documents = [mistakes.part(partial(_documents, path)).value_or([]) for path in paths]
    written = [document for each in documents for document in each]
    config = assemble(written, [str(Path(path)) for path in paths], mistakes)
    problems = [_of(error) for error in mistakes.errors]
    if not scan:
        problems += (_unchecked(error, mistakes.ops_missing) for error in mistakes.unchecked)
    if config:
        places = _Places([root for root, _ in written])
        problems += _store(config.value, places, Place(str(Path(paths[0]))))
        listed = list(_datasets(config.value, places, scan=scan))
        problems += (problem for _, problem in listed)
        if scan:
            problems += _policy(config.value, places)
            unlisted = {name for name, problem in listed if problem.level is Level.ERROR}
            there = tuple(task for task in config.value.tasks if task.name not in unlisted)
            there = tuple(map(_thoroughly, there)) if full else there
            problems += _scanned(replace(config.value, tasks=there), places, progress)
    order = {str(Path(path)): number for number, path in enumerate(paths)}
    return sorted(
        problems,
        key=lambda each: (each.level is not Level.ERROR, order[each.place.file], each.place.line, each.place.column),
    )


def _thoroughly(task: TaskSpec) -> TaskSpec:
    return replace(task, dataset=replace(task.dataset, probe=ProbeMode.FULL))


def _documents(path: str) -> list[tuple[Node, str]]:
    return list(read_documents(Path(path), []))


def _of(error: ConfigError) -> Problem:
    place = Place(error.file, error.line, error.column)
    return Problem(Level.ERROR, error.kind, error.reason, place, str(error.code))


def _unchecked(error: ConfigError, keys: Iterable[str]) -> Problem:
    named = " or ".join(f"cache.{key}" for key in sorted(keys))
    text = f"{error.reason}; a module of {named} may have it: lint --scan imports them and checks it"
    return Problem(Level.WARNING, "op_not_checked", text, Place(error.file, error.line, error.column))


class _Places:
    """Where the keys of a whole configuration are written, for what is found out after it was read."""

    def __init__(self, roots: Sequence[Node]) -> None:
        self._roots = roots

    def of(self, task: TaskSpec, key: str) -> Place:
        """A key of a task; the task's own place where the key is absent."""
        nodes = (node for root in self._roots for node in _listed(root, "dataset") if node.place == task.place)
        return next((node.keys[key] for node in nodes if key in node.keys), task.place)

    def budget(self, task: TaskSpec) -> Place:
        """The key of the budget, in ``cache`` or in its tier; the task's place where it is absent."""
        caches = list(self._caches())
        nodes = [*caches, *(tier for cache in caches for tier in _listed(cache, "store"))]
        return next((node.keys["budget"] for node in nodes if "budget" in node.keys), task.place)

    def policy(self) -> Place:
        """The name of the eviction policy; nowhere where it is absent."""
        nodes = (node for cache in self._caches() for node in _listed(cache, "eviction"))
        return next((node.keys["policy"] for node in nodes if "policy" in node.keys), Place())

    def store(self, absent: Place) -> Place:
        """The key of the store; ``absent`` where there is none, and a link lies in the place of its folder."""
        return next((cache.keys["store"] for cache in self._caches() if "store" in cache.keys), absent)

    def _caches(self) -> Iterator[Node]:
        return (cache for root in self._roots for cache in _listed(root, "cache"))


def _listed(node: Node, key: str) -> tuple[Node, ...]:
    """What stands under a key of a mapping: the items of a list, or the one value."""
    part = node.value.get(key) if isinstance(node.value, dict) else None
    if part is None:
        return ()
    return part.value if isinstance(part.value, tuple) else (part,)


# What the files and the videos tell -------------------------------------------------------------------------------


def _datasets(config: Config, places: _Places, *, scan: bool) -> Iterator[tuple[str, Problem]]:
    """What can be told from the names of the files and from the labels, each with its task's name.

    Other machines are asked only for a ``scan``; without one, what the budget keeps is guessed by the number of files.
    """
    from viewcache.materializer.dataset.checked import mistakes
    from viewcache.materializer.dataset.discover import discover, refuse_unknown_scheme
    from viewcache.materializer.dataset.links import links_of
    from viewcache.materializer.dataset.predicate import refuse_bad_syntax
    from viewcache.materializer.media.source import is_local
    from viewcache.materializer.places import places_of

    for task in config.tasks:
        dataset, wrong = task.dataset, []
        if dataset.where is not None:
            try:
                refuse_bad_syntax(dataset.where)
            except BadInput as error:
                yield task.name, _refused(task, error, places.of(task, "where"))
        far = [place for place in places_of(dataset.uri) if not is_local(place)]
        try:
            key = f"{dataset.media}_dataset_path"
            for place in far:
                if "::" not in place:  # a chain is refused where it is listed
                    refuse_unknown_scheme(place)
            if far and not scan:
                continue
            key = "link_roots"
            links = links_of(dataset)
            key = f"{dataset.media}_dataset_path"
            found = discover(dataset.uri, links, dataset.media)
            key = "labels"
            if scan or dataset.labels is None or is_local(dataset.labels):
                told = mistakes(task, found)
                wrong = [(task.name, _refused(task, error, places.of(task, about))) for about, error in told]
        except _OF_THE_TASK as error:
            yield task.name, _refused(task, error, places.of(task, key))
            continue
        yield from wrong
        if (unlabeled := _unlabeled(task, places)) is not None:
            yield task.name, unlabeled
        files, batch = len(found), task.sampling.videos_per_batch
        if files < batch:
            empty = ", so with drop_last an epoch is empty" if task.drop_last else ""
            text = f"task {task.name!r}: a batch has {batch} {dataset.media}s, the dataset {files}{empty}"
            yield task.name, Problem(Level.WARNING, "batch_larger_than_dataset", text, task.place)
        clip = _clip_bytes(task)
        if clip and not scan and dataset.media == Media.VIDEO:  # finished pictures of images are not kept
            epochs = min(task.epochs, config.cache.epochs_at_once(task))
            need = clip * files * task.sampling.samples_per_video * epochs
            yield from ((task.name, problem) for problem in _little(config, task, need))


def _unlabeled(task: TaskSpec, places: _Places) -> Problem | None:
    """A label table without labels where they are counted on, or where nothing else of it is used."""
    from viewcache.materializer.dataset.labels import columns_of

    dataset = task.dataset
    columns = columns_of(dataset.labels)
    names_labels = dataset.classes or dataset.label_separator is not None
    uses_more = dataset.fields or dataset.where or dataset.split or dataset.weighted
    is_of_segments = not {dataset.label_start_column, dataset.label_end_column}.isdisjoint(columns)
    if not columns or dataset.label_column in columns or (not names_labels and (uses_more or is_of_segments)):
        return None
    text = (
        f"task {task.name!r}: the table has no column {dataset.label_column!r}, so all labels are -1; label_column "
        f"says which column has them: {', '.join(map(repr, sorted(columns)))}"
    )
    return Problem(Level.WARNING, "no_labels", text, places.of(task, "labels"))


def _refused(task: TaskSpec, error: ViewcacheError, place: Place) -> Problem:
    """An error as a problem; its task is named once."""
    if isinstance(error, ConfigError):
        return _of(error)
    name = f"task {task.name!r}: "
    return Problem(Level.ERROR, error.kind, name + str(error).removeprefix(name), place)


def _clip_bytes(task: TaskSpec) -> int:
    """Raw bytes of a clip where its size is written in the configuration, else 0."""
    shapes = [dict(op.params).get("shape") for step in task.steps for op in step.ops]
    last = next((shape for shape in reversed(shapes) if isinstance(shape, tuple) and len(shape) == 2), None)
    return task.sampling.frames_per_video * 3 * int(last[0]) * int(last[1]) if last else 0


def _little(config: Config, task: TaskSpec, need: int) -> Iterator[Problem]:
    budget = config.cache.room_bytes
    kept = min(1.0, budget / need)
    if kept < LITTLE:
        text = (
            f"task {task.name!r}: a budget of {size(budget)} keeps about {kept:.0%} of the {size(need)} that a "
            "generation takes; the rest is made again when it is read"
        )
        yield Problem(Level.WARNING, "budget_keeps_little", text, task.place)


def _store(config: Config, places: _Places, absent: Place) -> Iterator[Problem]:
    """A store that `viewcache run` could not make."""
    from viewcache.api.preview.plan import refused_store

    error = refused_store(config)
    if error is not None:
        yield Problem(Level.ERROR, error.kind, str(error), places.store(absent))


def _policy(config: Config, places: _Places) -> Iterator[Problem]:
    """An eviction policy of the user's own that `viewcache run` would refuse."""
    from viewcache.api.preview.plan import refused_policy

    error = refused_policy(config)
    if error is not None:
        yield Problem(Level.ERROR, error.kind, str(error), places.policy())


def _scanned(config: Config, places: _Places, progress: Progress | None) -> Iterator[Problem]:
    """What only the videos themselves tell, and what `viewcache run` would refuse."""
    from viewcache.api.preview.plan import planned_tasks

    left = list(config.tasks)
    while left:
        with planned_tasks(replace(config, tasks=tuple(left)), progress, places=False) as tasks:
            while left:
                spec = left.pop(0)
                try:
                    task, _, refused = next(tasks)
                except _OF_THE_TASK as error:
                    yield _refused(spec, error, _place_of(spec, error, places))
                    break  # nothing comes after a task that cannot be opened; those that are left are asked anew
                for text in refused:
                    named = text if f"task {spec.name!r}" in text else f"task {spec.name!r}: {text}"
                    yield Problem(Level.ERROR, BadInput.kind, named, spec.place)
                yield from _planned(config, task, places, refused)


def _place_of(task: TaskSpec, error: ViewcacheError, places: _Places) -> Place:
    about = str(error).removeprefix(f"task {task.name!r}: ").partition(":")[0]
    return places.of(task, about) if about in _ABOUT else task.place


def _planned(config: Config, task: Task, places: _Places, refused: Sequence[str]) -> Iterator[Problem]:
    """What the plan of a task's first generation tells; ``refused`` says why `viewcache run` would not open it."""
    spec, budget = task.spec, config.cache.local.budget_bytes
    for changed in () if refused else task.dataset.files.changed:  # of which the refusal speaks
        yield Problem(Level.WARNING, "changed_video", changed, spec.place)
    for change in task.changes:
        if change.change == FileChange.REMOVED:
            yield Problem(Level.WARNING, "removed_videos", f"task {spec.name!r}: {change}", spec.place)
        elif change.change == FileChange.RENUMBERED:
            yield Problem(Level.WARNING, "renumbered_classes", f"task {spec.name!r}: {change}", spec.place)
        elif change.change == FileChange.BAD:
            yield Problem(Level.ERROR, BadVideo.kind, f"task {spec.name!r}: {change}", spec.place)
    for bad in task.dataset.bad:
        yield Problem(Level.WARNING, "bad_video", f"task {spec.name!r}: {bad.error}", spec.place)
    try:
        minimum, clips = task.outline.batch_bound()
        plan = task.generation(0).plan
    except _OF_THE_TASK as error:
        yield _refused(spec, error, _place_of(spec, error, places))
        return
    sampling = spec.sampling
    short = int((plan.items.length < sampling.span).sum())
    if 2 * short > len(plan.items):
        text = (
            f"task {spec.name!r}: a clip spans {sampling.in_words(sampling.span)}, but {short} of {len(plan.items)} "
            f"videos are shorter (on_short_video: {spec.dataset.on_short_video})"
        )
        yield Problem(Level.WARNING, "clip_longer_than_videos", text, spec.place)
    if minimum > budget and config.budget_given:
        text = (
            f"a batch of task {spec.name!r} has {clips} clips that take up to {minimum} bytes, but cache.budget is "
            f"{budget}; the minimum is {minimum}"
        )
        yield Problem(Level.ERROR, BudgetTooSmall.kind, text, places.budget(spec))
    else:
        yield from _little(config, spec, task.summary(0).clip_bytes)
