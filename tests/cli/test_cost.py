"""What status says of core seconds, energy and decoding on demand: of rows that a test wrote, and of a real cache."""

from pathlib import Path

import pytest

import viewcache
from tests.catalog.conftest import catalog, duckdb_template, postgres_template, server, where
from tests.catalog.samples import select, task, video
from tests.cli.site import Site
from tests.clips import encode
from tests.tiny import config
from viewcache.api.cli.cost import cost_lines
from viewcache.api.queries.ask import question
from viewcache.api.queries.status import PARTS, Status, status
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow, IoSampleRow, UsageRow

__all__ = ["catalog", "duckdb_template", "postgres_template", "server", "where"]

SINCE = 1000.5
FRAME = 640 * 480 * 3 // 2
"""Bytes of a decoded frame."""


def used(kind: str, stage: str, cpu_s: float | None, joules: float, source: str = "estimate") -> UsageRow:
    """A row of usage."""
    return UsageRow(kind, stage, cpu_s, None if cpu_s is None else 2 * cpu_s, joules, source, SINCE)


def test_usage_adds_up(catalog: Catalog) -> None:
    """Rows of one class and stage are one, however often they are written; what was not measured stays so."""
    for cpu_s in (1.0, 2.0):
        catalog.add_usage([used("worker", "decode", cpu_s, 5 * cpu_s), used("machine", "dram", None, 7.0, "rapl")])
        catalog.add_usage([used("worker", "decode", 0.5, 2.5)])
        catalog.flush()
    assert select(catalog, "select class, stage, cpu_s, wall_s, joules, source, since_s from usage order by class") == [
        ("machine", "dram", None, None, 14.0, "rapl", SINCE),
        ("worker", "decode", 4.0, 8.0, 20.0, "estimate", SINCE),
    ]


def clips_read(opened: Catalog, *, definition: str = "text", decoded: int = 1 << 30) -> list[tuple[object, ...]]:
    """What status says of a task with so many decoded bytes, of which 12 clips were read since work is counted."""
    dataset = opened.register_dataset("/videos")
    opened.upsert_videos(
        dataset,
        [
            video(0, frames=100, keyframes=10, width=640, height=480),
            video(1, frames=40, keyframes=1, width=640, height=480),
            video(2, frames=None),  # nobody has looked into it
        ],
    )
    row = opened.ensure_task(task(dataset, definition=definition))
    opened.add_usage([used("worker", "decode", 1.0, 5.0)])
    opened.add_io_samples(
        [
            IoSampleRow("decode", 20, "raw", "local", 10, 1e-9 * decoded, decoded),
            IoSampleRow("convert", 20, "raw", "local", 10, 2.0, 1 << 30),
            IoSampleRow("augment", 20, "raw", "local", 100, 1.0, 1 << 30),
        ]
    )
    for at_s, kind, count in ((900.0, "miss", 1000), (1000.0, "hit", 8), (1001.0, "miss", 4), (1001.0, "stall", 99)):
        opened.add_events([EventRow(kind, row.task_id, count=count, at_s=at_s)])
    opened.flush()
    return select(opened, question("status_on_demand"))


def test_decoding_on_demand_is_counted_by_measured_rates(catalog: Catalog) -> None:
    """8 frames with stride 2: half a group of pictures before, and 15 from the first to the last."""
    ((name, clips, each_s, seconds),) = clips_read(catalog)
    packets = ((10 - 1) / 2 + 15 + (40 - 1) / 2 + 15) / 2
    expected = FRAME * (packets * 1e-9 + 8 * 2.0 / (1 << 30)) + 0.01
    assert (name, clips) == ("train", 12)
    assert each_s == pytest.approx(expected)
    assert seconds == pytest.approx(12 * expected)


def test_audio_is_no_clip(catalog: Catalog) -> None:
    """Reading counts clips, whether they have audio or not."""
    assert clips_read(catalog, definition='{"audio":{"rate":16000}}')[0][1] == 12


def test_without_rates_nothing_is_guessed(catalog: Catalog) -> None:
    """Where little was decoded, status says nothing of decoding on demand."""
    assert clips_read(catalog, decoded=1 << 25) == []


