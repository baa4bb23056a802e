"""docs/catalog.md and every query that a page shows, against the database."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.catalog.samples import copy, draws, execute, plan, registered, select
from viewcache.api.config import schema
from viewcache.api.queries.ask import question, questions
from viewcache.catalog import Catalog, run_queries, run_query, views
from viewcache.catalog.records import EventRow, IoSampleRow, ProgressRow, SubstitutionRow, UsageRow
from viewcache.materializer.planning.digests import record_orders

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "catalog.md").read_text("utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
COMMANDS = sorted(
    {sql for page in PAGES for sql in re.findall(r'viewcache sql[^"\n]*"([^"]+)"', page.read_text("utf-8"))}
)


def _fill(catalog: Catalog) -> None:
    """A row at least in every relation that the page asks."""
    row, ids = registered(catalog)
    catalog.record_plan(plan(catalog, row, ids))
    catalog.record_draws(draws(row, 0, ids))
    record_orders(catalog, row.name, row.task_id, 0, range(1, 2), np.array(ids, np.int64))
    catalog.mark_ready([copy(i) for i in range(1, 9)])
    catalog.advance(ProgressRow(row.task_id, 0, 0, 1, 1, 0.5))
    catalog.add_events([EventRow("hit", row.task_id, count=3), EventRow("stall", row.task_id, seconds=0.5)])
    catalog.add_io_samples([IoSampleRow("decode", 10, "raw", "local", 3, 0.5, 3000)])
    catalog.add_usage([UsageRow("worker", "decode", 0.5, 0.5, 2.5, "estimate", 1000.0)])
    catalog.add_substitutions([SubstitutionRow(row.task_id, 0, 1, -1, ids[1], "replace", "torn", ids[0])])
    catalog.flush()


def test_the_page_lists_every_relation() -> None:
    """Each public relation is in the page's first table and has a heading, with a meaning for each column."""
    for name in views.ORDER:
        assert f"[{name}](#{name})" in PAGE
        assert f"\n### `{name}`\n" in PAGE
        view = views.read_view(name, "duckdb")
        assert view.purpose.endswith(".")
        assert all(f"| `{column}` | {meaning} |" in PAGE for column, meaning in view.columns)
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)) == set(views.ORDER)
    assert schema.relation_tables() in PAGE


def test_the_page_has_questions() -> None:
    """The tests below have something to run."""
    assert len(QUERIES) > 5
    assert len(COMMANDS) > 3


def test_every_question_of_the_page_is_answered(catalog: Catalog) -> None:
    """A query can be pasted, on both databases, and says something about a cache that was used."""
    _fill(catalog)
    for query in QUERIES:
        assert select(catalog, query), query


QUESTION_PARAMETERS: dict[str, dict[str, str | int | float]] = {
    "page_batch": {"task": "train", "epoch": 0, "iteration": 0},
    "page_video": {"video_id": 1},
    "page_due": {"in_memory": "-1"},
    "page_tasks": {"in_memory": "8,9"},
    "status_tasks": {"in_memory": "8,9"},
}
"""Values for the shipped questions that take some."""


def test_every_shipped_question_is_answered(catalog: Catalog, where: str) -> None:
    """What `viewcache status`, the page and `top` ask works on both databases, and so do its parameters: as values."""
    _fill(catalog)
    if catalog.dialect == "postgresql":
        if not execute(where, "select 1 from pg_roles where rolname = 'looker'"):
            execute(where, "create role looker login")
        execute(where, "grant select on all tables in schema public to looker")
    reader = where.replace("postgres:@", "looker:@", 1)
    for name in questions():
        if not name.startswith(("page_", "status_")):
            continue  # the demo's, which are written for DuckDB
        parameters = QUESTION_PARAMETERS.get(name)
        (result,) = run_queries(reader, [question(name)], parameters=parameters)
        assert result.columns, name
        if parameters:
            assert result.table().num_rows, name
    hostile: dict[str, str | int | float] = {"task": "train' or 'a' = 'a", "epoch": 0, "iteration": 0}
    (result,) = run_queries(reader, [question("page_batch")], parameters=hostile)
    assert not result.table().num_rows


def test_equal_errors_are_shown_once(catalog: Catalog) -> None:
    """One that comes in each epoch: how often, when first and when last. Others stay apart."""
    row, _ = registered(catalog)
    for epoch in range(7):
        catalog.add_events([EventRow("error", row.task_id, count=2, detail="torn.mp4: torn", at_s=1000.0 + epoch)])
        catalog.flush()
    catalog.add_events([EventRow("error", row.task_id, detail="other.mp4: torn", at_s=1003.0)])
    catalog.flush()
    torn = ("task", row.name, "torn.mp4: torn", 14, 1000.0, 1006.0)
    for name in ("status_errors", "page_errors"):
        found = [each for each in select(catalog, question(name)) if each[0] == "task"]
        assert found == [torn, ("task", row.name, "other.mp4: torn", 1, 1003.0, 1003.0)], name
    assert select(catalog, "select count(*) from errors where message = 'torn.mp4: torn'") == [(7,)]


@pytest.fixture
def used(folder: Path) -> Path:
    """A DuckDB catalog with something to see, that nobody owns."""
    with Catalog.open(folder) as catalog:
        _fill(catalog)
    return folder


@pytest.mark.parametrize("sql", COMMANDS)
def test_every_command_of_a_page_is_answered(used: Path, sql: str) -> None:
    """The SQL in each `viewcache sql "…"` that a page shows passes the read-only door."""
    assert run_query(used, sql).columns


def test_an_error_of_no_task_is_of_none(catalog: Catalog) -> None:
    """What went wrong with the cache itself is told without a name, and not as a task's."""
    row, _ = registered(catalog)
    catalog.add_events([EventRow("error", detail="the disk"), EventRow("error", row.task_id, detail="the order")])
    catalog.flush()
    told = select(catalog, "select about, name, message from errors order by message")
    assert told == [(None, None, "the disk"), ("task", row.name, "the order")]
    assert {each[:2] for each in select(catalog, question("page_errors"))} == {("cache", ""), ("task", row.name)}
