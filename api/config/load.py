"""Reads a configuration: YAML files, text or a mapping become the frozen specs that everything below works from.

SAND §5.1 and Fig. 9: the paper's keys load as they are, with this cache's own beside them. The trade-off is strictness:
whatever is not understood is refused with its place, because a setting that is silently ignored costs a training run.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

from viewcache.api.config.eviction import read_eviction
from viewcache.api.config.keys import SECTIONS, hint
from viewcache.api.config.steps import read_steps, stage_of, told
from viewcache.api.config.tiers import default_budget, read_tiers
from viewcache.api.config.values import Entries, local_path
from viewcache.api.config.yaml_subset import Node, error_at, from_python, read_file, read_text
from viewcache.errors import BadInput, ConfigError, ViewNotFound
from viewcache.materializer import ops
from viewcache.materializer.planning.graph import AbstractGraph, check_graph
from viewcache.materializer.spec import (
    CacheSpec,
    DatasetSpec,
    Place,
    SamplingSpec,
    StepSpec,
    TaskSpec,
)

__all__ = ["TRACE_SUFFIXES", "Config", "Source", "assemble", "load", "read_documents"]

TRACE_SUFFIXES = (".json", ".json.gz")
"""What a trace's file may be called: what is there already is replaced, and must not be a video by mistake."""

_MOST_MEMORY = 8 << 30
"""Bytes of ``memory`` when none is given, on a machine that has twice as much."""

Source = str | os.PathLike[str] | Mapping[str, object]

