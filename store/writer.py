"""Write an object so that others see all of it or nothing: temporary folder, shard, ``zarr.json``, rename.

Runs in worker processes, several at once on one store, and needs no owner. The trade-off: space for the worst case of
the codec is claimed before the first byte is written (and the rest given back after the last), so that a full disk
shows before any work is lost and the budget holds at every step.
"""

import errno
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken, ChunkDamaged, Full, Misuse
from viewcache.failpoints import failpoint
from viewcache.store.blocks import taken_bytes
from viewcache.store.format import METADATA_NAME, ArrayMeta, dump_metadata, physical_of
from viewcache.store.marker import MARKER, write_marker
from viewcache.store.reader import scan_object, verify_object
from viewcache.store.shard_reader import FoundObject
from viewcache.store.shard_writer import ShardWriter, Written, inner_chunks, shard_bound, write_exactly, written_of
from viewcache.store.temporary import make_temporary_folder, temporary_name

__all__ = ["ObjectWriter", "find_written", "sync_folder", "write_object"]

Bytes = NDArray[np.uint8]
Root = str | os.PathLike[str]

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}
_TAKEN = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}
_PUBLISH_ATTEMPTS = 8  # each is lost only to another writer of the same object
_EMPTIED_ATTEMPTS = 8  # each is lost only to somebody who empties the store


def write_object(
    root: Root, key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta, *, durable: bool = False
) -> Written:
    """Write and publish one object.

    If somebody empties the store meanwhile, an array or a list is written anew; of an iterator nothing is left.

    Args:
        root: the store's folder.
        key: 32 hexadecimal digits; the content key.
        array: uint8 of ``meta.shape``, or its inner chunks in order (the last may be short), each used before the
            next is asked for.
        meta: shape, chunk, codec and attributes. Of encoded pictures, ``array`` gives the bytes of each group.
        durable: flush to the device before the object becomes visible.

    Raises:
        Full: no space, quota, file size or descriptors; nothing is left behind.
        Broken: the folder cannot be written for another reason.
        Misuse: the array does not fit ``meta``.
    """
    for _ in range(_EMPTIED_ATTEMPTS if isinstance(array, np.ndarray | list) else 0):
        try:
            return _write_once(root, key, array, meta, durable=durable)
        except Broken as error:
            # Somebody emptied the store meanwhile (`rm -rf store/*`), and the temporary folder went with the rest.
            if not isinstance(error.__cause__, FileNotFoundError) or not os.path.isdir(root):
                raise
    return _write_once(root, key, array, meta, durable=durable)


def _write_once(root: Root, key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta, *, durable: bool) -> Written:
    parts = inner_chunks(array, meta)
    known = [part.size for part in array] if meta.width and isinstance(array, list) else None
    with ObjectWriter(root, key, meta, durable=durable, room=shard_bound(meta, known)) as writer:
        for chunk, part in enumerate(parts):
            writer.put(chunk, part)
        return writer.commit()


def find_written(root: Root, key: str) -> Written | None:
    """What a writer published under this key before it died without saying so; None if nothing whole is there."""
    try:
        return written_of(scan_object(root, physical_of(key)), 0.0, existed=False)
    except ChunkDamaged:
        return None


