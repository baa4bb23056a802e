"""The benchmark of the kinds of sampling runs whole, on few small clips."""

import json
from pathlib import Path

from benchmarks import sampling
from benchmarks.harness import main
from tests.clips import encode


def test_both_questions_are_answered(tmp_path: Path) -> None:
    """Clips by time against clips by frames, and a test of 10 x 3 views beside a training: both make the same clips."""
    video = encode(tmp_path / "clip.mp4", frames=90)
    out = tmp_path / "out.json"
    asked = ["--video", str(video), "--copies", "2", "--repeats", "1", "--dir", str(tmp_path), "--json", str(out)]
    main(sampling.__doc__, sampling.bench, sampling.arguments, asked)
    first, beside, added = json.loads(out.read_text())["results"]
    assert [first["kind"], beside["kind"], added["kind"]] == ["comparison", "comparison", "figure"]
    assert [timing["note"] for timing in first["timings"]] == [20, 20]
    assert added["value"] > 0
