"""A disk that is full or fails, under the catalog and under the store: reading goes on and nothing is lost.

Errors are put into single calls of the catalog's writing thread, and a small file system is really filled.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path

import pytest

import viewcache
from tests import tiny
from tests.disk import fill, mounted, without_room
from tests.faults.caches import assert_at_rest, config, digest_of, objects_of, read_all
from tests.faults.strace import Fault, Hits, catalog_writer, injected, need_strace
from tests.scheduling.harness import until
from viewcache.api.config.find import Located
from viewcache.api.service.stopping import stop
from viewcache.api.session.cache import Cache
from viewcache.api.upkeep.evict import evict
from viewcache.api.upkeep.gc import collected
from viewcache.catalog import Catalog
from viewcache.catalog.duck import DuckEngine
from viewcache.catalog.files import RESERVE_BYTES
from viewcache.catalog.policies import all_policies, find_policy
from viewcache.catalog.records import CLEAN
from viewcache.errors import Full, ViewcacheError

Truth = dict[tuple[int, int], str]

ROOM = 4 << 20
"""Bytes of the small file system beside the catalog and its reserve."""

NO_ROOM = ("ENOSPC", "EFBIG")


def committed(cache: Cache) -> set[str]:
    """Keys of the objects that the catalog has, by its own account."""
    rows: list[str] = cache.catalog.query("read_stored", tier="local")["key"].to_pylist()
    return set(rows)


def in_writer(fault: Fault, log: Path) -> AbstractContextManager[Hits]:
    """Put a fault into the thread that writes the catalog."""
    return injected(catalog_writer(), fault, log)


def words_of(caplog: pytest.LogCaptureFixture, action: str) -> list[str]:
    """What was logged under an action."""
    return [record.getMessage() for record in caplog.records if getattr(record, "action", "") == action]


def assert_reading_goes_on(
    cache: Cache, store: Path, truth: Truth, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    """Under a fault in the catalog's writer every batch is right; what was committed stays, the rest follows later."""
    assert digest_of(cache.read("t", 0, 0)) == truth[0, 0]
    cache.catalog.flush()
    known, for_ever = committed(cache), fault.when.endswith("+")
    with in_writer(fault, store.parent / "strace.log") as hits:
        assert dict(read_all(cache)) == truth, fault
        until(lambda: hits.count() > 0, f"{fault} to happen")
        if for_ever:
            until(lambda: bool(words_of(caplog, "catalog_write")), f"the writer to tell of {fault}")
            said = words_of(caplog, "catalog_write")[0]
            assert str(store / "catalog.duckdb") in said, fault
            assert "free disk space" in said or fault.what.removeprefix("error=") not in NO_ROOM, fault
    cache.catalog.flush(timeout_s=20)
    assert cache.catalog.failure is None
    assert known <= committed(cache) == cache.owner.ledger.copies().keys(), fault
    assert dict(read_all(cache)) == truth, fault


WRITES = [
    ("write", "ENOSPC", "1"),
    ("write", "EFBIG", "1+"),
    ("fsync", "EIO", "1"),
    ("fsync", "EIO", "1+"),
    ("fsync,openat", "EIO", "1+"),
]
EVERY_WRITE = [each for each in product(["write", "fsync"], [*NO_ROOM, "EIO"], ["1", "1+"]) if each not in WRITES]


@pytest.mark.parametrize(
    ("call", "error", "when"), [*WRITES, *(pytest.param(*each, marks=pytest.mark.long) for each in EVERY_WRITE)]
)
def test_the_catalog_cannot_be_written(
    store: Path, videos: Path, truth: Truth, caplog: pytest.LogCaptureFixture, call: str, error: str, when: str
) -> None:
    """Its log cannot grow or be flushed, once or for ever: batches are read, what was made is committed later.

    An EIO of fsync makes DuckDB refuse everything, so that it has to be opened again; with ``openat`` that fails too.
    """
    need_strace()
    with viewcache.open(config(store, videos)) as cache:
        assert_reading_goes_on(cache, store, truth, Fault(call, f"error={error}", when), caplog)
    assert_at_rest(store)


