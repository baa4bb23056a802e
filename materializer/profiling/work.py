"""What the jobs of a pipeline and the reads behind them take, added up as the measured work of any cache.

Plans reckon with it from then on. The trade-off: what is told of small images says less of others, as in training.
"""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field

from viewcache.catalog.pending import add_up
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.clock import WorkClock
from viewcache.materializer.planning.cost import work_rows
from viewcache.materializer.planning.ladder import trial_rows
from viewcache.materializer.workers.pool import Event
from viewcache.store import Written
from viewcache.store.codec_trial import Trial
from viewcache.store.tier import PASSING

__all__ = ["WorkDone"]


@dataclass(slots=True)
class _Doing:
    """What a job that is not over has taken, by stage, and made."""

    seconds: Counter[str] = field(default_factory=Counter)
    cpu_s: Counter[str] = field(default_factory=Counter)
    made: list[Written] = field(default_factory=list)


class WorkDone:
    """Sums by kind of work. Not thread-safe."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._sums: dict[tuple[str, int, str, str], IoSampleRow] = {}
        self._doing: dict[int, _Doing] = {}

    def rows(self) -> list[IoSampleRow]:
        """All of it so far."""
        return list(self._sums.values())

    def heard(self, event: Event, passed: Set[str] = frozenset()) -> None:
        """A worker has made something, or is through with a job; ``passed`` are keys of what is not stored of it."""
        doing = self._doing.setdefault(event.job.number, _Doing())
        for said in (event.made, event.report):
            if said is not None:
                doing.seconds.update(said.seconds)
                doing.cpu_s.update(said.span.cpu_s)
        if event.made is not None:
            doing.made.append(event.made.written)
        if event.report is not None:
            del self._doing[event.job.number]
            frames, loads = event.report.frames, event.job.loads
            add_up(self._sums, work_rows(doing.seconds, doing.cpu_s, frames, doing.made, loads, passed))

    def read(self, written: Written, clock: WorkClock) -> None:
        """What has passed through memory was read just now, since a clock began."""
        (seconds, cpu_s), size = clock.took(), written.raw_bytes
        bucket = size.bit_length() - 1
        add_up(self._sums, [IoSampleRow("load", bucket, written.codec, PASSING, 1, seconds, size, cpu_s)])

    def tried(self, trials: tuple[Trial, ...]) -> None:
        """Codecs were tried on a picture."""
        add_up(self._sums, trial_rows(trials))
