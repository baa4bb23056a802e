"""What segments cost: five rows a video beside one row a video, in packets decoded and in CPU.

One clip is copied under several names, so that each copy is decoded anew. Each run makes all clips of some epochs in a
cache of its own with an empty store; CPU is that of all processes from opening to closing. The five rows of a video
cover it end to end, which one clip an epoch does not: beside a row with one clip an epoch they decode more of it where
key frames are close, and make five times the clips. Beside a row with five clips, which asks for as many clips, what
they cost more is what keeping items apart costs. Packets are counted by the planner, and depend on no machine.
"""

import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, Stopwatch, Timing, main

ONE, FIVE, CLIPS = "one row a video", "five rows a video", "one row a video, five clips"
EPOCHS, ROWS = 5, 5
PLANNED = 64
"""Copies whose packets are counted."""
OPERATIONS: list[dict[str, Any]] = [
    {"resize": {"short_side": 256}},
    {"random_crop": {"shape": [224, 224]}},
    {"flip": {"flip_prob": 0.5}},
]


def bench(args: Namespace) -> Iterator[Result]:
    """Each clip, with the three in turns."""
    for video in args.video:
        took: dict[str, list[Stopwatch]] = {ONE: [], FIVE: [], CLIPS: []}
        with tempfile.TemporaryDirectory(dir=args.dir) as folder:
            few, many = (_copies(Path(folder, f"{count}"), video, count) for count in (args.copies, PLANNED))
            rivals = {ONE: (1, None), FIVE: (1, _table(Path(folder), video)), CLIPS: (ROWS, None)}
            for number in range(args.repeats):
                for name in sorted(rivals, key=lambda each: hash((args.seed, number, each))):
                    with Stopwatch() as watch:
                        _make(Path(folder, f"{name}{number}"), few, *rivals[name])
                    took[name].append(watch)
                    print(f"{video.stem}, round {number}, {name}: {watch.cpu_s:.1f} s of CPU", file=sys.stderr)
            packets = {name: _packets(Path(folder, name), many, *rival) for name, rival in rivals.items()}
        timings = tuple(
            Timing(name, tuple(each.wall_s for each in of), tuple(each.cpu_s for each in of))
            for name, of in took.items()
        )
        title = f"{video.stem}: clips of {args.copies} copies, {EPOCHS} epochs"
        yield Comparison(title, CLIPS, timings, aims=(Aim(FIVE, at_most=1.3),))
        for other in (ONE, CLIPS):
            figure = packets[FIVE] / packets[other]
            yield Figure(f"{video.stem}: packets decoded for {FIVE} ÷ {other}", figure, "x", Aim(at_most=1.3))


def _copies(folder: Path, video: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        shutil.copyfile(video, folder / f"v{number:02}{video.suffix}")
    return folder


def _table(folder: Path, video: Path) -> Path:
    """Five rows for each of as many copies as there may be: those that are not there are passed over."""
    import av

    with av.open(str(video)) as container:
        each = float(container.duration or 0) / 1_000_000 / ROWS
    path = folder / "segments.csv"
    rows = [f"v{number:02},{k * each:g},{(k + 1) * each:g}\n" for number in range(PLANNED) for k in range(ROWS)]
    path.write_text("video,start_s,end_s\n" + "".join(rows))
    return path


def _make(store: Path, videos: Path, samples: int, table: Path | None) -> None:
    """Read every batch of a task."""
    import viewcache

    with viewcache.open(_described(store, videos, samples, table)) as opened:
        handle = opened.task("train")
        for epoch in range(EPOCHS):
            for iteration in range(handle.iterations(epoch)):
                opened.read("train", epoch, iteration)
    shutil.rmtree(store)


def _packets(store: Path, videos: Path, samples: int, table: Path | None) -> int:
    """How many packets are decoded for a task, by its plan."""
    from viewcache.api.config.load import load
    from viewcache.api.preview.plan import previews

    return previews(load(_described(store, videos, samples, table)), [0]).tasks[0].summary.packets


def _described(store: Path, videos: Path, samples: int, table: Path | None) -> dict[str, Any]:
    step = {"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": OPERATIONS}
    task: dict[str, Any] = {
        "tag": "train",
        "video_dataset_path": str(videos),
        "epochs": EPOCHS,
        "sampling": {"videos_per_batch": 5, "frames_per_video": 16, "frame_stride": 2, "samples_per_video": samples},
        "augmentation": [step],
        "probe": "full",
    }
    if table is not None:
        task["labels"] = str(table)
    return {
        "cache": {"store": str(store), "budget": "8GB", "epochs_per_generation": EPOCHS, "seed": 1},
        "dataset": task,
    }


def arguments(parser: ArgumentParser) -> None:
    """What may be chosen."""
    folder = ROOT.parent / "shared" / "videos" / "train"
    usual = [folder / "juggle_720p_h264_gop247.mp4", folder / "bikes_272p_h264.mp4"]
    parser.add_argument("--video", type=Path, nargs="+", default=usual, help="clips")
    parser.add_argument("--copies", type=int, default=4, help="of each (default 4)")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
