"""The local tier: one folder with a budget, and the only code that deletes from it.

Owner-side: one process (the catalog's owner) counts and deletes, while workers write through `write_object` under a
reservation. The trade-off: used bytes are counted, not asked of the file system, so that a decision costs nothing and
foreign files on the disk do not matter; `measure` and `settle` correct the count at start.
"""

import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from viewcache.errors import BadInput, Broken, Full, Misuse, WrongProcess
from viewcache.failpoints import failpoint
from viewcache.store.format import FORMAT, check_physical
from viewcache.store.temporary import TEMPORARY, is_abandoned, temporary_name

__all__ = ["MARKER", "LocalTier", "Reservation"]

MARKER = "viewcache-store.json"
"""File in the root that says which format lies there; without it nothing in the folder is ours to delete."""

_OBJECTS = "objects"
_PREFIX = re.compile(r"[0-9a-f]{2}", re.ASCII)
_UNFINISHED_MARKER = re.compile(re.escape(MARKER) + r"\.[0-9a-f]{8}", re.ASCII)


class Reservation:
    """Bytes promised to one write; leaving the ``with`` block without `commit` gives them back."""

    def __init__(self, tier: "LocalTier", reserved: int):
        """Made by `LocalTier.reserve` only."""
        self._tier, self.bytes = tier, reserved

    def __enter__(self) -> Self:
        """The reservation itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what was not committed."""
        self.release()

    def commit(self, written: int) -> None:
        """Turn the promise into ``written`` used bytes (0 where the object was there before) and end it.

        Raises:
            Misuse: more was written than reserved (it is counted nevertheless), or the reservation has ended.
        """
        self._tier._end(self, written)

    def release(self) -> None:
        """End the promise with nothing written; harmless when it has ended."""
        if self.bytes:
            self._tier._end(self, 0)


