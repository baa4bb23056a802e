"""One cache for all tests, with its service; it is really mounted, where the machine can."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mount.mounted import Mounted, Site, missing, mount
from tests.service.served import VIDEOS
from tests.tiny import encode_folder
from viewcache.api.service.attached import AttachedCache


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten videos in two folders, which are their labels."""
    return encode_folder(tmp_path_factory.mktemp("mount-videos"), VIDEOS)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Site:
    """A configuration, and a folder to mount over."""
    if lacking := missing():
        pytest.skip(lacking)
    return Site.make(tmp_path_factory.mktemp("mounted"), videos)


@pytest.fixture(scope="session")
def cache(site: Site) -> Iterator[AttachedCache]:
    """The cache in this process, as a client of the service that the mounts use, too."""
    with site.served() as opened:
        yield opened


@pytest.fixture(scope="session")
def shared(site: Site, cache: AttachedCache) -> Iterator[Mounted]:
    """The cache mounted, for tests that leave it as it was."""
    with mount(site) as mounted:
        yield mounted


@pytest.fixture
def mounted(site: Site, cache: AttachedCache, tmp_path: Path) -> Iterator[Mounted]:
    """The cache mounted for one test, on a folder of its own."""
    with mount(replace(site, folder=tmp_path)) as mounted:
        yield mounted
