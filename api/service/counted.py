"""Counters and progress as they travel between the service and its clients, and back as plain values."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from viewcache.api.service import answers
from viewcache.api.session.made import Making
from viewcache.materializer.telemetry.snapshot import Snapshot, TaskCounts, TierBytes

if TYPE_CHECKING:
    from viewcache.materializer.retention.forecast import Forecast

__all__ = ["counters_of", "counts_of", "making_of", "snapshot_of"]


def counters_of(now: Snapshot) -> answers.CountersOf:
    """All counters, to be sent."""
    evictions = [answers.EvictedOf(tier, reason, count) for (tier, reason), count in now.evictions.items()]
    cpu_s = [answers.CoreSecondsOf(kind, stage, seconds) for (kind, stage), seconds in now.cpu_s.items()]
    fields = {**asdict(now), "evictions": evictions, "cpu_s": cpu_s}
    return msgspec.convert(fields, answers.CountersOf, from_attributes=True)


def snapshot_of(counters: answers.CountersOf) -> Snapshot:
    """All counters as `Cache.snapshot` gives them."""
    fields = msgspec.structs.asdict(counters)
    fields["tasks"] = {name: TaskCounts(**msgspec.structs.asdict(each)) for name, each in counters.tasks.items()}
    fields["tiers"] = {name: TierBytes(**msgspec.structs.asdict(each)) for name, each in counters.tiers.items()}
    fields["passing"] = TierBytes(**msgspec.structs.asdict(counters.passing))
    fields["evictions"] = {(each.tier, each.reason): each.objects for each in counters.evictions}
    fields["cpu_s"] = {(each.kind, each.stage): each.seconds for each in counters.cpu_s}
    return Snapshot(**fields)


def counts_of(making: Making, *, over: bool) -> answers.Counts:
    """How far making ahead is, to be sent."""
    return answers.Counts(
        dict(making.clips),
        over,
        _work_of(making.predicted),
        _work_of(making.measured),
        making.failure,
        making.from_kept,
    )


def making_of(counts: answers.Counts) -> Making:
    """How far making ahead is, as `Cache.making` gives it."""
    from viewcache.materializer.retention.forecast import Forecast  # only who makes ahead loads the planner

    def work(of: answers.WorkOf) -> Forecast:
        return Forecast(**msgspec.structs.asdict(of))

    return Making(counts.clips, work(counts.predicted), work(counts.measured), counts.failure, counts.from_kept)


def _work_of(work: "Forecast") -> answers.WorkOf:
    return answers.WorkOf(**asdict(work))
