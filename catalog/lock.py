"""Who owns a DuckDB catalog: an flock on a file of its own (law 9).

DuckDB's lock is a POSIX lock, which goes when the owner opens and closes its own database file; an
flock on another file does not. A forked child would keep it, so the child closes its descriptor at once.
"""

import contextlib
import fcntl
import os
import time
import weakref
from pathlib import Path

from viewcache import errors

__all__ = ["OPEN_HERE", "OWNER_LOCK", "OwnerLock"]

OWNER_LOCK = "owner.lock"
"""File in the folder of a store whose catalog is in PostgreSQL; who holds its lock owns the cache."""

OPEN_HERE = (
    "This process has it open already: close that cache first (cache.close()), or go on with it; if nothing refers to "
    "it any more, start this process again (in a notebook, its kernel)"
)
"""What to do where a process is in its own way."""


class OwnerLock:
    """The held lock; ``exclusive`` for the one writer, shared for readers of a catalog that nobody writes."""

    def __init__(self, path: Path, *, exclusive: bool, wait_s: float = 0.0):
        """Take the lock.

        Args:
            path: the lock file; made if absent, never removed.
            exclusive: for the one writer.
            wait_s: how long to go on trying, seconds.

        Raises:
            CatalogBusy: another process holds it; the message says which, and what to do.
            CatalogDamaged: there is something else in the lock file's place.
            Broken: the folder cannot be written, which only a reader need not do.
        """
        self._fd = _open_to_write(path) if exclusive else _open_to_read(path)
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() < until:
                    time.sleep(0.02)
                    continue
                holder, here = self._holder(), self._is_held_here()
                os.close(self._fd)
                raise errors.CatalogBusy(_busy(path.parent, holder, here=here), holder, str(path.parent)) from error
        if exclusive:
            os.ftruncate(self._fd, 0)
            with contextlib.suppress(OSError):  # on a full disk others are told of "another process"
                os.pwrite(self._fd, str(os.getpid()).encode(), 0)
        _held.add(self)

    def _holder(self) -> int:
        """The owner's pid; 0 when it cannot be told, or a reader is copying after the owner's end."""
        try:
            text = os.pread(self._fd, 32, 0)
        except IsADirectoryError:
            return 0
        return int(text) if text.isdigit() and Path(f"/proc/{int(text)}").exists() else 0

    def _is_held_here(self) -> bool:
        """Whether this very process has the file open otherwise: a pid alone may be that of another container."""
        mine = os.fstat(self._fd)
        with errors.within_limits("cannot look who owns a cache"):
            mine_here = os.listdir("/proc/self/fd")
        for name in mine_here:
            try:
                if int(name) != self._fd and os.path.samestat(os.fstat(int(name)), mine):
                    return self._holder() == os.getpid()
            except OSError:  # closed meanwhile
                continue
        return False

    def __enter__(self) -> "OwnerLock":
        """The held lock."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Give it back."""
        self.release()

    def release(self) -> None:
        """Give the lock back; harmless when done twice."""
        if self._fd >= 0:
            _held.discard(self)
            os.close(self._fd)
            self._fd = -1


def _open_to_write(path: Path) -> int:
    try:
        with errors.within_limits(f"cannot look who owns the cache in {path.parent}"):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except IsADirectoryError as error:
        raise errors.CatalogDamaged(f"{path} is a folder where the lock file belongs; remove it") from error
    except errors.Full:
        raise
    except OSError as error:
        raise errors.Broken(
            f"cannot own the cache in {path.parent}: {error.strerror}; make that folder writable for this user, or "
            "name another one"
        ) from error


def _open_to_read(path: Path) -> int:
    """The lock file, or its folder where there is none and none can be made: then nobody can own the cache either."""
    try:
        return _open_to_write(path)
    except errors.Broken as error:
        try:
            place = path if path.exists() else path.parent
            return os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            raise error from None


def _busy(folder: Path, holder: int, *, here: bool) -> str:
    if here:
        return f"catalog {folder} is owned by process {holder}, which is this process. {OPEN_HERE}"
    who = f"process {holder}" if holder else "another process"
    return (
        f"catalog {folder} is owned by {who}; only one process may own a cache. "
        f"Read its state with `viewcache sql` (a snapshot), or stop {who} first"
    )


def _forget_in_child() -> None:
    for lock in list(_held):
        lock.release()


_held: "weakref.WeakSet[OwnerLock]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_in_child)
