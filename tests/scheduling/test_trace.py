"""A trace has every batch and every job with their stages, in the format that viewers read, whatever ends the run."""

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import zlib
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

import viewcache
from tests import forked
from tests.faults.caches import config
from tests.house.tree import ROOT
from tests.scheduling.harness import Harness, ScriptedPool, until
from tests.scheduling.stopped import KINDS
from tests.scheduling.trace_events import begin, check, end, inner, read, tracks
from viewcache.errors import BadInput, DatasetNotFound
from viewcache.materializer.clock import Clock
from viewcache.materializer.telemetry.trace import Trace
from viewcache.materializer.telemetry.trace_file import MOST_WAITING, TraceFile, older
from viewcache.materializer.workers.pool import Event, EventKind

STAGES = {"decode", "convert", "augment", "store", "trial", "load"}


Traced = tuple[Path, dict[str, float], list[float]]


def nothing() -> dict[str, dict[str, float]]:
    """No counters."""
    return {}


@pytest.fixture(scope="module", params=KINDS)
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Traced:
    """A trace of two epochs with a budget that holds a batch and a half; the workers' seconds; the waits of batches."""
    folder = tmp_path_factory.mktemp("traced")
    path = folder / "trace.json"
    more = {"trace": str(path), "worker_kind": request.param}
    with viewcache.open(config(folder / "store", videos, budget=142_608, **more)) as cache:
        places = [(epoch, i) for epoch in range(2) for i in range(cache.task("t").iterations(epoch))]
        batches = [cache.read("t", *place) for place in places]
        until(lambda: not cache.owner.observer.running, "all jobs to end")
        busy = cache.busy_seconds()
    return path, busy, [batch.waited_s for batch in batches]


def test_a_trace_is_what_viewers_read(traced: Traced) -> None:
    """Strictly the format; slices nest, tracks are named, counters go forward, nothing lies outside the run."""
    events = read(traced[0])
    check(events)
    run = max(event["ts"] + event.get("dur", 0) for event in events if "ts" in event)
    assert 0 <= run < 120e6
    assert len({event["pid"] for event in events}) == 1


def test_every_batch_is_there_once(traced: Traced) -> None:
    """Each read is a slice with hits, misses and causes; what it waited is the slice within it."""
    batches = tracks(read(traced[0]))["reading t"]
    found = [each for each in batches if each["name"].startswith("batch ")]
    assert [each["name"] for each in found] == ["batch 0/0", "batch 0/1", "batch 1/0", "batch 1/1"]
    for each, waited_s in zip(found, traced[2], strict=True):
        args = each["args"]
        assert args["hits"] + args["misses"] == 4
        assert args["waited_s"] == waited_s
        causes = [
            args[f"{cause}_s"] for cause in STAGES | {"queue", "room", "start", "handover"} if f"{cause}_s" in args
        ]
        loaded = sum(s["dur"] for s in inner(batches, each) if s["name"] == "load")
        assert sum(causes) * 1e6 == pytest.approx(waited_s * 1e6 + loaded, abs=5)
        waits = [s["dur"] for s in inner(batches, each) if s["name"] == "wait"]
        assert bool(waits) == bool(waited_s)


