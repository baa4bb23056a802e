"""Read objects of a folder into memory that the caller owns.

The hot path opens one file and reads each run of chunks with one call straight into its place; what it needs to know
comes from the catalog (`Stored`). The trade-off: no file stays open between two reads, which costs an `open` a clip
and leaves nothing to be closed when an object is evicted.
"""

import errno
import os
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged, Full
from viewcache.store.blocks import taken_bytes
from viewcache.store.format import (
    MAX_METADATA_BYTES,
    METADATA_NAME,
    ChunkTable,
    check_physical,
    index_size,
    parse_metadata,
    shard_name,
)
from viewcache.store.shard_reader import (
    FoundObject,
    Stored,
    check_chunks,
    flat_rows,
    locate_chunks,
    read_chunks,
    read_each,
    read_exactly,
)

__all__ = ["read_into", "read_slots", "scan_object", "verify_object"]

Bytes = NDArray[np.uint8]
Root = str | os.PathLike[str] | int
"""A folder: its path, or a descriptor of it."""

_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A link could lead out of the store, and a named pipe would be waited for."""
_OUR_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # failures that say nothing about the object


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
    picks, flat = flat_rows(stored, out, chunks)
    path = f"{stored.physical}/{shard_name(len(stored.shape))}"
    folder = root if isinstance(root, int) else None
    if not isinstance(root, int):
        path = f"{os.fspath(root)}/{path}"
    try:
        file = os.open(path, _OPEN_FLAGS, dir_fd=folder)
        try:
            read_chunks(partial(read_exactly, file, path), path, stored, picks, flat)
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


def scan_object(root: str | os.PathLike[str], physical: str) -> FoundObject:
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
            table = locate_chunks(partial(read_exactly, file, path), path, meta, digest, 0, size)
        finally:
            os.close(file)
        return FoundObject(key, physical, meta, table, taken_bytes(root, folder, size, len(text)))
    except OSError as error:
        raise _explain(error, path) from error


def verify_object(root: str | os.PathLike[str], physical: str, table: ChunkTable | None = None) -> FoundObject:
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
            end = os.fstat(file).st_size - index_size(found.meta.chunks)
            check_chunks(partial(read_exactly, file, path), path, found.table, 0, end)
        finally:
            os.close(file)
    except OSError as error:
        raise _explain(error, path) from error
    return found


def _read_file(path: str) -> bytes:
    file = os.open(path, _OPEN_FLAGS)
    with open(file, "rb") as opened:
        return opened.read(MAX_METADATA_BYTES + 1)  # one more, so that a longer one is noticed


def _explain(error: OSError, path: str) -> ChunkDamaged | Full:
    if error.errno in _OUR_LIMITS:
        return Full(f"cannot open {path}: {error.strerror}; raise this process's limits (ulimit -n) or its memory")
    if error.errno == errno.ENOENT:
        return ChunkDamaged(f"{path} is missing")
    return ChunkDamaged(f"{path} cannot be read: {error.strerror or error}")
