"""How another process reads a DuckDB catalog that is owned: a copy of the file, published on request.

DuckDB lets no second process in, so whoever wants to read touches ``snapshot.request``; the owner's writer sees it
within half a second and folds its log into the file, and a thread beside it lets a child process copy that. The copy
must be made by a child: the owner would drop DuckDB's lock by opening and closing its own file.

Commits go on beside the copy: they write to the log, and to blocks of the file that nothing refers to yet. Only a
checkpoint changes what the head of the file leads to, and all checkpoints are made here, never beside a copy.
"""

import contextlib
import itertools
import logging
import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from viewcache import errors
from viewcache.catalog import files
from viewcache.catalog.engine import Engine
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.lock import OwnerLock
from viewcache.failpoints import failpoint

__all__ = ["Upkeep", "lock_or_snapshot"]

_POLL_S = 0.02
_REFILL_EVERY_S = 30.0
"""How often the reserve is looked after, seconds."""
_COPY_LIMIT_S = 600
LOG_BYTES = 16 << 20
"""A larger log is folded into the file, so that the next open after a kill has no more to read."""
FOLD_LIMIT_S = 30.0
"""How long a checkpoint is tried while others are in its way, a policy's long query for example, seconds."""
_AGAIN_S = 30.0
"""Pause after a checkpoint that failed, seconds."""
_COPIES = 3
"""Tries of one snapshot where the database is opened again meanwhile."""
_log = logging.getLogger("viewcache.catalog")


