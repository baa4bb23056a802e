"""A shard written chunk by chunk, in any order, into an open file from some place on; the caller publishes it.

The trade-off: offsets in the shard's index count from its own first byte, as Zarr has it, so that the same bytes are a
file of a folder, a range of an arena, or the body of a request.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Full, Misuse
from viewcache.store.blocks import OBJECT_BOUND
from viewcache.store.checksum import crc32c
from viewcache.store.codec import codec
from viewcache.store.format import (
    CRC_BYTES,
    ArrayMeta,
    ChunkTable,
    aligned,
    dump_metadata,
    index_size,
    remote_entries_bytes,
)
from viewcache.store.shard_reader import FoundObject

__all__ = [
    "ShardWriter",
    "Written",
    "bound_bytes",
    "groups_bound",
    "inner_chunks",
    "packed_shard",
    "shard_bound",
    "write_exactly",
    "written_of",
]

Bytes = NDArray[np.uint8]
Blob = bytes  # the type's own name is a field's below

_GAP = bytes(aligned(1))

PADDING_BOUND = 4096
"""Most bytes that the zeros behind a group take once zstd has packed it. A block of zeros takes four; one of 128 KiB
with some is stored as it is only if less than a sixty-fourth of it would be gained."""


@dataclass(frozen=True, slots=True)
class Written:
    """What lies there after a write; the catalog's row for the copy."""

    key: str
    physical: str
    """Its place in the tier, ``objects/ab/ab…``."""
    bytes: int
    """That it takes: in a folder the blocks of shard and ``zarr.json`` and the folder's own, in memory the pages, in a
    bucket their lengths."""
    raw_bytes: int
    """Of the array in memory."""
    codec: str
    shape: tuple[int, ...]
    chunk_rows: int
    table: Blob
    """`ChunkTable.to_bytes`."""
    crc: int
    """`ChunkTable.digest`, 32 bits."""
    seconds: float
    """Wall time from the first byte to the rename."""
    existed: bool
    """An equal object was there already and was kept; ``bytes`` and ``codec`` are its own."""


def bound_bytes(meta: ArrayMeta, key: str) -> int:
    """The most bytes that writing this object takes in any tier at any time: what to reserve before it."""
    metadata = len(dump_metadata(meta, key, 0)) + remote_entries_bytes(meta.chunks)
    return shard_bound(meta) + metadata + OBJECT_BOUND


def groups_bound(meta: ArrayMeta, key: str, sizes: Iterable[int]) -> int:
    """The same for groups of encoded pictures of known sizes in bytes: the longest says little of the others."""
    return bound_bytes(meta, key) - shard_bound(meta) + shard_bound(meta, sizes)


def shard_bound(meta: ArrayMeta, sizes: Iterable[int] | None = None) -> int:
    """The most bytes that a shard has; of encoded pictures with the ``sizes`` of their groups, if these are known."""
    bound = codec(meta.codec).bound
    if sizes is None:
        return meta.chunks * aligned(bound(meta.chunk_bytes) + CRC_BYTES) + index_size(meta.chunks)
    padded = (min(bound(size) + PADDING_BOUND, bound(meta.chunk_bytes)) for size in sizes)
    return sum(aligned(size + CRC_BYTES) for size in padded) + index_size(meta.chunks)


def inner_chunks(array: Bytes | Iterable[Bytes], meta: ArrayMeta) -> Iterable[Bytes]:
    """The inner chunks, in order, of what `write_object` takes.

    Raises:
        Misuse: an array has another shape than ``meta``.
    """
    if not isinstance(array, np.ndarray):
        return array
    if array.shape != meta.shape:
        raise Misuse(f"an array of shape {array.shape} was given for an object of shape {meta.shape}")
    rows = meta.chunk[0]
    return (array[chunk * rows : (chunk + 1) * rows] for chunk in range(meta.chunks))


def written_of(found: FoundObject, seconds: float, *, existed: bool) -> Written:
    """The record of an object that lies there."""
    return Written(
        key=found.key,
        physical=found.physical,
        bytes=found.bytes,
        raw_bytes=found.meta.raw_bytes,
        codec=found.meta.codec,
        shape=found.meta.shape,
        chunk_rows=found.meta.chunk[0],
        table=found.table.to_bytes(),
        crc=found.table.digest(),
        seconds=seconds,
        existed=existed,
    )


