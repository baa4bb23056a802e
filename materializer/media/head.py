"""The beginning of a picture file, fetched as far as a reader of its header looks, with every step checked.

Who reads hostile bytes asks this for them and gets an error instead of fewer bytes; nothing here trusts a length.
"""

from collections.abc import Callable
from typing import NamedTuple

from viewcache.errors import BadVideo

__all__ = ["Head", "Seen"]

STEPS = (4 << 10, 64 << 10, 1 << 20)
"""Bytes of the beginning that are fetched: the first step has the header of most files, the last is all of any."""


class Seen(NamedTuple):
    """What the header of a picture says of it."""

    codec: str
    """A name of `viewcache.materializer.media.index.PICTURE_CODECS`."""
    width: int
    """Pixels, as decoded."""
    height: int
    """Pixels, as decoded."""
    pix_fmt: str
    """FFmpeg's name of what its decoder gives."""
    color_space: int
    """AVColorSpace."""
    color_range: int
    """AVColorRange."""
    orientation: int = 1
    """EXIF's, 1 to 8."""


class Head:
    """The bytes of one file, from the first one on."""

    def __init__(self, name: str, size: int, read: Callable[[int, int], bytes]) -> None:
        """Fetch the first step.

        Args:
            name: of the file, for messages.
            size: of the file in bytes.
            read: gives up to so many bytes (second) from a place (first).
        """
        self.size = size
        self.data = b""
        """The beginning, as far as it was fetched."""
        self._name = name
        self._read = read
        self._grow(1)

    def bad(self, what: str) -> BadVideo:
        """The error that says what is wrong with this file."""
        return BadVideo(f"{self._name}: {what}")

    def upto(self, end: int) -> bytes:
        """`data`, with at least ``end`` bytes.

        Raises:
            BadVideo: the file ends before, or its header is longer than any should be.
        """
        if end > len(self.data):
            self._grow(end)
        return self.data

    def at(self, start: int, size: int) -> bytes:
        """So many bytes from anywhere in the file, fetched by themselves where the beginning does not have them.

        Raises:
            BadVideo: the file ends before.
        """
        if start + size <= len(self.data):
            return self.data[start : start + size]
        if start + size > self.size:
            raise self._truncated(start + size)
        found = self._read(start, size)
        if len(found) < size:  # it has become shorter
            raise self._truncated(start + size)
        return found

    def _grow(self, end: int) -> None:
        if end > self.size:
            raise self._truncated(end)
        if end > STEPS[-1]:
            raise self.bad(f"no size of the picture in its first {STEPS[-1]} bytes; save the picture again")
        step = min(self.size, next(step for step in STEPS if step >= end))
        self.data += self._read(len(self.data), step - len(self.data))
        if len(self.data) < end:
            raise self._truncated(end)

    def _truncated(self, end: int) -> BadVideo:
        if not self.size:
            return self.bad("an empty file; copy it again")
        return self.bad(f"truncated: {self.size} bytes, and its header needs byte {end}; copy the file again")
