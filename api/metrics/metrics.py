"""What a running cache counts, as one table of metrics: for Prometheus, for OpenTelemetry, for a trace's counters.

The table names each metric once; collector, instruments and docs/metrics.md come from it. Nothing is counted for it: it
reads what the cache's parts know anyway, when somebody asks. The libraries are the extra ``metrics``.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewcache.errors import BadInput, MissingExtra
from viewcache.materializer.telemetry.observer import Observer

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client.registry import Collector

    from viewcache.api.session.cache import Cache

__all__ = ["METRICS", "Endpoint", "Metric", "collector", "counters", "instrument", "observer_of", "page", "serve"]

Values = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels, and what was counted for them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is counted."""

    name: str
    """As Prometheus has it; a counter's name ends in ``_total``."""
    doc: str
    read: "Callable[[Cache], Values]"
    labels: tuple[str, ...] = ()
    unit: str = "1"
    """``s``, ``By`` (bytes) or ``1`` (a number of things)."""

    @property
    def is_counter(self) -> bool:
        """Whether it only grows while a cache is open; else it is a gauge."""
        return self.name.endswith("_total")

    @property
    def instrument(self) -> str:
        """Its name as an OpenTelemetry instrument, whose unit is said apart."""
        name = self.name.removesuffix("_total").removesuffix("_seconds").removesuffix("_bytes")
        return name.replace("viewcache_", "viewcache.")


def _of_tasks(name: str) -> "Callable[[Cache], Values]":
    """A number of `Spent`, for each task."""
    return lambda cache: [((task,), getattr(reader.spent, name)) for task, reader in _readers(cache)]


def _readers(cache: "Cache") -> list[tuple[str, Any]]:
    return list(cache._readers.items())


def _stalls(cache: "Cache") -> Values:
    return [
        ((task, cause), seconds)
        for task, reader in _readers(cache)
        for cause, seconds in list(reader.spent.stalls.items())
    ]


def _counted(counts: "Callable[[Cache], Mapping[str, float]]") -> "Callable[[Cache], Values]":
    """What is counted by one label."""
    return lambda cache: [((label,), value) for label, value in list(counts(cache).items())]


def _tier(name: str) -> "Callable[[Cache], Values]":
    return lambda cache: _of_tiers(cache, name)


def _of_tiers(cache: "Cache", name: str) -> Values:
    return [((tier,), getattr(cache.tiers[tier], name)) for tier in cache.tiers.names()]


def _work(name: str) -> "Callable[[Cache], Values]":
    """A number of what the workers did."""
    return lambda cache: [((), cache._engine.frames[name] if cache._engine is not None else 0)]


def _one(value: "Callable[[Cache], float]") -> "Callable[[Cache], Values]":
    return lambda cache: [((), value(cache))]


def _observer(cache: "Cache") -> Observer:
    return cache.observer


def _waiting(cache: "Cache") -> int:
    return cache._engine.room.waiting() if cache._engine is not None else 0


def _busy(cache: "Cache") -> Mapping[str, float]:
    return cache.busy_seconds()


def _stored(cache: "Cache") -> int:
    return len(cache._ledger)


def _gone(cache: "Cache") -> Values:
    return list(cache._ledger.gone.items())


def _backlog(cache: "Cache") -> int:
    return cache.catalog.backlog()


