"""What a dataset that grows costs: listing it again for a generation, and each epoch as a generation of its own.

Made-up clips lie under many names, as in ``benchmarks.scale``. Seconds are CPU of the whole process family, so that the
process that reads the headers of new files counts.
"""

import os
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import viewcache
from benchmarks.harness import Figure, Result, Stopwatch, Table, main
from benchmarks.scale import make_clips
from viewcache.api.config.load import load
from viewcache.catalog import Catalog
from viewcache.materializer.tasks.opening import open_task

LONG_AGO_S = 10_000
"""Age of the clips: none of them is taken for one that is being written."""
K = 5
COLUMNS = ("nothing new, CPU ms", "some new, CPU ms", "nothing new, wall ms", "some new, wall ms")


def bench(args: Namespace) -> Iterator[Result]:
    """Every size, then both ways to join."""
    with tempfile.TemporaryDirectory(prefix="viewcache-streaming-", dir=args.folder) as folder:
        clips = make_clips(Path(folder) / "clips", args.distinct, args.frames)
        for each in clips:
            at = time.time() - LONG_AGO_S
            os.utime(each, (at, at))
        rows = {f"{count:,} videos": _listed(clips, Path(folder) / str(count), count, args) for count in args.videos}
        yield Table(f"A generation drawn after the first, with {args.new} new videos or none", COLUMNS, rows)
        packets = {join: _packets(clips, Path(folder) / join, join) for join in ("generation", "epoch")}
        ratio = packets["epoch"] / packets["generation"]
        yield Figure(f"packets decoded in {2 * K} epochs: join: epoch ÷ generation, of {K} epochs", ratio, "")


def _task(at: Path, **dataset: object) -> dict[str, object]:
    resize = {"resize": {"shape": [32, 32]}}
    return {
        "cache": {"store": str(at / "cache"), "budget": "2GB", "epochs_per_generation": K},
        "dataset": {
            "tag": "train",
            "input_source": "streaming",
            "video_dataset_path": str(at / "videos"),
            "epochs": 2 * K,
            "sampling": {"videos_per_batch": 4, "frames_per_video": 8},
            "augmentation": [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": [resize]}],
            **dataset,
        },
    }


def _link(clips: list[Path], folder: Path, numbers: range) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        os.link(clips[number % len(clips)], folder / f"v{number:07}.mp4")


def _listed(clips: list[Path], at: Path, count: int, args: Namespace) -> tuple[float, ...]:
    """CPU and wall milliseconds of drawing a generation: without new videos, and with some."""
    _link(clips, at / "videos", range(count))
    config = load(_task(at, join="epoch"))
    with Catalog.open(str(at / "cache")) as catalog:
        task = open_task(config.cache, config.tasks[0], catalog, budget_bytes=2 * 10**9)
        task.joining.before(0)
        without = _timed(lambda: task.joining.before(1))
        _link(clips, at / "videos", range(count, count + args.new))
        some = _timed(lambda: task.joining.before(2))
        drawn = [len(set(catalog.load_draws(task.task_id, epoch, epoch)["video_id"].to_pylist())) for epoch in range(3)]
        assert drawn == [count, count, count + args.new]
    return without[0], some[0], without[1], some[1]


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall milliseconds."""
    with Stopwatch() as watch:
        work()
    return round(watch.cpu_s * 1e3), round(watch.wall_s * 1e3)


def _packets(clips: list[Path], at: Path, join: str) -> float:
    """Packets that are decoded for all epochs of a task over some clips."""
    _link(clips, at / "videos", range(8))
    with viewcache.open(_task(at, join=join), service="off") as cache:
        task = cache.task("train")
        for epoch in range(task.epochs):
            for iteration in range(task.iterations(epoch)):
                cache.read("train", epoch, iteration)
        return cache.snapshot().work["packets"]


def arguments(parser: ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--videos", type=int, nargs="+", default=[1_000, 10_000, 50_000], help="names of clips")
    parser.add_argument("--new", type=int, default=100, help="videos that arrive (default 100)")
    parser.add_argument("--distinct", type=int, default=20, help="clips that are made (default 20)")
    parser.add_argument("--frames", type=int, default=250, help="of each clip (default 250)")
    parser.add_argument("--folder", help="where clips and caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
