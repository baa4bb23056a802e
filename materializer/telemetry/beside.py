"""What a cache takes of cores beside the work that a choice of what is kept can save: a number, known while it runs.

Planning, the catalog, handing batches over and what workers do around their jobs take cores, whatever is kept. Where a
disk is weighed against the cores (`retention/balance`), cores are so much slower. The trade-off: it is told a batch, as
the mean of a stretch, and a stretch in which much is planned says more than the next ones will take. The catalog gets
the sums of all stretches, and of how runs began, as measured work: who says what an epoch will cost counts them in.
"""

import threading
from collections.abc import Callable, Mapping

from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.clock import BEGINNING, OTHER
from viewcache.materializer.telemetry.usage import PLANNER, READER, WORKER

__all__ = ["LEAST_BATCHES", "Beside"]

LEAST_BATCHES = 8
"""Of a stretch."""

_SAVED = "load"
"""The stage of readers that is part of what a way of keeping costs."""

_AROUND = (OTHER, "trial")
"""The stages of workers that are not."""

_CpuS = Callable[[], Mapping[tuple[str, str], float]]


class Beside:
    """Core seconds a batch. Thread-safe."""

    def __init__(self, cpu_s: _CpuS, looked_s: _CpuS | None = None) -> None:
        """Nothing is known yet.

        Args:
            cpu_s: core seconds by class and stage until now, see `Usage.charged_s`.
            looked_s: the same with all that the process took, see `Usage.cpu_s`; None = it is.
        """
        self._cpu_s, self._looked_s = cpu_s, looked_s or cpu_s
        self._lock = threading.Lock()
        self._batches = 0
        self._begun: tuple[int, float] | None = None
        """Batches that had been read when the stretch began, and what had been taken."""
        self._batch_s = 0.0
        self._told: tuple[int, float] | None = None
        """The same when the catalog was told last; None while the run begins."""
        self._begin_s: float | None = None
        """What was taken by the end of the beginning, until the catalog is told."""

    def read(self) -> None:
        """A batch was read."""
        with self._lock:
            self._batches += 1
            begins = self._batches == BEGINNING
        if begins:
            now_s = _taken(self._looked_s())
            with self._lock:
                self._begin_s, self._told = now_s, (BEGINNING, now_s)

    def news(self) -> list[IoSampleRow]:
        """What the catalog has not been told yet, as work of the ops ``begin`` and ``batch``: n beginnings, n batches.

        What a run took that ended while it began is not told.
        """
        now_s = _taken(self._looked_s())
        with self._lock:
            if self._told is None:
                return []
            begin_s, (batches, told_s) = self._begin_s, self._told
            rows, self._begin_s = [] if begin_s is None else [_row("begin", 1, begin_s)], None
            if self._batches > batches:  # else what was taken is told with the next one
                rows.append(_row("batch", self._batches - batches, now_s - told_s))
                self._told = self._batches, now_s
            return rows

    def batch_s(self) -> float:
        """Core seconds for a batch, in the last stretch from one such question to another; 0 while nothing is known.

        What is taken before the first batch, of opening a cache and starting its workers, is in no stretch.
        """
        now_s = _taken(self._cpu_s())
        with self._lock:
            if not self._batches:
                return 0.0
            if self._begun is None:
                self._begun = self._batches, now_s
            batches, taken_s = self._batches - self._begun[0], now_s - self._begun[1]
            if batches >= LEAST_BATCHES:
                self._begun, self._batch_s = (self._batches, now_s), taken_s / batches
            return self._batch_s


def _row(op: str, n: int, seconds: float) -> IoSampleRow:
    return IoSampleRow(op, 0, "", "", n, max(0.0, seconds), 0, max(0.0, seconds))


def _taken(cpu_s: Mapping[tuple[str, str], float]) -> float:
    return sum(seconds for key, seconds in cpu_s.items() if _is_beside(*key))


def _is_beside(kind: str, stage: str) -> bool:
    """Whether work is of the cache and of no stage that is weighed; what else a process does is its training's."""
    if kind == READER:
        return stage not in (_SAVED, OTHER)
    return kind == PLANNER or (kind == WORKER and stage in _AROUND)