class LocalTier:
    """A folder of objects and the law that used plus reserved bytes never exceed its budget.

    Thread-safe; refuses to work in a forked child, whose counts would drift from the owner's.
    """

    def __init__(self, root: str | os.PathLike[str], budget_bytes: int):
        """Create the layout, or accept the one that is there.

        Args:
            root: folder, created with mode 0700 where it is missing. Other files beside ours (the catalog's) are
                left alone.
            budget_bytes: for objects and temporary files together.

        Raises:
            BadInput: the folder has ``objects`` or ``tmp`` that are not ours, or another format.
            Full: no space for the layout.
            Broken: the folder cannot be made or written.
        """
        self.root = os.path.abspath(root)
        self.budget_bytes = budget_bytes
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._used = 0
        self._reserved = 0
        try:
            self._lay_out()
        except OSError as error:
            if isinstance(error, Full):
                raise
            raise Broken(f"cannot make a store of {self.root}: {error.strerror}; check that it is writable") from error

    @property
    def used_bytes(self) -> int:
        """Bytes of the objects that lie here, as counted."""
        return self._used

    @property
    def reserved_bytes(self) -> int:
        """Bytes promised to writes in progress."""
        return self._reserved

    @property
    def free_bytes(self) -> int:
        """What `reserve` would still grant."""
        with self._lock:
            return max(0, self.budget_bytes - self._used - self._reserved)

    def reserve(self, size: int) -> Reservation | None:
        """Promise ``size`` bytes (see `bound_bytes`), or None where the budget has no room: then evict, or wait."""
        self._check_process()
        if size < 1:
            raise Misuse(f"a reservation of {size} bytes makes no sense; reserve what bound_bytes says")
        with self._lock:
            if self._used + self._reserved + size > self.budget_bytes:
                return None
            self._reserved += size
        return Reservation(self, size)

    def settle(self, used_bytes: int) -> None:
        """Set the count to what was measured (by `measure`, or by the catalog after a clean end)."""
        self._check_process()
        with self._lock:
            self._used = used_bytes

    def measure(self) -> int:
        """Bytes of all objects by walking the folder: one stat per file."""
        return sum(size for _, size in self.iter_objects())

    def iter_objects(self) -> Iterator[tuple[str, int]]:
        """All ``(physical, bytes on disk)``, in no order; what vanishes meanwhile is skipped."""
        for prefix in _entries(f"{self.root}/{_OBJECTS}"):
            if _PREFIX.fullmatch(prefix.name) is None:
                continue
            for entry in _entries(prefix.path):
                physical = f"{_OBJECTS}/{prefix.name}/{entry.name}"
                try:
                    check_physical(physical)
                except Misuse:
                    continue
                yield physical, _folder_bytes(entry.path)

    def delete(self, physical: str, counted: int | None = None) -> int:
        """Remove one object; others see it whole or not at all.

        Args:
            physical: its folder below the root.
            counted: bytes that the count has for it, given back even if the object is damaged or gone; None = what
                lies there.

        Returns:
            The bytes given back to the budget.

        Raises:
            Misuse: ``physical`` is not the place of an object.
            Broken: the folder cannot be changed.
        """
        self._check_process()
        dying = f"{self.root}/{temporary_name(check_physical(physical))}"
        place = f"{self.root}/{physical}"
        size = _folder_bytes(place) if counted is None else counted
        try:
            os.rename(place, dying)
        except FileNotFoundError:
            size = counted or 0
        except OSError as error:
            raise Broken(f"cannot delete {place}: {error.strerror}; check the folder's permissions") from error
        else:
            failpoint("store.mid-delete")
            _remove(dying)
        with self._lock:
            self._used = max(0, self._used - size)
        return size

    def sweep(self, dead_pid: int | None = None) -> int:
        """Remove what dead writers and interrupted deletions left in ``tmp/``; living writers' folders stay.

        Args:
            dead_pid: a worker that the caller saw die, though the system may still list it.

        Returns:
            The bytes removed. They were never counted as used: the writer's reservation is the caller's to release.
        """
        self._check_process()
        removed = 0
        for entry in _entries(f"{self.root}/{TEMPORARY}"):
            if is_abandoned(entry.name, dead_pid):
                removed += _folder_bytes(entry.path)
                _remove(entry.path)
        return removed

    def _end(self, reservation: Reservation, written: int) -> None:
        self._check_process()
        with self._lock:
            reserved, reservation.bytes = reservation.bytes, 0
            self._reserved -= reserved
            self._used += written
        if written > reserved:
            raise Misuse(f"{written} bytes were written under a reservation of {reserved}; reserve bound_bytes(meta)")

    def _lay_out(self) -> None:
        root = Path(self.root)
        root.mkdir(0o700, parents=True, exist_ok=True)
        marker = root / MARKER
        try:
            text = marker.read_bytes()
        except FileNotFoundError:
            self._refuse_foreign(root)
            self._mark(marker)
        else:
            self._check_marker(marker, text)
        for name in (_OBJECTS, TEMPORARY):
            (root / name).mkdir(0o700, exist_ok=True)

    def _refuse_foreign(self, root: Path) -> None:
        for name in (_OBJECTS, TEMPORARY, "zarr.json", ".zgroup", ".zarray"):
            if os.path.lexists(root / name):
                raise BadInput(
                    f"{root} holds {name!r} but no {MARKER}, so it is not a viewcache store; "
                    f"name an empty or new folder as cache.store"
                )

    def _mark(self, marker: Path) -> None:
        # The marker comes first and whole: were it last, a crash before it would leave folders that we then refuse.
        unfinished = marker.with_name(f"{MARKER}.{secrets.token_hex(4)}")
        for leftover in _entries(self.root):
            if _UNFINISHED_MARKER.fullmatch(leftover.name):
                os.unlink(leftover.path)
        text = json.dumps({"viewcache_store": FORMAT}) + "\n"
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(file, "w", encoding="ascii") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        os.rename(unfinished, marker)

    def _check_marker(self, marker: Path, text: bytes) -> None:
        try:
            version = json.loads(text)["viewcache_store"]
        except (ValueError, TypeError, LookupError, RecursionError):
            raise BadInput(f"{marker} is not a viewcache store's marker; name another folder as cache.store") from None
        if version != FORMAT:
            raise BadInput(
                f"{marker} says format {version!r}, this release reads {FORMAT}; "
                f"use the release that wrote it, or name another folder as cache.store"
            )

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise WrongProcess(f"the store {self.root} was opened in process {self._pid}; open it in this one")


def _entries(path: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _folder_bytes(path: str) -> int:
    """Bytes of the files in a folder without following links; of the thing itself if it is a file."""
    total = 0
    entries = _entries(path)
    for entry in entries:
        try:
            total += entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
        except FileNotFoundError:
            continue
    if not entries and os.path.isfile(path):
        total = os.lstat(path).st_size
    return total


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)
