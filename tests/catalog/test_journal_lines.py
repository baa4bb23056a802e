"""A line of a journal may be somebody else's text: it can only tell what a journal tells."""

import json
import os
from pathlib import Path

import pytest

from viewcache.catalog import statements
from viewcache.catalog.journal import Line
from viewcache.errors import Broken, NotFound

HOME = Path(statements.__file__).parent / "sql" / "queries"


def line(**step: object) -> Line:
    """A line of one step."""
    return Line("writer", 1, json.dumps({"by": "writer", "ticket": 1, "run": [step]}).encode())


@pytest.mark.parametrize("name", ["delete_policies", "delete_all_leases", "write_setting", "read_tasks"])
def test_only_what_a_journal_tells_is_carried_out(name: str) -> None:
    """Other statements of the catalog are none of its business."""
    with pytest.raises(Broken, match="is no statement that a journal tells"):
        line(do=name).steps()


def test_no_other_file_is_run(tmp_path: Path) -> None:
    """A name is no path: neither a line nor anything else reaches a file outside the catalog's own folder."""
    (tmp_path / "evil.sql").write_text("-- Evil.\ndrop table task")
    name = os.path.relpath(tmp_path / "evil", HOME)
    with pytest.raises(Broken, match="is no statement"):
        line(do=name).steps()
    for path in (name, str(tmp_path / "evil")):
        with pytest.raises(NotFound, match="no query named"):
            statements.load(path, "duckdb")


@pytest.mark.parametrize("count", [2, 10**15, -(10**15), "many", None])
def test_rows_that_are_not_there_take_no_memory(count: object) -> None:
    """The number of rows is that of the column that tells them all."""
    with pytest.raises(Broken, match="cannot be understood"):
        line(do="insert_draws", n=count, rows={"task_id": 1, "epoch": 0, "position": 0, "video_id": 1}).steps()
