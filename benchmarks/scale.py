"""What a dataset of many videos takes: to open it first, to get a batch, to open it again; seconds, bytes and memory.

Made-up clips lie under many names (hard links of 50 different ones), so that every file is opened and read as a file of
its own. Each size is measured in processes of their own: their peak memory is what the owner of a cache needs.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import viewcache
from benchmarks.harness import ROOT, Aim, Figure, Result, Table, main

DISTINCT = 50
FRAMES = 250
"""Of a clip: ten seconds, as in Kinetics-400."""
TASKS = 4
"""Over the same folder, where several are opened."""
STEPS = ("first open", "open again", "open again, 4 tasks")


def bench(args: Namespace) -> Iterator[Result]:
    """Every size: opened first, opened again, and opened again by several tasks."""
    with tempfile.TemporaryDirectory(prefix="viewcache-scale-", dir=args.folder) as folder:
        clips = _make_clips(Path(folder) / "clips", args.distinct, args.frames)
        rows: dict[str, tuple[float, ...]] = {}
        for count in args.videos:
            at = Path(folder) / str(count)
            _link(clips, at / "videos", count)
            found = {step: _run(step, at, args.probe) for step in STEPS}
            rows |= {f"{count:,}, {step}": _row(figures, count) for step, figures in found.items()}
            again, several = (found[step]["open_cpu_s"] for step in STEPS[1:])
            yield Figure(f"{count:,} videos: {TASKS} tasks opened again ÷ one", several / again, "", Aim(at_most=1.2))
            yield Figure(
                f"{count:,} videos: first batch after open began", found[STEPS[0]]["batch_s"], "s", Aim(at_most=10)
            )
        kilobytes = statistics.mean(clip.stat().st_size for clip in clips) / 1000
        yield Table(
            f"opening a dataset of clips of {kilobytes:.0f} kB",
            ("open, s", "first batch, s", "owner, CPU s", "others, CPU s", "read, kB a file",
             "owner, peak MB", "others, peak MB", "catalog, MB"),
            rows,
        )  # fmt: skip


def _row(found: dict[str, float], count: int) -> tuple[float, ...]:
    return (
        round(found["open_s"], 2),
        round(found["batch_s"], 2),
        round(found["open_cpu_s"], 2),
        round(found["others_cpu_s"], 2),
        round(found["read_bytes"] / count / 1000, 1),
        round(found["peak_mb"]),
        round(found["others_peak_mb"]),
        round(found["catalog_mb"], 1),
    )


def _run(step: str, folder: Path, probe: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", "--one", step, str(folder), probe]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(step: str, folder: Path, probe: str) -> dict[str, float]:
    """Open the cache in ``folder``, read a batch, close it, and say what that took."""
    tasks = TASKS if step == STEPS[2] else 1
    watch = _Children()
    read_before, begun = _bytes_read(), time.perf_counter()
    with watch, viewcache.open(_config(folder, tasks, probe)) as cache:
        opened, cpu = time.perf_counter(), time.process_time()
        read = _bytes_read() - read_before
        cache.read("t0", 0, 0)
        first = time.perf_counter()
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    store = folder / "cache"
    return {
        "open_s": opened - begun,
        "batch_s": first - begun,
        "open_cpu_s": cpu,
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
            for child in Path(f"/proc/{me}/task").glob("*/children"):
                for pid in child.read_text().split():
                    try:
                        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
                    except OSError:
                        continue  # it ended meanwhile
                    pages += resident - shared
            self.peak_mb = max(self.peak_mb, pages * page / 2**20)


def _bytes_read() -> int:
    """By this process and the children that it has waited for."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def _config(folder: Path, tasks: int, probe: str) -> dict[str, Any]:
    def task(number: int) -> dict[str, Any]:
        return {
            "tag": f"t{number}",
            "video_dataset_path": str(folder / "videos"),
            "epochs": 10,
            "probe": probe,
            "sampling": {"videos_per_batch": 8, "frames_per_video": 8, "frame_stride": 2},
            "augmentation": [
                {
                    "branch_type": "single",
                    "inputs": ["frame"],
                    "outputs": ["a"],
                    "config": [{"resize": {"shape": [112, 112]}}],
                }
            ],
        }

    cache = {"store": str(folder / "cache"), "budget": "1GB", "memory": "2GB"}
    return {"cache": cache, "dataset": [task(number) for number in range(tasks)]}


def _make_clips(folder: Path, count: int, frames: int) -> list[Path]:
    """Clips of a moving picture, 320x240, with a key frame every two seconds."""
    import av
    import numpy as np

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


def _link(clips: list[Path], folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        os.link(clips[number % len(clips)], folder / f"v{number:07}.mp4")


def arguments(parser: ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--videos", type=int, nargs="+", default=[1_000, 10_000, 50_000], help="names of clips")
    parser.add_argument("--distinct", type=int, default=DISTINCT, help=f"clips that are made (default {DISTINCT})")
    parser.add_argument("--frames", type=int, default=FRAMES, help=f"of each clip (default {FRAMES})")
    parser.add_argument("--probe", default="lazy", help="lazy or full (default lazy)")
    parser.add_argument("--folder", help="where clips and caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], Path(sys.argv[3]), sys.argv[4])))
    else:
        main(__doc__, bench, arguments)
