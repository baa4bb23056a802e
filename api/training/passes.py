"""Which epoch a pass of a DataLoader's workers reads: numbers in memory that a loader shares with its copies.

A DataLoader tells its dataset nothing when a pass begins: it forks or pickles it anew, or asks the copies that its
workers have. So the workers count the passes themselves, each in a cell of its own, one worker after the other: by a
lock of the file, which the system takes back from one that is killed. What tells one pass from the next is the seed
that torch draws for its workers, how many workers there are, and how often this process of a worker was asked to begin
one. The first worker that begins a pass says where; the others join it there, however late they come, and wherever the
loader was moved meanwhile. torch waits in each pass for workers that it keeps, so one that begins late is at most one
pass behind; what it then reads is thrown away, and the next pass is not moved by it.

Two things are not known here. Where torch starts workers for each pass and draws the same seed again
(`torch.manual_seed` before each), a worker that was killed before it began a pass is taken, in the next, for one that
comes late to that; torch gives it five seconds after a pass was left. And passes of two DataLoaders over one loader may
follow each other, but not run at the same time: a cell has room for one.
"""

import fcntl
import os
import struct
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any
from zlib import crc32

from viewcache.api.training.places import Place
from viewcache.errors import within_limits

__all__ = ["SharedPasses", "Worker", "WorkerCopy", "worker_here"]

_HEADER = struct.Struct("=qqqq32x")
"""Version, epoch, iteration, and whether the next pass begins exactly there."""

_CELL = struct.Struct("=qqqqiiq?")
"""The pass that a worker began last."""

_SUM = struct.Struct("=I")
"""Of a cell, behind it: the training process, which takes no lock that an interrupt could leave with it, sees by that
when a worker is writing, and reads again."""

_CELL_SIZE = 64

_TRIES = 1000
"""To read cells. A worker writes one without a pause, so the second try finds it whole."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Which worker of a DataLoader this process is."""

    number: int
    workers: int
    seed: int
    """Of all workers of a DataLoader, the same for each of them."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A pass that a worker began."""

    version: int
    """How often the loader had been moved."""
    count: int
    """Among the passes of this version; with the version it orders all passes of a loader."""
    seed: int
    workers: int
    number: int
    """Among the passes that the worker's process began, from 1."""
    epoch: int
    """Where it begins, with `iteration`."""
    iteration: int
    repeats: bool
    """Whether it begins again with the first epoch."""

    @property
    def order(self) -> tuple[int, int]:
        """The later a pass, the greater."""
        return self.version, self.count


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the training process moved a loader that its workers have copies of."""

    version: int
    place: Place


class SharedPasses:
    """The passes of one loader, over all processes that have a copy of it."""

    def __init__(self, fd: int | None = None) -> None:
        """Share new memory, or that behind a descriptor, which is closed with this object."""
        with within_limits("a loader needs memory that its workers share"):
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
        return max((each.count for each in self._cells().values() if each.version == version), default=None)

    @contextmanager
    def one_by_one(self) -> Iterator[None]:
        """Let no other worker begin a pass: two that begin it at once would not see each other."""
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def others(self, worker: Worker, number: int) -> "_Begun | None":
        """What another worker of the same DataLoader began: this pass, or else one behind it; None if none did.

        Args:
            worker: which this is.
            number: of this pass, among those that its process began.
        """
        cells = self._cells()
        mine = cells.get(worker.number)  # may be left by a worker of an earlier pass with the same seed
        same = [
            each
            for each in cells.values()
            if (each.seed, each.workers) == (worker.seed, worker.workers) and each.number >= number
            if mine is None or each.order > mine.order
        ]
        return min(same, key=lambda each: each.number, default=None)

    def begin(self, worker: Worker, begun: _Begun) -> None:
        """Tell the others which pass a worker begins."""
        cell = _CELL.pack(*astuple(begun))
        os.pwrite(self._fd, cell + _SUM.pack(crc32(cell)), _HEADER.size + worker.number * _CELL_SIZE)

    def _cells(self) -> dict[int, _Begun]:
        """What each worker began last."""
        for _ in range(_TRIES):
            whole = True
            found = {}
            memory = os.pread(self._fd, os.fstat(self._fd).st_size, _HEADER.size)
            for offset in range(0, len(memory), _CELL_SIZE):
                cell = memory[offset : offset + _CELL.size + _SUM.size]
                if not any(cell):
                    continue  # of nobody
                fields = cell[: _CELL.size]
                if len(cell) == _CELL.size + _SUM.size and _SUM.unpack_from(cell, _CELL.size) == (crc32(fields),):
                    found[offset // _CELL_SIZE] = _Begun(*_CELL.unpack(fields))
                else:
                    whole = False
            if whole:
                break
        return found

    def _header(self) -> tuple[int, int, int, int]:
        version, epoch, iteration, exactly = _HEADER.unpack(os.pread(self._fd, _HEADER.size, 0))
        return version, epoch, iteration, exactly

    def _write_header(self, version: int, place: Place) -> None:
        os.pwrite(self._fd, _HEADER.pack(version, *place), 0)


def _received(fd: Any) -> SharedPasses:
    """The same memory, in a process that was started."""
    return SharedPasses(fd.detach())


@dataclass(frozen=True, slots=True)
class Start:
    """Where a pass of a worker begins."""

    version: int
    """Of the loader, that the worker's copy goes by from now on."""
    place: Place
    repeats: bool
    """Whether it begins again with the first epoch."""


