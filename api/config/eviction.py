"""``cache.eviction`` of a configuration: which policy says what leaves a full tier, and between which marks.

A name is looked up here, so that a misspelt one has its place in the file; whether a policy of the user's own can be
used is found when the cache opens, because that takes a process.
"""

import os
from functools import partial
from pathlib import Path

from viewcache.api.config.entries import Entries
from viewcache.api.config.keys import SECTIONS, hint
from viewcache.api.config.problems import Part
from viewcache.api.config.values import local_path
from viewcache.api.config.yaml_subset import error_at
from viewcache.catalog.statements import policy_names
from viewcache.errors import ConfigCode
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
    given = cache.child("eviction")
    if isinstance(given.value, str):
        message = f"cache.eviction must be a mapping, got {given.shown()}; write {{policy: {given.value}}}"
        raise given.error(ConfigCode.WRONG_TYPE, message)
    entries = Entries(given, SECTIONS["eviction"], "cache.eviction", cache.problems)
    own = cache.problems.part(partial(_folder, entries, folder))
    marks = cache.problems.part(partial(_marks, entries))
    policy = cache.problems.part(partial(_policy, entries, own))
    return EvictionSpec(policy.value, own.value, *marks.value, entries.value("trim"))


def _marks(entries: Entries) -> tuple[float, float]:
    """The high mark and the low one."""
    marks = entries.values("high_water", "low_water")
    high, low = marks["high_water"], marks["low_water"]
    if low > high:
        raise error_at(
            entries.place("low_water"),
            ConfigCode.EVICTION,
            f"cache.eviction.low_water is {low:g}, above high_water, which is {high:g}: eviction "
            "goes from the high mark down to the low one",
        )
    return high, low


def _policy(entries: Entries, folder: Part[str | None]) -> str:
    policy: str = entries.value("policy")
    own = sorted(path.stem for path in Path(folder.value).glob("*.sql")) if folder.value is not None else []
    known = [*policy_names(), *own]
    if policy not in known:
        raise error_at(
            entries.place("policy"),
            ConfigCode.EVICTION,
            f"cache.eviction.policy: no eviction policy is named {policy}; {hint(policy, known)}",
        )
    return policy


def _folder(entries: Entries, folder: str) -> str | None:
    written = entries.value("folder")
    if written is None:
        return None
    path = local_path(written, folder)
    if path is None or not os.path.isdir(path):
        message = f"cache.eviction.folder must be a local folder; {written} is none"
        raise error_at(entries.place("folder"), ConfigCode.EVICTION, message)
    return path
