"""Reads a configuration: YAML files, text or a mapping become the frozen specs that everything below works from.

SAND §5.1 and Fig. 9: the paper's keys load as they are, with this cache's own beside them. The trade-off is strictness:
whatever is not understood is refused with its place, because a setting that is silently ignored costs a training run.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, cast

from viewcache.api.config.apart import check_link_roots, distrusted, keep_apart, trust
from viewcache.api.config.audio import read_audio
from viewcache.api.config.entries import Entries
from viewcache.api.config.eviction import read_eviction
from viewcache.api.config.intermediate import with_intermediate
from viewcache.api.config.keys import SECTIONS, hint
from viewcache.api.config.labels import OF_LABELS, read_labels
from viewcache.api.config.media import check_keys, check_steps, media_of, read_layout, words_of
from viewcache.api.config.mixing import check_mixing
from viewcache.api.config.op_workers import read_op_workers
from viewcache.api.config.problems import Part, Problems, Refused
from viewcache.api.config.sampling import check_samples, check_weighted, read_sampling
from viewcache.api.config.split import read_split
from viewcache.api.config.steps import read_steps, told
from viewcache.api.config.tiers import default_budget, read_tiers
from viewcache.api.config.values import local_path
from viewcache.api.config.yaml_subset import Node, error_at, from_python, read_file, read_text
from viewcache.errors import BadInput, ConfigCode, ConfigError, NotFound, ViewNotFound
from viewcache.materializer import ops
from viewcache.materializer.choices import InputSource, KeepRule, Media
from viewcache.materializer.places import joined
from viewcache.materializer.planning.definition import canonical, graph_of
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.spec import CacheSpec, DatasetSpec, Place, TaskSpec, TierSpec
from viewcache.materializer.telemetry.power import CORE_W

__all__ = ["TRACE_SUFFIXES", "Config", "ConfigSource", "assemble", "load", "read_documents"]

TRACE_SUFFIXES = (".json", ".json.gz")
"""What a trace's file may be called: what is there already is replaced, and must not be a video by mistake."""

_MOST_MEMORY = 8 << 30
"""Bytes of ``memory`` when none is given, on a machine that has twice as much."""

ConfigSource = str | os.PathLike[str] | Mapping[str, object]


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
    core_w: float = CORE_W
    """Watts that a core takes while it works; it changes nothing but what is told."""

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
        return graph_of(task)

    def canonical(self, task: TaskSpec) -> str:
        """A task's definition as canonical JSON: as long as it stays, every path of the task keeps its meaning."""
        return canonical(self.cache, task)

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


def load(source: ConfigSource | Iterable[ConfigSource]) -> Config:
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
    return assemble(_documents(source, files), files).value


def load_more(source: ConfigSource | Iterable[ConfigSource], config: Config) -> Config:
    """Add the tasks of further files to a configuration; see ``load``.

    Args:
        source: what to add. Its ``cache``, if it has one, must name the same store.
        config: what there is.

    Raises:
        NotFound: a file does not exist.
        ConfigError: anything in it is wrong, it belongs to another cache, or a tag is taken.
    """
    files: list[str] = []
    more = assemble(_documents(source, files), files).value
    if more.cache_given and more.cache.local.url != config.cache.local.url:
        raise ConfigError(
            ConfigCode.OTHER_CACHE,
            f"its store is {more.cache.local.url}, that of the open cache is {config.cache.local.url}; leave out "
            "cache:, or open it by itself",
            (*files, "<string>")[0],
        )
    for task in more.tasks:
        if why := distrusted(config.cache.worker_kind, task.dataset.uri, task.name):
            raise error_at(task.place, ConfigCode.UNTRUSTED_VIDEOS, why)
        if any(task.name == each.name for each in config.tasks):
            raise ConfigError(
                ConfigCode.GIVEN_TWICE,
                f"the tag {task.name!r} is already that of a task of the open cache; give this one another",
                task.place.file,
            )
    return replace(config, tasks=(*config.tasks, *more.tasks), files=(*config.files, *more.files))


