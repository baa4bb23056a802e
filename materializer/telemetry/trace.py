"""The observer that writes all of a run into a trace: what each worker, reader and planner did when.

Tracks: one for each task and thread that reads it, ``dispatcher`` (jobs that it gives, evictions), one for each thread
that moves objects or plans, one for each worker, process or thread; and counters. docs/observing.md says how to read
them.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from viewcache.materializer.clock import Span
from viewcache.materializer.gate import CALLER_THREAD
from viewcache.materializer.media.source import shown
from viewcache.materializer.telemetry.observer import DISPATCHER_THREAD, Observer
from viewcache.materializer.telemetry.trace_file import Counters, TraceFile
from viewcache.materializer.workers.pool import EventKind

if TYPE_CHECKING:
    from viewcache.materializer.storage.ledger import Copy
    from viewcache.materializer.telemetry.accounting import Accounting
    from viewcache.materializer.telemetry.stalls import Reading
    from viewcache.materializer.workers.job import Job, Report
    from viewcache.materializer.workers.pool import Event

__all__ = ["Trace"]

_READERS, _DISPATCHER, _PLANNING, _WORKERS = range(4)
"""In which order tracks are shown."""


class Trace(Observer):
    """Writes a trace; see `TraceFile` for its bounds."""

    laps = True

    def __init__(self, path: str, counters: Callable[[], Counters], accounting: "Accounting | None" = None) -> None:
        """Begin the file.

        Raises:
            BadInput: it cannot be written.
        """
        super().__init__(accounting)
        self.file = TraceFile(path, counters)
        self._begun: dict[int, tuple[Job, int, float]] = {}
        """Number of a job → it, its worker, and when the worker began it or at least had it."""
        self._heard: dict[int, float] = {}
        """Worker → the end of what it has reported of itself."""
        self._made: dict[int, int] = {}
        """Number of a job → objects that it has made."""

    def given(self, job: "Job", worker: int, paused: int) -> None:
        """Note the dispatcher's choice."""
        super().given(job, worker, paused)
        self._begun[job.number] = job, worker, time.monotonic()
        self._made[job.number] = 0
        args = {"video": job.name, "clips": len(job.clips), "most_bytes": job.bound, "worker": worker}
        if paused:
            args["pauses_job"] = paused
        self.file.instant(self.file.track("dispatcher", _DISPATCHER), f"job {job.number}", args)

    def on_event(self, event: "Event") -> None:
        """Note what the worker did since its last word, and the job when it is over."""
        super().on_event(event)
        number, report = event.job.number, event.made or event.report
        if number not in self._begun:
            return
        if report is not None:
            self._did(number, report.span)
        if event.kind == EventKind.MADE:
            self._made[number] += 1
            return
        ended = report.span.ended if report is not None and report.span.ended else time.monotonic()
        self._over(number, ended, event.report, event.reason)

    def _did(self, number: int, span: Span) -> None:
        job, worker, begun = self._begun[number]
        if not self._made[number]:
            begun = span.begun or begun
            self._begun[number] = job, worker, begun
        self._heard[worker] = max(self._heard.get(worker, 0.0), span.ended)
        self.file.laps(self._track(worker), span.laps)

    def _over(self, number: int, ended: float, report: "Report | None", reason: str) -> None:
        job, worker, begun = self._begun.pop(number)
        made = self._made.pop(number)
        if not made and report is None:
            begun = max(begun, self._heard.get(worker, 0.0))  # when it came to this job nobody knows
        args: dict[str, object] = {"job": number, "source": shown(job.uri), "clips": len(job.clips), "made": made}
        if report is not None:
            args |= {"returned": len(report.returned), "failed": len(report.failed), **report.frames}
            args |= {"error": report.error_kind} if report.error_kind else {}
        args |= {"died": reason} if reason else {}
        self.file.slice(self._track(worker), job.name, begun, ended, args)

    def _track(self, worker: int) -> int:
        return self.file.track(f"worker {worker}", _WORKERS)

    def read(self, reading: "Reading") -> None:
        """Note a batch with its stages."""
        super().read(reading)
        now, thread = time.monotonic(), threading.current_thread()
        main = thread is threading.main_thread() or thread.name == CALLER_THREAD
        where = "" if main else f" in {thread.name} {thread.native_id}"
        track = self.file.track(f"reading {reading.task}{where}", _READERS)
        args: dict[str, object] = {
            "epoch": reading.epoch,
            "iteration": reading.iteration,
            "rank": reading.rank,
            "hits": reading.hits,
            "misses": reading.misses,
            "rebuilt": reading.rebuilt,
            "waited_s": reading.waited_s,
        }
        args |= {f"{cause}_s": seconds for cause, seconds in reading.stalls.items()}
        self.file.slice(track, f"batch {reading.epoch}/{reading.iteration}", reading.begun, now, args)
        self.file.laps(track, reading.clock.take()[1].laps)

    def planned(self, task: str, number: int, begun: float) -> None:
        """Note the planning of a generation."""
        super().planned(task, number, begun)
        self._planning("plan", begun, {"task": task, "generation": number})

    def decided(self, begun: float) -> None:
        """Note a decision on what is kept."""
        self._planning("decide what is kept", begun, {})

    def _planning(self, what: str, begun: float, args: dict[str, object]) -> None:
        track = self.file.track(f"planning in {threading.current_thread().name}", _PLANNING)
        self.file.slice(track, what, begun, time.monotonic(), args)

    def evicted(self, begun: float, need: int, gone: "Sequence[Copy]") -> None:
        """Note a search for room, and what left."""
        freed = sum(copy.bytes for copy in gone)
        args: dict[str, object] = {"needed_bytes": need, "freed_bytes": freed, "objects": len(gone)}
        self._storing("evict" if gone else "evict nothing", begun, args)

    def moved(self, begun: float, copy: "Copy", tier: str) -> None:
        """Note an object on its way between tiers."""
        self._storing(f"{copy.tier} to {tier}", begun, {"object": copy.key, "bytes": copy.bytes})

    def _storing(self, what: str, begun: float, args: dict[str, object]) -> None:
        thread = threading.current_thread().name
        name = "dispatcher" if thread == DISPATCHER_THREAD else f"moving in {thread}"
        self.file.slice(self.file.track(name, _DISPATCHER), what, begun, time.monotonic(), args)

    def close(self) -> None:
        """Note the jobs that did not come to their end, and end the file."""
        for number in sorted(self._begun, reverse=True):
            self._over(number, time.monotonic(), None, "the cache was closed")
        self.file.close()
        super().close()
