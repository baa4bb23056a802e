"""What the schedule is worth: demand and deadlines, shortest jobs first under pressure, processes against threads.

A SlowFast-like and an MAE-like task over the same videos (each clip three times, as files of its own), two workers,
each consumer taking a fixed time a batch (SAND Fig. 18: 42.6 % slower without a schedule). "In order" is the dispatcher
without one: videos in the order of the dataset, one task after the other, readers last, nothing paused. The last part
starts workers of each kind and lets them make all there is to make. Each run is a process of its own with empty
folders; switches are objects, not keys of a user's file.
"""

import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, Stopwatch, Timing, clips_in, main, run_apart
from viewcache.materializer.scheduling import dispatcher as dispatching
from viewcache.materializer.scheduling.chooser import Chooser, DispatcherSettings
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.pressure import Pressure
from viewcache.materializer.scheduling.rules import NextJob, is_made

SCHEDULED, IN_ORDER = "scheduled", "in order"
SHORTEST, DEADLINES = "shortest job first", "deadlines only"
PROCESSES, THREADS = "processes", "threads"
TASKS: dict[str, dict[str, Any]] = {
    "slowfast": {"frames": 32, "stride": 2, "crop": 224},
    "mae": {"frames": 16, "stride": 4, "crop": 160},
}
PAPER = "the paper: +42.6 % without"


class InOrder(Chooser):
    """No schedule: what was planned first is made first, and a reader's demand comes after all that."""

    def __init__(self, board: Board, settings: DispatcherSettings) -> None:
        super().__init__(board, settings, Pressure(settings.memory_bytes, high=float("inf")))

    def next(self, *, ahead: bool, only_soon: bool) -> NextJob[str] | None:
        """The first video of the first task that has any; a demand when there is none, or no room for it."""
        with self._board.changed:
            for work in self._board.ahead if ahead else ():
                rows = [row for row, _ in work.edges_left() if not only_soon or work.is_soon(row)]
                for row in sorted(rows, key=lambda row: (work.video(row), row)):
                    if not is_made(self._board, work, row):
                        return NextJob(work, [row], demanded=False)
        return super().next(ahead=False, only_soon=only_soon)

    def preemptible(self) -> frozenset[int]:
        """Nothing is interrupted."""
        return frozenset[int]()

    def abandoned(self) -> frozenset[int]:
        """Nothing is given up."""
        return frozenset[int]()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one system."""

    system: str
    videos: str
    folder: str = ""
    seed: int = 0
    epochs: int = 4
    step_s: float = 0.2
    memory: str = "8GB"
    workers: int = 2


@dataclass(slots=True)
class Took:
    """What a run took."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    waited_s: float = 0.0
    """Seconds that consumers waited for clips, start-up included."""
    at_boundaries_s: float = 0.0
    """Of these, in the first batch of a generation that is not the first."""
    first_s: float = 0.0
    """Until the first batch was there, from when it was asked for."""
    pressed_s: float = 0.0
    """Seconds under memory pressure."""
    clips: int = 0
    decoded: int = 0


def bench(args: Namespace) -> Iterator[Result]:
    """Every part, its systems in every round in a new order."""
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        for number, path in product(range(args.copies), clips_in(args.videos)):
            shutil.copy(path, Path(folder) / f"{number}-{path.name}")
        yield from _bench(args, Run("", folder, seed=args.seed, epochs=args.epochs, step_s=args.step))


def _bench(args: Namespace, base: Run) -> Iterator[Result]:
    runs = _rounds(args, [replace(base, system=SCHEDULED), replace(base, system=IN_ORDER)])
    title = f"throttled consumers, two tasks, {args.epochs} epochs, two workers"
    yield Comparison(title, SCHEDULED, _timings(runs), "wall_s", (Aim(IN_ORDER, at_least=1.0),))
    yield from _waits(title, runs, SCHEDULED, IN_ORDER)
    stalls = [took.at_boundaries_s for took in runs[SCHEDULED]]
    yield Figure(
        "waited at boundaries of generations, scheduled", statistics.median(stalls), "s", samples=tuple(stalls)
    )
    small = replace(base, memory=args.memory)
    runs = _rounds(args, [replace(small, system=SHORTEST), replace(small, system=DEADLINES)])
    title = f"the same with {args.memory} of memory"
    yield Comparison(title, SHORTEST, _timings(runs), "wall_s", (Aim(DEADLINES, at_least=1.0),))
    yield from _waits(title, runs, SHORTEST, DEADLINES)
    runs = _rounds(args, [replace(base, system=PROCESSES), replace(base, system=THREADS)])
    for measure in ("wall_s", "cpu_s"):
        yield Comparison("all clips made ahead, workers started", PROCESSES, _timings(runs), measure)
    for name, each in runs.items():
        first = [took.first_s for took in each]
        yield Figure(f"until the first clip, {name}", statistics.median(first), "s", samples=tuple(first))


def _rounds(args: Namespace, systems: list[Run]) -> dict[str, list[Took]]:
    order, runs = random.Random(args.seed), {run.system: list[Took]() for run in systems}
    for repeat in range(args.repeats):
        for run in order.sample(systems, len(systems)):
            runs[run.system].append(_run(replace(run, seed=run.seed + repeat), args.dir))
            print(f"round {repeat}, {run.system}: {runs[run.system][-1]}", file=sys.stderr)
    clips = {took.clips for each in runs.values() for took in each}
    assert len(clips) == 1, f"the systems did not do the same work: {clips} clips"
    return runs


