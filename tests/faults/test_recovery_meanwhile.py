"""A large store is walked while its cache is read: nothing is made, nothing is lost, and it ends as always."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest

import viewcache
from tests import forked
from tests.faults.caches import assert_at_rest, config, digest_of, objects_of, read_all, store_bytes
from tests.house.tree import ROOT
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.errors import Broken
from viewcache.failpoints import VARIABLE
from viewcache.materializer.storage import recover
from viewcache.store import LocalTier
from viewcache.store.blocks import ENTRY
from viewcache.store.tier import LOCAL

Truth = dict[tuple[int, int], str]
FIRST, LAST = (0, 0), (1, 1)
"""A batch that is whole in the store, and one of which an object is missing and one has no row."""
LONG_S = 60


class Gate:
    """Holds the walk of the local tier before its first folder until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hold every walk from now on."""
        self.opened = threading.Event()
        walk = LocalTier.iter_groups

        def held(tier: LocalTier) -> Iterator[tuple[str, set[str]]]:
            assert self.opened.wait(LONG_S)
            yield from walk(tier)

        monkeypatch.setattr(LocalTier, "iter_groups", held)


def keys_of(cache: Cache, epoch: int, iteration: int) -> list[str]:
    """Of the objects of a batch."""
    active = cache.owner.opened[0].generation(0)
    rows = (active.plan.epoch == epoch) & (active.plan.iteration == iteration)
    return [key.tobytes().hex() for key in active.plan.keys[rows]]


@pytest.fixture
def how(tmp_path: Path, videos: Path) -> dict[str, Any]:
    """A task of four batches."""
    return config(tmp_path / "store", videos)


@pytest.fixture
def truth(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Truth:
    """Its batches; the run that made them did not end cleanly, and every store counts as a large one now."""
    store = Path(how["cache"]["store"][0]["url"])
    with viewcache.open(how) as cache:
        batches = dict(read_all(cache))
        first, last = keys_of(cache, *FIRST), keys_of(cache, *LAST)
    assert len({*first, *last}) == len(first) + len(last) == 8
    rmtree(objects_of(store)[last[0]])
    with Catalog.open(store) as catalog:
        rows = catalog.query("read_stored", tier=LOCAL).to_pylist()
        catalog.mark_gone([row["object_id"] for row in rows if row["key"] == last[1]], "test", tier=LOCAL)
        catalog.set_setting("clean_end", "no")
    monkeypatch.setattr(recover, "AT_ONCE", -1)
    return batches


def test_batches_are_read_before_the_store_is_walked(
    tmp_path: Path, how: dict[str, Any], truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the catalog has is read; what is to be made waits until all that lies there is counted, and is right."""
    gate = Gate(monkeypatch)
    before = objects_of(tmp_path / "store").keys()
    with viewcache.open(how) as cache, ThreadPoolExecutor() as pool:
        tier = cache.owner.tier
        assert digest_of(cache.read("t", *FIRST)) == truth[FIRST]
        last = pool.submit(cache.read, "t", *LAST)
        assert not cache.owner.recovery.is_over
        assert (tier.free_bytes, tier.reserve(1), tier.reserved_bytes) == (0, None, 0)
        assert objects_of(tmp_path / "store").keys() == before
        gate.opened.set()
        assert digest_of(last.result(LONG_S)) == truth[LAST]
        assert cache.owner.recovery.wait(LONG_S)
        assert cache.owner.recovered.adopted == 1
        assert (cache.owner.recovered.deleted, cache.owner.recovered.unknown) == (0, 0)
        assert dict(read_all(cache)) == truth
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(LONG_S)
        counted = sum(copy.bytes for copy in cache.owner.ledger.copies().values())
        assert tier.used_bytes == counted >= store_bytes(tmp_path / "store")
    assert_at_rest(tmp_path / "store")
    with viewcache.open(how) as cache:
        assert not cache.owner.recovered.walked


