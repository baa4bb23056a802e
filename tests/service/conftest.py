"""Caches that a service owns, each in a store of its test; the service is ended when the test is."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import viewcache
from tests.service.served import VIDEOS, Opener, described
from tests.tiny import encode_folder
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.errors import NotFound


@pytest.fixture(autouse=True)
def _as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests, and the processes that they start, do as their configurations say."""
    monkeypatch.delenv("VIEWCACHE_SERVICE")


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten videos in two folders; nobody writes into them."""
    return encode_folder(tmp_path_factory.mktemp("service"), VIDEOS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """A store whose service ends with the test."""
    root = tmp_path / "store"
    yield root
    with suppress(NotFound):
        stop(root, now=True)


@pytest.fixture
def attach(store: Path, videos: Path) -> Iterator[Opener]:
    """Opens the tasks of a test as often as it likes; keyword arguments as of `config`."""
    opened: list[AttachedCache] = []

    def attach_one(**settings: object) -> AttachedCache:
        opened.append(attached(store, videos, **settings))
        return opened[-1]

    yield attach_one
    for each in opened:
        each.close()


def attached(store: Path, videos: Path, **settings: object) -> AttachedCache:
    """One cache of a service."""
    cache: object = viewcache.open(described(store, videos, **settings), service="auto")
    assert isinstance(cache, AttachedCache)
    return cache
