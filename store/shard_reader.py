"""A shard's inner chunks, wherever the shard lies: into the caller's memory, and no damaged byte through.

What differs between tiers is one function, `Fill`, that brings bytes from a place of the shard. The trade-off: a chunk
is checked after it was brought into the caller's buffer, so after ChunkDamaged the buffer's content is undefined.
"""

import math
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged, Misuse
from viewcache.store.buffers import aligned_empty
from viewcache.store.checksum import crc32c
from viewcache.store.codec import ENCODED, codec
from viewcache.store.format import CRC_BYTES, ArrayMeta, ChunkTable, aligned, check_physical, index_size

__all__ = [
    "Fill",
    "FoundObject",
    "Stored",
    "check_chunks",
    "flat_rows",
    "locate_chunks",
    "read_chunks",
    "read_each",
    "read_exactly",
]

Bytes = NDArray[np.uint8]
Fill = Callable[[Sequence[memoryview | bytearray], int], None]
"""Fills the buffers, one after another, with the bytes from an offset on; ChunkDamaged where there are fewer."""

_RUN_BYTES = 512 << 10  # by one call: enough to hide its cost, and still in the core's own cache when it is checked
_RUN_CHUNKS = 512  # two places each, and the system takes at most 1024 in one call
_BLANK = 64  # times that an object of zeros gets smaller, at least
_CRC = struct.Struct("<I")
_scratch = threading.local()


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one object lies and all that a read needs, as the catalog remembers it."""

    physical: str
    """Its place in the tier, ``objects/ab/ab…``."""
    shape: tuple[int, ...]
    chunk_rows: int
    """Rows of axis 0 per inner chunk."""
    codec: str
    table: ChunkTable

    def __post_init__(self) -> None:
        """Refuse a place outside ``objects/`` and a table that does not fit the shape."""
        check_physical(self.physical)
        chunks = -(-self.shape[0] // self.chunk_rows)
        if len(self.table.offsets) != chunks:
            raise ChunkDamaged(f"the chunk table of {self.physical} has {len(self.table.offsets)} chunks, not {chunks}")

    @property
    def span(self) -> tuple[int, int]:
        """From which byte of the shard to which its chunks lie."""
        ends = (offset + size for offset, size in zip(self.table.offsets, self.table.sizes, strict=True))
        return min(self.table.offsets), max(ends)

    def chunk(self, number: int) -> "Stored":
        """One inner chunk as an object of its own, which lies where it is."""
        rows = min(self.chunk_rows, self.shape[0] - number * self.chunk_rows)
        return Stored(self.physical, (rows, *self.shape[1:]), rows, self.codec, self._table(number, 1))

    def chunks(self, first: int, count: int) -> "Stored":
        """Some inner chunks, one behind the other, as an object of its own, which lies where they are."""
        rows = min(count * self.chunk_rows, self.shape[0] - first * self.chunk_rows)
        table = self._table(first, count)
        return Stored(self.physical, (rows, *self.shape[1:]), self.chunk_rows, self.codec, table)

    def _table(self, first: int, count: int) -> ChunkTable:
        table, mine = self.table, slice(first, first + count)
        return ChunkTable(table.offsets[mine], table.sizes[mine], table.crcs[mine])

    @property
    def is_blank(self) -> bool:
        """Whether it packed to next to nothing: then how fast it is read says nothing of its codec."""
        return sum(self.table.sizes) * _BLANK < math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object as the store alone knows it, without the catalog."""

    key: str
    physical: str
    meta: ArrayMeta
    table: ChunkTable
    bytes: int
    """That it takes, see `viewcache.store.Written.bytes`."""

    @property
    def stored(self) -> Stored:
        """What `read_into` wants."""
        return Stored(self.physical, self.meta.shape, self.meta.chunk[0], self.meta.codec, self.table)


