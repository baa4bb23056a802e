"""What kinds of sampling cost: clips by time beside clips by frames, and a test of 10 x 3 views beside a training.

One clip of an even rate stands for a dataset: it is copied under several names, so that clips by time and by frames ask
for frames equally far apart. Each run makes all clips of some epochs in a cache of its own with an empty store, and
CPU is that of all processes from opening to closing. The test is fixed (`clips: uniform`, `three_crop`,
`shuffle: false`) and read in every epoch of the training, as validation is.
"""

import shutil
import statistics
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, Stopwatch, Timing, compare, main

FRAMES, TIME = "by frames", "by time"
EPOCHS = 5
RANDOM: list[dict[str, Any]] = [
    {"resize": {"short_side": 256}},
    {"random_crop": {"shape": [224, 224]}},
    {"flip": {"flip_prob": 0.5}},
]
VIEWS: list[dict[str, Any]] = [{"resize": {"short_side": 224}}, {"three_crop": 224}]


def bench(args: Namespace) -> Iterator[Result]:
    """Both questions, each with its rivals in turns."""
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        videos = Path(folder, "videos")
        videos.mkdir()
        for number in range(args.copies):
            shutil.copyfile(args.video, videos / f"v{number:02}{args.video.suffix}")
        runs = _Runs(Path(folder), videos, args.fps)
        rivals: dict[str, Callable[[], object]] = {
            FRAMES: lambda: runs.make([runs.training({"frame_stride": 2})]),
            TIME: lambda: runs.make([runs.training({"fps": args.fps / 2})]),
        }
        title = f"clips of {args.copies} videos, {EPOCHS} epochs"
        yield compare(title, rivals, baseline=FRAMES, args=args, aims=[Aim(TIME, at_most=1.05)])
        yield from _beside(runs, args)


def _beside(runs: "_Runs", args: Namespace) -> Iterator[Result]:
    """A training alone, with a test beside it, and one epoch of the test alone."""
    alone, both, once = "training", "training and test", "test, one epoch"
    took: dict[str, list[Stopwatch]] = {alone: [], both: [], once: []}
    training, test = runs.training({"frame_stride": 2}), runs.test(EPOCHS)
    rivals = {alone: [training], both: [training, test], once: [runs.test(1)]}
    for number in range(args.repeats):
        for name in sorted(rivals, key=lambda each: hash((args.seed, number, each))):
            with Stopwatch() as watch:
                runs.make(rivals[name])
            took[name].append(watch)
            print(f"round {number}, {name}: {watch.cpu_s:.1f} s of CPU", file=sys.stderr)
    timings = tuple(
        Timing(name, tuple(each.wall_s for each in of), tuple(each.cpu_s for each in of)) for name, of in took.items()
    )
    yield Comparison("a test of 10 x 3 views beside a training", alone, timings)
    rounds = zip(took[both], took[alone], took[once], strict=True)
    more = tuple((with_test.cpu_s - without.cpu_s) / own.cpu_s for with_test, without, own in rounds)
    title = "what the test adds in all epochs ÷ what it costs alone, once"
    yield Figure(title, statistics.median(more), "x", Aim(at_most=1.1), more)


class _Runs:
    """Runs of a cache with an empty store."""

    def __init__(self, folder: Path, videos: Path, fps: float) -> None:
        self._folder = folder
        self._videos = videos
        self._fps = fps
        self._runs = 0

    def training(self, apart: dict[str, object]) -> dict[str, Any]:
        """A SlowFast-like task: 32 frames, two samples."""
        sampling = {"videos_per_batch": 4, "frames_per_video": 32, "samples_per_video": 2} | apart
        return self._task("train", sampling, RANDOM) | {"epochs": EPOCHS}

    def test(self, epochs: int) -> dict[str, Any]:
        """Ten clips of each video, three crops of each."""
        sampling = {"videos_per_batch": 1, "frames_per_video": 8, "frame_stride": 8, "samples_per_video": 30}
        return self._task("test", sampling | {"clips": "uniform"}, VIEWS) | {"epochs": epochs, "shuffle": False}

    def _task(self, tag: str, sampling: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
        step = {"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": operations}
        return {"tag": tag, "video_dataset_path": str(self._videos), "sampling": sampling, "augmentation": [step]}

    def make(self, tasks: list[dict[str, Any]]) -> int:
        """Read every batch of every task, epoch by epoch; returns how many clips that were."""
        import viewcache

        self._runs += 1
        store = self._folder / f"store{self._runs}"
        cache = {"store": str(store), "budget": "8GB", "epochs_per_generation": EPOCHS}
        clips = 0
        with viewcache.open({"cache": cache, "dataset": tasks}) as opened:
            for epoch in range(max(task["epochs"] for task in tasks)):
                for task in tasks:
                    if epoch < task["epochs"]:
                        handle = opened.task(task["tag"])
                        for iteration in range(handle.iterations(epoch)):
                            clips += len(opened.read(task["tag"], epoch, iteration).video)
        shutil.rmtree(store)
        return clips


def arguments(parser: ArgumentParser) -> None:
    """What may be chosen."""
    video = ROOT.parent / "shared" / "videos" / "train" / "bikes_272p_h264.mp4"
    parser.add_argument("--video", type=Path, default=video, help="a clip of an even rate")
    parser.add_argument("--fps", type=float, default=25.0, help="its rate (default 25)")
    parser.add_argument("--copies", type=int, default=8, help="of it (default 8)")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
