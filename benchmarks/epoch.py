"""Ten epochs of a SlowFast-like pipeline: viewcache against decoding on demand, naive caches and stored batches.

The consumer takes a fixed time for each batch and touches every byte of it. Each run is a process of its own with an
empty folder; the files are in the page cache. CPU is of all processes in the ten epochs, with the start of workers, the
closing and the consumer; what comes before (imports, opening, scanning, writing the ideal's batches) is stated apart.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, Timing, main
from benchmarks.rivals import Run, Setting

GB = 10**9
BUDGET = GB
NAIVE = {f"naive, {budget // GB} GB": budget for budget in (BUDGET, 4 * BUDGET)}
ON_DEMAND, IDEAL, OURS, NAIVE_4 = "on demand", "ideal", "viewcache", list(NAIVE)[-1]
SYSTEMS = (ON_DEMAND, *NAIVE, IDEAL, OURS)
BATCHES = (8, 4)
"""Videos a batch: the usual setting, and a batch of 8 clips."""
QUICK: dict[str, Any] = {
    "epochs": 2,
    "generation": 1,
    "videos_per_batch": 2,
    "frames": 4,
    "short_side": 72,
    "crop": 64,
    "step_s": 0.02,
}


def bench(args: Namespace) -> Iterator[Result]:
    """Each batch size in turn; all systems in every round, in a new order."""
    order = random.Random(args.seed)
    systems = [name for name in SYSTEMS if name == NAIVE_4 or name not in NAIVE] if args.quick else list(SYSTEMS)
    for size in [QUICK["videos_per_batch"]] if args.quick else BATCHES:
        runs: dict[str, list[Run]] = {name: [] for name in systems}
        for repeat in range(args.repeats):
            for name in order.sample(systems, len(systems)):
                setting = Setting(
                    system="naive" if name in NAIVE else name,
                    videos=str(args.videos),
                    folder="",
                    began_s=0.0,
                    budget_bytes=NAIVE.get(name, BUDGET),
                    seed=args.seed + repeat,
                    opencv=args.opencv,
                )
                setting = replace(setting, **QUICK) if args.quick else replace(setting, videos_per_batch=size)
                runs[name].append(_run(setting, args.dir))
                print(f"{size} videos a batch, round {repeat}, {name}: {_short(runs[name][-1])}", file=sys.stderr)
        yield from _results(runs, f"{size} videos a batch")


def _run(setting: Setting, where: Path | None) -> Run:
    """One system in a process and a folder of its own."""
    folder = tempfile.mkdtemp(prefix="viewcache-epoch-", dir=where)
    os.sync()  # what the one before wrote is not written back at this one's cost
    try:
        setting = replace(setting, folder=folder, began_s=time.perf_counter())
        command = [sys.executable, "-m", "benchmarks.rivals", json.dumps(asdict(setting))]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return Run(**json.loads(done.stdout))
    finally:
        shutil.rmtree(folder)


def _results(runs: dict[str, list[Run]], where: str) -> Iterator[Result]:
    work = {(run.clips, run.pixels) for each in runs.values() for run in each}
    assert len(work) == 1, f"the systems did not give the same work: {work}"

    whole = _compare(runs, lambda run: (sum(run.wall_s), _cpu_s(run)), _account)
    yield whole(f"CPU of all epochs, {where}", ON_DEMAND, "cpu_s", [Aim(OURS, at_most=0.2)])
    plain = _compare(runs, lambda run: (sum(run.wall_s), _cpu_s(run)))
    yield plain(
        f"CPU of all epochs, against the large naive cache, {where}", NAIVE_4, "cpu_s", [Aim(OURS, at_most=1.0)]
    )
    first = _compare(runs, lambda run: (run.wall_s[0], run.cpu_s[0]))
    yield first(f"wall of the first epoch, {where}", ON_DEMAND, "wall_s", [Aim(OURS, at_most=1.0)])
    later = _compare(runs, lambda run: (_mean(run.wall_s[1:]), _mean(run.cpu_s[1:])))
    yield later(f"wall of a later epoch, {where}", IDEAL, "wall_s", [Aim(OURS, at_most=1.05)])
    to_first = _compare(runs, lambda run: (run.ready_wall_s + run.wall_s[0], run.ready_cpu_s + run.cpu_s[0]))
    yield to_first(f"wall from the process's start to the end of the first epoch, {where}", ON_DEMAND, "wall_s", [])
    disk = [ours.disk_bytes / naive.disk_bytes for ours, naive in zip(runs[OURS], runs[NAIVE_4], strict=True)]
    yield Figure(f"disk, viewcache ÷ {NAIVE_4}, {where}", statistics.median(disk), "", samples=tuple(disk))


def _compare(
    runs: dict[str, list[Run]],
    times: Callable[[Run], tuple[float, float]],
    note: Callable[[list[Run]], str] | None = None,
) -> Callable[[str, str, str, Sequence[Aim]], Comparison]:
    timings = []
    for name, each in runs.items():
        wall, cpu = zip(*map(times, each), strict=True)
        timings.append(Timing(name, wall, cpu, note(each) if note else None))
    return lambda title, baseline, measure, aims: Comparison(title, baseline, tuple(timings), measure, tuple(aims))


def _cpu_s(run: Run) -> float:
    return sum(run.cpu_s) + run.end_cpu_s


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _account(runs: list[Run]) -> str:
    """What the tables leave out, as medians over the rounds."""

    def middle(value: Callable[[Run], float]) -> float:
        return statistics.median(map(value, runs))

    return (
        f"stall {middle(lambda run: sum(run.waited_s) / sum(run.wall_s)):.0%}, "
        f"later {middle(lambda run: sum(run.waited_s[1:]) / sum(run.wall_s[1:])):.0%}; "
        f"first epoch {middle(lambda run: run.wall_s[0]):.2f} s, "
        f"later {middle(lambda run: _mean(run.wall_s[1:])):.3f} s; "
        f"{middle(lambda run: 1e3 * _cpu_s(run) / run.clips):.0f} ms CPU a clip, of them the consumer's "
        f"{middle(lambda run: 1e3 * run.consumer_cpu_s / run.clips):.1f}; "
        f"disk {middle(lambda run: run.disk_bytes / 1e6):.0f} MB; before the loop "
        f"{middle(lambda run: run.ready_wall_s):.2f} s, {middle(lambda run: run.ready_cpu_s):.2f} s CPU"
    )


def _short(run: Run) -> str:
    return (
        f"{_cpu_s(run):.2f} s CPU, first {run.wall_s[0]:.2f} s, later {_mean(run.wall_s[1:]):.3f} s, "
        f"{run.disk_bytes / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f}"
    )


def _arguments(parser: ArgumentParser) -> None:
    default = Path(os.environ.get("VIEWCACHE_TEST_VIDEOS", ROOT.parent / "shared" / "videos")) / "train"
    parser.set_defaults(repeats=3)
    parser.add_argument("--videos", type=Path, default=default, help=f"folder of clips (default {default})")
    parser.add_argument("--dir", type=Path, help="where stores are made (default: the system's temporary folder)")
    parser.add_argument("--opencv", action="store_true", help="the rivals resize with OpenCV: cheaper, with aliasing")
    parser.add_argument("--quick", action="store_true", help="two epochs of tiny batches: does it all run?")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
