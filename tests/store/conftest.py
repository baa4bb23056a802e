"""A store to write into, and objects in it."""

import os
from pathlib import Path

import pytest

from tests.store.objects import Bytes, Put, stored_of
from viewcache import store

__all__ = ["put", "tier"]


@pytest.fixture
def tier(tmp_path: Path) -> store.LocalTier:
    """A local tier with room for everything."""
    return store.LocalTier(tmp_path / "store", 1 << 40)


@pytest.fixture
def put(tier: store.LocalTier) -> Put:
    """Write an array under a new or given key and return what a reader needs."""

    def write(
        array: Bytes, rows: int = 1, codec: str = "raw", key: str | None = None, **attributes: object
    ) -> store.Stored:
        meta = store.ArrayMeta(array.shape, (rows, *array.shape[1:]), codec, attributes)
        return stored_of(store.write_object(tier.root, key or os.urandom(16).hex(), array, meta))

    return write
