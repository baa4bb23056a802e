"""The one writer: order, batching, lost databases, full disks, closed and forked handles."""

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import forked
from tests.catalog.samples import copy, draws, execute, plan, registered, select
from tests.scheduling.harness import until
from viewcache import errors
from viewcache.catalog import Catalog
from viewcache.catalog.engine import Session
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.opening import Opened, open_catalog
from viewcache.catalog.records import EventRow, IoSampleRow, ProgressRow
from viewcache.catalog.writer import BUSY_S, LINGER_S, Writer, linger_after


@pytest.fixture
def catalog(database: Opened) -> Iterator[Catalog]:
    """An open, empty catalog over a database that a test may make fail, once on each."""
    with Catalog(database, writable=True) as catalog:
        yield catalog


@pytest.fixture
def writer(database: Opened) -> Iterator[Writer]:
    """A writer alone."""
    writer = Writer(database.engine, None, "writer", database.make_room, lambda: None)
    yield writer
    writer.close()


class Commits:
    """Counts the transactions of a database's writer."""

    def __init__(self, database: Opened, monkeypatch: pytest.MonkeyPatch):
        self.count, self.one = 0, threading.Event()
        engine = database.engine
        transaction = engine.transaction

        @contextlib.contextmanager
        def counted() -> Iterator[Session]:
            with transaction() as session:
                yield session
            self.count += 1
            self.one.set()

        monkeypatch.setattr(engine, "transaction", counted)


def committed_work(catalog: Catalog) -> list[int]:
    """How often each kind of measured work was done, as it is committed."""
    counts: list[int] = catalog.query("read_io_samples")["n"].to_pylist()
    return counts


