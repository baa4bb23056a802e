"""The benchmarks of the service, of trials and of the mount run whole, on few small batches."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import mount, service, trials
from benchmarks.harness import Result, main
from tests.mount.mounted import missing

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clips of four frames a batch."""
    for module in (mount, service):
        monkeypatch.setattr(module, "BATCH", 2)
        monkeypatch.setattr(module, "FRAMES", 4)
    monkeypatch.setattr(trials, "RESTED", 1)


def results_of(
    bench: Callable[[Namespace], Iterator[Result]],
    arguments: Callable[[ArgumentParser], None],
    folder: Path,
    *command: str,
) -> list[dict[str, Any]]:
    """What a benchmark writes that has the folder to itself; it leaves nothing in it."""
    out, room = folder / "out.json", folder / "room"
    room.mkdir()
    main("It runs whole.", bench, arguments, [*command, "--dir", str(room), "--json", str(out)])
    assert not list(room.iterdir())
    results: list[dict[str, Any]] = json.loads(out.read_text())["results"]
    return results


def test_reads_fetches_opens_and_jobs_are_measured(tmp_path: Path) -> None:
    """Both sides of each comparison, and the packets of four equal jobs beside those of one."""
    results = results_of(service.bench, service.arguments, tmp_path, "--repeats", "1")
    assert [result["kind"] for result in results] == [*2 * ["comparison"], *5 * ["figure"], "table", "figure"]
    assert all(set(result["ratios"]) == {"in this process", "attached"} for result in results[:2])
    assert all(result["value"] > 0 for result in results if result["kind"] == "figure")
    assert set(results[-2]["rows"]) == {"1 equal jobs", "4 equal jobs"}


def test_what_a_further_trial_takes_is_measured(tmp_path: Path) -> None:
    """The first trial and the mean of those after it, each with all of its columns."""
    sizes = ["--videos", "40", "--trials", "2", "--distinct", "2", "--frames", "20"]
    results = results_of(trials.bench, trials.arguments, tmp_path, *sizes)
    assert [result["kind"] for result in results] == [*3 * ["figure"], "table"]
    assert all(result["value"] > 0 for result in results[:2])
    (table,) = results[3:]
    assert list(table["rows"]) == ["the first", "each further one"]
    assert all(len(row) == len(table["columns"]) for row in table["rows"].values())


def test_views_through_a_mount_are_measured(tmp_path: Path) -> None:
    """Every way to read a batch, what is asked beside it, and listing an epoch."""
    if lacking := missing():
        pytest.skip(lacking)
    results = results_of(mount.bench, mount.arguments, tmp_path, "--repeats", "1", "--iterations", "20")
    compared, *figures = results
    assert compared["ratios"]["plain file"] == 1
    assert len(compared["ratios"]) == 8
    assert all(figure["value"] > 0 for figure in figures)
    assert len(figures) == 5 + 3 + 3
