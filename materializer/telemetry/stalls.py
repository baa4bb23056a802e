"""Why a reader waited: the seconds of one wait by cause, along the critical path of the objects that it waited for.

A wait is over when its last object has arrived, so what that object's job did is what the reader waited for; what was
before that job began is explained by the object that arrived before, and so on back to the begin of the wait. Between
two words of a worker, stages are taken as evenly spread: exact where all of that time lies in the wait.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from viewcache.materializer.clock import Clock

__all__ = ["CAUSES", "NOTICED_S", "Arrival", "Reading", "Stretch", "Times", "explain"]

CAUSES = {
    "decode": "decoding",
    "audio": "decoding and resampling audio",
    "fetch": "fetching files from far away",
    "convert": "conversion to RGB and resize",
    "loss": "encoding with the loss that a task allows",
    "augment": "augmentation",
    "pack": "packing kept pictures",
    "store": "writing to the store",
    "trial": "trying codecs",
    "load": "reading from the store",
    "queue": "workers that were busy with other jobs",
    "room": "room in the budget",
    "start": "workers to start",
    "handover": "the dispatcher, after all was made",
    "plan": "planning",
    "draw": "drawing the order",
    "rebuild": "damaged clips to be made again",
}
"""All causes, in words for people."""

NOTICED_S = 1e-3
"""Planning and drawing that a read finds done take a fraction of this; below it they are no stall."""

Times = tuple[float, float]
"""Begin and end, of `time.monotonic`."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a worker did for a job between two words about it."""

    begun: float
    ended: float
    seconds: Mapping[str, float]
    """By stage; the rest of the time it was on another job."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An object that a reader waited for is there, and how its job went up to then."""

    given: float
    """When a worker was given the job, of `time.monotonic`."""
    fresh: bool
    """Whether the worker was started for it."""
    stretches: tuple[Stretch, ...]
    """What the job said of its work so far, in order; the last one ends with the object."""

    @property
    def at(self) -> float:
        """When the object was in its place."""
        return self.stretches[-1].ended if self.stretches else self.given


@dataclass(slots=True)
class Reading:
    """One read of a batch, while it goes on."""

    task: str
    epoch: int
    iteration: int
    rank: int
    begun: float
    """Of `time.monotonic`."""
    clock: Clock
    """Laps ``plan``, ``draw``, ``wait`` and ``load``."""
    waited_s: float = 0.0
    stalls: Counter[str] = field(default_factory=Counter)
    """Seconds by cause (`CAUSES`)."""
    hits: int = 0
    misses: int = 0
    rebuilt: int = 0
    """Objects that were damaged."""


def explain(begun: float, ended: float, arrivals: Iterable[Arrival], tight: Sequence[Times] = ()) -> dict[str, float]:
    """Share a wait out to its causes.

    Args:
        begun: of the wait, of `time.monotonic`.
        ended: of the wait.
        arrivals: of the objects that were missing.
        tight: when the dispatcher looked for room for what readers wait for; spans do not overlap.

    Returns:
        Seconds by cause, which add up to the wait. ``handover`` is the time after the last arrival.
    """
    total: defaultdict[str, float] = defaultdict(float)
    cursor, idle = ended, "handover"
    for arrival in sorted(arrivals, key=lambda each: each.at, reverse=True):
        if arrival.given >= cursor:
            continue  # it was not what held up the rest
        end = min(cursor, max(begun, arrival.at))
        _idle(total, end, cursor, idle, tight)
        idle = "queue"
        cursor = max(begun, arrival.given)
        _work(total, arrival, cursor, end)
        if cursor <= begun:
            break
    _idle(total, begun, cursor, idle, tight)
    return {cause: seconds for cause, seconds in total.items() if seconds > 0}


def _work(total: defaultdict[str, float], arrival: Arrival, begun: float, ended: float) -> None:
    """Charge the part of a job's life between two times."""
    at = begun
    first = arrival.stretches[0].begun if arrival.stretches else ended
    before = min(ended, max(at, first))
    total["start" if arrival.fresh else "queue"] += before - at
    at = before
    for stretch in arrival.stretches:
        end = min(ended, stretch.ended)
        if end <= at:
            continue
        begin = max(at, stretch.begun)
        share = (end - begin) / (stretch.ended - stretch.begun) if end > begin else 0.0
        busy = min(end - begin, share * sum(stretch.seconds.values()))
        scale = busy / sum(stretch.seconds.values()) if busy > 0 else 0.0
        for stage, seconds in stretch.seconds.items():
            total[stage] += scale * seconds
        total["queue"] += (end - at) - busy  # the worker was on another job
        at = end
    total["queue"] += max(0.0, ended - at)


def _idle(total: defaultdict[str, float], begun: float, ended: float, cause: str, tight: Sequence[Times]) -> None:
    """Charge a time in which none of the objects was being made: to ``room`` where that was looked for."""
    if ended <= begun:
        return
    room = sum(max(0.0, min(ended, end) - max(begun, begin)) for begin, end in tight)
    total["room"] += room
    total[cause] += max(0.0, ended - begun - room)
