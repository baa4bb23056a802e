"""What a dataset of many videos takes: seconds, bytes and memory to open it, to choose what is kept, and to read it.

Made-up clips lie under many names (hard links of 50 different ones), so that every file is opened and read as a file of
its own. Each size is measured in processes of their own: their peak memory is what the owner of a cache needs.
"""

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import viewcache
from benchmarks.harness import ROOT, Aim, Figure, Result, Table, main
from benchmarks.invented import index_of, plan_of, task_of, videos_of
from tests.servers.seaweed import connected, make_bucket, serve
from viewcache.materializer.choices import KeepRule
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.retention.chosen import KeepSettings, choose
from viewcache.materializer.retention.ways import ToCome

STATED = 50_000
"""Videos for which the aims of memory and of choosing are stated."""
DISTINCT = 50
FRAMES = 250
"""Of a clip: ten seconds, as in Kinetics-400."""
TASKS = 4
"""Over the same folder, where several are opened."""
STEPS = ("first open", "open again", "open again, 4 tasks")
SEVERAL = "first open, 4 tasks"
WARM_VIDEOS = 10_000
"""Of which all clips are made, and then read in random order."""
SMALL = 48
"""Pixels of a side of the clips that are read."""
SHORT = 25
"""Frames of a clip in a bucket."""
BUCKET = "dataset"
LEAN = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""Allocators that keep no free memory: Arrow takes its own from the C library, which never waits to give it back."""
COLUMNS = (
    "open, s", "first batch, s", "all planned, s", "owner till then, CPU s", "others, CPU s", "read, kB a file",
    "owner, peak MB", "others, peak MB", "catalog, MB",
)  # fmt: skip


def bench(args: Namespace) -> Iterator[Result]:
    """Every size: opened first, opened again, and opened again by several tasks."""
    with tempfile.TemporaryDirectory(prefix="viewcache-scale-", dir=args.folder) as folder:
        clips = make_clips(Path(folder) / "clips", args.distinct, args.frames)
        rows: dict[str, tuple[float, ...]] = {}
        for count in args.videos:
            at = Path(folder) / str(count)
            link(clips, at / "videos", count)
            found = {step: _run(step, at, args.probe) for step in STEPS}
            rows |= {f"{count:,}, {step}": _row(figures, count) for step, figures in found.items()}
            most, choosing = (Aim(at_most=each) if count <= STATED else None for each in (500, 1))
            again, several = (found[step]["open_cpu_s"] for step in STEPS[1:])
            yield Figure(f"{count:,} videos: {TASKS} tasks opened again ÷ one", several / again, "", Aim(at_most=1.2))
            yield Figure(
                f"{count:,} videos: first batch after open began", found[STEPS[0]]["batch_s"], "s", Aim(at_most=10)
            )
            yield Figure(f"{count:,} videos: choosing what is kept, CPU", _choosing_s(count), "s", choosing)
            shutil.rmtree(at / "cache")
            together = _run(SEVERAL, at, args.probe)
            rows[f"{count:,}, {SEVERAL}"] = _row(together, count)
            title = f"{count:,} videos: first batch after open began, {TASKS} tasks that draw together"
            yield Figure(title, together["batch_s"], "s", Aim(at_most=10))
            shutil.rmtree(at / "cache")
            with patch.dict(os.environ, LEAN):
                lean = _run(STEPS[0], at, args.probe)["peak_mb"]
            title = f"{count:,} videos: owner's peak memory"
            yield Figure(title, found[STEPS[0]]["peak_mb"], "MB", most)
            yield Figure(f"{title}, {' '.join(map('='.join, LEAN.items()))}", lean, "MB", most)
        if args.remote:
            yield from _remote(Path(folder), args)
        yield from warm_batches(Path(folder) / "warm", clips, args.warm_videos, args.probe)
        kilobytes = statistics.mean(clip.stat().st_size for clip in clips) / 1000
        yield Table(f"opening a dataset of clips of {kilobytes:.0f} kB", COLUMNS, rows)


def warm_batches(folder: Path, clips: list[Path], count: int, probe: str = "lazy") -> Iterator[Figure]:
    """What it takes to read batches of so many videos in random order, all of which are made."""
    link(clips, folder / "videos", count)
    warm = _run("warm", folder, probe)
    what = f"a warm batch of 8 small clips, {count:,} videos"
    yield Figure(f"{what}: reader's CPU", warm["reader_ms"], "ms", Aim(at_most=1.5))
    yield Figure(f"{what}: catalog writer's CPU", warm["writer_ms"], "ms", Aim(at_most=0.5))


def _row(found: dict[str, float], count: int) -> tuple[float, ...]:
    return (
        round(found["open_s"], 2),
        round(found["batch_s"], 2),
        round(found["planned_s"], 2),
        round(found["owner_cpu_s"], 2),
        round(found["others_cpu_s"], 2),
        round(found["read_bytes"] / count / 1000, 1),
        round(found["peak_mb"]),
        round(found["others_peak_mb"]),
        round(found["catalog_mb"], 1),
    )


def _remote(folder: Path, args: Namespace) -> Iterator[Result]:
    """The same for a bucket: short clips, since an S3 server on this machine has to keep as many as there are names."""
    clips = [each.read_bytes() for each in make_clips(folder / "short", args.distinct, SHORT)]
    with serve(folder / "server") as server, patch.dict(os.environ, server.environment()):
        make_bucket(server, BUCKET)
        with connected(server) as client:
            for number in range(args.remote):
                body = clips[number % len(clips)]
                client.put_object(Bucket=BUCKET, Key=f"videos/v{number:07}.mp4", Body=body)
        at, rows = folder / "remote", {}
        for step in STEPS[:2]:
            found = _run(step, at, args.probe, f"s3://{BUCKET}/videos")
            rows[f"{args.remote:,}, {step}"] = _row(found, args.remote)
        kilobytes = statistics.mean(map(len, clips)) / 1000
        yield Table(f"opening a bucket of clips of {kilobytes:.0f} kB", COLUMNS, rows)


def _run(step: str, folder: Path, probe: str, videos: str = "") -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", "--one", step, str(folder), probe, videos]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _choosing_s(count: int) -> float:
    """CPU seconds for one decision under a budget that holds a tenth of five epochs' clips."""
    index = index_of(FRAMES, 50, height=240, width=320)
    plan = plan_of(task_of("t", 8, 2), videos_of(count, frames=FRAMES, height=240, width=320), epochs=5)
    nothing = np.zeros(len(plan), bool)
    settings = KeepSettings(len(plan) * plan.bound // 10, KeepRule.CHEAPEST, "auto", 1 << 30)
    begun = time.process_time()
    choose([ToCome(plan, lambda _: index, ~nothing, nothing)], CostModel(), settings, 0)
    return time.process_time() - begun


def measure_warm(folder: Path, probe: str) -> dict[str, float]:
    """Make all clips of one epoch, then read their batches in random order from another cache object."""
    config = _config(folder, 1, probe, side=SMALL, epochs=1)
    with viewcache.open(config) as cache:
        batches = len(list((folder / "videos").iterdir())) // 8
        for number in range(batches):
            cache.read("t0", 0, number)
    found: dict[str, float] = {}

    def read(cache: viewcache.Cache) -> None:
        order = random.Random(0).choices(range(batches), k=2000)
        for number in order[:100]:
            cache.read("t0", 0, number)
        before = _thread_ms()
        for number in order:
            cache.read("t0", 0, number)
        after = _thread_ms()
        for name, thread in (("reader_ms", "reader"), ("writer_ms", "viewcache-catalog-writer")):
            found[name] = (after[thread] - before[thread]) / len(order)

    with viewcache.open(config) as cache:
        reader = threading.Thread(target=read, args=(cache,), name="reader")
        reader.start()
        reader.join()
    return found


def _thread_ms() -> dict[str, float]:
    """CPU milliseconds of this process's threads so far, by name."""
    tick, found = 1000 / os.sysconf("SC_CLK_TCK"), {}
    for thread in threading.enumerate():
        fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
        found[thread.name] = tick * (int(fields[11]) + int(fields[12]))
    return found


def measure(step: str, folder: Path, probe: str, videos: str) -> dict[str, float]:
    """Open the cache in ``folder``, read a batch, wait until all is planned, close it, and say what that took."""
    tasks = TASKS if step in (STEPS[2], SEVERAL) else 1
    watch = _Children()
    begun = time.perf_counter()
    with watch:
        with viewcache.open(_config(folder, tasks, probe, videos=videos)) as cache:
            opened, opened_cpu = time.perf_counter(), time.process_time()
            cache.read("t0", 0, 0)
            first = time.perf_counter()
            for task in cache.tasks:
                cache.task(task).task.generation(0)
            planned, planned_cpu = time.perf_counter(), time.process_time()
        read = _bytes_read()  # by processes that have ended too
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    store = folder / "cache"
    return {
        "open_s": opened - begun,
        "batch_s": first - begun,
        "planned_s": planned - begun,
        "open_cpu_s": opened_cpu,
        "owner_cpu_s": planned_cpu,
        "others_cpu_s": reaped.ru_utime + reaped.ru_stime,
        "read_bytes": read,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "others_peak_mb": watch.peak_mb,
        "catalog_mb": sum(each.stat().st_size for each in store.glob("catalog.*") if each.name != "catalog.reserve")
        / 2**20,
    }


class _Children(threading.Thread):
    """Watches the memory of this process's children, all together."""

    peak_mb = 0.0

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Look ten times a second."""
        me, page = os.getpid(), os.sysconf("SC_PAGESIZE")
        while not self._over.wait(0.1):
            pages = 0
            for thread in Path(f"/proc/{me}/task").iterdir():
                with suppress(OSError):  # a thread or a process that ended meanwhile
                    for pid in (thread / "children").read_text().split():
                        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
                        pages += resident - shared
            self.peak_mb = max(self.peak_mb, pages * page / 2**20)


def _bytes_read() -> int:
    """By this process and the children that it has waited for."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def _config(
    folder: Path, tasks: int, probe: str, side: int = 112, epochs: int = 10, videos: str = ""
) -> dict[str, Any]:
    def task(number: int) -> dict[str, Any]:
        return {
            "tag": f"t{number}",
            "video_dataset_path": videos or str(folder / "videos"),
            "epochs": epochs,
            "probe": probe,
            "sampling": {"videos_per_batch": 8, "frames_per_video": 8, "frame_stride": 2},
            "augmentation": [
                {
                    "branch_type": "single",
                    "inputs": ["frame"],
                    "outputs": ["a"],
                    "config": [{"resize": {"shape": [side, side]}}],
                }
            ],
        }

    cache = {"store": str(folder / "cache"), "budget": "1GB", "memory": "2GB"}
    return {"cache": cache, "dataset": [task(number) for number in range(tasks)]}


