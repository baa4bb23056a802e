"""What the ledger protects and counts: leases that end by a clock, reads, and evictions while the catalog is full."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests import forked
from tests.catalog.samples import copy, select
from viewcache.catalog import Catalog, schemas
from viewcache.catalog.policies import SHIPPED, Policy
from viewcache.materializer.storage import ledger as ledger_module
from viewcache.materializer.storage.eviction import Eviction
from viewcache.materializer.storage.leases import Leases
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.storage.shelf import Shelf
from viewcache.store import ArrayMeta, ChunkTable, LocalTier, Stored
from viewcache.store.tier import LOCAL

SHAPE = (1, 3, 8, 8)


def key(number: int) -> str:
    """Content key of an object."""
    return f"{number:032x}"


def put(ledger: Ledger, tier: LocalTier, *numbers: int) -> None:
    """Write objects and say so."""
    for number in numbers:
        written = tier.write(key(number), np.full(SHAPE, 7, np.uint8), ArrayMeta(SHAPE, SHAPE, "raw", {}))
        table = ChunkTable.from_bytes(written.table)
        stored = Stored(written.physical, SHAPE, written.chunk_rows, written.codec, table)
        ledger.add(Copy(number, key(number), stored, written.bytes), written)


def name(catalog: Catalog, *numbers: int) -> None:
    """Let the catalog know objects, as a plan does."""
    rows: list[dict[str, Any]] = [
        {"object_id": number, "key": key(number), "kind": "clip", "video_key": "", "depth": 0, "est_bytes": 1}
        | {"cost_s": 1.0, "shape": "x".join(map(str, SHAPE)), "frame_list": [0]}
        for number in numbers
    ]
    catalog.adopt_objects(pa.Table.from_pylist(rows, schema=schemas.FOUND))


def read(ledger: Ledger, *numbers: int) -> None:
    """Read objects, as a batch does."""
    held = ledger.hold([key(number) for number in numbers])
    assert held is not None
    ledger.release(held)


def leaving(ledger: Ledger, need: int = 1 << 40) -> list[int]:
    """What leaves for so many bytes."""
    return [each.object_id for each in ledger.leave(ledger.choose(LOCAL, need, set()))]


@pytest.fixture
def tier(tmp_path: Path) -> LocalTier:
    """An empty store."""
    return LocalTier(tmp_path / "store", 1 << 30)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the clock that new ledgers go by, to be set by the test."""
    now = [100.0]
    monkeypatch.setattr(ledger_module, "Leases", lambda: Leases(lambda: now[0]))
    return now


def test_a_lease_protects_until_its_time_is_over(catalog: Catalog, tier: LocalTier, clock: list[float]) -> None:
    """What is leased never leaves; after its last second it may, and the row that people see is gone."""
    ledger = Ledger(catalog)
    put(ledger, tier, 1, 2, 3)
    leased = ledger.lease("loader 7", [key(1), key(3)], 10.0)
    assert leased is not None
    assert [each.object_id for each in leased] == [1, 3]
    assert leaving(ledger) == [2]
    rows = select(catalog, "select object_id, holder from leases order by object_id")
    assert rows == [(1, "loader 7"), (3, "loader 7")]
    clock[0] += 9.9
    assert leaving(ledger) == []
    clock[0] += 0.1
    assert leaving(ledger) == [1, 3]
    catalog.flush()
    assert select(catalog, "select count(*) from leases") == [(0,)]


def test_a_lease_can_be_renewed_and_ended(catalog: Catalog, tier: LocalTier, clock: list[float]) -> None:
    """Renewed in time it goes on, with all that was added to it; too late it does not; ended it protects nothing."""
    ledger = Ledger(catalog)
    put(ledger, tier, 1, 2, 3)
    ledger.lease("a", [key(1)], 10.0)
    clock[0] += 8
    ledger.lease("a", [key(2)], 10.0)
    clock[0] += 8
    assert ledger.renew("a", 10.0)
    clock[0] += 8
    assert leaving(ledger) == [3]
    ledger.end_lease("a")
    catalog.flush()
    assert select(catalog, "select count(*) from leases") == [(0,)]
    assert not ledger.renew("a", 10.0)
    ledger.lease("b", [key(2)], 1.0)
    clock[0] += 1
    assert not ledger.renew("b", 10.0)
    assert leaving(ledger) == [1, 2]


def test_a_lease_is_of_all_or_nothing(catalog: Catalog, tier: LocalTier) -> None:
    """An object that is not there cannot be leased, nor what is named beside it."""
    ledger = Ledger(catalog)
    put(ledger, tier, 1)
    assert ledger.lease("a", [key(1), key(2)], 10.0) is None
    assert leaving(ledger) == [1]


def test_two_leases_hold_one_object(catalog: Catalog, tier: LocalTier) -> None:
    """It leaves when the last of them has ended, and a reader's hold counts beside them."""
    ledger = Ledger(catalog)
    put(ledger, tier, 1)
    ledger.lease("a", [key(1)], 1000.0)
    ledger.lease("b", [key(1)], 1000.0)
    held = ledger.hold([key(1)])
    assert held is not None
    ledger.end_lease("a")
    ledger.release(held)
    assert leaving(ledger) == []
    ledger.end_lease("b")
    assert leaving(ledger) == [1]


