"""A tier from its URL."""

from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from viewcache.errors import BadInput
from viewcache.store.local import LocalTier
from viewcache.store.memory import URL, MemoryTier
from viewcache.store.remote import RemoteTier
from viewcache.store.tier import Tier

__all__ = ["BUCKETS", "open_tier"]


def open_tier(
    name: str, url: str, budget_bytes: int, timeout_s: float = 60.0, *, make: bool = True, required: bool = True
) -> Tier:
    """Open the tier that a URL names; what it has at hand is loaded only when it is asked for.

    Args:
        name: of the tier in the catalog: ``memory``, ``local`` or ``remote``.
        url: a folder, with or without ``file://``; ``memory://``; or that of a bucket, ``s3://bucket/prefix``.
        budget_bytes: for objects and unfinished ones together.
        timeout_s: seconds until a remote store that does not answer is given up.
        make: a bucket in which nothing lies, or nothing but a store's objects, is marked as a store at once; without
            it, opening writes nothing there.
        required: False takes a bucket that does not answer, as ``away``.

    Raises:
        BadInput: no tier has such a URL, or what lies there is not a store.
        MissingExtra: the package that reaches such a bucket is not installed.
        Full: no room for the tier.
        Broken: it cannot be made or reached.
    """
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in _TIERS:
        known = ", ".join(f"{known}://" for known in _TIERS if known)
        # Not the whole of it, which may hold a password.
        raise BadInput(f"no tier has a URL like {scheme}://…; name a folder, or a URL that begins with {known}")
    return _TIERS[scheme](name, url, budget_bytes, timeout_s, make, required)


def _folder(name: str, url: str, budget_bytes: int, _timeout_s: float, _make: bool, _required: bool) -> Tier:
    return LocalTier(unquote(urlsplit(url).path) if "://" in url else url, budget_bytes, name)


def _memory(name: str, url: str, budget_bytes: int, _timeout_s: float, _make: bool, _required: bool) -> Tier:
    if url != URL:
        raise BadInput(f"the memory tier has no name, {url!r} was given; its URL is {URL}")
    return MemoryTier(budget_bytes, name)


def _bucket(name: str, url: str, budget_bytes: int, timeout_s: float, make: bool, required: bool) -> Tier:
    stall_s = min(10.0, timeout_s)
    return RemoteTier(url, budget_bytes, name, deadline_s=timeout_s, stall_s=stall_s, make=make, required=required)


BUCKETS = ("s3", "gs", "gcs", "az", "abfs")
"""Schemes of the URLs of remote tiers."""

_TIERS: Mapping[str, Callable[[str, str, int, float, bool, bool], Tier]] = {
    "": _folder,
    "file": _folder,
    "memory": _memory,
    **dict.fromkeys(BUCKETS, _bucket),
}
"""How a tier is opened, by the scheme of its URL."""