def make_clips(folder: Path, count: int, frames: int) -> list[Path]:
    """Clips of a moving picture, 320x240, with a key frame every two seconds."""
    import av

    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    paths = [folder / f"{number}.mp4" for number in range(count)]
    for path in paths:
        scene = random.integers(0, 255, (24 + frames // 8, 32 + frames // 8, 3), np.uint8).repeat(10, 0).repeat(10, 1)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=25)
            stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
            stream.options = {"preset": "ultrafast", "g": "50", "crf": "30"}
            for t in range(frames):
                picture = np.ascontiguousarray(scene[t : t + 240, t : t + 320])
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
            container.mux(stream.encode(None))
    return paths


def link(clips: list[Path], folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        os.link(clips[number % len(clips)], folder / f"v{number:07}.mp4")


def arguments(parser: ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--videos", type=int, nargs="+", default=[1_000, 10_000, 50_000], help="names of clips")
    parser.add_argument("--distinct", type=int, default=DISTINCT, help=f"clips that are made (default {DISTINCT})")
    parser.add_argument("--frames", type=int, default=FRAMES, help=f"of each clip (default {FRAMES})")
    parser.add_argument("--warm-videos", type=int, default=WARM_VIDEOS, help=f"all made (default {WARM_VIDEOS:,})")
    parser.add_argument("--remote", type=int, default=0, help="clips in a bucket, of an S3 server here (default: none)")
    parser.add_argument("--probe", default="lazy", help="lazy or full (default lazy)")
    parser.add_argument("--folder", help="where clips and caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        step, at, how, where = sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5]
        print(json.dumps(measure_warm(at, how) if step == "warm" else measure(step, at, how, where)))
    else:
        main(__doc__, bench, arguments)
