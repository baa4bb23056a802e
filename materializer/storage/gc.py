"""Garbage collection: give up what no plan needs, and nothing else (`viewcache gc`).

It owns the catalog while it works, so nobody makes or reads anything meanwhile: whatever is not needed then is older
than any run. The trade-off: what was read for the last time is garbage too, although another epoch might be asked for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import time

from viewcache.catalog import Catalog
from viewcache.catalog.replay import REBUILT, UNPLANNED
from viewcache.errors import ChunkDamaged
from viewcache.materializer.storage.found import copy_row, scan_each
from viewcache.materializer.storage.removal import remove
from viewcache.store import FoundObject, Tier
from viewcache.store.temporary import TEMPORARY, abandoned

__all__ = ["QUARANTINED", "Garbage", "Orphan", "TierGarbage", "collect", "survey"]

QUARANTINED = "*.quarantined-*"
"""Files that were moved aside because they could not be read."""

_UNFINISHED = ("snapshot.tmp", "*.journal.new", "clean_end.new")
"""Files of a catalog's owner that died over them."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object in a tier that no row tells of."""

    physical: str
    bytes: int
    found: FoundObject | None
    """None if it is not whole."""
    object_id: int
    """0 if nobody needs it."""


@dataclass(frozen=True, slots=True)
class TierGarbage:
    """What can go from one tier."""

    tier: Tier
    unneeded: tuple[tuple[int, str, int], ...]
    """(object id, place, bytes) of copies that no use to come needs."""
    orphans: tuple[Orphan, ...]
    missing: tuple[int, ...]
    """Ids of objects that have a row and are not there."""

    @property
    def garbage(self) -> list[str]:
        """Where all that lies that goes."""
        return [*(physical for _, physical, _ in self.unneeded), *(orphan.physical for orphan in self.worthless)]

    @property
    def worthless(self) -> tuple[Orphan, ...]:
        """The orphans that nobody needs."""
        return tuple(orphan for orphan in self.orphans if not orphan.object_id)

    @property
    def objects(self) -> int:
        """Objects that go."""
        return len(self.unneeded) + len(self.worthless)

    @property
    def bytes(self) -> int:
        """Of those objects."""
        return sum(size for _, _, size in self.unneeded) + sum(orphan.bytes for orphan in self.worthless)

    def as_dict(self) -> dict[str, int]:
        """In numbers."""
        return {
            "unneeded": len(self.unneeded),
            "orphans": len(self.worthless),
            "missing": len(self.missing),
            "objects": self.objects,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class Garbage:
    """What can go."""

    tiers: tuple[TierGarbage, ...]
    unfinished: tuple[Path, ...]
    """Of dead writers."""
    quarantined: tuple[Path, ...]
    """Left where they are unless they are asked for."""
    waiting: bool
    """The catalog was rebuilt, and what plans need is known only when a run has planned again: no object goes."""
    unplanned: tuple[str, ...] = ()
    """Tasks that no run has planned again since; while there are any, no object goes either."""

    @property
    def objects(self) -> int:
        """Objects that go, over all tiers."""
        return sum(each.objects for each in self.tiers)

    @property
    def bytes(self) -> int:
        """Of those objects."""
        return sum(each.bytes for each in self.tiers)

    @property
    def missing(self) -> int:
        """Rows without an object, over all tiers."""
        return sum(len(each.missing) for each in self.tiers)

    def as_dict(self) -> dict[str, object]:
        """In numbers."""
        return {
            "tiers": {each.tier.name: each.as_dict() for each in self.tiers},
            "unfinished": len(self.unfinished),
            "quarantined": len(self.quarantined),
            "waiting": self.waiting,
            "objects": self.objects,
            "bytes": self.bytes,
        }


def survey(catalog: Catalog, tiers: Iterable[Tier], root: Path) -> Garbage:
    """Find what can go; changes nothing.

    Args:
        catalog: nobody else has it open.
        tiers: to look at.
        root: folder of the store, in which files were moved aside.

    Raises:
        StoreUnreachable: a remote tier does not answer.
    """
    lost = {*(catalog.setting(UNPLANNED) or "").split()}
    unplanned = tuple(row.name for row in catalog.load_tasks() if str(row.task_id) in lost)  # others are forgotten
    waiting = bool(unplanned) or catalog.setting(REBUILT) == "yes"
    return Garbage(
        tuple(_of_tier(catalog, tier, waiting=waiting) for tier in tiers),
        tuple(_unfinished(root)),
        tuple(sorted(root.glob(QUARANTINED))),
        waiting,
        unplanned,
    )


def _of_tier(catalog: Catalog, tier: Tier, *, waiting: bool) -> TierGarbage:
    rows = [row for row in catalog.load_copies().to_pylist() if row["tier"] == tier.name]
    there = dict(tier.iter_objects())
    recorded = {row["physical"] for row in rows}
    unneeded = [] if waiting else catalog.query("read_unneeded", tier=tier.name, now_s=time()).to_pylist()
    orphans = [] if waiting else [each for each in there if each not in recorded]
    return TierGarbage(
        tier,
        tuple((row["object_id"], row["physical"], row["bytes"]) for row in unneeded if row["physical"] in there),
        tuple(_orphans(catalog, tier, {each: there[each] for each in orphans})),
        tuple(row["object_id"] for row in rows if row["physical"] not in there),
    )


def collect(catalog: Catalog, garbage: Garbage, *, quarantined: bool = False) -> None:
    """Remove it, see `remove`.

    Args:
        catalog: nobody else has it open.
        garbage: what `survey` found, since when nothing has changed.
        quarantined: also files that were moved aside.

    Raises:
        StoreUnreachable: a remote tier does not answer any more; what lies there without a row is found the next time.
    """

    def forget() -> None:
        for each in garbage.tiers:
            name = each.tier.name
            catalog.mark_gone(each.missing, "missing", tier=name)
            catalog.mark_gone([object_id for object_id, _, _ in each.unneeded], "gc", tier=name)
            needed = [(orphan.object_id, orphan.found) for orphan in each.orphans if orphan.object_id]
            catalog.mark_ready([copy_row(object_id, name, found) for object_id, found in needed if found is not None])

    remove(catalog, [(each.tier, each.garbage) for each in garbage.tiers], forget)
    for each in garbage.tiers:
        each.tier.sweep()
    for path in (*garbage.unfinished, *(garbage.quarantined if quarantined else ())):
        if path.parent.name != TEMPORARY:  # those are swept
            path.unlink(missing_ok=True)


def _orphans(catalog: Catalog, tier: Tier, there: dict[str, int]) -> Iterator[Orphan]:
    scanned = zip(there, scan_each(tier, list(there)), strict=True)
    found = {physical: each for physical, each in scanned if not isinstance(each, ChunkDamaged)}
    wanted = set(catalog.query("read_needed", tier=tier.name)["object_id"].to_pylist()) if found else set()
    known = catalog.objects_by_key([each.key for each in found.values()]).to_pylist()
    needed = {row["key"]: row["object_id"] for row in known if row["object_id"] in wanted}
    for physical, size in there.items():
        whole = found.get(physical)
        yield Orphan(physical, size, whole, needed.get(whole.key, 0) if whole is not None else 0)


def _unfinished(root: Path) -> Iterator[Path]:
    yield from sorted(Path(entry.path) for entry in abandoned(root))
    for pattern in _UNFINISHED:
        yield from sorted(root.glob(pattern))
