"""Clips and undisturbed runs that the tests of faults compare with."""

from pathlib import Path

import pytest

from tests.faults.caches import encode_videos, truth_of


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four tiny clips; nobody writes into it."""
    return encode_videos(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> dict[tuple[int, int], str]:
    """(epoch, iteration) → digest of the batch, of an undisturbed run."""
    return truth_of(tmp_path_factory.mktemp("truth"), videos)
