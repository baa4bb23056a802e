"""Image datasets: viewcache beside ImageFolder, OpenCV by hand, resized arrays by hand, and ffcv.

The work is that of ImageNet: resize the short side to 256, crop 224 at random, flip; batches of 64, 2 workers. Images
are frames of video clips, cropped to 500 x 375 and encoded now. Each run is a process of its own with an empty folder;
CPU is that of all its processes, an image. What a system makes before its first epoch counts for the first, and its
closing for the later ones; interpreter and imports are told apart.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Note, Result, Table, Timing, clips_in, main, run_apart
from benchmarks.image_rivals import (
    ARRAYS,
    ARRAYS_HERE,
    FFCV,
    FFCV_PART,
    LIBRARIES,
    OPENCV,
    OURS,
    PILLOW,
    TORCHVISION,
    Setting,
    Took,
    described,
    small_size,
)

GB = 10**9
SHARE = 30
"""Percent of the resized bytes."""
OURS_PART = f"viewcache, {SHARE} %"
SIZE = (500, 375)
"""Width and height of an image."""
KINDS: dict[str, tuple[str, Sequence[int]]] = {
    "q90": (".jpg", [cv2.IMWRITE_JPEG_QUALITY, 90]),
    "q98": (".jpg", [cv2.IMWRITE_JPEG_QUALITY, 98]),
    "png": (".png", []),
}
"""Name → extension and what OpenCV encodes it with."""
RUNS = (TORCHVISION, PILLOW, OPENCV, ARRAYS, ARRAYS_HERE, FFCV, FFCV_PART, OURS, OURS_PART)
RESIZED_RUNS = (OPENCV, ARRAYS, ARRAYS_HERE, FFCV, OURS)
"""Those that crop parts of any size out of resized pictures, too: of the first kind of images only."""
FIRST, LATER = 0.45, 0.1
"""Aims of an image of the first epoch and of a later one, ÷ ImageFolder."""
TINY = 64
"""Pixels of a side of the images of `--many`."""
DISTINCT = 1000
"""Of these; the others are links to them."""
CLASSES = 100
"""Folders that these lie in."""
STATED = 100_000
"""Images for which the aim of opening is stated."""
OPENED = """
import json, sys, time
begun = time.perf_counter()
import viewcache
with viewcache.open(sys.argv[1], service="off"):
    found = {"opening_s": time.perf_counter() - begun}
    for line in open("/proc/self/status"):
        name, value = line.split(":", 1)
        if name in ("VmHWM", "VmRSS"):
            found[name] = int(value.split()[0]) / 1024
print(json.dumps(found))
"""
"""Opens a cache and tells what that took, in a process that imports nothing else."""
QUICK: dict[str, Any] = {"images_per_batch": 4, "short_side": 64, "crop": 56}
QUICK_SIZE, QUICK_IMAGES = (100, 75), 28


@dataclass(frozen=True, slots=True)
class Rounds:
    """What the runs over one kind of image took, by name, one entry a round; what did not run is not there."""

    took: Mapping[str, list[Took]]

    def against(
        self,
        title: str,
        names: Sequence[str],
        cost: Callable[[Took], tuple[float, float]],
        aims: Sequence[Aim] = (),
        measure: str = "cpu_s",
    ) -> Iterator[Result]:
        """A comparison of an image's cost; the first name is the baseline, and a word if that did not run."""
        ran = [name for name in names if name in self.took]
        if ran[:1] != [names[0]] or len(ran) < 2:
            yield Note(f"{title}: not measured, since not two of these ran: {'; '.join(names)}")
            return
        timings = tuple(Timing(name, *zip(*map(cost, self.took[name]), strict=True)) for name in ran)
        yield Comparison(title, names[0], timings, measure, tuple(aims))


# What an image costs -------------------------------------------------------------------------------------------------


def first_epoch(took: Took) -> tuple[float, float]:
    """(wall, CPU) of the first epoch, from the imports on: with opening, scanning and the start of workers."""
    images = took.work[0][0]
    return (took.wall_s[0] - took.imported_wall_s) / images, (took.cpu_s[0] - took.imported_cpu_s) / images


