"""Make catalog and store agree at start (SAND §5.5): adopt what was published but not recorded, forget what is gone.

After a clean end nothing is walked. After any other, every object folder is looked at once; bytes are checked when they
are read. Idempotent: killed in the middle, it is done again.
"""

import logging
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from viewcache.catalog import Catalog
from viewcache.catalog.records import CopyRow
from viewcache.errors import BadInput, ChunkDamaged
from viewcache.materializer.ledger import Copy
from viewcache.store import ChunkTable, FoundObject, LocalTier, Stored, Tier

__all__ = ["Recovered", "claim", "recover"]

_log = logging.getLogger("viewcache.recover")

STORE_ID = "store_id"
"""Setting of the catalog, and file in the store's folder."""

STORE_ROOT = "store_root"
"""Setting of the catalog: where that store was first."""

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
    """Objects that no plan knows, or that were not whole."""
    swept_bytes: int = 0
    """Temporary files of dead writers."""


def claim(catalog: Catalog, tier: LocalTier) -> None:
    """Tie a store to a catalog that lies elsewhere, so that neither is taken for the other's and emptied.

    Raises:
        BadInput: the catalog knows another store, or the store's objects are of another catalog.
    """
    file = Path(tier.root) / STORE_ID
    known, there = catalog.setting(STORE_ID), ""
    with suppress(FileNotFoundError):
        there = file.read_text(encoding="ascii").strip()
    if known == there:
        return
    lost = not there and catalog.setting(STORE_ROOT) == tier.root  # the disk was wiped: all is made anew
    if known is not None and not lost:
        raise BadInput(
            f"the catalog is of another store than {tier.root}: name that store's folder, or another database; one "
            "database serves one store"
        )
    if there and next(tier.iter_objects(), None) is not None:
        raise BadInput(
            f"the store {tier.root} has objects of another catalog: name that catalog's database, or delete the "
            "folder to make them anew"
        )
    # The file first: killed in between, the store holds no object yet and is claimed again.
    there = known or there or uuid.uuid4().hex
    file.write_text(there, encoding="ascii")
    catalog.set_setting(STORE_ROOT, tier.root)
    catalog.set_setting(STORE_ID, there)


def recover(catalog: Catalog, tier: Tier, name: str, *, clean: bool) -> Recovered:
    """Reconcile one tier.

    Args:
        catalog: what we know.
        tier: what is there; its count of used bytes is set.
        name: of the tier in the catalog.
        clean: the last owner closed the catalog, so its rows can be trusted.
    """
    swept = tier.sweep()
    copies = {copy.stored.physical: copy for copy in _recorded(catalog, name)}
    if clean and not catalog.quarantined:
        tier.settle(sum(copy.bytes for copy in copies.values()))
        return Recovered(tuple(copies.values()), walked=False, swept_bytes=swept)
    there = dict(tier.iter_objects())
    missing = [physical for physical in copies if physical not in there]
    catalog.mark_gone([copies.pop(physical).object_id for physical in missing], "missing", tier=name)
    unknown = [physical for physical in there if physical not in copies]
    adopted, deleted = 0, 0
    for k in range(0, len(unknown), BATCH):
        found = [_scanned(tier, physical) for physical in unknown[k : k + BATCH]]
        ids = _ids(catalog, [each.key for each in found if each is not None])
        rows = []
        for physical, each in zip(unknown[k : k + BATCH], found, strict=True):
            if each is None or each.key not in ids:
                tier.delete(physical)
                deleted += 1
                continue
            rows.append(_row(ids[each.key], name, each))
            copies[physical] = Copy(ids[each.key], each.key, each.stored, each.bytes, name)
        catalog.mark_ready(rows)
        adopted += len(rows)
    # By row, as `delete` will give it back: an object that was cut short since counts what it had.
    tier.settle(sum(copy.bytes for copy in copies.values()))
    catalog.flush()
    if adopted or missing or deleted:
        _log.warning(
            "the last run did not end cleanly: %d objects adopted, %d forgotten, %d deleted",
            adopted,
            len(missing),
            deleted,
            extra={"action": "recovered"},
        )
    return Recovered(tuple(copies.values()), True, adopted, len(missing), deleted, swept)


def _recorded(catalog: Catalog, tier: str) -> list[Copy]:
    copies = []
    for row in catalog.query("read_stored", tier=tier).to_pylist():
        shape = tuple(int(side) for side in row["shape"].split("x"))
        stored = Stored(
            row["physical"], shape, row["chunk_rows"], row["codec"], ChunkTable.from_bytes(row["table_blob"])
        )
        copies.append(Copy(row["object_id"], row["key"], stored, row["bytes"], tier))
    return copies


def _scanned(tier: Tier, physical: str) -> FoundObject | None:
    try:
        return tier.scan(physical)
    except ChunkDamaged as damage:
        _log.warning("an object that was not whole is deleted: %s", damage, extra={"action": "delete"})
        return None


def _ids(catalog: Catalog, keys: list[str]) -> dict[str, int]:
    found = catalog.objects_by_key(keys)
    return dict(zip(found["key"].to_pylist(), found["object_id"].to_pylist(), strict=True))


def _row(object_id: int, tier: str, found: FoundObject) -> CopyRow:
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