class ShardWriter:
    """One shard in the making."""

    def __init__(self, file: int, start: int, key: str, meta: ArrayMeta):
        """Write nothing yet.

        Args:
            file: open for writing, with room for ``bound_bytes(meta, key)`` from ``start`` on.
            start: where the shard begins in it; a multiple of `viewcache.store.format.ALIGNMENT`.
            key: of the object.
            meta: of the object.
        """
        self._file, self._start, self._key, self._meta = file, start, key, meta
        self._codec = codec(meta.codec)
        self._places: list[tuple[int, int, int] | None] = [None] * meta.chunks  # offset, size, crc
        self._end = 0

    def put(self, chunk: int, rows: Bytes, *, is_there: bool = False) -> None:
        """Write one inner chunk.

        Args:
            chunk: which one.
            rows: uint8 ``(n, *shape[1:])``, short only for the last chunk; of encoded pictures, the bytes of the group.
            is_there: whether ``rows`` is the chunk's own place in the file, mapped; only for a whole raw chunk.

        Raises:
            OSError: the file cannot be written.
            Misuse: the chunk does not fit, or is there already.
        """
        meta = self._meta
        if not 0 <= chunk < meta.chunks or self._places[chunk] is not None:
            raise Misuse(f"chunk {chunk} of object {self._key} is not awaited (it has {meta.chunks})")
        if meta.width:
            due: tuple[int, ...] = (min(rows.size, meta.width),)
        else:
            due = (min(meta.chunk[0], meta.shape[0] - chunk * meta.chunk[0]), *meta.shape[1:])
        if rows.shape != due or rows.dtype != np.uint8:
            raise Misuse(f"chunk {chunk} must be uint8 of {due}, not {rows.dtype} of {rows.shape}")
        raw = np.ascontiguousarray(rows).reshape(-1)
        if raw.size < meta.chunk_bytes:
            raw = np.concatenate([raw, np.zeros(meta.chunk_bytes - raw.size, np.uint8)])
        stored = self._codec.encode(raw)
        crc = crc32c(stored)
        # Raw chunks have one size, hence one place each: order on disk is then the order of rows, whatever came first.
        step = aligned(meta.chunk_bytes + CRC_BYTES)
        offset = chunk * step if meta.codec == "raw" else self._end
        size = stored.size + CRC_BYTES
        gap = _GAP[: aligned(size) - size]
        trailer = memoryview(struct.pack("<I", crc) + gap)
        if is_there:
            if meta.codec != "raw" or rows.size != meta.chunk_bytes or not rows.flags.c_contiguous:
                raise Misuse(
                    f"chunk {chunk} of object {self._key} cannot be there already: {meta.codec} of {rows.shape}"
                )
            write_exactly(self._file, [trailer], self._start + offset + stored.size)
        else:
            write_exactly(self._file, [stored.data, trailer], self._start + offset)
        self._places[chunk] = offset, size, crc
        self._end = max(self._end, offset + size + len(gap))

    def finish(self) -> tuple[ChunkTable, int]:
        """Write the index; the chunks' places in the shard, and its length in bytes.

        Raises:
            OSError: the file cannot be written.
            Misuse: chunks are missing.
        """
        places = [place for place in self._places if place is not None]
        if len(places) != self._meta.chunks:
            raise Misuse(f"object {self._key} has {len(places)} of {self._meta.chunks} chunks and cannot be committed")
        offsets, sizes, crcs = zip(*places, strict=True)
        table = ChunkTable(offsets, sizes, crcs)
        index = table.index_bytes()
        write_exactly(self._file, [memoryview(index)], self._start + self._end)
        return table, self._end + len(index)


def packed_shard(key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta) -> tuple[ChunkTable, bytes]:
    """A shard as one run of bytes, for the body of a request.

    Raises:
        Full: no memory for it.
        Misuse: the array does not fit ``meta``.
    """
    with open(os.memfd_create("viewcache-shard"), "rb", buffering=0) as file:
        shard = ShardWriter(file.fileno(), 0, key, meta)
        for chunk, part in enumerate(inner_chunks(array, meta)):
            with _memory(key):
                shard.put(chunk, part)
        with _memory(key):
            return shard.finish()[0], file.readall()


@contextmanager
def _memory(key: str) -> Iterator[None]:
    try:
        yield
    except (OSError, MemoryError) as error:
        raise Full(f"no memory for the shard of object {key}: {error}; raise the limits of this process") from error


def write_exactly(file: int, views: list[memoryview], offset: int) -> None:
    """One call nearly always; a full disk shows as a short write first and as an error at the next call."""
    want = sum(map(len, views))
    done = os.pwritev(file, views, offset)
    while done < want:
        rest = memoryview(b"".join(views))[done:]
        done += os.pwrite(file, rest, offset + done)
