"""Read-only SQL from any process: what it shows, what it refuses, and what it may use."""

import hashlib
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.catalog.conftest import database_url
from tests.catalog.samples import copy, execute, plan, registered
from viewcache import errors
from viewcache.catalog import Catalog, QueryLimits, readonly, run_queries, run_query, snapshot
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.lock import OwnerLock

COUNT = "select kind, state, count(*) as n, sum(bytes) as bytes from objects group by all order by all"

HOSTILE = """
delete from object
insert into setting values ('a', 'b')
update task set name = 'x'
drop table object
create table mine (a int)
create temp table mine (a int)
alter table object add column a int
truncate object
merge into setting using setting s on false when not matched then insert values ('a', 'b')
with d as (delete from object returning *) select * from d
with d as (insert into setting values ('a', 'b') returning *) select * from d
explain analyze delete from object
explain analyze select 1
explain (analyze) select 1
/* select */ explain analyze select 1
select 1; delete from object
select 1; select 2
begin
commit
rollback
checkpoint
vacuum
analyze
pragma enable_object_cache
call force_checkpoint()
set threads = 1
set variable a = 1
reset threads
use memory
attach ':memory:' as m
attach '/tmp/x.duckdb' as m
detach catalog
copy object to '/tmp/stolen.csv'
copy object from '/etc/passwd'
export database '/tmp/stolen'
import database '/tmp/stolen'
install httpfs
load httpfs
create secret s (type s3)
prepare p as select 1
execute p
deallocate p
comment on table object is 'x'
select nextval('s')
select * from read_csv('/etc/passwd')
select * from read_text('/etc/passwd')
select * from read_blob('/proc/self/environ')
select * from read_parquet('https://example.org/x.parquet')
select * from glob('/etc/*')
select * from '/etc/passwd'
from '/etc/passwd'
select * from sqlite_scan('/tmp/x', 'y')
select * from postgres_scan('host=/tmp', 'public', 'task')
select * from query('delete from object')
select getenv('HOME')
select * from task where
select * from nothing
selec 1
--
;
pivot object on kind using count(*)
""".strip().splitlines()


@pytest.fixture
def filled(folder: Path) -> Path:
    """A catalog with a plan and three copies, that nobody owns."""
    with Catalog.open(folder) as catalog:
        row, ids = registered(catalog)
        catalog.record_plan(plan(catalog, row, ids))
        catalog.mark_ready([copy(i) for i in (1, 5, 6)])
    return folder


def _digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_catalog_that_nobody_owns(filled: Path) -> None:
    """It is shown as it is, from a copy: nothing in the folder changes."""
    before = _digest(filled)
    result = run_query(filled, COUNT)
    assert result.source == "file"
    assert result.columns == ("kind", "state", "n", "bytes")
    assert [tuple(row.values()) for row in result.table().to_pylist()] == [
        ("clip", "planned", 14, None),
        ("clip", "ready", 2, 200),
        ("frames", "planned", 3, None),
        ("frames", "ready", 1, 100),
    ]
    assert _digest(filled) == before


