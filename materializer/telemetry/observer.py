"""What the running parts tell of themselves: jobs, reads, plans, evictions. By default that is only counted.

The parts call an observer at few places, once a job, an object or a batch, so that looking costs nothing where nobody
looks; `trace.py` has the observer that writes all of it down.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from viewcache.materializer.telemetry.beside import Beside
from viewcache.materializer.telemetry.usage import READER, WORKER, Usage
from viewcache.materializer.workers.pool import EventKind

if TYPE_CHECKING:
    from viewcache.materializer.storage.ledger import Copy
    from viewcache.materializer.telemetry.accounting import Accounting
    from viewcache.materializer.telemetry.stalls import Reading
    from viewcache.materializer.workers.job import Job
    from viewcache.materializer.workers.pool import Event

__all__ = ["DISPATCHER_THREAD", "Observer"]

DISPATCHER_THREAD = "viewcache-dispatcher"
"""Name of the dispatcher's thread."""


class Observer:
    """Counts what is counted nowhere else. Each method may be called from any thread, and must not raise or wait."""

    laps = False
    """Whether workers and readers shall note when each stage was on, not only how long it took."""

    def __init__(self, accounting: "Accounting | None" = None) -> None:
        """Start at zero; what work has cost is written by ``accounting``, or counted alone."""
        self.usage = Usage() if accounting is None else accounting.usage
        """What workers and readers take of cores."""
        self.beside = Beside(self.usage.charged_s) if accounting is None else accounting.beside
        """What of it no choice of what is kept can save."""
        self._accounting = accounting
        self.generations: Counter[str] = Counter()
        """Generations planned, by task."""
        self.planning_s: defaultdict[str, float] = defaultdict(float)
        """Seconds of planning them, by task."""
        self.jobs = 0
        """Jobs that were given to workers."""
        self.running = 0
        """Jobs that workers have now, paused ones included."""
        self.deaths = 0
        """Jobs whose worker died."""

    def given(self, job: "Job", worker: int, paused: int) -> None:
        """A job was given to the worker with this id (`Worker.id`), which pauses job ``paused`` for it (0 = none)."""
        self.jobs += 1
        self.running += 1

    def on_event(self, event: "Event") -> None:
        """A worker said something, or died."""
        said = event.made or event.report
        if said is not None:
            self.usage.charge(WORKER, said.span.cpu_s, said.seconds)
        if event.kind != EventKind.MADE:
            self.running -= 1
        if event.kind == EventKind.DIED:
            self.deaths += 1

    def read(self, reading: "Reading") -> None:
        """A batch was read."""
        wall_s, cpu_s = reading.clock.spent()
        self.usage.charge(READER, cpu_s, wall_s)
        self.beside.read()

    def planned(self, task: str, number: int, begun: float) -> None:
        """A generation was planned in this thread, from ``begun`` (`time.monotonic`) until now."""
        self.generations[task] += 1
        self.planning_s[task] += time.monotonic() - begun

    def decided(self, begun: float) -> None:
        """In this thread it was decided what is kept, from ``begun`` until now."""

    def evicted(self, begun: float, need: int, gone: "Sequence[Copy]") -> None:
        """This thread looked for ``need`` bytes from ``begun`` until now, and evicted this for it."""

    def moved(self, begun: float, copy: "Copy", tier: str) -> None:
        """This thread copied an object into another tier, from ``begun`` until now."""

    def settle(self) -> None:
        """Write what work has cost until now."""
        if self._accounting is not None:
            self._accounting.write()

    def close(self) -> None:
        """Nothing more is to come."""
        if self._accounting is not None:
            self._accounting.close()