# What may change between two runs without changing what any path means, so it is no part of a task's definition.
_NOT_DEFINING = {TaskSpec: ("name", "epochs", "layout"), StepSpec: ("name",)}


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a cache and its tasks."""

    cache: CacheSpec
    tasks: tuple[TaskSpec, ...]
    """In the order of the files; empty if they hold only ``cache``."""
    files: tuple[str, ...] = ()
    """Absolute paths of the files that were read; empty for text and mappings."""
    budget_given: bool = True
    """False if the budget is a fraction of the disk; then see ``with_used_bytes``."""
    cache_given: bool = True
    """False if there was no ``cache`` section, so that all of its settings are defaults."""

    def task(self, name: str) -> TaskSpec:
        """The task of that name.

        Raises:
            ViewNotFound: there is none; the message lists those that there are.
        """
        for task in self.tasks:
            if task.name == name:
                return task
        raise ViewNotFound(f"no task {name!r} in this configuration; {hint(name, [task.name for task in self.tasks])}")

    def graph(self, task: TaskSpec) -> AbstractGraph:
        """The abstract graph of one of the tasks; ``task.steps`` are already in its order."""
        return check_graph(task.steps, stage_of)

    def canonical(self, task: TaskSpec) -> str:
        """A task's definition as canonical JSON: as long as it stays, every path of the task keeps its meaning.

        It holds the dataset, the sampling, the steps in the order of work, drop_last and the seed (the cache's where
        the task has none). It leaves out the task's name, which the catalog keeps beside it, and what may change from
        run to run: places in files, the steps' names, ``epochs`` and ``layout``.
        """
        seed = self.cache.seed if task.seed is None else task.seed
        values = _canonical(replace(task, seed=seed))
        return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    def with_used_bytes(self, used: int) -> "Config":
        """The same with the default budget taken from free space plus what the store has already taken.

        Without this a restart would halve the budget again and again. A budget that was given stays.

        Args:
            used: bytes that the store's objects take now.
        """
        if self.budget_given:
            return self
        local = self.cache.local
        grown = replace(local, budget_bytes=default_budget(local.url, used))
        tiers = tuple(grown if tier is local else tier for tier in self.cache.tiers)
        return replace(self, cache=replace(self.cache, tiers=tiers))

    def with_trace(self, path: str) -> "Config":
        """The same with a trace written to a file, seen from the working directory.

        Raises:
            BadInput: it does not end as a trace's file does.
        """
        if not path.endswith(TRACE_SUFFIXES):
            raise BadInput(f"a trace is a file that ends in .json or .json.gz, got {path!r}")
        return replace(self, cache=replace(self.cache, trace=os.path.abspath(path)))


def load(source: Source | Iterable[Source]) -> Config:
    """Read and check a configuration.

    Args:
        source: the path of a YAML file; or YAML text, which is a string with a line break; or a mapping with the same
            keys; or several of these, whose tasks are put together. Relative paths inside start at the file's folder,
            for text and mappings at the working directory.

    Returns:
        Cache and tasks, with defaults filled in, local paths absolute and steps in the order of work.

    Raises:
        NotFound: a file does not exist.
        ConfigError: anything in it is wrong; with file, line and column.
    """
    files: list[str] = []
    return assemble(_documents(source, files), files)


def load_more(source: Source | Iterable[Source], config: Config) -> Config:
    """Add the tasks of further files to a configuration; see ``load``.

    Args:
        source: what to add. Its ``cache``, if it has one, must name the same store.
        config: what there is.

    Raises:
        NotFound: a file does not exist.
        ConfigError: anything in it is wrong, it belongs to another cache, or a tag is taken.
    """
    files: list[str] = []
    more = assemble(_documents(source, files), files)
    if more.cache_given and more.cache.local.url != config.cache.local.url:
        raise ConfigError(
            f"its store is {more.cache.local.url}, that of the open cache is {config.cache.local.url}; leave out "
            "cache:, or open it by itself",
            (*files, "<string>")[0],
        )
    for task in more.tasks:
        _trust(config.cache, task, task.place)
        if any(task.name == each.name for each in config.tasks):
            raise ConfigError(
                f"the tag {task.name!r} is already that of a task of the open cache; give this one another",
                task.place.file,
            )
    return replace(config, tasks=(*config.tasks, *more.tasks), files=(*config.files, *more.files))


def _documents(source: Source | Iterable[Source], files: list[str]) -> list[tuple[Node, str]]:
    sources = [source] if isinstance(source, str | os.PathLike | Mapping) else list(source)
    return [document for each in sources for document in read_documents(each, files)]


def assemble(written: Iterable[tuple[Node, str]], files: Sequence[str] = ()) -> Config:
    """Check documents that were read already; see ``load``.

    Args:
        written: each document's root, and the folder where its relative paths start.
        files: absolute paths of the files that were read.

    Raises:
        ConfigError: the first thing that is wrong.
    """
    documents = [_Document(Entries(node, SECTIONS["document"], ""), folder) for node, folder in written]
    if not any(document.entries.has("cache") or document.entries.has("dataset") for document in documents):
        raise ConfigError("holds neither cache: nor dataset:", files[0] if files else "<string>")
    cache, budget_given = _read_cache(documents)
    tasks: dict[str, TaskSpec] = {}
    for document in documents:
        for node, label in document.entries.items("dataset"):
            entries = Entries(node, SECTIONS["dataset"], label)
            task = _task(entries, document.folder)
            if task.name in tasks:
                first = _where(tasks[task.name].place)
                raise error_at(entries.place("tag"), f"the tag {task.name!r} is already that of the task at {first}")
            _keep_apart(cache, task, entries)
            _trust(cache, task, entries.place("video_dataset_path"))
            tasks[task.name] = task
    cache_given = any(document.entries.has("cache") for document in documents)
    return Config(cache, tuple(tasks.values()), tuple(files), budget_given, cache_given)


@dataclass(frozen=True, slots=True)
class _Document:
    entries: Entries
    folder: str
    """Where relative paths start; absolute."""


def read_documents(source: Source, files: list[str]) -> Iterator[tuple[Node, str]]:
    """The documents of one source with the folder where relative paths start; a file's path is added to ``files``."""
    folder = os.getcwd()
    if isinstance(source, Mapping):
        nodes: tuple[Node, ...] = (from_python(source),)
    elif isinstance(source, str) and "\n" in source:
        nodes = read_text(source)
    elif isinstance(source, str | os.PathLike):
        nodes = read_file(Path(source))
        files.append(os.path.abspath(source))
        folder = os.path.dirname(files[-1])
    else:
        raise BadInput(f"a configuration is a path, YAML text or a mapping, got {type(source).__name__}")
    for node in nodes:
        yield node, folder


def _read_cache(documents: list[_Document]) -> tuple[CacheSpec, bool]:
    """The cache's settings, and whether a budget was given."""
    given = [document for document in documents if document.entries.has("cache")]
    if len(given) > 1:
        first = given[0].entries.place("cache")
        raise error_at(
            given[1].entries.node.keys["cache"], f"cache is given once only; it is already at {_where(first)}"
        )
    folder = (given or documents)[0].folder
    node = given[0].entries.child("cache") if given else Node({}, documents[0].entries.node.place)
    entries = Entries(node, SECTIONS["cache"], "cache")
    tiers, budget_given = read_tiers(entries, folder)
    spec = CacheSpec(
        tiers=tiers,
        catalog=entries.value("catalog"),
        memory_bytes=entries.value("memory") or _default_memory(),
        epochs_per_generation=entries.value("epochs_per_generation"),
        seed=entries.value("seed"),
        draw_ahead=entries.value("draw_ahead"),
        keep=entries.value("keep"),
        eviction=read_eviction(entries, folder),
        workers=entries.value("workers"),
        worker_kind=entries.value("worker_kind"),
        durability=entries.value("durability"),
        op_modules=_import_ops(entries),
        trace=_trace(entries, folder),
    )
    return spec, budget_given


