"""Give up what a policy names, from the command line: the same choice that a running cache makes, with its reasons.

It owns the catalog while it deletes, so nobody reads meanwhile. Bytes go before rows, as in `verify`: killed in
between, a row without bytes is noticed by the read that needs it, but bytes without a row would never be counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from viewcache.api.config.find import Located
from viewcache.api.upkeep.owned import lasting_tiers
from viewcache.catalog import Catalog
from viewcache.catalog.eviction import DEFAULT
from viewcache.catalog.lock import OwnerLock
from viewcache.catalog.opening import is_postgresql
from viewcache.catalog.policies import Policy, all_policies
from viewcache.errors import NotFound
from viewcache.materializer.storage.eviction import Eviction
from viewcache.store.tier import LOCAL

__all__ = ["Evicted", "Leaves", "evict", "policies_of"]


@dataclass(frozen=True, slots=True)
class Leaves:
    """One copy that leaves."""

    key: str
    kind: str
    video: str | None
    bytes: int
    reason: str
    policy: str
    """Other than the one that was asked where that one left the copy out."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """What was given up, or would be."""

    policy: str
    tier: str
    need_bytes: int
    leaves: tuple[Leaves, ...]
    """First victim first."""
    dry_run: bool

    @property
    def bytes(self) -> int:
        """That are free now."""
        return sum(each.bytes for each in self.leaves)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self) | {"bytes": self.bytes}


def policies_of(located: Located | None, folder: str | None = None) -> tuple[list[Policy], str]:
    """The policies that a cache can use, and the name of the active one.

    Args:
        located: the cache; None if there is none yet.
        folder: of policies of the user's own, instead of the configuration's.

    Raises:
        NotFound: there is no such folder.
    """
    config = located.config if located is not None else None
    spec = config.cache.eviction if config is not None else None
    folder = folder or (spec.folder if spec is not None else None)
    if folder is not None and not Path(folder).is_dir():
        raise NotFound(f"there is no folder of policies {folder}")
    return all_policies(folder), spec.policy if spec is not None else DEFAULT


def evict(located: Located, policy: Policy, need_bytes: int, *, tier: str = LOCAL, dry_run: bool = False) -> Evicted:
    """Give up copies of a cache that nobody has open until so many bytes are free.

    Args:
        located: which cache.
        policy: says what leaves first.
        need_bytes: to free; less is freed if all that may leave is less.
        tier: from which tier; a copy in another one stays.
        dry_run: only say what would leave.

    Raises:
        NotFound: there is no catalog, or no such tier.
        CatalogBusy: another process owns the cache.
        StoreUnreachable: a remote tier does not answer.
        QueryRefused: a policy of the user's own failed.
    """
    with (
        _owned(located),
        Catalog.open(located.catalog, create=False, writable=not dry_run) as catalog,
        lasting_tiers(catalog, located) as tiers,
    ):
        if tier not in tiers:
            raise NotFound(f"this cache has no {tier} tier whose bytes outlive a process; it has {', '.join(tiers)}")
        victims = Eviction(catalog, policy, falls_back=False).choose(tier, need_bytes, [])
        ids = pa.array([victim.object_id for victim in victims], pa.int64())
        rows = _by_id(catalog.candidates(tier), ids)
        leaves = tuple(
            Leaves(row["key"], row["kind"], row["video"], row["bytes"], victim.reason, victim.policy or policy.name)
            for victim in victims
            for row in (rows[victim.object_id],)
        )
        if not dry_run and victims:
            copies = catalog.load_copies()
            places = _by_id(copies.filter(pc.equal(copies["tier"], tier)), ids)
            why: dict[str | None, dict[int, str | None]] = {}
            tiers[tier].each(tiers[tier].delete, [places[each.object_id]["physical"] for each in victims])
            for victim in victims:
                why.setdefault(victim.policy, {})[victim.object_id] = victim.reason
            for name, reasons in why.items():
                catalog.mark_evicted(reasons, name, tier=tier)
            catalog.flush()
    return Evicted(policy.name, tier, need_bytes, leaves, dry_run)


@contextmanager
def _owned(located: Located) -> Iterator[None]:
    """Own the store, where the catalog's own lock does not say so."""
    if not is_postgresql(located.catalog):
        yield
        return
    with OwnerLock(Path(located.root) / "owner.lock", exclusive=True):
        yield


def _by_id(table: pa.Table, ids: pa.Array) -> dict[int, dict[str, Any]]:
    chosen = table.filter(pc.is_in(table["object_id"], ids))
    return {row["object_id"]: row for row in chosen.to_pylist()}