class Upkeep:
    """What the owner does beside its transactions: checkpoints, snapshots, and the reserve for a full disk."""

    def __init__(self, engine: Engine, layout: CatalogFiles, between: Callable[[Callable[[], bool]], bool]):
        """For the owner of the database in ``layout``.

        Args:
            engine: of that database.
            layout: its files.
            between: runs a function on the writer's thread while no transaction is open, and waits for it.
        """
        self._engine, self._layout, self._between = engine, layout, between
        self.before: Callable[[], None] = lambda: None
        """Called before a snapshot that another process asked for, which has what this notes."""
        self._refill_at = time.monotonic() + _REFILL_EVERY_S
        self._fold_at = 0.0
        self._one = threading.Lock()
        """Held by who makes a checkpoint and the copy after it."""
        self._thread: threading.Thread | None = None
        self._copying: subprocess.Popen[bytes] | None = None
        self._closed = False

    def tick(self) -> None:
        """Start what is due; the writer's thread calls this between transactions, and goes on at once."""
        if time.monotonic() >= self._refill_at:
            self._refill_at = time.monotonic() + _REFILL_EVERY_S
            disk = os.statvfs(self._layout.folder)
            if disk.f_bavail * disk.f_frsize > 4 * files.RESERVE_BYTES:
                files.refill_reserve(self._layout)
        if self._thread is None or not self._thread.is_alive():
            if self._layout.request.exists():
                self._start(self._answer)
            elif time.monotonic() >= self._fold_at and _size(self._layout.log) > LOG_BYTES:
                self._start(self._fold_alone)

    def publish(self) -> Path:
        """Copy the database as it is now to where others read it.

        Raises:
            Full: no space for the copy.
            Closed: the catalog was closed meanwhile.
        """
        return self._publish(time.time_ns())

    def close(self) -> None:
        """End what goes on; the writer is closed already."""
        self._closed = True
        if self._copying is not None:
            self._copying.kill()
        if self._thread is not None:
            self._thread.join()
        with self._one:
            return

    def _start(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._told, args=(work,), name="viewcache-catalog-upkeep", daemon=True)
        self._thread.start()

    def _told(self, work: Callable[[], None]) -> None:
        try:
            work()
        except errors.Closed:
            return
        except Exception as error:
            self._fold_at = time.monotonic() + _AGAIN_S
            if not self._closed:
                unforeseen = errors.is_unforeseen(error)
                text = "catalog upkeep failed: %s"
                _log.error(text, error, exc_info=unforeseen, extra={"action": "catalog_upkeep"})

    def _answer(self) -> None:
        # Taken away first: who asks while the copy is made wants a newer one. Who touched it until then is served.
        with open(self._layout.request, "rb") as request:
            self._layout.request.unlink()
            asked_ns = os.fstat(request.fileno()).st_mtime_ns
        try:
            self.before()
        except errors.Closed:  # as below
            raise
        except Exception as error:  # who asked is better served without what comes last than not at all
            unforeseen = errors.is_unforeseen(error)
            text = "a snapshot lacks what was to be noted before: %s"
            _log.warning(text, error, exc_info=unforeseen, extra={"action": "snapshot_behind"})
        try:
            self._publish(asked_ns)
        except errors.Closed:  # who asked is not refused: the lock goes now, and then the file itself can be read
            raise
        except errors.ViewcacheError as error:
            if not self._closed:
                self._refuse(asked_ns, error)
            raise
        self._layout.refusal.unlink(missing_ok=True)

    def _refuse(self, asked_ns: int, error: errors.ViewcacheError) -> None:
        """Leave word for who asked until then; on a full disk an empty file, which needs no room."""
        fresh = self._layout.refusal.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # who asked waits in vain then, and says so
            with contextlib.suppress(OSError):
                fresh.write_text(f"{error.kind}\n{error}")
            os.utime(fresh, ns=(asked_ns, asked_ns))
            os.rename(fresh, self._layout.refusal)

    def _fold_alone(self) -> None:
        with self._one:
            self._fold()

    def _publish(self, asked_ns: int) -> Path:
        """Make a snapshot for who asked until then: that is what its time says."""
        snapshot = self._layout.snapshot
        with self._one:
            for _ in range(_COPIES):
                self._fold()
                life, fresh = self._engine.life, snapshot.with_suffix(".tmp")
                self._copy(fresh)
                if not self._engine.lost and life == self._engine.life:  # in this order: the life goes on last
                    os.chmod(fresh, 0o600)
                    stamp = max(asked_ns, _modified_ns(snapshot))  # it has what those before it had
                    os.utime(fresh, ns=(stamp, stamp))
                    failpoint("catalog.snapshot-before-rename")
                    os.rename(fresh, snapshot)
                    return snapshot
        raise errors.CatalogDamaged(f"no snapshot of {self._layout.database}: it was opened again and again meanwhile")

    def _copy(self, fresh: Path) -> None:
        with errors.within_limits(f"no snapshot of {self._layout.folder}"):
            self._copying = subprocess.Popen(
                ["cp", "--reflink=auto", "--", str(self._layout.database), str(fresh)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                umask=0o077,
            )
        with self._copying as copying:
            if self._closed:
                copying.kill()
            try:
                _, said = copying.communicate(timeout=_COPY_LIMIT_S)
            except subprocess.TimeoutExpired:
                copying.kill()
                said = f"not copied in {_COPY_LIMIT_S} s".encode()
        if copying.returncode:
            fresh.unlink(missing_ok=True)
            if self._closed:
                raise errors.Closed("this catalog was closed; open the cache again")
            raise errors.Full(
                f"no snapshot of {self._layout.database}: {said.decode(errors='replace').strip()}; it takes "
                f"{_size(self._layout.database)} bytes, and {_room(self._layout)}; free disk space"
            )

    def _fold(self) -> None:
        """Fold the log into the file as soon as nothing is in the way; commits go on until then.

        Raises:
            Timeout: something was in the way all the time.
        """
        until = time.monotonic() + FOLD_LIMIT_S
        while not self._between(self._checkpoint):
            if time.monotonic() >= until:
                raise errors.Timeout(f"{self._layout.database}: no checkpoint within {FOLD_LIMIT_S} s, others use it")
            time.sleep(_POLL_S)

    def _checkpoint(self) -> bool:
        # Not beside a transaction, though DuckDB would allow it: the commit would make a log that others may read.
        failpoint("catalog.before-checkpoint")
        try:
            folded = self._engine.checkpoint()
        except errors.ViewcacheError:
            if self._engine.lost:
                files.release_reserve(self._layout)
                self._engine.reopen()
            raise
        failpoint("catalog.after-checkpoint")
        return folded


def _modified_ns(path: Path) -> int:
    """When a file was modified, nanoseconds; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _size(path: Path) -> int:
    """Bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _room(layout: CatalogFiles) -> str:
    return f"{shutil.disk_usage(layout.folder).free} bytes are free where {layout.folder} lies"


def lock_or_snapshot(folder: str | Path, wait_s: float = 10.0, *, max_age_s: float = 0.0) -> OwnerLock | Path:
    """The lock of a catalog that nobody owns, under which its file can be read, or else its owner's snapshot.

    Whichever is to be had first: an owner that is closing publishes none any more.

    Args:
        folder: the catalog's folder.
        wait_s: how long the owner is waited for, seconds.
        max_age_s: a snapshot that is younger than so many seconds will do, and costs the owner nothing.

    Returns:
        A reader's lock, or the snapshot: a DuckDB file that any process may open read-only. It shows what was committed
        at a moment after this call began, or ``max_age_s`` before.

    Raises:
        NotFound: the owner has no catalog there.
        Full: the owner has no space for a snapshot.
        Timeout: the owner published none, because it hangs or a transaction takes long.
        Broken: the folder cannot be written, or the owner could not make one.
        CatalogDamaged: there is something else in the lock file's place.
    """
    layout = CatalogFiles(Path(folder).absolute())
    looks = itertools.chain([None], _looks(layout, wait_s, max_age_s))  # nothing is asked for where nobody would answer
    return next(found for snapshot in looks if (found := snapshot or _unowned(layout)))


def _unowned(layout: CatalogFiles) -> OwnerLock | None:
    with contextlib.suppress(errors.CatalogBusy):
        return OwnerLock(layout.lock, exclusive=False)
    return None


def _looks(layout: CatalogFiles, wait_s: float, max_age_s: float) -> Iterator[Path | None]:
    """Ask for a snapshot and look for it again and again: None until it is there."""
    if not layout.database.exists():
        raise errors.NotFound(f"no catalog in {layout.folder}")
    if _age_s(layout.snapshot) < max_age_s:
        yield layout.snapshot
    asked = _request(layout)
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        if _modified_ns(layout.snapshot) >= asked:
            yield layout.snapshot
        if _modified_ns(layout.refusal) >= asked:
            raise _refused(layout)
        yield None
        time.sleep(_POLL_S)
    raise errors.Timeout(f"no snapshot of {layout.folder} within {wait_s} s: does its owner still run?")


def _refused(layout: CatalogFiles) -> errors.ViewcacheError:
    """The word that the owner left."""
    try:
        kind, _, why = layout.refusal.read_text(errors="replace").partition("\n")
    except OSError:
        kind = why = ""
    if not why:
        return errors.Full(f"no snapshot of {layout.folder}: the disk is full, {_room(layout)}; free disk space")
    kinds: tuple[type[errors.ViewcacheError], ...] = (errors.Full, errors.Timeout)
    return next((each for each in kinds if each.kind == kind), errors.Broken)(why)


def _age_s(snapshot: Path) -> float:
    """Seconds since a snapshot was asked for; infinite if there is none, or the clock was set back since."""
    modified_ns = _modified_ns(snapshot)
    age = time.time() - modified_ns / 1e9
    return age if modified_ns and age >= 0 else math.inf


def _request(layout: CatalogFiles) -> int:
    """Ask for a snapshot; the time that it must have at least, nanoseconds.

    That is later than the time of any snapshot, refusal and request before, though the clock may have been set back
    since.
    """
    while True:
        try:
            fd = os.open(layout.request, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise errors.Broken(
                f"cannot ask the owner of {layout.folder} for a snapshot: {error.strerror}; ask where that folder can "
                "be written"
            ) from error
        try:
            last = max(_modified_ns(layout.snapshot), _modified_ns(layout.refusal))
            asked = max(time.time_ns(), last + 1, os.fstat(fd).st_mtime_ns)
            os.utime(fd, ns=(asked, asked))
            status = os.fstat(fd)
        finally:
            os.close(fd)
        if status.st_nlink:
            return status.st_mtime_ns
        # The owner took it away, for somebody who asked earlier.