def read_chunks(fill: Fill, path: str, stored: Stored, picks: Sequence[int], flat: Bytes) -> None:
    """Read inner chunks and check each.

    Args:
        fill: brings bytes, at the offsets of ``stored.table``.
        path: of the shard, for messages.
        stored: the object.
        picks: ordinals of inner chunks, in the order wanted.
        flat: where their rows go, as `flat_rows` made it.

    Raises:
        ChunkDamaged: a chunk is missing, short, or not the one whose checksum the catalog has.
    """
    row_bytes = math.prod(stored.shape[1:])
    full = stored.chunk_rows * row_bytes
    bound = codec(stored.codec).bound(full) + CRC_BYTES
    raw = stored.codec == "raw"
    read = _read_raw if raw else _read_encoded
    last, sizes, start = len(stored.table.sizes) - 1, stored.table.sizes, 0
    for run in _runs(stored.table, picks):
        parts = []
        for chunk in run:
            if not CRC_BYTES < sizes[chunk] <= bound or (raw and sizes[chunk] != bound):
                raise ChunkDamaged(f"{path}: chunk {chunk} cannot have {sizes[chunk]} bytes")
            end = start + full if chunk != last else start + (stored.shape[0] - last * stored.chunk_rows) * row_bytes
            parts.append(flat[start:end])
            start = end
        read(fill, path, stored, run, parts, full)


def flat_rows(stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None) -> tuple[Sequence[int], Bytes]:
    """The chunks that were asked for, and ``out`` as one run of bytes for their rows.

    Raises:
        Misuse: a chunk does not exist, or ``out`` does not fit.
    """
    if stored.codec in ENCODED:
        raise Misuse(f"{stored.physical} holds encoded pictures ({stored.codec}): read its groups by `read_group`")
    count = len(stored.table.offsets)
    picks = range(count) if chunks is None else range(count)[chunks] if isinstance(chunks, slice) else chunks
    if picks and not (min(picks) >= 0 and max(picks) < count):
        raise Misuse(f"chunks {min(picks)} to {max(picks)} of {stored.physical} do not exist; it has {count}")
    short = count * stored.chunk_rows - stored.shape[0]  # rows of padding in the last chunk
    rows = len(picks) * stored.chunk_rows - (picks.count(count - 1) * short if short else 0)
    shape = (rows, *stored.shape[1:])
    if out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
        raise Misuse(f"out must be a contiguous writable uint8 array of {shape}, not {out.dtype} of {out.shape}")
    return picks, out.reshape(-1)


def read_each(
    read: Callable[[Stored, Bytes], None], objects: Sequence[Stored], slots: Bytes | Sequence[Bytes]
) -> dict[int, ChunkDamaged]:
    """`read_slots` by any way of reading one object into its slot; errors and result are the same.

    Chunks of one shard that follow one another, as the pictures of a block, are read together where the slots are one
    buffer. Only where something is wrong with them each is read by itself, to know which it is.
    """
    if len(objects) != len(slots):
        raise Misuse(f"{len(objects)} objects were to be read into {len(slots)} slots")
    damaged = {}
    buffer = slots if isinstance(slots, np.ndarray) and slots.flags.c_contiguous else None
    for first, stop in _side_by_side(objects):
        if stop - first > 1 and buffer is not None and buffer.shape[1:] == objects[first].shape:
            together = _together(objects[first:stop])
            try:
                read(together, buffer[first:stop].reshape(together.shape))
            except ChunkDamaged:
                pass
            else:
                continue
        for position in range(first, stop):
            try:
                read(objects[position], slots[position])
            except ChunkDamaged as error:
                damaged[position] = error
    return damaged


def _side_by_side(objects: Sequence[Stored]) -> Iterator[tuple[int, int]]:
    """From which to which position objects are a chunk each of one shard, one behind the other; all positions."""
    first = 0
    for position in range(1, len(objects) + 1):
        if position == len(objects) or not _follows(objects[position - 1], objects[position]):
            yield first, position
            first = position


def _follows(one: Stored, other: Stored) -> bool:
    """Whether two objects are whole chunks of one shard, the second right behind the first."""
    return (
        one.physical == other.physical
        and one.codec == other.codec
        and one.shape == other.shape
        and one.chunk_rows == other.chunk_rows == one.shape[0]
        and one.table.offsets[0] + aligned(one.table.sizes[0]) == other.table.offsets[0]
    )


