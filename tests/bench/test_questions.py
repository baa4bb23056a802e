"""The benchmark of questions runs whole: every question of the page is asked of a small catalog, beside commits."""

import json
from pathlib import Path

from benchmarks import questions
from benchmarks.harness import main


def test_every_question_is_timed(tmp_path: Path) -> None:
    """Each of the page's questions has rows to show (it asserts so itself) and took time, and so did commits."""
    out = tmp_path / "out.json"
    command = ["--uses", "2000", "--repeats", "1", "--seconds", "0.5", "--folder", str(tmp_path), "--json", str(out)]
    main(questions.__doc__, questions.bench, questions._arguments, command)
    results = json.loads(out.read_text())["results"]
    (table,) = (result for result in results if result["kind"] == "table")
    assert list(table["rows"]) == list(questions.questions())
    assert len(table["rows"]) == 11
    assert all(wall > 0 for row in table["rows"].values() for wall in row)
    commits = [result for result in results if result["title"].startswith("commits")]
    assert len(commits) == 6
    assert all(result["value"] > 0 for result in commits)
    assert not list(tmp_path.glob("viewcache-questions-*"))
