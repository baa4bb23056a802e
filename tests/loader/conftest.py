"""One cache for all tests of the loader; what closes a cache opens one of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.loader.small import EPOCHS, VIDEOS, Tensors, tasks, whole
from tests.tiny import encode_folder
from viewcache.api.session.cache import Cache


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten videos in two folders; nobody writes into them."""
    return encode_folder(tmp_path_factory.mktemp("loader"), VIDEOS)


@pytest.fixture(scope="session")
def cache(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """An open cache with all clips made; its threads start before a test counts them."""
    with viewcache.open(tasks(tmp_path_factory.mktemp("store"), videos)) as opened:
        for task in opened.tasks:
            whole(opened, task)
        yield opened


@pytest.fixture(scope="session")
def truth(cache: Cache) -> list[Tensors]:
    """Every batch of ``train``, read without a loader."""
    return whole(cache, epochs=EPOCHS)


@pytest.fixture
def own(videos: Path, tmp_path: Path) -> Iterator[Callable[..., Cache]]:
    """Opens the same tasks in a store of this test, as often as it likes; the settings may differ."""
    opened: list[Cache] = []

    def open_one(**settings: Any) -> Cache:
        opened.append(viewcache.open(tasks(tmp_path / "store", videos, **settings)))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
