"""Let the device read what a job will need while the job's worker still decodes what came before.

A worker reads and decodes by turns: without a word ahead it waits for the device, and the device for it, and a mix of
kept and encoded pictures gains nothing of its balance (Liquid §3). The kernel reads ahead when it is told
(`posix_fadvise`). The trade-off: to tell it takes some microseconds a file, so it is told only of pictures of which the
first one is not in memory.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from viewcache.materializer.workers.page_cache import cached_pages

__all__ = ["Extent", "announce", "is_in_memory"]

MOST_OPEN = 16
"""Files that are open at a time: a block may have many hundred, and workers may be threads of one process."""


class Extent(NamedTuple):
    """Some bytes of a local file."""

    path: str
    start: int = 0
    length: int = 0
    """0 = to the end of the file."""

    @property
    def middle(self) -> int:
        """A byte in it; of a picture in a pack its first page may be that of the picture before."""
        return self.start + self.length // 2


def announce(extents: Sequence[Extent]) -> None:
    """Ask the kernel for bytes that will be read soon and in this order, unless it has the first of them already.

    What cannot be opened is left out: its own reader says what is wrong.

    Args:
        extents: that lie alike, so that all are in memory if one is.
    """
    if not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "posix_fadvise"):
        return
    files: dict[str, int] = {}
    asked = False
    try:
        for extent in extents:
            file = files.get(extent.path)
            if file is None:
                try:
                    file = os.open(extent.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                except OSError:
                    continue
                if len(files) == MOST_OPEN:
                    _close(files)
                files[extent.path] = file
            if not asked and is_in_memory(file, extent):
                return
            asked = True
            os.posix_fadvise(file, extent.start, extent.length, os.POSIX_FADV_WILLNEED)
    except OSError:
        return  # a file system that cannot be told
    finally:
        _close(files)


def _close(files: dict[str, int]) -> None:
    """Close some files, which are forgotten."""
    while files:
        os.close(files.popitem()[1])


def is_in_memory(file: int, extent: Extent) -> bool:
    """Whether memory has the bytes of an open file, by one of them.

    Raises:
        OSError: the file system cannot tell.
    """
    pages = cached_pages(file, extent.middle, 1)
    if pages is not None:
        return bool(pages)
    try:
        return bool(os.preadv(file, [bytearray(1)], extent.middle, os.RWF_NOWAIT))
    except BlockingIOError:
        return False
