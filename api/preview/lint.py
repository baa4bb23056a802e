"""All problems of a configuration at once, and what is allowed but most likely not meant.

The loader stops at the first error, as it must. Here what it complained of is taken out and the rest is checked again,
until nothing is left to complain of. An error that may only follow from something taken out is not told.
"""

import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from viewcache.api.cli.terminal import size
from viewcache.api.config.load import Config, assemble, read_documents
from viewcache.api.config.yaml_subset import Node
from viewcache.errors import BadInput, BadVideo, BudgetTooSmall, ConfigError, NotFound, ViewcacheError
from viewcache.materializer.dataset.dataset import Progress
from viewcache.materializer.spec import Place, TaskSpec
from viewcache.materializer.tasks.task import Task

__all__ = ["Problem", "lint"]

MOST_PROBLEMS = 100
"""A file with more has another problem."""
LITTLE = 0.5
"""Of a generation's clips: a budget that keeps less is worth a word."""

_OF_THE_TASK = (BadInput, BadVideo, NotFound)
"""Errors of what a task asks for; others are of the machine or the cache, and no problem of the configuration."""

_MISSING = " needs the key "
"""In the message about a mapping that lacks a key: the place is the mapping's own, not that of an entry."""
_UNKNOWN_OP = ": unknown op "
"""In the message about an operation that no module has."""
_UNREAD = " is never read;"
"""In the message about a stream that is left over, which one reader less may have made it."""
_MEANT = re.compile(r"^unknown key .*did you mean (\w+)\?")
"""In the message about a key: the one that it stands for."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of lint."""

    level: str
    """``error`` (the configuration is refused) or ``warning``."""
    kind: str
    """Of the error; for warnings a word for what is odd."""
    message: str
    place: Place

    @property
    def text(self) -> str:
        """As compilers print it."""
        where = [self.place.file, *(str(n) for n in (self.place.line, self.place.column) if n)]
        return f"{':'.join(where)}: {self.level}: {self.message}"

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


def lint(paths: Sequence[str], *, scan: bool = False, progress: Progress | None = None) -> list[Problem]:
    """Check configuration files together.

    Args:
        paths: YAML files.
        scan: look at the videos too.
        progress: called while videos are looked at.

    Returns:
        Errors in the order of the files, then warnings.

    Raises:
        NotFound: a configuration file does not exist.
        Busy: the catalog that ``scan`` asks did not answer.
        Broken: it is damaged, or of another release.
    """
    written: list[tuple[Node, str]] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            written += read_documents(Path(path), [])
        except ConfigError as error:
            problems.append(_of(error))
    config, found = _all_errors(written)
    problems += found
    if config is not None:
        places = _Places([root for root, _ in written])
        listed = list(_datasets(config, places, scan=scan))
        problems += (problem for _, problem in listed)
        if scan:
            unlisted = {name for name, problem in listed if problem.level == "error"}
            there = tuple(task for task in config.tasks if task.name not in unlisted)
            problems += _scanned(replace(config, tasks=there), places, progress)
    order = {str(Path(path)): number for number, path in enumerate(paths)}
    return sorted(
        problems,
        key=lambda each: (each.level != "error", order[each.place.file], each.place.line, each.place.column),
    )


def _of(error: ConfigError) -> Problem:
    return Problem("error", error.kind, error.reason, Place(error.file, error.line, error.column))


def _all_errors(written: list[tuple[Node, str]]) -> tuple[Config | None, list[Problem]]:
    """The configuration, None unless it is whole, and every error."""
    problems: list[Problem] = []
    cuts = _Cuts()
    while written:
        try:
            config = assemble(written, [root.place.file for root, _ in written])
        except ConfigError as error:
            if not cuts.explain(written, error):
                problems.append(_of(error))
            written, done = cuts.without(written, error)
            if not done or len(problems) >= MOST_PROBLEMS:
                return None, problems
        else:
            return None if problems else config, problems
    return None, problems


_Trail = tuple[str | int, ...]
"""The keys and numbers that lead from the root of a document to one of its parts."""


