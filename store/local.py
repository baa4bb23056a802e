"""The local tier: one folder with a budget, and the only code that deletes from it.

Owner-side: one process (the catalog's owner) counts and deletes, while workers write through `write_object` under a
reservation. The trade-off: an object is two files in a folder of its own, which any Zarr client opens, rather than a
range of one big file, which would save two calls.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, Broken, Full, Misuse
from viewcache.failpoints import failpoint
from viewcache.store.format import FORMAT, ArrayMeta, ChunkTable, check_physical
from viewcache.store.reader import read_into, scan_object, verify_object
from viewcache.store.shard_reader import FoundObject, Stored
from viewcache.store.shard_writer import Written
from viewcache.store.temporary import TEMPORARY, is_abandoned, temporary_name
from viewcache.store.tier import Tier
from viewcache.store.writer import write_object

__all__ = ["MARKER", "LocalTier"]

Bytes = NDArray[np.uint8]

MARKER = "viewcache-store.json"
"""File in the root that says which format lies there; without it nothing in the folder is ours to delete."""

_OBJECTS = "objects"
_PREFIX = re.compile(r"[0-9a-f]{2}", re.ASCII)
_UNFINISHED_MARKER = re.compile(re.escape(MARKER) + r"\.[0-9a-f]{8}", re.ASCII)


class LocalTier(Tier):
    """A folder of objects. Other processes read and write it by `read_into` and `write_object`."""

    def __init__(self, root: str | os.PathLike[str], budget_bytes: int, name: str = "local"):
        """Create the layout, or accept the one that is there.

        Args:
            root: folder, created with mode 0700 where it is missing. Other files beside ours (the catalog's) are
                left alone.
            budget_bytes: for objects and temporary files together.
            name: of the tier in the catalog.

        Raises:
            BadInput: the folder has ``objects`` or ``tmp`` that are not ours, or another format.
            Full: no space for the layout.
            Broken: the folder cannot be made or written.
        """
        super().__init__(name, os.fspath(root), budget_bytes)
        self.root = os.path.abspath(root)
        try:
            self._lay_out()
        except OSError as error:
            if isinstance(error, Full):
                raise
            raise Broken(f"cannot make a store of {self.root}: {error.strerror}; check that it is writable") from error

    def read(self, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None = None) -> None:
        """Read an object, or some of its inner chunks, into ``out``; see `read_into`."""
        self._check_process()
        read_into(self.root, stored, out, chunks)

    def write(self, key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta, *, durable: bool = False) -> Written:
        """Write and publish one object; see `write_object`."""
        self._check_process()
        return write_object(self.root, key, array, meta, durable=durable)

    def scan(self, physical: str) -> FoundObject:
        """Learn of an object from its own files alone; see `scan_object`."""
        self._check_process()
        return scan_object(self.root, physical)

    def verify(self, physical: str, table: ChunkTable | None = None) -> FoundObject:
        """Read every byte of an object and check it; see `verify_object`."""
        self._check_process()
        return verify_object(self.root, physical, table)

    def iter_objects(self) -> Iterator[tuple[str, int]]:
        """All ``(physical, bytes on disk)``, in no order; what vanishes meanwhile is skipped."""
        self._check_process()
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
        self._give_back(size)
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