def _documents(source: ConfigSource | Iterable[ConfigSource], files: list[str]) -> list[tuple[Node, str]]:
    return [document for each in sources_of(source) for document in read_documents(each, files)]


def sources_of(source: ConfigSource | Iterable[ConfigSource]) -> list[ConfigSource]:
    """The sources that are given: one, or several.

    Raises:
        BadInput: one is none of path, YAML text and mapping.
    """
    is_one = isinstance(source, str | bytes | os.PathLike | Mapping) or not isinstance(source, Iterable)
    found: list[Any] = [source] if is_one else list(cast(Any, source))
    for each in found:
        if not isinstance(each, str | os.PathLike | Mapping) or each == "":
            given = "…" if isinstance(each, bytes) else short_repr(each)  # bytes may hold credentials
            raise BadInput(f"source={given}, of type {type(each).__name__}: name a path, YAML text or a mapping")
    return found


def assemble(
    written: Iterable[tuple[Node, str]], files: Sequence[str] = (), problems: Problems | None = None
) -> Part[Config]:
    """Check documents that were read already; see ``load``.

    Args:
        written: each document's root, and the folder where its relative paths start.
        files: paths of the files that were read.
        problems: takes what is wrong; None = the first thing is raised.

    Returns:
        The configuration; refused if anything is wrong.

    Raises:
        ConfigError: the first thing that is wrong, unless ``problems`` takes it.
    """
    problems = problems or Problems()
    return problems.part(partial(_assemble, written, files, problems))


def _assemble(written: Iterable[tuple[Node, str]], files: Sequence[str], problems: Problems) -> Config:
    documents: list[_Document] = []
    for node, folder in written:
        entries = problems.part(partial(Entries, node, SECTIONS["document"], "", problems))
        documents += [_Document(entries.value, folder)] if entries else []
    given = any(document.entries.has("cache") or document.entries.has("dataset") for document in documents)
    if not given and problems.clean:
        message = "holds neither cache: nor dataset:"
        raise ConfigError(ConfigCode.EMPTY_CONFIGURATION, message, files[0] if files else "<string>")
    if not documents:
        raise Refused
    cache = problems.part(partial(_cache_entries, documents, problems))
    tiers = problems.part(lambda: read_tiers(*cache.value))
    spec = problems.part(partial(_cache_spec, cache, tiers))
    core_w = problems.part(partial(_core_w, cache))
    tags: dict[str, Place] = {}
    tasks: list[Part[TaskSpec]] = []
    for document in documents if problems.tasks else ():
        listed = problems.part(partial(document.entries.items, "dataset"))
        for node, label in listed.value_or([]):
            tasks.append(problems.part(partial(_task, node, label, document.folder, cache, tiers, tags, problems)))
    if not problems.clean:
        raise Refused
    cache_given = any(document.entries.has("cache") for document in documents)
    found = tuple(task.value for task in tasks)
    return Config(spec.value, found, tuple(files), tiers.value[1], cache_given, core_w.value)


def _core_w(cache: "Part[_CacheEntries]") -> float:
    entries, _ = cache.value
    if not entries.has("power"):
        return CORE_W
    return float(Entries(entries.child("power"), SECTIONS["power"], "cache.power", entries.problems).value("core_w"))


_CacheEntries = tuple[Entries, str]
"""The entries of ``cache`` and the folder where its relative paths start."""
_Tiers = tuple[tuple[TierSpec, ...], bool]
"""The tiers, and whether a budget was given."""


@dataclass(frozen=True, slots=True)
class _Document:
    entries: Entries
    folder: str
    """Where relative paths start; absolute."""


