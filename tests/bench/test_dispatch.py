"""The benchmark of the dispatcher runs whole, and counts what was really made and recorded."""

import json
from pathlib import Path

import pytest

from benchmarks import dispatch
from benchmarks.harness import main


@pytest.mark.long
def test_every_part_is_measured(tmp_path: Path) -> None:
    """Jobs and copies a second, each over all that was made (it asserts so itself), and each policy under load."""
    out = tmp_path / "out.json"
    sizes = ["--videos", "40", "--uses", "400", "--copies", "100", "--seconds", "1", "--policies", "demand", "lru"]
    command = [*sizes, "--repeats", "1", "--folder", str(tmp_path), "--json", str(out)]
    main(dispatch.__doc__, dispatch.bench, dispatch.arguments, command)
    *figures, table = json.loads(out.read_text())["results"]
    assert [figure["unit"].partition(" ")[0] for figure in figures] == ["jobs/s", "jobs/s", "copies/s", "copies/s"]
    assert all(figure["value"] > 0 for figure in figures)
    assert set(table["rows"]) == {"demand", "lru"}
    assert all(len(row) == len(table["columns"]) and row[0] > 0 for row in table["rows"].values())
    assert not list(tmp_path.glob("viewcache-dispatch-*"))
