"""Caches that a service owns, each in a store of its test; the service is ended when the test is."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.service.served import AUGMENTED, VIDEOS, Opener
from tests.tiny import config, encode_folder
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.errors import NotFound


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
        opened.append(settings_attached(store, videos, **settings))
        return opened[-1]

    yield attach_one
    for each in opened:
        each.close()


def settings_attached(store: Path, videos: Path, **settings: object) -> AttachedCache:
    """One cache of a service."""
    from viewcache.api.service import opening

    given = config(store, videos, **{"labels": "folders", "augmentation": AUGMENTED, **settings})  # type: ignore[arg-type]
    opened: Callable[..., object] = opening.open
    cache = opened(given, service="auto")
    assert isinstance(cache, AttachedCache)
    return cache