def without_opening(took: Took) -> tuple[float, float]:
    """(wall, CPU) of the first epoch, from the loop's begin on."""
    images = took.work[0][0]
    return (took.wall_s[0] - took.opened_wall_s) / images, (took.cpu_s[0] - took.opened_cpu_s) / images


def later_epochs(took: Took) -> tuple[float, float]:
    """(wall, CPU) of the epochs after the first, with closing."""
    images = sum(count for count, _, _ in took.work[1:])
    return (took.closed_wall_s - took.wall_s[0]) / images, (took.closed_cpu_s - took.cpu_s[0]) / images


def all_epochs(took: Took) -> tuple[float, float]:
    """(wall, CPU) of all epochs, with opening and closing: wherever the work is done, and for whichever epoch."""
    images = sum(count for count, _, _ in took.work)
    return (took.closed_wall_s - took.imported_wall_s) / images, (took.closed_cpu_s - took.imported_cpu_s) / images


def answers(rounds: Rounds, kind: str, epochs: int) -> Iterator[Result]:
    """Every figure that there is an aim for, and what resized arrays by hand take beside it."""
    folder = TORCHVISION if TORCHVISION in rounds.took else PILLOW
    rivals = (folder, *(name for name in rounds.took if name != folder))
    for what, cost in (("with opening", first_epoch), ("from the loop on", without_opening)):
        title = f"{kind}: an image of the first epoch, {what}"
        yield from rounds.against(title, rivals, cost, [Aim(OURS, at_most=FIRST)])
        yield from rounds.against(f"{title}, beside OpenCV", (OPENCV, OURS), cost, [Aim(OURS, at_most=1.1)])
    title = f"{kind}: an image of a later epoch"
    yield from rounds.against(title, rivals, later_epochs, [Aim(OURS, at_most=LATER)])
    by_hand = (ARRAYS, ARRAYS_HERE, OURS, OURS_PART)
    yield from rounds.against(f"{title}, beside resized arrays", by_hand, later_epochs)
    yield from rounds.against(f"{title}, beside ffcv", (FFCV, OURS), later_epochs, [Aim(OURS, at_most=0.9)])
    yield from rounds.against(
        f"{title}, beside ffcv, wall", (FFCV, OURS), later_epochs, [Aim(OURS, at_most=1.0)], "wall_s"
    )
    part = f"{title}, {SHARE} % of the resized bytes"
    yield from rounds.against(part, (FFCV_PART, OURS_PART), later_epochs, [Aim(OURS_PART, at_most=1.0)])
    # An epoch that is made ahead costs the first one what it saves the others: together the two aims ask for this.
    both = Aim(OURS, at_most=round((FIRST + LATER * (epochs - 1)) / epochs, 3))
    yield from rounds.against(f"{kind}: an image of all {epochs} epochs", rivals, all_epochs, [both])
    yield _account(rounds, kind)


def resized_answers(rounds: Rounds, kind: str) -> Iterator[Result]:
    """The figures of parts of any size that are resized once more, as `random_resized_crop` and ffcv's decoder do."""
    title = f"{kind}: random resized crops, an image of a later epoch"
    yield from rounds.against(f"{title}, beside ffcv", (FFCV, OURS), later_epochs, [Aim(OURS, at_most=1.1)])
    yield from rounds.against(
        f"{title}, beside what is done by hand", (ARRAYS, ARRAYS_HERE, OPENCV, OURS), later_epochs
    )
    yield _account(rounds, f"{kind}, random resized crops")


def _account(rounds: Rounds, kind: str) -> Table:
    """What every run took, medians over the rounds."""
    columns: dict[str, Callable[[Took], float]] = {
        "imports, CPU s": lambda took: took.imported_cpu_s,
        "opening, CPU s": lambda took: took.opened_cpu_s - took.imported_cpu_s,
        "first epoch with it, CPU ms an image": lambda took: 1e3 * first_epoch(took)[1],
        "without": lambda took: 1e3 * without_opening(took)[1],
        "later epochs, CPU ms an image": lambda took: 1e3 * later_epochs(took)[1],
        "all epochs, CPU ms an image": lambda took: 1e3 * all_epochs(took)[1],
        "of them the consumer's": lambda took: 1e3 * took.consumer_cpu_s / sum(count for count, _, _ in took.work),
        "first epoch with opening, images/s": lambda took: 1 / first_epoch(took)[0],
        "later epochs, images/s": lambda took: 1 / later_epochs(took)[0],
        "disk MB, at the end": lambda took: took.disk_bytes / 1e6,
    }
    rows = {
        name: tuple(round(statistics.median(map(value, each)), 3) for value in columns.values())
        for name, each in rounds.took.items()
    }
    return Table(f"{kind}: every run", tuple(columns), rows)


