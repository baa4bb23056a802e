"""Open files of a mount: a view is made and loaded when it is opened, and served piece by piece from that memory.

So a reader waits in ``open``, where an interrupt reaches it, and every later ``read`` is one copy. Memory is bounded:
of many files that are open at once those that were read last keep theirs, and the others load again when they are read.
"""

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from viewcache.api.mount.readers import Hold, Readers
from viewcache.api.views.paths import NodeKind, parse_path
from viewcache.api.views.payload import Payload
from viewcache.api.views.tree import ViewTree
from viewcache.errors import Broken, Closed, NotFound
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.reading.batch import Buffers

__all__ = ["MOST_BYTES", "NEVER", "OpenFile", "OpenFiles", "Piece"]

MOST_BYTES = 1 << 30
"""Of the memory behind open files; one file may be larger."""

MOST_IDLE = 2
"""Arrays that are kept for the next files while none of the present ones needs them."""

MOST_KNOWN = 1 << 16
"""Paths of which it is known what the kernel was given."""

NEVER = threading.Event()
"""What says of work that it is not cancelled."""

Piece = bytes | ctypes.Array[ctypes.c_char]
"""What a read gives: its own bytes, or a window on the memory of the file."""


class OpenFile(Protocol):
    """A file that a reader has opened."""

    keeps: bool
    """Whether the kernel may go on using what it has of an earlier opening."""
    direct: bool
    """Whether the kernel is to keep nothing of it."""

    def has(self, offset: int, size: int) -> bool:
        """Whether a piece can be read without waiting."""

    def read(self, offset: int, size: int, cancelled: Cancelled) -> Piece:
        """A piece; fewer bytes only at the end."""

    def close(self) -> None:
        """Let go of it."""


@dataclass(slots=True)
class _Known:
    """What the kernel was given of a path."""

    identity: str
    """What is equal exactly while the path's bytes are."""
    whole: bool = False
    """Whether it was given all of them, so that it will hardly ask again."""


class OpenFiles:
    """The open files of a mount. Thread-safe."""

    def __init__(self, tree: ViewTree, readers: Readers, most_bytes: int = MOST_BYTES) -> None:
        """None is open.

        Args:
            tree: of the mount's cache.
            readers: who reads its tasks.
            most_bytes: of the memory behind open files.
        """
        self._tree = tree
        self._readers = readers
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._loaded: OrderedDict[_MadeFile, int] = OrderedDict()
        """File → bytes of its memory; who was read last comes last."""
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._buffers = Buffers()

    def open(self, path: str, pid: int, cancelled: Cancelled) -> OpenFile:
        """Open a `view://` path, and wait until it is made.

        What the kernel has whole is not loaded before it asks for more, unless opening it counts as reading.

        Args:
            path: without ``view://``.
            pid: of the reader.
            cancelled: says that the reader waits no longer.

        Raises:
            ViewNotFound: nothing is there, or it is a folder.
            Closed: the reader waits no longer.
            ViewcacheError: it cannot be made.
        """
        where = parse_path(path)
        if where.kind == NodeKind.VIDEO:
            source = self._tree.open(path)
            return _SourceFile(source, keeps=self._same(path, self._tree.identity(path)))
        hold = self._readers.reading(where.task, pid) if where.kind == NodeKind.VIEW else None
        file = _MadeFile(self, path, self._tree.payload(path))
        # Without an epoch such a path means what the task has reached just now.
        file.direct = where.kind == NodeKind.AUG and where.epoch is None
        with self._lock:
            known = self._known.get(path)
        whole = known is not None and known.whole and hold is None and not file.direct
        if known is not None and whole and known.identity == self._tree.identity(path):
            file.identity, file.keeps = known.identity, True
        else:
            file.load(hold, cancelled)
            if cancelled.is_set():  # nobody will close it
                file.close()
                raise Closed("the reader was interrupted")
            file.keeps = self._same(path, file.identity)
        return file

    def _same(self, path: str, identity: str) -> bool:
        """Whether a path's bytes are those that it had when it was opened last; from now on these count."""
        with self._lock:
            known = self._known.get(path)
            if known is None or known.identity != identity:
                self._known[path] = _Known(identity)
            self._known.move_to_end(path)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return known is not None and known.identity == identity

    def is_current(self, path: str, identity: str) -> bool:
        """Whether nobody has opened a path with other bytes meanwhile: the kernel has one memory for all readers."""
        with self._lock:
            known = self._known.get(path)
        return known is None or known.identity == identity

    def served(self, path: str, identity: str) -> None:
        """The kernel has been given as many bytes as a path has."""
        with self._lock:
            known = self._known.get(path)
            if known is not None and known.identity == identity:
                known.whole = True

    def rows(self, path: str, payload: Payload, hold: Hold | None, cancelled: Cancelled) -> NDArray[np.uint8] | None:
        """The pixels of a view, flat; None if the reader waits no longer.

        Raises:
            Broken: it was there when it was looked up, and cannot be made.
        """
        where = parse_path(path)
        try:
            if where.kind != NodeKind.VIEW:
                return payload.load(range(payload.rows)).reshape(-1)
            batch = self._readers.read(where, hold, _Shared(self._buffers, self._lock), cancelled)
        except NotFound as missing:  # a client of a Zarr group would take that for zeros
            raise Broken(f"{path}: {missing}") from missing
        return None if batch is None else batch.video.reshape(-1)

    def identity(self, path: str) -> str:
        """What is equal exactly while a path's bytes are."""
        return self._tree.identity(path)

    def keep(self, file: "_MadeFile", count: int) -> None:
        """A file has so many bytes of memory, and is read just now."""
        with self._lock:
            if file.closed:
                file.unload()
                return
            self._loaded[file] = count
            self._loaded.move_to_end(file)
            while sum(self._loaded.values()) > self._most_bytes and len(self._loaded) > 1:
                self._loaded.popitem(last=False)[0].unload()

    def forget(self, file: "_MadeFile") -> None:
        """A file is closed."""
        with self._lock:
            self._loaded.pop(file, None)
            file.unload()
            self._buffers.trim(MOST_IDLE)


