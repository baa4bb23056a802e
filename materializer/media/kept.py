"""The encoded bytes of a video that lies far away, kept near as an object of the store: what it is, and reading it.

The object is an array of bytes in chunks of one size, each with its checksum, that any Zarr client reads. It is named
by the video and the version of its file, so that it is never taken for another one. The trade-off: one damaged chunk
gives up the whole copy, since the file is there to make it again.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged
from viewcache.materializer.keys import content_key
from viewcache.materializer.media.source import BlockSource, Source, Stamp
from viewcache.store import Stored, aligned_empty

__all__ = ["CHUNK_BYTES", "KeptSource", "about", "kept_key"]

CHUNK_BYTES = 1 << 18
"""Of the file in one chunk: what is read and checked at once. The last one is filled up on disk."""


def about(name: str, video: str, stamp: Stamp) -> dict[str, object]:
    """What the kept bytes of a file say of themselves: of which video, by its name and content key, and version."""
    version: dict[str, object] = {"size": stamp.size, "mtime_ns": stamp.mtime_ns, "etag": stamp.etag}
    return {"kind": "source", "video": name, "video_key": video, **version}


Read = Callable[[Stored, NDArray[np.uint8], Sequence[int]], None]
"""Reads chunks of an object into a buffer, as `viewcache.store.read_into` does."""


def kept_key(video: str, stamp: Stamp) -> str:
    """The content key of the kept bytes of a video's file.

    Args:
        video: content key of the video.
        stamp: the version of its file. Where it has an etag the time does not count: listings round it.
    """
    version = f"etag:{stamp.etag}" if stamp.etag else f"mtime:{stamp.mtime_ns}"
    return content_key("source", bytes.fromhex(video), f"size:{stamp.size} {version}".encode())


class KeptSource(BlockSource):
    """A video's file out of its kept copy; out of the file itself from where on that turns out damaged."""

    def __init__(self, uri: str, stamp: Stamp, stored: Stored, read: Read, instead: Callable[[], Source]) -> None:
        """Read nothing yet.

        Args:
            uri: of the file, for messages.
            stamp: of the version that is kept.
            stored: the object.
            read: brings its chunks.
            instead: opens the file, and raises if it is another version.
        """
        super().__init__(uri, stamp, stored.chunk_rows)
        self.is_damaged = False
        """Whether a chunk was not what was written."""
        self._stored, self._read_chunks, self._instead = stored, read, instead
        self._file: Source | None = None
        if stored.shape != (stamp.size,):
            self.is_damaged = True

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of several ranges, by whole chunks: each is checked as a whole."""
        if self.is_damaged:
            return self._counted(lambda file: file.read_many(ranges))
        clipped = [(start, min(start + size, self.stamp.size)) for start, size in ranges]
        return [self._of_blocks(start, end) if start < end else b"" for start, end in clipped]

    def close(self) -> None:
        """Close the file, if it had to be opened."""
        if self._file is not None:
            self._file.close()

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self._chunks(start, end) for start, end in ranges]

    def _chunks(self, start: int, end: int) -> bytes:
        """Bytes from the begin of a chunk to the end of one."""
        if not self.is_damaged:
            out = aligned_empty((end - start,))
            try:
                self._read_chunks(self._stored, out, list(self._numbers(start, end)))
            except ChunkDamaged:
                self.is_damaged = True
            else:
                return out.tobytes()
        return self._counted(lambda file: [file.read(start, end - start)])[0]

    def _counted(self, read: Callable[[Source], list[bytes]]) -> list[bytes]:
        """Read of the file; what that takes is told as its own."""
        file = self._opened()
        try:
            return read(file)
        finally:
            self.bytes_read, self.waited_s = file.bytes_read, file.waited_s

    def _opened(self) -> Source:
        if self._file is None:
            self._file = self._instead()
        return self._file
