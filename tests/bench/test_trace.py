"""The benchmark of traces runs whole, and what it says of a trace is what the run says of itself."""

import json
from pathlib import Path

import pytest

import viewcache
from benchmarks import trace
from benchmarks.harness import main
from tests.faults.caches import config, encode_videos


def test_the_benchmark_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of runs with and without, and two costs, each with its aim."""
    monkeypatch.setattr(trace, "BATCHES", 100)
    out, videos = tmp_path / "out.json", encode_videos(tmp_path / "videos", 2)
    main(trace.__doc__, trace.bench, trace.arguments, ["--repeats", "1", "--videos", str(videos), "--json", str(out)])
    compared, *figures = json.loads(out.read_text())["results"]
    assert {timing["name"] for timing in compared["timings"]} == {trace.OFF, trace.ON}
    assert [figure["unit"] for figure in figures] == ["µs", "µs"]


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_look_adds_up(tmp_path: Path, name: str) -> None:
    """The workers' stages and the readers' causes are those of the run."""
    path = tmp_path / name
    with viewcache.open(config(tmp_path / "store", encode_videos(tmp_path / "videos"), trace=str(path))) as cache:
        for place in ((0, 0), (0, 1)):
            cache.read("t", *place)
        spent = cache.task("t").spent
    found = {figure.title: figure.value for figure in trace.look(str(path))}
    for cause, seconds in spent.stalls.items():
        assert found[f"of that, {cause}"] == pytest.approx(seconds)
    assert sum(value for title, value in found.items() if title.endswith(": decode")) > 0
    (between,) = (value for title, value in found.items() if title.endswith(": between jobs"))
    assert 0 <= between < found["run"]
