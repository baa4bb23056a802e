"""The remote tier keeps the one contract, over a real S3 server and over any other fsspec file system."""

import os
from pathlib import Path

import pytest

from tests.servers.seaweed import Seaweed, connected
from tests.store.tier_contract import TierContract
from viewcache import store

SHARD = "c.0.0"
META = store.ArrayMeta((6, 50), (2, 50), "raw", {"kind": "clip"})


class TestRemoteTierOnS3(TierContract):
    """Over s3fs, a bucket of SeaweedFS."""

    @pytest.fixture(autouse=True)
    def server(self, seaweed: Seaweed, bucket: str) -> None:
        """The server and the test's own bucket."""
        self.seaweed, self.bucket = seaweed, bucket

    def open(self, folder: Path, budget_bytes: int) -> store.Tier:
        """Below a prefix of the bucket."""
        return store.open_tier("remote", f"s3://{self.bucket}/{folder.name}", budget_bytes)

    def damage(self, tier: store.Tier, stored: store.Stored, chunk: int) -> None:
        """By putting the shard anew."""
        place = stored.table.offsets[chunk] + stored.table.sizes[chunk] // 2
        path = _path(tier, _shard(stored))
        with connected(self.seaweed) as client:
            data = bytearray(client.get_object(Bucket=self.bucket, Key=path)["Body"].read())
            data[place] ^= 16
            client.put_object(Bucket=self.bucket, Key=path, Body=bytes(data))

    def lose(self, tier: store.Tier, stored: store.Stored) -> None:
        """Both files go."""
        with connected(self.seaweed) as client:
            for path in (_shard(stored), f"{stored.physical}/zarr.json"):
                client.delete_object(Bucket=self.bucket, Key=_path(tier, path))

    def abandon(self, tier: store.Tier) -> int:
        """A shard that its writer did not come to make an object of."""
        with connected(self.seaweed) as client:
            path = _path(tier, f"objects/aa/{'a' * 32}/{SHARD}")
            client.put_object(Bucket=self.bucket, Key=path, Body=bytes(70))
        return 70


class TestRemoteTierOnFiles(TierContract):
    """Over a file system that knows nothing of asyncio."""

    def open(self, folder: Path, budget_bytes: int) -> store.Tier:
        """A folder, as if it were a bucket."""
        return store.RemoteTier(folder.as_uri(), budget_bytes)

    def damage(self, tier: store.Tier, stored: store.Stored, chunk: int) -> None:
        """In the shard's file."""
        file = os.open(Path(tier.url.removeprefix("file://"), _shard(stored)), os.O_RDWR)
        place = stored.table.offsets[chunk] + stored.table.sizes[chunk] // 2
        os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 16]), place)
        os.close(file)

    def lose(self, tier: store.Tier, stored: store.Stored) -> None:
        """Both files go."""
        shard = Path(tier.url.removeprefix("file://"), _shard(stored))
        for path in (shard, shard.with_name("zarr.json")):
            path.unlink()

    def abandon(self, tier: store.Tier) -> int:
        """What lies under ``tmp/`` of a folder's store that was copied to a bucket."""
        dead = Path(tier.url.removeprefix("file://"), "tmp", "x")
        dead.mkdir(parents=True)
        (dead / SHARD).write_bytes(bytes(70))
        return 70


def _shard(stored: store.Stored) -> str:
    return f"{stored.physical}/c{'.0' * len(stored.shape)}"


def _path(tier: store.Tier, path: str) -> str:
    return f"{tier.url.split('/', 3)[3]}/{path}"
