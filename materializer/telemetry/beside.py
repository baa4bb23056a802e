"""What a cache takes of cores beside the work that a choice of what is kept can save: a number, known while it runs.

Planning, the catalog, handing batches over and what workers do around their jobs take cores, whatever is kept. Where a
disk is weighed against the cores (`retention/balance`), cores are so much slower. The trade-off: it is told a batch, as
the mean of a stretch, and a stretch in which much is planned says more than the next ones will take.
"""

import threading
from collections.abc import Callable, Mapping

from viewcache.materializer.clock import OTHER
from viewcache.materializer.telemetry.usage import PLANNER, READER, WORKER

__all__ = ["LEAST_BATCHES", "Beside"]

LEAST_BATCHES = 8
"""Of a stretch."""

_SAVED = "load"
"""The stage of readers that is part of what a way of keeping costs."""


class Beside:
    """Core seconds a batch. Thread-safe."""

    def __init__(self, cpu_s: Callable[[], Mapping[tuple[str, str], float]]) -> None:
        """Nothing is known yet.

        Args:
            cpu_s: core seconds by class and stage until now, see `Usage.charged_s`.
        """
        self._cpu_s = cpu_s
        self._lock = threading.Lock()
        self._batches = 0
        self._begun: tuple[int, float] | None = None
        """Batches that had been read when the stretch began, and what had been taken."""
        self._batch_s = 0.0

    def read(self) -> None:
        """A batch was read."""
        with self._lock:
            self._batches += 1

    def batch_s(self) -> float:
        """Core seconds for a batch, in the last stretch from one such question to another; 0 while nothing is known.

        What is taken before the first batch, of opening a cache and starting its workers, is in no stretch.
        """
        now_s = sum(seconds for key, seconds in self._cpu_s().items() if _is_beside(*key))
        with self._lock:
            if not self._batches:
                return 0.0
            if self._begun is None:
                self._begun = self._batches, now_s
            batches, taken_s = self._batches - self._begun[0], now_s - self._begun[1]
            if batches >= LEAST_BATCHES:
                self._begun, self._batch_s = (self._batches, now_s), taken_s / batches
            return self._batch_s


def _is_beside(kind: str, stage: str) -> bool:
    """Whether work is of the cache and of no stage that is weighed; what else a process does is its training's."""
    if kind == READER:
        return stage not in (_SAVED, OTHER)
    return kind == PLANNER or (kind, stage) == (WORKER, OTHER)
