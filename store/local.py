"""The local tier: one folder with a budget, and the only code that deletes from it.

Owner-side: one process (the catalog's owner) counts and deletes, while workers write through `write_object` under a
reservation. The trade-off: an object is two files in a folder of its own, which any Zarr client opens, rather than a
range of one big file, which would save two calls.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, Broken, ChunkDamaged, Full
from viewcache.failpoints import failpoint
from viewcache.store.blocks import BLOCK, block_bytes, folder_bytes, whole_blocks
from viewcache.store.format import ArrayMeta, ChunkTable, check_physical, is_physical
from viewcache.store.marker import MARKER, UNFINISHED, check_format, format_of, write_marker
from viewcache.store.reader import read_into, scan_object, verify_object
from viewcache.store.shard_reader import FoundObject, Stored
from viewcache.store.shard_writer import Written
from viewcache.store.temporary import TEMPORARY, abandoned, is_temporary, make_temporary_folder, temporary_name
from viewcache.store.tier import Tier
from viewcache.store.writer import sync_folder, write_object

__all__ = ["MARKER", "LocalTier", "check_place", "lies_in", "make_root"]

Bytes = NDArray[np.uint8]

_OBJECTS = "objects"
_PREFIX = re.compile(r"[0-9a-f]{2}", re.ASCII)
_UNFINISHED_MARKER = re.compile(re.escape(UNFINISHED) + r"[0-9a-f]{8}", re.ASCII)
_OTHERS = ("zarr.json", ".zgroup", ".zarray")
"""Files that make a folder somebody else's array."""


def make_root(root: Path) -> None:
    """Make the folder of a store, or the one that a link in its place names, if it is not there; never what it lies in.

    A folder that is missing above it is mostly that of a disk that is not mounted. What would be made in its place
    would fill another disk.

    Raises:
        BadInput: the folder in which it would lie is not there.
        OSError: it cannot be made.
    """
    try:
        Path(os.path.realpath(root)).mkdir(0o700, exist_ok=True)
    except FileNotFoundError:
        check_place(root)
        raise


def check_place(root: str | os.PathLike[str]) -> None:
    """Refuse a store that `make_root` could not make, because what it would lie in is not there.

    Raises:
        BadInput: so it is.
        OSError: this user may not look there, or it cannot be told.
    """
    if not (folder := lies_in(root)).is_dir():
        raise BadInput(
            f"cannot make the store {root}: the folder {folder} does not exist; mount the disk that belongs there, or "
            "make that folder, or correct cache.store"
        )


def lies_in(root: str | os.PathLike[str]) -> Path:
    """The folder that a store's own lies in, or is to be made in: where the store is a link, that of its target."""
    return Path(os.path.realpath(root)).parent