class _Cuts:
    """What was taken out so far."""

    def __init__(self) -> None:
        self._keys: set[tuple[Place, str]] = set()
        """Place of a mapping and the key that was taken out of it, or that the one taken out was most likely to be."""
        self._emptied: set[Place] = set()
        """Lists whose last item was taken out."""
        self._torn: set[Place] = set()
        """Steps of which a part was taken out, and tasks of which it is not known which streams they were to have."""
        self._fewer: set[Place] = set()
        """Tasks of which a whole step was taken out."""
        self._modules = False
        """Whether a module of operations was taken out."""
        self._named: set[str] = set()
        """Every text in the steps that were taken out whole, the names of their streams among them."""

    def explain(self, written: list[tuple[Node, str]], error: ConfigError) -> bool:
        """Whether an error may come of what was taken out, and not of what the user wrote."""
        place = Place(error.file, error.line, error.column)
        if place in self._emptied or any(at == place and f"{_MISSING}{key}:" in error.reason for at, key in self._keys):
            return True
        if not error.line:
            return bool(self._keys)
        if self._modules and _UNKNOWN_OP in error.reason:
            return True
        found = _find(written, error) if _about_graph(error) else None
        if found is None:
            return False
        root, trail = written[found[0]][0], found[1]
        if _part(root, _step(trail)).place in self._torn:
            return True
        if not {"inputs", "outputs"} & set(trail):
            return False
        task = _part(root, _task(trail)).place
        if task in self._torn or (task in self._fewer and _UNREAD in error.reason):
            return True
        return not self._named.isdisjoint(_texts(_part(root, trail)))

    def without(self, written: list[tuple[Node, str]], error: ConfigError) -> tuple[list[tuple[Node, str]], bool]:
        """The documents without what the error is about, and whether anything was found to take out.

        A step that does not fit the graph goes as a whole: without a part of it, it would fit even less.
        """
        found = _find(written, error)
        if found is None:
            return written, False
        position, trail = found
        root, folder = written[position]
        self._modules |= "op_modules" in trail
        if "augmentation" in trail:
            task, step = _part(root, _task(trail)).place, _part(root, _step(trail))
            if not _about_graph(error):
                self._torn |= set() if "config" in trail else {task, step.place}
            else:
                self._torn |= {task} if "outputs" in trail else set()
                self._fewer.add(task)
                self._named.update(_texts(step))
                trail = _step(trail)
        self._keys |= {(_part(root, trail[:-1]).place, key) for key in _MEANT.findall(error.reason)}
        cut = self._cut(root, trail)
        kept = [] if cut is None else [(cut, folder)]
        return [*written[:position], *kept, *written[position + 1 :]], True

    def _cut(self, node: Node, trail: _Trail) -> Node | None:
        """The node without its part at a trail; None if nothing is left. Only a list may be left empty."""
        if not trail:
            return None
        at, *rest = trail
        if isinstance(node.value, dict):
            cut = self._cut(node.value[str(at)], tuple(rest))
            if cut is not None:
                return replace(node, value={**node.value, str(at): cut})
            self._keys.add((node.place, str(at)))
            entries = {key: child for key, child in node.value.items() if key != at}
            keys = {key: place for key, place in node.keys.items() if key != at}
            return replace(node, value=entries, keys=keys) if entries else None
        assert isinstance(node.value, tuple)
        cut = self._cut(node.value[int(at)], tuple(rest))
        kept = () if cut is None else (cut,)
        items = (*node.value[: int(at)], *kept, *node.value[int(at) + 1 :])
        if not items:
            self._emptied.add(node.place)
        return replace(node, value=items)


def _about_graph(error: ConfigError) -> bool:
    """Whether the rules of the graph were broken, and not those of a single value."""
    return any(frame.filename.endswith("planning/graph.py") for frame in traceback.extract_tb(error.__traceback__))


def _find(written: list[tuple[Node, str]], error: ConfigError) -> tuple[int, _Trail] | None:
    """The document and the innermost part of it that an error is about."""
    place = Place(error.file, error.line, error.column)
    for position, (root, _) in enumerate(written):
        trail = _trail(root, place, whole=_MISSING in error.reason)
        if trail is not None:
            return position, trail
    return None


def _trail(node: Node, place: Place, *, whole: bool) -> _Trail | None:
    """Where the innermost part at a place is; None if nothing is there.

    A mapping in block style stands where its first key stands; ``whole`` says that the mapping is meant.
    """
    parts: Iterable[tuple[str | int, Node]] = ()
    if isinstance(node.value, dict):
        parts = node.value.items()
    elif isinstance(node.value, tuple):
        parts = enumerate(node.value)
    for at, part in parts:
        below = () if not whole and node.keys.get(str(at)) == place else _trail(part, place, whole=whole)
        if below is not None:
            return (at, *below)
    return () if node.place == place else None


def _step(trail: _Trail) -> _Trail:
    """The trail as far as the step that it leads into, or the steps as a whole."""
    return trail[: trail.index("augmentation") + 2]


def _task(trail: _Trail) -> _Trail:
    """The trail as far as the task that it leads into."""
    return trail[: trail.index("augmentation")]


