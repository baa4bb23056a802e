"""Clips for the engine's tests."""

from pathlib import Path

import pytest

from tests.faults.caches import encode_videos


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four tiny clips; nobody writes into it."""
    return encode_videos(tmp_path_factory.mktemp("videos"))
