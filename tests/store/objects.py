"""Arrays and records that the tests of the store share."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from viewcache import store

Bytes = NDArray[np.uint8]
Put = Callable[..., store.Stored]


def stored_of(written: store.Written) -> store.Stored:
    """What the catalog would hand to a reader."""
    table = store.ChunkTable.from_bytes(written.table)
    return store.Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)


def pixels(shape: tuple[int, ...], seed: int = 0) -> Bytes:
    """Noise over a ramp, so that codecs find something and every chunk differs."""
    noise = np.random.default_rng(seed).integers(0, 24, shape)
    ramp = np.arange(noise.size, dtype=np.int64).reshape(shape) // 50
    return (noise + ramp).astype(np.uint8)
