"""Processes that go from one closed cache to the next: starting them takes longer than most of what a test does.

For tests that are about something else. Only one that was started with the same settings is taken over.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

from viewcache.materializer import pool, scan
from viewcache.materializer.pool import WorkerPool

__all__ = ["SparePool", "recycled", "state_of"]

MOST = 4
"""Spare processes that are kept of a kind."""


def state_of(pid: int) -> str:
    """One letter of /proc: T is stopped, Z and X are dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


class SparePool(WorkerPool):
    """A pool that takes idle workers over from pools that were closed before."""

    spare: ClassVar[dict[object, list[pool._Process]]] = {}
    """By what they were started with."""

    def __init__(self, workers: int, *, memory_bytes: int, op_modules: tuple[str, ...] = ()) -> None:
        super().__init__(workers, memory_bytes=memory_bytes, op_modules=op_modules)
        self._like = self.spare.setdefault((memory_bytes, op_modules), [])
        while self._like and len(self._workers) < workers:
            worker = self._like.pop()
            if state_of(worker.process.pid) in "RSD":
                self._workers.append(worker)
            else:
                worker.end()

    def close(self) -> bool:
        """Keep those that are idle and well."""
        for worker in self._processes():
            if not worker.jobs and len(self._like) < MOST and state_of(worker.process.pid) in "RSD":
                self._workers.remove(worker)
                self._like.append(worker)
        return super().close()

    def _processes(self) -> list[pool._Process]:
        return [worker for worker in self._workers if isinstance(worker, pool._Process)]

    @classmethod
    def end(cls) -> None:
        """End those that are spare."""
        for workers in cls.spare.values():
            while workers:
                workers.pop().end()


class _Scanner(scan._Worker):
    """A scanning process that outlives its scan."""

    spare: ClassVar[dict[int, list["_Scanner"]]] = {}

    def __init__(self, memory_bytes: int) -> None:
        super().__init__(memory_bytes)
        self._like = self.spare.setdefault(memory_bytes, [])

    @classmethod
    def start(cls, memory_bytes: int) -> "_Scanner":
        """A spare one, or a new one."""
        like = cls.spare.get(memory_bytes)
        return like.pop() if like else cls(memory_bytes)

    def kill(self) -> str:
        """Keep it if it is idle and well."""
        if self.file is None and len(self._like) < MOST and self.process.poll() is None:
            self._like.append(self)
            return "is spare"
        return super().kill()

    @classmethod
    def end(cls) -> None:
        """End those that are spare."""
        for scanners in cls.spare.values():
            while scanners:
                super(_Scanner, scanners.pop()).kill()


@contextmanager
def recycled() -> Iterator[None]:
    """Caches that are opened meanwhile take processes over from those that were closed; at its end none is left."""
    with patch.object(pool, "WorkerPool", SparePool), patch.object(scan, "_Worker", _Scanner.start):
        try:
            yield
        finally:
            SparePool.end()
            _Scanner.end()