def test_a_lease_of_an_earlier_run_protects_nothing(where: str, tier: LocalTier) -> None:
    """Whoever held it is gone with the process that gave it, on PostgreSQL too."""
    with Catalog.open(where) as catalog:
        ledger = Ledger(catalog)
        name(catalog, 1)
        put(ledger, tier, 1)
        ledger.lease("a", [key(1)], 1e9)
    with Catalog.open(where) as catalog:
        ledger = Ledger(catalog)
        ledger.adopt(Shelf.recorded(catalog, LOCAL))
        assert select(catalog, "select count(*) from leases") == [(0,)]
        assert leaving(ledger) == [1]


def lru(catalog: Catalog) -> Ledger:
    """A ledger whose policy needs to know reads."""
    return Ledger(catalog, eviction=Eviction(catalog, Policy("lru", SHIPPED, "", "")))


def test_reads_are_counted(where: str, tier: LocalTier) -> None:
    """The order of reads is the order of `lru`, also after reopening; only what was read after counts as newer."""
    with Catalog.open(where) as catalog:
        ledger = lru(catalog)
        name(catalog, 1, 2, 3, 4)
        put(ledger, tier, 1, 2, 3, 4)
        read(ledger, 3)
        read(ledger, 1, 2)
        read(ledger, 1, 2, 3, 4)
        read(ledger, 2)
        read(ledger, 1)
        ledger.note_reads()
    with Catalog.open(where) as catalog:
        ledger = lru(catalog)
        ledger.adopt(Shelf.recorded(catalog, LOCAL))
        read(ledger, 3)
        put(ledger, tier, 5)
        assert leaving(ledger) == [4, 2, 1, 3, 5]
        catalog.flush()
        chosen = select(catalog, "select policy, detail, reason from evictions group by policy, detail, reason")
        assert chosen == [("lru", "read longest ago", "evict")]


def test_reads_are_few_writes(catalog: Catalog, tier: LocalTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads wait in memory, the last of each copy, until there are many; never a row for a read."""
    monkeypatch.setattr(ledger_module, "READS_AT_ONCE", 3)
    ledger = Ledger(catalog)
    put(ledger, tier, 1, 2, 3)
    catalog.flush()
    before: list[Any] = select(catalog, "select object_id, access_tick from copies order by object_id")
    for _ in range(50):
        read(ledger, 1, 2)
    catalog.flush()
    assert select(catalog, "select object_id, access_tick from copies order by object_id") == before
    read(ledger, 3)
    catalog.flush()
    ticks: dict[int, int] = dict(select(catalog, "select object_id, access_tick from copies"))  # type: ignore[arg-type]
    assert ticks[3] > ticks[1] == ticks[2] > max(tick for _, tick in before)


FULL = """
import resource, sys
from tests.catalog.samples import select
from tests.catalog.test_leaving import key, leaving, put, read
from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow
from viewcache.errors import Full
from viewcache.materializer.storage.ledger import Ledger
from viewcache.store.tier import LOCAL
from viewcache.store import LocalTier

folder, root = sys.argv[1:]
catalog, tier = Catalog.open(folder), LocalTier(root, 1 << 30)
ledger = Ledger(catalog)
put(ledger, tier, *range(1, 11))
catalog.flush()
log = catalog._opened.layout.log
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 4096, unlimited[1]))
catalog.add_events([EventRow("hit", detail=f"{k} " + "x" * 500, at_s=2.0) for k in range(2000)])
try:
    catalog.flush()
except Full:
    print("full")

def evict(need):
    gone = ledger.leave(ledger.choose(LOCAL, need, set()))
    for each in gone:
        tier.delete(each.stored.physical, each.bytes)
    return [each.object_id for each in gone]

one = ledger.find(key(1), LOCAL).bytes
put(ledger, tier, 11, 12)
held = ledger.hold([key(2)])
print(evict(3 * one), evict(one), evict(8 * one), evict(one))
ledger.release(held)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
print(leaving(ledger, 1))
catalog.flush()
print(sorted(catalog.load_copies()["object_id"].to_pylist()), sum(1 for _ in tier.iter_objects()))
print(select(catalog, "select policy, detail, count(*) from evictions group by all order by 3"))
catalog.close()
"""


def test_a_full_catalog_does_not_stop_evictions(folder: Path, tmp_path: Path) -> None:
    """The catalog's disk is full, the store's is not: what leaves goes on leaving, each copy once, also what was made
    since; and when there is room again the catalog knows it all.
    """
    done = forked.run(
        [sys.executable, "-c", FULL, str(folder), str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "full",
        "[1, 3, 4] [5] [6, 7, 8, 9, 10, 11, 12] []",
        "[2]",
        "[] 1",
        "[('demand', 'nothing wants it', 10)]",
    ]


def test_the_clock_goes_on(catalog: Catalog, tier: LocalTier) -> None:
    """The clock of reads goes on where the last run stopped, not at nothing."""
    catalog.mark_ready([copy(1, access_tick=70), copy(2, access_tick=5)])
    catalog.flush()
    ledger = Ledger(catalog)
    put(ledger, tier, 3, 4)
    read(ledger, 3)
    ledger.note_reads()
    catalog.flush()
    assert catalog.load_copies()["access_tick"].to_pylist() == [70, 5, 73, 72]
