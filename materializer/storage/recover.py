"""Make catalog and store agree at start (SAND §5.5): adopt what was published but not recorded, forget what is gone.

After a clean end nothing is walked. After any other, every folder is listed once: an object that has a row is not
looked at, for its bytes are checked when they are read. Of a large store that is done while the cache is read already;
nothing is made meanwhile, since the budget is not known (docs/design/0027). What a catalog has lost is planned again,
from its draws and the configuration: content keys are the same, so plans find what is there. Idempotent: killed in the
middle, it is done again.
"""

import logging
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.catalog.replay import REBUILT
from viewcache.errors import BadInput, Full, StoreUnreachable
from viewcache.failpoints import failpoint
from viewcache.materializer.storage.found import adopt, copy_row, scan_orphans
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.storage.shelf import Shelf
from viewcache.store import LocalTier, Tier, physical_of

__all__ = ["Recovered", "Recovery", "bind_store", "check_bound", "recover"]

_log = logging.getLogger("viewcache.recover")

STORE_ID = "store_id"
"""Setting of the catalog, and file in the store's folder."""

STORE_ROOT = "store_root"
"""Setting of the catalog: where that store was first."""

COUNTED = "counted"
"""Setting of the catalog: by which rule its rows count the bytes of the local tier."""

RULE = "blocks"
"""That of this release; before it were the lengths of files, and no setting."""

BATCH = 1024
"""Objects that are looked up in the catalog at once."""

AT_ONCE = 20_000
"""So many recorded objects are walked before the cache is open, in a second or less; of more it is open meanwhile."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found at start."""

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


def recover(catalog: Catalog, tier: Tier, ledger: Ledger, *, clean: bool, wait: bool = True) -> "Recovery":
    """Reconcile one tier, and let the ledger know what lies there.

    Args:
        catalog: what we know.
        tier: what is there; its count of used bytes is set. Of one that is away, or goes away meanwhile, the catalog's
            rows are trusted: what is wrong with them is found by the read that needs it, or by a later start.
        ledger: takes over what is found.
        clean: the last owner closed the catalog, so its rows can be trusted.
        wait: for the end; else a walk of many objects is left to the caller, who starts it.
    """
    swept = 0
    try:
        swept = 0 if tier.away else tier.sweep()
    except StoreUnreachable as error:
        _away(tier, error)
    if isinstance(tier, LocalTier):
        _count_anew(catalog, tier)
    shelf = Shelf.recorded(catalog, tier.name)
    tier.settle(shelf.recorded_bytes)
    ledger.adopt(shelf)
    rebuilt = bool(catalog.quarantined) or catalog.setting(REBUILT) == "yes"
    walked = not tier.away and (rebuilt or not clean)
    recovery = Recovery(catalog, tier, ledger, shelf, Recovered(walked, swept_bytes=swept))
    if not recovery.is_over and (wait or rebuilt or len(shelf) <= AT_ONCE):
        recovery.run()
    return recovery


def _away(tier: Tier, error: StoreUnreachable) -> None:
    """It answered when it was opened."""
    _log.warning("tier %s is taken as the catalog has it: %s", tier.name, error, extra={"action": "tier_down"})
    tier.mark_away()


def _count_anew(catalog: Catalog, tier: LocalTier) -> None:
    """Correct rows that count by the rule of an earlier release; once, so each object may be looked at."""
    if catalog.setting(COUNTED) == RULE:
        return
    rows = catalog.query("read_stored", tier=tier.name).select(["object_id", "physical", "bytes"])
    there = dict(tier.iter_objects()) if rows.num_rows else {}
    columns = (rows[name].to_pylist() for name in rows.column_names)
    wrong = [(each, there[place]) for each, place, size in zip(*columns, strict=True) if there.get(place, size) != size]
    if wrong:
        ids, sizes = (pa.array(column, pa.int64()) for column in zip(*wrong, strict=True))
        counted = pa.table({"object_id": ids, "tier": pa.array([tier.name] * len(wrong)), "bytes": sizes})
        catalog.recount_copies(counted)
        _log.warning("%d objects were counted anew, in blocks of the disk", len(wrong), extra={"action": "recounted"})
    catalog.set_setting(COUNTED, RULE)


