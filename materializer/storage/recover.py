"""Make catalog and store agree at start (SAND §5.5): adopt what was published but not recorded, forget what is gone.

After a clean end nothing is walked. After any other, every object folder is looked at once; bytes are checked when they
are read. What a catalog has lost is planned again, from its draws and the configuration: content keys are the same, so
plans find what is there. Idempotent: killed in the middle, it is done again.
"""

import logging
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import CopyRow, ObjectKind
from viewcache.catalog.replay import REBUILT
from viewcache.errors import BadInput, ChunkDamaged, StoreUnreachable
from viewcache.failpoints import failpoint
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.storage.ledger import Copy
from viewcache.store import ChunkTable, FoundObject, LocalTier, Stored, Tier

__all__ = ["Recovered", "bind_store", "check_bound", "copy_row", "recover", "scan_each"]

_log = logging.getLogger("viewcache.recover")

STORE_ID = "store_id"
"""Setting of the catalog, and file in the store's folder."""

STORE_ROOT = "store_root"
"""Setting of the catalog: where that store was first."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]{0,64}", re.ASCII)
"""What the kind of an object and the key of its video look like."""

BATCH = 1024
"""Objects that are looked up in the catalog at once."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found at start."""

    copies: tuple[Copy, ...]
    walked: bool
    """Whether the store was walked because the last end was not clean."""
    adopted: int = 0
    """Objects that were published but not recorded."""
    forgotten: int = 0
    """Rows whose object was not there."""
    deleted: int = 0
    """Objects that were not whole."""
    swept_bytes: int = 0
    """Temporary files of dead writers."""
    unknown: int = 0
    """Of the adopted, those that the catalog did not know; what no plan names leaves first."""


def bind_store(catalog: Catalog, tier: LocalTier) -> None:
    """Tie a store to a catalog that lies elsewhere, so that neither is taken for the other's and emptied.

    Raises:
        BadInput: the catalog knows another store, or the store's objects are of another catalog.
    """
    file = Path(tier.root) / STORE_ID
    known, there = catalog.setting(STORE_ID), _bound_to(Path(tier.root))
    if known == there:
        return
    lost = not there and catalog.setting(STORE_ROOT) == tier.root  # the disk was wiped: all is made anew
    if known is not None and not lost:
        raise _another_store(tier.root)
    rebuilt = known is None and catalog.setting(REBUILT) == "yes"  # the journal beside the store is this database's
    if there and not rebuilt and next(tier.iter_objects(), None) is not None:
        raise BadInput(
            f"the store {tier.root} has objects of another catalog: name that catalog's database, or delete the "
            f"file {file} to let this database take them over"
        )
    # The file first: killed in between, the store holds no object yet and is bound again.
    there = known or there or uuid.uuid4().hex
    file.write_text(there, encoding="ascii")
    catalog.set_setting(STORE_ROOT, tier.root)
    catalog.set_setting(STORE_ID, there)


def check_bound(catalog: Catalog, root: Path) -> None:
    """Refuse a catalog that is of another store than the one in ``root``; changes nothing.

    Raises:
        BadInput: it is.
    """
    if (catalog.setting(STORE_ID) or "") != _bound_to(root):
        raise _another_store(str(root))


def _bound_to(root: Path) -> str:
    """What the store was tied to a catalog with; empty if it never was."""
    try:
        return (root / STORE_ID).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def _another_store(root: str) -> BadInput:
    return BadInput(
        f"the catalog is of another store than {root}: name that store's folder, or another database; one "
        "database serves one store"
    )


def recover(catalog: Catalog, tier: Tier, name: str, *, clean: bool) -> Recovered:
    """Reconcile one tier.

    Args:
        catalog: what we know.
        tier: what is there; its count of used bytes is set. Of one that is away, or goes away meanwhile, the catalog's
            rows are trusted: what is wrong with them is found by the read that needs it, or by a later start.
        name: of the tier in the catalog.
        clean: the last owner closed the catalog, so its rows can be trusted.
    """
    trusted = clean and not catalog.quarantined and catalog.setting(REBUILT) != "yes"
    if tier.away:
        return _by_rows(catalog, tier, name)
    try:
        return _reconciled(catalog, tier, name, trusted=trusted)
    except StoreUnreachable as error:  # it answered when it was opened
        _log.warning("tier %s is taken as the catalog has it: %s", name, error, extra={"action": "tier_down"})
        tier.mark_away()
        return _by_rows(catalog, tier, name)


def _by_rows(catalog: Catalog, tier: Tier, name: str, swept: int = 0) -> Recovered:
    """What lies in a tier as the catalog has it."""
    copies = _recorded(catalog, name)
    tier.settle(sum(copy.bytes for copy in copies))
    return Recovered(tuple(copies), walked=False, swept_bytes=swept)