def _together(objects: Sequence[Stored]) -> Stored:
    """Such objects as one."""
    one = objects[0]
    places = ((each.table.offsets[0], each.table.sizes[0], each.table.crcs[0]) for each in objects)
    table = ChunkTable(*zip(*places, strict=True))
    return Stored(one.physical, (len(objects) * one.shape[0], *one.shape[1:]), one.chunk_rows, one.codec, table)


def locate_chunks(fill: Fill, path: str, meta: ArrayMeta, digest: int, start: int, end: int) -> ChunkTable:
    """Find a shard's chunks by its own index; they are not read.

    Args:
        fill: brings bytes of the file, or whatever else the shard lies in.
        path: of the shard, for messages.
        meta: what ``zarr.json`` says.
        digest: of the chunks' checksums, from there too.
        start: where the shard begins, in bytes.
        end: where it ends.

    Raises:
        ChunkDamaged: the index or a chunk's trailer is not as written, or is another object's.
    """
    limit = end - start - index_size(meta.chunks)
    if limit < meta.chunks * CRC_BYTES:  # before memory is taken for what somebody else may have claimed
        raise ChunkDamaged(f"{path} has {end - start} bytes, too few for the {meta.chunks} chunks of its zarr.json")
    index = bytearray(index_size(meta.chunks))
    fill([index], end - len(index))
    offsets, sizes = ChunkTable.parse_index(bytes(index), path)
    most = min(limit, codec(meta.codec).bound(meta.chunk_bytes) + CRC_BYTES)
    places = zip(offsets, sizes, strict=True)
    if any(place + length > limit or not CRC_BYTES <= length <= most for place, length in places):
        raise ChunkDamaged(f"{path}: the index points outside the {end - start} bytes of the shard, or at a wrong size")
    crcs: list[int] = []
    trailer = bytearray(CRC_BYTES)
    for place, length in zip(offsets, sizes, strict=True):
        fill([trailer], start + place + length - CRC_BYTES)
        crcs += _CRC.unpack(trailer)
    table = ChunkTable(tuple(start + place for place in offsets), sizes, tuple(crcs))
    if table.digest() != digest:
        raise ChunkDamaged(f"{path}: the chunks' checksums are not those that zarr.json was written with")
    return table


def check_chunks(fill: Fill, path: str, table: ChunkTable, start: int, end: int) -> None:
    """Read every byte of a shard before its index, and check it.

    Args:
        fill: brings bytes, at the offsets of ``table``.
        path: of the shard, for messages.
        table: of all its chunks.
        start: where the shard begins.
        end: where its index begins.

    Raises:
        ChunkDamaged: any bit is not as written.
    """
    at = start
    for chunk in sorted(range(len(table.offsets)), key=table.offsets.__getitem__):
        _check_gap(fill, path, at, table.offsets[chunk])
        buffer = _scratch_of("encoded", table.sizes[chunk])
        fill([buffer.data], table.offsets[chunk])
        _check(path, chunk, crc32c(buffer[:-CRC_BYTES]), table.crcs[chunk], table.crcs[chunk])
        at = table.offsets[chunk] + table.sizes[chunk]
    _check_gap(fill, path, at, end)


def read_exactly(file: int, path: str, views: Sequence[memoryview | bytearray], offset: int) -> None:
    """A `Fill` of an open file: one call nearly always; network file systems may give less than was asked for."""
    want = sum(map(len, views))
    got = os.preadv(file, views, offset)
    while got < want:
        more = os.preadv(file, list(_after(views, got)), offset + got)
        if not more:
            raise ChunkDamaged(f"{path} ends at byte {offset + got}, {want - got} too early")
        got += more


