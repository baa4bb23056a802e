"""Which of the batches that are due next will be late: what is missing, at the pace at which objects are made now.

Objects are taken to be made in the order in which they are due, which is the dispatcher's, and one that two batches
need counts twice: where that is wrong a batch comes sooner than is said here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from viewcache.api.page.overview import DueBatch, Pace, Place, Sample, Verdict
from viewcache.materializer.scheduling.seats import IDLE_BATCHES, IDLE_S

__all__ = ["RECENT_S", "due_in_s", "judged", "pace_of"]

RECENT_S = 30.0
"""How long the pace of making is looked back upon."""


def pace_of(samples: Sequence[Sample], work: Mapping[str, tuple[int, float]], workers: int) -> Pace:
    """How fast objects are made.

    Args:
        samples: the looks so far, the oldest first, the last one now.
        work: operation → how many were measured, and seconds of them.
        workers: how many there are.
    """
    if samples:
        now = samples[-1]
        before = next((each for each in samples if now.at_s - each.at_s <= RECENT_S), now)
        if now.at_s > before.at_s and now.made > before.made:
            return Pace((now.made - before.made) / (now.at_s - before.at_s), measured=True)
    made = work.get("store", (0, 0.0))[0]
    busy_s = sum(work.get(op, (0, 0.0))[1] for op in ("decode", "convert", "augment", "store"))
    return Pace(workers * made / busy_s if made and busy_s > 0 else None, measured=False)


def due_in_s(ahead: int, places: Iterable[Place], now_s: float) -> float | None:
    """Seconds until a batch is needed; None if nobody reads its task, or not fast enough to tell."""
    places = list(places)
    pace_s = max((each.pace_s or 0.0 for each in places), default=0.0)
    if not pace_s:
        return None
    silent_s = now_s - max(each.seen_s for each in places)
    return None if silent_s > max(IDLE_S, IDLE_BATCHES * pace_s) else ahead * pace_s


def judged(batches: Iterable[DueBatch], pace: Pace, *, owned: bool, counts_memory: bool = True) -> tuple[DueBatch, ...]:
    """The batches with ``ready_s`` and ``verdict``, in the order in which they are due.

    Args:
        batches: with ``due_s``.
        pace: of making.
        owned: whether some process has the cache open; else nothing is being made.
        counts_memory: whether what is ready in the owner's memory is counted; else what is missing may lie there.
    """
    rate, missing, found = pace.objects_per_s if owned and counts_memory else None, 0, []
    order = sorted(batches, key=lambda each: (each.due_s is None, each.due_s or 0.0, each.ahead, each.task))
    for batch in order:
        missing += batch.missing
        ready_s = 0.0 if not batch.missing else missing / rate if rate else None
        found.append(replace(batch, ready_s=ready_s, verdict=_verdict(batch, ready_s)))
    return tuple(found)


def _verdict(batch: DueBatch, ready_s: float | None) -> Verdict:
    if not batch.missing:
        return Verdict.READY
    if ready_s is None or batch.due_s is None:
        return Verdict.UNKNOWN
    return Verdict.LATE if ready_s > batch.due_s else Verdict.IN_TIME