@pytest.mark.parametrize(("call", "error", "when"), [("pwrite64", "ENOSPC", "1+"), ("fsync", "EIO", "1+")])
def test_the_catalog_cannot_be_folded(
    store: Path, tmp_path: Path, videos: Path, truth: Truth, call: str, error: str, when: str
) -> None:
    """A checkpoint fails: who asked for it is told, with the path; nothing is lost and the next one works."""
    need_strace()
    with viewcache.open(config(store, videos)) as cache:
        assert dict(read_all(cache)) == truth
        cache.catalog.flush()
        known = committed(cache)
        with (
            in_writer(Fault(call, f"error={error}", when), tmp_path / "strace.log") as hits,
            pytest.raises(ViewcacheError, match=str(store / "catalog.duckdb")),
        ):
            cache.catalog.publish_snapshot()
        assert hits.count() > 0
        assert known == committed(cache)
        assert cache.catalog.publish_snapshot().exists()
        assert dict(read_all(cache)) == truth
    assert_at_rest(store)


@pytest.fixture
def small_disk(tmp_path: Path, empty_store: Path) -> Iterator[Path]:
    """A file system of its own with `empty_store` on it, the catalog's reserve, and `ROOM` beside them."""
    taken = sum(path.stat().st_blocks * 512 for path in empty_store.rglob("*") if path.name != "catalog.reserve")
    with mounted(tmp_path / "disk", taken + RESERVE_BYTES + ROOM) as disk:
        shutil.copytree(empty_store, disk / "store")
        yield disk


def refused(cache: Cache, truth: Truth) -> set[tuple[int, int]]:
    """The batches that cannot be read for want of room, each told with path and cure; the others are right."""
    told: dict[tuple[int, int], str] = {}
    for place, right in truth.items():
        try:
            assert digest_of(cache.read("t", *place)) == right
        except Full as error:
            told[place] = str(error)
    assert all(str(cache.tier.root) in each and "free disk space" in each for each in told.values()), told
    return set(told)


def test_a_disk_that_fills_up(small_disk: Path, videos: Path, truth: Truth, caplog: pytest.LogCaptureFixture) -> None:
    """What is stored is read while the disk is full, the rest is told; with room again the same process goes on."""
    store = small_disk / "store"
    with viewcache.open(config(store, videos)) as cache:
        assert dict(read_all(cache)) == truth
        cache.catalog.flush()
        known = committed(cache)
        lost = set(cache.task("t").describe(1, 0).keys)
        for copy in cache.owner.ledger.hold(list(lost)) or []:
            cache.owner.ledger.release([copy])
            cache.owner.dispatcher_now().evictor.damaged(copy)
        fill(small_disk)
        unread = {place for place in truth if lost & set(cache.task("t").describe(*place).keys)}
        assert refused(cache, truth) == unread != set(truth), "what is stored can be read, and nothing else"
        assert words_of(caplog, "job_failed")
        # What is small is committed still, out of the reserve; then that is gone too.
        before = "before" * 400_000  # more than is claimed for the log already
        cache.catalog.set_setting("test", before)
        fill(small_disk)
        with pytest.raises(Full, match=f"{store / 'catalog.duckdb'}.*free disk space"):
            cache.catalog.set_setting("test", "x" * (4 << 20))
        assert refused(cache, truth) == unread
        (small_disk / "ballast").unlink()
        assert dict(read_all(cache)) == truth
        assert cache.catalog.setting("test") == before
        cache.catalog.flush(timeout_s=20)
        assert known == committed(cache) == cache.owner.ledger.copies().keys()
    assert_at_rest(store)


def test_opening_on_a_full_disk(small_disk: Path, videos: Path, truth: Truth) -> None:
    """A cache that was closed opens on a full disk and can be read, out of the reserve; nothing of it is lost."""
    store = small_disk / "store"
    with viewcache.open(config(store, videos)) as cache:
        assert dict(read_all(cache)) == truth
        known = set(cache.owner.ledger.copies())
    fill(small_disk)
    for _ in range(2):
        with viewcache.open(config(store, videos)) as cache:
            assert refused(cache, truth) == set()
            assert known == cache.owner.ledger.copies().keys()
    (small_disk / "ballast").unlink()
    assert_at_rest(store)


