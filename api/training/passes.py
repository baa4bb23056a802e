"""Which epoch a pass of a DataLoader's workers reads: numbers in memory that a loader shares with its copies.

A DataLoader tells its dataset nothing when a pass begins: it forks or pickles it anew, or asks the copies that its
workers have. So the workers count the passes themselves, each in a number of its own, without a lock. What tells one
pass from the next is the seed that torch draws for its workers; where a seed comes again, that a worker has had it.
"""

import os
import struct
import sys
import weakref
from dataclasses import dataclass
from typing import Any

from viewcache.api.training.places import Place

__all__ = ["SharedPasses", "Worker", "WorkerCopy", "worker_here"]

_HEADER = struct.Struct("=qqqq")
"""Version, epoch, iteration, and whether the next pass begins exactly there."""

_CELL = struct.Struct("=q")
"""What one worker began last: version, seed and count, in one number, so that no reader sees half of it."""

_BITS = 24
_MASK = (1 << _BITS) - 1


@dataclass(frozen=True, slots=True)
class Worker:
    """Which worker of a DataLoader this process is."""

    number: int
    workers: int
    seed: int
    """Of all workers of a DataLoader, the same for each of them."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """The pass that a worker began last."""

    worker: int
    seed: int
    count: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the training process moved a loader that its workers have copies of."""

    version: int
    place: Place


class SharedPasses:
    """The passes of one loader, over all processes that have a copy of it."""

    def __init__(self, fd: int | None = None) -> None:
        """Share new memory, or that behind a descriptor, which is closed with this object."""
        self._fd = os.memfd_create("viewcache-passes") if fd is None else fd
        weakref.finalize(self, os.close, self._fd)
        if fd is None:
            self._write_header(0, Place(0, 0, exactly=True))

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to a process that multiprocessing starts, and be shared with it; any other copy begins anew."""
        from multiprocessing.context import get_spawning_popen
        from multiprocessing.reduction import DupFd

        if get_spawning_popen() is None:
            return SharedPasses, ()
        return _received, (DupFd(self._fd),)

    @property
    def version(self) -> int:
        """How often the loader was moved: passes of an earlier version no longer count."""
        return self._header()[0]

    def move(self, place: Place) -> int:
        """Let the next pass of all copies begin at a place; returns the new version."""
        version = self.version + 1
        self._write_header(version, place)
        return version

    def moved(self, version: int) -> "Moved | None":
        """Where the loader was moved to since a version; None if it was not."""
        now, epoch, iteration, exactly = self._header()
        return None if now == version else Moved(now, Place(epoch, iteration, bool(exactly)))

    def last(self, version: int) -> int | None:
        """Count of the last pass that workers began; None if they began none since the loader was moved."""
        return max((each.count for each in self._begun(version)), default=None)

    def begin(self, worker: Worker, version: int, first: int, *, exactly: bool = False) -> int:
        """Begin a pass in a worker.

        Args:
            worker: which.
            version: of the place that it goes by.
            first: the count of the first pass of this version.
            exactly: the worker was told where to begin by a state of its own.

        Returns:
            The pass's count, the same in all its workers.
        """
        begun = self._begun(version)
        mine = next((each.count for each in begun if each.worker == worker.number), first - 1)
        seed = worker.seed & _MASK
        same = [each.count for each in begun if each.seed == seed and each.count > mine]
        if exactly:
            count = first
        elif same:
            count = max(same)  # another worker was here before
        else:
            count = max((each.count + 1 for each in begun), default=first)
        cell = (version % (1 << 15)) << 2 * _BITS | seed << _BITS | (count + 1 & _MASK)  # never 0, as a cell of nobody
        os.pwrite(self._fd, _CELL.pack(cell), _HEADER.size + worker.number * _CELL.size)
        return count

    def _begun(self, version: int) -> list[_Begun]:
        cells = os.pread(self._fd, os.fstat(self._fd).st_size, _HEADER.size)
        found = []
        for number, (cell,) in enumerate(_CELL.iter_unpack(cells)):
            if cell and cell >> 2 * _BITS == version % (1 << 15):
                found.append(_Begun(number, cell >> _BITS & _MASK, (cell & _MASK) - 1))
        return found

    def _header(self) -> tuple[int, int, int, int]:
        version, epoch, iteration, exactly = _HEADER.unpack(os.pread(self._fd, _HEADER.size, 0))
        return version, epoch, iteration, exactly

    def _write_header(self, version: int, place: Place) -> None:
        os.pwrite(self._fd, _HEADER.pack(version, *place), 0)


def _received(fd: Any) -> SharedPasses:
    """The same memory, in a process that was started."""
    return SharedPasses(fd.detach())


class WorkerCopy:
    """The copy of a loader that a worker has: where its passes begin."""

    def __init__(self, *, own_state: bool = False) -> None:
        """Begin where the loader was when the copy was made, or where a state says that this worker was given."""
        self._own_state = own_state
        self._base: Place | None = None

    def start(
        self, worker: Worker, passes: SharedPasses, version: int, place: Place, epochs: int
    ) -> tuple[Place, bool]:
        """Where the next pass begins, and whether that begins again with the first epoch.

        Args:
            worker: which it is.
            passes: what the workers know of each other.
            version: that this copy goes by.
            place: where the loader is; it counts for the first pass.
            epochs: those of the loader.
        """
        if self._base is None:
            self._base = Place(*place.begins(), place.exactly)
        first, iteration, exactly = self._base
        count = passes.begin(worker, version, first, exactly=self._own_state)
        self._own_state = False
        if count == first and exactly:
            return self._base, False
        # A pass with nothing left, after a state of the end, is none of the epochs that come again.
        later = count - (exactly and first == epochs)
        start = Place(later % epochs, iteration if count == first else 0, exactly=True)
        return start, later >= epochs and not start.epoch


def worker_here() -> Worker | None:
    """Which worker of a DataLoader this process is; torch need not be there."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else Worker(info.id, info.num_workers, info.seed - info.id)
