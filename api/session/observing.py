"""Who watches an open cache: an observer that counts, or one that also writes a trace, and the accounts behind both."""

from collections.abc import Callable

from viewcache.api.config.load import Config
from viewcache.catalog import Catalog
from viewcache.materializer.choices import WorkerKind
from viewcache.materializer.telemetry.accounting import Accounting
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.telemetry.snapshot import Snapshot, counter_tracks
from viewcache.materializer.telemetry.trace import Trace
from viewcache.materializer.telemetry.usage import Usage

__all__ = ["observer_of", "usage_of"]


def usage_of(config: Config, *, serves: bool) -> Usage:
    """What counts from now on what a cache takes, which is about to be opened.

    Args:
        config: says what a core takes of energy, and where workers are.
        serves: whether this process is there for the cache alone.
    """
    inside = config.cache.worker_kind == WorkerKind.THREADS
    return Usage(config.core_w, serves=serves, workers_inside=inside)


def observer_of(config: Config, catalog: Catalog, usage: Usage, snapshot: Callable[[], Snapshot]) -> Observer:
    """The observer of a cache that is just being opened; to be closed with it, before its catalog.

    Args:
        config: says whether to trace.
        catalog: gets what work has cost.
        usage: counts that.
        snapshot: all counters, for the trace.

    Raises:
        BadInput: the trace cannot be written.
    """
    accounting = Accounting(usage, catalog)
    path = config.cache.trace
    try:
        return Observer(accounting) if path is None else Trace(path, lambda: counter_tracks(snapshot()), accounting)
    except BaseException:
        accounting.close()
        raise
