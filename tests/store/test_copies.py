"""Copies of objects in other tiers say of themselves what the original says, whatever their elements are."""

from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.store.objects import copied, stored_of
from viewcache import store

KEY = "cd" * 16
SOUND = np.linspace(-1, 1, 2 * 3 * 40, dtype=np.float32).reshape(2, 3, 40)


@pytest.mark.parametrize("codec", sorted(store.CODECS))
def test_a_copy_of_floats_is_floats(tmp_path: Path, codec: str) -> None:
    """Sound through memory into another folder: what it says is the same but for the codec, and any client reads it."""
    raw = SOUND.view(np.uint8)
    meta = store.ArrayMeta(raw.shape, (1, *raw.shape[1:]), "raw", {"kind": "audio", "rate": 16000}, "float32")
    source: store.Tier = store.LocalTier(tmp_path / "one", 1 << 30)
    memory, back = store.open_tier("memory", "memory://", 64 << 20), store.LocalTier(tmp_path / "back", 1 << 30)
    stored = stored_of(source.write(KEY, raw, meta))
    for target in (memory, back):
        written = copied(source, stored, target, codec, KEY)
        source, stored = target, stored_of(written)
        found = target.describe(stored)
        assert (found.element, found.shape, found.chunk, found.attributes) == (
            "float32",
            meta.shape,
            meta.chunk,
            meta.attributes,
        )
    memory.close()
    array = zarr.open_array(back.root + "/" + stored.physical, mode="r")
    assert array.dtype == np.float32
    assert np.array_equal(np.asarray(array[:]), SOUND)
