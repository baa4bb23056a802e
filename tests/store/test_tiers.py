"""Every tier keeps the one contract, and is found by its URL."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.disk import counted
from viewcache import store
from viewcache.errors import BadInput
from viewcache.store.region import punch
from viewcache.testing import TierContract


class TestLocalTier(TierContract):
    """A folder."""

    def open(self, folder: Path, budget_bytes: int) -> store.Tier:
        """By its path."""
        return store.open_tier("local", str(folder), budget_bytes)

    def damage(self, tier: store.Tier, stored: store.Stored, chunk: int) -> None:
        """In the shard's file."""
        file = os.open(_shard(tier, stored), os.O_RDWR)
        place = stored.table.offsets[chunk] + stored.table.sizes[chunk] // 2
        os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 16]), place)
        os.close(file)

    def lose(self, tier: store.Tier, stored: store.Stored) -> None:
        """Both files go."""
        shard = _shard(tier, stored)
        for path in (shard, shard.with_name("zarr.json")):
            path.unlink()

    def abandon(self, tier: store.Tier) -> int:
        """A temporary folder of a process that does not live."""
        assert isinstance(tier, store.LocalTier)
        dead = Path(tier.root, "tmp", f"{'a' * 32}.{2**22 + 1}.5-abcdef")
        dead.mkdir()
        (dead / "c.0.0").write_bytes(bytes(70))
        return counted(dead)


class TestMemoryTier(TierContract):
    """Memory that processes share."""

    def open(self, folder: Path, budget_bytes: int) -> store.Tier:
        """It has no name, so each is a new one."""
        return store.open_tier("memory", "memory://", budget_bytes)

    def damage(self, tier: store.Tier, stored: store.Stored, chunk: int) -> None:
        """In the arena."""
        with memory_of(tier) as file:
            place = stored.table.offsets[chunk] + stored.table.sizes[chunk] // 2
            os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 16]), place)

    def lose(self, tier: store.Tier, stored: store.Stored) -> None:
        """The pages go, as if somebody had punched them out."""
        with memory_of(tier) as file:
            punch(file, stored.table.offsets[0], dict(tier.iter_objects())[stored.physical])

    def abandon(self, tier: store.Tier) -> int:
        """Only the owner writes, and its memory ends with it: nothing can be left."""
        return 0


@contextmanager
def memory_of(tier: store.Tier) -> Iterator[int]:
    """A descriptor of the memory behind a tier, for reading and writing, as only its owner's process can have it."""
    assert isinstance(tier, store.MemoryTier)
    file = os.open(tier.handle.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _shard(tier: store.Tier, stored: store.Stored) -> Path:
    assert isinstance(tier, store.LocalTier)
    return Path(tier.root, stored.physical, "c" + ".0" * len(stored.shape))


def test_a_tier_is_found_by_its_url(tmp_path: Path) -> None:
    """A path and a file URL name a folder, escapes included; any other URL is refused with those that are known."""
    folder = tmp_path / "with space"
    for url in (str(folder), folder.as_uri()):
        tier = store.open_tier("local", url, 7)
        assert isinstance(tier, store.LocalTier)
        assert (tier.name, tier.budget_bytes, tier.root) == ("local", 7, str(folder))
    with pytest.raises(BadInput, match=r"no tier has a URL like ftp://.* file://"):
        store.open_tier("remote", "ftp://x", 7)