def told(usage: list[tuple[str, str, float | None, float, str]], on_demand_s: float | None = None) -> Status:
    """A status with such rows."""
    parts: dict[str, list[dict[str, object]]] = {name: [] for name in PARTS}
    names = ("class", "stage", "cpu_s", "joules", "source")
    parts["usage"] = [{**dict(zip(names, row, strict=True)), "since_s": SINCE} for row in usage]
    parts["on_demand"] = [] if on_demand_s is None else [{"task": "t", "clips": 9, "seconds": on_demand_s}]
    return Status(parts, "", counts_memory=True)


WORK: list[tuple[str, str, float | None, float, str]] = [
    ("worker", "decode", 410.0, 2050.0, "estimate"),
    ("worker", "convert", 130.0, 650.0, "estimate"),
    ("worker", "store", 90.0, 450.0, "estimate"),
    ("worker", "other", 60.0, 300.0, "estimate"),
    ("reader", "load", 2.0, 10.0, "estimate"),
    ("planner", "catalog", 120.0, 600.0, "estimate"),
]


def test_words() -> None:
    """The passage of status: what was taken, what it would have been without a cache, energy and where that is from."""
    assert cost_lines(told(WORK, 5900.0)) == [
        "CPU 13 min 32 s (decoding 6 min 50 s, converting 2 min 10 s, storing 90 s, workers beside that 60 s, reading "
        "2 s, planning and serving 2 min 0 s)",
        "decoding each clip on demand would have taken about 1 h 38 min, 7.3 times as much",
        "energy about 4.1 kJ (5 W a core; no meter on this machine)",
    ]


def test_words_of_what_is_not_the_caches_own() -> None:
    """Training in the process that opened the cache stands beside it, a meter's joules too; no rates, no comparison."""
    more = [("reader", "other", 30.0, 150.0, "estimate"), ("machine", "dram", None, 2e4, "rapl")]
    lines = cost_lines(told([*WORK, *more, ("machine", "package", None, 5e5, "rapl")]))
    assert len(lines) == 2
    assert lines[0].endswith("); what opened the cache has taken 30 s more, its own work included")
    assert lines[1] == "energy about 4.1 kJ (5 W a core); by its meters (RAPL) the whole machine took 520 kJ meanwhile"
    assert cost_lines(told([])) == []
    assert told([]).cost() is None


def test_status_of_a_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both forms have it, and decoding on demand is what the planner says that the same clips take alone."""
    (tmp_path / "videos").mkdir()
    for k in range(4):
        encode(tmp_path / "videos" / f"v{k}.mp4", frames=200, size=(480, 360), gop=40)
    described = config(
        tmp_path / "store", tmp_path / "videos", cache={"budget": "500MB"}, sampling={"samples_per_video": 4}, epochs=2
    )
    with viewcache.open(described) as cache:
        assert isinstance(cache, Cache)
        for epoch, iteration in ((0, 0), (0, 1), (1, 0), (1, 1)):
            cache.read("train", epoch, iteration)
        while_open = status(str(tmp_path / "store"))
        alone = cache.task("train").task.summary(0)
    found = status(str(tmp_path / "store"))
    (row,) = found.parts["on_demand"]
    at_end, meanwhile = found.cost(), while_open.cost()
    assert at_end is not None
    assert meanwhile is not None  # who looks while it is open is told the cost of what has been read by then
    assert meanwhile.cpu_s > 0.5 * at_end.cpu_s
    assert row["clips"] == 32
    with Catalog.open(tmp_path / "store", create=False, writable=False) as closed:
        rates = {each.op: each for each in closed.load_io_samples()}
    packets = alone.packets_on_demand / alone.uses
    decoding = packets * 480 * 360 * 1.5 * rates["decode"].seconds / rates["decode"].bytes
    assert float(str(row["seconds_each"])) > decoding * 0.8
    assert float(str(row["seconds_each"])) < decoding * 1.2 + 4 * rates["convert"].seconds / rates["convert"].n + 0.01
    site, store = Site(tmp_path, capsys), str(tmp_path / "store")
    text = site.run("status", store)
    assert "decoding each clip on demand would have taken about " in text
    assert "no meter on this machine" in text or "RAPL" in text
    told = site.json("status", store)
    assert told["cost"]["times"] == pytest.approx(told["cost"]["on_demand_s"] / told["cost"]["cpu_s"])
    assert told["cost"]["core_w"] == pytest.approx(5)
    assert {each["class"] for each in told["usage"]} >= {"worker", "reader", "planner"}
    assert told["on_demand"][0]["clips"] == 32
