"""Listing a dataset: what is recorded, what is looked at again, and what is not."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from viewcache.catalog import Catalog
from viewcache.errors import Full
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset import listing
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.listing import list_files
from viewcache.materializer.dataset.recording import Batches
from viewcache.materializer.dataset.scan import scan
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.spec import DatasetSpec

NAMES = ("a", "b", "c")


@pytest.fixture
def spec(family: Callable[[str], Path], tmp_path: Path) -> DatasetSpec:
    """Three copies of one clip."""
    folder = tmp_path / "videos"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.mp4").write_bytes(family("h264_bframes.mp4").read_bytes())
    return DatasetSpec(str(folder))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """An empty one."""
    with Catalog.open(tmp_path / "store") as catalog:
        yield catalog


def asked(monkeypatch: pytest.MonkeyPatch, given: Callable[..., Any] = scan) -> list[tuple[str, bool]]:
    """What is looked into from now on: path, and whether every packet is."""
    found: list[tuple[str, bool]] = []

    def noted(files: Sequence[Found], *limits: Any, probe: ProbeMode, **more: Any) -> Iterator[tuple[Found, Scanned]]:
        found.extend((file.path, probe == ProbeMode.FULL) for file in files)
        yield from given(files, *limits, probe=probe, **more)

    monkeypatch.setattr(listing, "scan", noted)
    return found


def test_each_file_is_looked_into_once(catalog: Catalog, spec: DatasetSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its header, or by every packet where the task wants that; nothing again that is as it was."""
    looked = asked(monkeypatch)
    full = DatasetSpec(spec.uri, probe=ProbeMode.FULL)
    for each, expected in ((spec, False), (spec, None), (full, True), (full, None), (spec, None)):
        looked.clear()
        files = list_files(each, catalog)
        assert looked == ([] if expected is None else [(f"{name}.mp4", expected) for name in NAMES])
        assert tuple(files.names) == NAMES
        assert files.frames[:].tolist() == [60] * 3


def test_what_could_not_be_reached_is_looked_into_again(
    catalog: Catalog, spec: DatasetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket that timed out says nothing about a video: the next opening asks anew. A bad file is bad."""

    def in_part(files: Sequence[Found], *limits: Any, **more: Any) -> Iterator[tuple[Found, Scanned]]:
        errors = {"a.mp4": Scanned(error="a: timed out", lasting=False), "b.mp4": Scanned(error="b: no frames")}
        for file, found in scan(files, *limits, **more):
            yield file, errors.get(file.path, found)

    with monkeypatch.context() as patched:
        asked(patched, in_part)
        files = list_files(spec, catalog)
        assert [(files.error(row), bool(files.whole[row])) for row in range(3)] == [
            ("a: timed out", False), ("b: no frames", False), ("", True)
        ]  # fmt: skip
    looked = asked(monkeypatch)
    files = list_files(spec, catalog)
    assert [path for path, _ in looked] == ["a.mp4"]
    assert files.whole.tolist() == [True, False, True]


def test_what_was_found_before_an_error_is_kept(
    catalog: Catalog, spec: DatasetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that may open no more files ends the listing; what it had found is not looked into again."""

    def until_full(files: Sequence[Found], *limits: Any, **more: Any) -> Iterator[tuple[Found, Scanned]]:
        for number, each in enumerate(scan(files, *limits, **more)):
            if number == 2:
                raise Full("too many open files")
            yield each

    with monkeypatch.context() as patched:
        asked(patched, until_full)
        with pytest.raises(Full):
            list_files(spec, catalog)
    looked = asked(monkeypatch)
    assert list_files(spec, catalog).whole.all()
    assert len(looked) == 1


def test_what_is_found_of_thousands_of_files_is_recorded_together() -> None:
    """Each transaction looks at the whole table, so their number must not grow with a large dataset's as fast as it."""
    recorded: list[int] = []
    with Batches[int](lambda some: recorded.append(len(some)), every_s=3600) as batches:
        for first in range(0, 25_600, 64):
            batches.add(range(first, first + 64))
    assert sum(recorded) == 25_600
    assert len(recorded) <= 3