def _part(node: Node, trail: _Trail) -> Node:
    for at in trail:
        assert isinstance(node.value, dict | tuple)
        node = node.value[str(at)] if isinstance(node.value, dict) else node.value[int(at)]
    return node


def _texts(node: Node) -> Iterator[str]:
    """Every text in a part of a document."""
    if isinstance(node.value, str):
        yield node.value
    elif isinstance(node.value, dict | tuple):
        for part in node.value.values() if isinstance(node.value, dict) else node.value:
            yield from _texts(part)


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
        caches = [cache for root in self._roots for cache in _listed(root, "cache")]
        nodes = [*caches, *(tier for cache in caches for tier in _listed(cache, "store"))]
        return next((node.keys["budget"] for node in nodes if "budget" in node.keys), task.place)


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
    from viewcache.materializer.dataset.discover import discover
    from viewcache.materializer.dataset.labels import labels_for
    from viewcache.materializer.media.source import is_local

    for task in config.tasks:
        dataset = task.dataset
        if not scan and not is_local(dataset.uri):
            continue
        key = "video_dataset_path"
        try:
            paths = [found.path for found in discover(dataset.uri)]
            key = "labels"
            if scan or (dataset.labels and is_local(dataset.labels)):
                labels_for(paths, dataset.labels, dataset.label_video_column, dataset.label_column)
        except _OF_THE_TASK as error:
            yield task.name, _refused(task, error, places.of(task, key))
            continue
        files, batch = len(paths), task.sampling.videos_per_batch
        if files < batch:
            empty = ", so with drop_last an epoch is empty" if task.drop_last else ""
            text = f"task {task.name!r}: a batch has {batch} videos, the dataset {files}{empty}"
            yield task.name, Problem("warning", "batch_larger_than_dataset", text, task.place)
        clip = _clip_bytes(task)
        if clip and not scan:
            epochs = min(task.epochs, config.cache.epochs_per_generation)
            need = clip * files * task.sampling.samples_per_video * epochs
            yield from ((task.name, problem) for problem in _little(config, task, need))


def _refused(task: TaskSpec, error: ViewcacheError, place: Place) -> Problem:
    """An error as a problem; its task is named once."""
    name = f"task {task.name!r}: "
    return Problem("error", error.kind, name + str(error).removeprefix(name), place)


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
        yield Problem("warning", "budget_keeps_little", text, task.place)


def _scanned(config: Config, places: _Places, progress: Progress | None) -> Iterator[Problem]:
    """What only the videos themselves tell, and what `viewcache run` would refuse."""
    from viewcache.api.preview.plan import planned_tasks

    left = list(config.tasks)
    while left:
        with planned_tasks(replace(config, tasks=tuple(left)), progress) as tasks:
            while left:
                spec = left.pop(0)
                try:
                    task, _, refused = next(tasks)
                except _OF_THE_TASK as error:
                    yield _refused(spec, error, _place_of(spec, error, places))
                    break  # nothing comes after a task that cannot be opened; those that are left are asked anew
                for text in refused:
                    yield Problem("error", BadInput.kind, f"task {spec.name!r}: {text}", spec.place)
                yield from _planned(config, task, places)


def _place_of(task: TaskSpec, error: ViewcacheError, places: _Places) -> Place:
    about_where = str(error).removeprefix(f"task {task.name!r}: ").startswith("where:")
    return places.of(task, "where") if about_where else task.place


def _planned(config: Config, task: Task, places: _Places) -> Iterator[Problem]:
    """What the plan of a task's first generation tells."""
    spec, budget = task.spec, config.cache.local.budget_bytes
    for bad in task.dataset.bad:
        yield Problem("warning", "bad_video", f"task {spec.name!r}: {bad.error}", spec.place)
    try:
        minimum, clips = task.batch_bound()
        plan = task.generation(0).plan
    except _OF_THE_TASK as error:
        yield _refused(spec, error, _place_of(spec, error, places))
        return
    span = spec.sampling.span
    short = int((plan.videos.frames < span).sum())
    if 2 * short > len(plan.videos):
        text = (
            f"task {spec.name!r}: a clip spans {span} frames, but {short} of {len(plan.videos)} videos are "
            f"shorter (on_short_video: {spec.dataset.on_short_video})"
        )
        yield Problem("warning", "clip_longer_than_videos", text, spec.place)
    if minimum > budget and config.budget_given:
        text = (
            f"a batch of task {spec.name!r} has {clips} clips that take up to {minimum} bytes, but cache.budget is "
            f"{budget}; the minimum is {minimum}"
        )
        yield Problem("error", BudgetTooSmall.kind, text, places.budget(spec))
    else:
        yield from _little(config, spec, task.summary(0).clip_bytes)
