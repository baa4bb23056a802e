"""The benchmark of policies and mixing runs whole, on few small clips."""

import json
from pathlib import Path

import pytest

from benchmarks import augment
from benchmarks.harness import main


def test_all_questions_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies beside PIL, and both ways of mixing beside torch."""
    for name, value in {"CLIPS": 2, "FRAMES": 2, "SIDE": 32}.items():
        monkeypatch.setattr(augment, name, value)
    out = tmp_path / "out.json"
    main(augment.__doc__, augment.bench, argv=["--repeats", "1", "--json", str(out)])
    results = json.loads(out.read_text())["results"]
    assert [len(each["timings"]) for each in results] == [2, 3, 2]