class _Shared(Buffers):
    """The mount's buffers, for a reader in any thread."""

    def __init__(self, buffers: Buffers, lock: threading.Lock) -> None:
        super().__init__()
        self._shared, self._lock = buffers, lock

    def take(self, shape: Sequence[int]) -> NDArray[np.uint8]:
        with self._lock:
            return self._shared.take(shape)


class _MadeFile:
    """A view, a frame, or a file of a Zarr group."""

    def __init__(self, files: OpenFiles, path: str, payload: Payload) -> None:
        self.keeps = self.direct = self.closed = False
        self.identity = ""
        """Of the bytes that it has; empty until they are known."""
        self._files, self._path, self._payload = files, path, payload
        self._loading = threading.Lock()
        self._flat: NDArray[np.uint8] | None = None
        self._served = 0

    def load(self, hold: Hold | None, cancelled: Cancelled) -> NDArray[np.uint8]:
        """Make it and load it.

        Raises:
            Closed: the reader waits no longer.
            Broken: it is another view now than when it was opened.
        """
        with self._loading:
            flat = self._flat
            if flat is not None:
                return flat
            flat = self._files.rows(self._path, self._payload, hold, cancelled)
            if flat is None:
                raise Closed("the reader was interrupted")
            identity = self._files.identity(self._path)
            if self.identity not in ("", identity):
                raise self._changed()
            self.identity, self._flat = identity, flat
        self._files.keep(self, flat.nbytes)
        return flat

    def unload(self) -> None:
        """Let go of the memory."""
        self._flat = None

    def has(self, offset: int, size: int) -> bool:
        return self._flat is not None and self._files.is_current(self._path, self.identity)

    def read(self, offset: int, size: int, cancelled: Cancelled) -> Piece:
        head = self._payload.head
        first, last = offset - len(head), min(offset + size, self._payload.size) - len(head)
        flat = self._flat
        if flat is None:
            flat = self.load(None, cancelled)
        if not self._files.is_current(self._path, self.identity):
            raise self._changed()
        self._served += max(0, last - max(first, -len(head)))
        if self._served >= self._payload.size:
            self._files.served(self._path, self.identity)
        if last <= 0:
            return head[offset : offset + size]
        if first < 0:
            return head[offset:] + flat[:last].tobytes()
        return (ctypes.c_char * (last - first)).from_buffer(flat.data, first) if last > first else b""

    def _changed(self) -> Broken:
        return Broken(f"{self._path} has other clips now than when it was opened: open it again")

    def close(self) -> None:
        self.closed = True
        self._files.forget(self)


class _SourceFile:
    """A source's own file."""

    direct = False

    def __init__(self, file: IO[bytes], *, keeps: bool) -> None:
        self.keeps = keeps
        self._file = file
        self._lock = threading.Lock()

    def has(self, offset: int, size: int) -> bool:
        return False  # it may lie behind a network

    def read(self, offset: int, size: int, cancelled: Cancelled) -> Piece:
        with self._lock:
            self._file.seek(offset)
            return self._file.read(size)

    def close(self) -> None:
        self._file.close()
