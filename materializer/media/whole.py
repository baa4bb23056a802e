"""A file that is read whole: its checksum, its header and its decoder are then given the same bytes, read once.

For pictures, which are one packet. The file's bytes are held until it is closed; whoever decodes it holds them anyway.
"""

from typing import Any

from viewcache.materializer.media.source import Source

__all__ = ["WholeSource"]


class WholeSource(Source):
    """Another source, of which all bytes are kept once somebody has read all of them."""

    def __init__(self, file: Source) -> None:
        """Read nothing yet; the other source is closed with this one."""
        super().__init__(file.uri, file.stamp)
        self._file = file
        self._content: bytes | None = None

    def read(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``start``."""
        if self._content is not None:
            return self._content[start : start + size]
        content = self._file.read(start, size)
        self.bytes_read, self.waited_s = self._file.bytes_read, self._file.waited_s
        if start == 0 and len(content) == self.stamp.size:
            self._content = content
        return content

    def target(self) -> Any:
        """What `av.open` is given."""
        return self._file.target()

    def close(self) -> None:
        """Close the other source, and let go of the bytes."""
        self._file.close()
        self._content = None