def test_what_only_the_log_holds_is_shown(filled: Path) -> None:
    """After a kill the newest rows are in the log; a query sees them."""
    code = (
        "import os, sys; from tests.catalog.samples import copy; from viewcache.catalog import Catalog\n"
        "c = Catalog.open(sys.argv[1]); c.mark_ready([copy(7)]); c.flush(); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(filled)], timeout=60, check=False)
    assert CatalogFiles(filled).log.exists()
    assert run_query(filled, "select count(*) as n from copies").table()["n"].to_pylist() == [4]


def test_a_catalog_that_is_owned(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a young snapshot, one taken after the question was asked is shown; it says when that was."""
    monkeypatch.setattr(readonly, "REUSED_S", 0.0)
    with Catalog.open(filled) as catalog:
        for i in (7, 8):
            catalog.mark_ready([copy(i)])
            asked = time.time()
            catalog.flush()
            result = run_query(filled, "select count(*) as n from copies")
            assert result.source == "snapshot"
            assert result.as_of_s >= asked
            assert result.table()["n"].to_pylist() == [i - 3]


def test_a_young_snapshot_answers_again(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second question costs the owner no copy; an old one is not shown, nor one from the future."""
    ask = "select count(*) as n from copies"
    published = CatalogFiles(filled).snapshot
    with Catalog.open(filled) as catalog:
        first = run_query(filled, ask)
        (count,) = first.table()["n"].to_pylist()
        # The reader's clock is set by the snapshot's own time: how long the test takes changes no age.
        for added, (age_s, anew) in enumerate([(1.9, False), (2.1, True), (-1.0, True)], 1):
            catalog.mark_ready([copy(6 + added)])
            catalog.flush()
            now = published.stat().st_mtime + age_s
            clock = SimpleNamespace(**vars(time) | {"time": partial(float, now)})
            monkeypatch.setattr(snapshot, "time", clock)
            again = run_query(filled, ask)
            assert again.table()["n"].to_pylist() == [count + added if anew else count]
            assert (again == first) is not anew


def test_nobody_answers(filled: Path) -> None:
    """An owner that hangs is a Timeout, not a hang."""
    hangs = OwnerLock(CatalogFiles(filled).lock, exclusive=True)
    with hangs, pytest.raises(errors.Timeout, match="does its owner still run"):
        run_query(filled, "select 1", wait_s=0.05)


def test_no_catalog(tmp_path: Path) -> None:
    """The folder is named."""
    with pytest.raises(errors.NotFound, match=str(tmp_path)):
        run_query(tmp_path, "select 1")


def test_a_query_does_not_keep_an_owner_out(filled: Path) -> None:
    """While a long query runs, a training run starts at once: the query works on a copy of its own."""
    slow = "select count(*) from range(100000) a, range(100000) b where (a.range * b.range) % 7 = 3"
    code = (
        "import sys; from viewcache.catalog import QueryLimits, run_query\n"
        f"run_query(sys.argv[1], {slow!r}, QueryLimits(seconds=30))"
    )
    query = subprocess.Popen([sys.executable, "-c", code, str(filled)], stderr=subprocess.DEVNULL)
    try:
        Catalog.open(filled, wait_s=5).close()
    finally:
        query.kill()
        query.wait()


@pytest.mark.parametrize("sql", HOSTILE)
def test_hostile_sql_is_refused(filled: Path, sql: str) -> None:
    """Nothing but one SELECT: no write, no file, no network, no setting; and the catalog is untouched (law 10)."""
    before = _digest(filled)
    with pytest.raises(errors.QueryRefused):
        run_query(filled, sql)
    assert _digest(filled) == before


def test_a_failed_query_is_told_alone(filled: Path) -> None:
    """Of an owned catalog a snapshot is read: that another lock is held is not told with a query that is wrong."""
    with Catalog.open(filled) as catalog:
        catalog.publish_snapshot()
        with pytest.raises(errors.QueryRefused) as refused:
            run_query(filled, "select nothing_like_it from tasks")
    chain: list[BaseException | None] = [refused.value]
    while chain[-1] is not None:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    assert not any(isinstance(each, errors.CatalogBusy) for each in chain)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select 1", 1),
        ("  select 'ü; --' as x -- a comment", 1),
        ("/* why not */ with a as (select 1) select * from a;", 1),
        ("from tasks", 1),
        ("explain select * from tasks", 1),
        ("describe objects", 18),
        ("summarize tasks", 15),
        ("select * from tasks where false", 0),
        ("values (1), (2)", 2),
    ],
)
def test_questions_are_answered(filled: Path, sql: str, rows: int) -> None:
    """Whatever only reads."""
    assert run_query(filled, sql).table().num_rows == rows


def test_rows_are_cut_off(filled: Path) -> None:
    """A large answer is short and says so."""
    result = run_query(filled, "select * from range(100000)", QueryLimits(rows=5000))
    assert result.truncated
    assert result.table().num_rows == 5000
    wide = run_query(filled, "select repeat('x', 1000) from range(100000)", QueryLimits(rows=10**6, result_bytes=10**7))
    assert wide.truncated
    assert len(wide.arrow) < 1.5e7
    assert not run_query(filled, "select * from range(5000)", QueryLimits(rows=5000)).truncated


def test_several_questions_share_a_process(filled: Path) -> None:
    """Each has its own columns, rows and cut; one that is refused ends all, and nothing is taken from another's."""
    queries = ["select 7 as a, 'x' as b", "select * from range(100)", "select 1 as none where false"]
    one, many, none = run_queries(filled, queries, QueryLimits(rows=10))
    assert one.table().to_pylist() == [{"a": 7, "b": "x"}]
    assert (one.columns, one.truncated) == (("a", "b"), False)
    assert (many.table()["range"].to_pylist(), many.truncated) == (list(range(10)), True)
    assert (none.table().num_rows, none.columns) == (0, ("none",))
    assert run_queries(filled, []) == []
    for wrong in ("delete from object", "select 1; select 2", "select nonsense"):
        with pytest.raises(errors.QueryRefused):
            run_queries(filled, ["select 1", wrong, "select 2"])


