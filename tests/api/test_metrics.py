"""Metrics say what the cache knows, in the words of Prometheus and of OpenTelemetry, read by their own libraries."""

import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.faults.caches import config, encode_videos
from tests.house.tree import ROOT
from viewcache.api import metrics
from viewcache.api.metrics import METRICS
from viewcache.api.service.opening import open as open_cache
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput
from viewcache.materializer.telemetry.stalls import CAUSES

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""(name, labels) → value."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """A cache of which two batches were read, and one of them again, at rest."""
    folder = tmp_path_factory.mktemp("metrics")
    with open_cache(config(folder / "store", encode_videos(folder / "videos"))) as cache:
        for iteration in (0, 1, 1):
            cache.read("t", 0, iteration)
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
        cache.catalog.flush()
        yield cache


COSTS = ("viewcache_cpu_seconds_total", "viewcache_energy_joules_total")
"""What goes on growing while nothing is done: looking takes something too."""


def standing(values: Values) -> Values:
    """Without what grows meanwhile, which is about what the cache says now."""
    return {key: value for key, value in values.items() if key[0] not in COSTS}


def costs(values: Values) -> Values:
    """The rest."""
    return {key: value for key, value in values.items() if key[0] in COSTS}


def taken(cache: Cache) -> Values:
    """What the cache itself says that it costs, by Prometheus' names."""
    usage = cache.owner.observer.usage
    cpu_s = {(COSTS[0], frozenset({("class", kind), ("stage", s)})): each for (kind, s), each in usage.cpu_s().items()}
    return cpu_s | {(COSTS[1], frozenset({("source", source)})): each for source, each in usage.joules().items()}


