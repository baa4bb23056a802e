"""The benchmark of two tasks over one folder of images runs whole."""

import json
from pathlib import Path

from benchmarks import two_tasks
from benchmarks.harness import main
from tests.clips import encode


def test_runs_whole(tmp_path: Path) -> None:
    """Each way has its row; a cache each decodes every image for each task, and no way decodes fewer than all."""
    videos, out = tmp_path / "videos", tmp_path / "out.json"
    videos.mkdir()
    encode(videos / "a.mp4", frames=60)
    sizes = ["--images", "48", "--per-batch", "8", "--epochs", "1", "--repeats", "1", "--videos", str(videos)]
    main(
        two_tasks.__doc__,
        two_tasks.bench,
        two_tasks._arguments,
        [*sizes, "--dir", str(tmp_path), "--json", str(out)],
    )
    _, table, *figures = json.loads(out.read_text())["results"]
    ways = {two_tasks.AT_ONCE, two_tasks.LATE, two_tasks.IN_TURN, two_tasks.MADE_AHEAD, two_tasks.APART}
    assert {*table["rows"]} == ways
    assert table["rows"][two_tasks.APART][0] == 2.0
    assert all(1.0 <= decoded <= 2.0 for decoded, _ in table["rows"].values())
    assert len(figures) == len(ways)