def _reconciled(catalog: Catalog, tier: Tier, name: str, *, trusted: bool) -> Recovered:
    swept = tier.sweep()
    if trusted:
        return _by_rows(catalog, tier, name, swept)
    copies = {copy.stored.physical: copy for copy in _recorded(catalog, name)}
    there = dict(tier.iter_objects())
    missing = [physical for physical in copies if physical not in there]
    catalog.mark_gone([copies.pop(physical).object_id for physical in missing], "missing", tier=name)
    orphans = [physical for physical in there if physical not in copies]
    deleted = unknown = 0
    for k in range(0, len(orphans), BATCH):
        found, broken = _scan_orphans(tier, orphans[k : k + BATCH])
        deleted += len(tier.each(tier.delete, broken))
        ids, fresh = _adopt(catalog, found)
        unknown += fresh
        catalog.mark_ready([copy_row(ids[each.key], name, each) for each in found])
        copies |= {each.physical: Copy(ids[each.key], each.key, each.stored, each.bytes, name) for each in found}
        failpoint("recover.adopted")
    adopted = len(orphans) - deleted
    # By row, as `delete` will give it back: an object that was cut short since counts what it had.
    tier.settle(sum(copy.bytes for copy in copies.values()))
    catalog.flush()
    failpoint("recover.reconciled")
    if orphans or missing:
        _log.warning(
            "the last run did not end cleanly: %d objects adopted, %d of them not known, %d forgotten, %d deleted",
            adopted,
            unknown,
            len(missing),
            deleted,
            extra={"action": "recovered"},
        )
    return Recovered(tuple(copies.values()), True, adopted, len(missing), deleted, swept, unknown)


def _recorded(catalog: Catalog, tier: str) -> list[Copy]:
    copies = []
    for row in catalog.query("read_stored", tier=tier).to_pylist():
        shape = tuple(int(side) for side in row["shape"].split("x"))
        stored = Stored(
            row["physical"], shape, row["chunk_rows"], row["codec"], ChunkTable.from_bytes(row["table_blob"])
        )
        copies.append(Copy(row["object_id"], row["key"], stored, row["bytes"], tier))
    return copies


def scan_each(tier: Tier, physicals: Sequence[str]) -> list[FoundObject | ChunkDamaged]:
    """What each of several objects says of itself, or what is wrong with it."""

    def look(physical: str) -> FoundObject | ChunkDamaged:
        try:
            return tier.scan(physical)
        except ChunkDamaged as damage:
            return damage.with_traceback(None)  # it would hold what was read

    return tier.each(look, physicals)


def _scan_orphans(tier: Tier, physicals: Sequence[str]) -> tuple[list[FoundObject], list[str]]:
    """Objects that no row tells of: those that are whole and describe themselves, and the places of the others."""
    found: list[FoundObject] = []
    broken: list[str] = []
    for physical, each in zip(physicals, scan_each(tier, physicals), strict=True):
        try:
            if isinstance(each, ChunkDamaged):
                raise each
            _described(0, each)
        except ChunkDamaged as damage:
            _log.warning("an object that was not whole is deleted: %s", damage, extra={"action": "delete"})
            broken.append(physical)
        else:
            found.append(each)
    return found, broken


def _adopt(catalog: Catalog, found: list[FoundObject]) -> tuple[dict[str, int], int]:
    """Key → id of each object, and how many of them the catalog did not know until now."""
    known = catalog.objects_by_key([each.key for each in found])
    ids = dict(zip(known["key"].to_pylist(), known["object_id"].to_pylist(), strict=True))
    fresh = [each for each in found if each.key not in ids]
    if fresh:
        first = catalog.next_object_id(len(fresh))
        ids |= {each.key: first + k for k, each in enumerate(fresh)}
        catalog.adopt_objects(
            pa.Table.from_pylist([_described(ids[each.key], each) for each in fresh], schema=schemas.FOUND)
        )
    return ids, len(fresh)


def _described(object_id: int, found: FoundObject) -> dict[str, object]:
    """What an object says of itself; its cost is a guess until a plan names it.

    Raises:
        ChunkDamaged: it says something that no object of ours says, so another program wrote it.
    """
    attributes, cost = found.meta.attributes, CostModel()
    frames, recipe = attributes.get("frames"), attributes.get("recipe", [])
    kind, video_key = attributes.get("kind", "clip"), attributes.get("video_key", "")
    if not all(isinstance(text, str) and _PLAIN.fullmatch(text) for text in (kind, video_key)):
        raise ChunkDamaged(f"{found.physical}: kind or video_key in its attributes is not a plain word")
    if not (isinstance(recipe, list) and all(isinstance(step, dict) for step in recipe)):
        raise ChunkDamaged(f"{found.physical}: the recipe in its attributes is not a list of steps")
    if frames is not None and not (isinstance(frames, list) and all(map(_is_frame, frames))):
        raise ChunkDamaged(f"{found.physical}: the frames in its attributes are not a list of frame numbers")
    size = found.meta.raw_bytes
    return {
        "object_id": object_id,
        "key": found.key,
        "kind": kind,
        "video_key": video_key,
        "depth": len(recipe),
        "est_bytes": size,
        # Native planes at 4:2:0: one and a half bytes a pixel.
        "cost_s": size / 1.5 * cost.decode_s_per_pixel if kind == ObjectKind.FRAMES else size * cost.make_s_per_byte,
        "shape": "x".join(map(str, found.meta.shape)),
        "frame_list": frames,
    }


def _is_frame(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def copy_row(object_id: int, tier: str, found: FoundObject) -> CopyRow:
    """The catalog's row of a copy that was found."""
    return CopyRow(
        object_id=object_id,
        tier=tier,
        physical=found.physical,
        bytes=found.bytes,
        codec=found.meta.codec,
        chunk_rows=found.meta.chunk[0],
        table_blob=found.table.to_bytes(),
        crc=found.table.digest(),
    )
