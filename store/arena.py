"""Memory that processes share and that nobody has to clean up: one anonymous file, given out in ever new places.

A sparse file has 2**62 places, so none is used twice: there is no allocator, no fragmentation, and a reader that comes
late finds zeros, which fail their checksum, never another object. What is freed is punched out of the file and returns
to the machine at once; the rest does when the last process ends that has the file open, by kill -9 too. The trade-off:
a read copies, where a mapping would not; but a mapping would turn a deletion into zeros behind a check that was passed.
"""

import contextlib
import errno
import fcntl
import io
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, Broken, ChunkDamaged, Closed, Full, WrongProcess
from viewcache.store.headroom import headroom
from viewcache.store.region import Region, punch
from viewcache.store.shard_reader import Stored, flat_rows, read_chunks, read_each, read_exactly

__all__ = ["REGION_BYTES", "Arena", "Claim", "MemoryHandle", "MemoryReader"]

Bytes = NDArray[np.uint8]

REGION_BYTES = 1 << 30
"""Mapped at once: a system lets a process have 65,530 mappings."""

_SIZE = 1 << 62  # bytes: all that the system's signed offsets leave after one doubling
_NOEXEC_SEAL = 8  # linux/memfd.h, since Linux 6.3; some hardened systems insist on it
_NO_ROOM = {errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.EDQUOT}


@dataclass(frozen=True, slots=True)
class MemoryHandle:
    """How another process of the same user finds the memory; can be pickled."""

    pid: int
    """Of the owner."""
    descriptor: int
    """The owner's number for the file."""
    device: int
    inode: int
    """What the file is, so that no other one is taken for it when the owner is gone and its numbers come round."""

    @property
    def path(self) -> str:
        """The file, for as long as the owner has it open."""
        return f"/proc/{self.pid}/fd/{self.descriptor}"

    def attach(self, descriptor: int | None = None) -> "MemoryReader":
        """Open the memory for reading.

        Args:
            descriptor: one that this process was given (by ``pass_fds`` or over a socket); it belongs to the reader
                from now on. None asks the kernel for the owner's.

        Raises:
            Broken: the memory is gone, or the kernel does not let this process have it.
        """
        opened = descriptor
        try:
            # Looked at before it is opened: the number may meanwhile stand for a device or a pipe.
            if opened is None and self._is(os.stat(self.path)):
                opened = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            if opened is not None and self._is(os.fstat(opened)):
                return MemoryReader(opened, "rb")
            reason = "it is gone, and another file has its number"
        except OSError as error:
            reason = os.strerror(error.errno or 0)
        if descriptor is None and opened is not None:
            os.close(opened)
        raise Broken(
            f"cannot read the memory tier of process {self.pid}: {reason}; is its cache still open, and is it of the "
            f"same user?"
        )

    @contextlib.contextmanager
    def writable(self) -> Iterator[int]:
        """The file, open for writing into a place that the owner has given to this process.

        Raises:
            Broken: the memory is gone, or the kernel does not let this process write to it.
        """
        file, reason = -1, "it is gone, and another file has its number"
        try:
            if self._is(os.stat(self.path)):
                file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
        try:
            if file < 0 or not self._is(os.fstat(file)):
                raise Broken(f"cannot write into the memory of process {self.pid}: {reason}; is its cache still open?")
            yield file
        finally:
            if file >= 0:
                os.close(file)

    def _is(self, found: os.stat_result) -> bool:
        return (found.st_dev, found.st_ino) == (self.device, self.inode)