def _trace(entries: Entries, folder: str) -> str | None:
    url = entries.value("trace")
    path = None if url is None else local_path(url, folder)
    if url is not None and (path is None or not path.endswith(TRACE_SUFFIXES)):
        raise error_at(
            entries.place("trace"), f"cache.trace is a local file that ends in .json or .json.gz, got {url!r}"
        )
    return path


def _default_memory() -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_MOST_MEMORY, physical // 2)


def _import_ops(entries: Entries) -> tuple[str, ...]:
    """Import the modules of the user's own operations, before a task can name one."""
    modules: tuple[str, ...] = entries.value("op_modules")
    for index, module in enumerate(modules):
        node, _ = entries.items("op_modules")[index]
        try:
            ops.load_modules([module])
        except BadInput as error:
            raise node.error(f"cache.op_modules: {told(error)}") from error
        except Exception as error:  # the code of a module may raise anything
            raise node.error(f"cache.op_modules: {module} failed when it was imported: {told(error)}") from error
    return modules


def _task(entries: Entries, folder: str) -> TaskSpec:
    if entries.value("input_source") != "file":
        raise error_at(
            entries.place("input_source"),
            f"{entries.name_of('input_source')}: streaming is not supported yet; this release reads files (file)",
        )
    sampling = Entries(entries.child("sampling"), SECTIONS["sampling"], entries.name_of("sampling"))
    return TaskSpec(
        name=entries.value("tag"),
        dataset=_dataset(entries, folder),
        sampling=SamplingSpec(**{key.name: sampling.value(key.name) for key in SECTIONS["sampling"].keys}),
        steps=read_steps(entries),
        epochs=entries.value("epochs"),
        seed=entries.value("seed"),
        drop_last=entries.value("drop_last"),
        layout=entries.value("layout"),
        place=entries.node.place,
    )


def _dataset(entries: Entries, folder: str) -> DatasetSpec:
    uri = entries.value("video_dataset_path")
    labels = entries.value("labels")
    if labels is not None and labels != "folders":
        if not labels.lower().endswith((".csv", ".parquet")):
            raise error_at(
                entries.place("labels"),
                f"{entries.name_of('labels')} must be a .csv or .parquet file, or folders, "
                f"got {entries.child('labels').shown()}",
            )
        labels = local_path(labels, folder) or labels
    return DatasetSpec(
        uri=local_path(uri, folder) or uri,
        labels=labels,
        **{
            name: entries.value(name)
            for name in (
                "input_source",
                "label_video_column",
                "label_column",
                "where",
                "on_bad_video",
                "on_short_video",
                "max_pixels",
            )
        },
    )


def _keep_apart(cache: CacheSpec, task: TaskSpec, entries: Entries) -> None:
    """Refuse a store that holds the videos: what lies in a store may be evicted, sources never (law 6)."""
    videos = _real(task.dataset.uri)
    for tier in cache.tiers:
        if f"{videos}/".startswith(f"{_real(tier.url).rstrip('/')}/"):
            raise error_at(
                entries.place("video_dataset_path"),
                f"the videos of task {task.name!r} lie inside the cache's store {tier.url}; choose another cache.store",
            )


def _real(place: str) -> str:
    """A path with its links resolved, as far as it exists; a URL as it is."""
    return os.path.realpath(place) if os.path.isabs(place) else place


def _trust(cache: CacheSpec, task: TaskSpec, place: Place) -> None:
    """Refuse to decode strangers' files in this process: who makes a video must not be able to end it."""
    if cache.worker_kind == "threads" and task.dataset.uri.startswith(("http://", "https://")):
        raise error_at(
            place,
            f"the videos of task {task.name!r} come from the web, and worker_kind: threads decodes in this process, "
            "which a hostile file could end; use worker_kind: processes",
        )


def _where(place: Place) -> str:
    return place.file + (f":{place.line}" if place.line else "")


def _canonical(value: object) -> object:
    """Plain JSON values of a spec; fields that do not compare, which are places, are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        skipped = _NOT_DEFINING.get(type(value), ())
        return {
            f.name: _canonical(getattr(value, f.name)) for f in fields(value) if f.compare and f.name not in skipped
        }
    if isinstance(value, tuple):
        return [_canonical(item) for item in value]
    return value
