"""How much of a file the page cache has, asked of Linux 6.5 and later (`cachestat`), which brings nothing in by that.

Reading a byte without waiting (`RWF_NOWAIT`) asks the device for it when it is not there, and a device that is quick,
or a thread that has to wait for a core, makes that look as if it had been there before.
"""

import ctypes
from functools import cache

__all__ = ["cached_pages"]

_CACHESTAT = 451
"""Number of the system call, the same on all machines that the wheels of our libraries are for."""


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Found(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently"))


def cached_pages(file: int, start: int, length: int) -> int | None:
    """How many pages of an open file are in memory, of the bytes from ``start`` on.

    Args:
        file: its descriptor.
        start: first byte.
        length: bytes; 0 = up to the end.

    Returns:
        None where that is not told: by an older kernel, of a file of somebody else, or of a file system without pages.
    """
    found = _Found()
    arguments = ctypes.c_int(file), ctypes.byref(_Range(start, length)), ctypes.byref(found), ctypes.c_uint(0)
    if _libc().syscall(ctypes.c_long(_CACHESTAT), *arguments):
        return None
    return int(found.cached)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
