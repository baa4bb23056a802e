"""Snapshots that are copied while the owner goes on committing: each shows one moment, and none is older than asked."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from tests.catalog.samples import plan, read_snapshot, registered
from tests.scheduling.harness import until
from viewcache import errors
from viewcache.api.queries.ask import copy_catalog
from viewcache.catalog import Catalog, run_query, snapshot
from viewcache.catalog.duck import DuckEngine
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.lock import OwnerLock
from viewcache.catalog.opening import open_catalog
from viewcache.catalog.pending import Pending
from viewcache.catalog.records import EventRow

VIDEOS = 3000
"""Of a plan that is larger than what DuckDB holds back from its file: 24,000 rows."""


def shown(path: Path) -> tuple[list[int], list[tuple[int, int]]]:
    """The numbers of the events in a snapshot, and the uses of each generation."""
    with duckdb.connect(str(path), read_only=True, config={"threads": "1"}) as connection:
        numbers = connection.execute('select "count" from event order by "count"').fetchall()
        uses = connection.execute(
            f"select epoch // 2 as number, count(*) from object_use group by number having count(*) <> {VIDEOS * 4}"
        ).fetchall()
    return [number for (number,) in numbers], uses


@contextmanager
def committing(catalog: Catalog) -> Iterator[list[int]]:
    """A thread that commits events 1, 2, 3, … one by one, and a large plan now and then; how far it is."""
    row, ids = registered(catalog, VIDEOS)
    done, stop = [0], threading.Event()

    def run() -> None:
        while not stop.is_set():
            number = done[0] + 1
            catalog.add_events([EventRow("hit", count=number, at_s=float(number))])
            catalog.flush()
            done[0] = number
            if number % 40 == 1 and number // 40 < 5:
                catalog.record_plan(plan(catalog, row, ids, number // 40))

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run)
        try:
            yield done
        finally:
            stop.set()
            going.result()


def test_a_snapshot_shows_one_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was committed before it was asked for, nothing without what came before, plans whole or not at all."""
    monkeypatch.setattr(snapshot, "LOG_BYTES", 100_000)
    with Catalog.open(folder) as catalog, committing(catalog) as done:
        for turn in range(25):
            before = done[0]
            path = catalog.publish_snapshot() if turn % 5 == 4 else read_snapshot(folder)
            numbers, torn = shown(path)
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) >= before
            assert torn == []


def test_many_who_ask_at_once(folder: Path, tmp_path: Path) -> None:
    """Each gets what was committed before it asked, though one copy serves several."""
    with Catalog.open(folder) as catalog, committing(catalog) as done, ThreadPoolExecutor(6) as pool:

        def ask(turn: int) -> None:
            before, mine = done[0], tmp_path / f"{turn}.duckdb"
            shutil.copyfile(read_snapshot(folder), mine)  # DuckDB shares one file's pages among all of a process
            assert len(shown(mine)[0]) >= before

        list(pool.map(ask, range(40)))


def test_a_clock_that_is_set_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot dated in the future is not taken for a new one, nor is the next one waited for in vain."""
    clock = SimpleNamespace(**vars(time))
    monkeypatch.setattr(snapshot, "time", clock)
    with Catalog.open(folder) as catalog:
        for number in range(1, 6):
            catalog.add_events([EventRow("hit", count=number, at_s=float(number))])
            catalog.flush()
            monkeypatch.setattr(clock, "time_ns", lambda hours=number: time.time_ns() - hours * 3_600 * 10**9)
            assert len(shown(read_snapshot(folder))[0]) == number


def test_the_log_is_folded_when_it_is_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anybody asking; DuckDB does not do it by itself, in the middle of a copy."""
    monkeypatch.setattr(snapshot, "LOG_BYTES", 200_000)
    log = CatalogFiles(folder).log
    with Catalog.open(folder) as catalog:
        for number in range(3000):
            catalog.add_events([EventRow("hit", detail="x" * 200, at_s=float(number))])
        catalog.flush()
        until(lambda: not log.exists() or log.stat().st_size < 200_000, "the log to be folded")
        assert len(shown(catalog.publish_snapshot())[0]) == 3000


