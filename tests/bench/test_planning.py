"""The planning benchmark runs whole: small generations, one task and two that draw together."""

import json
from pathlib import Path

from benchmarks import planning
from benchmarks.harness import main


def test_each_part_is_timed(tmp_path: Path) -> None:
    """Every run plans as many uses as it says (it asserts so itself), and no part of the work is left untimed."""
    out = tmp_path / "out.json"
    command = ["--uses", "200", "--repeats", "1", "--folder", str(tmp_path), "--json", str(out)]
    main(planning.__doc__, planning.bench, planning._arguments, command)
    results = json.loads(out.read_text())["results"]
    assert [result["title"].partition(":")[0] for result in results] == [
        title for title in ("2e+02 uses of 1 task", "2e+02 uses of 2 tasks") for _ in range(2)
    ]
    for timed in results[::2]:
        assert all(f"{part} 0," not in timed["unit"] for part in planning.PARTS)
        assert timed["value"] > 0
    assert not list(tmp_path.glob("viewcache-planning-*"))
