"""The benchmark of the tiers runs whole, on small batches, and its requests are the ones promised."""

import json
from pathlib import Path

import pytest

from benchmarks import tiers
from benchmarks.harness import main


@pytest.mark.long
def test_every_tier_is_timed_and_requests_are_counted(tmp_path: Path) -> None:
    """Both latencies, reads and writes of the three tiers and of s3fs are there; objects and clips cost one GET."""
    out = tmp_path / "out.json"
    command = ["--clips", "2", "--side", "32", "--repeats", "1", "--latency-ms", "5", "--dir", str(tmp_path)]
    main(tiers.__doc__, tiers.bench, tiers.arguments, [*command, "--json", str(out)])
    results = json.loads(out.read_text())["results"]
    timed = [result for result in results if result["kind"] == "comparison"]
    assert len(timed) == 6
    for comparison in timed:
        assert {name.split()[0] for name in comparison["ratios"]} == {"memory", "local", "remote", "s3fs"}
    assert [result["value"] for result in results if result["kind"] == "figure"] == [1, 1, 2]
    assert not list(tmp_path.glob("viewcache-tiers-*"))