@pytest.fixture
def nothing_is_committed(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """From now on every commit fails as it does on a disk that has no byte left; undo it to have room again."""
    with monkeypatch.context() as patch:
        patch.setattr(DuckEngine, "transaction", without_room([]))
        yield patch


@pytest.mark.parametrize("clean", [True, False])
def test_opening_where_nothing_can_be_committed(
    store: Path, videos: Path, truth: Truth, request: pytest.FixtureRequest, *, clean: bool
) -> None:
    """What is stored is read by one process after the other, and nothing of it is lost."""
    with viewcache.open(config(store, videos)) as cache:
        assert dict(read_all(cache)) == truth
        known = set(cache.owner.ledger.copies())
    if not clean:
        with Catalog.open(store) as catalog:
            catalog.set_setting(CLEAN, "no")
    room = request.getfixturevalue("nothing_is_committed")
    for walked in (not clean, True):
        with viewcache.open(config(store, videos)) as cache:
            assert cache.owner.recovered.walked == walked, "who could not say that it opened is not trusted"
            assert refused(cache, truth) == set()
            assert known == cache.owner.ledger.copies().keys()
    room.undo()
    with viewcache.open(config(store, videos)) as cache:
        assert cache.owner.recovered.walked
    with viewcache.open(config(store, videos)) as cache:
        assert not cache.owner.recovered.walked
        assert known == cache.owner.ledger.copies().keys()
    assert_at_rest(store)


def nothing_left(small_disk: Path) -> Path:
    """Use up the reserve of the store and all that is free beside it; the store."""
    store = small_disk / "store"
    (store / "catalog.reserve").unlink(missing_ok=True)
    fill(small_disk)
    return store


@pytest.mark.parametrize("service", ["off", "auto"])
def test_a_disk_without_a_byte_is_opened(
    small_disk: Path, videos: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    """A cache whose clips are all stored is opened and read where not even the reserve is left, through a service too.

    The service, which cannot write where it is, is found and ended.
    """
    monkeypatch.delenv("VIEWCACHE_SERVICE", raising=False)
    store = small_disk / "store"
    with viewcache.open(config(store, videos), service="off") as cache:
        assert dict(read_all(cache)) == truth
    for _ in range(2):
        nothing_left(small_disk)
        with viewcache.open(config(store, videos), service=service) as cache:
            assert {place: digest_of(cache.read("t", *place)) for place in truth} == truth
        if service == "auto":
            stop(store)
    (small_disk / "ballast").unlink()
    with viewcache.open(config(store, videos), service="off") as cache:
        assert dict(read_all(cache)) == truth
    assert_at_rest(store)


def test_what_is_kept_cannot_be_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a task leaves, it is decided anew what is kept for the other: the log says why not, without a traceback."""
    tiny.make_decoding_dear(monkeypatch)
    videos = tiny.encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 + k for k in range(12)})
    with mounted(tmp_path / "disk", 60 << 20) as disk:
        first = tiny.config(disk / "store", videos, cache={"budget": "300kB", "service": "off"}, epochs=6)
        second = {"dataset": first["dataset"] | {"tag": "other"}}  # type: ignore[operator] # it is a mapping
        with viewcache.open([first, second]) as cache:
            for name in ("train", "other"):
                cache.task(name).sit().read(0, 0)
            cache.owner.look_ahead.wait_idle()
            assert words_of(caplog, "prune") == []
            fill(disk)
            size = 1 << 20
            while size > 16:  # what is reserved, and what the log has claimed
                try:
                    cache.catalog.set_setting("test", "x" * size)
                except Full:
                    size //= 2
                fill(disk)
            cache.owner.suspend("train")
            cache.owner.look_ahead.wait_idle()
            (disk / "ballast").unlink()
    assert any("could not be decided" in each and "No space left" in each for each in words_of(caplog, "prune"))
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize("command", ["evict", "gc"])
def test_room_is_made_on_a_disk_without_a_byte(small_disk: Path, videos: Path, truth: Truth, command: str) -> None:
    """`evict` and `gc` delete first where nothing can be recorded, and then record it; the next start agrees."""
    store = small_disk / "store"
    with viewcache.open(config(store, videos)) as cache:
        assert dict(read_all(cache)) == truth
        cache.leave("t")  # then nothing wants its clips
    there = len(objects_of(store))
    nothing_left(small_disk)
    located = Located(str(store), str(store))
    if command == "gc":
        assert collected(located).objects == there
    else:
        assert len(evict(located, find_policy("demand", all_policies()), 10**8).leaves) == there
    assert objects_of(store) == {}
    (small_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", f"remount,size={4 * (RESERVE_BYTES + ROOM)}", small_disk], check=True)
    with viewcache.open(config(store, videos)) as cache:
        assert cache.owner.ledger.copies().keys() == set()
        assert dict(read_all(cache)) == truth
    assert_at_rest(store)
