"""A configuration on its way to another process: the text of its sources, read there with the same care as here.

Specs do not travel: a process takes nothing from another one that it has not checked itself.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from viewcache.api.config.load import Config, ConfigSource, assemble, sources_of, working_folder
from viewcache.api.config.op_workers import op_workers_of
from viewcache.api.config.settings import MEANING, Differing, differing, settings_of
from viewcache.api.config.yaml_subset import Node, from_python, read_source, read_text
from viewcache.errors import ConfigCode, ConfigError
from viewcache.materializer import ops

__all__ = ["TextSource", "check_code", "differences", "load_texts", "renewed", "texts_of", "unlike", "with_code"]

_MAPPING = "<mapping>"


@dataclass(frozen=True, slots=True)
class TextSource:
    """One source of a configuration."""

    name: str
    """Absolute path of a file, ``<string>``, or ``<mapping>``."""
    folder: str
    """Where relative paths start."""
    text: str
    """YAML; of a mapping JSON."""
    ops: tuple[tuple[str, str], ...] = ()
    """Operations of users' own that the configuration's tasks use, and the fingerprints of their code in this process.
    The first source has those of all."""


def texts_of(source: ConfigSource | Iterable[ConfigSource]) -> tuple[TextSource, ...]:
    """The sources of a configuration as text; what is wrong in them is found by who reads them.

    Raises:
        NotFound: a file does not exist.
        ConfigError: a file cannot be read.
        BadInput: a source is none of path, YAML text and mapping.
    """
    return tuple(map(_text_of, sources_of(source)))


def _text_of(source: ConfigSource) -> TextSource:
    if isinstance(source, Mapping):
        return TextSource(_MAPPING, working_folder(), json.dumps(source, default=os.fspath))
    if isinstance(source, str) and "\n" in source:
        return TextSource("<string>", working_folder(), source)
    path = os.path.abspath(source)
    return TextSource(path, os.path.dirname(path), read_source(Path(source)))


def with_code(sources: Sequence[TextSource], config: Config) -> tuple[TextSource, ...]:
    """The same with the operations of users' own that the configuration uses, as this process has loaded them."""
    loaded = ops.fingerprints(name for task in config.tasks for name in task.op_names)
    return tuple(replace(each, ops=() if k else tuple(loaded.items())) for k, each in enumerate(sources))


def check_code(sources: Sequence[TextSource]) -> None:
    """Refuse a configuration whose process has other code of an operation than this one: both would use one key.

    Raises:
        ConfigError: so it is; with the cure.
    """
    for source in sources:
        for name, theirs in source.ops:
            ours = ops.fingerprints([name]).get(name)
            if ours != theirs:
                raise ConfigError(
                    ConfigCode.OTHER_CACHE,
                    f"the service has loaded other code of op {name!r} ({ours}) than this process ({theirs}): end the "
                    "service by `viewcache stop`, so that the next one loads what the file has now; if this process is "
                    "older than the file, start it again",
                    source.name,
                )


def load_texts(sources: Sequence[TextSource], running: Config | None = None) -> Config:
    """Read and check a configuration that came as text; see `load`.

    Args:
        sources: its text.
        running: of the cache that is open already: nothing is imported that its own configuration does not name.

    Raises:
        ConfigError: anything in it is wrong; with file, line and column.
    """
    written = [(node, each.folder) for each in sources for node in _nodes(each)]
    if running is not None:
        written = [(_without_code(node, folder, running), folder) for node, folder in written]
    return assemble(written, [each.name for each in sources if os.path.isabs(each.name)]).value


def _without_code(document: Node, folder: str, running: Config) -> Node:
    """The same without what names code, which must be that of the cache that is open: it is loaded there."""
    given = _cache_keys(document)
    modules, workers = given.pop("op_modules", None), given.pop("op_workers", None)
    if modules is not None and modules.plain() != list(running.cache.op_modules):
        raise _other_code("op_modules", modules, running.cache.op_modules)
    if workers is not None and op_workers_of(workers, folder) != running.cache.op_workers:
        raise _other_code("op_workers", workers, tuple(each.name for each in running.cache.op_workers))
    if modules is None and workers is None:
        return document
    assert isinstance(document.value, dict)
    left = replace(document.value["cache"], value=given)
    return replace(document, value={**document.value, "cache": left})


