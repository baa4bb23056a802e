"""The most bytes that an object may take: whatever it shows, in every codec of pixels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.planning.size import clip_bound
from viewcache.store import CODECS, ArrayMeta
from viewcache.store.codec import codec
from viewcache.store.format import CRC_BYTES, aligned, index_size
from viewcache.store.shard_writer import bound_bytes, shard_bound

KEY = "0" * 32


@pytest.mark.parametrize("name", CODECS)
@given(frames=st.integers(1, 3000), size=st.integers(1, 40_000))
def test_no_object_takes_more_than_is_promised_to_it(name: str, frames: int, size: int) -> None:
    """Not even where each frame is a chunk of its own, does not pack, and is as small as a stamp."""
    attributes: dict[str, object] = {"video": "v" * 200, "frames": [10 * each for each in range(frames)]}
    meta = ArrayMeta((frames, size), (1, size), name, attributes)
    noise = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    chunk = aligned(len(codec(name).encode(noise)) + CRC_BYTES)
    shard = frames * chunk + index_size(frames)
    assert clip_bound(frames * size, frames) >= bound_bytes(meta, KEY) - shard_bound(meta) + shard
