"""Part of an arena, mapped into its owner's memory, and the system calls for it that Python does not have.

A copy out of a mapping takes half the time of a `read` of the same memory, which goes page by page. The trade-off: who
touches a page of the mapping that was given back takes a new one, which nobody would count; so the arena keeps every
range in place that somebody is reading, and other processes, of which it knows nothing, read by `read`.
"""

import ctypes
import mmap
import os
import weakref
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken

__all__ = ["Region", "punch"]

_KEEP_SIZE_PUNCH_HOLE = 1 | 2  # linux/falloc.h
_POPULATE_READ = 22  # linux/mman.h, since Linux 5.14
_FAILED = ctypes.c_void_p(-1).value


class Region:
    """Consecutive places of the arena, given out one after another, each once."""

    def __init__(self, file: int, start: int, size: int):
        """Map it, if this process may have so much address space; nothing is taken of the machine's memory.

        Args:
            file: the arena's descriptor.
            start: first place, in bytes; a multiple of the page.
            size: bytes, a multiple of the page too.
        """
        self.start, self.end = start, start + size
        self.next = start
        """The first place that was not given out yet."""
        self.claims = 0
        """Ranges given out and not given back."""
        self._bytes: NDArray[np.uint8] | None = None
        address = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, start)
        if address == _FAILED:
            return
        # A forked child must not keep the memory alive, nor a core dump be as large as it.
        for advice in (mmap.MADV_DONTFORK, mmap.MADV_DONTDUMP):
            _libc().madvise(address, size, advice)
        self._bytes = np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8)
        self.unmap = weakref.finalize(self, _unmap, os.getpid(), address, size)
        self.unmap.atexit = False  # a thread may still read

    @property
    def mapped(self) -> bool:
        """Whether `fill` works."""
        return self._bytes is not None

    def fill(self, views: Sequence[memoryview | bytearray], offset: int) -> None:
        """A `viewcache.store.shard_reader.Fill` of ranges in this region that nobody gives back meanwhile."""
        assert self._bytes is not None
        at = offset - self.start
        for view in views:
            # NumPy's copy, unlike that of a memory view, lets other threads run.
            np.copyto(np.frombuffer(view, np.uint8), self._bytes[at : at + len(view)])
            at += len(view)

    def prepare(self, start: int, size: int) -> None:
        """Enter a range's pages into the process's tables, so that its first reader does not wait for that."""
        if self._bytes is not None:
            # An older kernel refuses; the first reader then takes the faults.
            _libc().madvise(self._bytes.ctypes.data + start - self.start, size, _POPULATE_READ)

    def close(self) -> None:
        """Unmap it; nobody reads it any more."""
        if self._bytes is not None:
            self._bytes = None
            self.unmap()


def punch(file: int, start: int, size: int) -> None:
    """Give the pages of a range back to the machine; the range then reads as zeros.

    Raises:
        Broken: the kernel refused.
    """
    if _libc().fallocate(file, _KEEP_SIZE_PUNCH_HOLE, start, size):
        reason = os.strerror(ctypes.get_errno())
        raise Broken(f"cannot give {size} bytes of memory back: {reason}; close the cache to free them")


def _unmap(pid: int, address: int, size: int) -> None:
    # A forked child has nothing there, or something of its own.
    if os.getpid() == pid:
        _libc().munmap(address, size)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number, place = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
    libc.mmap.argtypes, libc.mmap.restype = (pointer, size, number, number, number, place), pointer
    libc.munmap.argtypes = (pointer, size)
    libc.madvise.argtypes = (pointer, size, number)
    libc.fallocate.argtypes = (number, number, place, place)
    return libc
