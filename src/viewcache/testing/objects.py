"""Arrays and records for tests of tiers."""

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from viewcache import store

__all__ = ["Bytes", "pixels", "put", "stored_of"]

Bytes = NDArray[np.uint8]


def pixels(shape: tuple[int, ...], seed: int = 0) -> Bytes:
    """Noise over a ramp, so that codecs find something and every chunk differs."""
    noise = np.random.default_rng(seed).integers(0, 24, shape)
    ramp = np.arange(noise.size, dtype=np.int64).reshape(shape) // 50
    return (noise + ramp).astype(np.uint8)


def stored_of(written: store.Written) -> store.Stored:
    """What the catalog would hand to a reader."""
    table = store.ChunkTable.from_bytes(written.table)
    return store.Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)


def put(
    tier: store.Tier, array: Bytes | Iterator[Bytes], meta: store.ArrayMeta, key: str | None = None
) -> store.Written:
    """Write as an owner does: under a reservation, counted when it is there; an object that was there counts once."""
    key = key or os.urandom(16).hex()
    reservation = tier.reserve(store.bound_bytes(meta, key))
    assert reservation is not None
    with reservation:
        written = tier.write(key, array, meta)
        reservation.commit(0 if written.existed else written.bytes)
    return written
