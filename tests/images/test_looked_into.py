"""Images whose headers alone are known are looked into together: one scanning process for all that are asked about."""

from pathlib import Path

import fsspec
import numpy as np
import pytest

import viewcache
from tests.images.small import config, save_folder
from tests.images.test_images import read
from tests.tiny import config as of_videos
from tests.tiny import encode_folder
from viewcache.errors import ViewNotFound
from viewcache.materializer.dataset.scan import ScanProcess
from viewcache.materializer.reading.values import FrameRequest

COUNT = 8


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Eight images of unequal sizes."""
    return save_folder(tmp_path / "in", {f"{k}.png": (60 + k, 48 + k) for k in range(COUNT)})


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ScanProcess]:
    """The scanning processes that are started from now on."""
    found: list[ScanProcess] = []
    start = ScanProcess.__init__

    def start_and_count(self: ScanProcess, memory_bytes: int) -> None:
        start(self, memory_bytes)
        found.append(self)

    monkeypatch.setattr(ScanProcess, "__init__", start_and_count)
    return found


def test_what_is_said_of_a_batch(tmp_path: Path, images: Path, started: list[ScanProcess]) -> None:
    """One process looks into all of its images, and none into them again, also in the next run."""
    given = config(tmp_path / "store", images, sampling={"images_per_batch": COUNT})
    with viewcache.open(given) as cache:
        read(cache, epochs=1)
        started.clear()
        fs = fsspec.filesystem("view")
        about = fs.info("view://train/0/0/view")["view"]
        assert sorted(about["videos"]) == [str(k) for k in range(COUNT)]
        assert len(started) == 1
        cache.show("train", 0, 0)
        assert len(started) == 1
    with viewcache.open(given) as cache:
        started.clear()
        assert sorted(cache.task("train").describe(0, 0).videos) == [str(k) for k in range(COUNT)]
        assert not started


def test_a_batch_with_bad_images(tmp_path: Path, images: Path, started: list[ScanProcess]) -> None:
    """Of three that turn out bad others stand in: one process for all of the batch."""
    given = config(tmp_path / "store", images, sampling={"images_per_batch": COUNT}, on_bad_image="replace")
    with viewcache.open(given) as cache:
        assert cache.task("train").shape(0, 0)[0] == COUNT
        bad = {"1", "4", "6"}
        for name in bad:
            (images / f"{name}.png").write_bytes(b"no image")
        started.clear()
        videos = cache.task("train").describe(0, 0).videos
        assert len(videos) == COUNT
        assert set(videos) == {str(k) for k in range(COUNT)} - bad
        assert len(started) == 1


def test_frames_of_several_images(tmp_path: Path, images: Path, started: list[ScanProcess]) -> None:
    """Those that are asked for together are looked into by one process; a name that there is not is told as ever."""
    with viewcache.open(config(tmp_path / "store", images)) as cache:
        task = cache.task("train")
        started.clear()
        frames = task.frames([FrameRequest(str(k), 0) for k in range(COUNT)])
        assert [frame.shape for frame in frames] == [(3, 48 + k, 60 + k) for k in range(COUNT)]
        assert len(started) == 1
        with pytest.raises(ViewNotFound, match="no image 'x'"):
            task.frames([FrameRequest("0", 0), FrameRequest("x", 0)])


def test_a_batch_of_videos(tmp_path: Path, started: list[ScanProcess]) -> None:
    """Videos are looked into one after another, by one process."""
    folder = encode_folder(tmp_path / "in", {f"v{k}.mp4": 20 for k in range(4)})
    with viewcache.open(of_videos(tmp_path / "store", folder)) as cache:
        started.clear()
        batch = cache.task("train").describe(0, 0)
        assert len(np.unique(batch.index)) > 1
        assert len(started) == 1