def read_documents(source: ConfigSource, files: list[str]) -> Iterator[tuple[Node, str]]:
    """The documents of one source with the folder where relative paths start; a file's path is added to ``files``."""
    if isinstance(source, Mapping):
        nodes: tuple[Node, ...] = (from_python(source),)
        folder = working_folder()
    elif isinstance(source, str) and "\n" in source:
        nodes = read_text(source)
        folder = working_folder()
    else:
        nodes = read_file(Path(source))
        files.append(os.path.abspath(source))
        folder = os.path.dirname(files[-1])
    for node in nodes:
        yield node, folder


def working_folder() -> str:
    """Where relative paths of text and mappings start.

    Raises:
        NotFound: the folder that this process stands in was removed.
    """
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise NotFound("the working folder of this process is gone; go to another one, or name a YAML file") from error


def _cache_entries(documents: list[_Document], problems: Problems) -> _CacheEntries:
    given = [document for document in documents if document.entries.has("cache")]
    for again in given[1:]:
        message = f"cache is given once only; it is already at {_where(given[0].entries.place('cache'))}"
        problems.report(error_at(again.entries.node.keys["cache"], ConfigCode.GIVEN_TWICE, message))
    folder = (given or documents)[0].folder
    node = given[0].entries.child("cache") if given else Node({}, documents[0].entries.node.place)
    return Entries(node, SECTIONS["cache"], "cache", problems), folder


def _cache_spec(cache: Part[_CacheEntries], tiers: Part[_Tiers]) -> CacheSpec:
    entries, folder = cache.value
    problems = entries.problems
    plain = problems.part(
        partial(
            entries.values,
            "catalog",
            "epochs_per_generation",
            "seed",
            "draw_ahead",
            "keep",
            "mix",
            "workers",
            "worker_kind",
            "durability",
            "service",
        )
    )
    problems.part(partial(_check_mix, entries))
    memory = problems.part(partial(entries.value, "memory"))
    eviction = problems.part(partial(read_eviction, entries, folder))
    op_modules = problems.part(partial(_import_ops, entries))
    op_workers = problems.part(partial(read_op_workers, entries, folder, start=problems.imports))
    trace = problems.part(partial(_trace, entries, folder))
    idle = problems.part(partial(entries.value, "service_idle"))
    return CacheSpec(
        tiers=tiers.value[0],
        memory_bytes=memory.value or _default_memory(),
        eviction=eviction.value,
        op_modules=op_modules.value,
        op_workers=op_workers.value,
        trace=trace.value,
        service_idle_s=float(idle.value),
        **plain.value,
    )


def _check_mix(entries: Entries) -> None:
    mix, keep = entries.value("mix"), entries.value("keep")
    if mix is not None and keep != KeepRule.CHEAPEST:
        message = (
            f"cache.mix says which share is kept, and cache.keep: {keep} chooses that by itself; leave one of them out"
        )
        raise error_at(entries.place("mix"), ConfigCode.MISPLACED_KEY, message)


def _trace(entries: Entries, folder: str) -> str | None:
    url = entries.value("trace")
    path = None if url is None else local_path(url, folder)
    if url is not None and (path is None or not path.endswith(TRACE_SUFFIXES)):
        message = f"cache.trace is a local file that ends in .json or .json.gz, got {url!r}"
        raise error_at(entries.place("trace"), ConfigCode.WRONG_FORMAT, message)
    return path


def _default_memory() -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_MOST_MEMORY, physical // 2)


def _import_ops(entries: Entries) -> tuple[str, ...]:
    """Import the modules of the user's own operations, before a task can name one; `lint` imports none."""
    missing = entries.problems.ops_missing
    if entries.has("op_modules"):
        missing.add("op_modules")  # until all of them are imported
    modules: tuple[str, ...] = entries.value("op_modules")
    if not entries.problems.imports:
        return modules
    nodes = [node for node, _ in entries.items("op_modules")]
    imported = [entries.problems.part(partial(_import_op, node, str(node.value))) for node in nodes]
    if all(imported):
        missing.discard("op_modules")
    return modules


