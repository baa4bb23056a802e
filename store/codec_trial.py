"""What each codec would do to a chunk: a small trial beside the real work, so that codecs are chosen by measurement.

Runs in workers. Of one object of a few jobs a part is tried by all codecs, which tells how fast they are. How well an
object packs is told by a sample of its own, a few small pieces. Seconds are those of the CPU: of so little work the
clock would tell how busy the machine is.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from viewcache.store.buffers import aligned_empty
from viewcache.store.codec import CODECS

__all__ = ["LEAST_SAMPLE", "SHARE", "Trial", "pieces_of", "sample_bytes", "sample_codec", "try_codecs"]

TRIED_BYTES = 1 << 20
"""Of the chunk at most: some milliseconds of work, and more than codecs look back."""

SHARE = 512
"""One of so many bytes is sampled: packing it takes 1 % of the time that storing all of them raw takes, about."""

PIECE = 16 << 10
"""Of a sample. Smaller ones are dominated by what a call costs, and codecs have nothing to look back to."""

LEAST_SAMPLE, MOST_SAMPLE = 2 * PIECE, 16 * PIECE
"""Bytes of an object, unless it has fewer."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one codec did."""

    codec: str
    chunk_bytes: int
    """Of the chunk that the bytes were taken from."""
    raw_bytes: int
    packed_bytes: int
    pack_s: float
    unpack_s: float | None
    """None for a sample, which is not unpacked."""


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
        _load(codec.name)
        begun = time.thread_time()
        packed = codec.encode(part)
        halfway = time.thread_time()
        codec.decode_into(packed, out)
        ended = time.thread_time()
        trials.append(Trial(codec.name, flat.size, part.size, packed.size, halfway - begun, ended - halfway))
    return tuple(trials)


def sample_bytes(size: int) -> int:
    """How many bytes of an object of some size are a sample of it."""
    return min(size, max(LEAST_SAMPLE, min(MOST_SAMPLE, size // SHARE // PIECE * PIECE)))


def pieces_of(array: NDArray[np.uint8], chunk_bytes: int) -> list[NDArray[np.uint8]]:
    """A sample of an object: pieces at equal distances, none longer than a chunk.

    Args:
        array: contiguous uint8 of any shape.
        chunk_bytes: of one inner chunk: behind it a codec begins anew.
    """
    flat = array.reshape(-1)
    length = max(1, min(PIECE, chunk_bytes, flat.size))
    count = max(1, sample_bytes(flat.size) // length)
    starts = (np.arange(count) * 2 + 1) * (flat.size - count * length) // (2 * count) + np.arange(count) * length
    return [np.ascontiguousarray(flat[start : start + length]) for start in starts.tolist()]


def sample_codec(
    name: str, pieces: Sequence[NDArray[np.uint8]], chunk_bytes: int, loaded: Callable[[], object] = lambda: None
) -> Trial:
    """Pack some pieces of an object.

    Args:
        name: of the codec, one that packs.
        pieces: contiguous, 1-D.
        chunk_bytes: of one inner chunk of the object.
        loaded: called when the codec's library is there, before the first piece is packed.
    """
    _load(name)
    loaded()
    pack = CODECS[name].encode
    begun = time.thread_time()
    packed = sum(pack(piece).size for piece in pieces)
    return Trial(name, chunk_bytes, sum(piece.size for piece in pieces), packed, time.thread_time() - begun, None)


@cache
def _load(name: str) -> None:
    """Load the library, once in a process."""
    CODECS[name].encode(np.zeros(4096, np.uint8))
