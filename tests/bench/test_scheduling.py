"""The scheduling benchmark runs whole: tiny clips, one round, every system."""

import json
from pathlib import Path

import pytest

from benchmarks import scheduling
from benchmarks.harness import main
from tests.faults.caches import encode_videos


@pytest.mark.long
@pytest.mark.timeout(900)  # six processes that each open a cache: seconds, or minutes on a machine that is busy
def test_every_system_does_the_same_work(tmp_path: Path) -> None:
    """Each part compares systems that made the same clips (it asserts so itself), and says what each took."""
    videos = encode_videos(tmp_path / "videos", 3)
    out = tmp_path / "out.json"
    command = ["--videos", str(videos), "--epochs", "3", "--repeats", "1", "--step", "0.001", "--dir", str(tmp_path)]
    main(scheduling.__doc__, scheduling.bench, scheduling._arguments, [*command, "--json", str(out)])
    results = json.loads(out.read_text())["results"]
    comparisons = [each for each in results if each["kind"] == "comparison"]
    assert [list(each["ratios"]) for each in comparisons] == [
        [scheduling.SCHEDULED, scheduling.IN_ORDER],
        [scheduling.SHORTEST, scheduling.DEADLINES],
        [scheduling.PROCESSES, scheduling.THREADS],
        [scheduling.PROCESSES, scheduling.THREADS],
    ]
    assert all(timing["note"]["clips"] for each in comparisons for timing in each["timings"])
    assert not list(tmp_path.glob("viewcache-scheduling-*"))
