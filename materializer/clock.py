"""Where the time of one piece of work goes: a clock whose laps are charged to stages, such as decode or store.

A lap ends where the next one begins, so stages add up to the whole. Times are those of `time.monotonic`, which on Linux
is one clock for all processes of a machine: what a worker notes can be laid beside what a reader waited for. Beside it
goes the clock of the thread, which stands still while it waits: that says what a stage took of a core. To look at it
takes 0.2 to 0.6 µs, some ten times as long as at the other.
"""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from viewcache.store.tier import REMOTE

__all__ = ["BEGINNING", "OTHER", "UNKNOWN", "Clock", "Lap", "Span", "WorkClock", "queued_s"]

OTHER = "other"
"""Stage of what no other stage is charged with."""

BEGINNING = 8
"""Batches until which a run is said to begin: what it takes by then says nothing of later ones."""

Lap = tuple[str, float, float]
"""Stage, begin and end, of `time.monotonic`."""


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something was done, of `time.monotonic`, and what it took of a core."""

    begun: float = 0.0
    ended: float = 0.0
    laps: tuple[Lap, ...] = ()
    """When each stage was on; only if somebody asked, because a clip has hundreds."""
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    """Core seconds by stage."""


UNKNOWN = Span()
"""Nobody has said when."""


class _SchedStat:
    """What the kernel counts of one thread; it stays open, so that a worker without descriptors still has its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        try:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def queued_ns(self) -> int:
        if self._fd < 0:
            return 0
        try:
            return int(os.pread(self._fd, 100, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


_local = threading.local()


def queued_s() -> float:
    """Seconds for which this thread could have run and had no core, since it began; 0 where the kernel does not say."""
    found: _SchedStat | None = getattr(_local, "schedstat", None)
    if found is None or found.pid != os.getpid():  # a forked child has another thread
        found = _local.schedstat = _SchedStat()
    return found.queued_ns() * 1e-9


class WorkClock:
    """What reading from a tier takes: this thread's work, and of a remote tier what the network makes it wait too.

    What the thread waits for a core is left out. So is what a disk makes it wait: whether the system's memory had the
    bytes is not known here, and what a cold device gives is measured by `viewcache profile`.
    """

    def __init__(self, tier: str) -> None:
        """Begin now."""
        self._waits = tier == REMOTE
        self._cpu_s = time.thread_time()
        if self._waits:
            self._begun, self._queued_s = time.perf_counter(), queued_s()

    def took(self) -> tuple[float, float]:
        """Seconds since the begin, and how many of these were of a core."""
        cpu_s = time.thread_time() - self._cpu_s
        if not self._waits:
            return cpu_s, cpu_s
        waited = queued_s() - self._queued_s
        return max(cpu_s, time.perf_counter() - self._begun - waited), cpu_s


class Clock:
    """Seconds by stage, core seconds beside them, and when each stage was on if that is asked for."""

    def __init__(self, *, laps: bool = False) -> None:
        """Begin now."""
        self._seconds: dict[str, float] = {}
        self._cpu_s: dict[str, float] = {}
        self._laps: list[Lap] | None = [] if laps else None
        self._last = self._begun = time.monotonic()
        self._thread, self._last_cpu = threading.get_ident(), time.thread_time()

    @property
    def lapped_at(self) -> float:
        """When the last lap ended, of `time.monotonic`."""
        return self._last

    def lap(self, stage: str) -> float:
        """Charge the time since the last lap to a stage, and return it."""
        now = time.monotonic()
        seconds, last, self._last = now - self._last, self._last, now
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds
        cpu_s = self._core_s()
        self._cpu_s[stage] = self._cpu_s.get(stage, 0.0) + cpu_s
        if self._laps is not None:
            if self._laps and self._laps[-1][0] == stage and self._laps[-1][2] == last:
                last = self._laps.pop()[1]
            self._laps.append((stage, last, now))
        return seconds

    def _core_s(self) -> float:
        """What this thread had of a core since the last lap; 0 if another one ended that, which has another clock."""
        thread, before = self._thread, self._last_cpu
        self._thread, self._last_cpu = threading.get_ident(), time.thread_time()
        return self._last_cpu - before if thread == self._thread else 0.0

    def move(self, seconds: float, stage: str, to: str) -> None:
        """Charge some of what a stage was charged with since the last `take` to another one.

        Laps stay, and so do core seconds: what is moved was waited for.
        """
        moved = min(seconds, self._seconds.get(stage, 0.0))
        if moved > 0:
            self._seconds[stage] -= moved
            self._seconds[to] = self._seconds.get(to, 0.0) + moved

    def skip(self) -> None:
        """Charge the time since the last lap to nobody: other work had it."""
        self._last = time.monotonic()
        self._core_s()

    def spent(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Seconds and core seconds by stage since the last `take`."""
        return self._seconds, self._cpu_s

    def take(self) -> tuple[dict[str, float], Span]:
        """Seconds by stage since the last call, and from when to when that was; what is missing had other work."""
        now = time.monotonic()
        seconds, span = self._seconds, Span(self._begun, now, tuple(self._laps or ()), self._cpu_s)
        self._begun, self._seconds, self._cpu_s = now, {}, {}
        if self._laps is not None:
            self._laps = []
        return seconds, span
