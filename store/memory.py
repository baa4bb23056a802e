"""The memory tier: objects in memory that all processes of the cache can read, gone with its owner.

The bytes of an object are those of its folder, shard before ``zarr.json``, from a page's boundary on; the offsets in
its chunk table count from the beginning of the arena, so that a reader needs nothing but the table. The trade-off: a
small object takes a whole page, and only the owner's process writes.
"""

import contextlib
import errno
import mmap
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, Broken, ChunkDamaged, Full
from viewcache.store.arena import Arena, Claim, MemoryHandle
from viewcache.store.format import (
    ArrayMeta,
    ChunkTable,
    check_physical,
    dump_metadata,
    index_size,
    parse_metadata,
    physical_of,
)
from viewcache.store.headroom import headroom
from viewcache.store.shard_reader import FoundObject, Stored, check_chunks, locate_chunks, read_exactly
from viewcache.store.shard_writer import ShardWriter, Written, bound_bytes, inner_chunks, write_exactly, written_of
from viewcache.store.tier import Tier

__all__ = ["URL", "MemoryTier"]

Bytes = NDArray[np.uint8]

URL = "memory://"
"""The whole of it: the memory has no name, and is found by its owner's `MemoryTier.handle`."""

_NO_ROOM = {errno.ENOSPC, errno.ENOMEM, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where one object lies in the arena, in bytes."""

    claim: Claim
    """Its whole pages."""
    shard: int
    """Length of the shard, which begins them."""
    text: int
    """Length of ``zarr.json``, which follows it."""

    @property
    def start(self) -> int:
        return self.claim.start

    @property
    def size(self) -> int:
        return self.claim.size


class MemoryTier(Tier):
    """Objects in an arena. They are counted in whole pages: what the machine really gives for them.

    Other processes read them by `handle`; in this one, durable or not, nothing outlives the process.
    """

    volatile = True

    def __init__(self, budget_bytes: int, name: str = "memory"):
        """Make an empty one.

        Args:
            budget_bytes: for objects and unfinished ones together.
            name: of the tier in the catalog.

        Raises:
            BadInput: the budget is more than the machine has, or the system has no such memory.
            Full: no descriptor left, or a limit on the size of files.
        """
        super().__init__(name, URL, budget_bytes, mmap.PAGESIZE)
        room = headroom()
        if room is not None and budget_bytes > room.total:
            raise BadInput(
                f"the memory tier's budget of {budget_bytes} bytes is more than the {room.total} that this process may "
                f"have; give it less"
            )
        self._arena = Arena()
        self._objects: dict[str, _Extent] = {}
        self._table_lock = threading.Lock()

    @property
    def handle(self) -> MemoryHandle:
        """For another process of this user: ``handle.attach()`` reads there what lies here."""
        self._check_process()
        return self._arena.handle

    def descriptor(self) -> int:
        """A new descriptor that can only read, for ``pass_fds`` and ``handle.attach``; the caller closes it."""
        self._check_process()
        return self._arena.descriptor()

    def read(self, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None = None) -> None:
        """Read an object, or some of its inner chunks, into ``out``."""
        self._check_process()
        with self._table_lock:
            extent = self._objects.get(stored.physical)
        if extent is None:
            raise ChunkDamaged(f"{self.url}{stored.physical} is missing")
        self._arena.read_claim(extent.claim, stored, out, chunks)

    def write(self, key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta, *, durable: bool = False) -> Written:
        """Write and publish one object; ``durable`` changes nothing."""
        self._check_process()
        started = time.perf_counter()
        parts = inner_chunks(array, meta)
        physical, most = physical_of(key), self._rounded(bound_bytes(meta, key))
        claim = self._arena.claim(most)
        try:
            extent, table = self._fill(claim, key, meta, parts)
            self._arena.trim(claim, self._rounded(extent.shard + extent.text))
        except BaseException:
            self._arena.free(claim)
            raise
        found = self._publish(physical, extent)
        if found is not None:
            self._arena.free(claim)
        mine = FoundObject(key, physical, meta, table, extent.size)
        return written_of(found or mine, time.perf_counter() - started, existed=found is not None)

    def scan(self, physical: str) -> FoundObject:
        """Learn of an object from its own bytes; chunks are located, not yet read."""
        return self._look(physical, self._extent(physical))

    def verify(self, physical: str, table: ChunkTable | None = None) -> FoundObject:
        """Read every byte of an object and check it."""
        return self._verify(physical, self._extent(physical), table)

    def iter_objects(self) -> Iterator[tuple[str, int]]:
        """All ``(physical, bytes of its pages)``, in no order."""
        self._check_process()
        with self._table_lock:
            extents = list(self._objects.items())
        yield from ((physical, extent.size) for physical, extent in extents)

    def delete(self, physical: str, counted: int | None = None) -> int:
        """Remove one object and give its pages back to the machine."""
        self._check_process()
        check_physical(physical)
        with self._table_lock:
            extent = self._objects.pop(physical, None)
        size = counted if counted is not None else extent.size if extent is not None else 0
        if extent is not None:  # after those that read it just now
            self._arena.free(extent.claim)
        self._give_back(size)
        return size

    def sweep(self, dead_pid: int | None = None) -> int:
        """Nothing: only this process writes here, and what it does not finish it frees at once."""
        self._check_process()
        return 0

    def close(self) -> None:
        """Give all memory back, after the calls that are under way; harmless when it was done."""
        self._arena.close()

    def _fill(self, claim: Claim, key: str, meta: ArrayMeta, parts: Iterable[Bytes]) -> tuple[_Extent, ChunkTable]:
        with self._arena.use() as file:
            shard = ShardWriter(file, claim.start, key, meta)
            for chunk, part in enumerate(parts):
                with _explained(key):
                    shard.put(chunk, part)
            with _explained(key):
                table, length = shard.finish()
                text = dump_metadata(meta, key, table.digest())
                write_exactly(file, [memoryview(text)], claim.start + length)
        places = tuple(claim.start + place for place in table.offsets)
        return _Extent(claim, length, len(text)), ChunkTable(places, table.sizes, table.crcs)

    def _publish(self, physical: str, mine: _Extent) -> FoundObject | None:
        """Enter the object; the one that was there already, if it is whole."""
        while True:
            with self._table_lock:
                there = self._objects.setdefault(physical, mine)
            if there is mine:
                return None
            try:
                return self._verify(physical, there, None)
            except ChunkDamaged:
                with self._table_lock:
                    damaged = self._objects.get(physical) is there
                    if damaged:
                        del self._objects[physical]
                if damaged:
                    self._arena.free(there.claim)

    def _extent(self, physical: str) -> _Extent:
        self._check_process()
        check_physical(physical)
        with self._table_lock:
            extent = self._objects.get(physical)
        if extent is None:
            raise ChunkDamaged(f"{self.url}{physical} is missing")
        return extent

    def _look(self, physical: str, extent: _Extent) -> FoundObject:
        path, key, end = f"{self.url}{physical}", check_physical(physical), extent.start + extent.shard
        with self._arena.use() as file:
            fill = partial(read_exactly, file, path)
            text = bytearray(extent.text)
            fill([text], end)
            meta, digest = parse_metadata(bytes(text), key)
            table = locate_chunks(fill, path, meta, digest, extent.start, end)
        return FoundObject(key, physical, meta, table, extent.size)

    def _verify(self, physical: str, extent: _Extent, table: ChunkTable | None) -> FoundObject:
        found = self._look(physical, extent)
        if table is not None and table != found.table:
            raise ChunkDamaged(f"{self.url}{physical} is whole but not what the catalog has: its chunk table differs")
        end = extent.start + extent.shard - index_size(found.meta.chunks)
        with self._arena.use() as file:
            path = f"{self.url}{physical}"
            check_chunks(partial(read_exactly, file, path), path, found.table, extent.start, end)
        return found


@contextlib.contextmanager
def _explained(key: str) -> Iterator[None]:
    """Our own failures in words; what the caller's chunks raise stays as it is."""
    try:
        yield
    except OSError as error:
        kind = Full if error.errno in _NO_ROOM else Broken
        raise kind(f"cannot write object {key} into memory: {error.strerror or error}") from error