def test_stages_of_jobs_add_up_to_what_workers_reported(traced: Traced) -> None:
    """Every lap is in the trace once, within the slice of its job; their sums are the seconds that were reported.

    But for what workers waited for a core: laps have it, since that is when it was, and seconds of work have not.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for name, slices in tracks(read(traced[0])).items():
        if not name.startswith("worker "):
            continue
        jobs = [each for each in slices if "job" in each.get("args", {})]
        for lap in (each for each in slices if each not in jobs):
            assert any(begin(job) <= begin(lap) and end(lap) <= end(job) for job in jobs)
            seconds[lap["name"]] += lap["dur"] / 1e6
    assert seconds.keys() == {stage for stage, s in traced[1].items() if s}
    for stage, s in seconds.items():
        assert traced[1][stage] <= s + 1e-5
    waited = sum(seconds.values()) - sum(traced[1].values())
    assert waited < 0.9 * sum(seconds.values())


def test_evictions_plans_and_counters_are_there(traced: Traced) -> None:
    """What the dispatcher and the planner did, and how full the store was."""
    events = read(traced[0])
    found = tracks(events)
    evictions = [each for each in found["dispatcher"] if each["name"] == "evict"]
    assert sum(each["args"]["objects"] for each in evictions) > 0
    planning = [each["name"] for name, slices in found.items() if name.startswith("planning") for each in slices]
    assert planning.count("plan") == 1
    assert "decide what is kept" in planning
    counters = [event for event in events if event["ph"] == "C"]
    assert {event["name"] for event in counters} >= {"bytes", "jobs running", "readers waiting", "clips"}
    assert counters[-1]["args"].keys()
    for event in counters:
        if event["name"] == "bytes":
            assert event["args"]["used"] + event["args"]["reserved"] <= event["args"]["budget"] == 142_608


def test_objects_on_their_way_are_there(tmp_path: Path, videos: Path) -> None:
    """With a tier above the folder, what comes next goes up: each object is a slice on the track of its thread."""
    path = tmp_path / "trace.json"
    settings = config(tmp_path / "store", videos, trace=str(path))
    settings["cache"]["store"].append({"url": "memory://", "budget": 10**8})
    with viewcache.open(settings) as cache:
        cache.read("t", 0, 0)
        until(lambda: cache.tiers["memory"].used_bytes > 0, "an object to go up")
    events = read(path)
    check(events)
    moving = [each for name, slices in tracks(events).items() if name.startswith("moving in ") for each in slices]
    assert any(each["name"] == "local to memory" and each["args"]["bytes"] > 0 for each in moving)


def test_a_worker_that_dies_ends_its_slice(tmp_path: Path, store: Path, videos: Path) -> None:
    """The job's slice says that its worker died, and the repeated job has one of its own."""
    path = tmp_path / "trace.json"
    pool = ScriptedPool()
    trace = Trace(str(path), nothing)
    with Harness(store, videos, pool) as harness:
        harness.dispatcher.look_ahead([harness.active])
        job = pool.nth(0)
        trace.given(job, 4711, 0)
        trace.on_event(Event(EventKind.DIED, job, reason="killed by SIGKILL"))
        trace.given(job, 4712, 0)
    trace.close()
    events = read(path)
    check(events)
    found = tracks(events)
    assert [each["args"]["died"] for each in found["worker 4711"]] == ["killed by SIGKILL"]
    assert [each["args"]["died"] for each in found["worker 4712"]] == ["the cache was closed"]


def test_secrets_of_a_source_are_not_in_the_trace(tmp_path: Path, store: Path, videos: Path) -> None:
    """A source is shown without user, password and query."""
    path = tmp_path / "trace.json"
    trace = Trace(str(path), nothing)
    pool = ScriptedPool()
    with Harness(store, videos, pool) as harness:
        harness.dispatcher.look_ahead([harness.active])
        job = pool.nth(0)
    object.__setattr__(job, "uri", "https://user:geheim@host/v.mp4?token=geheim")
    trace.given(job, 1, 0)
    trace.close()
    assert "geheim" not in path.read_text()
    assert "https://host/v.mp4" in path.read_text()


VICTIM = """
import sys, viewcache, json
with viewcache.open(json.loads(sys.argv[1])) as cache:
    for epoch in range(2):
        for i in range(cache.task("t").iterations(epoch)):
            cache.read("t", epoch, i)
    print("read", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_killed_run_leaves_a_trace(tmp_path: Path, videos: Path, name: str) -> None:
    """After kill -9 the file lacks its closing bracket, which the format allows, and nothing else."""
    path = tmp_path / name
    settings = json.dumps(config(tmp_path / "store", videos, trace=str(path)))
    command = [sys.executable, "-c", VICTIM, settings]
    with forked.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "read\n"
        until(lambda: "batch 1/1" in written(path), "the batches to be written")
        victim.send_signal(signal.SIGKILL)
    assert victim.returncode == -signal.SIGKILL
    text = written(path)
    assert not text.rstrip().endswith("]")
    events = json.loads(text[: text.rindex("\n")].rstrip(",") + "]")  # as docs/observing.md says
    check(events)
    assert {f"batch {epoch}/{i}" for epoch in range(2) for i in range(2)} <= {event["name"] for event in events}


def written(path: Path) -> str:
    """What can be read of a file that may have no end."""
    data = path.read_bytes() if path.exists() else b""
    return (zlib.decompressobj(31).decompress(data) if path.suffix == ".gz" else data).decode()


def test_a_packed_trace_is_gzip(tmp_path: Path) -> None:
    """A finished ``.json.gz`` is a whole gzip file."""
    file = TraceFile(str(tmp_path / "t.json.gz"), nothing)
    file.instant(0, "here", {})
    file.close()
    events = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    check(events)
    assert events[-1]["name"] == "here"


def test_what_is_too_much_is_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: events beyond the bound are left out, and the trace says how many."""
    written, go_on, original = threading.Event(), threading.Event(), os.write

    def held(file: int, data: bytes) -> int:
        written.set()
        go_on.wait(20)
        return original(file, data)

    file = TraceFile(str(tmp_path / "t.json"), nothing)
    monkeypatch.setattr(os, "write", held)
    file.instant(0, "first", {})
    until(written.is_set, "the writer to be busy")
    for _ in range(MOST_WAITING + 10):
        file.instant(0, "x", {})
    go_on.set()
    file.close()
    events = read(tmp_path / "t.json")
    assert sum(event["name"] == "x" for event in events) == MOST_WAITING
    assert [event["args"]["events"] for event in events if event["name"] == "events dropped"] == [10]
    assert file.dropped == 10


