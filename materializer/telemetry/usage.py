"""What a cache takes of cores and of energy, by class and stage, since it was opened.

Workers tell what their stages took with each object, readers note theirs, and the threads of the cache's own process
are looked at from outside, seldom, so that nobody pays for being counted. What no stage is charged with is told as
such, so all rows together are what the processes took. Two caches that are open in one process at once count the rest
of it, and each other's threads, twice.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from viewcache.catalog.records import UsageRow
from viewcache.materializer.clock import OTHER
from viewcache.materializer.telemetry.power import CORE_W, Rapl

__all__ = ["ESTIMATE", "MACHINE", "PLANNER", "RAPL", "READER", "SERVE", "WORKER", "Usage"]

WORKER, READER, PLANNER, MACHINE = "worker", "reader", "planner", "machine"
"""Classes."""

ESTIMATE, RAPL = "estimate", "rapl"
"""Sources of joules."""

SERVE = "serve"
"""Stage of the rest of a process that is there for the cache alone; of another one it is `OTHER`."""

_THREADS = {
    "viewcache-catalog": "catalog",
    "viewcache-dispatcher": "dispatch",
    "viewcache-candidates": "dispatch",
    "viewcache-costs": "dispatch",
    "viewcache-deciding": "dispatch",
    "viewcache-planner": "plan",
    "viewcache-mov": "move",
    "viewcache-headers": "list",
    "viewcache-recovery": "recover",
}
"""How names of threads begin → the stage of a planner that they are; no reader's work is done in them."""

_Stage = tuple[str, str]
"""Class and stage."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What was handed over of a class and stage."""

    cpu_s: float = 0.0
    wall_s: float = 0.0


class Usage:
    """Counts. Thread-safe; nothing waits for a disk."""

    def __init__(
        self,
        core_w: float = CORE_W,
        *,
        serves: bool = False,
        workers_inside: bool = False,
        meter: Rapl | None = None,
    ) -> None:
        """Begin now.

        Args:
            core_w: watts of a core at work.
            serves: whether this process is there for the cache alone: then all that it took since its start counts.
            workers_inside: whether workers are threads of this process.
            meter: of the machine; None = those that it has.
        """
        self.since_s = time.time()
        self._core_w = core_w
        self._rest = (PLANNER, SERVE) if serves else (READER, OTHER)
        self._begun_s = 0.0 if serves else time.process_time()
        self._inside = {READER, PLANNER, WORKER} if workers_inside else {READER, PLANNER}
        self._meter = Rapl() if meter is None else meter
        self._lock = threading.Lock()
        self._cpu_s: defaultdict[_Stage, float] = defaultdict(float)
        self._wall_s: defaultdict[_Stage, float] = defaultdict(float)
        self._metered: defaultdict[str, float] = defaultdict(float)
        """Joules by part of the machine."""
        self._threads: WeakKeyDictionary[threading.Thread, float] = WeakKeyDictionary()
        """Core seconds of each when it was looked at last."""
        self._told: dict[_Stage, _Told] = {}
        self._told_joules: dict[str, float] = {}

    def charge(self, kind: str, cpu_s: Mapping[str, float], wall_s: Mapping[str, float]) -> None:
        """Add work of a class: core seconds and seconds, each by stage."""
        with self._lock:
            for stage, seconds in cpu_s.items():
                self._cpu_s[kind, stage] += seconds
            for stage, seconds in wall_s.items():
                self._wall_s[kind, stage] += seconds

    def look(self) -> None:
        """Look at this process, its threads and the meters, as far as they have come."""
        with self._lock:
            self._look()

    def cpu_s(self) -> dict[tuple[str, str], float]:
        """Core seconds by class and stage, up to now."""
        with self._lock:
            self._look()
            return dict(self._cpu_s)

    def charged_s(self) -> dict[tuple[str, str], float]:
        """The same without what this process has taken beside since `look`: may be asked often.

        What the process took and nobody has charged yet is mostly of jobs that are not over. It may be taken for other
        work once in a while, not again and again.
        """
        with self._lock:
            self._look_at_threads()
            return dict(self._cpu_s)

    def beside_s(self) -> dict[tuple[str, str], float]:
        """The same as `charged_s`, with the rest of a process that serves: all of that is the cache's.

        Not where workers are threads of it: then the rest has jobs that are not over.
        """
        if self._rest[0] != PLANNER or WORKER in self._inside:
            return self.charged_s()
        return self.cpu_s()

    def joules(self) -> dict[str, float]:
        """Joules by source, up to now: the estimate for the cache, and what the machine has taken if it says so."""
        with self._lock:
            self._look()
            metered = {RAPL: sum(self._metered.values())} if self._meter else {}
            mine = sum(seconds for key, seconds in self._cpu_s.items() if key != (READER, OTHER))
            return {ESTIMATE: mine * self._core_w, **metered}

    def news(self) -> list[UsageRow]:
        """What has come since this was asked last, by class and stage."""
        with self._lock:
            self._look()
            rows = [row for key in sorted({*self._cpu_s, *self._wall_s}) if (row := self._news_of(key)) is not None]
            for part, joules in self._metered.items():
                more = joules - self._told_joules.get(part, 0.0)
                if more > 0:
                    self._told_joules[part] = joules
                    rows.append(UsageRow(MACHINE, part, None, None, more, RAPL, self.since_s))
        return rows

    def _news_of(self, key: _Stage) -> UsageRow | None:
        told = self._told.get(key, _Told())
        now = _Told(self._cpu_s.get(key, 0.0), self._wall_s.get(key, 0.0))
        if now == told:
            return None
        self._told[key] = now
        cpu_s = now.cpu_s - told.cpu_s
        wall_s = now.wall_s - told.wall_s if key in self._wall_s else None
        return UsageRow(*key, cpu_s, wall_s, cpu_s * self._core_w, ESTIMATE, self.since_s)

    def _look_at_threads(self) -> None:
        for thread in threading.enumerate():
            stage = next((stage for name, stage in _THREADS.items() if thread.name.startswith(name)), None)
            core_s = None if stage is None else _core_s(thread.native_id)
            if stage is not None and core_s is not None:
                more, self._threads[thread] = core_s - self._threads.get(thread, 0.0), core_s
                self._cpu_s[PLANNER, stage] += max(0.0, more)

    def _look(self) -> None:
        self._look_at_threads()
        charged = sum(s for key, s in self._cpu_s.items() if key[0] in self._inside and key != self._rest)
        rest = time.process_time() - self._begun_s - charged
        self._cpu_s[self._rest] = max(self._cpu_s[self._rest], rest)  # counters never fall
        for part, joules in self._meter.joules().items():
            self._metered[part] += joules


def _core_s(thread: int | None) -> float | None:
    """Core seconds of a thread of this process; None if it has ended, or the kernel does not say."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_bytes().split()[0]) * 1e-9
    except (OSError, IndexError, ValueError):
        return None