class MemoryReader:
    """Reads objects out of the memory. Thread-safe; ends in a forked child, which would keep the memory alive."""

    def __init__(self, descriptor: int, mode: str):
        """Take a descriptor over; made by `MemoryHandle.attach`."""
        self._opened = io.FileIO(descriptor, mode)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        _open_ones.add(self)

    def read(self, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None = None) -> None:
        """Read an object, or some of its inner chunks, into ``out``; arguments and errors as in `read_into`."""
        picks, flat = flat_rows(stored, out, chunks)
        path = f"memory://{stored.physical}"
        with self.use() as file:
            try:
                read_chunks(partial(read_exactly, file, path), path, stored, picks, flat)
            except OSError as error:
                kind = Full if error.errno == errno.ENOMEM else ChunkDamaged
                raise kind(f"{path} cannot be read: {error.strerror or error}") from error

    def read_slots(self, objects: Sequence[Stored], slots: Bytes | Sequence[Bytes]) -> dict[int, ChunkDamaged]:
        """Read whole objects into consecutive slots of one buffer; arguments, result and errors as in `read_slots`."""
        return read_each(self.read, objects, slots)

    @contextlib.contextmanager
    def use(self) -> Iterator[int]:
        """The descriptor, which stays open meanwhile: another file could get its number.

        Raises:
            WrongProcess: this is a forked child.
            Closed: it was closed.
        """
        if os.getpid() != self._pid:
            raise WrongProcess(f"the memory tier was opened in process {self._pid}; attach to it in this one")
        with self._lock:
            if self._closed:
                raise Closed("the memory tier is closed; open the cache again")
            self._users += 1
        try:
            yield self._opened.fileno()
        finally:
            with self._lock:
                self._users -= 1
            self._close_unused()

    def close(self) -> None:
        """Let go of the memory, after the calls that are under way; harmless when it was done."""
        if os.getpid() == self._pid:  # in a forked child it is closed, and the lock may be held by nobody
            with self._lock:
                self._closed = True
            self._close_unused()

    def __enter__(self) -> Self:
        """The reader itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _close_unused(self) -> None:
        with self._lock:
            if self._closed and not self._users and not self._opened.closed:
                self._let_go()

    def _let_go(self) -> None:
        self._opened.close()


@dataclass(slots=True, eq=False)
class Claim:
    """A range of the arena that was given out."""

    start: int
    """In bytes from the arena's beginning; a multiple of the page."""
    size: int
    region: Region
    readers: int = 0
    """Calls that copy from it just now."""
    freed: bool = False