# The runs ------------------------------------------------------------------------------------------------------------


def bench(args: Namespace) -> Iterator[Result]:
    """Each kind of image in turn, all systems in every round, in a new order; then the many."""
    if args.epochs < 2:
        sys.exit(f"--epochs must be at least 2, not {args.epochs}: later epochs are measured too")
    if args.many_epochs == 1 or args.many_epochs < 0:
        sys.exit(f"--many-epochs must be 0 or at least 2, not {args.many_epochs}: later epochs are measured too")
    if args.quick:
        args.images, args.epochs = min(args.images, QUICK_IMAGES), 2
    folder = Path(tempfile.mkdtemp(prefix="viewcache-images-", dir=args.dir))
    try:
        size = QUICK_SIZE if args.quick else SIZE
        pictures = [*pictures_of(clips_in(args.videos), args.images, size, args.seed)]
        refused: dict[str, str] = {}
        for kind in args.kinds:
            images = folder / kind
            count = make(pictures, images, kind)
            yield Note(
                f"{kind}: {len(pictures)} images of {size[0]} x {size[1]}, {count / len(pictures):,.0f} bytes each"
            )
            yield from answers(_race(RUNS, images, kind, size, refused, args), kind, args.epochs)
            if kind == args.kinds[0]:
                cropped = _race(RESIZED_RUNS, images, kind, size, refused, args, resized_crop=True)
                yield from resized_answers(cropped, kind)
            shutil.rmtree(images)
        yield from map(Note, refused.values())
        if args.many:
            yield from _many(pictures, folder, args)
    finally:
        shutil.rmtree(folder)