METRICS = (
    Metric("viewcache_batches_total", "Batches that were read.", _of_tasks("batches"), ("task",)),
    Metric("viewcache_wait_seconds_total", "Seconds of reads by cause.", _stalls, ("task", "cause"), "s"),
    Metric("viewcache_hits_total", "Clips that were there when they were asked for.", _of_tasks("hits"), ("task",)),
    Metric("viewcache_misses_total", "Clips that were not.", _of_tasks("misses"), ("task",)),
    Metric("viewcache_rebuilds_total", "Clips whose stored bytes were damaged.", _of_tasks("rebuilt"), ("task",)),
    Metric("viewcache_readers_waiting", "Readers that wait for clips now.", _one(_waiting)),
    Metric("viewcache_store_used_bytes", "Bytes of the objects in a tier.", _tier("used_bytes"), ("tier",), "By"),
    Metric("viewcache_store_reserved_bytes", "Bytes promised to jobs.", _tier("reserved_bytes"), ("tier",), "By"),
    Metric("viewcache_store_budget_bytes", "Bytes that a tier may take.", _tier("budget_bytes"), ("tier",), "By"),
    Metric("viewcache_store_objects", "Objects in the store.", _one(_stored)),
    Metric(
        "viewcache_evictions_total",
        "Objects that left a tier: `evict` for room, `rebuild` for damage.",
        _gone,
        ("tier", "reason"),
    ),
    Metric(
        "viewcache_worker_seconds_total",
        "Seconds that workers were busy, by stage.",
        _counted(_busy),
        ("stage",),
        "s",
    ),
    Metric("viewcache_jobs_total", "Jobs that workers were given.", _one(lambda cache: _observer(cache).jobs)),
    Metric("viewcache_jobs_running", "Jobs that workers have now.", _one(lambda cache: _observer(cache).running)),
    Metric("viewcache_jobs_died_total", "Jobs whose worker died.", _one(lambda cache: _observer(cache).deaths)),
    Metric("viewcache_packets_total", "Packets that were decoded.", _work("packets")),
    Metric("viewcache_frames_decoded_total", "Frames that came out of decoders.", _work("decoded")),
    Metric("viewcache_frames_converted_total", "Conversions of frames to RGB.", _work("converted")),
    Metric("viewcache_objects_made_total", "Objects that were made.", _work("objects")),
    Metric("viewcache_made_bytes_total", "Raw bytes of the objects that were made.", _work("object_bytes"), (), "By"),
    Metric(
        "viewcache_generations_total",
        "Generations that were planned.",
        _counted(lambda cache: _observer(cache).generations),
        ("task",),
    ),
    Metric(
        "viewcache_planning_seconds_total",
        "Seconds of planning generations.",
        _counted(lambda cache: _observer(cache).planning_s),
        ("task",),
        "s",
    ),
    Metric(
        "viewcache_catalog_backlog",
        "Small changes that wait to be committed to the catalog.",
        _one(_backlog),
    ),
)

_TRACKS = {
    "bytes": ("viewcache_store_used_bytes", "viewcache_store_reserved_bytes", "viewcache_store_budget_bytes"),
    "jobs running": ("viewcache_jobs_running",),
    "readers waiting": ("viewcache_readers_waiting",),
    "clips": ("viewcache_hits_total", "viewcache_misses_total"),
    "objects in the store": ("viewcache_store_objects",),
    "catalog backlog": ("viewcache_catalog_backlog",),
}
"""The counter tracks of a trace; a label's values are added up."""

_BY_NAME = {metric.name: metric for metric in METRICS}


def counters(cache: "Cache") -> dict[str, dict[str, float]]:
    """The counter tracks of a trace: name → values by name."""
    return {
        track: {_short(name): sum(value for _, value in _BY_NAME[name].read(cache)) for name in names}
        for track, names in _TRACKS.items()
    }


def _short(name: str) -> str:
    return name.removeprefix("viewcache_").removeprefix("store_").removesuffix("_total").removesuffix("_bytes")


def observer_of(cache: "Cache") -> Observer:
    """What a cache tells of itself goes here: into the trace that its settings name, if they do.

    Raises:
        BadInput: the trace cannot be written.
    """
    path = cache.config.cache.trace
    if path is None:
        return Observer()
    from viewcache.materializer.telemetry.trace import Trace

    return Trace(path, lambda: counters(cache))


# Prometheus ----------------------------------------------------------------------------------------------------------


