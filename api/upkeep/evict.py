"""Give up what a policy names, from the command line: the same choice that a running cache makes, with its reasons.

It owns the catalog while it deletes, so nobody reads meanwhile.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from viewcache.api.config.find import Located
from viewcache.api.text import size
from viewcache.api.upkeep.owned import owned_cache
from viewcache.catalog import Catalog
from viewcache.catalog.eviction import DEFAULT
from viewcache.catalog.policies import Policy, all_policies, find_policy
from viewcache.errors import BadInput, NotFound
from viewcache.materializer.storage.eviction import Eviction
from viewcache.materializer.storage.removal import remove
from viewcache.store.tier import LOCAL

__all__ = ["Evicted", "Leaves", "evict", "policies_of", "policy_of"]


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
    """That were to be free."""
    free_bytes: int
    """That are free now, or would be; below zero where a budget was lowered."""
    leaves: tuple[Leaves, ...]
    """First victim first."""
    dry_run: bool

    @property
    def bytes(self) -> int:
        """Of what leaves."""
        return sum(each.bytes for each in self.leaves)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self) | {"bytes": self.bytes}


def policies_of(located: Located | None, folder: str | None = None) -> tuple[list[Policy], str]:
    """The policies that a cache can use, each of which is tried, and the name of the active one.

    Args:
        located: the cache; None if there is none yet.
        folder: of policies of the user's own, instead of the configuration's.

    Raises:
        NotFound: there is no such folder.
    """
    folder, active = _spec(located, folder)
    return all_policies(folder), active


def policy_of(located: Located, name: str | None = None, folder: str | None = None) -> Policy:
    """The policy of that name, which alone is tried.

    Args:
        located: the cache.
        name: None = the active one.
        folder: of policies of the user's own, instead of the configuration's.

    Raises:
        NotFound: there is no such folder, or no such policy.
        BadInput: the policy cannot be used.
    """
    folder, active = _spec(located, folder)
    name = name or active
    return find_policy(name, all_policies(folder, only=name))


def _spec(located: Located | None, folder: str | None) -> tuple[str | None, str]:
    """The folder of policies, which exists if it is one, and the name of the active policy."""
    config = located.config if located is not None else None
    spec = config.cache.eviction if config is not None else None
    folder = folder or (spec.folder if spec is not None else None)
    if folder is not None and not Path(folder).is_dir():
        raise NotFound(f"there is no folder of policies {folder}")
    return folder, spec.policy if spec is not None else DEFAULT


def evict(located: Located, policy: Policy, need_bytes: int, *, tier: str = LOCAL, dry_run: bool = False) -> Evicted:
    """Give up copies of a cache that nobody has open until so many bytes of a tier's budget are free.

    Args:
        located: which cache.
        policy: says what leaves first.
        need_bytes: that shall be free; nothing leaves if they are, and fewer are if all that may leave is less.
        tier: from which tier; a copy in another one stays.
        dry_run: only say what would leave.

    Raises:
        NotFound: there is no catalog, no store, or no such tier.
        BadInput: the catalog is of another store, or the budget is less than what shall be free.
        CatalogBusy: another process owns the cache.
        StoreUnreachable: a remote tier does not answer.
        QueryRefused: a policy of the user's own failed.
    """
    with owned_cache(located, writable=not dry_run) as owned:
        catalog, names = owned.catalog, owned.tier_names
        if tier not in names:
            raise NotFound(f"this cache has no {tier} tier whose bytes outlive a process; it has {', '.join(names)}")
        budget = _budget(located, catalog, tier)
        if 0 < budget < need_bytes:
            raise BadInput(
                f"{size(need_bytes)} can never be free: the budget of the {tier} tier is {size(budget)} "
                f"({budget} bytes); name that much, or less"
            )
        free = budget - _used(catalog, tier)
        chooser = Eviction(catalog, policy, falls_back=False)
        victims = chooser.choose(tier, need_bytes - free, []) if need_bytes > free else []
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
            for victim in victims:
                why.setdefault(victim.policy, {})[victim.object_id] = victim.reason

            def forget() -> None:
                for name, reasons in why.items():
                    catalog.mark_evicted(reasons, name, tier=tier)

            remove(catalog, [(owned.tier(tier), [places[each.object_id]["physical"] for each in victims])], forget)
    return Evicted(policy.name, tier, need_bytes, free + sum(each.bytes for each in leaves), leaves, dry_run)


def _budget(located: Located, catalog: Catalog, tier: str) -> int:
    """Of a tier, in bytes: as configured now, else as in the last run."""
    recorded = {row["tier"]: int(row["budget_bytes"]) for row in catalog.query("read_tiers").to_pylist()}
    if located.config is not None and (tier != LOCAL or located.config.budget_given):
        recorded |= {spec.name: spec.budget_bytes for spec in located.config.cache.tiers}
    return recorded.get(tier, 0)


def _used(catalog: Catalog, tier: str) -> int:
    """Bytes that a tier's copies take."""
    copies = catalog.load_copies()
    return int(pc.sum(copies.filter(pc.equal(copies["tier"], tier))["bytes"]).as_py() or 0)


def _by_id(table: pa.Table, ids: pa.Array) -> dict[int, dict[str, Any]]:
    chosen = table.filter(pc.is_in(table["object_id"], ids))
    return {row["object_id"]: row for row in chosen.to_pylist()}