class WorkerCopy:
    """The copy of a loader that a worker has: where its passes begin."""

    def __init__(self) -> None:
        """Begin where the loader was when the copy was made."""
        self._number = 0
        self._own_state = False
        self._base: Place | None = None

    def told(self) -> None:
        """Begin where a state says that this worker was given."""
        self._own_state, self._base = True, None

    def start(self, worker: Worker, passes: SharedPasses, version: int, place: Place, epochs: int) -> Start:
        """Begin the next pass.

        Args:
            worker: which it is.
            passes: what the workers know of each other.
            version: that this copy goes by.
            place: where the loader is; it counts for the first pass.
            epochs: those of the loader.
        """
        self._number += 1
        with passes.one_by_one():
            version, begun = self._begin(worker, passes, version, place, epochs)
            passes.begin(worker, begun)
        return Start(version, Place(begun.epoch, begun.iteration, exactly=True), begun.repeats)

    def _begin(
        self, worker: Worker, passes: SharedPasses, version: int, place: Place, epochs: int
    ) -> tuple[int, _Begun]:
        """The version that the copy goes by from now on, and the pass."""
        other = passes.others(worker, self._number)
        # A move is for the pass that nobody has begun: a worker that comes late would take it for one that is over.
        moved = passes.moved(version) if other is None else None
        if moved is not None:
            version, self._base, self._own_state = moved.version, moved.place, False
        elif self._base is None:
            self._base = place
        own_state, self._own_state = self._own_state, False
        if other is not None and other.number == self._number and not own_state:
            return version, other
        first, _ = self._base.begins()
        if own_state:
            count = first
        elif other is not None and other.version == version:
            count = max(first, other.count - (other.number - self._number))
        else:
            last = passes.last(version)
            count = first if last is None else last + 1
        epoch, iteration, repeats = _place_of(count, self._base, epochs)
        return version, _Begun(version, count, worker.seed, worker.workers, self._number, epoch, iteration, repeats)


def _place_of(count: int, base: Place, epochs: int) -> tuple[int, int, bool]:
    """Epoch and iteration of a pass, and whether it begins again with the first epoch.

    Args:
        count: of the pass.
        base: where the first one of its version begins.
        epochs: those of the loader.
    """
    first, iteration = base.begins()
    if count == first and base.exactly:
        return first, iteration, False
    # A pass with nothing left, after a state of the end, is none of the epochs that come again.
    later = count - (base.exactly and first == epochs)
    return later % epochs, iteration if count == first else 0, later >= epochs and not later % epochs


def worker_here() -> Worker | None:
    """Which worker of a DataLoader this process is; torch need not be there."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else Worker(info.id, info.num_workers, info.seed - info.id)