def _runs(table: ChunkTable, picks: Sequence[int]) -> Iterator[list[int]]:
    """Chunks that are read by one call, since they follow one another both on disk and in ``picks``."""
    run: list[int] = []
    left = end = 0
    for chunk in picks:
        offset, length = table.offsets[chunk], aligned(table.sizes[chunk])
        if not run or offset != end or length > left or len(run) == _RUN_CHUNKS:
            if run:
                yield run
            run, left = [], _RUN_BYTES
        run.append(chunk)
        left, end = left - length, offset + length
    if run:
        yield run


def _read_raw(fill: Fill, path: str, stored: Stored, run: list[int], parts: list[Bytes], full: int) -> None:
    """Pixels go straight to their places; padding, trailer and gap of each chunk go aside."""
    table, step = stored.table, aligned(full + CRC_BYTES)
    tails = [bytearray(step - part.size) for part in parts]
    start, crc = table.offsets[run[0]], 0
    # A large chunk stands alone in its run: it is read and checked in pieces, the last one with what is behind it.
    head = max(parts[0].size - 1, 0) // _RUN_BYTES * _RUN_BYTES
    for at in range(0, head, _RUN_BYTES):
        piece = parts[0][at : at + _RUN_BYTES]
        fill([piece.data], start + at)
        crc = crc32c(piece, crc)
    rests = [parts[0][head:], *parts[1:]]
    fill([view for rest, tail in zip(rests, tails, strict=True) for view in (rest.data, tail)], start + head)
    for chunk, rest, part, tail in zip(run, rests, parts, tails, strict=True):
        crc, padding = crc32c(rest, crc), full - part.size
        if padding:
            crc = crc32c(tail[:padding], crc)
        _check(path, chunk, crc, _CRC.unpack_from(tail, padding)[0], table.crcs[chunk])
        crc = 0


def _read_encoded(fill: Fill, path: str, stored: Stored, run: list[int], parts: list[Bytes], full: int) -> None:
    table, decode_into = stored.table, codec(stored.codec).decode_into
    start = table.offsets[run[0]]
    scratch = _scratch_of("encoded", table.offsets[run[-1]] + table.sizes[run[-1]] - start)
    fill([scratch.data], start)
    for chunk, part in zip(run, parts, strict=True):
        place = table.offsets[chunk] - start
        end = place + table.sizes[chunk] - CRC_BYTES
        encoded = scratch[place:end]
        _check(path, chunk, crc32c(encoded), _CRC.unpack_from(scratch.data, end)[0], table.crcs[chunk])
        target = part if part.size == full else _scratch_of("padded", full)
        try:
            decode_into(encoded, target)
        except ChunkDamaged as error:
            raise ChunkDamaged(f"{path}: chunk {chunk}: {error}") from None
        if target is not part:
            part[:] = target[: part.size]


def _check(path: str, chunk: int, crc: int, trailer: int, remembered: int) -> None:
    if crc != trailer:
        raise ChunkDamaged(f"{path}: chunk {chunk} has crc32c {crc:08x}, its trailer says {trailer:08x}")
    if crc != remembered:
        raise ChunkDamaged(f"{path}: chunk {chunk} has crc32c {crc:08x}, the catalog says {remembered:08x}")


def _after(views: Sequence[memoryview | bytearray], done: int) -> Iterator[memoryview]:
    """What of the views comes after so many bytes."""
    for view in views:
        if done < len(view):
            yield memoryview(view)[done:]
        done = max(0, done - len(view))


def _check_gap(fill: Fill, path: str, start: int, end: int) -> None:
    gap = bytearray(end - start if 0 <= end - start < aligned(1) else 0)
    if gap:
        fill([gap], start)
    if len(gap) != end - start or any(gap):
        raise ChunkDamaged(f"{path}: the bytes {start} to {end} between the chunks are not as written")


def _scratch_of(use: str, size: int) -> Bytes:
    """Memory of this thread for one use, kept and grown: fresh pages would cost more than the read."""
    kept: Bytes | None = getattr(_scratch, use, None)
    if kept is None or kept.size < size:
        kept = aligned_empty((size + size // 4,))
        setattr(_scratch, use, kept)
    return kept[:size]
