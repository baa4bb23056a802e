"""The latest overview of a cache, gathered when somebody looks, and never at more than a tenth of a core.

Many pages may be open, and each asks every two seconds; they share one overview. A look costs a third of a second of a
core, and the owner of a large catalog a copy of it: the next one waits for ten times the CPU of the last one, and three
times as long as it took. What nobody looks at costs nothing, and neither does a closed catalog that has not changed.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from viewcache.api.config.find import Located
from viewcache.api.page.gather import gather
from viewcache.api.page.overview import Overview, Sample
from viewcache.api.queries.ask import owner_of
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.opening import is_postgresql
from viewcache.errors import ViewcacheError

__all__ = ["Look", "Watcher"]

_log = logging.getLogger("viewcache.page")

LEAST_S = 2.0
"""Between two looks."""
CPU_TIMES, WALL_TIMES = 10.0, 3.0
"""How many times the CPU of a look, and the time that it took, the next one waits: at most a tenth of a core here, and
a quarter of the time in which an owner has a snapshot to make."""
SAMPLES = 300
"""That are remembered: ten minutes of looks, or more."""

Mark = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """An overview, and what was seen before it."""

    number: int
    """Another one with each overview."""
    overview: Overview
    samples: tuple[Sample, ...]
    """Since the watcher began, the oldest first; the last one is the overview's."""
    problem: str
    """Why there is no newer one; empty if it is as new as it gets."""


class Watcher:
    """Looks at one cache for as many as like. Thread-safe."""

    def __init__(
        self, located: Located, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] | None = None
    ) -> None:
        """Look for the first time.

        Args:
            located: the cache.
            clock: gives seconds that go on.
            cpu: gives CPU seconds of this process and of its children that have ended.

        Raises:
            NotFound: there is no catalog.
            CatalogVersion: it is of another release, and has not what is asked for.
            Timeout: another process owns it and did not publish a snapshot.
        """
        self._located, self._clock, self._cpu = located, clock, cpu or _cpu_s
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._mark: Mark | None = None
        self._thread: threading.Thread | None = None
        self._next_at = 0.0
        self._look = self._looked(0, self._unchanged())

    def latest(self) -> Look:
        """The latest overview, at once; a newer one is gathered meanwhile if it is time."""
        with self._lock:
            if self._clock() >= self._next_at and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._gather, name="viewcache-page-gather", daemon=True)
                self._thread.start()
            return self._look

    def close(self) -> None:
        """Wait until nothing is gathered any more."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _gather(self) -> None:
        began, cpu_before, look = self._clock(), self._cpu(), self._look
        try:
            if (mark := self._unchanged()) is None or mark != self._mark:
                look = self._looked(look.number + 1, mark)
        except ViewcacheError as error:  # its owner is ending, or the store was removed: what was seen stays
            look = Look(look.number + 1, look.overview, look.samples, str(error))
        except Exception as error:
            _log.exception("the page could not look at the cache", extra={"action": "page_look_failed"})
            look = Look(look.number + 1, look.overview, look.samples, f"{type(error).__name__}: {error}")
        with self._lock:
            self._look = look
            took, cpu = self._clock() - began, self._cpu() - cpu_before
            self._next_at = self._clock() + max(LEAST_S, CPU_TIMES * cpu, WALL_TIMES * took)

    def _looked(self, number: int, mark: Mark | None) -> Look:
        overview = gather(self._located, self._samples)
        self._mark = mark if overview.source == "file" else None
        self._samples.append(overview.sample)
        return Look(number, overview, tuple(self._samples), "")

    def _unchanged(self) -> Mark | None:
        """What tells one state of the catalog's files from the next; None if somebody has it open, or on PostgreSQL."""
        where = self._located.catalog
        if is_postgresql(where) or owner_of(where):
            return None
        layout = CatalogFiles(Path(where).absolute())
        found: list[int] = []
        for path in (layout.database, layout.log):
            try:
                status = path.stat()
            except FileNotFoundError:
                found += (0, 0)
            else:
                found += (status.st_mtime_ns, status.st_size)
        return tuple(found)


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
