"""``cache.eviction`` of a configuration: which policy says what leaves a full tier, and between which marks.

A name is looked up here, so that a misspelt one has its place in the file; whether a policy of the user's own can be
used is found when the cache opens, because that takes a process.
"""

import os
from pathlib import Path

from viewcache.api.config.keys import SECTIONS, hint
from viewcache.api.config.values import Entries, local_path
from viewcache.api.config.yaml_subset import error_at
from viewcache.catalog.statements import policy_names
from viewcache.materializer.spec import EvictionSpec

__all__ = ["read_eviction"]


def read_eviction(cache: Entries, folder: str) -> EvictionSpec:
    """Read and check the section; its defaults if there is none.

    Args:
        cache: the entries of ``cache``.
        folder: where relative paths start.

    Raises:
        ConfigError: a key is wrong, the folder is not there, no policy has that name, or the marks are the wrong way.
    """
    if not cache.has("eviction"):
        return EvictionSpec()
    entries = Entries(cache.child("eviction"), SECTIONS["eviction"], "cache.eviction")
    spec = EvictionSpec(
        policy=entries.value("policy"),
        folder=_folder(entries, folder),
        high_water=entries.value("high_water"),
        low_water=entries.value("low_water"),
    )
    if spec.low_water > spec.high_water:
        raise error_at(
            entries.place("low_water"),
            f"cache.eviction.low_water is {spec.low_water:g}, above high_water, which is {spec.high_water:g}: eviction "
            "goes from the high mark down to the low one",
        )
    own = sorted(path.stem for path in Path(spec.folder).glob("*.sql")) if spec.folder is not None else []
    known = [*policy_names(), *own]
    if spec.policy not in known:
        raise error_at(
            entries.place("policy"),
            f"cache.eviction.policy: no eviction policy is named {spec.policy}; {hint(spec.policy, known)}",
        )
    return spec


def _folder(entries: Entries, folder: str) -> str | None:
    written = entries.value("folder")
    if written is None:
        return None
    path = local_path(written, folder)
    if path is None or not os.path.isdir(path):
        raise error_at(entries.place("folder"), f"cache.eviction.folder must be a local folder; {written} is none")
    return path
