"""Fixtures that the tests of faults and of scheduling have in common."""

import shutil
from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import config, encode_videos
from viewcache.materializer.scheduling import deaths

__all__ = ["empty_store", "no_suspects", "store", "videos"]


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four tiny clips; nobody writes into it."""
    return encode_videos(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Path:
    """A store with a planned task and no object, to be copied: making a catalog takes longer than a test."""
    store = tmp_path_factory.mktemp("empty") / "store"
    with viewcache.open(config(store, videos)):
        return store


@pytest.fixture
def store(tmp_path: Path, empty_store: Path) -> Path:
    """A copy of `empty_store`."""
    return Path(shutil.copytree(empty_store, tmp_path / "store"))


@pytest.fixture
def no_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many workers die on a video, it is not the video's fault."""
    monkeypatch.setattr(deaths, "TRIES", 1 << 30)