class Recovery:
    """The walk through one tier: `run` does it now, `start` in a thread. Of a trusted tier it is over at once."""

    def __init__(self, catalog: Catalog, tier: Tier, ledger: Ledger, shelf: Shelf, result: Recovered) -> None:
        """Walk nothing yet; ``result.walked`` says whether it is to be done."""
        self.result = result
        """What was found so far."""
        self._catalog, self._tier, self._ledger, self._shelf = catalog, tier, ledger, shelf
        self._closing = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if result.walked:
            tier.begin_count()
            ledger.look_through(tier.name)
        else:
            self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether the catalog and the tier agree."""
        return self._over.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for that; False when the time is over."""
        return self._over.wait(timeout_s)

    def start(self, then: Callable[[], None]) -> None:
        """Walk in a thread, and call ``then`` at its end, well or ill; of a tier that was walked, do nothing."""
        if not self.is_over:
            self._thread = threading.Thread(target=self._run, args=(then,), name="viewcache-recovery", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop a walk that is under way: the next start does it again."""
        self._closing = True
        if self._thread is not None:
            self._thread.join()

    def _run(self, then: Callable[[], None]) -> None:
        try:
            self.run()
            then()
        except Exception as error:  # whatever it is, who waits for room must be told
            _log.exception("the store could not be looked through", extra={"action": "recovery_failed"})
            self._tier.end_count(error)
            then()

    def run(self) -> None:
        """Walk to the end."""
        try:
            self._walk()
        except StoreUnreachable as error:
            _away(self._tier, error)
            self.result = replace(self.result, walked=False)
        if self._closing:
            return
        with suppress(Full):  # what was found is known here, waits to be written, and is found again if it never is
            self._catalog.flush()
        failpoint("recover.reconciled")
        self._ledger.look_through(self._tier.name, over=True)
        self._tier.end_count()
        self._over.set()
        found = self.result
        if found.adopted or found.deleted or found.forgotten:
            _log.warning(
                "tier %s was looked through: %d objects adopted, %d of them not known, %d forgotten, %d deleted",
                self._tier.name,
                found.adopted,
                found.unknown,
                found.forgotten,
                found.deleted,
                extra={"action": "recovered"},
            )

    def _walk(self) -> None:
        recorded: dict[str, list[str]] = {}
        for key in self._shelf.recorded_keys:
            recorded.setdefault(key[:2], []).append(key)
        orphans: list[str] = []
        lost: list[str] = []
        for prefix, names in self._tier.iter_groups():
            lost += [key for key in recorded.pop(prefix, ()) if key not in names]
            orphans += [key for key in names if not self._ledger.lies_in(key, self._tier.name)]
            while len(orphans) >= BATCH and not self._closing:
                self._take_in(orphans[:BATCH])
                del orphans[:BATCH]
            if self._closing:
                return
        lost += [key for keys in recorded.values() for key in keys]
        for first in range(0, len(lost), BATCH):
            self._forget(lost[first : first + BATCH])
        self._take_in(orphans)

    def _take_in(self, keys: list[str]) -> None:
        """Objects without a row get one, or are deleted if they are not whole."""
        if not keys:
            return
        tier, name = self._tier, self._tier.name
        found, broken = scan_orphans(tier, [physical_of(key) for key in keys])
        tier.each(lambda physical: tier.delete(physical, 0), broken)
        ids, unknown = adopt(self._catalog, found)
        copies = [Copy(ids[each.key], each.key, each.stored, each.bytes, name) for each in found]
        rows = [copy_row(ids[each.key], name, each) for each in found]
        taken = self._ledger.found(zip(copies, rows, strict=True))
        # By row, as `delete` will give it back.
        tier.add_found(sum(copy.bytes for copy in taken))
        self.result = replace(
            self.result,
            adopted=self.result.adopted + len(taken),
            deleted=self.result.deleted + len(broken),
            unknown=self.result.unknown + unknown,
        )
        failpoint("recover.adopted")

    def _forget(self, keys: list[str]) -> None:
        """Rows whose object is not there go."""
        gone = self._ledger.lost(self._tier.name, keys)
        self._tier.add_found(-sum(copy.bytes for copy in gone))
        self.result = replace(self.result, forgotten=self.result.forgotten + len(gone))
