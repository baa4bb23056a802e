"""Read objects into memory that the caller owns, and let no damaged byte through.

The hot path opens one file and reads each chunk with one call straight into its place; what it needs to know comes
from the catalog (`Stored`). The trade-off: a chunk is checked after it was read into the caller's buffer, so after
ChunkDamaged the buffer's content is undefined.
"""

import errno
import math
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged, Full, Misuse
from viewcache.store.buffers import aligned_empty
from viewcache.store.checksum import crc32c
from viewcache.store.codec import codec
from viewcache.store.format import (
    CRC_BYTES,
    METADATA_NAME,
    ArrayMeta,
    ChunkTable,
    aligned,
    check_physical,
    index_size,
    parse_metadata,
    shard_name,
)

__all__ = ["FoundObject", "Stored", "read_each", "read_into", "read_slots", "scan_object", "verify_object"]

Bytes = NDArray[np.uint8]
Root = str | os.PathLike[str]

_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A link could lead out of the store, and a named pipe would be waited for."""
_OUR_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # failures that say nothing about the object
_RUN_BYTES = 4 << 20  # read by one call: enough to hide its cost, and still in the CPU's cache when it is checked
_RUN_CHUNKS = 512  # two places each, and the system takes at most 1024 in one call
_CRC = struct.Struct("<I")
_scratch = threading.local()


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one object lies and all that a read needs, as the catalog remembers it."""

    physical: str
    """Folder below the root, ``objects/ab/ab…``."""
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


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object as the store alone knows it, without the catalog."""

    key: str
    physical: str
    meta: ArrayMeta
    table: ChunkTable
    bytes: int
    """On disk: shard and ``zarr.json``."""

    @property
    def stored(self) -> Stored:
        """What `read_into` wants."""
        return Stored(self.physical, self.meta.shape, self.meta.chunk[0], self.meta.codec, self.table)


def read_into(root: Root, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None = None) -> None:
    """Read an object, or some of its inner chunks, into ``out``.

    Args:
        root: the store's folder.
        stored: the object, from the catalog or from `scan_object`.
        out: contiguous writable uint8 array of ``(rows of the chosen chunks, *shape[1:])``; fastest from
            `viewcache.store.aligned_empty`.
        chunks: ordinals of inner chunks in the order wanted (one chunk is one frame where ``chunk_rows`` is 1), a
            slice of them, or None for all.

    Raises:
        ChunkDamaged: a chunk is missing, short, or not the one whose checksum the catalog has; ``out`` is undefined.
        Full: this process has no file descriptor or memory left.
        Misuse: ``out`` does not fit.
    """
    count = len(stored.table.offsets)
    picks = range(count) if chunks is None else range(count)[chunks] if isinstance(chunks, slice) else chunks
    if picks and not (min(picks) >= 0 and max(picks) < count):
        raise Misuse(f"chunks {min(picks)} to {max(picks)} of {stored.physical} do not exist; it has {count}")
    short = count * stored.chunk_rows - stored.shape[0]  # rows of padding in the last chunk
    rows = len(picks) * stored.chunk_rows - (picks.count(count - 1) * short if short else 0)
    flat = _flat(out, (rows, *stored.shape[1:]))
    path = f"{os.fspath(root)}/{stored.physical}/{shard_name(len(stored.shape))}"
    try:
        file = os.open(path, _OPEN_FLAGS)
        try:
            _read_chunks(file, path, stored, picks, flat)
        finally:
            os.close(file)
    except OSError as error:
        raise _explain(error, path) from error


def read_slots(root: Root, objects: Sequence[Stored], slots: Bytes | Sequence[Bytes]) -> dict[int, ChunkDamaged]:
    """Read whole objects into consecutive slots of one buffer: the loader's path from clips to a batch.

    Args:
        root: the store's folder.
        objects: one per slot; shapes may differ where the slots' do.
        slots: ``slots[i]`` is contiguous, writable and shaped as ``objects[i]``: a ``(B, T, C, H, W)`` array, or a
            list of arrays.

    Returns:
        The damage by position, empty if all is well: the other slots are valid, so only these objects are rebuilt.

    Raises:
        Full: this process has no file descriptor or memory left.
        Misuse: a slot does not fit.
    """
    return read_each(partial(read_into, root), objects, slots)


def read_each(
    read: Callable[[Stored, Bytes], None], objects: Sequence[Stored], slots: Bytes | Sequence[Bytes]
) -> dict[int, ChunkDamaged]:
    """`read_slots` by any way of reading one object into its slot; errors and result are the same."""
    if len(objects) != len(slots):
        raise Misuse(f"{len(objects)} objects were to be read into {len(slots)} slots")
    damaged = {}
    for position, stored in enumerate(objects):
        try:
            read(stored, slots[position])
        except ChunkDamaged as error:
            damaged[position] = error
    return damaged


def scan_object(root: Root, physical: str) -> FoundObject:
    """Learn of an object from its own files alone; chunks are located, not yet read.

    Raises:
        ChunkDamaged: ``zarr.json``, the shard's index or a chunk's trailer is not as written, or is another object's.
        Full: this process has no file descriptor or memory left.
        Misuse: ``physical`` is not the place of an object.
    """
    key = check_physical(physical)
    folder = f"{os.fspath(root)}/{physical}"
    path = f"{folder}/{METADATA_NAME}"
    try:
        text = _read_file(path)
        meta, digest = parse_metadata(text, key)
        path = f"{folder}/{meta.shard_name}"
        file = os.open(path, _OPEN_FLAGS)
        try:
            size = os.fstat(file).st_size
            index = os.pread(file, index_size(meta.chunks), max(0, size - index_size(meta.chunks)))
            if len(index) != index_size(meta.chunks):
                raise ChunkDamaged(f"{path} has {size} bytes, fewer than its index")
            offsets, sizes = ChunkTable.parse_index(index)
            limit = size - len(index)
            if any(place + length > limit or length < CRC_BYTES for place, length in zip(offsets, sizes, strict=True)):
                raise ChunkDamaged(f"{path}: the index points outside the {size} bytes of the shard")
            crcs = tuple(
                _CRC.unpack(os.pread(file, CRC_BYTES, place + length - CRC_BYTES))[0]
                for place, length in zip(offsets, sizes, strict=True)
            )
        finally:
            os.close(file)
    except OSError as error:
        raise _explain(error, path) from error
    table = ChunkTable(offsets, sizes, crcs)
    if table.digest() != digest:
        raise ChunkDamaged(f"{path}: the chunks' checksums are not those that {METADATA_NAME} was written with")
    return FoundObject(key, physical, meta, table, size + len(text))


def verify_object(root: Root, physical: str, table: ChunkTable | None = None) -> FoundObject:
    """Read every byte of an object and check it.

    Args:
        root: the store's folder.
        physical: the object's folder below it.
        table: what the catalog remembers, None to trust the object's own digest.

    Raises:
        ChunkDamaged: any bit of the folder's two files is not as written.
        Full: this process has no file descriptor or memory left.
    """
    found = scan_object(root, physical)
    if table is not None and table != found.table:
        raise ChunkDamaged(f"{physical} is whole but not what the catalog has: its chunk table differs")
    path = f"{os.fspath(root)}/{physical}/{found.meta.shard_name}"
    try:
        file = os.open(path, _OPEN_FLAGS)
        try:
            _verify_shard(file, path, found)
        finally:
            os.close(file)
    except OSError as error:
        raise _explain(error, path) from error
    return found


def _flat(out: Bytes, shape: tuple[int, ...]) -> Bytes:
    if out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
        raise Misuse(f"out must be a contiguous writable uint8 array of {shape}, not {out.dtype} of {out.shape}")
    return out.reshape(-1)


def _read_chunks(file: int, path: str, stored: Stored, picks: Sequence[int], flat: Bytes) -> None:
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
        read(file, path, stored, run, parts, full)


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


def _read_raw(file: int, path: str, stored: Stored, run: list[int], parts: list[Bytes], full: int) -> None:
    """Pixels go straight to their places; padding, trailer and gap of each chunk go aside."""
    table, tails = stored.table, []
    views: list[memoryview | bytearray] = []
    step = aligned(full + CRC_BYTES)
    for part in parts:
        tail = bytearray(step - part.size)
        views += (part.data, tail)
        tails.append(tail)
    _read_exactly(file, path, views, table.offsets[run[0]])
    for chunk, part, tail in zip(run, parts, tails, strict=True):
        padding = full - part.size
        crc = crc32c(part)
        if padding:
            crc = crc32c(tail[:padding], crc)
        _check(path, chunk, crc, _CRC.unpack_from(tail, padding)[0], table.crcs[chunk])


def _read_encoded(file: int, path: str, stored: Stored, run: list[int], parts: list[Bytes], full: int) -> None:
    table, decode_into = stored.table, codec(stored.codec).decode_into
    start = table.offsets[run[0]]
    scratch = _scratch_of("encoded", table.offsets[run[-1]] + table.sizes[run[-1]] - start)
    _read_exactly(file, path, [scratch.data], start)
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


def _read_exactly(file: int, path: str, views: Sequence[memoryview | bytearray], offset: int) -> None:
    """One call nearly always; network file systems may give less than was asked for."""
    want = sum(map(len, views))
    got = os.preadv(file, views, offset)
    while got < want:
        more = os.preadv(file, list(_after(views, got)), offset + got)
        if not more:
            raise ChunkDamaged(f"{path} ends at byte {offset + got}, {want - got} too early")
        got += more


def _after(views: Sequence[memoryview | bytearray], done: int) -> Iterator[memoryview]:
    """What of the views comes after so many bytes."""
    for view in views:
        if done < len(view):
            yield memoryview(view)[done:]
        done = max(0, done - len(view))


def _verify_shard(file: int, path: str, found: FoundObject) -> None:
    table, at = found.table, 0
    for chunk in sorted(range(found.meta.chunks), key=table.offsets.__getitem__):
        _check_gap(file, path, at, table.offsets[chunk])
        buffer = _scratch_of("encoded", table.sizes[chunk])
        _read_exactly(file, path, [buffer.data], table.offsets[chunk])
        _check(path, chunk, crc32c(buffer[:-CRC_BYTES]), table.crcs[chunk], table.crcs[chunk])
        at = table.offsets[chunk] + table.sizes[chunk]
    _check_gap(file, path, at, os.fstat(file).st_size - index_size(found.meta.chunks))


def _check_gap(file: int, path: str, start: int, end: int) -> None:
    if not 0 <= end - start < aligned(1) or any(os.pread(file, end - start, start)):
        raise ChunkDamaged(f"{path}: the bytes {start} to {end} between the chunks are not as written")


def _read_file(path: str) -> bytes:
    file = os.open(path, _OPEN_FLAGS)
    with open(file, "rb") as opened:
        return opened.read()


def _scratch_of(use: str, size: int) -> Bytes:
    """Memory of this thread for one use, kept and grown: fresh pages would cost more than the read."""
    kept: Bytes | None = getattr(_scratch, use, None)
    if kept is None or kept.size < size:
        kept = aligned_empty((size + size // 4,))
        setattr(_scratch, use, kept)
    return kept[:size]


def _explain(error: OSError, path: str) -> ChunkDamaged | Full:
    if error.errno in _OUR_LIMITS:
        return Full(f"cannot open {path}: {error.strerror}; raise this process's limits (ulimit -n) or its memory")
    if error.errno == errno.ENOENT:
        return ChunkDamaged(f"{path} is missing")
    return ChunkDamaged(f"{path} cannot be read: {error.strerror or error}")
