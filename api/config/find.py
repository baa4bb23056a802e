"""Which cache a command is about: a configuration, a cache's folder, or the one that is near (docs/paths.md).

Nothing named: ``VIEWCACHE`` in the environment, else the nearest ``viewcache.yaml`` upward, else the one configuration
in the working directory.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from viewcache.errors import BadInput, NotFound

if TYPE_CHECKING:
    from viewcache.api.config.load import Config

__all__ = ["ENVIRONMENT", "NAME", "Located", "configuration", "locate", "named_files", "nearest"]

ENVIRONMENT = "VIEWCACHE"
"""Variable that names a configuration, or the folder of a cache."""

NAME = "viewcache.yaml"
"""File that is looked for upward from the working directory."""

_MARKS = ("catalog.duckdb", "viewcache-store.json")
"""Files that only a cache's folder has."""


@dataclass(frozen=True, slots=True)
class Located:
    """A cache on disk."""

    catalog: str
    """Folder of the DuckDB catalog, or a ``postgresql://`` URL."""
    root: str
    """Folder of the store."""
    config: "Config | None" = None
    """None if the folder alone was named."""


def configuration(named: Sequence[str] = ()) -> "Config":
    """Read the configuration that was named, or the near one.

    Raises:
        NotFound: a file does not exist, or nothing is near.
        BadInput: several are near, or a folder was named.
        ConfigError: it is wrong.
    """
    from viewcache.api.config.load import load

    return load(named_files(named))


def named_files(named: Sequence[str] = ()) -> list[Path]:
    """The files of the configuration that was named, or of the near one.

    Raises:
        NotFound: nothing is near.
        BadInput: several are near, or a folder was named.
    """
    paths = list(named) or [str(nearest())]
    for path in paths:
        if os.path.isdir(path):
            raise BadInput(f"{path} is a folder; this command needs a configuration, a YAML file")
    return list(map(Path, paths))


def locate(named: str | None = None, *, tasks: bool = True) -> Located:
    """Find the cache of a configuration or folder; nothing is made.

    Args:
        named: the configuration, or the cache's folder; None = the one that is near.
        tasks: whether the configuration's tasks are read, and the modules of its operations imported. Without, what is
            wrong in them is nobody's business: to look at a cache, or to end its service, takes its own section alone.

    Raises:
        NotFound: there is nothing of that name, a folder that holds no cache, or nothing near.
        BadInput: several are near.
        ConfigError: the configuration is wrong.
    """
    path = Path(named) if named is not None else nearest()
    if path.is_dir():
        if not any((path / mark).exists() for mark in _MARKS):
            raise NotFound(
                f"{path} is no cache: it has neither {' nor '.join(_MARKS)}; name its folder or a configuration"
            )
        return Located(str(path.absolute()), str(path.absolute()))
    if not path.exists():
        raise NotFound(f"{path} does not exist; name a cache's folder or a configuration")
    config = configuration([str(path)]) if tasks else _cache_alone(path)
    root = config.cache.local.url
    return Located(root if config.cache.catalog == "duckdb" else config.cache.catalog, root, config)


def _cache_alone(path: Path) -> "Config":
    from viewcache.api.config.load import assemble, read_documents
    from viewcache.api.config.problems import CacheAlone

    files: list[str] = []
    return assemble(list(read_documents(path, files)), files, CacheAlone()).value


def nearest() -> Path:
    """The configuration or cache that is meant when none is named.

    Raises:
        NotFound: there is none.
        BadInput: the working directory has several.
    """
    if named := os.environ.get(ENVIRONMENT):
        return Path(named)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / NAME).is_file():
            return folder / NAME
    found = sorted(path for path in (*here.glob("*.yaml"), *here.glob("*.yml")) if _is_configuration(path))
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"several configurations are here ({', '.join(each.name for each in found)}): name one")
    raise NotFound(
        f"no configuration is named, {ENVIRONMENT} is not set, and neither {NAME} nor another one is near {here}"
    )


def _is_configuration(path: Path) -> bool:
    """Whether a file looks like one of ours: a cheap look, its errors are told when it is read."""
    with path.open("rb") as file:
        head = b"\n" + file.read(1 << 16)
    return b"\ncache:" in head or b"\ndataset:" in head
