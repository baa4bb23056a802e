"""The files of a DuckDB catalog: atomic creation, the reserve for a full disk, quarantine of what cannot be opened.

No function here opens the database file while an engine has it open: closing it again would drop DuckDB's own lock.
"""

import contextlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from viewcache import errors
from viewcache.catalog.log_room import NO_SPACE
from viewcache.failpoints import failpoint

__all__ = [
    "RESERVE_BYTES",
    "CatalogFiles",
    "create",
    "published",
    "quarantine",
    "read_regular",
    "refill_reserve",
    "release_reserve",
    "sync",
]

RESERVE_BYTES = 16 << 20
"""Freed when the disk is full: a DELETE needs log space too."""

_log = logging.getLogger("viewcache.catalog")


@dataclass(frozen=True, slots=True)
class CatalogFiles:
    """Where each file of a catalog lies."""

    folder: Path

    @property
    def database(self) -> Path:
        """The DuckDB file."""
        return self.folder / "catalog.duckdb"

    @property
    def log(self) -> Path:
        """DuckDB's write-ahead log."""
        return self.folder / "catalog.duckdb.wal"

    @property
    def lock(self) -> Path:
        """Held by the owner; says its pid."""
        return self.folder / "catalog.lock"

    @property
    def journal(self) -> Path:
        """What was drawn, a second time."""
        return self.folder / "catalog.journal"

    @property
    def indexes(self) -> Path:
        """Packet indexes of videos."""
        return self.folder / "catalog.indexes"

    @property
    def suspect(self) -> Path:
        """There from when the database file was found damaged until it is moved aside."""
        return self.folder / "catalog.suspect"

    @property
    def reserve(self) -> Path:
        """Space to free when the disk is full."""
        return self.folder / "catalog.reserve"

    @property
    def snapshot(self) -> Path:
        """What other processes read."""
        return self.folder / "snapshot.duckdb"

    @property
    def request(self) -> Path:
        """Touched by a process that wants a newer snapshot."""
        return self.folder / "snapshot.request"

    @property
    def refusal(self) -> Path:
        """Why the owner could not make the last snapshot that it was asked for."""
        return self.folder / "snapshot.refused"

    @property
    def building(self) -> Path:
        """The folder in which a new database is built."""
        return self.folder / "creating"


def create(layout: CatalogFiles) -> None:
    """Build an empty catalog under another name and rename it into place; the caller holds the lock.

    A kill at any moment leaves either no database or a whole one.

    Raises:
        Full: no space for it.
    """
    from viewcache.catalog.creating import create_database

    try:
        shutil.rmtree(layout.building, ignore_errors=True)
        layout.building.mkdir(mode=0o700)
        fresh = layout.building / layout.database.name
        create_database(fresh)
        os.chmod(fresh, 0o600)
        failpoint("catalog.create-before-rename")
        sync(fresh)
        os.rename(fresh, layout.database)
        sync(layout.folder)
        failpoint("catalog.create-after-rename")
        shutil.rmtree(layout.building)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise errors.Full(f"catalog {layout.folder}: {error}; free disk space and open again") from error
        raise


@contextmanager
def published(path: Path) -> Iterator[IO[bytes]]:
    """Have a file written under another name first, so that it is whole or absent; flushed to the disk.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    fresh = path.with_name(f"{path.name}.new")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, path)
        sync(path.parent)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def quarantine(path: Path) -> Path | None:
    """Rename a file that cannot be used aside, so that a person can look at it; None when it is not there."""
    aside = path.with_name(f"{path.name}.quarantined-{time.time_ns()}")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    _log.error("moved %s aside as %s", path, aside, extra={"action": "catalog_quarantine"})
    return aside


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """What a file holds that a person named: a pipe would be waited for without end, a device has no end.

    Raises:
        BadInput: it is no regular file, or larger than ``most_bytes``.
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a pipe would wait for its writer
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise errors.BadInput(f"{path} is not a regular file; name a file, not a pipe, a device or a folder")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise errors.BadInput(f"{path} is too large: at most {most_bytes} bytes of such a file are read")
    return data


def refill_reserve(layout: CatalogFiles) -> None:
    """Hold back some disk, if there is any to hold back."""
    with contextlib.suppress(OSError):  # a full disk is told where something needs it
        fd = os.open(layout.reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        finally:
            os.close(fd)


def release_reserve(layout: CatalogFiles) -> bool:
    """Free the reserve; False when it was free already."""
    try:
        os.unlink(layout.reserve)
    except FileNotFoundError:
        return False
    _log.warning("disk full: freed %s", layout.reserve, extra={"action": "catalog_reserve"})
    return True


def sync(path: Path) -> None:
    """Flush a file or folder to the device."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
