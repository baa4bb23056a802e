"""Several tasks over the same videos: one cache for all, a cache for each, and decoding on demand.

A SlowFast-like task (32 frames, stride 2, crop 224) and an MAE-like one (16 frames, stride 4, crop 160); or four
equal SlowFast-like ones, as in a search for hyperparameters (``--jobs search``). Ten epochs side by side, each consumer
taking a fixed time a batch (``--step``). Each run is a process of its own with empty folders. CPU is
that of all processes in the ten epochs, closing included; decoded frames are the decoder's output.
"""

import json
import os
import random
import statistics
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, Stopwatch, Timing, clips_in, main, run_apart
from benchmarks.rivals import Batches, Setting, _data_loader, _OnDemand

TOGETHER, APART, ON_DEMAND = "one cache for all", "a cache for each", "on demand"
SLOWFAST = {"frames": 32, "stride": 2, "crop": 224}
JOBS: dict[str, dict[str, dict[str, Any]]] = {
    "pair": {"slowfast": SLOWFAST, "mae": {"frames": 16, "stride": 4, "crop": 160}},
    "search": {f"job{k}": SLOWFAST for k in range(4)},
}
"""Tasks by name."""


@dataclass(frozen=True, slots=True)
class Race:
    """One run of one system."""

    system: str
    videos: str
    folder: str
    jobs: str = "pair"
    """A key of `JOBS`."""
    seed: int = 0
    epochs: int = 10
    budget_bytes: int = 2 * 10**9
    videos_per_batch: int = 4
    step_s: float = 0.3
    keep: str = "cheapest"
    """Rule for what is kept under the budget."""

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """What each task asks for, by name."""
        return JOBS[self.jobs]


@dataclass(slots=True)
class Took:
    """What a run took."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    decoded: int = 0
    """Frames that decoders gave out; 0 = not counted."""
    clips: int = 0
    ideal_s: float = 0.0
    """What the slowest consumer takes for its batches alone."""
    later_s: float = 0.0
    """From the moment at which the last consumer has had its first epoch, in which nothing is there yet."""
    ideal_later_s: float = 0.0


def bench(args: Namespace) -> Iterator[Result]:
    """All systems in every round, in a new order."""
    # Four caches on two cores would measure the machine's patience.
    systems = [name for name in SYSTEMS if args.jobs == "pair" or name != APART]
    order, runs = random.Random(args.seed), {name: list[Took]() for name in systems}
    for repeat in range(args.repeats):
        for name in order.sample(systems, len(systems)):
            seed = args.seed + repeat
            race = Race(name, str(args.videos), "", args.jobs, seed, args.epochs, step_s=args.step)
            runs[name].append(run_race(race, args.dir))
            print(f"round {repeat}, {name}: {runs[name][-1]}", file=sys.stderr)
    clips = {took.clips for each in runs.values() for took in each}
    assert len(clips) == 1, f"the systems did not do the same work: {clips} clips"
    timings = tuple(
        Timing(name, tuple(took.wall_s for took in each), tuple(took.cpu_s for took in each), asdict(each[-1]))
        for name, each in runs.items()
    )
    if args.jobs == "search":
        yield from _searched(runs, timings, args.epochs)
        return
    for measure in ("cpu_s", "wall_s"):
        aims = (Aim(TOGETHER, at_most=1.0),)
        yield Comparison(f"two tasks, {args.epochs} epochs, against a cache for each", APART, timings, measure, aims)
    frames = {name: statistics.median(took.decoded for took in runs[name]) for name in (TOGETHER, APART)}
    saved = frames[TOGETHER] / frames[APART]
    yield Figure("decoded frames, one cache ÷ a cache for each", saved, f"({frames})", Aim(at_most=1.0))


def _searched(runs: dict[str, list[Took]], timings: tuple[Timing, ...], epochs: int) -> Iterator[Result]:
    """Four equal jobs against on demand, and against a loader that takes no time at all."""
    for measure, most in (("cpu_s", 0.1), ("wall_s", 1.0)):
        aims = (Aim(TOGETHER, at_most=most),)
        yield Comparison(f"four equal tasks, {epochs} epochs", ON_DEMAND, timings, measure, aims)
    for name, each in runs.items():
        over = [took.wall_s / took.ideal_s for took in each]
        aim = Aim(at_most=1.05) if name == TOGETHER else None
        yield Figure(f"wall ÷ the consumers' own time, {name}", statistics.median(over), "x", aim, tuple(over))
        if epochs > 1:
            later = [took.later_s / took.ideal_later_s for took in each]
            yield Figure(f"the same after the first epoch, {name}", statistics.median(later), "x", aim, tuple(later))
        cores = [took.cpu_s / took.ideal_s / (os.cpu_count() or 1) for took in each]
        yield Figure(f"the same if no core were ever idle, {name}", statistics.median(cores), "x", samples=tuple(cores))


def run_race(race: Race, where: Path | None) -> Took:
    """Run one system in a process of its own, with empty folders below ``where``."""
    return Took(**run_apart("benchmarks.several", race, where))


def _config(race: Race, folder: str, budget: int, *tasks: str) -> dict[str, Any]:
    def dataset(name: str) -> dict[str, Any]:
        task = race.tasks[name]
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
    loops = [
        _pixels(cache.loader(task).all_epochs()) for cache, tasks in zip(caches, groups, strict=True) for task in tasks
    ]
    with Stopwatch() as watch:
        _side_by_side(loops, race, took)
        for cache in caches:
            assert cache.owner.dispatcher is not None
            took.decoded += cache.owner.dispatcher.tally.frames["decoded"]
            cache.close()
    took.wall_s, took.cpu_s = watch.wall_s, watch.cpu_s
    return took


def _on_demand(race: Race) -> Took:
    """A torch DataLoader of plain PyAV for each task, one worker each."""
    took = Took()
    batches: list[Batches] = []
    for task in race.tasks.values():
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
    per_epoch = -(-len(clips_in(race.videos)) // race.videos_per_batch)
    had_first_s: list[float] = []

    def train(loop: Batches) -> None:
        count = 0
        for batch in loop:
            count += 1
            came = time.perf_counter()
            np.bitwise_xor.reduce(batch.reshape(-1).view(np.int64))
            took.clips += len(batch)
            time.sleep(max(came + race.step_s - time.perf_counter(), 0.0))
            if count == per_epoch:
                had_first_s.append(time.perf_counter())
        took.ideal_s = max(took.ideal_s, count * race.step_s)
        took.ideal_later_s = max(took.ideal_later_s, (count - per_epoch) * race.step_s)

    threads = [threading.Thread(target=train, args=(loop,)) for loop in loops]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    took.later_s = time.perf_counter() - max(had_first_s)


SYSTEMS: dict[str, Callable[[Race], Took]] = {
    TOGETHER: lambda race: _caches(race, [tuple(race.tasks)]),
    APART: lambda race: _caches(race, [(name,) for name in race.tasks]),
    ON_DEMAND: _on_demand,
}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--epochs", type=int, default=10, help="of each task (default 10)")
    parser.add_argument("--jobs", choices=JOBS, default="pair", help="two tasks, or four equal ones (default pair)")
    parser.add_argument("--step", type=float, default=0.3, help="seconds a batch takes its consumer (default 0.3)")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        given = Race(**json.loads(sys.argv[2]))
        print(json.dumps(asdict(SYSTEMS[given.system](given))))
    else:
        main(__doc__, bench, _arguments)
