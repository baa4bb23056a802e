"""Whether a piece of code leaves files open, processes running or threads alive; for Linux, by what /proc says."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

__all__ = ["nothing_left", "settle"]

T = TypeVar("T")
PATIENCE_S = 3.0
"""How long what is ending may take to be gone."""


@contextmanager
def nothing_left(servers: Callable[[], Set[int]] = frozenset) -> Iterator[None]:
    """Fail with an AssertionError if the block leaves an open file, a child process or a thread.

    Args:
        servers: processes that start children for this one; those children count, the servers themselves do not.
    """
    servers()
    gc.collect()
    files, children, threads = _open_files(), _children(servers), set(threading.enumerate())
    yield
    gc.collect()
    assert not settle(lambda: sorted(_open_files() - files)), "files left open"
    assert not settle(lambda: sorted(_children(servers) - children)), "child processes left"
    assert not settle(lambda: [t.name for t in threading.enumerate() if t not in threads]), "threads left running"


def _open_files() -> set[tuple[int, str]]:
    """(descriptor, target) pairs; the listing's own descriptor is gone by the time it is read."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add((int(entry.name), str(entry.readlink())))
        except OSError:
            continue
    return found


def _children(servers: Callable[[], Set[int]]) -> set[int]:
    """Living or unreaped children of this process, and what was forked for it."""
    forking = servers()
    parents, found = {os.getpid(), *forking}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat[stat.rindex(")") + 2 :].split()[1]) in parents:
                found.add(int(entry.name))
    return found - forking


def settle(left: Callable[[], list[T]], limit_s: float = 3.0) -> list[T]:
    """What is still left after a bounded wait: an ending thread or process needs a moment."""
    until = time.monotonic() + limit_s
    while (still := left()) and time.monotonic() < until:
        time.sleep(0.01)
    return still
