"""How another process reads a DuckDB catalog that is owned: a copy of the file, published on request.

DuckDB lets no second process in, so whoever wants to read touches ``snapshot.request``; the owner's writer thread sees
it within half a second, folds its log into the file and lets a child process copy it. The copy must be made by a
child: the owner would drop DuckDB's lock by opening and closing its own file.
"""

import contextlib
import math
import os
import subprocess
import time
from pathlib import Path

from viewcache import errors
from viewcache.catalog import files
from viewcache.catalog.engine import Engine
from viewcache.catalog.files import CatalogFiles
from viewcache.failpoints import failpoint

__all__ = ["Upkeep", "read_snapshot"]

_POLL_S = 0.02
_REFILL_EVERY_S = 30.0
"""How often the reserve is looked after, seconds."""
_COPY_LIMIT_S = 600


class Upkeep:
    """What the owner does between transactions; every method runs on the writer's thread."""

    def __init__(self, engine: Engine, layout: CatalogFiles):
        """For the owner of the database in ``layout``."""
        self._engine, self._layout = engine, layout
        self._refill_at = time.monotonic() + _REFILL_EVERY_S

    def tick(self) -> None:
        """Publish a snapshot if one was asked for; hold back disk again once there is some."""
        if self._layout.request.exists():
            # Taken away first: who asks while the copy is made wants a newer one.
            self._layout.request.unlink(missing_ok=True)
            self.publish()
        if time.monotonic() >= self._refill_at:
            self._refill_at = time.monotonic() + _REFILL_EVERY_S
            disk = os.statvfs(self._layout.folder)
            if disk.f_bavail * disk.f_frsize > 4 * files.RESERVE_BYTES:
                files.refill_reserve(self._layout)

    def publish(self) -> Path:
        """Copy the database as it is now to where others read it; no transaction may be open.

        Raises:
            Full: no space for the copy.
        """
        self.checkpoint()
        fresh = self._layout.snapshot.with_suffix(".tmp")
        copy = subprocess.run(
            ["cp", "--reflink=auto", "--", str(self._layout.database), str(fresh)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COPY_LIMIT_S,
            check=False,
            umask=0o077,
        )
        if copy.returncode:
            fresh.unlink(missing_ok=True)
            raise errors.Full(f"no snapshot of {self._layout.database}: {copy.stderr.decode(errors='replace').strip()}")
        os.chmod(fresh, 0o600)
        failpoint("catalog.snapshot-before-rename")
        os.rename(fresh, self._layout.snapshot)
        return self._layout.snapshot

    def checkpoint(self) -> None:
        """Fold the log into the file; a database that is lost on the way is opened again."""
        failpoint("catalog.before-checkpoint")
        try:
            self._engine.checkpoint()
        except errors.ViewcacheError:
            if self._engine.lost:
                files.release_reserve(self._layout)
                self._engine.reopen()
            raise
        failpoint("catalog.after-checkpoint")


def read_snapshot(folder: str | Path, wait_s: float = 10.0, *, max_age_s: float = 0.0) -> Path:
    """Ask the owner of a catalog for a snapshot and wait for it.

    Args:
        folder: the catalog's folder.
        wait_s: seconds.
        max_age_s: a snapshot that is younger than so many seconds will do, and costs the owner nothing.

    Returns:
        The snapshot: a DuckDB file that any process may open read-only. It shows what was committed at a moment after
        this call began, or ``max_age_s`` before.

    Raises:
        NotFound: there is no catalog.
        Timeout: nobody published one, because no owner runs or a transaction takes long.
        Broken: the folder cannot be written.
    """
    layout = CatalogFiles(Path(folder).absolute())
    if not layout.database.exists():
        raise errors.NotFound(f"no catalog in {layout.folder}")
    if _age_s(layout.snapshot) < max_age_s:
        return layout.snapshot
    asked = _request(layout)
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            if layout.snapshot.stat().st_mtime_ns >= asked and not layout.request.exists():
                return layout.snapshot
        time.sleep(_POLL_S)
    raise errors.Timeout(f"no snapshot of {layout.folder} within {wait_s} s: does its owner still run?")


def _age_s(snapshot: Path) -> float:
    """Seconds since a snapshot was published; infinite if there is none, or the clock was set back since."""
    try:
        age = time.time() - snapshot.stat().st_mtime
    except FileNotFoundError:
        return math.inf
    return age if age >= 0 else math.inf


def _request(layout: CatalogFiles) -> int:
    """Ask for a snapshot; when that was, nanoseconds by the file system's clock."""
    while True:
        try:
            fd = os.open(layout.request, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise errors.Broken(
                f"cannot ask the owner of {layout.folder} for a snapshot: {error.strerror}; ask where that folder can "
                "be written"
            ) from error
        try:
            os.utime(fd)
            status = os.fstat(fd)
        finally:
            os.close(fd)
        if status.st_nlink:
            return status.st_mtime_ns
        # The owner took it away, for somebody who asked earlier.
