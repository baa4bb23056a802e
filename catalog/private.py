"""A private folder for a copy of a catalog, which goes away with the process that made it, however that ends.

The folder's maker holds a lock on a file in it, which the kernel gives back when the maker dies; whoever needs such
a folder next removes those that nobody holds. Unlinking the files early would be simpler, but DuckDB finds its
write-ahead log beside the database by name.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from viewcache.errors import within_limits

__all__ = ["private_folder"]

_PREFIX = "viewcache-copy-"
_LOCK, _NEW_LOCK = "held", "new"
_UNLOCKED_S = 3600.0
"""A folder without its lock file is being made; after so many seconds its maker died over that."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter, removed in the end; those that killed processes left go first."""
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with within_limits(f"nothing can be copied to {folder.parent}"):
            held = os.open(folder / _NEW_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            # Only now: who sees it can take the lock of a dead maker only.
            os.rename(folder / _NEW_LOCK, folder / _LOCK)
            yield folder
        finally:
            os.close(held)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(where: Path) -> None:
    """Remove the folders of dead makers; what cannot be looked at or removed stays."""
    with suppress(OSError), os.scandir(where) as entries:
        left = [Path(entry.path) for entry in entries if entry.name.startswith(_PREFIX)]
        for folder in left:
            with suppress(OSError):
                if _is_left(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    """Whether a folder is this user's and its maker is dead."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    try:
        held = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - status.st_mtime > _UNLOCKED_S
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return True
