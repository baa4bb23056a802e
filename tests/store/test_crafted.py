"""What somebody else wrote into a store is bounded by the bytes that lie there before it is believed."""

import tracemalloc
from pathlib import Path

import pytest

from tests.store.crafted import CRAFTED, FORGED_ATTRIBUTES, FORGED_BYTES, craft
from viewcache import store
from viewcache.errors import ChunkDamaged

KEY = "c7" * 16
MOST = 48 << 20
"""Bytes of memory that looking at one object may take: a text of 16 MiB and what it says."""


def scanned(root: Path) -> int:
    """Look at the crafted object, which must be damage; the most memory that it took."""
    tracemalloc.start()
    try:
        with pytest.raises(ChunkDamaged):
            store.scan_object(root, store.physical_of(KEY))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", CRAFTED)
def test_a_forged_description_is_damage(tier: store.LocalTier, name: str) -> None:
    """Whatever it says, with the right checksum: it is refused as damage and takes no memory."""
    craft(Path(tier.root), KEY, CRAFTED[name])
    assert scanned(Path(tier.root)) < MOST


@pytest.mark.parametrize("name", FORGED_BYTES)
def test_forged_files_are_damage(tier: store.LocalTier, name: str) -> None:
    """Files that claim sizes, places or kinds that they do not have are damage and take no memory."""
    folder = craft(Path(tier.root), KEY, lambda document: None)
    FORGED_BYTES[name](folder / "zarr.json", folder / "c.0.0")
    assert scanned(Path(tier.root)) < MOST


@pytest.mark.parametrize("name", FORGED_ATTRIBUTES)
def test_what_is_forged_in_attributes_is_its_readers_business(tier: store.LocalTier, name: str) -> None:
    """A store takes any attributes that are JSON; a cache's recovery judges them (`tests/tiers/test_crafted.py`)."""
    craft(Path(tier.root), KEY, FORGED_ATTRIBUTES[name])
    assert store.scan_object(tier.root, store.physical_of(KEY)).key == KEY
