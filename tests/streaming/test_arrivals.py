"""A file that is still being written never joins; one that is complete does, by its time or after a second look."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

import viewcache
from tests.streaming.arriving import LONG_AGO_S, aged, arrive, epoch_of, streaming
from viewcache.errors import BadVideo, DatasetNotFound
from viewcache.materializer.choices import InputSource
from viewcache.materializer.dataset.arrivals import Arrivals
from viewcache.materializer.dataset.discover import discover
from viewcache.materializer.spec import DatasetSpec


@dataclass
class Clocks:
    """Time as the test wants it."""

    s: float = 1_000_000.0

    def arrivals(self, folder: Path, settle: float = 2.0) -> Arrivals:
        """Who looks at a folder by these clocks."""
        spec = DatasetSpec(str(folder), InputSource.STREAMING, settle=settle)
        return Arrivals(spec, clock=lambda: self.s, now=lambda: self.s)

    def write(self, file: Path, data: bytes, age_s: float = 0.0) -> None:
        """Write a file, some seconds ago."""
        file.write_bytes(data)
        at = int((self.s - age_s) * 1e9)
        os.utime(file, ns=(at, at))


def ready(arrivals: Arrivals, folder: Path) -> list[str]:
    """Names of the files that may join now."""
    return [each.path for each in arrivals.complete(discover(str(folder)))]


def test_a_file_joins_when_nobody_has_written_to_it_for_a_while(tmp_path: Path, clips: list[Path]) -> None:
    """While its size and time change it waits, however often it is looked at; `settle` seconds later it joins."""
    clocks, file, data = Clocks(), tmp_path / "v.mp4", clips[0].read_bytes()
    arrivals = clocks.arrivals(tmp_path)
    for part in range(1, 6):
        clocks.write(file, data[: len(data) * part // 5])
        assert ready(arrivals, tmp_path) == []
        clocks.s += 1.5
        assert ready(arrivals, tmp_path) == []
    clocks.s += 0.6
    assert ready(arrivals, tmp_path) == ["v.mp4"]


def test_a_file_from_the_future_joins_after_a_second_look(tmp_path: Path, clips: list[Path]) -> None:
    """A file server whose clock is ahead does not keep files out: what is the same at two looks is complete."""
    clocks = Clocks()
    arrivals = clocks.arrivals(tmp_path)
    clocks.write(tmp_path / "v.mp4", clips[0].read_bytes(), age_s=-500.0)
    assert ready(arrivals, tmp_path) == []
    clocks.s += 1.9
    assert ready(arrivals, tmp_path) == []
    clocks.s += 0.2
    assert ready(arrivals, tmp_path) == ["v.mp4"]
    clocks.s -= 0.2
    arrivals = clocks.arrivals(tmp_path)
    assert ready(arrivals, tmp_path) == []
    clocks.s += 1.0
    clocks.write(tmp_path / "v.mp4", clips[1].read_bytes(), age_s=-500.0)
    clocks.s += 1.5
    assert ready(arrivals, tmp_path) == [], "it was another file at the first look"


def test_a_file_that_cannot_be_read_is_asked_again_before_it_is_bad(tmp_path: Path, clips: list[Path]) -> None:
    """A writer that rests with half a file is waited for; what stays unreadable for thirty times `settle` is bad."""
    clocks, file, data = Clocks(), tmp_path / "v.mp4", clips[0].read_bytes()
    arrivals = clocks.arrivals(tmp_path)
    clocks.write(file, data[: len(data) // 2], age_s=10)
    assert ready(arrivals, tmp_path) == []
    clocks.s += 49
    assert ready(arrivals, tmp_path) == []
    clocks.write(file, data, age_s=3)
    assert ready(arrivals, tmp_path) == ["v.mp4"]
    clocks.write(file, data[: len(data) // 2], age_s=59.9)
    assert ready(clocks.arrivals(tmp_path), tmp_path) == []
    clocks.s += 0.2
    assert ready(clocks.arrivals(tmp_path), tmp_path) == ["v.mp4"], "its policy decides now"


def test_temporary_names_are_never_looked_at(tmp_path: Path, clips: list[Path]) -> None:
    """Hidden files and what `curl`, `rsync` or a browser call a file that is not whole are no videos."""
    data = clips[0].read_bytes()
    for name in (".v.mp4", ".v.mp4.x7Tq", "v.mp4.part", "v.mp4.tmp", "v.mp4.crdownload", "v.mp4~", "v.mp4"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / ".incoming").mkdir()
    (tmp_path / ".incoming" / "w.mp4").write_bytes(data)
    assert [each.path for each in discover(str(tmp_path))] == ["v.mp4"]


def test_a_clip_that_is_written_while_training_reads_joins_whole(
    tmp_path: Path, clips: list[Path], folder: Path
) -> None:
    """A real file grows in pieces, epoch after epoch: it is in no epoch before it is whole, then with all frames."""
    data, growing = clips[9].read_bytes(), folder / "grows.mp4"
    with viewcache.open(streaming(tmp_path / "s", folder, join="epoch", epochs=7, settle=600)) as cache:
        seen = []
        for epoch in range(7):
            if epoch < 4:
                with growing.open("ab") as file:
                    file.write(data[len(data) * epoch // 4 : len(data) * (epoch + 1) // 4])
            if epoch in (1, 4):  # once in the middle, its writer has rested
                aged(growing, LONG_AGO_S)
            seen.append("grows" in epoch_of(cache, epoch))
            cache.owner.look_ahead.wait_idle(60)
        assert seen == [False] * 5 + [True] * 2
        assert cache.task("train").video("grows").frames == 29


def test_a_folder_without_a_complete_video_says_what_to_do(tmp_path: Path, clips: list[Path]) -> None:
    """Opening begins with one complete video; what is being written is told from what is not there."""
    with pytest.raises(DatasetNotFound, match="no such folder"):
        viewcache.open(streaming(tmp_path / "s", tmp_path / "videos"))
    (tmp_path / "videos").mkdir()
    with pytest.raises(DatasetNotFound, match="holds no videos"):
        viewcache.open(streaming(tmp_path / "s", tmp_path / "videos"))
    arrive(tmp_path / "videos", *clips[:2], age_s=0.0)
    with pytest.raises(DatasetNotFound, match=r"no complete video yet: 2 are still.*settle.*open the cache again"):
        viewcache.open(streaming(tmp_path / "s", tmp_path / "videos", settle=600))
    with viewcache.open(streaming(tmp_path / "s", tmp_path / "videos", settle=0)) as cache:
        assert sorted(epoch_of(cache, 0)) == ["v0", "v1"]


def test_a_broken_file_is_the_policys_case(tmp_path: Path, clips: list[Path], folder: Path) -> None:
    """`skip` leaves it out and training goes on; `raise` tells the reader of the generation that it would be in."""

    def bad() -> None:
        (folder / "bad.mp4").write_bytes(clips[0].read_bytes()[:2000])
        aged(folder / "bad.mp4", LONG_AGO_S)

    with viewcache.open(streaming(tmp_path / "skip", folder, join="epoch", on_bad_video="skip")) as cache:
        epoch_of(cache, 0)
        cache.owner.look_ahead.wait_idle(60)
        bad()
        assert [sorted(epoch_of(cache, epoch)) for epoch in (1, 2)] == [["v0", "v1", "v2"]] * 2
        arrive(folder, clips[4], name="bad.mp4")  # repaired under its name
        epoch_of(cache, 3)
        assert sorted(epoch_of(cache, 5)) == ["bad", "v0", "v1", "v2"]
    (folder / "bad.mp4").unlink()
    with viewcache.open(streaming(tmp_path / "raise", folder, join="epoch")) as cache:
        epoch_of(cache, 0)
        cache.owner.look_ahead.wait_idle(60)
        bad()
        epoch_of(cache, 1)
        with pytest.raises(BadVideo, match=r"bad\.mp4.*or give the task another tag and set on_bad_video: skip or rep"):
            epoch_of(cache, 2)
        cache.close()
    with viewcache.open(streaming(tmp_path / "raise", folder, join="epoch")) as cache:
        (told,) = cache.warnings
        assert "from epoch 2 on nothing can be drawn: " in told
        (folder / "bad.mp4").unlink()
        assert sorted(epoch_of(cache, 2)) == ["v0", "v1", "v2"]