def _timings(runs: dict[str, list[Took]]) -> tuple[Timing, ...]:
    return tuple(
        Timing(name, tuple(took.wall_s for took in each), tuple(took.cpu_s for took in each), asdict(each[-1]))
        for name, each in runs.items()
    )


def _waits(title: str, runs: dict[str, list[Took]], name: str, rival: str) -> Iterator[Result]:
    for each in (name, rival):
        waited = [took.waited_s for took in runs[each]]
        yield Figure(f"{title}: waited for clips, {each}", statistics.median(waited), "s", samples=tuple(waited))
    slower = [b.wall_s / a.wall_s - 1 for a, b in zip(runs[name], runs[rival], strict=True)]
    told = f"% more time ({PAPER})" if rival == IN_ORDER else "% more time"
    samples = tuple(100 * each for each in slower)
    yield Figure(f"{title}: {rival} against {name}", statistics.median(samples), told, samples=samples)


def _run(run: Run, where: Path | None) -> Took:
    """One run in a process of its own, with an empty folder below ``where``."""
    return Took(**run_apart("benchmarks.scheduling", run, where))


def _config(run: Run) -> dict[str, Any]:
    def dataset(name: str) -> dict[str, Any]:
        task = TASKS[name]
        steps = [
            {"resize": {"short_side": 256}},
            {"random_crop": {"shape": [task["crop"], task["crop"]]}},
            {"flip": {"flip_prob": 0.5}},
        ]
        return {
            "tag": name,
            "video_dataset_path": run.videos,
            "epochs": run.epochs,
            "sampling": {"videos_per_batch": 2, "frames_per_video": task["frames"], "frame_stride": task["stride"]},
            "augmentation": [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": steps}],
        }

    cache = {
        "store": run.folder, "budget": "4GB", "epochs_per_generation": 2, "seed": run.seed, "memory": run.memory,
        "workers": run.workers, "worker_kind": THREADS if run.system == THREADS else PROCESSES,
    }  # fmt: skip
    return {"cache": cache, "dataset": [dataset(name) for name in TASKS]}


def one(run: Run) -> Took:
    """What a run takes, closing included."""
    import viewcache

    took = Took()
    choose = mock.patch.object(dispatching, "Chooser", CHOOSERS.get(run.system, Chooser))
    with choose, viewcache.open(_config(run)) as cache, Stopwatch() as watch:
        dispatcher = cache.owner.dispatcher_now()
        if run.system in (PROCESSES, THREADS):
            begun = time.perf_counter()
            cache.read("mae", 0, 0)
            took.first_s = time.perf_counter() - begun
            took.clips = list(cache.materialize())[-1]["ready"]
        else:
            _consume(cache, run, took)
        pressure = dispatcher.chooser.pressure
        took.pressed_s = pressure.pressed_s if isinstance(pressure, _Watched) else 0.0
        took.decoded = dispatcher.tally.frames["decoded"]
        cache.close()
    took.wall_s, took.cpu_s = watch.wall_s, watch.cpu_s
    return took


class _Watched(Pressure):
    """Counts the seconds under pressure; one that does not work never changes the choice."""

    def __init__(self, limit_bytes: int, *, works: bool) -> None:
        super().__init__(limit_bytes)
        self.pressed_s = 0.0
        self._works, self._would, self._last = works, Pressure(limit_bytes), time.perf_counter()

    def note(self, used_bytes: int) -> None:
        """As usual, with a clock."""
        now = time.perf_counter()
        self.pressed_s += now - self._last if self._would.on else 0.0
        self._last = now
        self._would.note(used_bytes)
        self.on = self._would.on and self._works


def _watched(*, works: bool) -> Callable[[Board, DispatcherSettings], Chooser]:
    return lambda board, settings: Chooser(board, settings, _Watched(settings.memory_bytes, works=works))


CHOOSERS = {IN_ORDER: InOrder, DEADLINES: _watched(works=False), SHORTEST: _watched(works=True)}
"""Who chooses, where it is not the usual one."""


def _consume(cache: Any, run: Run, took: Took) -> None:
    """One thread a task: read a batch, touch every byte of it, take the rest of the step's time."""
    lock = threading.Lock()

    def train(name: str) -> None:
        for epoch in range(run.epochs):
            for iteration in range(cache.task(name).iterations(epoch)):
                batch = cache.read(name, epoch, iteration)
                came = time.perf_counter()
                with lock:
                    took.clips += len(batch.video)
                    took.waited_s += batch.waited_s
                    if epoch and epoch % 2 == 0 and iteration == 0:
                        took.at_boundaries_s += batch.waited_s
                np.bitwise_xor.reduce(batch.video.reshape(-1).view(np.int64))
                time.sleep(max(came + run.step_s - time.perf_counter(), 0.0))

    threads = [threading.Thread(target=train, args=(name,)) for name in TASKS]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--copies", type=int, default=3, help="of each clip (default 3)")
    parser.add_argument("--epochs", type=int, default=4, help="of both tasks, two a generation (default 4)")
    parser.add_argument("--step", type=float, default=0.2, help="seconds that a consumer takes a batch (default 0.2)")
    parser.add_argument("--memory", default="300MB", help="small limit, for the part under pressure (default 300MB)")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(asdict(one(Run(**json.loads(sys.argv[2]))))))
    else:
        main(__doc__, bench, _arguments)
