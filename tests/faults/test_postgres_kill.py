"""A PostgreSQL server that is killed under its catalog: nothing acknowledged is lost."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import config, digest_of, read_all
from tests.faults.postgres import Server, own_server
from tests.scheduling.harness import until
from viewcache.api.session.cache import Cache
from viewcache.catalog import postgres
from viewcache.errors import CatalogBusy, CatalogDamaged, ViewcacheError

EPOCHS = 4
Truth = dict[tuple[int, int], str]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Gone after the module."""
    with own_server() as running:
        yield running


def committed(cache: Cache) -> set[str]:
    """Keys of the objects that the catalog has, by its own account."""
    rows: list[str] = cache.catalog.query("read_stored", tier="local")["key"].to_pylist()
    return set(rows)


def survive(server: Server, store: Path, videos: Path, kills: int) -> tuple[int, list[float]]:
    """Train again and again while the server is killed.

    Returns:
        Number of objects that were acknowledged before a kill, and seconds until each was over for the trainer.
    """
    acknowledged, back = 0, list[float]()
    wanted = config(store, videos, epochs=EPOCHS, catalog=server.database())
    wanted["cache"]["eviction"] = {"trim": False}  # only what is lost may be missing
    with viewcache.open(wanted) as cache:
        truth: Truth = dict(read_all(cache, EPOCHS))
        for number in range(kills):
            for copy in cache.owner.ledger.hold(list(cache.task("t").describe(number % EPOCHS, 0).keys)) or []:
                cache.owner.ledger.release([copy])
                cache.owner.dispatcher_now().evictor.damaged(copy)
            assert digest_of(cache.read("t", number % EPOCHS, 1)) == truth[number % EPOCHS, 1]
            cache.catalog.flush()
            known = committed(cache)
            server.kill()
            started = time.monotonic()
            with ThreadPoolExecutor(2, "test") as others:
                asking, starting = others.submit(committed, cache), others.submit(server.start)
                assert dict(read_all(cache, EPOCHS)) == truth, "training goes on meanwhile"
                assert asking.result() >= known, "who asks meanwhile waits for the answer"
                cache.catalog.flush(timeout_s=60)
                back.append(time.monotonic() - started)
                starting.result()
            acknowledged += len(known)
            assert known <= committed(cache), "what was acknowledged is lost"
            assert committed(cache) == cache.owner.ledger.copies().keys()
            assert cache.catalog.failure is None
    with viewcache.open(wanted) as cache:
        assert not cache.owner.recovered.walked
        assert dict(read_all(cache, EPOCHS)) == truth
    return acknowledged, back


def test_the_server_is_killed(server: Server, tmp_path: Path, videos: Path) -> None:
    """Three times: what was acknowledged is there, all connections come back by themselves, every batch is right."""
    acknowledged, _ = survive(server, tmp_path / "store", videos, 3)
    assert acknowledged > 30


def test_what_leaves_is_asked_of_a_server_that_was_restarted(server: Server, tmp_path: Path, videos: Path) -> None:
    """It has dropped all connections: the first question after that is asked on a new one, and answered."""
    with viewcache.open(config(tmp_path / "store", videos, catalog=server.database())) as cache:
        assert len(dict(read_all(cache))) > 1
        cache.catalog.flush()
        before = cache.catalog.victims("local", 1 << 40, [], "demand")
        assert before.num_rows
        server.kill()
        server.start()
        assert cache.catalog.victims("local", 1 << 40, [], "demand") == before


def test_a_failover_is_waited_for(
    server: Server, tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is gone for longer than one that is busy may be costs time, and no batch."""
    monkeypatch.setattr(postgres, "BUSY_S", 0.2)
    wanted = config(tmp_path / "store", videos, epochs=EPOCHS, budget=124_000, catalog=server.database())
    with viewcache.open(wanted) as cache, ThreadPoolExecutor(2, "test") as others:
        truth = dict(read_all(cache, EPOCHS))
        server.kill()
        asked, reading = time.monotonic(), others.submit(lambda: dict(read_all(cache, EPOCHS)))
        asking = others.submit(committed, cache)
        until(lambda: time.monotonic() - asked > 2.0, "the patience with a busy server to be over")
        assert not asking.done()
        server.start()
        assert asking.result()
        assert reading.result() == truth
        cache.catalog.flush(timeout_s=60)
        assert cache.catalog.failure is None


def test_closing_does_not_wait_for_a_failover(
    server: Server, tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for the server is told when the cache is closed; the next one that is opened gives every batch."""
    monkeypatch.setattr(postgres, "BUSY_S", 0.2)
    wanted = config(tmp_path / "store", videos, epochs=EPOCHS, budget=124_000, catalog=server.database())
    with ThreadPoolExecutor(1, "test") as others:
        cache = viewcache.open(wanted)
        truth = dict(read_all(cache, EPOCHS))
        server.kill()
        asking = others.submit(committed, cache)
        begun = time.monotonic()
        with suppress(ViewcacheError):
            cache.close()
        assert time.monotonic() - begun < postgres.RECONNECT_S / 4
        with pytest.raises((CatalogBusy, CatalogDamaged), match="PostgreSQL"):
            asking.result()
    server.start()
    with viewcache.open(wanted) as cache:
        assert dict(read_all(cache, EPOCHS)) == truth


@pytest.mark.long
def test_the_server_is_down_while_room_is_needed(
    server: Server, tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers are told that it does not answer; when it is there again every batch is right."""
    monkeypatch.setattr(postgres, "RECONNECT_S", 5.0)
    wanted = config(tmp_path / "store", videos, epochs=EPOCHS, budget=124_000, catalog=server.database())
    with viewcache.open(wanted) as cache:
        truth = dict(read_all(cache, EPOCHS))
        server.kill()
        with pytest.raises((CatalogBusy, CatalogDamaged), match="PostgreSQL"):
            list(read_all(cache, EPOCHS))
        server.start()
        cache.catalog.flush(timeout_s=60)
        assert dict(read_all(cache, EPOCHS)) == truth


@pytest.mark.long
def test_the_server_is_killed_25_times(server: Server, tmp_path: Path, videos: Path) -> None:
    """The same, with figures."""
    acknowledged, back = survive(server, tmp_path / "store", videos, 25)
    print(f"\n{acknowledged} acknowledged, none lost; back after {sorted(back)[12]:.1f} s, at most {max(back):.1f}")
