"""The benchmark of op workers runs whole, on few clips."""

import json
from pathlib import Path

from benchmarks import op_workers
from benchmarks.harness import main
from viewcache.materializer.ops import registry


def test_both_operations_are_timed(tmp_path: Path) -> None:
    """Here and there, with what the way costs in CPU and in wall time."""
    out = tmp_path / "out.json"
    with registry.own_registrations():
        main(
            op_workers.__doc__,
            op_workers.bench,
            op_workers.arguments,
            ["--clips", "2", "--repeats", "1", "--json", str(out)],
        )
    results = json.loads(out.read_text())["results"]
    assert [result["kind"] for result in results] == 2 * ["comparison", "figure", "figure"]