def _race(
    names: Sequence[str],
    images: Path,
    kind: str,
    size: tuple[int, int],
    refused: dict[str, str],
    args: Namespace,
    *,
    resized_crop: bool = False,
) -> Rounds:
    order, took = random.Random(args.seed), {name: list[Took]() for name in names if name not in refused}
    base = Setting("", str(images), "", seed=args.seed, epochs=args.epochs, resized_crop=resized_crop)
    base = replace(base, **QUICK) if args.quick else base
    resized = args.images * 3 * int(np.prod(small_size(size[1], size[0], base.short_side)))
    for repeat in range(args.repeats):
        for name in order.sample(list(took), len(took)):
            setting = replace(
                base,
                system=OURS if name == OURS_PART else name,
                budget_bytes=resized * SHARE // 100 if name == OURS_PART else max(GB, 8 * resized),
                seed=args.seed + repeat,
            )
            run = _run(setting, args)
            if run.refused:
                refused[name] = f"{name} does not run: {run.refused}"
                del took[name]
                continue
            took[name].append(run)
            said = f"{1e3 * first_epoch(run)[1]:.2f} ms CPU an image, later {1e3 * later_epochs(run)[1]:.2f}"
            print(f"{kind}, round {repeat}, {name}: {said}; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    work = {(epoch, *each) for runs in took.values() for run in runs for epoch, each in enumerate(run.work)}
    assert len(work) == base.epochs, f"the systems did not give the same work: {sorted(work)}"
    return Rounds(took)


def _run(setting: Setting, args: Namespace, keep: Path | None = None) -> Took:
    """One system in a process of its own, in an empty folder or in one that stays."""
    os.sync()  # what the one before wrote is not written back at this one's cost
    python = str(args.python) if args.python and setting.system in LIBRARIES else ""
    setting = replace(setting, began_s=time.perf_counter())
    kept = str(keep) if keep else ""
    return Took(**run_apart("benchmarks.image_rivals", setting, args.dir, kept, python=python))


def _many(pictures: Sequence[tuple[str, np.ndarray]], folder: Path, args: Namespace) -> Iterator[Result]:
    """What a folder of many tiny images takes to be opened, first and again, and until its first batch is there."""
    images, store = folder / "many", folder / "many store"
    scatter(pictures, images, args.many)
    store.mkdir()
    ours = Setting(OURS, str(images), "", epochs=0, short_side=TINY, crop=56, budget_bytes=10 * GB)
    took = {
        f"{OURS}, first": _run(ours, args, store),
        f"{OURS}, again": _run(ours, args, store),
        PILLOW: _run(replace(ours, system=PILLOW), args),
    }
    failed = {name: run.refused for name, run in took.items() if run.refused}
    if failed:
        yield from (Note(f"{args.many:,} images, {name} does not run: {why}") for name, why in failed.items())
        return
    columns: dict[str, Callable[[Took], float]] = {
        "opening, s": lambda run: run.opened_wall_s - run.imported_wall_s,
        "of it CPU": lambda run: run.opened_cpu_s - run.imported_cpu_s,
        "first batch after opening began, s": lambda run: run.batch_wall_s - run.imported_wall_s,
        "CPU till then": lambda run: run.batch_cpu_s - run.imported_cpu_s,
        "CPU till closed, s": lambda run: run.closed_cpu_s - run.imported_cpu_s,
        "owner, peak MB": lambda run: run.peak_mb,
        "disk, MB": lambda run: run.disk_bytes / 1e6,
    }
    rows = {name: tuple(round(value(run), 2) for value in columns.values()) for name, run in took.items()}
    yield Table(f"{args.many:,} images of {TINY} x {TINY}", tuple(columns), rows)
    again = took[f"{OURS}, again"]
    aim = Aim(at_most=3) if args.many == STATED else None
    title = f"{args.many:,} images, scanned before: first batch after opening began"
    yield Figure(title, again.batch_wall_s - again.imported_wall_s, "s", aim)
    known = replace(ours, folder=str(folder / "scanned"))
    yield _scanned(known, args)
    yield from _opened(known, args)
    if args.many_epochs:
        yield _trained_on_many(replace(ours, epochs=args.many_epochs, short_side=48, crop=40), args)


def _scanned(setting: Setting, args: Namespace) -> Figure:
    """What `viewcache scan` takes: all files of a new folder are read, the interpreter's start included."""
    file = Path(setting.folder, "cache.yaml")
    file.parent.mkdir()
    file.write_text(json.dumps(described(setting)))  # which is YAML
    begun = time.perf_counter()
    command = [sys.executable, "-m", "viewcache.api.cli.main", "scan", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    aim = Aim(at_most=120) if args.many == 10 * STATED else None
    return Figure(f"{args.many:,} images, viewcache scan of a new folder", time.perf_counter() - begun, "s", aim)


def _opened(setting: Setting, args: Namespace) -> Iterator[Figure]:
    """What it takes to open the same again, all of whose headers are known; nothing else is imported."""
    command = [sys.executable, "-c", OPENED, str(Path(setting.folder, "cache.yaml"))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found = json.loads(done.stdout)
    million = args.many == 10 * STATED
    named = f"{args.many:,} images, headers known"
    yield Figure(f"{named}: opening", found["opening_s"], "s", Aim(at_most=10) if million else None)
    yield Figure(f"{named}: most memory until it is open", found["VmHWM"], "MB", Aim(at_most=600) if million else None)
    yield Figure(f"{named}: memory when it is open", found["VmRSS"], "MB", Aim(at_most=600) if million else None)


def _trained_on_many(setting: Setting, args: Namespace) -> Table:
    """What each image of such a folder takes in a training, of cores and of memory."""
    columns: dict[str, Callable[[Took], float]] = {
        "first epoch, CPU ms an image": lambda run: 1e3 * first_epoch(run)[1],
        "later epochs": lambda run: 1e3 * later_epochs(run)[1],
        "first epoch, wall s": lambda run: run.wall_s[0] - run.imported_wall_s,
        "peak MB": lambda run: run.peak_mb,
    }
    took = {name: _run(replace(setting, system=name), args) for name in (OURS, PILLOW)}
    rows = {name: tuple(round(value(run), 3) for value in columns.values()) for name, run in took.items()}
    return Table(f"{args.many:,} images of {TINY} x {TINY}, {setting.epochs} epochs", tuple(columns), rows)


# The images ----------------------------------------------------------------------------------------------------------


def pictures_of(
    clips: Sequence[Path], count: int, size: tuple[int, int], seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Frames out of clips, as many of each and evenly far apart, cropped at random; small ones are enlarged first.

    Args:
        clips: the videos.
        count: how many pictures in all; a clip that is too short gives fewer, and the next ones more.
        size: width and height of a picture.
        seed: of the crops.

    Yields:
        The clip's name, which is the class, and the picture, (H,W,3) with blue first.
    """
    draw, left = random.Random(seed), count
    for number, path in enumerate(clips):
        with av.open(str(path)) as container:
            packets = sum(packet.size > 0 for packet in container.demux(video=0))
        taken = min(-(-left // (len(clips) - number)), packets)
        wanted = {at * packets // taken for at in range(taken)}
        with av.open(str(path)) as container:
            for at, frame in enumerate(container.decode(video=0)):
                if at in wanted:
                    yield path.stem, _cropped(frame.to_ndarray(format="bgr24"), size, draw)
                    left -= 1
    assert not left, f"the clips have too few frames for {count} images: ask for {count - left}, or name more --videos"


def _cropped(frame: np.ndarray, size: tuple[int, int], draw: random.Random) -> np.ndarray:
    width, height = size
    scale = max(height / frame.shape[0], width / frame.shape[1])
    if scale > 1:
        wide = (max(width, round(frame.shape[1] * scale)), max(height, round(frame.shape[0] * scale)))
        frame = np.asarray(cv2.resize(frame, wide, interpolation=cv2.INTER_CUBIC))
    top, left = (draw.randint(0, frame.shape[axis] - given) for axis, given in enumerate((height, width)))
    return np.ascontiguousarray(frame[top : top + height, left : left + width])


def make(pictures: Sequence[tuple[str, np.ndarray]], folder: Path, kind: str) -> int:
    """Encode pictures into folders of their classes; the bytes of all."""
    suffix, options = KINDS[kind]
    total = 0
    for number, (name, picture) in enumerate(pictures):
        path = folder / name / f"{number:06}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        total += path.write_bytes(cv2.imencode(suffix, picture, options)[1].tobytes())
    return total


def scatter(pictures: Sequence[tuple[str, np.ndarray]], folder: Path, count: int) -> None:
    """Put so many names of tiny images into folders of classes, as links to a thousand of them."""
    suffix, options = KINDS["q90"]
    tiny = folder.with_name("tiny")
    tiny.mkdir()
    for number in range(min(count, DISTINCT)):
        picture = cv2.resize(pictures[number % len(pictures)][1], (TINY, TINY), interpolation=cv2.INTER_AREA)
        (tiny / str(number)).write_bytes(cv2.imencode(suffix, picture, options)[1].tobytes())
    for number in range(CLASSES):
        (folder / f"c{number:03}").mkdir(parents=True)
    for number in range(count):
        os.link(tiny / str(number % DISTINCT), folder / f"c{number % CLASSES:03}" / f"{number:07}{suffix}")


def arguments(parser: ArgumentParser) -> None:
    """Sizes, and what runs."""
    default = Path(os.environ.get("VIEWCACHE_TEST_VIDEOS", ROOT.parent / "shared" / "videos")) / "train"
    parser.set_defaults(repeats=3)
    parser.add_argument("--videos", type=Path, default=default, help=f"clips that frames are of (default {default})")
    parser.add_argument("--images", type=int, default=1056, help="in the dataset (default 1056)")
    parser.add_argument("--epochs", type=int, default=4, help="of each run, at least 2 (default 4)")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS), help="of images (default all)")
    parser.add_argument(
        "--many", type=int, default=0, help="tiny images in a folder that is only opened (default none)"
    )
    parser.add_argument(
        "--many-epochs", type=int, default=0, help="of a training over these, at least 2 (default: none)"
    )
    parser.add_argument("--python", type=Path, help="of an environment with torchvision or ffcv, for those rivals")
    parser.add_argument("--dir", type=Path, help="where images and stores are made (default: the temporary folder)")
    parser.add_argument("--quick", action="store_true", help="two epochs of few small images: does it all run?")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