def test_duckdb_never_folds_by_itself(folder: Path) -> None:
    """Not after 20 MB of log, which is more than it would keep; a copy beside such a commit would be torn."""
    database = open_catalog(folder, create=False, writable=True, wait_s=0.0, memory_bytes=1 << 30)
    try:
        before = CatalogFiles(folder).database.read_bytes()
        for number in range(40):
            with database.engine.transaction() as session:
                session.run("write_setting", {"name": f"s{number}", "value": "x" * 600_000})
        assert CatalogFiles(folder).log.stat().st_size > 20e6
        assert CatalogFiles(folder).database.read_bytes()[: len(before)] == before
    finally:
        database.close()


def test_something_is_in_the_way_of_a_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a long query is: commits go on, and the snapshot comes when it has ended, or is given up in the end."""
    database = open_catalog(folder, create=False, writable=True, wait_s=0.0, memory_bytes=1 << 30)
    with Catalog(database, writable=True) as catalog, ThreadPoolExecutor(1) as pool:
        with database.engine.transaction() as session:
            session.run("write_setting", {"name": "held", "value": "1"})
            published = pool.submit(catalog.publish_snapshot)
            for number in range(1, 20):
                catalog.add_events([EventRow("hit", count=number, at_s=float(number))])
                catalog.flush(timeout_s=20)
            assert not published.done()
        assert shown(published.result())[0] == list(range(1, 20))
        monkeypatch.setattr(snapshot, "FOLD_LIMIT_S", 0.1)
        with database.engine.transaction() as session:
            session.run("write_setting", {"name": "held", "value": "2"})
            with pytest.raises(errors.Timeout, match="no checkpoint within"):
                catalog.publish_snapshot()


@pytest.fixture
def slow_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `cp` that waits for a file ``go``; its folder, where it writes a line to ``begun`` each time."""
    folder = tmp_path / "bin"
    folder.mkdir()
    wait = f"while [ ! -e {folder}/go ]; do sleep 0.01; done"
    (folder / "cp").write_text(f'#!/bin/sh\necho >> {folder}/begun\n{wait}\nexec {shutil.which("cp")} "$@"\n')
    (folder / "cp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_closing_does_not_wait_for_a_copy(folder: Path, slow_copy: Path) -> None:
    """It is ended; who publishes is told, nothing is left of it, and commits went on beside it."""
    with ThreadPoolExecutor(1) as pool:
        with Catalog.open(folder) as catalog:
            published = pool.submit(catalog.publish_snapshot)
            until((slow_copy / "begun").exists, "the copy to begin")
            catalog.add_events([EventRow("hit", count=1)])
            catalog.flush(timeout_s=20)
        with pytest.raises(errors.Closed):
            published.result()
    assert not CatalogFiles(folder).snapshot.exists()
    assert not list(folder.glob("*.tmp"))


def test_a_database_that_is_opened_again_meanwhile(folder: Path, slow_copy: Path) -> None:
    """What was copied then may be torn, so it is copied again."""
    database = open_catalog(folder, create=False, writable=True, wait_s=0.0, memory_bytes=1 << 30)
    upkeep = snapshot.Upkeep(database.engine, CatalogFiles(folder), lambda work: work())
    try:
        with ThreadPoolExecutor(1) as pool:
            published = pool.submit(upkeep.publish)
            until((slow_copy / "begun").exists, "the copy to begin")
            database.engine.reopen()
            (slow_copy / "go").touch()
            assert shown(published.result()) == ([], [])
        assert (slow_copy / "begun").read_text() == "\n\n"
    finally:
        upkeep.close()
        database.close()


def broken_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``cp`` that finds no room, until the file is removed that comes back."""
    bin_ = folder.parent / "bin"
    bin_.mkdir()
    cp, full = shutil.which("cp"), bin_ / "full"
    full.touch()
    said = "cp: error writing: No space left on device"
    (bin_ / "cp").write_text(f'#!/bin/sh\nif [ -e {full} ]; then echo "{said}" >&2; exit 1; fi\nexec {cp} "$@"\n')
    (bin_ / "cp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    return full


def test_what_is_noted_before_a_snapshot_is_in_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And where noting it fails, the snapshot is made all the same, and the log says so."""
    with Catalog.open(folder) as catalog:
        catalog.before_snapshots(lambda: catalog.add_events([EventRow("hit", count=1, at_s=1.0)]))
        assert shown(read_snapshot(folder))[0] == [1]

        def fails() -> None:
            raise OSError("no counter")

        catalog.before_snapshots(fails)
        assert shown(read_snapshot(folder))[0] == [1]
    assert "a snapshot lacks what was to be noted before: no counter" in caplog.text


@pytest.mark.logs_a_traceback
@pytest.mark.parametrize("place", ["before", "checkpoint", "commit"])
def test_a_mistake_of_ours_is_logged_with_its_traceback(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The words of an error that nobody expects would not say where it was."""

    def fails(*_: object) -> None:
        raise ZeroDivisionError(place)

    def is_told() -> bool:
        return any(each.exc_info and each.exc_info[0] is ZeroDivisionError for each in caplog.records)

    with Catalog.open(folder) as catalog, monkeypatch.context() as patch:
        if place == "before":
            catalog.before_snapshots(fails)
        elif place == "checkpoint":
            patch.setattr(DuckEngine, "checkpoint", fails)
        else:
            patch.setattr(Pending, "write", fails)
            catalog.add_events([EventRow("hit", count=1, at_s=1.0)])
        CatalogFiles(folder).request.touch()
        until(is_told, "the traceback", lambda: caplog.text)


def test_a_snapshot_that_cannot_be_made_is_told_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks an owner whose disk is full learns that, and where, each time; once there is room it has a snapshot."""
    full = broken_copy(folder, monkeypatch)
    with Catalog.open(folder):
        for _ in range(2):
            with pytest.raises(
                errors.Full, match=rf"no snapshot of {folder}.*No space left.* are free where {folder} lies"
            ):
                read_snapshot(folder, 60.0)
        full.unlink()
        assert shown(read_snapshot(folder, 60.0)) == ([], [])
        assert not CatalogFiles(folder).refusal.exists()


def test_a_refusal_that_finds_no_room_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes not even the reason: an empty file says it."""
    broken_copy(folder, monkeypatch)

    with Catalog.open(folder):
        fresh = CatalogFiles(folder).refusal.with_suffix(".tmp")
        written = Path.write_text

        def write_text(path: Path, text: str) -> int:
            if path != fresh:
                return written(path, text)
            path.touch()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_text", write_text)
        with pytest.raises(errors.Full, match=rf"no snapshot of {folder}: the disk is full, \d+ bytes are free"):
            read_snapshot(folder, 60.0)


def test_other_reasons_keep_their_kind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps a checkpoint away is a timeout for who asked, and what is broken is broken."""
    for error in (errors.Timeout("no checkpoint"), errors.CatalogDamaged("torn")):
        with Catalog.open(folder), monkeypatch.context() as patch:

            def fail(_: object, error: errors.ViewcacheError = error) -> None:
                raise error

            patch.setattr(DuckEngine, "checkpoint", fail)
            expected = errors.Timeout if isinstance(error, errors.Timeout) else errors.Broken
            with pytest.raises(expected, match=str(error)):
                read_snapshot(folder, 60.0)


def test_asking_an_owner_that_closes_just_then(folder: Path) -> None:
    """Who asked is neither refused nor left to wait: once the owner has gone, the file itself answers."""
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with Catalog.open(folder) as catalog:

            def note() -> None:
                begun.set()
                while True:  # until the catalog is closed
                    catalog.flush()

            catalog.before_snapshots(note)
            catalog.add_events([EventRow("hit", count=1)])
            asked = pool.submit(run_query, folder, 'select "count" from events', wait_s=60.0)
            assert begun.wait(60)
        assert asked.result().source == "file"
        assert asked.result().table()["count"].to_pylist() == [1]


@pytest.mark.parametrize("copied", [False, True], ids=["query", "copy"])
def test_an_owner_that_goes_without_an_answer(folder: Path, tmp_path: Path, *, copied: bool) -> None:
    """The file itself is read as soon as the owner has let go, long before the wait would end in vain."""
    (into := tmp_path / "copy").mkdir()

    def ask() -> str:
        if copied:
            assert copy_catalog(str(folder), into)
            return run_query(into, "select 1").source
        return run_query(folder, "select 1", wait_s=60.0).source

    with OwnerLock(CatalogFiles(folder).lock, exclusive=True) as lock, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        until(CatalogFiles(folder).request.exists, "the question")
        lock.release()
        assert asked.result() == "file"
    assert not CatalogFiles(folder).snapshot.exists()