def _import_op(node: Node, module: str) -> None:
    try:
        ops.load_modules([module])
    except BadInput as error:
        message = f"cache.op_modules: {told(error).removeprefix('op_modules: ')}"
        raise node.error(ConfigCode.OP_MODULE, message) from error
    except Exception as error:  # the code of a module may raise anything
        message = f"cache.op_modules: {module} failed when it was imported: {told(error)}"
        raise node.error(ConfigCode.OP_MODULE, message) from error


def _task(
    node: Node,
    label: str,
    folder: str,
    cache: Part[_CacheEntries],
    tiers: Part[_Tiers],
    tags: dict[str, Place],
    problems: Problems,
) -> TaskSpec:
    media = media_of(node)
    entries = Entries(node, SECTIONS["dataset"], label, problems, words_of(media))
    own = problems.part(partial(entries.values, "tag", "epochs", "seed", "drop_last", "shuffle"))
    layout = problems.part(partial(read_layout, entries, media))
    problems.part(partial(check_keys, entries, media))
    problems.part(partial(_check_input_source, entries))
    sampling = problems.part(partial(read_sampling, entries, media))
    dataset = problems.part(partial(_dataset, entries, folder, media))
    steps = problems.part(partial(read_steps, entries))
    problems.part(lambda: check_steps(steps.value, media))
    problems.part(lambda: check_samples(entries, sampling.value, steps.value))
    problems.part(lambda: check_mixing(dataset.value, sampling.value, steps.value))
    problems.part(lambda: check_weighted(entries, sampling.value, dataset.value))
    lossy = problems.part(lambda: with_intermediate(entries, steps.value, sampling.value))
    audio = problems.part(lambda: read_audio(entries, sampling.value, dataset.value.on_short_video))
    problems.part(partial(_check_tag, entries, tags))
    problems.part(lambda: keep_apart(tiers.value[0], dataset.value.uri, entries))
    problems.part(lambda: trust(cache.value[0].value("worker_kind"), dataset.value.uri, entries))
    read = own.value
    return TaskSpec(
        name=read.pop("tag"),
        dataset=dataset.value,
        sampling=sampling.value,
        steps=lossy.value,
        layout=layout.value,
        audio=audio.value,
        place=node.place,
        **read,
    )


def _check_input_source(entries: Entries) -> None:
    """Refuse keys of a dataset that grows where it does not."""
    given = [key for key in ("join", "settle") if entries.has(key)]
    if given and entries.value("input_source") == InputSource.FILE:
        raise error_at(
            entries.place(given[0]),
            ConfigCode.MISPLACED_KEY,
            f"{entries.name_of(given[0])} is of a dataset that grows: set input_source: streaming, or leave it out",
        )


def _check_tag(entries: Entries, tags: dict[str, Place]) -> None:
    tag = entries.value("tag")
    if tag in tags:
        message = f"the tag {tag!r} is already that of the task at {_where(tags[tag])}"
        raise error_at(entries.place("tag"), ConfigCode.GIVEN_TWICE, message)
    tags[tag] = entries.node.place


def _dataset(entries: Entries, folder: str, media: Media) -> DatasetSpec:
    elsewhere = ("uri", "media", "split", "part", *OF_LABELS)
    names = [field.name for field in fields(DatasetSpec) if field.name not in elsewhere]
    plain = entries.problems.part(partial(entries.values, "video_dataset_path", *names))
    labels = entries.problems.part(partial(read_labels, entries, folder))
    split = entries.problems.part(partial(read_split, entries))
    read = plain.value
    places = read.pop("video_dataset_path")
    roots = tuple(local_path(each, folder) or each for each in read.pop("link_roots"))
    check_link_roots(roots, entries, follow=read["follow_links"])
    uri = joined(local_path(each, folder) or each for each in places)
    parted, part = split.value
    return DatasetSpec(uri=uri, media=media, link_roots=roots, split=parted, part=part, **labels.value, **read)


def _where(place: Place) -> str:
    return place.file + (f":{place.line}" if place.line else "")
