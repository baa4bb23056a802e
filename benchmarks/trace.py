"""What looking costs: a run with a trace against one without, and what a read pays where nobody looks.

With --look FILE it says instead what a trace shows: where the workers' time went, their gaps, what readers waited for.
"""

import gzip
import json
import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import viewcache
from benchmarks.harness import ROOT, Aim, Figure, Result, compare, main
from viewcache.materializer.clock import Clock
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.telemetry.stalls import Reading
from viewcache.materializer.telemetry.trace_file import TraceFile

OFF, ON = "without", "with a trace"
BATCHES = 20_000


def bench(args: Namespace) -> Iterator[Result]:
    """Reads of all batches, cold; then the calls that every read makes."""
    if args.look:
        yield from look(args.look)
        return
    runs = {OFF: lambda: _run(args.videos, ""), ON: lambda: _run(args.videos, "trace.json")}
    yield compare("two epochs, cold", runs, baseline=OFF, args=args, aims=[Aim(ON, at_most=1.05)], measure="cpu_s")
    for title, measure, aim in (
        ("what a warm read pays for its account, untraced", _untraced_us, Aim(at_most=20.0)),
        ("an event of a trace, from a call to the file", _event_us, Aim(at_most=20.0)),
    ):
        us = [measure() for _ in range(args.repeats)]
        yield Figure(title, statistics.median(us), "µs", aim, tuple(us))


def _run(videos: Path, trace: str) -> int:
    """Read two epochs; the number of batches."""
    with tempfile.TemporaryDirectory() as folder:
        config: dict[str, Any] = {
            "cache": {"store": f"{folder}/store", "budget": "1GB", "epochs_per_generation": 2},
            "dataset": {
                "tag": "train",
                "video_dataset_path": str(videos),
                "epochs": 2,
                "sampling": {"videos_per_batch": 2, "frames_per_video": 16, "frame_stride": 2, "samples_per_video": 2},
                "augmentation": [
                    {
                        "branch_type": "single",
                        "inputs": ["frame"],
                        "outputs": ["a"],
                        "config": [{"resize": {"short_side": 256}}, {"random_crop": {"shape": [224, 224]}}],
                    }
                ],
            },
        }
        if trace:
            config["cache"]["trace"] = f"{folder}/{trace}"
        with viewcache.open(config) as cache:
            places = [(epoch, i) for epoch in range(2) for i in range(cache.task("train").iterations(epoch))]
            return sum(cache.read("train", *place).video.size > 0 for place in places)


def _untraced_us() -> float:
    """The clock, the account and the observer of one read that misses nothing, in µs."""
    observer = Observer()
    begun = time.perf_counter()
    for iteration in range(BATCHES):
        reading = Reading("train", 0, iteration, 0, time.monotonic(), Clock(laps=observer.laps))
        for stage in ("plan", "draw", "plan"):
            reading.clock.lap(stage)
        reading.clock.skip()
        reading.clock.skip()
        reading.stalls.update({"load": reading.clock.lap("load")})
        observer.read(reading)
    return (time.perf_counter() - begun) / BATCHES * 1e6


def _event_us() -> float:
    """CPU of a slice with arguments, its text and its writing, in µs."""
    with tempfile.TemporaryDirectory() as folder:
        file = TraceFile(f"{folder}/trace.json", dict)
        begun, at = time.process_time(), time.monotonic()
        for n in range(BATCHES):
            file.slice(1, "batch", at, at + 1e-3, {"epoch": 0, "iteration": n, "waited_s": 0.0})
        file.close()
        assert not file.dropped
        return (time.process_time() - begun) / BATCHES * 1e6


# What a trace shows --------------------------------------------------------------------------------------------------


def look(path: str) -> Iterator[Figure]:
    """Figures of one trace, which may have no end."""
    data = Path(path).read_bytes()
    text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
    if not text.rstrip().endswith("]"):
        text = text[: text.rindex("\n")].rstrip(",") + "]"
    events = json.loads(text)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = [(names[event["tid"]], event) for event in events if event["ph"] == "X"]
    run_s = max(event["ts"] + event["dur"] for _, event in slices) / 1e6
    yield Figure("run", run_s, "s")
    for track in sorted({name for name, _ in slices if name.startswith("worker ")}):
        yield from _worker(track, [event for name, event in slices if name == track])
    total: defaultdict[str, float] = defaultdict(float)
    for name, event in slices:
        if name.startswith("reading ") and event["name"].startswith("batch "):
            total["batches"] += event["dur"] / 1e6
            for cause, seconds in event["args"].items():
                if cause.endswith("_s") and cause != "waited_s":
                    total[f"of that, {cause.removesuffix('_s')}"] += seconds
        elif not name.startswith(("worker ", "reading ")):
            total[f"{name.split(' in ')[0]}: {event['name']}"] += event["dur"] / 1e6
    yield from (Figure(what, seconds, "s") for what, seconds in total.items())


def _worker(track: str, slices: list[dict[str, Any]]) -> Iterator[Figure]:
    laps = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in slices if "args" not in e)
    jobs = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if "args" in e)
    by_stage: defaultdict[str, float] = defaultdict(float)
    for begun, ended, stage in laps:
        by_stage[stage] += (ended - begun) / 1e6
    covered, end = 0.0, 0.0
    for begun, ended in jobs:
        covered += max(0.0, ended - max(begun, end)) / 1e6
        end = max(end, ended)
    yield Figure(f"{track}: first job begins", jobs[0][0] / 1e6, "s")
    yield Figure(f"{track}: {len(jobs)} jobs", covered, "s")
    yield from (Figure(f"{track}: {stage}", seconds, "s") for stage, seconds in sorted(by_stage.items()))
    yield Figure(f"{track}: in jobs, in no stage", covered - sum(by_stage.values()), "s")
    yield Figure(f"{track}: between jobs", (end - jobs[0][0]) / 1e6 - covered, "s")


def arguments(parser: ArgumentParser) -> None:
    """Where the videos are, or a trace to look at."""
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--look", metavar="FILE", help="say what a trace shows")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
