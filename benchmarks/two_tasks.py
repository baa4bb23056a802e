"""Two tasks over one folder of images, other crops in other orders: how often an image is decoded, and what that costs.

Each training is a process of its own with a new store: both tasks read at once by a thread each, where one is begun
when the other has read two batches, one epoch after the other, or made ahead before they are read; beside them, each
task in a cache of its own.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import ROOT, Aim, Figure, Note, Result, Table, clips_in, cpu_seconds, main, run_apart
from benchmarks.images import SIZE, make, pictures_of

AT_ONCE, LATE, IN_TURN, MADE_AHEAD = "at once", "one begins late", "epoch by epoch", "made ahead"
APART = "a cache each"
CROPS = {"first": "random_crop", "second": "center_crop"}
"""Task → its crop."""
DECODED = 1.05
"""Promised: each image once, but for what is decoded at the same time."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One training."""

    images: str
    count: int
    how: str
    epochs: int
    per_batch: int
    seed: int
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Took:
    """What it did."""

    decoded: float
    """Images decoded, of each image."""
    cpu_s: float
    """Of all processes, with opening."""


def bench(args: Namespace) -> Iterator[Result]:
    """All ways in turn."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-two-tasks-", dir=args.dir))
    try:
        images = folder / "images"
        make([*pictures_of(clips_in(args.videos), args.images, args.size, args.seed)], images, "q90")
        yield Note(f"{args.images:,} images of {args.size[0]} x {args.size[1]}, {args.epochs} epochs of each task")
        took: dict[str, list[Took]] = {how: [] for how in (AT_ONCE, LATE, IN_TURN, MADE_AHEAD, APART)}
        order = random.Random(args.seed)
        for repeat in range(args.repeats):
            for how in order.sample(list(took), len(took)):
                setting = Setting(str(images), args.images, how, args.epochs, args.per_batch, args.seed + repeat)
                took[how].append(Took(**run_apart("benchmarks.two_tasks", setting, args.dir)))
                said = took[how][-1]
                load = os.getloadavg()[0]
                print(
                    f"round {repeat}, {how}: {said.decoded:.2f}, {said.cpu_s:.1f} s; load {load:.1f}", file=sys.stderr
                )
        yield from answers(took)
    finally:
        shutil.rmtree(folder)


def answers(took: dict[str, list[Took]]) -> Iterator[Result]:
    """Of the rounds of each way."""
    rows = {
        how: (round(median(each.decoded for each in mine), 2), round(median(each.cpu_s for each in mine), 1))
        for how, mine in took.items()
    }
    yield Table("two tasks over one folder", ("decoded, of each image", "CPU s"), rows)
    for how in (AT_ONCE, LATE, IN_TURN, MADE_AHEAD):
        decoded = tuple(each.decoded for each in took[how])
        yield Figure(f"{how}: decoded, of each image", median(decoded), "", Aim(at_most=DECODED), decoded)
    shares = tuple(a.cpu_s / b.cpu_s for a, b in zip(took[AT_ONCE], took[APART], strict=True))
    yield Figure(f"{AT_ONCE} ÷ {APART}, CPU", median(shares), "", None, shares)


# One training ---------------------------------------------------------------------------------------------------------


def _train(setting: Setting) -> None:
    """Read all epochs of both tasks."""
    if setting.how == APART:
        found = [_read(setting, Path(setting.folder, task), (task,)) for task in CROPS]
        decoded = sum(found)
    else:
        decoded = _read(setting, Path(setting.folder, "both"), (*CROPS,))
    print(json.dumps(asdict(Took(decoded / setting.count, cpu_seconds()))))


def _read(setting: Setting, store: Path, tasks: tuple[str, ...]) -> int:
    """Images that were decoded while some tasks were read in one cache."""
    import viewcache
    from viewcache.api.session.cache import Cache

    with viewcache.open(_configuration(setting, store, tasks)) as cache:
        assert isinstance(cache, Cache)  # and not one that a service has
        if setting.how == MADE_AHEAD:
            for _ in cache.materialize():
                pass
        begun = threading.Event()
        first = tasks[:1] if setting.how == LATE else tasks
        loaders = {task: cache.loader(task, framework="numpy") for task in first}

        def read(task: str, epoch: int) -> None:
            if task not in loaders:
                begun.wait()
                loaders[task] = cache.loader(task, framework="numpy")
            loaders[task].set_epoch(epoch)
            for number, _ in enumerate(loaders[task]):
                if number == 1:
                    begun.set()

        for epoch in range(setting.epochs):
            readers = [threading.Thread(target=read, args=(task, epoch)) for task in tasks]
            for reader in readers:
                reader.start()
                if setting.how == IN_TURN:
                    reader.join()
            for reader in readers:
                reader.join()
        dispatcher = cache.owner.dispatcher_now()
        assert dispatcher.wait_idle(60)  # the last job may not have said yet what it has decoded
        return dispatcher.tally.frames["packets"]


def _configuration(setting: Setting, store: Path, tasks: tuple[str, ...]) -> dict[str, Any]:
    single = {"branch_type": "single", "inputs": ["frame"], "outputs": ["small"]}
    return {
        "cache": {"store": str(store), "budget": "4GB", "workers": 2, "seed": setting.seed, "epochs_per_generation": 2},
        "dataset": [
            {
                "tag": task,
                "image_dataset_path": setting.images,
                "epochs": setting.epochs,
                "seed": number,
                "sampling": {"images_per_batch": setting.per_batch},
                "augmentation": [
                    single | {"config": [{"resize": {"short_side": 256}}]},
                    single
                    | {"inputs": ["small"], "outputs": ["crop"], "config": [{CROPS[task]: {"shape": [224, 224]}}]},
                ],
            }
            for number, task in enumerate(tasks)
        ],
    }


def _arguments(parser: ArgumentParser) -> None:
    default = Path(os.environ.get("VIEWCACHE_TEST_VIDEOS", ROOT.parent / "shared" / "videos")) / "train"
    parser.set_defaults(repeats=3)
    parser.add_argument("--videos", type=Path, default=default, help=f"clips that frames are of (default {default})")
    parser.add_argument("--images", type=int, default=2112, help="in the dataset (default 2112)")
    parser.add_argument("--size", type=int, nargs=2, default=SIZE, help="of an image (default 500 375)")
    parser.add_argument("--per-batch", type=int, default=64, help="images (default 64)")
    parser.add_argument("--epochs", type=int, default=4, help="of each task (default 4)")
    parser.add_argument("--dir", type=Path, help="where images and stores lie (default: of temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _train(Setting(**json.loads(sys.argv[2])))
    else:
        main(__doc__, bench, _arguments)