def test_small_changes_are_committed_without_a_flush(
    database: Opened, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait a moment for company, not for somebody to ask."""
    commits = Commits(database, monkeypatch)
    catalog.mark_ready([copy(1)])
    assert commits.one.wait(10)
    assert catalog.load_copies().num_rows == 1


def test_many_small_changes_are_few_commits(
    database: Opened, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of a whole epoch cost a handful of transactions."""
    commits = Commits(database, monkeypatch)
    for i in range(500):
        catalog.mark_ready([copy(i)])
        catalog.advance(ProgressRow(1, 0, 0, i, i, 0.1))
    catalog.flush()
    assert commits.count < 100
    assert catalog.load_copies().num_rows == 500


@given(commit_s=st.floats(0, 1e3), longer_s=st.floats(0, 1e3))
def test_commits_take_a_part_of_the_time(commit_s: float, longer_s: float) -> None:
    """The longer a commit took, the longer changes gather for the next, and never so long that a kill loses much."""
    waits = linger_after(commit_s)
    assert LINGER_S <= waits <= BUSY_S
    assert waits <= linger_after(commit_s + longer_s)
    assert waits == BUSY_S or commit_s <= (commit_s + waits) / 5 * (1 + 1e-9)


def test_later_changes_see_earlier_ones(catalog: Catalog) -> None:
    """A bulk verb comes after the small changes before it: nothing overtakes."""
    catalog.mark_ready([copy(1)])
    catalog.set_setting("after", "1")
    assert catalog.load_copies().num_rows == 1


def test_plans_do_not_wait_for_statistics(database: Opened, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each read changes is committed once for many changes of plans; other small changes come before these."""
    monkeypatch.setattr("viewcache.catalog.writer.STATISTICS_S", 3600.0)
    commits = Commits(database, monkeypatch)
    for i in range(10):
        catalog.advance(ProgressRow(1, 0, 0, i, i, 0.1))
        catalog.add_io_samples([IoSampleRow("load", 20, "raw", "local", 1, 0.1, 100)])
        catalog.expect_uses({i: 1})
    assert commits.count == 10
    assert not catalog.load_progress(1)
    assert not committed_work(catalog)
    catalog.mark_ready([copy(1)])
    catalog.expect_uses({})
    assert catalog.load_copies().num_rows == 1
    assert not catalog.load_progress(1)
    catalog.flush()
    assert [row.iteration for row in catalog.load_progress(1)] == [9]
    assert committed_work(catalog) == [10]


def test_where_one_process_writes_it_knows_what_was_measured(
    database: Opened, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions ask for costs all the time: on DuckDB no statement answers, and what waits to be committed counts."""
    monkeypatch.setattr("viewcache.catalog.writer.STATISTICS_S", 3600.0)
    loaded = IoSampleRow("load", 20, "raw", "local", 1, 0.5, 100)
    profiled = IoSampleRow("read", 20, "", "local", 8, 1.0, 8 << 20)
    catalog.add_io_samples([loaded])
    catalog.flush()
    catalog.add_io_samples([loaded, replace(loaded, codec="lz4")])
    catalog.record_reads([profiled], "profile", "one")
    catalog.record_reads([profiled], "profile", "two")
    catalog.add_io_samples([loaded])
    asked = list[str]()
    query = database.engine.query

    def noted(name: str, *rest: Any) -> Any:
        asked.append(name)
        return query(name, *rest)

    monkeypatch.setattr(database.engine, "query", noted)
    known = sorted(catalog.load_io_samples(), key=lambda row: row.key)
    alone = catalog.dialect == "duckdb"
    assert asked == ([] if alone else ["read_io_samples"])
    assert [row.n for row in known] == [1, 3 if alone else 2, 8]
    catalog.flush()
    with Catalog(database, writable=False) as other:
        assert sorted(other.load_io_samples(), key=lambda row: row.key) == [
            known[0],
            replace(known[1], n=3, seconds=1.5, bytes=300),
            known[2],
        ]


def test_statistics_do_not_wait_for_ever(database: Opened, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often plans and copies change, they are committed when their time has come."""
    monkeypatch.setattr("viewcache.catalog.writer.STATISTICS_S", 0.2)
    catalog.add_io_samples([IoSampleRow("load", 20, "raw", "local", 1, 0.1, 100)])
    begun, i = time.monotonic(), 0
    while not committed_work(catalog):
        assert time.monotonic() < begun + 20, "each change puts them off"
        catalog.mark_ready([copy(i)])
        catalog.expect_uses({i: 1})
        i += 1


def test_threads_may_write_at_once(catalog: Catalog) -> None:
    """Eight threads, every change kept, every block of ids its own."""
    with ThreadPoolExecutor(8) as pool:
        starts = list(pool.map(lambda _: catalog.next_object_id(10), range(40)))
        list(pool.map(lambda i: catalog.mark_ready([copy(i)]), range(200)))
    catalog.flush()
    assert len({start // 10 for start in starts}) == 40
    assert catalog.load_copies().num_rows == 200


def test_a_refused_change_leaves_the_others(database: Opened, writer: Writer) -> None:
    """One caller's mistake rolls back that caller's transaction alone."""
    writer.note(lambda pending: pending.mark_ready([copy(1)]))

    def half(session: Session) -> None:
        session.run("write_setting", {"name": "half", "value": "1"})
        raise errors.BadInput("a mistake")

    with pytest.raises(errors.BadInput, match="a mistake"):
        writer.call(half)
    assert database.engine.query("read_setting", {"name": "half"}).num_rows == 0
    assert database.engine.query("read_copies").num_rows == 1


def test_a_closed_catalog_says_so(where: str) -> None:
    """Reads and writes after close name the cure; closing again is harmless."""
    catalog = Catalog.open(where)
    catalog.close()
    catalog.close()
    for use in (catalog.load_tasks, catalog.flush, lambda: catalog.mark_ready([copy(1)])):
        with pytest.raises(errors.Closed, match="open the cache again"):
            use()


def _try_in_child(catalog: Catalog, told: "multiprocessing.Queue[str]") -> None:
    for use in (catalog.load_tasks, catalog.flush):
        try:
            use()
        except errors.WrongProcess as error:
            told.put(str(error))
    catalog.close()


def test_a_forked_child_is_refused(catalog: Catalog) -> None:
    """A child's writes would be lost and come back as phantom rows; its close closes nothing."""
    context = multiprocessing.get_context("fork")
    told: multiprocessing.Queue[str] = context.Queue()
    child = context.Process(target=_try_in_child, args=(catalog, told))
    child.start()
    for _ in range(2):
        assert f"opened by process {os.getpid()}" in told.get(timeout=20)
    child.join(20)
    assert child.exitcode == 0
    catalog.set_setting("still", "open")


def test_reading_only_writes_nothing(where: str) -> None:
    """A catalog that nobody owns can be looked at by several; writing verbs say how to get to write."""
    with Catalog.open(where) as catalog:
        catalog.set_setting("a", "1")
    with Catalog.open(where, writable=False) as one, Catalog.open(where, writable=False) as two:
        assert one.setting("a") == two.setting("a") == "1"
        with pytest.raises(errors.Misuse, match="writable=True"):
            one.set_setting("a", "2")


def test_a_lost_postgresql_connection_comes_back(empty_database: str) -> None:
    """A server that drops everybody loses nothing that was acknowledged; the next write is committed once."""
    with Catalog.open(empty_database) as catalog:
        sample = IoSampleRow("decode", 1, "h264", "source", 1, 0.5, 10)
        catalog.add_io_samples([sample])
        catalog.flush()
        catalog.load_tasks()
        execute(empty_database, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        catalog.add_io_samples([sample])
        catalog.flush()
        assert select(catalog, "select n from io_samples") == [(2,)]
        assert catalog.load_tasks() == []


FULL_DISK = """
import resource, signal, sys
from tests.catalog.samples import copy
from viewcache import errors
from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow

folder, how = sys.argv[1:]
catalog = Catalog.open(folder)
catalog.add_events([EventRow("hit", detail="before", at_s=1.0)])
catalog.flush()
size = (catalog._opened.layout.database if how == "checkpoint" else catalog._opened.layout.log).stat().st_size
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
if how == "checkpoint":
    catalog.mark_ready([copy(i, physical="x" * 500) for i in range(2000)])
    catalog.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, unlimited[1]))
try:
    if how == "checkpoint":
        catalog.publish_snapshot()
    else:
        catalog.mark_ready([copy(i, physical="x" * 500) for i in range(2000)])
        catalog.add_events([EventRow("hit", detail="during", at_s=2.0)])
        catalog.flush()
    print("no error")
except errors.ViewcacheError as error:
    print(error.kind)
print(catalog.query("count_draws", task_id=1)["drawn"].to_pylist())
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
catalog.add_events([EventRow("hit", detail="after", at_s=3.0)])
catalog.flush()
print(catalog.failure, catalog.load_copies().num_rows)
catalog.close()
"""


@pytest.mark.parametrize("how", ["log", "checkpoint"])
def test_a_full_disk_is_an_error_and_then_is_not(folder: Path, how: str) -> None:
    """Writes fail as `full`, reads go on, nothing is lost or doubled, and all is committed once there is room."""
    done = forked.run(
        [sys.executable, "-c", FULL_DISK, str(folder), how], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["full", "[0]", "None 2000"]
    with Catalog.open(folder) as catalog:
        events = select(catalog, "select detail, count from events order by at_s")
        assert events == [("before", 1)] + [("during", 1)] * (how == "log") + [("after", 1)]


def test_the_reserve_is_freed_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the transaction is tried again with the space that was held back for it."""
    layout = CatalogFiles(folder)
    database = open_catalog(folder, create=False, writable=True, wait_s=0.0, memory_bytes=1 << 30)
    with Catalog(database, writable=True) as catalog:
        assert layout.reserve.stat().st_size == 16 << 20
        engine = database.engine
        transaction = engine.transaction

        def full_while_reserved() -> object:
            if layout.reserve.exists():
                raise errors.Full("no space left")
            return transaction()

        monkeypatch.setattr(engine, "transaction", full_while_reserved)
        catalog.set_setting("a", "1")
        assert catalog.setting("a") == "1"
        assert not layout.reserve.exists()
    Catalog.open(folder).close()
    assert layout.reserve.exists()


@pytest.mark.parametrize("away", [0, 2])
@pytest.mark.parametrize("committed", [False, True])
def test_a_lost_database_is_looked_up(
    database: Opened, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, committed: bool, away: int
) -> None:
    """When a commit fails with the outcome unknown, sums are added once: neither lost nor doubled.

    Also where the database is away for longer than it is waited for, so that what was to be added waits.
    """
    engine = database.engine
    transaction = engine.transaction
    failures = iter([True])

    class Losing:
        def __enter__(self) -> Session:
            self.inner = transaction()
            return self.inner.__enter__()

        def __exit__(self, *exception: object) -> None:
            lose = next(failures, False)
            if lose and not committed:
                error = errors.CatalogDamaged("lost before the commit")
                self.inner.__exit__(type(error), error, None)
            else:
                self.inner.__exit__(None, None, None)
            if lose:
                engine.lost = True
                raise errors.CatalogDamaged("lost")

    reopen, refusals = engine.reopen, iter([True] * away)

    def reopen_later() -> None:
        if next(refusals, False):
            engine.close()  # as far as a real one gets that fails
            raise errors.CatalogBusy("nobody answers")
        reopen()

    monkeypatch.setattr(engine, "transaction", Losing)
    monkeypatch.setattr(engine, "reopen", reopen_later)
    catalog.add_io_samples([IoSampleRow("decode", 1, "h264", "source", 1, 0.5, 10)])
    if away:
        with pytest.raises(errors.CatalogBusy):
            catalog.flush()
        until(lambda: not engine.lost, "it is there again")
        catalog.add_io_samples([IoSampleRow("decode", 1, "h264", "source", 1, 0.5, 10)])
    catalog.flush()
    assert select(catalog, "select n from io_samples") == [(2 if away else 1,)]
    assert not engine.lost


def test_kept_changes_come_before_newer_ones(
    database: Opened, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written waits, and the last word still wins when it can."""
    engine = database.engine
    transaction = engine.transaction

    def failing() -> object:
        raise errors.Full("no space left")

    monkeypatch.setattr(engine, "transaction", failing)
    catalog.mark_ready([copy(1, bytes=1), copy(2)])
    catalog.add_events([EventRow("hit", at_s=5.0)])
    with pytest.raises(errors.Full):
        catalog.flush()
    assert "no space left" in str(catalog.failure)
    catalog.mark_ready([copy(1, bytes=3)])
    catalog.mark_gone([2], "test", tier="local")
    catalog.add_events([EventRow("hit", at_s=5.5)])
    monkeypatch.setattr(engine, "transaction", transaction)
    catalog.flush()
    assert not catalog.failure
    assert catalog.load_copies()["bytes"].to_pylist() == [3]
    assert select(catalog, "select count from events") == [(2,)]


def test_a_flush_does_not_overlook_what_failed_before(
    database: Opened, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer took changes up by itself and failed: a flush that came meanwhile fails too, and so does the next."""
    engine = database.engine
    transaction = engine.transaction
    begun, go_on = threading.Event(), threading.Event()

    def failing() -> object:
        begun.set()
        go_on.wait(30)
        raise errors.Full("no space left")

    monkeypatch.setattr(engine, "transaction", failing)
    writer.note(lambda pending: pending.mark_ready([copy(1)]))
    assert begun.wait(30)
    with ThreadPoolExecutor(1) as pool:
        flush = pool.submit(writer.flush)
        while not writer.waiting():
            pass
        go_on.set()
        with pytest.raises(errors.Full):
            flush.result(30)
    with pytest.raises(errors.Full):
        writer.flush()
    monkeypatch.setattr(engine, "transaction", transaction)
    writer.flush()
    assert engine.query("read_copies").num_rows == 1


def test_waiting_is_bounded(database: Opened, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that gives a limit gets a Timeout, not a hang."""
    release, transaction = threading.Event(), database.engine.transaction

    def slow() -> object:
        release.wait(30)
        return transaction()

    monkeypatch.setattr(database.engine, "transaction", slow)
    catalog.mark_ready([copy(1)])
    try:
        with pytest.raises(errors.Timeout, match=r"within 0\.05 s"):
            catalog.flush(timeout_s=0.05)
    finally:
        release.set()


def test_readers_see_whole_transactions(catalog: Catalog) -> None:
    """While plans are recorded, a reader sees all of one or nothing of it."""
    row, ids = registered(catalog)
    stop = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(catalog.load_use_ids(row.task_id, 0, 99).num_rows)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        sizes = [0]
        for number in range(5):
            given = plan(catalog, row, ids, number)
            catalog.record_plan(given)
            catalog.record_draws(draws(row, number, ids))
            sizes.append(sizes[-1] + given.uses.num_rows)
    finally:
        stop.set()
        reader.join()
    assert seen <= set(sizes)


def test_a_checkpoint_beside_a_transaction(database: Opened) -> None:
    """DuckDB refuses one while another writes: that is no error, and it is to be tried again. PostgreSQL has none."""
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with database.engine.transaction() as session:
            session.run("write_setting", {"name": "held", "value": "1"})
            begun.set()
            end.wait(20)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(hold)
        assert begun.wait(20)
        assert database.engine.checkpoint() is (database.engine.dialect == "postgresql")
        end.set()
        held.result()
        assert database.engine.checkpoint()
