"""Packet indexes of videos, in a file of their own beside the database: appended, checked, never changed in place.

They are the largest part of what is known of a dataset, and only who decodes a video needs its own. Rows hold the
offset, so a snapshot of the database copies none of them and an open reads none. What cannot be read is only lost work:
the video is indexed again.
"""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from viewcache import errors
from viewcache.catalog.log_room import NO_SPACE

__all__ = ["BlobFile"]

_HEAD = 8
"""Bytes before each blob: its length, then its checksum, both little-endian."""
_MOST = 1 << 30
"""Bytes of one blob."""


class BlobFile:
    """An open file of blobs. Thread-safe."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Open it, made empty if it is not there.

        Raises:
            Broken: it cannot be opened.
        """
        self._path = path
        self._lock = threading.Lock()
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        try:
            self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # nobody has written one yet, and this is only a reader
            self._fd = -1
        except OSError as error:
            raise errors.Broken(f"{path}: {error.strerror}; check that its folder is writable") from error

    def append(self, blobs: Sequence[tuple[str, bytes]]) -> list[int]:
        """Write blobs behind all others, each with what it is of.

        Returns:
            The offset of each, to read it by.

        Raises:
            Full: no space for them; what was written in part is never referred to.
        """
        with self._lock:
            at = os.fstat(self._fd).st_size
            offsets, parts = [], []
            for key, blob in blobs:
                offsets.append(at)
                parts += [len(blob).to_bytes(4, "little"), _sum(key, blob), blob]
                at += _HEAD + len(blob)
            self._write(b"".join(parts), offsets[0] if offsets else at)
        return offsets

    def _write(self, data: bytes, at: int) -> None:
        rest = memoryview(data)
        try:
            while rest:
                written = os.pwrite(self._fd, rest, at)
                rest, at = rest[written:], at + written
        except OSError as error:
            if error.errno in NO_SPACE:
                raise errors.Full(f"{self._path}: {error.strerror}; free disk space") from error
            raise errors.Broken(f"{self._path}: {error.strerror}; check the disk") from error

    def read(self, offset: int, key: str) -> bytes | None:
        """The blob of ``key`` that was written there; None if it is not there, or not whole any more."""
        try:
            head = os.pread(self._fd, _HEAD, offset) if self._fd >= 0 and offset >= 0 else b""
            length = int.from_bytes(head[:4], "little")
            if len(head) < _HEAD or length > min(_MOST, os.fstat(self._fd).st_size - offset - _HEAD):
                return None
            blob = os.pread(self._fd, length, offset + _HEAD)
        except OSError:
            return None
        return blob if len(blob) == length and _sum(key, blob) == head[4:] else None

    def clear(self) -> None:
        """Forget all blobs: no row refers to any."""
        with self._lock:
            os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _sum(key: str, blob: bytes) -> bytes:
    """CRC-32 over key and blob: an offset of another file, or of another database, must not give another's blob."""
    return crc32(blob, crc32(key.encode())).to_bytes(4, "little")
