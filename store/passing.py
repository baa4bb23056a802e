"""Memory for clips that pass: a worker of another process writes one, its reader copies it out, and nobody keeps it.

It is an arena like the memory tier's, with two differences. Workers write, into a place that was claimed and counted
before the job began, or make the clip right there; and places come round, since pages that are there already cost a
sixth of new ones. A late read of a place that holds another clip by then fails its checksum, as zeros do in the memory
tier. The trade-off: places that wait for their next clip count as used.
"""

import logging
import math
import mmap
import os
import resource
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken, ChunkDamaged, Full, Misuse
from viewcache.store.arena import REGION_BYTES, Arena, Claim, MemoryHandle
from viewcache.store.budget import Budget, Reservation
from viewcache.store.format import CRC_BYTES, ArrayMeta, ChunkTable, aligned, physical_of
from viewcache.store.shard_reader import Stored, read_each
from viewcache.store.shard_writer import ShardWriter, Written, inner_chunks, shard_bound

__all__ = ["Passage", "PassingMemory", "Place", "Room"]

_log = logging.getLogger("viewcache.passing")

Bytes = NDArray[np.uint8]

UNUSED_S = 5.0
"""Places that no clip has come to for so long are given back to the machine."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one object shall lie in the memory of another process; can be pickled."""

    start: int
    """In bytes from the memory's beginning."""
    size: int
    """Bytes that were claimed for it."""

    def room(self, handle: MemoryHandle, key: str, shape: tuple[int, ...], chunk: tuple[int, ...]) -> "Room | None":
        """The place as an array, to make an object in as it is stored; None where only `write` can put one there.

        Args:
            handle: of the memory.
            key: of the object, which is stored raw.
            shape: of the object.
            chunk: shape of its inner chunks; none of them is short.

        Raises:
            Broken: the memory is gone, or cannot be written.
            Misuse: the object does not fit the place.
        """
        first, chunks, size = self.start % REGION_BYTES, shape[0] // chunk[0], math.prod(chunk)
        step = aligned(size + CRC_BYTES)
        if chunks * chunk[0] != shape[0] or chunks * step > self.size:
            raise Misuse(f"object {key} of {shape} in chunks of {chunk} has no room in {self.size} bytes")
        if handle.pid == os.getpid() or first + self.size > REGION_BYTES:
            return None
        mapped = _mapped(handle, self.start - first)
        if mapped is None:
            return None
        steps = np.frombuffer(mapped, np.uint8, chunks * step, first).reshape(chunks, step)
        return Room(self, handle, key, steps[:, :size].reshape(chunks, *chunk))

    def write(self, handle: MemoryHandle, key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta) -> Written:
        """Write an object there; it is not published, and has no ``zarr.json``.

        Args:
            handle: of the memory.
            key: of the object.
            array: as for `write_object`.
            meta: of the object; raw, so that it fits.

        Raises:
            Broken: the memory is gone, or cannot be written.
            Misuse: the array does not fit ``meta``, or the place.
        """
        return self._write(handle, key, array, meta, is_there=False)

    def _write(
        self, handle: MemoryHandle, key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta, *, is_there: bool
    ) -> Written:
        started = time.perf_counter()
        if shard_bound(meta) > self.size:
            raise Misuse(f"object {key} may take {shard_bound(meta)} bytes; its place in memory has {self.size}")
        with handle.writable() as file:
            shard = ShardWriter(file, self.start, key, meta)
            try:
                for chunk, part in enumerate(inner_chunks(array, meta)):
                    shard.put(chunk, part, is_there=is_there)
                table, _ = shard.finish()
            except OSError as error:
                raise Broken(f"cannot write object {key} into memory: {error.strerror or error}") from error
        table = ChunkTable(tuple(self.start + each for each in table.offsets), table.sizes, table.crcs)
        return Written(
            key=key,
            physical=physical_of(key),
            bytes=self.size,
            raw_bytes=meta.raw_bytes,
            codec=meta.codec,
            shape=meta.shape,
            chunk_rows=meta.chunk[0],
            table=table.to_bytes(),
            crc=table.digest(),
            seconds=time.perf_counter() - started,
            existed=False,
        )


@dataclass(frozen=True, slots=True)
class Room:
    """A place that an object is made in, so that it need not be copied there; in the process that makes it."""

    _place: Place
    _handle: MemoryHandle
    _key: str
    chunks: Bytes
    """uint8 (chunks, *chunk), each of which is contiguous; it holds another object's bytes at first."""

    def seal(self, meta: ArrayMeta) -> Written:
        """Say that all chunks are filled; result and errors are those of `Place.write`."""
        return self._place._write(self._handle, self._key, iter(self.chunks), meta, is_there=True)


class Passage:
    """A place that is promised to one object; it ends with `arrived` or `release`."""

    def __init__(self, tier: "PassingMemory", claim: Claim, reservation: Reservation) -> None:
        """Made by `PassingMemory.claim` only."""
        self._tier, self._claim, self._reservation = tier, claim, reservation

    @property
    def place(self) -> Place:
        """For who writes."""
        return Place(self._claim.start, self._claim.size)

    def arrived(self, physical: str) -> None:
        """The object is there, whole: it can be read."""
        self._tier._enter(physical, self._claim, self._reservation)

    def release(self, *, certain: bool = True) -> None:
        """Give the place back; harmless when the passage has ended.

        Args:
            certain: whether nobody writes there any more. If that is not known the place does not come round.
        """
        if self._reservation.bytes:
            self._tier._abandon(self._claim, self._reservation, certain)