class Arena(MemoryReader):
    """The memory, on its owner's side."""

    def __init__(self) -> None:
        """Make it, empty.

        Raises:
            BadInput: the system has no such memory.
            Full: no descriptor or memory left, or a limit on the size of files.
        """
        if not hasattr(os, "memfd_create"):
            raise BadInput("a memory tier needs Linux (memfd_create); name tiers without memory://")
        try:
            file = _anonymous_file()
            try:
                os.ftruncate(file, _SIZE)
                # Nobody can cut the file under a mapping, and nobody can forbid writing to it.
                fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise Full(
                    f"cannot make a memory tier: {error.strerror}; raise the limits of this process (ulimit -n, "
                    f"ulimit -f), or name tiers without memory://"
                ) from error
            raise BadInput(
                f"this system makes no shared memory for us: {error.strerror}; name tiers without memory://"
            ) from error
        super().__init__(file, "r+b")
        self._unread = threading.Condition(self._lock)
        self._regions: list[Region] = []

    @property
    def handle(self) -> MemoryHandle:
        """For other processes."""
        with self.use() as file:
            found = os.fstat(file)
            return MemoryHandle(self._pid, file, found.st_dev, found.st_ino)

    def descriptor(self) -> int:
        """A new descriptor that can only read, for ``pass_fds`` or a socket; the caller closes it."""
        return os.open(self.handle.path, os.O_RDONLY | os.O_CLOEXEC)

    def claim(self, size: int) -> Claim:
        """Take memory for ``size`` bytes, a multiple of the page, before anything is written.

        Raises:
            Full: the machine, or the control group, has too little memory left.
        """
        left = headroom()
        if left is not None and size > left.grantable:
            raise Full(
                f"no memory for an object of {size} bytes: {left.available} of {left.total} are left; give the memory "
                f"tier a smaller budget"
            )
        with self.use() as file:
            claim = self._place(file, size)
            try:
                os.posix_fallocate(file, claim.start, size)
            except BaseException as error:
                self.free(claim)
                if not isinstance(error, OSError):
                    raise
                raise Full(
                    f"no memory for an object of {size} bytes: {error.strerror}; give the memory tier a smaller budget"
                ) from error
        return claim

    def trim(self, claim: Claim, size: int) -> None:
        """Give back what a claim has beyond ``size`` bytes, a multiple of the page: it is written."""
        with self.use() as file:
            if size < claim.size:
                punch(file, claim.start + size, claim.size - size)
                claim.size = size
            claim.region.prepare(claim.start, size)

    def free(self, claim: Claim) -> None:
        """Give the memory of a claim back to the machine, once its readers are through; harmless when it was done."""
        with self.use() as file:
            with self._lock:
                if claim.freed:
                    return
                claim.freed = True
                self._unread.wait_for(lambda: not claim.readers)
            punch(file, claim.start, claim.size)
            with self._lock:
                claim.region.claims -= 1
                self._drop_unused(claim.region)

    def settle(self, claim: Claim) -> None:
        """Wait for those who copy from a claim just now: its places are about to be written again."""
        with self._lock:
            self._unread.wait_for(lambda: not claim.readers)

    def read_claim(self, claim: Claim, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None = None) -> None:
        """`read` of an object that lies in this claim, from the mapping; nothing is given back meanwhile."""
        starts, sizes, path = stored.table.offsets, stored.table.sizes, f"memory://{stored.physical}"
        ends = (start + size for start, size in zip(starts, sizes, strict=True))
        if min(starts) < claim.start or max(ends) > claim.start + claim.size:
            raise ChunkDamaged(f"{path} is not the object that was to be read: another lies there by now")
        if not claim.region.mapped:
            self.read(stored, out, chunks)
            return
        picks, flat = flat_rows(stored, out, chunks)
        with self.hold(claim, path):
            read_chunks(claim.region.fill, path, stored, picks, flat)

    @contextlib.contextmanager
    def hold(self, claim: Claim, path: str) -> Iterator[None]:
        """Keep a claim in place; `free` waits.

        Raises:
            ChunkDamaged: it was freed; the message begins with ``path``.
        """
        with self.use():
            with self._lock:
                if claim.freed:
                    raise ChunkDamaged(f"{path} is missing")
                claim.readers += 1
            try:
                yield
            finally:
                with self._lock:
                    claim.readers -= 1
                    if not claim.readers:
                        self._unread.notify_all()

    def _place(self, file: int, size: int) -> Claim:
        """The next range that was never given out; a new region where it does not fit into the last."""
        with self._lock:
            last = self._regions[-1] if self._regions else None
            if last is None or last.next + size > last.end:
                start = last.end if last is not None else 0
                self._regions.append(Region(file, start, max(size, REGION_BYTES)))
                if last is not None:
                    self._drop_unused(last)
            region = self._regions[-1]
            claim = Claim(region.next, size, region)
            region.next += size
            region.claims += 1
            return claim

    def _drop_unused(self, region: Region) -> None:
        if not region.claims and region is not self._regions[-1]:
            self._regions.remove(region)
            region.close()

    def _let_go(self) -> None:
        """Give all memory back, whoever is attached: they find it damaged, and the cache that made it is closed."""
        for region in self._regions:
            region.close()
            if region.claims:
                punch(self._opened.fileno(), region.start, region.end - region.start)
        self._regions.clear()
        super()._let_go()


def _anonymous_file() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("viewcache", flags | _NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("viewcache", flags)


def _forget_in_child() -> None:
    for reader in list(_open_ones):
        reader._opened.close()


_open_ones: "weakref.WeakSet[MemoryReader]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_in_child)