def _other_code(key: str, given: Node, running: tuple[str, ...]) -> ConfigError:
    return given.error(
        ConfigCode.OTHER_CACHE,
        f"cache.{key} is {given.shown()}, but the cache is open with {_shown(running)}: use exactly that, or end the "
        "service by `viewcache stop` first",
    )


def _cache_keys(document: Node) -> dict[str, Node]:
    """What a document says below ``cache``, by key."""
    cache = document.value.get("cache") if isinstance(document.value, dict) else None
    return dict(cache.value) if cache is not None and isinstance(cache.value, dict) else {}


def _nodes(source: TextSource) -> tuple[Node, ...]:
    if source.name != _MAPPING:
        return read_text(source.text, source.name)
    try:
        return (from_python(json.loads(source.text)),)
    except (ValueError, RecursionError) as error:
        raise ConfigError(ConfigCode.NOT_YAML, f"is no mapping in JSON: {error}", _MAPPING) from error


def differences(sources: Sequence[TextSource], more: Config, running: Config) -> list[str]:
    """What a configuration says of a cache that is open with other settings, which stay as they are: warnings.

    Raises:
        ConfigError: it means another cache, or its paths would mean something else.
    """
    given = _given(sources)
    mine, theirs = running.cache, more.cache
    for key in MEANING:
        if key in given and getattr(mine, key) != getattr(theirs, key):
            raise given[key].error(
                ConfigCode.OTHER_CACHE,
                f"cache.{key} is {_shown(getattr(theirs, key))}, but the cache is open with "
                f"{_shown(getattr(mine, key))}: use that, or end the service by "
                f"`viewcache stop {mine.local.url}` first",
            )
    return [each.told(mine.local.url) for each in differing(given, more, settings_of(running))]


def renewed(sources: Sequence[TextSource], config: Config) -> tuple[tuple[TextSource, ...], Config]:
    """The same sources with what their files say by now, for a service that begins in the midst of a training.

    Args:
        sources: as they were read when the cache was opened.
        config: what they say.

    Raises:
        ViewcacheError: none can begin so: a file is wrong or gone, ends too early, names other code, or means another
            cache.
    """
    before = tuple(sources)
    now = tuple(
        replace(each, text=read_source(Path(each.name))) if os.path.isabs(each.name) else each for each in sources
    )
    if now == before:
        return before, config
    more = load_texts(now, config)
    _check_complete(now, more, before, config)
    _check_meaning(now, more, config)
    return now, more


def _check_complete(now: tuple[TextSource, ...], more: Config, before: tuple[TextSource, ...], config: Config) -> None:
    """Refuse a file that ends too early: without its budget the cache would take half of the disk."""
    was, given = _given(before), _given(now)
    missing = [f"cache.{key}" for key in ("op_modules", "op_workers") if key in was and key not in given]
    if config.budget_given and not more.budget_given:
        missing.append("cache.budget")
    if config.tasks and not more.tasks:
        missing.append("dataset")
    if missing:
        text = f"{missing[0]} is not there any more, which was given when the cache was opened"
        raise ConfigError(ConfigCode.MISSING_KEY, text, now[0].name)


def _check_meaning(now: tuple[TextSource, ...], more: Config, config: Config) -> None:
    """Refuse what would change what somebody reads in the midst of a training."""
    given, mine, theirs = _given(now), config.cache, more.cache
    pairs = {"store": (mine.local.url, theirs.local.url)}
    pairs |= {key: (getattr(mine, key), getattr(theirs, key)) for key in (*MEANING, "service")}
    for key, (old, new) in pairs.items():
        if old != new:
            text = f"cache.{key} is {_shown(new)}, but the cache was opened with {_shown(old)}"
            if key in given:
                raise given[key].error(ConfigCode.OTHER_CACHE, text)
            raise ConfigError(ConfigCode.OTHER_CACHE, text, now[0].name)


def unlike(sources: Sequence[TextSource], config: Config, running: Mapping[str, str]) -> list[Differing]:
    """What a configuration says otherwise than a service that runs with other settings.

    Args:
        sources: its text.
        config: what they say.
        running: the settings of the cache that the service has open, see `settings_of`.
    """
    return differing(_given(sources), config, running)


def _given(sources: Sequence[TextSource]) -> dict[str, Node]:
    given: dict[str, Node] = {}
    for document in (document for each in sources for document in _nodes(each)):
        given |= _cache_keys(document)
    return given


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