@lru_cache(maxsize=2)
def _mapped(handle: MemoryHandle, start: int) -> mmap.mmap | None:
    """A part of another process's memory, which stays mapped: to map a clip's place anew takes a tenth of making it.

    None where addresses are limited (``ulimit -v``): decoding has more use for them.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return None
    with handle.writable() as file:
        try:
            return mmap.mmap(file, REGION_BYTES, offset=start)
        except OSError:  # no addresses, or no memory for what the kernel notes of them
            return None


class PassingMemory(Budget):
    """Objects that pass, in places that come round. Thread-safe.

    `used_bytes` are pages that the machine gives for it: of objects, and of places that wait for one.
    """

    def __init__(self, budget_bytes: int) -> None:
        """Make it, empty.

        Args:
            budget_bytes: for objects, unfinished ones, and places that wait for one.

        Raises:
            BadInput: the system has no such memory.
            Full: no descriptor left, or a limit on the size of files.
        """
        super().__init__("memory://", budget_bytes, mmap.PAGESIZE)
        self._arena = Arena()
        self.handle: MemoryHandle = self._arena.handle
        """For processes that write here, and `MemoryHandle.attach` for those that read."""
        self._objects: dict[str, Claim] = {}
        self._idle: list[Claim] = []
        """Places that wait for an object, the one that has waited longest first."""
        self._guard = threading.Lock()
        self._claimed_at = time.monotonic()

    def descriptor(self) -> int:
        """A new descriptor that can only read; the caller closes it."""
        self._check_process()
        return self._arena.descriptor()

    @property
    def idle_bytes(self) -> int:
        """Of `used_bytes`, those of places that wait for an object."""
        with self._guard:
            return sum(claim.size for claim in self._idle)

    def object_count(self) -> int:
        """How many objects lie here."""
        return len(self._objects)

    def claim(self, size: int) -> Passage | None:
        """Promise a place of ``size`` bytes to an object; None if there is no room, or no memory."""
        self._check_process()
        size, self._claimed_at = self._rounded(size), time.monotonic()
        if self.counted_bytes - self.idle_bytes + size > self.budget_bytes:
            return None
        with self._guard:
            fitting = next((claim for claim in reversed(self._idle) if claim.size == size), None)
            if fitting is not None:
                self._idle.remove(fitting)
        if fitting is not None:
            self._arena.settle(fitting)
            self._give_back(size)
        reservation = self.reserve(size)
        while reservation is None and self._trim_one():
            reservation = self.reserve(size)
        if reservation is None:  # others were quicker
            if fitting is not None:
                self._arena.free(fitting)
            return None
        if fitting is not None:
            return Passage(self, fitting, reservation)
        try:
            claim = self._arena.claim(size)
            self._arena.trim(claim, size)
        except Full as full:
            reservation.release()
            _log.info("clips pass through the store for now: %s", full, extra={"action": "passing_full"})
            return None
        return Passage(self, claim, reservation)

    def trim(self) -> None:
        """Give all places that wait for an object back to the machine."""
        while self._trim_one():
            pass

    def trim_unused(self) -> None:
        """The same, if no clip has asked for one for a while."""
        if self._idle and time.monotonic() - self._claimed_at > UNUSED_S:
            self.trim()

    def read(self, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None = None) -> None:
        """Read an object, or some of its inner chunks, into ``out``."""
        self._check_process()
        self._arena.read_claim(self._claim_of(stored.physical), stored, out, chunks)

    def read_slots(self, objects: Sequence[Stored], slots: Bytes | Sequence[Bytes]) -> dict[int, ChunkDamaged]:
        """Read whole objects into consecutive slots of one buffer; arguments, result and errors as in `read_slots`."""
        return read_each(self.read, objects, slots)

    def delete(self, stored: Stored) -> None:
        """Forget one object; its place waits for the next one, and counts as used until it is given back."""
        self._check_process()
        with self._guard:
            claim = self._objects.get(stored.physical)
            if claim is not None and claim.start <= stored.table.offsets[0] < claim.start + claim.size:
                del self._objects[stored.physical]
                self._idle.append(claim)

    def close(self) -> None:
        """Give all memory back; harmless when it was done."""
        self._arena.close()

    def _claim_of(self, physical: str) -> Claim:
        with self._guard:
            claim = self._objects.get(physical)
        if claim is None:
            raise ChunkDamaged(f"{self.url}{physical} is missing: it has passed")
        return claim

    def _enter(self, physical: str, claim: Claim, reservation: Reservation) -> None:
        reservation.commit(claim.size)
        with self._guard:
            there = self._objects.pop(physical, None)
            self._objects[physical] = claim
            if there is not None:
                self._idle.append(there)

    def _abandon(self, claim: Claim, reservation: Reservation, certain: bool) -> None:
        if certain:
            reservation.commit(claim.size)
            with self._guard:
                self._idle.append(claim)
        else:
            self._arena.free(claim)
            reservation.release()

    def _trim_one(self) -> bool:
        with self._guard:
            claim = self._idle.pop(0) if self._idle else None
        if claim is None:
            return False
        self._arena.free(claim)
        self._give_back(claim.size)
        return True
