"""Garbage collection: give up what no plan needs, and nothing else (`viewcache gc`).

It owns the catalog while it works, so nobody makes or reads anything meanwhile: whatever is not needed then is older
than any run. The trade-off: what was read for the last time is garbage too, although another epoch might be asked for.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time

from viewcache.catalog import Catalog
from viewcache.catalog.replay import REBUILT
from viewcache.errors import ChunkDamaged
from viewcache.failpoints import failpoint
from viewcache.materializer.recover import copy_row
from viewcache.store import FoundObject, LocalTier
from viewcache.store.temporary import TEMPORARY, is_abandoned

__all__ = ["QUARANTINED", "Garbage", "Stray", "collect", "survey"]

QUARANTINED = "*.quarantined-*"
"""Files that were moved aside because they could not be read."""

_UNFINISHED = ("snapshot.tmp", "*.journal.new")
"""Files of a catalog's owner that died over them."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An object in the store that no row tells of."""

    physical: str
    bytes: int
    found: FoundObject | None
    """None if it is not whole."""
    object_id: int
    """0 if nobody needs it."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """What can go."""

    unneeded: tuple[tuple[int, str, int], ...]
    """(object id, place, bytes) of copies that no use to come needs."""
    strays: tuple[Stray, ...]
    missing: tuple[int, ...]
    """Ids of objects that have a row and are not there."""
    unfinished: tuple[Path, ...]
    """Of dead writers."""
    quarantined: tuple[Path, ...]
    """Left where they are unless they are asked for."""
    waiting: bool
    """The catalog was rebuilt, and what plans need is known only when a run has planned again: no object goes."""

    @property
    def objects(self) -> int:
        """Objects that go."""
        return len(self.unneeded) + sum(not stray.object_id for stray in self.strays)

    @property
    def bytes(self) -> int:
        """Of those objects."""
        own = sum(size for _, _, size in self.unneeded)
        return own + sum(stray.bytes for stray in self.strays if not stray.object_id)

    def as_dict(self) -> dict[str, object]:
        """In numbers."""
        numbers: dict[str, object] = {
            "unneeded": len(self.unneeded),
            "strays": sum(not stray.object_id for stray in self.strays),
            "missing": len(self.missing),
            "unfinished": len(self.unfinished),
            "quarantined": len(self.quarantined),
            "waiting": self.waiting,
        }
        return numbers | {"objects": self.objects, "bytes": self.bytes}


def survey(catalog: Catalog, tier: LocalTier, folders: Iterable[Path]) -> Garbage:
    """Find what can go; changes nothing.

    Args:
        catalog: nobody else has it open.
        tier: the store.
        folders: in which files were moved aside.
    """
    rows = [row for row in catalog.load_copies().to_pylist() if row["tier"] == tier.name]
    there = dict(tier.iter_objects())
    recorded = {row["physical"] for row in rows}
    waiting = catalog.setting(REBUILT) == "yes"
    unneeded = [] if waiting else catalog.query("read_unneeded", tier=tier.name, now_s=time()).to_pylist()
    strays = [] if waiting else [each for each in there if each not in recorded]
    places = sorted(set(folders))
    return Garbage(
        tuple((row["object_id"], row["physical"], row["bytes"]) for row in unneeded if row["physical"] in there),
        tuple(_strays(catalog, tier, {each: there[each] for each in strays})),
        tuple(row["object_id"] for row in rows if row["physical"] not in there),
        tuple(_unfinished(Path(tier.root), places)),
        tuple(path for folder in places for path in sorted(folder.glob(QUARANTINED))),
        waiting,
    )


def collect(catalog: Catalog, tier: LocalTier, garbage: Garbage, *, quarantined: bool = False) -> None:
    """Remove it. Rows go first: killed in between, what lies there without a row is found the next time.

    Args:
        catalog: nobody else has it open.
        tier: the store.
        garbage: what `survey` found, since when nothing has changed.
        quarantined: also files that were moved aside.
    """
    catalog.mark_gone(garbage.missing, "missing", tier=tier.name)
    catalog.mark_gone([object_id for object_id, _, _ in garbage.unneeded], "gc", tier=tier.name)
    needed = [(stray.object_id, stray.found) for stray in garbage.strays if stray.object_id]
    catalog.mark_ready([copy_row(object_id, tier.name, found) for object_id, found in needed if found is not None])
    catalog.flush()
    failpoint("gc.recorded")
    for _, physical, _ in garbage.unneeded:
        tier.delete(physical)
    for stray in garbage.strays:
        if not stray.object_id:
            tier.delete(stray.physical)
    tier.sweep()
    for path in (*garbage.unfinished, *(garbage.quarantined if quarantined else ())):
        if path.parent.name != TEMPORARY:  # those are swept
            path.unlink(missing_ok=True)


def _strays(catalog: Catalog, tier: LocalTier, there: dict[str, int]) -> Iterator[Stray]:
    found: dict[str, FoundObject] = {}
    for physical in there:
        try:
            found[physical] = tier.scan(physical)
        except ChunkDamaged:
            continue
    wanted = set(catalog.query("read_needed", tier=tier.name)["object_id"].to_pylist()) if found else set()
    known = catalog.objects_by_key([each.key for each in found.values()]).to_pylist()
    needed = {row["key"]: row["object_id"] for row in known if row["object_id"] in wanted}
    for physical, size in there.items():
        each = found.get(physical)
        yield Stray(physical, size, each, needed.get(each.key, 0) if each is not None else 0)


def _unfinished(root: Path, folders: Sequence[Path]) -> Iterator[Path]:
    temporary = root / TEMPORARY
    names = sorted(os.listdir(temporary)) if temporary.is_dir() else []
    yield from (temporary / name for name in names if is_abandoned(name))
    for folder in folders:
        for pattern in _UNFINISHED:
            yield from sorted(folder.glob(pattern))
