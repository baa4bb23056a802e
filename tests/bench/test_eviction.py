"""The eviction benchmark runs whole, and its cache does what the policies say."""

import json
from pathlib import Path

import pytest

from benchmarks import eviction
from benchmarks.harness import main
from tests.clips import encode


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Four clips."""
    folder = tmp_path / "videos"
    folder.mkdir()
    for number in range(4):
        encode(folder / f"{number}.mp4", frames=20 + number)
    return folder


@pytest.mark.long
def test_each_part_counts_each_policy(videos: Path, tmp_path: Path) -> None:
    """Model, real runs and the recorded order, at each budget; in the model more room never costs `demand` misses."""
    out = tmp_path / "out.json"
    sizes = ["--elements", "60", "--epochs", "2", "--frames", "4", "--side", "32", "--shares", "10", "60"]
    sizes += ["--policies", "demand", "lru"]
    command = [*sizes, "--videos", str(videos), "--dir", str(tmp_path), "--json", str(out)]
    main(eviction.__doc__, eviction.bench, eviction._arguments, command)
    results = json.loads(out.read_text())["results"]
    parts = [result["title"].partition(", budget")[0] for result in results]
    assert parts == [
        part
        for part in (
            "4 jobs, random 3/4 of a dataset",
            "5 jobs of different pace, 16 drawn ahead",
            "real clips",
            "the recorded order of videos",
        )
        for _ in range(2)
    ]
    assert all("demand" in result["title"] and "lru" in result["unit"] for result in results)
    counted = [result["value"] for result in results]
    assert all(counted[part] >= counted[part + 1] for part in (0, 2, 6))
    assert not list(tmp_path.glob("viewcache-eviction-*"))


def test_what_comes_beats_what_was() -> None:
    """With the whole trace known, `demand` misses no more than by the best possible order; `lru` of a loop, always."""
    loop = [*range(10)] * 4
    assert eviction.replay(loop, 10, "demand", 1) == 10
    assert eviction.replay(loop, 5, "lru", 1) == 40
    assert eviction.replay(loop, 5, "demand", len(loop)) < 30
