"""What a running cache counts, as one table of metrics: for Prometheus, for OpenTelemetry, for a trace's counters.

The table names each metric once; collector, instruments and docs/metrics.md come from it. Nothing is counted for it: it
reads what the cache's parts know anyway, when somebody asks. The libraries are the extra ``metrics``.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from viewcache.errors import BadInput, MissingExtra
from viewcache.materializer.telemetry.snapshot import Snapshot

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client.registry import Collector

__all__ = ["METRICS", "Counted", "Endpoint", "Metric", "collector", "instrument", "page", "serve"]

Values = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels, and what was counted for them."""


class Counted(Protocol):
    """What has counters: an open `Cache`."""

    def snapshot(self) -> Snapshot:
        """All of them, now."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is counted."""

    name: str
    """As Prometheus has it; a counter's name ends in ``_total``."""
    doc: str
    read: Callable[[Snapshot], Values]
    labels: tuple[str, ...] = ()
    unit: str = "1"
    """``s``, ``By`` (bytes), ``J`` or ``1`` (a number of things)."""

    @property
    def is_counter(self) -> bool:
        """Whether it only grows while a cache is open; else it is a gauge."""
        return self.name.endswith("_total")

    @property
    def instrument(self) -> str:
        """Its name as an OpenTelemetry instrument, whose unit is said apart."""
        name = self.name.removesuffix("_total").removesuffix("_seconds").removesuffix("_bytes").removesuffix("_joules")
        return name.replace("viewcache_", "viewcache.")


def _of_tasks(name: str) -> Callable[[Snapshot], Values]:
    """A number of `TaskCounts`, for each task."""
    return lambda now: [((task,), getattr(counts, name)) for task, counts in now.tasks.items()]


def _stalls(now: Snapshot) -> Values:
    return [((task, cause), seconds) for task, counts in now.tasks.items() for cause, seconds in counts.stalls.items()]


def _tier(name: str) -> Callable[[Snapshot], Values]:
    """A number of `TierBytes`, for each tier."""
    return lambda now: [((tier,), getattr(held, name)) for tier, held in now.tiers.items()]


def _work(name: str) -> Callable[[Snapshot], Values]:
    """A number of what the workers did."""
    return lambda now: [((), now.work.get(name, 0))]


def _by_label(name: str) -> Callable[[Snapshot], Values]:
    """What is counted by one label."""
    return lambda now: [((label,), value) for label, value in getattr(now, name).items()]


def _one(name: str) -> Callable[[Snapshot], Values]:
    """A number without labels."""
    return lambda now: [((), getattr(now, name))]


METRICS = (
    Metric("viewcache_batches_total", "Batches that were read.", _of_tasks("batches"), ("task",)),
    Metric("viewcache_wait_seconds_total", "Seconds of reads by cause.", _stalls, ("task", "cause"), "s"),
    Metric(
        "viewcache_hits_total",
        "Clips that were there, with their audio, when they were asked for.",
        _of_tasks("hits"),
        ("task",),
    ),
    Metric("viewcache_misses_total", "Clips that were not.", _of_tasks("misses"), ("task",)),
    Metric(
        "viewcache_rebuilds_total",
        "Clips and blocks whose stored bytes were damaged; of kept pictures see evictions, reason `rebuild`.",
        _of_tasks("rebuilds"),
        ("task",),
    ),
    Metric("viewcache_readers_waiting", "Readers that wait for clips now.", _one("readers_waiting")),
    Metric("viewcache_store_used_bytes", "Bytes of the objects in a tier.", _tier("used"), ("tier",), "By"),
    Metric("viewcache_store_reserved_bytes", "Bytes promised to jobs.", _tier("reserved"), ("tier",), "By"),
    Metric("viewcache_store_budget_bytes", "Bytes that a tier may take.", _tier("budget"), ("tier",), "By"),
    Metric("viewcache_store_objects", "Objects in the store.", _one("objects")),
    Metric(
        "viewcache_passing_used_bytes",
        "Memory that clips take on their way from workers to readers, with places that wait for a clip.",
        lambda now: [((), now.passing.used + now.passing.reserved)],
        (),
        "By",
    ),
    Metric(
        "viewcache_passing_budget_bytes",
        "Memory that such clips may take: a quarter of `cache.memory`.",
        lambda now: [((), now.passing.budget)],
        (),
        "By",
    ),
    Metric(
        "viewcache_objects_passed_total",
        "Objects of those made that went to their reader through memory and were never stored.",
        _work("passed"),
    ),
    Metric("viewcache_passed_bytes_total", "Raw bytes of these.", _work("passed_bytes"), (), "By"),
    Metric(
        "viewcache_evictions_total",
        "Objects that left a tier: `evict` for room or of no use any more, `rebuild` for damage.",
        lambda now: now.evictions.items(),
        ("tier", "reason"),
    ),
    Metric(
        "viewcache_worker_seconds_total",
        "Seconds that workers were busy, by stage.",
        _by_label("worker_seconds"),
        ("stage",),
        "s",
    ),
    Metric(
        "viewcache_cpu_seconds_total",
        "Core seconds of the cache's processes, by class and stage; see the relation `usage`.",
        lambda now: now.cpu_s.items(),
        ("class", "stage"),
        "s",
    ),
    Metric(
        "viewcache_energy_joules_total",
        "Energy: `estimate` of the cache by its core seconds, `rapl` of the whole machine where it has meters.",
        _by_label("joules"),
        ("source",),
        "J",
    ),
    Metric("viewcache_jobs_total", "Jobs that workers were given.", _one("jobs")),
    Metric("viewcache_jobs_running", "Jobs that workers have now.", _one("jobs_running")),
    Metric("viewcache_jobs_died_total", "Jobs whose worker died.", _one("jobs_died")),
    Metric("viewcache_packets_total", "Packets that were decoded.", _work("packets")),
    Metric("viewcache_frames_decoded_total", "Frames that came out of decoders.", _work("decoded")),
    Metric("viewcache_frames_converted_total", "Conversions of frames to RGB.", _work("converted")),
    Metric("viewcache_pictures_loaded_total", "Kept pictures that workers read and need not decode.", _work("loaded")),
    Metric("viewcache_codec_samples_total", "Samples packed to choose the codec of an object.", _work("sampled")),
    Metric("viewcache_pictures_resident_total", "Of these, pictures that stay in memory.", _work("resident")),
    Metric("viewcache_objects_made_total", "Objects that were made.", _work("objects")),
    Metric("viewcache_made_bytes_total", "Raw bytes of the objects that were made.", _work("object_bytes"), (), "By"),
    Metric(
        "viewcache_generations_total",
        "Generations that were planned.",
        _by_label("generations"),
        ("task",),
    ),
    Metric(
        "viewcache_planning_seconds_total",
        "Seconds of planning generations.",
        _by_label("planning_s"),
        ("task",),
        "s",
    ),
    Metric(
        "viewcache_catalog_backlog",
        "Small changes that wait to be committed to the catalog.",
        _one("catalog_backlog"),
    ),
)


# Prometheus ----------------------------------------------------------------------------------------------------------


def collector(cache: Counted) -> "Collector":
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
            now = cache.snapshot()
            for metric in METRICS:
                kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                family = kind(metric.name, metric.doc, labels=metric.labels)
                for labels, value in metric.read(now):
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


def serve(cache: Counted, port: int = 9464, address: str = "127.0.0.1") -> Endpoint:
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


def instrument(cache: Counted, meter: "Meter") -> None:
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
            Observation(value, dict(zip(metric.labels, labels, strict=True)))
            for labels, value in metric.read(cache.snapshot())
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
