"""Reading files as if nobody had read them: what a device gives, not what the page cache has.

Pages of files are dropped before each read (`posix_fadvise`), which needs no rights beyond reading them and leaves
other files alone. The trade-off: a cache below the file system (of the device, or of the host of a virtual machine)
cannot be dropped, and its speed is then taken for the device's.
"""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from viewcache.materializer.profiling.mounts import mount_of

__all__ = ["ColdRead", "drop", "is_warm", "read_cold", "warm"]

_READ_BYTES = 1 << 20
WARM_SHARE = 0.1
"""Where so large a part of the files is still in memory after they were dropped, the device is not what was read."""


@dataclass(frozen=True, slots=True)
class ColdRead:
    """What several readers got from a device."""

    files: int
    bytes: int
    seconds: float
    """Of wall time, from the first reader's begin to the last one's end."""
    warm: float
    """Part of the files that was still in memory after they were dropped: the page cache gave those."""

    @property
    def is_of_device(self) -> bool:
        """Whether the device was read at all."""
        return self.warm < WARM_SHARE

    @property
    def bytes_per_s(self) -> float:
        """Of all readers together."""
        return self.bytes / self.seconds


def drop(paths: Sequence[str]) -> None:
    """Let the page cache forget some files, so that the next read of them is one of the device.

    What was not yet written to the device is, since such pages cannot be dropped.
    """
    for path in paths:
        with _opened(path) as file:
            with suppress(OSError):  # of a file system that cannot be written
                os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def warm(paths: Sequence[str]) -> None:
    """Read some files, so that the page cache has them."""
    _read_group(paths)


def is_warm(path: str) -> bool:
    """Whether the first page of a file is in memory; where the system cannot tell, whether its files lie there."""
    with _opened(path) as file:
        try:
            return bool(os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT))
        except BlockingIOError:
            return False
        except OSError:
            return mount_of(path).is_memory


def read_cold(groups: Sequence[Sequence[str]], readers: int, seconds: float) -> ColdRead:
    """Read files from their device, dropped before each round, for about so long and once at least.

    Args:
        groups: paths of local files; each group is read by one reader, who asks for all of it at once as a worker
            does, see `viewcache.materializer.workers.ahead`.
        readers: at the same time.
        seconds: of reading.
    """
    paths = [path for group in groups for path in group]
    files = size = 0
    spent = warm = 0.0
    rounds = 0
    with ThreadPoolExecutor(readers, thread_name_prefix="viewcache-profile") as pool:
        while spent < seconds:
            drop(paths)
            warm += sum(map(is_warm, paths)) / len(paths)
            drop(paths)  # looking brought pages in
            begun = time.perf_counter()
            size += sum(pool.map(_read_group, groups))
            spent += time.perf_counter() - begun
            files += len(paths)
            rounds += 1
    return ColdRead(files, size, spent, warm / rounds)


def _read_group(paths: Sequence[str]) -> int:
    for path in paths:
        with _opened(path) as file:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
    buffer, size = bytearray(_READ_BYTES), 0
    for path in paths:
        with _opened(path) as file:
            while got := os.readv(file, [buffer]):
                size += got
    return size


@contextmanager
def _opened(path: str) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)
