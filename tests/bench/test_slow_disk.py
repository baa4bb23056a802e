"""The benchmark of images on a slow disk runs whole, its figures are right, and it says why where it cannot run."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks import groups, slow_disk
from benchmarks.groups import Group, group
from benchmarks.harness import Figure, Note, Table, main
from benchmarks.slow_disk import AUTO, ENCODED, PAGE_CACHE, RAW, RESIDENTS, Took
from tests.clips import encode
from tests.images.pages import need_device
from viewcache.materializer.profiling.cold import drop, write_back
from viewcache.materializer.workers.ahead import Extent


def took(*wall_s: float) -> Took:
    """A training of which rounds took so long."""
    return Took(0.5, list(wall_s), [2 * each for each in wall_s], [10**6] * len(wall_s))


def test_figures_are_ratios_within_rounds() -> None:
    """Auto is compared with the better pure form and with the best mix, residents with the page cache."""
    given = {
        AUTO: took(1.0, 2.0, 1.0),
        ENCODED: took(1.3, 2.8, 1.5),
        "4 : 6": took(1.1, 1.8, 1.1),
        RAW: took(3.0, 3.0, 3.0),
        PAGE_CACHE: took(4.0, 4.0, 4.0),
        RESIDENTS: took(3.0, 2.0, 2.0),
    }
    table, pure, best, spread, memory = slow_disk.answers(given, "q90", 100)
    assert isinstance(table, Table)
    assert table.rows[ENCODED] == (50.0, 1.5, 1.3, 2.8, 67, 30.0, 1.0)
    assert isinstance(pure, Figure)
    assert isinstance(best, Figure)
    assert isinstance(memory, Figure)
    assert (pure.value, best.value, memory.value) == (1.4, 1.1, 0.5)
    assert "4 : 6" in best.title
    assert isinstance(spread, Note)
    assert [figure.aim.verdict(figure.value)[:3] for figure in (pure, best, memory) if figure.aim] == ["met"] * 3


def test_what_did_not_run_has_no_figure() -> None:
    """Without both pure forms and without residents there is nothing to compare auto with but the mixes."""
    results = list(slow_disk.answers({AUTO: took(1.0), "4 : 6": took(1.0)}, "q90", 100))
    assert [each.value for each in results if isinstance(each, Figure)] == [1.0]


def _report(tmp_path: Path, videos: Path, *options: str) -> list[dict[str, Any]]:
    out = tmp_path / "out.json"
    command = ["--quick", *options, "--videos", str(videos), "--dir", str(tmp_path)]
    main(slow_disk.__doc__, slow_disk.bench, slow_disk._arguments, [*command, "--json", str(out)])
    assert not list(tmp_path.glob("viewcache-slow-disk-*"))
    results: list[dict[str, Any]] = json.loads(out.read_text())["results"]
    return results


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """One clip."""
    folder = tmp_path / "videos"
    folder.mkdir()
    encode(folder / "a.mp4", frames=60)
    return folder


def test_without_control_groups_it_says_so(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and nothing is made."""
    monkeypatch.setattr(groups, "GROUPS", tmp_path / "no control groups")
    (note,) = _report(tmp_path, videos)  # of all trainings none is begun
    assert note["text"].startswith("not measured: this process cannot limit its disk and its page cache")


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[Group]:
    """A group of the disk below a folder; where none can be made there is nothing to test."""
    need_device(tmp_path)
    with ExitStack() as made:
        try:
            limits = made.enter_context(group("test", tmp_path, 10**8))
        except OSError as error:
            pytest.skip(f"no limit of block devices: control groups cannot be made here ({error.strerror})")
        yield limits


def test_a_group_counts_what_is_read_and_needed(tmp_path: Path, limits: Group) -> None:
    """The bytes of a cold file, and memory without that of files; who leaves is out."""
    path = tmp_path / "a.bin"
    path.write_bytes(os.urandom(1 << 20))
    write_back([Extent(str(path))])
    drop([Extent(str(path))])
    limits.join()
    try:
        before = limits.read_bytes()
        path.read_bytes()
        assert limits.read_bytes() - before >= 1 << 20
        assert str(os.getpid()) in (limits.memory / "cgroup.procs").read_text().split()
        assert limits.needed_bytes() >= 0
        limits.limit_memory(1 << 40)
        limits.favour()
    finally:
        limits.leave()
    assert not any((folder / "cgroup.procs").read_text() for folder in limits.folders)


@pytest.mark.usefixtures("limits")
def test_quick_run_measures_auto_and_a_mix(tmp_path: Path, videos: Path) -> None:
    """One epoch each, of which auto's is behind a profile."""
    note, table, figure, spread = _report(tmp_path, videos, "--mixes", RAW, "--no-residents")
    assert note["text"].startswith("q90: 48 images of 100 x 75")
    assert list(table["rows"]) == [AUTO, RAW]
    assert table["rows"][RAW][0] == 100.0
    assert all(row[1] > 0 for row in table["rows"].values())
    assert figure["title"] == f"q90: the best of 1 mixes, {RAW}, ÷ auto, wall"
    assert spread["kind"] == "note"


@pytest.mark.long
@pytest.mark.usefixtures("limits")
def test_quick_run_measures_every_training(tmp_path: Path, videos: Path) -> None:
    """Both pure forms and both ways to use memory, too."""
    _, table, *figures = _report(tmp_path, videos, "--mixes", ENCODED, RAW)
    assert list(table["rows"]) == [AUTO, ENCODED, RAW, PAGE_CACHE, RESIDENTS]
    assert [table["rows"][name][0] for name in (ENCODED, RAW)] == [0.0, 100.0]
    assert sum(each["kind"] == "figure" for each in figures) == 3
