"""What each codec would do to a chunk: a small trial beside the real work, so that codecs are chosen by measurement.

Runs in workers. One object of a few jobs is tried, and of it a part: the others are much like it. Seconds are those of
the CPU: of so little work the clock would tell how busy the machine is.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.store import CODECS, aligned_empty

__all__ = ["Trial", "try_codecs"]

TRIED_BYTES = 1 << 20
"""Of the chunk at most: some milliseconds of work, and more than codecs look back."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one codec did."""

    codec: str
    chunk_bytes: int
    """Of the chunk that the bytes were taken from."""
    raw_bytes: int
    packed_bytes: int
    pack_s: float
    unpack_s: float


def try_codecs(chunk: NDArray[np.uint8]) -> tuple[Trial, ...]:
    """Pack and unpack the middle of a chunk by every codec that packs.

    Args:
        chunk: contiguous uint8 of any shape.
    """
    flat = chunk.reshape(-1)
    start = max(0, flat.size - TRIED_BYTES) // 2
    part = np.ascontiguousarray(flat[start : start + TRIED_BYTES])
    out = aligned_empty((part.size,))
    trials = []
    for codec in CODECS.values():
        if codec.name == "raw":
            continue
        codec.encode(part[:4096])  # the first call loads the library
        begun = time.thread_time()
        packed = codec.encode(part)
        halfway = time.thread_time()
        codec.decode_into(packed, out)
        ended = time.thread_time()
        trials.append(Trial(codec.name, flat.size, part.size, packed.size, halfway - begun, ended - halfway))
    return tuple(trials)
