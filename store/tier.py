"""What every place for objects can do, whether it is memory, a folder or a remote store; and copying between them.

A tier is the owner's side: it counts, writes, deletes. The trade-off: the contract has no listing by name, no renaming
and no appending, so that a bucket, which has none of them, keeps it as well as a folder does. Anybody's tier can run
the tests that ours run (`viewcache.testing.TierContract`).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged
from viewcache.store.budget import Budget
from viewcache.store.buffers import aligned_empty
from viewcache.store.codec import ENCODED
from viewcache.store.format import ArrayMeta, ChunkTable, check_physical
from viewcache.store.groups import read_group
from viewcache.store.shard_reader import FoundObject, Stored, read_each
from viewcache.store.shard_writer import Written

__all__ = ["LOCAL", "MEMORY", "PASSING", "REMOTE", "Tier", "another", "copy_object"]

MEMORY, LOCAL, REMOTE = "memory", "local", "remote"
"""Names of the tiers, the fastest first. Objects are made in the local one."""

PASSING = "passing"
"""Where clips lie that go from a worker to their one reader: no tier of a configuration, and the catalog has no rows of
it."""

Bytes = NDArray[np.uint8]
T = TypeVar("T")


class Tier(Budget, ABC):
    """One place for objects, with a budget. Thread-safe; in a forked child every method raises WrongProcess.

    An object's place, `Stored.physical`, is ``objects/ab/ab…`` in every tier; its chunk table is the tier's own.
    """

    volatile: ClassVar[bool] = False
    """Its objects end with the process that owns it: what the catalog says of an earlier one is to be forgotten."""

    run_bytes: ClassVar[int] = 4 << 20
    """Raw bytes that one read of a copy asks for: enough to hide what a call costs here, few beside a budget."""

    at_once: ClassVar[int] = 1
    """Objects of which `each` has something done at a time: more where an answer takes long and costs nobody work."""

    def __init__(self, name: str, url: str, budget_bytes: int, unit: int = 1):
        """Remember the name.

        Args:
            name: of the tier in the catalog: ``memory``, ``local`` or ``remote``.
            url: as configured.
            budget_bytes: for objects and unfinished ones together.
            unit: bytes in which the tier gives out room.
        """
        super().__init__(url, budget_bytes, unit)
        self.name = name
        self.away = False
        """It has not answered since it was opened, so nothing is known of what lies there."""
        self.unmarked = False
        """Its marker was not there when it was opened: somebody deletes there, and the catalog may say too much."""

    def mark_away(self) -> None:
        """Note that it has stopped to answer while it was being opened."""
        self.away = True

    @abstractmethod
    def read(self, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None = None) -> None:
        """Read an object, or some of its inner chunks, into ``out``; arguments and errors as in `read_into`."""

    def read_slots(self, objects: Sequence[Stored], slots: Bytes | Sequence[Bytes]) -> dict[int, ChunkDamaged]:
        """Read whole objects into consecutive slots of one buffer; arguments, result and errors as in `read_slots`."""
        return read_each(self.read, objects, slots)

    @abstractmethod
    def write(self, key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta, *, durable: bool = False) -> Written:
        """Write and publish one object under a reservation of ``bound_bytes(meta, key)`` that the caller holds.

        Others see all of it or nothing. A whole object that is there already is kept, and `Written.existed` says so.
        Arguments as in `write_object`.

        Raises:
            Full: no space, quota, memory or descriptors; nothing is left behind.
            Broken: the tier cannot be written for another reason.
            Misuse: the array does not fit ``meta``.
        """

    @abstractmethod
    def scan(self, physical: str) -> FoundObject:
        """Learn of an object from the tier alone; chunks are located, not yet read. Errors as in `scan_object`."""

    def describe(self, stored: Stored) -> ArrayMeta:
        """The array and the attributes of an object of which the caller knows where its chunks are.

        Raises:
            ChunkDamaged: it is missing or damaged, or another object lies there.
        """
        found = self.scan(stored.physical)
        if found.stored != stored:
            raise another(self.url, stored)
        return found.meta

    @abstractmethod
    def verify(self, physical: str, table: ChunkTable | None = None) -> FoundObject:
        """Read every byte of an object and check it; arguments and errors as in `verify_object`."""

    @abstractmethod
    def iter_objects(self) -> Iterator[tuple[str, int]]:
        """All ``(physical, bytes that it takes)``, in no order; what vanishes meanwhile is skipped."""

    def iter_groups(self) -> Iterator[tuple[str, set[str]]]:
        """Keys of all objects, in groups: (their first two digits, keys), each group once, in no order."""
        groups: dict[str, set[str]] = {}
        for physical, _ in self.iter_objects():
            key = check_physical(physical)
            groups.setdefault(key[:2], set()).add(key)
        yield from groups.items()

    @abstractmethod
    def delete(self, physical: str, counted: int | None = None) -> int:
        """Remove one object; others see it whole or damaged, never as other pixels.

        Args:
            physical: its place.
            counted: bytes that the count has for it, given back even if the object is damaged or gone; None = what
                lies there.

        Returns:
            The bytes given back to the budget.

        Raises:
            Misuse: ``physical`` is not the place of an object.
            Broken: the tier cannot be changed.
        """

    def each(self, work: Callable[[str], T], places: Iterable[str]) -> list[T]:
        """Do something with each of several objects, such as ``tier.delete``, and give the results in their order.

        The first that raises ends it: of the others those that had begun are done, and no more are begun.
        """
        if self.at_once == 1:
            return list(map(work, places))
        failed = threading.Event()

        def unless_failed(place: str) -> T:
            if failed.is_set():
                raise CancelledError
            try:
                return work(place)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(self.at_once, thread_name_prefix="viewcache-each") as pool:
            done = [pool.submit(unless_failed, place) for place in places]
        for error in (each.exception() for each in done):
            if error is not None and not isinstance(error, CancelledError):
                raise error
        return [each.result() for each in done]

    @abstractmethod
    def sweep(self, dead_pid: int | None = None) -> int:
        """Remove what dead writers and interrupted deletions left; what living writers work on stays.

        Args:
            dead_pid: a worker that the caller saw die, though the system may still list it.

        Returns:
            The bytes removed. They were never counted as used: the writer's reservation is the caller's to release.
        """

    def measure(self) -> int:
        """Bytes of all objects, by looking at each."""
        return sum(size for _, size in self.iter_objects())

    def hasten(self) -> None:
        """The tier is about to be closed: from now on no request is made again that was not answered."""

    def close(self) -> None:
        """Let go of memory, connections and threads; harmless when it was done."""


def copy_object(
    source: Tier,
    stored: Stored,
    target: Tier,
    codec: str,
    key: str,
    *,
    durable: bool = False,
    choose: Callable[[Bytes], str] | None = None,
) -> Written:
    """Copy one object between tiers: the same pixels and attributes, in the codec of the target.

    The caller holds a reservation in ``target``, of ``bound_bytes`` for that codec, or for all that may be chosen.

    Args:
        source: where it lies.
        stored: the object there.
        target: where it shall lie.
        codec: of the copy, a name in `viewcache.store.CODECS`. Encoded pictures stay as they are.
        key: the object's content key.
        durable: flush the copy to the device before it becomes visible.
        choose: gives the codec instead, of the object's first rows.

    Raises:
        ChunkDamaged: the object is missing or damaged in ``source``; nothing is left behind in ``target``.
        Full: no room in ``target``, or no memory; nothing is left behind.
        Broken: the target cannot be written for another reason.
    """
    found = source.describe(stored)
    if stored.codec in ENCODED:
        groups = (read_group(source.read, stored, chunk) for chunk in range(found.chunks))
        return target.write(key, groups, found, durable=durable)
    runs = _checked(source, stored)
    if choose is not None:
        first = next(runs)
        codec, runs = choose(first), chain((first,), runs)  # it is valid until the next one is asked for
    meta = replace(found, codec=codec)
    rows = stored.chunk_rows
    chunks = (run[start : start + rows] for run in runs for start in range(0, len(run), rows))
    return target.write(key, chunks, meta, durable=durable)


def another(url: str, stored: Stored) -> ChunkDamaged:
    """The error of a tier that has another object where a caller knows one."""
    return ChunkDamaged(f"{stored.physical} in {url} is not the object that the catalog has")


def _checked(source: Tier, stored: Stored) -> Iterator[Bytes]:
    """All rows in order, some inner chunks at a time, read into one buffer."""
    count, rows = len(stored.table.offsets), stored.chunk_rows
    row_bytes = int(np.prod(stored.shape[1:], dtype=np.int64))
    step = max(1, source.run_bytes // (rows * row_bytes))
    buffer = aligned_empty((min(step, count) * rows, *stored.shape[1:]))
    for first in range(0, count, step):
        part = buffer[: min((first + step) * rows, stored.shape[0]) - first * rows]
        source.read(stored, part, slice(first, first + step))
        yield part
