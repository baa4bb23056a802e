"""Clips and a bucket for the tests of tiers."""

from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import config, encode_videos, read_all
from tests.tiers.task import EPOCHS, TASK

__all__ = ["truth", "videos"]


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four tiny clips; nobody writes into it."""
    return encode_videos(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> dict[tuple[int, int], str]:
    """Every batch of a cache that has one folder with room for all."""
    with viewcache.open(config(tmp_path_factory.mktemp("truth"), videos, **TASK)) as cache:
        return dict(read_all(cache, EPOCHS))