class LocalTier(Tier):
    """A folder of objects. Other processes read and write it by `read_into` and `write_object`."""

    def __init__(self, root: str | os.PathLike[str], budget_bytes: int, name: str = "local"):
        """Create the layout, or accept the one that is there.

        Args:
            root: folder, created with mode 0700 where it is missing, in one that is there. Other files beside ours
                (the catalog's) are left alone.
            budget_bytes: for objects and temporary files together, in whole blocks and with a folder each.
            name: of the tier in the catalog.

        Raises:
            BadInput: the folder has ``objects`` or ``tmp`` that are not ours, or another format, or what it would lie
                in is not there.
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
        self._block = block_bytes(self.root)

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
        """All ``(physical, bytes that it takes)``, in no order; what vanishes meanwhile is skipped."""
        self._check_process()
        for prefix in _entries(f"{self.root}/{_OBJECTS}"):
            if _PREFIX.fullmatch(prefix.name) is None:
                continue
            for entry in _entries(prefix.path):
                physical = f"{_OBJECTS}/{prefix.name}/{entry.name}"
                if is_physical(physical):
                    yield physical, self._taken(entry.path)

    def iter_groups(self) -> Iterator[tuple[str, set[str]]]:
        """See `Tier.iter_groups`; no object is looked at."""
        self._check_process()
        for prefix in _entries(f"{self.root}/{_OBJECTS}"):
            if _PREFIX.fullmatch(prefix.name) is not None:
                names = (entry.name for entry in _entries(prefix.path))
                yield prefix.name, {name for name in names if is_physical(f"{_OBJECTS}/{prefix.name}/{name}")}

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
        size = self._taken(place) if counted is None else counted
        try:
            make_temporary_folder(self.root)
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
        """Remove what dead writers and interrupted deletions left in ``tmp/``.

        The folders of living writers stay, and so does what has a name that no writer gives. Links are not followed.

        Args:
            dead_pid: a worker that the caller saw die, though the system may still list it.

        Returns:
            The bytes removed. They were never counted as used: the writer's reservation is the caller's to release.
        """
        self._check_process()
        removed = 0
        for entry in abandoned(self.root, dead_pid):
            removed += self._taken(entry.path)
            _remove(entry.path)
        return removed

    def _taken(self, path: str) -> int:
        """What a folder of files takes, or a file; 0 if it is gone. Links are not followed."""
        try:
            if not os.path.isdir(path) or os.path.islink(path):
                return whole_blocks(os.lstat(path).st_size, self._block)
            total = folder_bytes(path)
        except FileNotFoundError:
            return 0
        for entry in _entries(path):
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False):
                    total += whole_blocks(entry.stat(follow_symlinks=False).st_size, self._block)
        return total

    def _rounded(self, size: int) -> int:
        # What is asked for has room for smaller blocks, if this disk gives larger ones: two files and a folder.
        return size + 3 * max(0, self._block - BLOCK)

    def _asked(self, free: int) -> int:
        return max(0, free - self._rounded(0))

    def _lay_out(self) -> None:
        root = Path(self.root)
        make_root(root)
        for name in (_OBJECTS, TEMPORARY):
            if (root / name).is_symlink():
                raise BadInput(
                    f"{root / name} is a link to another folder, in which viewcache would delete; replace it by a "
                    f"folder, or name the folder that it leads to as cache.store"
                )
        marker = root / MARKER
        try:
            text = marker.read_bytes()
        except FileNotFoundError:
            self._refuse_foreign(root)
            self._mark()
        else:
            self._check_marker(marker, text)
        fresh = [name for name in (_OBJECTS, TEMPORARY) if not (root / name).is_dir()]
        for name in fresh:
            (root / name).mkdir(0o700, exist_ok=True)
        if fresh:  # what is durable below these is lost with them
            for folder in (root, root.parent):
                sync_folder(str(folder))

    def _refuse_foreign(self, root: Path) -> None:
        """Refuse a folder without a marker, unless all that lies there is a store's: then the marker was deleted."""
        foreign = next((name for name in _OTHERS if os.path.lexists(root / name)), None)
        foreign = foreign or next(self._not_ours(), None)
        if foreign is not None:
            raise BadInput(
                f"{root} holds {foreign!r} but no {MARKER}, so it is not a viewcache store; "
                f"name an empty or new folder as cache.store"
            )

    def _not_ours(self) -> Iterator[str]:
        """Names of what no store puts into its two folders."""
        for name in (_OBJECTS, TEMPORARY):
            if os.path.lexists(f"{self.root}/{name}") and not os.path.isdir(f"{self.root}/{name}"):
                yield name
        for prefix in _entries(f"{self.root}/{_OBJECTS}"):
            inside = _entries(prefix.path) if prefix.is_dir(follow_symlinks=False) else [prefix]
            for entry in inside:
                if not is_physical(f"{_OBJECTS}/{prefix.name}/{entry.name}"):
                    yield os.path.relpath(entry.path, self.root)
        yield from (f"{TEMPORARY}/{e.name}" for e in _entries(f"{self.root}/{TEMPORARY}") if not is_temporary(e.name))

    def _mark(self) -> None:
        # The marker comes first and whole: were it last, a crash before it would leave folders that we then refuse.
        for leftover in _entries(self.root):
            if _UNFINISHED_MARKER.fullmatch(leftover.name):
                os.unlink(leftover.path)
        write_marker(self.root)

    def _check_marker(self, marker: Path, text: bytes) -> None:
        try:
            version = format_of(text)
        except ChunkDamaged as error:
            raise BadInput(f"{marker} is {error}; name another folder as cache.store") from None
        check_format(version, marker, "name another folder as cache.store")


def _entries(path: str) -> list["os.DirEntry[str]"]:
    """What lies in a folder; nothing where there is none, or a link that leads elsewhere."""
    if os.path.islink(path):
        return []
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)
