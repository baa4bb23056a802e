"""A training that reads through a service is told once of each file for which another one stands in."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.service.conftest import attached

GONE = {"dogs/v2.mp4", "cats/v3.mp4"}


@pytest.fixture
def folder(tmp_path: Path, videos: Path) -> Path:
    """The ten videos, in a folder that the test may change."""
    return Path(shutil.copytree(videos, tmp_path / "videos"))


def files_in(text: str) -> Counter[str]:
    """Files that lines of a log say another one stands in for."""
    lines = [line for line in text.splitlines() if "another video stands in" in line]
    return Counter(found[0] for line in lines for found in [re.search(r"\w+/v\d\.mp4", line)] if found)


def test_a_process_is_told_of_each_file_once(store: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files go while it reads: a line for each, in its own log."""
    with attached(store, folder) as cache:
        for each in GONE:
            (folder / each).unlink()
        for epoch in range(3):
            for iteration in range(5):
                cache.read("train", epoch, iteration)
        records = [each for each in caplog.records if getattr(each, "action", "") == "missing_videos"]
        assert {each.name for each in records} == {"viewcache.service"}
        assert files_in("\n".join(each.getMessage() for each in records)) == dict.fromkeys(GONE, 1)


def test_workers_of_a_dataloader_tell_once(store: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of the workers of all passes one says it, and not again those of the next pass."""
    with attached(store, folder) as cache:
        dataset: Any = cache.loader("train")
        batches: DataLoader[dict[str, Any]] = DataLoader(
            dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn", timeout=120
        )
        for each in GONE:
            (folder / each).unlink()
        for _ in range(2):
            assert len([batch["label"].tolist() for batch in batches]) == 5
        assert files_in(capfd.readouterr().err) == dict.fromkeys(GONE, 1)