def collector(cache: "Cache") -> "Collector":
    """A collector for `prometheus_client`: ``REGISTRY.register(collector(cache))``.

    A closed cache goes on saying what it had counted; unregister the collector when that is of no interest any more.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ImportError as missing:
        raise _missing("Prometheus metrics need prometheus-client") from missing

    class CacheCollector(Collector):
        def collect(self) -> Iterator[Any]:
            for metric in METRICS:
                kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                family = kind(metric.name, metric.doc, labels=metric.labels)
                for labels, value in metric.read(cache):
                    family.add_metric(labels, value)
                yield family

    return CacheCollector()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A page for Prometheus to scrape; use it as a context manager, or `close` it."""

    url: str
    server: Any
    thread: Any

    def close(self) -> None:
        """Serve no more."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __enter__(self) -> "Endpoint":
        """Itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()


def serve(cache: "Cache", port: int = 9464, address: str = "127.0.0.1") -> Endpoint:
    """Serve a cache's metrics over HTTP, for this machine alone unless another ``address`` is given.

    The page has no password and names tasks: give another address only in a network that may know them.

    Args:
        cache: whose.
        port: 0 takes a free one; ``Endpoint.url`` says which.
        address: to listen at.

    Raises:
        MissingExtra: prometheus-client is not installed.
        BadInput: the port cannot be had.
    """
    ours = collector(cache)
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(ours)
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except (OSError, OverflowError) as error:
        raise BadInput(f"cannot serve metrics at {address}:{port}: {error}; take another port") from error
    return Endpoint(f"http://{address}:{server.server_port}/metrics", server, thread)


# OpenTelemetry -------------------------------------------------------------------------------------------------------


def instrument(cache: "Cache", meter: "Meter") -> None:
    """Make an observable instrument of each metric, on a meter of yours: ``instrument(cache, get_meter("train"))``.

    Raises:
        MissingExtra: opentelemetry-api is not installed.
    """
    try:
        from opentelemetry.metrics import Observation
    except ImportError as missing:
        raise _missing("OpenTelemetry metrics need opentelemetry-api") from missing

    def observe(metric: Metric) -> "Callable[[CallbackOptions], Iterable[Observation]]":
        return lambda _: [
            Observation(value, dict(zip(metric.labels, labels, strict=True))) for labels, value in metric.read(cache)
        ]

    for metric in METRICS:
        make = meter.create_observable_counter if metric.is_counter else meter.create_observable_gauge
        make(metric.instrument, [observe(metric)], metric.unit, metric.doc)


def _missing(what: str) -> MissingExtra:
    return MissingExtra(f"{what}: pip install 'viewcache[metrics]'")


# Documentation -------------------------------------------------------------------------------------------------------

_INTRO = """\
# Metrics

What a running cache has counted since it was opened, read when somebody asks. It needs the extra `metrics`:
`pip install '.[metrics]'`. This page is generated from the table in `api/metrics/metrics.py`
(`python -m viewcache.api.metrics.metrics docs/metrics.md`).

For Prometheus, register a collector, or serve a page (on this machine only, unless you say otherwise):

```python no-run
from prometheus_client import REGISTRY
from viewcache.api import metrics

REGISTRY.register(metrics.collector(cache))  # beside metrics of your own
with metrics.serve(cache, port=9464) as endpoint:  # or by itself
    print(endpoint.url)  # http://127.0.0.1:9464/metrics
```

For OpenTelemetry, give a meter: `metrics.instrument(cache, opentelemetry.metrics.get_meter("training"))`. Readings go
wherever your SDK sends them.

The causes of `viewcache_wait_seconds_total` are those of [observing.md](observing.md#why-a-batch-was-late).

"""


def page() -> str:
    """docs/metrics.md."""
    rows = [
        f"| `{m.name}` | `{m.instrument}` | {'counter' if m.is_counter else 'gauge'} | {m.unit} | "
        f"{', '.join(f'`{label}`' for label in m.labels)} | {m.doc} |"
        for m in METRICS
    ]
    head = ["| Prometheus | OpenTelemetry | kind | unit | labels | |", "|---|---|---|---|---|---|"]
    return _INTRO + "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
