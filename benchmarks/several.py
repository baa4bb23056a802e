"""Two tasks over the same videos: one cache for both, a cache for each, and decoding on demand.

A SlowFast-like task (32 frames, stride 2, crop 224) and an MAE-like one (16 frames, stride 4, crop 160), ten epochs
side by side, each consumer taking a fixed time a batch. Each run is a process of its own with empty folders. CPU is
that of all processes in the ten epochs, closing included; decoded frames are the decoder's output.
"""

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, Stopwatch, Timing, main
from benchmarks.rivals import Batches, Setting, _data_loader, _OnDemand

TOGETHER, APART, ON_DEMAND = "one cache for both", "a cache for each", "on demand"
TASKS: dict[str, dict[str, Any]] = {
    "slowfast": {"frames": 32, "stride": 2, "crop": 224},
    "mae": {"frames": 16, "stride": 4, "crop": 160},
}


@dataclass(frozen=True, slots=True)
class Race:
    """One run of one system."""

    system: str
    videos: str
    folder: str
    seed: int = 0
    epochs: int = 10
    budget_bytes: int = 2 * 10**9
    videos_per_batch: int = 4
    step_s: float = 0.3
    keep: str = "cheapest"
    """Rule for what is kept under the budget."""


@dataclass(slots=True)
class Took:
    """What a run took."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    decoded: int = 0
    """Frames that decoders gave out; 0 = not counted."""
    clips: int = 0


def bench(args: Namespace) -> Iterator[Result]:
    """All systems in every round, in a new order."""
    order, runs = random.Random(args.seed), {name: list[Took]() for name in SYSTEMS}
    for repeat in range(args.repeats):
        for name in order.sample(list(SYSTEMS), len(SYSTEMS)):
            runs[name].append(run_race(Race(name, str(args.videos), "", args.seed + repeat, args.epochs), args.dir))
            print(f"round {repeat}, {name}: {runs[name][-1]}", file=sys.stderr)
    clips = {took.clips for each in runs.values() for took in each}
    assert len(clips) == 1, f"the systems did not do the same work: {clips} clips"
    timings = tuple(
        Timing(name, tuple(took.wall_s for took in each), tuple(took.cpu_s for took in each), asdict(each[-1]))
        for name, each in runs.items()
    )
    for measure in ("cpu_s", "wall_s"):
        aims = (Aim(TOGETHER, at_most=1.0),)
        yield Comparison(f"two tasks, {args.epochs} epochs, against a cache for each", APART, timings, measure, aims)
    frames = {name: statistics.median(took.decoded for took in runs[name]) for name in (TOGETHER, APART)}
    saved = frames[TOGETHER] / frames[APART]
    yield Figure("decoded frames, one cache ÷ a cache for each", saved, f"({frames})", Aim(at_most=1.0))


def run_race(race: Race, where: Path | None) -> Took:
    """Run one system in a process of its own, with empty folders below ``where``."""
    folder = tempfile.mkdtemp(prefix="viewcache-several-", dir=where)
    try:
        text = json.dumps(asdict(replace(race, folder=folder)))
        command = [sys.executable, "-m", "benchmarks.several", "--one", text]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return Took(**json.loads(done.stdout.splitlines()[-1]))
    finally:
        shutil.rmtree(folder)


def _config(race: Race, folder: str, budget: int, *tasks: str) -> dict[str, Any]:
    def dataset(name: str) -> dict[str, Any]:
        task = TASKS[name]
        steps = [
            {"resize": {"short_side": 256}},
            {"random_crop": {"shape": [task["crop"], task["crop"]]}},
            {"flip": {"flip_prob": 0.5}},
        ]
        return {
            "tag": name,
            "video_dataset_path": race.videos,
            "epochs": race.epochs,
            "sampling": {
                "videos_per_batch": race.videos_per_batch,
                "frames_per_video": task["frames"],
                "frame_stride": task["stride"],
                "samples_per_video": 2,
            },
            "augmentation": [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": steps}],
        }

    cache = {"store": folder, "budget": budget, "epochs_per_generation": 5, "seed": race.seed, "keep": race.keep}
    return {"cache": cache, "dataset": [dataset(name) for name in tasks]}


def _caches(race: Race, groups: list[tuple[str, ...]]) -> Took:
    """Caches with the given tasks, all loops side by side."""
    import viewcache

    took = Took()
    caches = [
        viewcache.open(_config(race, f"{race.folder}/{k}", race.budget_bytes // len(groups), *tasks))
        for k, tasks in enumerate(groups)
    ]
    loops = [_pixels(cache.loader(task)) for cache, tasks in zip(caches, groups, strict=True) for task in tasks]
    with Stopwatch() as watch:
        _side_by_side(loops, race, took)
        for cache in caches:
            assert cache._engine is not None
            took.decoded += cache._engine.frames["decoded"]
            cache.close()
    took.wall_s, took.cpu_s = watch.wall_s, watch.cpu_s
    return took


def _on_demand(race: Race) -> Took:
    """A torch DataLoader of plain PyAV for each task, one worker each."""
    took = Took()
    batches: list[Batches] = []
    for task in TASKS.values():
        setting = Setting(
            ON_DEMAND, race.videos, race.folder, 0.0, seed=race.seed, epochs=race.epochs,
            videos_per_batch=race.videos_per_batch, **task,
        )  # fmt: skip
        batches.append(_data_loader(_OnDemand(setting)))
    with Stopwatch() as watch:
        # Workers are forked here, one after the other: a fork beside a running thread can hang.
        loops = [chain([next(each)], each) for each in batches]
        _side_by_side(loops, race, took)
    took.wall_s, took.cpu_s = watch.wall_s, watch.cpu_s
    return took


def _pixels(loader: Iterable[dict[str, Any]]) -> Batches:
    for batch in loader:
        yield batch["video"].numpy()
        del batch


def _side_by_side(loops: Sequence[Batches], race: Race, took: Took) -> None:
    """Run loops in threads, each taking its time for a batch and touching every byte."""

    def train(loop: Batches) -> None:
        for batch in loop:
            came = time.perf_counter()
            np.bitwise_xor.reduce(batch.reshape(-1).view(np.int64))
            took.clips += len(batch)
            time.sleep(max(came + race.step_s - time.perf_counter(), 0.0))

    threads = [threading.Thread(target=train, args=(loop,)) for loop in loops]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


SYSTEMS: dict[str, Callable[[Race], Took]] = {
    TOGETHER: lambda race: _caches(race, [tuple(TASKS)]),
    APART: lambda race: _caches(race, [(name,) for name in TASKS]),
    ON_DEMAND: _on_demand,
}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--epochs", type=int, default=10, help="of both tasks (default 10)")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        given = Race(**json.loads(sys.argv[2]))
        print(json.dumps(asdict(SYSTEMS[given.system](given))))
    else:
        main(__doc__, bench, _arguments)
