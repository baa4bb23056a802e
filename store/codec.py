"""Codecs of inner chunks: bytes in, bytes out, by name, each with the Zarr v3 metadata that describes it.

Only codecs of the Zarr core that won the measurement in docs/design/0002 are here: ``raw``, ``lz4`` (blosc without
shuffle: shuffles make it 2-5 times slower on pixels) and ``zstd1``. The checksum is the format's business, not theirs.
Beside them are the names of `ENCODED` objects, of which the store knows bytes only: `viewcache.store.groups`.
numcodecs is imported at the first compressed chunk, so that readers of raw objects never pay for it.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any  # numcodecs has no types

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, ChunkDamaged

__all__ = ["CODECS", "ENCODED", "Codec", "codec", "zstd_content_size"]

Bytes = NDArray[np.uint8]

_BLOSC_HEADER = struct.Struct("<4x3I")  # after four version bytes: raw bytes, block bytes, compressed bytes
_BLOSC_OVERHEAD = 16  # bytes: blosc stores what does not compress behind its header
_PADDED_LEVEL = -1  # what is encoded does not get smaller: only the padding is to go, at little cost
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SIZE_FORMATS = {1: ("<B", 0), 2: ("<H", 256), 4: ("<I", 0), 8: ("<Q", 0)}  # RFC 8878: two-byte sizes start at 256


@dataclass(frozen=True, slots=True)
class Codec:
    """One way to store an inner chunk."""

    name: str
    """What the catalog and the configuration call it."""
    zarr: tuple[Mapping[str, object], ...]
    """Its entries of the Zarr codec pipeline, between ``bytes`` and ``crc32c``."""
    encode: Callable[[Bytes], Bytes]
    """From contiguous raw bytes (1-D) to the stored ones (1-D); ``raw`` returns its argument."""
    decode_into: Callable[[Bytes, Bytes], None]
    """From stored bytes (1-D) into exactly as many raw bytes (1-D, contiguous) as they hold; else ChunkDamaged."""
    bound: Callable[[int], int]
    """The most bytes that encoding n raw bytes can give."""


def codec(name: str) -> Codec:
    """Look a codec up by name.

    Raises:
        BadInput: no such codec; the message lists the known ones.
    """
    try:
        return CODECS[name] if name in CODECS else ENCODED[name]
    except KeyError:
        raise BadInput(f"unknown codec {name!r}; known are {', '.join((*CODECS, *ENCODED))}") from None


def _raw_encode(raw: Bytes) -> Bytes:
    return raw


def _raw_decode(stored: Bytes, out: Bytes) -> None:
    if stored.size != out.size:
        raise ChunkDamaged(f"a raw chunk holds {stored.size} bytes where {out.size} are due")
    out[:] = stored


@cache
def _blosc() -> Any:
    from numcodecs import blosc

    # In the main thread blosc would start threads of its own: they do not survive a fork, and their time is
    # invisible to the scheduler, which already runs one worker per core.
    blosc.use_threads = False
    return blosc


@cache
def _zstd() -> Any:
    from numcodecs import zstd

    return zstd


def _lz4_encode(raw: Bytes) -> Bytes:
    blosc = _blosc()
    return np.frombuffer(blosc.compress(raw, b"lz4", 5, blosc.NOSHUFFLE, 0, 1), np.uint8)


def _lz4_decode(stored: Bytes, out: Bytes) -> None:
    if stored.size < _BLOSC_OVERHEAD:
        raise ChunkDamaged(f"an lz4 chunk of {stored.size} bytes is shorter than its header")
    holds, _, length = _BLOSC_HEADER.unpack_from(stored.data)
    if holds != out.size or length != stored.size:
        raise ChunkDamaged(
            f"an lz4 chunk of {stored.size} bytes says {length} bytes that unpack to {holds} where {out.size} are due"
        )
    _decompress(_blosc(), stored, out)


def _zstd_encode(raw: Bytes) -> Bytes:
    return np.frombuffer(_zstd().compress(raw, 1), np.uint8)


def _padded_encode(raw: Bytes) -> Bytes:
    return np.frombuffer(_zstd().compress(raw, _PADDED_LEVEL), np.uint8)


def _zstd_decode(stored: Bytes, out: Bytes) -> None:
    holds = zstd_content_size(stored)
    if holds != out.size:
        raise ChunkDamaged(f"a zstd chunk says that it unpacks to {holds} bytes where {out.size} are due")
    _decompress(_zstd(), stored, out)


def zstd_content_size(stored: Bytes) -> int | None:
    """The size written in the frame's header (RFC 8878, 3.1.1), None where there is none."""
    head = stored[:18].tobytes()
    if len(head) < 6 or head[:4] != _ZSTD_MAGIC:
        return None
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    if not width or len(head) < start + width:
        return None
    layout, base = _ZSTD_SIZE_FORMATS[width]
    return int(struct.unpack_from(layout, head, start)[0]) + base


def _decompress(library: Any, stored: Bytes, out: Bytes) -> None:
    try:
        library.decompress(stored, out)
    except (RuntimeError, ValueError) as error:
        raise ChunkDamaged(f"a chunk of {stored.size} bytes does not unpack: {error}") from None


def _zstd_bound(size: int) -> int:
    """ZSTD_compressBound: blocks that do not compress are stored, plus a margin for small inputs."""
    return size + (size >> 8) + max(0, (131072 - size) >> 11) + 64


CODECS: Mapping[str, Codec] = {
    entry.name: entry
    for entry in (
        Codec("raw", (), _raw_encode, _raw_decode, lambda size: size),
        Codec(
            "lz4",
            (
                {
                    "name": "blosc",
                    "configuration": {
                        "typesize": 1,
                        "cname": "lz4",
                        "clevel": 5,
                        "shuffle": "noshuffle",
                        "blocksize": 0,
                    },
                },
            ),
            _lz4_encode,
            _lz4_decode,
            lambda size: size + _BLOSC_OVERHEAD,
        ),
        Codec(
            "zstd1",
            ({"name": "zstd", "configuration": {"level": 1, "checksum": False}},),
            _zstd_encode,
            _zstd_decode,
            _zstd_bound,
        ),
    )
}
"""All codecs of pixels by name."""

_PADDED = ({"name": "zstd", "configuration": {"level": _PADDED_LEVEL, "checksum": False}},)

ENCODED: Mapping[str, Codec] = {
    name: Codec(name, _PADDED, _padded_encode, _zstd_decode, _zstd_bound)
    for name in ("delta-lz4", "delta-zstd1", "h264", "h264-lossy")
}
"""How groups of pictures may be encoded, by whoever writes and reads them: each inner chunk is the bytes of one group,
padded with zeros to the length of the longest, and zstd takes the padding away again."""
