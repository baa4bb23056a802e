"""The benchmark of streaming input runs whole, on a few clips."""

import json
from pathlib import Path

from benchmarks import streaming
from benchmarks.harness import main


def test_listing_again_and_both_ways_to_join_are_measured(tmp_path: Path) -> None:
    """It asserts itself that each generation has the videos that it should; both ways decode about as much, since the
    pictures that clips are made of last behind their generation.
    """
    out = tmp_path / "out.json"
    command = ["--videos", "6", "--new", "2", "--distinct", "3", "--frames", "60", "--folder", str(tmp_path)]
    main(streaming.__doc__, streaming.bench, streaming.arguments, [*command, "--json", str(out)])
    listed, joined = json.loads(out.read_text())["results"]
    assert [*listed["rows"]] == ["6 videos"]
    assert 0.5 < joined["value"] < 3
