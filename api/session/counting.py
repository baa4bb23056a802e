"""All counters of an open cache at one moment, from its parts."""

from collections.abc import Mapping

from viewcache.catalog import Catalog
from viewcache.materializer.reading.values import Spent
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.storage.ledger import Ledger
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.telemetry.snapshot import Snapshot, TaskCounts, TierBytes
from viewcache.store import Budget

__all__ = ["counted"]


def counted(
    spent: Mapping[str, Spent],
    tiers: Tiers,
    ledger: Ledger,
    dispatcher: Dispatcher | None,
    observer: Observer,
    catalog: Catalog,
) -> Snapshot:
    """What they have counted; ``spent`` is what the readers of each task did."""
    held = {name: tiers[name] for name in tiers.names()}
    return Snapshot(
        tasks={name: _counts(each) for name, each in spent.items()},
        tiers={name: _bytes_of(tier) for name, tier in held.items()},
        passing=_bytes_of(tiers.passing),
        objects=len(ledger),
        evictions=dict(ledger.gone),
        readers_waiting=0 if dispatcher is None else dispatcher.evictor.waiting(),
        worker_seconds={} if dispatcher is None else dict(dispatcher.tally.busy),
        work={} if dispatcher is None else dict(dispatcher.tally.frames),
        jobs=observer.jobs,
        jobs_running=observer.running,
        jobs_died=observer.deaths,
        generations=dict(observer.generations),
        planning_s=dict(observer.planning_s),
        catalog_backlog=catalog.backlog(),
        cpu_s=observer.usage.cpu_s(),
        joules=observer.usage.joules(),
    )


def _bytes_of(place: Budget | None) -> TierBytes:
    if place is None:
        return TierBytes(0, 0, 0)
    return TierBytes(place.used_bytes, place.reserved_bytes, place.budget_bytes)


def _counts(spent: Spent) -> TaskCounts:
    return TaskCounts(spent.batches, spent.hits, spent.misses, spent.rebuilt, dict(spent.stalls))
