"""The tiers of ``cache.store``: one folder, or a list of places of different speed with a budget and a codec each.

Exactly one is a local folder: objects are made there. Memory lies above it, an object store (any fsspec URL) below.
"""

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

from viewcache.api.config.entries import Entries
from viewcache.api.config.keys import SECTIONS
from viewcache.api.config.values import local_path, read_url
from viewcache.api.config.yaml_subset import Node, error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.spec import TierSpec
from viewcache.store.opening import BUCKETS

__all__ = ["BUDGET_FRACTION", "default_budget", "read_tiers"]

BUDGET_FRACTION = 0.5
"""Of the disk space that is free or already the store's: the budget when none is given."""

MEMORY_URL = "memory://"
_ORDER = ("memory", "local", "remote")
"""Kinds of tiers, the fastest first."""


def default_budget(folder: str, used: int = 0) -> int:
    """The budget, in bytes, of a store that was given none.

    Args:
        folder: the store's folder, which need not exist yet.
        used: bytes that it takes already.

    Raises:
        OSError: the disk cannot be asked.
    """
    path = Path(folder)
    while not path.exists() and path != path.parent:
        path = path.parent
    return int((shutil.disk_usage(path).free + used) * BUDGET_FRACTION)


def read_tiers(cache: Entries, folder: str) -> tuple[tuple[TierSpec, ...], bool]:
    """The tiers, the fastest first, and whether the local one was given a budget.

    Raises:
        ConfigError: not one local folder, two tiers of a kind, a tier without the budget that it needs, or a URL that
            nothing can open.
    """
    node = cache.child("store") if cache.has("store") else Node(cache.value("store"), cache.node.place)
    budget = cache.value("budget")
    if not isinstance(node.value, tuple):
        url = read_url(node, SECTIONS["cache"].key("store"), "cache.store")
        if _kind(url, folder) != "local":
            cure = f"write a list, store: [{{url: ./cache, budget: 200GB}}, {{url: {url}, budget: 2TB}}]"
            message = f"cache.store needs a local folder, in which objects are made; {cure}"
            raise error_at(node.place, ConfigCode.STORE, message)
        return (_local(url, folder, budget, "auto", node),), budget is not None
    listed = (partial(_tier, each, f"cache.store[{k}]", folder, cache) for k, each in enumerate(node.value))
    parts = [cache.problems.part(each) for each in listed]
    found: dict[str, TierSpec] = {}
    given = budget is not None
    for tier, spec in (part.value for part in parts):
        if spec.name in found:
            message = f"cache.store has two {spec.name} tiers; it takes one of a kind"
            raise error_at(tier.place("url"), ConfigCode.GIVEN_TWICE, message)
        found[spec.name] = spec
        given |= spec.name == "local" and tier.has("budget")
    if "local" not in found:
        message = "cache.store lists no local folder; objects are made in one, so it needs one: {url: ./cache}"
        raise node.error(ConfigCode.STORE, message)
    return tuple(found[kind] for kind in _ORDER if kind in found), given


def _tier(node: Node, label: str, folder: str, cache: Entries) -> tuple[Entries, TierSpec]:
    tier = Entries(node, SECTIONS["tier"], label, cache.problems)
    return tier, _tier_spec(tier, folder, cache)


def _tier_spec(tier: Entries, folder: str, cache: Entries) -> TierSpec:
    read = tier.values("url", "budget", "codec", "timeout", "residents")
    url, budget, codec, timeout = read["url"], read["budget"], str(read["codec"]), float(read["timeout"])
    kind = _kind(url, folder)
    if kind != "memory" and tier.has("residents"):
        message = f"residents are of the memory tier alone; remove the key from {url}"
        raise error_at(tier.place("residents"), ConfigCode.STORE, message)
    if kind == "local":
        if tier.has("budget") and cache.has("budget"):
            message = "the budget is given here and as cache.budget; remove one"
            raise error_at(tier.place("budget"), ConfigCode.GIVEN_TWICE, message)
        return _local(url, folder, budget or cache.value("budget"), codec, tier.node)
    if kind == "remote":
        _check_protocol(url, tier)
    if budget is None:
        message = f"the {kind} tier {url} needs a budget of its own, such as budget: 16GB"
        raise error_at(tier.place("url"), ConfigCode.MISSING_KEY, message)
    residents = read["residents"]
    if residents is not None and residents > budget:
        message = f"residents of {residents} bytes are more than the tier's budget of {budget}; give them less of it"
        raise error_at(tier.place("residents"), ConfigCode.OUT_OF_RANGE, message)
    return TierSpec(url.rstrip("/") if kind == "remote" else MEMORY_URL, budget, codec, timeout, kind, residents)


def _local(url: str, folder: str, budget: int | None, codec: str, node: Node) -> TierSpec:
    path = local_path(url, folder)
    assert path is not None  # `_kind` said so
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise error_at(node.place, ConfigCode.STORE, f"cache.store is a folder, but {there} is a file")
    try:
        with suppress(FileNotFoundError, PermissionError):  # of these `check_place` and `refused` tell more
            os.stat(path)
        return TierSpec(path, budget or default_budget(path), codec)
    except OSError as error:
        message = f"cache.store: {path} cannot be looked at: {error.strerror}; name a folder that can be"
        raise error_at(node.place, ConfigCode.STORE, message) from error


def _kind(url: str, folder: str) -> str:
    if url == MEMORY_URL:
        return "memory"
    return "remote" if local_path(url, folder) is None else "local"


def _check_protocol(url: str, tier: Entries) -> None:
    protocol = url.partition("://")[0]
    if protocol == "memory":
        message = "cache.store: the memory tier's URL is memory://, without a name"
        raise error_at(tier.place("url"), ConfigCode.STORE, message)
    if "::" in url or protocol not in BUCKETS:
        known = ", ".join(f"{each}://" for each in BUCKETS)
        message = f"cache.store: no tier can lie behind {protocol}://; known are {known}"
        raise error_at(tier.place("url"), ConfigCode.STORE, message)