class ObjectWriter:
    """One object being written, chunk by chunk in any order; leaving the ``with`` block without `commit` removes it."""

    def __init__(self, root: Root, key: str, meta: ArrayMeta, *, durable: bool = False, room: int | None = None):
        """Make the temporary folder and claim the space; arguments and errors as in `write_object`.

        ``room`` is what is claimed for the shard, where it is known better than by ``meta``.
        """
        self._root, self._key, self._meta, self._durable = os.fspath(root), key, meta, durable
        self._physical = physical_of(key)
        self._started = time.perf_counter()
        self._folder = f"{self._root}/{temporary_name(key)}"
        self._file = -1
        try:
            self._make_folder()
            failpoint("store.temp-made")
            self._file = os.open(f"{self._folder}/{meta.shard_name}", _CREATE, 0o600)
            os.posix_fallocate(self._file, 0, shard_bound(meta) if room is None else room)
            self._shard = ShardWriter(self._file, 0, key, meta)
        except BaseException as error:
            self.abort()
            raise self._explain(error) from error

    def _make_folder(self) -> None:
        try:
            os.mkdir(self._folder, 0o700)
        except FileNotFoundError:
            make_temporary_folder(self._root)
            os.mkdir(self._folder, 0o700)

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what was not committed."""
        self.abort()

    def put(self, chunk: int, rows: Bytes) -> None:
        """Write one inner chunk; ``rows`` is ``(n, *shape[1:])``, short only for the last chunk.

        Raises:
            Full: no space, quota or file size.
            Broken: the file cannot be written for another reason.
            Misuse: the chunk does not fit, or is there already.
        """
        self._check_open()
        try:
            self._shard.put(chunk, rows)
        except OSError as error:
            raise self._explain(error) from error

    def commit(self) -> Written:
        """Finish the shard and make the object visible under its key.

        Raises:
            Full: no space, quota or descriptors.
            Broken: the folder cannot be written for another reason.
            Misuse: chunks are missing.
        """
        self._check_open()
        try:
            table, length = self._shard.finish()
            text = dump_metadata(self._meta, self._key, table.digest())
            os.ftruncate(self._file, length)
            failpoint("store.shard-written")
            shard, self._file = self._file, -1
            self._finish(shard)
            metadata = os.open(f"{self._folder}/{METADATA_NAME}", _CREATE, 0o600)
            try:
                write_exactly(metadata, [memoryview(text)], 0)
            finally:
                self._finish(metadata)
            if self._durable:
                sync_folder(self._folder)
            failpoint("store.before-rename")
            self._keep_marker()
            taken = taken_bytes(self._root, self._folder, length, len(text))
            found = self._publish()
            failpoint("store.after-rename")
        except BaseException as error:
            self.abort()
            raise self._explain(error) from error
        if found is not None:
            self.abort()
        self._folder = ""
        mine = FoundObject(self._key, self._physical, self._meta, table, taken)
        return written_of(found or mine, time.perf_counter() - self._started, existed=found is not None)

    def abort(self) -> None:
        """Close and remove what is not published; harmless after `commit`."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _check_open(self) -> None:
        if self._file < 0:
            raise Misuse(f"object {self._key} was committed or given up; write it anew")

    def _keep_marker(self) -> None:
        """Put the store's marker back if somebody emptied the folder: without it the store would not open again."""
        if not os.path.exists(f"{self._root}/{MARKER}"):
            write_marker(self._root)

    def _publish(self) -> FoundObject | None:
        """Rename into place; the object that was there already, if it is whole."""
        target = f"{self._root}/{self._physical}"
        for _ in range(_PUBLISH_ATTEMPTS):
            try:
                os.rename(self._folder, target)
            except FileNotFoundError:
                if not os.path.isdir(self._folder):
                    raise
                os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
                continue
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                try:
                    found = verify_object(self._root, self._physical)
                except ChunkDamaged:
                    self._set_aside(target)
                    continue
                self._sync_found(target, found)
                return found
            self._sync_place(target)
            return None
        raise Broken(f"object {self._key} was replaced by others {_PUBLISH_ATTEMPTS} times; is the store shared?")

    def _set_aside(self, target: str) -> None:
        aside = f"{self._root}/{temporary_name(self._key)}"
        try:
            os.rename(target, aside)
        except FileNotFoundError:
            return  # another writer was quicker
        if os.path.isdir(aside) and not os.path.islink(aside):
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.unlink(aside)

    def _sync_found(self, target: str, found: FoundObject) -> None:
        """What is there may have been written without a flush."""
        if not self._durable:
            return
        for name in (found.meta.shard_name, METADATA_NAME):
            file = os.open(f"{target}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            self._finish(file)
        sync_folder(target)
        self._sync_place(target)

    def _sync_place(self, target: str) -> None:
        """Make the object's name last; the folder above may be new, and its maker may not have come to flush it yet."""
        if self._durable:
            sync_folder(os.path.dirname(target))
            sync_folder(f"{self._root}/objects")

    def _finish(self, file: int) -> None:
        try:
            if self._durable:
                os.fsync(file)
        finally:
            os.close(file)

    def _explain(self, error: BaseException) -> BaseException:
        if not isinstance(error, OSError) or isinstance(error, Full):
            return error
        if error.errno in _NO_ROOM:
            return Full(
                f"cannot write objects below {self._root}: {error.strerror}; free disk space, lower the "  # one for all
                f"budget, or raise the limits of this process (ulimit -n, ulimit -f)"
            )
        return Broken(
            f"cannot write object {self._key} below {self._root}: {error.strerror or error}; "
            f"check that {Path(self._root)} is there and writable"
        )


def sync_folder(path: str) -> None:
    """Make the names in a folder last."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
