"""A cache that a service owns against one of this process: what attaching costs, and what it saves several jobs.

Batches are 8 clips of 32 frames of 3 x 224 x 224 (38.5 MB), all of them made, page cache warm. The service is no child
of this process: what it takes is its own report. The jobs are equal trainings in processes of their own that read flat
out.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import viewcache
from benchmarks.harness import ROOT, Aim, Figure, Result, Table, compare, main
from benchmarks.scale import link, make_clips
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.api.session.cache import Cache
from viewcache.materializer.reading.batch import Buffers

BATCH, FRAMES, SIDE = 8, 32, 224
CROPPED = [
    {
        "branch_type": "single",
        "inputs": ["frame"],
        "outputs": ["clip"],
        "config": [{"resize": {"short_side": 240}}, {"random_crop": {"shape": [SIDE, SIDE]}}],
    }
]

SMALL = [{**CROPPED[0], "config": [{"resize": {"shape": [32, 32]}}]}]

READER = """
import json, sys, time
import viewcache
begun = time.process_time()
with viewcache.open(json.loads(sys.argv[1]), service="auto", job=sys.argv[2] or None) as cache:
    seat, task = cache.task("train").sit(), cache.task("train")
    from viewcache.materializer.reading.batch import Buffers
    buffers = Buffers()
    for epoch in range(task.epochs):
        for iteration in range(task.iterations(epoch)):
            seat.read(epoch, iteration, buffers)
    memory = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"cpu_s": time.process_time() - begun, "memory_mb": memory}), flush=True)
    sys.stdin.readline()
"""


def bench(args: Namespace) -> Iterator[Result]:
    """What a read costs attached, what attaching costs, and what four jobs cost beside one."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-service-", dir=args.dir))
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        make_clips(folder / "videos", 6 * BATCH, 100)
        yield from _reads(folder, args, ends)
        yield from _fetches(folder, ends)
        yield from _opens(folder, args)
        yield from _jobs(folder, args)


def _described(folder: Path, store: str, **dataset: object) -> dict[str, object]:
    return {
        "cache": {"store": str(folder / store), "budget": "2GB", "service_idle": 60},
        "dataset": {
            "tag": "train",
            "video_dataset_path": str(folder / "videos"),
            "epochs": 2,
            "sampling": {"videos_per_batch": BATCH, "frames_per_video": FRAMES, "frame_stride": 2},
            "augmentation": CROPPED,
            **dataset,
        },
    }


def _reads(folder: Path, args: Namespace, ends: ExitStack) -> Iterator[Result]:
    own = ends.enter_context(viewcache.open(_described(folder, "own"), service="off"))
    attached: Any = ends.enter_context(viewcache.open(_described(folder, "shared"), service="auto"))
    ends.callback(stop, folder / "shared")
    assert isinstance(attached, AttachedCache)
    places = [(0, iteration) for iteration in range(own.task("train").iterations(0))]
    for cache in (own, attached):
        for place in places:
            cache.read("train", *place)
    for title, share, measure, aim in (
        ("a batch of 38.5 MB, CPU of who reads", (0, 1), "cpu_s", 1.15),
        ("one of 8 shares of it, 4.8 MB, wall", (0, BATCH), "wall_s", 1.5),
    ):
        rivals = {
            "in this process": partial(_next, own, cycle(places), share, Buffers()),
            "attached": partial(_next, attached, cycle(places), share, Buffers()),
        }
        aims = [Aim("attached", at_most=aim)]
        yield compare(title, rivals, baseline="in this process", args=args, calls=20, measure=measure, aims=aims)


def _next(
    cache: Cache | AttachedCache, places: Iterator[tuple[int, int]], share: tuple[int, int], out: Buffers
) -> None:
    cache.task("train").read(*next(places), *share, out)


def _fetches(folder: Path, ends: ExitStack) -> Iterator[Result]:
    """What the service takes while a training goes through its epochs; it reads no pixels, so the clips are small."""
    link(list((folder / "videos").iterdir()), folder / "names", 60 * BATCH)
    given = _described(
        folder,
        "fetched",
        video_dataset_path=str(folder / "names"),
        epochs=5,
        sampling={"videos_per_batch": BATCH, "frames_per_video": 4, "frame_stride": 2},
        augmentation=SMALL,
    )
    cache: Any = ends.enter_context(viewcache.open(given, service="auto"))
    ends.callback(stop, folder / "fetched")
    seat, task = cache.task("train").sit(), cache.task("train")
    places = [(epoch, iteration) for epoch in range(task.epochs) for iteration in range(task.iterations(epoch))]
    for place in places:
        seat.read(*place)
    for rate, rest_s in (("one after another", 0.0), ("200 a second", 0.005)):
        before, buffers = cache.stats().cpu_s, Buffers()
        for place in 5 * places:
            seat.read(*place, buffers)
            time.sleep(rest_s)
        taken = (cache.stats().cpu_s - before) / len(5 * places)
        yield Figure(f"service: CPU for a fetch of 8 clips, {rate}", taken * 1000, "ms", Aim(at_most=1.0))


def _opens(folder: Path, args: Namespace) -> Iterator[Result]:
    given = _described(folder, "opened")
    first: dict[str, list[float]] = {"off": [], "auto": [], "again": []}
    for _ in range(min(args.repeats, 7)):
        for mode in ("off", "auto", "again"):
            begun = time.perf_counter()
            with viewcache.open(given, service="auto" if mode == "again" else mode):
                first[mode].append(time.perf_counter() - begun)
        stop(folder / "opened")
    own, started, again = (sorted(times)[len(times) // 2] for times in first.values())
    yield Figure("first open, which starts the service", started, "s", Aim(at_most=2 * own + 0.5))
    yield Figure("the same cache opened in this process", own, "s")
    yield Figure("attaching to a service that runs", again * 1000, "ms", Aim(at_most=10.0))


def _jobs(folder: Path, args: Namespace) -> Iterator[Result]:
    """Four equal trainings in four processes against one, each with an empty store."""
    rows: dict[str, tuple[float, ...]] = {}
    for count in (1, 4):
        root = f"jobs{count}"
        given = _described(folder, root)
        processes = [_reader(given, f"job{number}") for number in range(count)]
        told = [json.loads(_line(each)) for each in processes]
        observer: Any = viewcache.open(given, service="attach")
        stats, packets = observer.stats(), observer.snapshot().work["packets"]
        observer.close()
        for each in processes:
            each.communicate("\n")
        stop(folder / root)
        clients = [float(each["cpu_s"]) for each in told]
        memory = max(float(each["memory_mb"]) for each in told)
        rows[f"{count} equal jobs"] = (
            packets,
            round(stats.cpu_s, 2),
            round(sum(clients), 2),
            round(memory),
        )
    columns = ("packets decoded", "service and workers, CPU s", "clients, CPU s", "a client's peak, MB")
    yield Table("equal jobs in processes of their own, 2 epochs", columns, rows)
    one, four = (row[0] for row in rows.values())
    yield Figure("packets for 4 equal jobs ÷ for 1", four / one, "", Aim(at_most=1.1))


def _reader(given: Mapping[str, object], job: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", READER, json.dumps(given), job],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="where the files are written (default: the system's temporary folder)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
