"""Every SQL file is well formed, documented, and gives equal results on both databases."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.catalog.samples import copy, draws, plan, registered, select
from viewcache import errors
from viewcache.catalog import Catalog, statements, views
from viewcache.catalog.engine import Session, arrow_schema, handed_over
from viewcache.catalog.opening import Opened
from viewcache.catalog.records import EventRow, ProgressRow, UsageRow
from viewcache.materializer.planning.digests import record_orders

SQL = Path(statements.__file__).resolve().parent / "sql"
VALUES: dict[str, object] = {"bigint": 1, "integer": 1, "double": 1.5, "text": "x"}


@pytest.mark.parametrize("dialect", statements.DIALECTS)
@pytest.mark.parametrize("name", statements.names())
def test_every_statement_is_documented(name: str, dialect: str) -> None:
    """A purpose in words, and types for all that goes in and comes out."""
    statement = statements.load(name, dialect)
    assert statement.purpose.endswith(".")
    first = statement.text.split(None, 1)[0].lower()
    assert first in {"select", "insert", "update", "delete", "with"}
    gives_rows = first in {"select", "with"} or "returning" in statement.text
    assert bool(statement.columns) == gives_rows


def test_every_statement_runs_on_both(database: Opened) -> None:
    """With no rows given and any parameters; what comes back has the declared columns and types."""
    for name in statements.names():
        statement = statements.load(name, database.engine.dialect)
        with database.engine.transaction() as session:
            found = _run_empty(statement, session)
        assert found == arrow_schema(statement.columns), name


def _run_empty(statement: statements.Statement, session: Session) -> pa.Schema:
    parameters = {parameter.name: VALUES[parameter.type] for parameter in statement.parameters}
    given = arrow_schema(statement.given.columns).empty_table() if statement.given else None
    return session.run(statement.name, parameters, given).schema


def test_no_file_lies_about() -> None:
    """Each view's file is created, each dialect's file stands for a statement or view, nothing else is there."""
    folders = {path.parent.relative_to(SQL).as_posix() for path in SQL.rglob("*.sql")}
    assert folders <= {
        f"{kind}{dialect}" for kind in ("queries", "views") for dialect in ("", "/duckdb", "/postgresql")
    } | {"policies", "new"}
    assert {path.stem for path in (SQL / "views").rglob("*.sql")} == set(views.ORDER)


def test_every_statement_is_used() -> None:
    """SQL that nobody names is dead code."""
    room = SQL.parent
    rooms = (*room.glob("*.py"), *room.parent.glob("materializer/**/*.py"), *room.parent.glob("api/**/*.py"))
    source = "".join(path.read_text() for path in rooms)
    assert [name for name in statements.names() if f'"{name}"' not in source] == []


def test_views_have_the_documented_columns_on_both(catalog: Catalog) -> None:
    """The header of a view's file is what people may rely on."""
    found = select(
        catalog,
        "select table_name, column_name from information_schema.columns "
        "where table_schema in ('main', 'public') order by ordinal_position",
    )
    for name in views.ORDER:
        declared = [column for column, _ in views.read_view(name, catalog.dialect).columns]
        assert [column for view, column in found if view == name] == declared, name


def _rows(catalog: Catalog) -> dict[str, list[tuple[object, ...]]]:
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    catalog.record_plan(given)
    catalog.record_draws(draws(row, 0, ids))
    record_orders(catalog, "train", row.task_id, 7, range(1, 2), np.array(ids))
    catalog.mark_ready([copy(5), copy(6, bytes=50), copy(1)])
    catalog.flush()
    catalog.mark_evicted({6: "read longest ago"}, "lru", tier="local")
    catalog.hold([7], holder="worker 1", expires_at=50.0)
    catalog.advance(ProgressRow(row.task_id, 0, 0, 1, 1, 0.5))
    catalog.add_events([EventRow("error", object_id=8, detail="bad_video: torn", at_s=10.0)])
    catalog.add_usage([UsageRow("worker", "decode", 0.5, None, 2.5, "estimate", 1000.0)])
    catalog.flush()
    ignore = {"evictions": "at_s", "generations": "planned_at"}
    found = {}
    for name in views.ORDER:
        columns = [c for c, _ in views.read_view(name, catalog.dialect).columns if c != ignore.get(name)]
        found[name] = sorted(select(catalog, f"select {', '.join(columns)} from {name}"), key=repr)
    return found


def test_views_show_the_same_on_both(folder: Path, empty_database: str) -> None:
    """A question asked of either database has one answer."""
    with Catalog.open(folder) as here, Catalog.open(empty_database) as there:
        mine, theirs = _rows(here), _rows(there)
    assert mine == theirs
    assert [name for name, rows in mine.items() if not rows] == [
        "images",
        "video_columns",
        "substitutions",
        "io_samples",
        "policies",
        "tiers",
        "packs",
    ]


def test_object_states(catalog: Catalog) -> None:
    """The lettered diagram of docs/catalog.md: each state is derived from a copy, a lease, an error or an eviction."""
    _rows(catalog)
    states = select(catalog, "select state from objects where object_id between 5 and 9 order by object_id")
    assert [state for (state,) in states] == ["ready", "evicted", "claimed", "failed", "planned"]
    catalog.mark_ready([copy(i) for i in range(5, 10)])
    catalog.flush()
    assert select(catalog, "select count(*) from objects where state = 'ready' and object_id >= 5") == [(5,)]


def test_frames_of_regular_and_listed_objects(catalog: Catalog) -> None:
    """People ask for single frames, whichever way an object names its own."""
    row, ids = registered(catalog, 1)
    catalog.record_plan(plan(catalog, row, ids, epochs=1))
    found = select(catalog, "select kind, ordinal, frame from frames order by object_id, ordinal")
    assert found == [
        ("frames", 0, 0),
        ("frames", 1, 5),
        ("frames", 2, 9),
        ("clip", 0, 0),
        ("clip", 1, 2),
        ("clip", 2, 4),
        ("clip", 0, 1),
        ("clip", 1, 3),
        ("clip", 2, 5),
    ]


def test_views_count_what_is_ready(catalog: Catalog) -> None:
    """A batch's row says its path, how many clips it has and how many of them are there."""
    row, ids = registered(catalog)
    given = plan(catalog, row, ids)
    catalog.record_plan(given)
    first = [use["object_id"] for use in given.uses.to_pylist() if use["seq"] == 0]
    catalog.mark_ready([copy(object_id) for object_id in first[:3]])
    catalog.flush()
    found = select(catalog, "select path, clips, ready, bytes from views where epoch = 0 order by iteration")
    assert found == [("view://train/0/0/view", 4, 3, 300), ("view://train/0/1/view", 4, 0, 0)]


def test_given_rows_must_fit() -> None:
    """A statement with missing rows or columns is a mistake of ours, named as one."""
    statement = statements.load("delete_copies", "duckdb")
    with pytest.raises(errors.Misuse, match="needs the rows of gone"):
        handed_over(statement, None)
    with pytest.raises(errors.Misuse, match="takes \\['object_id', 'tier'\\]"):
        handed_over(statement, pa.table({"object_id": [1]}))
