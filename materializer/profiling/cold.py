"""Reading files as if nobody had read them: what a device gives, not what the page cache has.

Pages of files are dropped before each read (`posix_fadvise`), which needs no rights beyond reading them and leaves
other files alone. The trade-off: a cache below the file system (of the device, or of the host of a virtual machine)
cannot be dropped, and its speed is then taken for the device's.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from mmap import PAGESIZE
from typing import NamedTuple

from viewcache.errors import BadVideo
from viewcache.materializer.planning.mounts import mount_of
from viewcache.materializer.workers.ahead import Extent, announce, is_in_memory

__all__ = ["CHANGED", "ColdRead", "drop", "files_of", "is_warm", "read_cold", "warm", "write_back"]

CHANGED = "files were changed while mixes were measured: do so again"
"""What a message says of a file that is not as it was."""

_READ_BYTES = 1 << 20
WARM_SHARE = 0.1
"""Where so large a part of them is still in memory after they were dropped, the device is not what was read."""


@dataclass(frozen=True, slots=True)
class ColdRead:
    """What several readers got from a device, without the first half of each round."""

    pictures: int
    bytes: int
    seconds: float
    """Of wall time."""
    warm: float
    """Part of the pictures that was still in memory after they were dropped: the page cache gave those."""

    @property
    def is_of_device(self) -> bool:
        """Whether the device was read at all."""
        return self.warm < WARM_SHARE

    @property
    def bytes_per_s(self) -> float:
        """Of all readers together."""
        return self.bytes / self.seconds


def drop(extents: Sequence[Extent]) -> None:
    """Let the page cache forget some bytes, so that the next read of them is one of the device.

    What was not yet written to the device stays: see `write_back`. Pages that were written together may be one to the
    kernel, and then a part of them stays: see `files_of`, whole files go at any time.
    """
    for path, some in _by_path(sorted(extents)):
        with _opened(path) as file:
            for extent in some:  # whole pages are dropped, and none of which a part is left
                start = extent.start // PAGESIZE * PAGESIZE
                length = extent.length and -(-(extent.start + extent.length) // PAGESIZE) * PAGESIZE - start
                os.posix_fadvise(file, start, length, os.POSIX_FADV_DONTNEED)


def write_back(extents: Iterable[Extent]) -> None:
    """Write files to their device, as far as they were not: before that they cannot be dropped.

    It is done once and not before each `drop`, since a file system may have the device empty its own cache each time,
    which takes milliseconds a file.
    """
    for extent in files_of(extents):
        with _opened(extent.path) as file, suppress(OSError):  # of a file system that cannot be written
            os.fdatasync(file)


def files_of(extents: Iterable[Extent]) -> list[Extent]:
    """All bytes of the files that some extents lie in, each once."""
    return [Extent(path) for path in dict.fromkeys(extent.path for extent in extents)]


def warm(extents: Sequence[Extent]) -> None:
    """Read some bytes, so that the page cache has them."""
    _read_group(extents)


def is_warm(extent: Extent) -> bool:
    """Whether some bytes are in memory; where the system cannot tell, whether their file system lies there."""
    with _opened(extent.path) as file:
        try:
            return is_in_memory(file, extent)
        except OSError:
            return mount_of(extent.path).is_memory


def read_cold(groups: Sequence[Sequence[Extent]], readers: int, seconds: float) -> ColdRead:
    """Read bytes from their device, dropped before each round, for about so long, and one picture at least.

    They must have been written to it, see `write_back`.

    Args:
        groups: what is read; each group by one reader, who asks for all of it at once as a worker does, see `announce`.
        readers: at the same time.
        seconds: of reading.

    Raises:
        BadVideo: a file is gone, or shorter than it was.
    """
    extents = [extent for group in groups for extent in group]
    files = files_of(extents)
    rounds = 0
    pictures = size = spent = warm = 0.0
    with ThreadPoolExecutor(readers, thread_name_prefix="viewcache-profile") as pool:
        while spent < seconds or not round(pictures):  # several readers may all be done when the first half is
            drop(files)
            warm += sum(map(is_warm, extents)) / len(extents)
            drop(files)  # looking may have brought pages in
            begun = time.perf_counter()
            read = sorted(pool.map(_timed, groups))
            # What a disk that has rested gives at first, or a limit of its rate, is not what it goes on to give.
            if rested := len(read) // 2:
                begun, read = read[rested - 1].ended, read[rested:]
            shares = [each.share_since(begun) for each in read]
            size += sum(each.bytes * share for each, share in zip(read, shares, strict=True))
            pictures += sum(each.pictures * share for each, share in zip(read, shares, strict=True))
            spent += read[-1].ended - begun
            rounds += 1
    return ColdRead(round(pictures), round(size), spent, warm / rounds)


class _Read(NamedTuple):
    """A group that was read."""

    ended: float
    """Of `time.perf_counter`, as ``begun``."""
    bytes: int
    pictures: int
    begun: float

    def share_since(self, at: float) -> float:
        """Part of it that came after a moment; the other readers were in the middle of theirs when one had ended."""
        return 1.0 if self.begun >= at else (self.ended - at) / (self.ended - self.begun)


def _timed(extents: Sequence[Extent]) -> _Read:
    begun = time.perf_counter()
    size = _read_group(extents)
    return _Read(time.perf_counter(), size, len(extents), begun)


def _read_group(extents: Sequence[Extent]) -> int:
    """Bytes that were read."""
    announce(extents)
    buffer, size = memoryview(bytearray(_READ_BYTES)), 0
    for path, some in _by_path(extents):
        with _opened(path) as file:
            for extent in some:
                at, left = extent.start, extent.length or os.fstat(file).st_size - extent.start
                while left > 0 and (got := os.preadv(file, [buffer[:left]], at)):
                    size, at, left = size + got, at + got, left - got
                if left > 0:
                    raise BadVideo(f"{path} is shorter than it was when the measurement began: {CHANGED}")
    return size


def _by_path(extents: Sequence[Extent]) -> Iterator[tuple[str, list[Extent]]]:
    """Those that follow each other in one file together."""
    for path, some in groupby(extents, key=lambda extent: extent.path):
        yield path, list(some)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BadVideo(f"{path} is gone since the measurement began: {CHANGED}") from None
    try:
        yield file
    finally:
        os.close(file)