def known(cache: Cache) -> Values:
    """What the cache itself says beside that, by Prometheus' names."""
    spent, dispatcher = cache.task("t").spent, cache.owner.dispatcher
    assert dispatcher is not None
    task, tier = {("task", "t")}, {("tier", "local")}
    one: dict[str, tuple[set[tuple[str, str]], float]] = {
        "viewcache_batches_total": (task, 3),
        "viewcache_hits_total": (task, spent.hits),
        "viewcache_misses_total": (task, spent.misses),
        "viewcache_rebuilds_total": (task, 0),
        "viewcache_readers_waiting": (set(), 0),
        "viewcache_store_used_bytes": (tier, cache.tier.measure()),
        "viewcache_store_reserved_bytes": (tier, 0),
        "viewcache_store_budget_bytes": (tier, 10**8),
        "viewcache_passing_used_bytes": (set(), 0),
        "viewcache_passing_budget_bytes": (set(), cache.config.cache.memory_bytes // 4),
        "viewcache_objects_passed_total": (set(), 0),
        "viewcache_passed_bytes_total": (set(), 0),
        "viewcache_store_objects": (set(), 16),
        "viewcache_jobs_total": (set(), cache.owner.observer.jobs),
        "viewcache_jobs_running": (set(), 0),
        "viewcache_jobs_died_total": (set(), 0),
        "viewcache_codec_samples_total": (set(), 0),
        "viewcache_packets_total": (set(), dispatcher.tally.frames["packets"]),
        "viewcache_frames_decoded_total": (set(), dispatcher.tally.frames["decoded"]),
        "viewcache_frames_converted_total": (set(), dispatcher.tally.frames["converted"]),
        "viewcache_pictures_loaded_total": (set(), 0),
        "viewcache_pictures_resident_total": (set(), 0),
        "viewcache_objects_made_total": (set(), 16),
        "viewcache_made_bytes_total": (set(), 16 * 4 * 3 * 16 * 16),
        "viewcache_generations_total": (task, 1),
        "viewcache_planning_seconds_total": (task, cache.owner.observer.planning_s["t"]),
        "viewcache_catalog_backlog": (set(), 0),
    }
    values = {(name, frozenset(labels)): float(value) for name, (labels, value) in one.items()}
    for cause, seconds in spent.stalls.items():
        values["viewcache_wait_seconds_total", frozenset({("task", "t"), ("cause", cause)})] = seconds
    for stage, busy_s in cache.busy_seconds().items():
        values["viewcache_worker_seconds_total", frozenset({("stage", stage)})] = busy_s
    return values


def scraped(url: str) -> Values:
    """A page of metrics, as Prometheus' own parser reads it."""
    with urllib.request.urlopen(url, timeout=10) as page:
        text = page.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_scrapes_what_the_cache_knows(cache: Cache) -> None:
    """Over HTTP, on this machine only, and the page is gone when it is closed."""
    with metrics.serve(cache, port=0) as endpoint:
        assert endpoint.url.startswith("http://127.0.0.1:")
        found = scraped(endpoint.url)
        assert standing(found) == known(cache)
        assert costs(found) == pytest.approx(taken(cache), abs=2.0)
        assert costs(found)[COSTS[0], frozenset({("class", "worker"), ("stage", "decode")})] > 0
        assert endpoint.server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(endpoint.url, timeout=10)


def test_a_registry_of_ones_own_takes_the_collector(cache: Cache) -> None:
    """Each metric is a family with its help and type, and none clashes with another."""
    registry = CollectorRegistry()
    registry.register(metrics.collector(cache))
    families = {family.name: family for family in registry.collect()}
    assert len(families) == len(METRICS)
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == ("counter" if metric.is_counter else "gauge", metric.doc)


def test_opentelemetry_reads_the_same(cache: Cache) -> None:
    """Each metric is an instrument of the given meter with its unit; counters are monotonic sums."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics.instrument(cache, provider.get_meter("test"))
    data = reader.get_metrics_data()
    assert data is not None
    found = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
    provider.shutdown()
    by_instrument = {metric.instrument: metric for metric in METRICS}
    assert len(by_instrument) == len(METRICS)
    values: Values = {}
    for name, each in found.items():
        metric = by_instrument[name]
        assert (each.unit, each.description) == (metric.unit, metric.doc)
        assert isinstance(each.data, Sum if metric.is_counter else Gauge)
        assert not isinstance(each.data, Sum) or each.data.is_monotonic
        for point in each.data.data_points:
            labels = {(label, str(value)) for label, value in (point.attributes or {}).items()}
            assert hasattr(point, "value")
            values[metric.name, frozenset(labels)] = float(point.value)
    assert standing(values) == known(cache)
    assert costs(values) == pytest.approx(taken(cache), abs=2.0)


def test_a_closed_cache_still_answers(tmp_path: Path) -> None:
    """A scrape that comes too late is no error: the last figures stay."""
    videos = encode_videos(tmp_path / "videos", 2)
    with open_cache(config(tmp_path / "store", videos, epochs=1)) as cache:
        cache.read("t", 0, 0)
    registry = CollectorRegistry()
    registry.register(metrics.collector(cache))
    assert registry.get_sample_value("viewcache_batches_total", {"task": "t"}) == 1


def test_names_are_those_of_the_field() -> None:
    """Prometheus' rules: a prefix, base units in the name, ``_total`` for what only grows; a sentence as help."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"viewcache(_[a-z]+)+", metric.name)
        base = {"s": "_seconds", "By": "_bytes", "J": "_joules", "1": ""}[metric.unit]
        assert metric.name.removesuffix("_total").endswith(base)
        assert re.fullmatch(r"[A-Z].*\.", metric.doc)


def test_the_page_is_generated() -> None:
    """docs/metrics.md has every metric, as the table has it; docs/observing.md has every cause."""
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert page == metrics.page(), "run python -m viewcache.api.metrics.metrics docs/metrics.md"
    assert all(f"| `{metric.name}` |" in page for metric in METRICS)
    observing = (ROOT / "docs" / "observing.md").read_text("utf-8")
    assert all(f"| `{cause}` |" in observing for cause in CAUSES)


def test_a_port_that_is_taken_is_said(cache: Cache) -> None:
    """With the address, the port and the reason."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            BadInput, match=rf"cannot serve metrics at 127\.0\.0\.1:{port}: .*in use; take another port"
        ):
            metrics.serve(cache, port)


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("prometheus_client", "metrics.collector(None)"),
        ("prometheus_client", "metrics.serve(None)"),
        ("opentelemetry", "metrics.instrument(None, None)"),
    ],
)
def test_without_the_extra_the_command_is_said(package: str, call: str) -> None:
    """What is missing and how to install it; the module itself needs neither library."""
    code = (
        f"import sys; sys.modules['{package}'] = None\n"
        "from viewcache.api import metrics\n"
        "from viewcache.errors import MissingExtra\n"
        f"try: {call}\n"
        "except MissingExtra as missing: print(missing)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'viewcache[metrics]'" in done.stdout
