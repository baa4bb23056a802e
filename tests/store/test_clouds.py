"""The remote tier keeps the one contract over Azure's and Google's protocols too, as their emulators speak them."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.clouds import Cloud, azure, google, missing_for_azure, missing_for_google
from tests.store.objects import pixels
from viewcache import store
from viewcache.store.client import Client
from viewcache.store.format import physical_of, shard_name
from viewcache.testing import TierContract, put
from viewcache.testing.tier_contract import KEY

pytestmark = pytest.mark.long

SHARD = "c.0.0"
META = store.ArrayMeta((6, 50), (2, 50), "raw", {"kind": "clip"})


@contextmanager
def reached(missing: str, start: Callable[[Path], AbstractContextManager[Cloud]], folder: Path) -> Iterator[Cloud]:
    """A server with its bucket made, and what this process needs to reach it."""
    if missing:
        pytest.skip(missing)
    with start(folder) as cloud, pytest.MonkeyPatch.context() as environment:
        for name, value in cloud.environment.items():
            environment.setenv(name, value)
        environment.setattr(logging.getLogger("gcsfs"), "disabled", True)  # without an account it warns of each bucket
        files = cloud.filesystem()
        if not files.exists("bucket"):
            files.mkdir("bucket")
        yield cloud


@pytest.fixture(scope="module")
def azure_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Azurite."""
    with reached(missing_for_azure(), azure, tmp_path_factory.mktemp("azure")) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def google_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """The emulator of Google's storage."""
    with reached(missing_for_google(), google, tmp_path_factory.mktemp("google")) as cloud:
        yield cloud


class CloudContract(TierContract):
    """The contract below a prefix of a bucket, with one server for all of it."""

    cloud: Cloud
    files: Any
    """A client that goes past viewcache."""

    def open(self, folder: Path, budget_bytes: int) -> store.Tier:
        """Below a prefix of the bucket, new for each test."""
        return store.open_tier("remote", f"{self.cloud.url}/{folder.parent.name}/{folder.name}", budget_bytes)

    def damage(self, tier: store.Tier, stored: store.Stored, chunk: int) -> None:
        """By putting the shard anew."""
        place = stored.table.offsets[chunk] + stored.table.sizes[chunk] // 2
        path = _place(tier, f"{stored.physical}/{shard_name(len(stored.shape))}")
        data = bytearray(self.files.cat_file(path))
        data[place] ^= 16
        self.files.pipe_file(path, bytes(data))

    def lose(self, tier: store.Tier, stored: store.Stored) -> None:
        """Both files go."""
        for name in (shard_name(len(stored.shape)), "zarr.json"):
            self.files.rm_file(_place(tier, f"{stored.physical}/{name}"))

    def abandon(self, tier: store.Tier) -> int:
        """A shard that its writer did not come to make an object of."""
        self.files.pipe_file(_place(tier, f"{physical_of('a' * 32)}/{SHARD}"), bytes(70))
        return 70

    def test_a_file_is_made_once(self, tier: store.Tier) -> None:
        """Publishing is conditional: the second of two writers is refused by the service and takes what is there."""
        assert not put(tier, pixels((6, 50)), META, KEY).existed
        assert put(tier, pixels((6, 50), 1), META, KEY).existed
        client = Client(tier.url, deadline_s=30, stall_s=10)
        assert client.call(client.put(f"{physical_of(KEY)}/zarr.json", b"other")) is False
        client.close()


class TestRemoteTierOnAzure(CloudContract):
    """Over adlfs, a container of Azurite."""

    @pytest.fixture(autouse=True)
    def server(self, azure_cloud: Cloud) -> None:
        """The server, and a plain client."""
        self.cloud, self.files = azure_cloud, azure_cloud.filesystem()


class TestRemoteTierOnGoogle(CloudContract):
    """Over gcsfs, a bucket of an emulator."""

    @pytest.fixture(autouse=True)
    def server(self, google_cloud: Cloud) -> None:
        """The server, and a plain client."""
        self.cloud, self.files = google_cloud, google_cloud.filesystem()


def _place(tier: store.Tier, path: str) -> str:
    return f"{tier.url.partition('://')[2]}/{path}"