def test_a_full_file_is_put_aside(tmp_path: Path) -> None:
    """There are two files at most, each a whole trace with the names of its tracks, and both are bounded."""
    path = tmp_path / "t.json"
    file = TraceFile(str(path), lambda: {"n": {"n": 1.0}}, most_bytes=20_000)
    track, begun = file.track("a", 0), time.monotonic()

    def is_written(name: str) -> bool:
        with suppress(FileNotFoundError):  # it is put aside just now
            return name in path.read_text() or name in Path(older(str(path))).read_text()
        return False

    for n in range(3000):
        at = begun + n * 1e-3
        file.slice(track, f"s{n}", at, at + 1e-3, {})
        if n % 100 == 99:
            until(lambda name=f'"s{n}"': is_written(name), "it to be written")  # type: ignore[misc]
    file.close()
    assert {each.name for each in tmp_path.iterdir()} == {"t.json", "t.older.json"}
    for each in (path, Path(older(str(path)))):
        events = read(each)
        check(events)
        assert set(tracks(events)) <= {"a"}
        assert each.stat().st_size < 60_000
    assert read(path)[-1]["ph"] in "XC"


def test_a_disk_that_is_full_ends_the_trace_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the file is a warning; nobody who tells something notices."""
    file = TraceFile(str(tmp_path / "t.json"), nothing)

    def full(_file: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    file.instant(0, "x", {})
    until(lambda: bool(file.failure), "the writer to meet the error")
    file.instant(0, "y", {})
    file.close()
    assert "No space left" in file.failure


@pytest.mark.parametrize("where", ["no/such/folder/t.json", "."])
def test_a_trace_that_cannot_be_written_is_refused(tmp_path: Path, where: str) -> None:
    """Before anything else happens, with the path and the reason."""
    with pytest.raises(BadInput, match=r"cache\.trace: cannot write .*: (No such file|Is a directory)"):
        TraceFile(str(tmp_path / where), nothing)


def test_an_opening_that_fails_ends_the_trace(tmp_path: Path) -> None:
    """No thread stays (the fixture of all tests sees to it), and the file is whole."""
    path = tmp_path / "trace.json"
    with pytest.raises(DatasetNotFound):
        viewcache.open(config(tmp_path / "store", tmp_path / "nothing", trace=str(path)))
    check(read(path))


def test_without_a_trace_no_laps_are_noted(tmp_path: Path, videos: Path) -> None:
    """What nobody looks at is not even collected, in workers or readers."""
    clock = Clock()
    clock.lap("decode")
    assert not clock.take()[1].laps
    with viewcache.open(config(tmp_path / "store", videos)) as cache:
        cache.read("t", 0, 0)
        assert not cache.owner.observer.laps
    assert not [each for each in os.listdir(tmp_path) if "trace" in each]


def test_laps_of_one_stage_are_one() -> None:
    """Neighbouring laps of a stage are joined, unless other work came between."""
    clock = Clock(laps=True)
    for stage in ("decode", "decode", "store"):
        clock.lap(stage)
    clock.skip()
    clock.lap("store")
    seconds, span = clock.take()
    assert [lap[0] for lap in span.laps] == ["decode", "store", "store"]
    assert {stage: sum(e - b for s, b, e in span.laps if s == stage) for stage in seconds} == pytest.approx(seconds)
    assert span.begun <= span.laps[0][1] <= span.laps[-1][2] <= span.ended
    assert clock.take()[0] == {}


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_replaces_nothing_but_traces(tmp_path: Path, name: str) -> None:
    """An earlier trace goes, and an empty file; other files, also in the place of the older part, links, pipes stay."""
    path = tmp_path / name
    for _ in range(2):
        trace = TraceFile(str(path), dict)
        trace.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"")
    TraceFile(str(path), dict).close()
    (tmp_path / "tsconfig.json").write_text('{"compilerOptions": {}}')
    path.unlink()
    path.symlink_to(tmp_path / "tsconfig.json")
    with pytest.raises(BadInput, match="cannot write"):
        TraceFile(str(path), dict)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BadInput, match="is no file"):
        TraceFile(str(path), dict)
    path.unlink()
    for place in (str(path), older(str(path))):
        Path(place).write_text('[\n{"name":"mine"}]')
        with pytest.raises(BadInput, match="is no trace of viewcache"):
            TraceFile(str(path), dict)
        assert Path(place).read_text() == '[\n{"name":"mine"}]'
        Path(place).unlink()
