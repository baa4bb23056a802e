"""The benchmark of residents runs whole, and says why it has no real reads where a device cannot be limited."""

import json
from pathlib import Path

import pytest

from benchmarks import groups, residents
from benchmarks.harness import main


def test_each_rule_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rule has its loads and times at each share; real reads need a control group for disks."""
    monkeypatch.setattr(groups, "GROUPS", tmp_path / "no control groups")
    out = tmp_path / "out.json"
    sizes = ["--items", "320", "--batch", "8", "--epochs", "2", "--shares", "25", "50", "--pictures", "8"]
    main(residents.__doc__, residents.bench, residents._arguments, [*sizes, "--dir", str(tmp_path), "--json", str(out)])
    *tables, note = json.loads(out.read_text())["results"]
    for table, share in zip(tables, (25, 50), strict=True):
        assert table["title"] == f"memory for {share} % of 320 items, batches of 8"
        assert table["rows"].keys() == residents.RULES.keys()
        assert table["rows"]["residents"][0] == 320 - 320 * share // 100
        assert all(row[2] >= row[3] >= 1.0 for row in table["rows"].values())
    assert note["text"].startswith("no real reads: this process cannot limit its device")
