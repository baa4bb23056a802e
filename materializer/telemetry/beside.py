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
            looked_s: the same with all else that is the cache's, see `Usage.beside_s`; None = it is.
        """
        self._cpu_s, self._looked_s = cpu_s, looked_s or cpu_s
        self._lock = threading.Lock()
        self._batches = 0
        self._begun: tuple[int, float] | None = None
        """Batches that had been read when the stretch began, and what had been taken."""
        self._batch_s = 0.0
        self._noted: tuple[int, float] | None = None
        """The same of what was noted for the catalog last; None while the run begins."""
        self._news: list[IoSampleRow] = []

    def read(self) -> None:
        """A batch was read."""
        with self._lock:
            self._batches += 1
            # A run takes less and less for a batch, so those of powers of two are told apart.
            ends = self._batches >= BEGINNING and not self._batches & (self._batches - 1)
        if ends:
            self._note()

    def news(self) -> list[IoSampleRow]:
        """What the catalog has not been told yet, as work of the ops ``begin`` and ``batch``: n beginnings, n batches.

        The size of a batch is how many were read before it. What a run took that ended while it began is not told.
        """
        self._note()
        with self._lock:
            news, self._news = self._news, []
            return news

    def _note(self) -> None:
        now_s = _taken(self._looked_s())
        with self._lock:
            if self._noted is None and self._batches >= BEGINNING:
                self._news.append(_row("begin", 0, 1, now_s))
                self._noted = self._batches, now_s
            elif self._noted is not None and self._batches > self._noted[0]:  # else it is told with the next one
                batches, noted_s = self._noted
                bucket = batches.bit_length() - 1
                self._news.append(_row("batch", bucket, self._batches - batches, now_s - noted_s))
                self._noted = self._batches, now_s

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


def _row(op: str, bucket: int, n: int, seconds: float) -> IoSampleRow:
    return IoSampleRow(op, bucket, "", "", n, max(0.0, seconds), 0, max(0.0, seconds))


def _taken(cpu_s: Mapping[tuple[str, str], float]) -> float:
    return sum(seconds for key, seconds in cpu_s.items() if _is_beside(*key))


def _is_beside(kind: str, stage: str) -> bool:
    """Whether work is of the cache and of no stage that is weighed; what else a process does is its training's."""
    if kind == READER:
        return stage not in (_SAVED, OTHER)
    return kind == PLANNER or (kind == WORKER and stage in _AROUND)
