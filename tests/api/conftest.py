"""One small cache for the tests of paths; its threads start with it, so that a test that starts others is noticed."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

import viewcache
from tests.api.small import config, encode_videos
from viewcache.api.session.cache import Cache


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four videos, one of them in a subfolder and with a space in its name."""
    return encode_videos(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="module")
def cache(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """An open cache whose dispatcher runs."""
    with viewcache.open(config(tmp_path_factory.mktemp("store"), videos)) as opened:
        opened.read("train", 0, 0)
        yield opened


@pytest.fixture
def fs(cache: Cache) -> fsspec.AbstractFileSystem:
    """The file system over the open cache."""
    return fsspec.filesystem("view")
