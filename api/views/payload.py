"""The bytes behind a path: a head that is known at once, then rows of pixels that are made when somebody reads them.

So the size of every file is known from the plan, and a range of a view makes only the clips that it touches.
"""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Closed, ViewNotFound
from viewcache.materializer.media.source import Stamp

__all__ = ["Payload", "PayloadFile", "SourceFile", "npy_head"]

Load = Callable[[range], NDArray[np.uint8]]


def _no_rows(rows: range) -> NDArray[np.uint8]:
    return np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Payload:
    """``head``, then ``rows`` pieces of ``row_bytes`` bytes."""

    head: bytes
    rows: int = 0
    row_bytes: int = 0
    load: Load = _no_rows
    """Gives some consecutive rows, C-contiguous."""

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.head) + self.rows * self.row_bytes

    def read(self, start: int | None = None, end: int | None = None) -> bytes:
        """A range, as Python's slices count."""
        first, last, _ = slice(start, end).indices(self.size)
        skip = len(self.head)
        head = self.head[first:last]
        if last <= max(first, skip):
            return head
        begin, stop = max(first - skip, 0), last - skip
        rows = range(begin // self.row_bytes, -(-stop // self.row_bytes))
        flat = self.load(rows).reshape(-1)
        offset = rows.start * self.row_bytes
        return b"".join((head, flat[begin - offset : stop - offset].data))


class PayloadFile(io.RawIOBase):
    """A payload as a seekable file; the first read past the head loads all rows, since the rest is wanted next."""

    def __init__(self, payload: Payload, name: str) -> None:
        """Open at byte 0; ``size`` is known at once."""
        super().__init__()
        self.name = name
        self.mode = "rb"
        self.size = payload.size
        self._payload = payload
        self._flat: NDArray[np.uint8] | None = None
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Position in bytes."""
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move; returns the new position in bytes."""
        self._check_open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer from the position, with one copy; returns the number of bytes."""
        view = memoryview(buffer).cast("B")
        done = 0
        for part in self._parts(len(view)):
            view[done : done + len(part)] = part
            done += len(part)
        self._at += done
        return done

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes from the position; all that are left if None or negative."""
        data = b"".join(self._parts(self.size if size is None or size < 0 else size))
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """All that is left."""
        return self.read()

    def close(self) -> None:
        """Let go of the pixels' memory."""
        self._flat = None
        super().close()

    def _parts(self, size: int) -> list[memoryview]:
        """The next bytes, out of head and rows, without a copy."""
        self._check_open()
        first, last = self._at, min(self._at + size, self.size)
        skip = len(self._payload.head)
        parts = [memoryview(self._payload.head)[first:last]] if first < skip else []
        if last > max(first, skip):
            if self._flat is None:
                self._flat = self._payload.load(range(self._payload.rows)).reshape(-1)
            parts.append(self._flat.data[max(first - skip, 0) : last - skip])
        return parts

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"{self.name} was closed; open it again")


class SourceFile(io.BufferedReader):
    """A source file of this machine, with its size, which block caches ask for."""

    def __init__(self, path: str, stamp: Stamp) -> None:
        """Open a file that is still the one that was scanned.

        Raises:
            ViewNotFound: it is gone, or another file has taken its place.
        """
        try:
            # O_NONBLOCK: a pipe put in the file's place must not hang the reader.
            raw = io.FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            raise ViewNotFound(f"{path}: {error.strerror}; it was there when the cache was opened") from error
        status = os.fstat(raw.fileno())
        if not stamp.same(Stamp(status.st_size, status.st_mtime_ns)):
            raw.close()
            raise ViewNotFound(f"{path} has changed since the cache was opened; open it again to see the new file")
        self.size = stamp.size
        super().__init__(raw)


def npy_head(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    """What comes before the data in an ``.npy`` file."""
    head: IO[bytes] = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
    head.seek(0)
    return head.read()
