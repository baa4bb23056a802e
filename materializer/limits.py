"""What a worker process may take: memory, files, core dumps; and that it ends with its parent.

A worker opens files that strangers made. Limits turn the worst of them into an error of one process.
"""

import ctypes
import math
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

__all__ = [
    "end_with_parent_thread",
    "is_limited_from_outside",
    "keep_freed_memory",
    "left_bytes",
    "limit_child",
    "limit_worker",
    "private_bytes",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_limited_from_outside = False
"""Whether `limit_worker` found less allowed than it was to allow."""
_LIMITED = ((resource.RLIMIT_DATA, 5), (resource.RLIMIT_AS, 0))
"""Limits of memory, and the field of /proc/self/statm that counts what there is of it, in pages."""
OPEN_FILES = 512
"""Descriptors: a few videos, sockets and the store's files; a leak shows up as an error and not as a slow machine."""


def limit_worker(
    memory_bytes: int, *, parent: int | None = None, writes: bool = True, children_differ: bool = False
) -> None:
    """Limit this process, for good.

    Args:
        memory_bytes: most private memory (heap and anonymous mappings); an allocation past it raises MemoryError.
        parent: who started this process; if it has ended meanwhile, this process ends too. None = who is it now.
        writes: False for processes that write no files; any write to a file then fails with EFBIG.
        children_differ: whether it starts processes that may have more memory than itself.

    On Linux also: the kernel kills the process when the thread that started it ends; no program that it might start
    gains privileges. Ctrl-C is left to the parent, which decides what becomes of running jobs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write past the limit is an error, not a death
    global _limited_from_outside
    _limited_from_outside = _lower(resource.RLIMIT_DATA, memory_bytes, soft_only=children_differ) < memory_bytes
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    if not writes:
        _lower(resource.RLIMIT_FSIZE, 0)
    parent = os.getppid() if parent is None else parent
    end_with_parent_thread()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    keep_freed_memory()
    if os.getppid() != parent:  # it ended before the request, and its job must not be done for nobody
        os._exit(1)


def private_bytes(pid: int) -> int:
    """Resident bytes of a process that it shares with no file or process; 0 if it is gone, or without /proc."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def left_bytes() -> float:
    """Memory that this process may take beyond what it has; infinite where no limit is set, or without /proc.

    What was freed and kept for later counts as taken, so an allocation may succeed although less is left.
    """
    limits = [(resource.getrlimit(what)[0], field) for what, field in _LIMITED]
    known = [(most, field) for most, field in limits if most != resource.RLIM_INFINITY]
    try:
        fields = Path("/proc/self/statm").read_bytes().split() if known else []
    except OSError:
        return math.inf
    return min((most - int(fields[field]) * resource.getpagesize() for most, field in known), default=math.inf)


def is_limited_from_outside() -> bool:
    """Whether this process may take less memory than `limit_worker` was to allow it, by its shell or batch system."""
    return _limited_from_outside or resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def limit_child(pid: int, memory_bytes: int) -> None:
    """Limit the private memory of a process that this one has started, and let it leave no core dump; if it lives."""
    with suppress(ProcessLookupError):
        for what, value in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CORE, 0)):
            _, hard = resource.prlimit(pid, what)
            allowed = _allowed(value, hard)
            resource.prlimit(pid, what, (allowed, allowed))


def _lower(what: int, value: int, *, soft_only: bool = False) -> int:
    """Set soft and hard limit, never above what is allowed already; returns what is allowed now."""
    _, hard = resource.getrlimit(what)
    allowed = _allowed(value, hard)
    resource.setrlimit(what, (allowed, hard if soft_only else allowed))
    return allowed


def _allowed(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def end_with_parent_thread() -> None:
    """Linux: let the kernel kill this process when the thread that started it ends, whatever it is doing then."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def keep_freed_memory() -> None:
    """Linux: keep the pages of freed frames for the next ones, which need not ask the kernel for zeroed ones then."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 256 << 20)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(option, value, 0, 0, 0)