def test_a_budget_that_was_lowered_holds_when_the_walk_is_over(
    tmp_path: Path, how: dict[str, Any], truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found beyond the catalog's rows counts: before anything is made, the store has room for it."""
    row_bytes = store_bytes(tmp_path / "store") // len(objects_of(tmp_path / "store"))
    with Catalog.open(tmp_path / "store") as catalog:
        rows = catalog.query("read_stored", tier=LOCAL).to_pylist()
        catalog.mark_gone([row["object_id"] for row in rows], "test", tier=LOCAL)
        catalog.flush()
    how["cache"]["store"][0]["budget"] = budget = 10 * row_bytes
    gate = Gate(monkeypatch)
    with viewcache.open(how) as cache:
        assert cache.owner.tier.used_bytes == 0
        gate.opened.set()
        assert cache.owner.recovery.wait(LONG_S)
        assert dict(read_all(cache)) == truth
        assert store_bytes(tmp_path / "store") <= budget
        assert cache.owner.tier.used_bytes <= budget
    assert_at_rest(tmp_path / "store")


def test_a_walk_that_is_killed_is_done_again(tmp_path: Path, how: dict[str, Any], truth: Truth) -> None:
    """Killed between two batches of adopted objects while its cache is read, the next start takes in all of them."""
    with Catalog.open(tmp_path / "store") as catalog:
        rows = catalog.query("read_stored", tier=LOCAL).to_pylist()
        catalog.mark_gone([row["object_id"] for row in rows[:8]], "test", tier=LOCAL)
    code = f"""
import viewcache
from viewcache.materializer.storage import recover
recover.AT_ONCE, recover.BATCH = -1, 2
with viewcache.open({how!r}) as cache:
    cache.owner.recovery.wait()
"""
    killed = forked.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {VARIABLE: "recover.adopted:2:kill"}, timeout=LONG_S
    )
    assert killed.returncode == -signal.SIGKILL
    with viewcache.open(how) as cache:
        assert cache.owner.recovery.wait(LONG_S)
        assert cache.owner.recovered.walked
        assert dict(read_all(cache)) == truth
        assert cache.task("t").spent.rebuilt == 0
    assert_at_rest(tmp_path / "store")


def test_a_walk_that_fails_is_told_to_who_waits(
    tmp_path: Path, how: dict[str, Any], truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies in the store can be read on; who needs room is told why there is none, and the next start walks."""
    with monkeypatch.context() as broken:

        def fail(tier: LocalTier) -> Iterator[tuple[str, set[str]]]:
            raise OSError("the disk does not answer")

        broken.setattr(LocalTier, "iter_groups", fail)
        with viewcache.open(how) as cache:
            with pytest.raises(Broken, match="the disk does not answer"):
                cache.read("t", *LAST)
            assert digest_of(cache.read("t", *FIRST)) == truth[FIRST]
    with viewcache.open(how) as cache:
        assert cache.owner.recovery.wait(LONG_S)
        assert cache.owner.recovered.adopted == 1
        assert dict(read_all(cache)) == truth
    assert_at_rest(tmp_path / "store")


def test_rows_of_an_earlier_release_are_counted_again(tmp_path: Path, how: dict[str, Any], truth: Truth) -> None:
    """A store whose rows have the lengths of files opens, counts what the disk gives away, and keeps all objects."""
    before = objects_of(tmp_path / "store").keys()
    with Catalog.open(tmp_path / "store") as catalog:
        ids = catalog.query("read_stored", tier=LOCAL)["object_id"]
        short = {"object_id": ids, "tier": [LOCAL] * len(ids), "bytes": pa.array([100] * len(ids), pa.int64())}
        catalog.recount_copies(pa.table(short))
        catalog.set_setting("counted", "lengths")
    with viewcache.open(how) as cache:
        assert cache.owner.recovery.wait(LONG_S)
        held = store_bytes(tmp_path / "store")
        assert held <= cache.owner.tier.used_bytes <= held + len(before) * ENTRY
        assert objects_of(tmp_path / "store").keys() == before
        assert dict(read_all(cache)) == truth
