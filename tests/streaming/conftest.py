"""Clips that arrive, and folders for them to arrive in."""

from pathlib import Path

import pytest

from tests.streaming.arriving import arrive
from tests.tiny import encode_folder


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Ten clips that lie where nobody looks for videos."""
    folder = encode_folder(tmp_path_factory.mktemp("arriving"), {f"v{k}.mp4": 20 + k for k in range(10)})
    return sorted(folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path, clips: list[Path]) -> Path:
    """A folder in which three clips are there."""
    arrive(tmp_path / "videos", *clips[:3])
    return tmp_path / "videos"