@pytest.mark.parametrize(
    "sql",
    [
        "select list_sort(range(200000000))",
        "select lpad('x', 2000000000, 'y')",
        "select sum(a.range * b.range) from range(10000000) a, range(10000000) b",
        "with recursive r(i) as (select 1 union all select i + 1 from r) select count(*) from r",
    ],
)
def test_greedy_queries_are_stopped(filled: Path, sql: str) -> None:
    """Time and memory are bounded, whatever DuckDB thinks of its own limits."""
    started = time.monotonic()
    with pytest.raises(errors.QueryRefused):
        run_query(filled, sql, QueryLimits(seconds=1.0, memory_bytes=512 << 20))
    assert time.monotonic() - started < 8


def test_modules_beside_the_user_are_not_loaded(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file named duckdb.py in the folder that somebody stands in is not code of ours."""
    (tmp_path / "duckdb.py").write_text("open('loaded', 'w')")
    monkeypatch.chdir(tmp_path)
    assert run_query(filled, "select 1").table().num_rows == 1
    assert not os.path.exists("loaded")


@pytest.fixture
def reader(empty_database: str) -> str:
    """URL of a filled PostgreSQL catalog for a role that may only SELECT."""
    with Catalog.open(empty_database) as catalog:
        row, ids = registered(catalog)
        catalog.record_plan(plan(catalog, row, ids))
    if not execute(empty_database, "select 1 from pg_roles where rolname = 'looker'"):
        execute(empty_database, "create role looker login")
    execute(empty_database, "grant select on all tables in schema public to looker")
    name = empty_database.partition("?")[0].rpartition("/")[2]
    return database_url(empty_database, name).replace("postgres:@", "looker:@", 1)


def test_postgresql_answers_live(reader: str) -> None:
    """The same door, without a snapshot."""
    result = run_query(reader, "select kind, count(*) as n from objects group by kind order by kind;")
    assert result.source == "postgresql"
    assert result.table().to_pylist() == [{"kind": "clip", "n": 16}, {"kind": "frames", "n": 4}]
    assert run_query(reader, "explain select 1").table().num_rows == 1
    assert run_query(reader, "select generate_series(1, 50)", QueryLimits(rows=10)).truncated
    assert run_query(reader, "select 1 as a where false").table().num_rows == 0
    several = run_queries(reader, ["select 1 as a", "explain select 1", "select 2 as b;"])
    assert [result.columns for result in several] == [("a",), ("QUERY PLAN",), ("b",)]
    with pytest.raises(errors.QueryRefused):
        run_queries(reader, ["select 1", "delete from object"])


@pytest.mark.parametrize(
    "sql",
    [
        "delete from object",
        "with d as (delete from object returning *) select * from d",
        "select 1; delete from object",
        "commit; delete from object",
        "explain analyze select 1",
        "explain (analyze) delete from object",
        "copy object to '/tmp/stolen'",
        "create table mine (a int)",
        "select pg_read_file('/etc/passwd')",
        "select lo_import('/etc/passwd')",
        "select set_config('transaction_read_only', 'off', false)",
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()",
        'select 1 limit "pg_cancel_backend"(0)::int',
        """select U&"pg\\005fterminate_backend"(0)""",
        "select query_to_xml('select pg_terminate_backend(0)', true, true, '')",
        "select pg_advisory_lock(1)",
        "select 1 into mine",
        "select * from object for update",
        "set role postgres",
        "select pg_sleep(30)",
        "",
    ],
)
def test_hostile_sql_on_postgresql_is_refused(reader: str, sql: str) -> None:
    """A read-only transaction, a cursor that takes only SELECT, and a role that may no more."""
    with pytest.raises(errors.QueryRefused):
        run_query(reader, sql, QueryLimits(seconds=2))
    assert run_query(reader, "select count(*) as n from objects").table()["n"].to_pylist() == [20]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("update task set name = 'x'", "this is UPDATE; the catalog can be read only: send one SELECT"),
        (" \n drop table object;", "this is DROP; .*send one SELECT"),
        ("explain (analyze) delete from object", "this is EXPLAIN with options; "),
        ("select 1,\n  from from object", r'at or near "from"\nLINE 2:   from from object\n {10}\^'),
        ("select 1\n" + ", 1\n" * 7 + ", , 1 from object", r'\nLINE 9:  , , 1 from object\n {11}\^'),
        ("select $task ! from object", r'\nLINE 1: select \$1 ! from'),
        ("explain select nothing from object", r'\nLINE 1: explain select nothing from object\n'),
    ],
)  # fmt: skip
def test_a_refusal_on_postgresql_shows_the_query_alone(reader: str, sql: str, words: str) -> None:
    """Not the cursor that it is put into; what is no SELECT is told as on DuckDB."""
    with pytest.raises(errors.QueryRefused, match=f"(?s){words}") as refused:
        run_queries(reader, ["select 1", sql], parameters={"task": 1} if "$task" in sql else None)
    assert "declare" not in str(refused.value)


def test_the_owners_sessions_cannot_be_ended(reader: str) -> None:
    """Whoever may ask as the owner's role could end the owner's sessions, in a read-only transaction too."""
    import psycopg

    with psycopg.connect(reader, application_name="the owner", autocommit=True) as owner:
        sql = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'the owner'"
        with pytest.raises(errors.QueryRefused, match="pg_terminate_backend"):
            run_query(reader, sql)
        assert owner.execute("select 1").fetchone() == (1,)


def test_a_superuser_is_refused(empty_database: str) -> None:
    """No transaction mode binds a superuser, so the door asks for another role."""
    with pytest.raises(errors.QueryRefused, match="superuser"):
        run_query(empty_database, "select 1")


def _of_release(where: str, revision: str) -> None:
    sql = f"update alembic_version set version_num = '{revision}'"
    if where.startswith("postgresql"):
        execute(where, sql)
    else:
        with duckdb.connect(str(CatalogFiles(Path(where)).database)) as connection:
            connection.execute(sql)


@pytest.mark.parametrize("database", ["filled", "reader"])
@pytest.mark.parametrize(("revision", "cure"), [("0013", "run `viewcache db upgrade`"), ("9999", "upgrade viewcache")])
def test_a_name_that_another_release_has_not_is_its_revision(
    request: pytest.FixtureRequest, database: str, revision: str, cure: str
) -> None:
    """What a catalog of another release has is answered; for what it has not its revision is told, with the cure."""
    where = str(request.getfixturevalue(database))
    missing = ["select nothing from objects", "select * from nothing", "select nothing.epoch from objects o"]
    for sql in missing:
        with pytest.raises(errors.QueryRefused):
            run_query(where, sql)
    _of_release(where.replace("looker:@", "postgres:@", 1), revision)
    assert run_query(where, "select count(*) as n from objects").table()["n"].to_pylist() == [20]
    place = "of the PostgreSQL database" if database == "reader" else where
    for sql in missing:
        with pytest.raises(errors.CatalogVersion, match=re.escape(f"catalog {place} ") + f".*{cure}"):
            run_queries(where, ["select 1", sql])
    for sql in ("selec 1", "select 1 / 'a'::int"):
        with pytest.raises(errors.QueryRefused):
            run_query(where, sql)


def test_who_may_not_see_the_revision_is_told_of_the_name(reader: str) -> None:
    """A role that has rights on the public relations alone is told what PostgreSQL said."""
    postgres = reader.replace("looker:@", "postgres:@", 1)
    _of_release(postgres, "0013")
    execute(postgres, "revoke select on alembic_version from looker")
    with pytest.raises(errors.QueryRefused, match="nothing"):
        run_query(reader, "select nothing from objects")


def test_snapshots_of_postgresql_do_not_exist(empty_database: str) -> None:
    """There people read the database itself."""
    with Catalog.open(empty_database) as catalog, pytest.raises(errors.Misuse, match="connect to PostgreSQL"):
        catalog.publish_snapshot()


def test_frames_of_many_objects_fit_in_little_memory(folder: Path) -> None:
    """Asking for frames takes memory by objects, not by frames: 3,200,000 of them, in a tenth of the usual limit."""
    clips, videos = 100_000, 2_000
    with Catalog.open(folder) as catalog:
        _, ids = registered(catalog, videos)
        first = catalog.next_object_id(clips)
        catalog.record_objects(
            pa.table(
                {
                    "object_id": np.arange(first, first + clips),
                    "key": [f"{k:032x}" for k in range(clips)],
                    "kind": ["clip"] * clips,
                    "video_id": np.resize(ids, clips),
                    "depth": np.ones(clips, np.int32),
                    "est_bytes": np.ones(clips, np.int64),
                    "cost_s": np.ones(clips),
                    "keep": np.ones(clips, bool),
                    "shape": ["32x3x8x8"] * clips,
                    "frame_start": np.arange(clips, dtype=np.int32) * 37 % 239,
                    "frame_stride": np.full(clips, 2, np.int32),
                    "frame_count": np.full(clips, 32, np.int32),
                    "frame_list": pa.nulls(clips, pa.list_(pa.int32())),
                }
            )
        )
        catalog.mark_ready([copy(k) for k in range(first, first + 1000)])
    limits = QueryLimits(memory_bytes=100 << 20)
    ready, runs, one = run_queries(
        folder,
        [
            "select ready, count(*) as frames from frames group by ready order by ready",
            "select sum(frames * objects) as shown from frame_runs",
            "select count(*) as frames from frames where video = '7'",
        ],
        limits,
    )
    assert ready.table()["frames"].to_pylist() == [32 * (clips - 1000), 32 * 1000]
    assert runs.table()["shown"].to_pylist() == [32 * clips]
    assert one.table()["frames"].to_pylist() == [32 * clips // videos]
