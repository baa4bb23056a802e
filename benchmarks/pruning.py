"""What is kept under a budget: the rule of the plan, the paper's Algorithm 1, and clips until the budget is full.

First a model after SAND's Fig. 17: the planned cost of ten epochs of two tasks over invented videos of log-normal size,
with objects that load like PNG (12 ms a MB) or like a fast codec (3 ms a MB). Nothing is timed there. Then both tasks
really train on the clips, under budgets of a part of what all clips take. Each run is a process of its own.
"""

import random
import statistics
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, Timing, main
from benchmarks.invented import index_of, plan_of, task_of, videos_of
from benchmarks.several import TOGETHER, Race, Took, run_race
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.retention.balance import RULES
from viewcache.materializer.retention.options import Weighed, weigh
from viewcache.materializer.retention.ways import ToCome

PAPER = {0.8: "the paper -10 % at 3 TB", 0.45: "the paper -25 % at 1.5 TB", 0.3: ""}
"""Parts of what all clips take; the paper's two budgets lie near the first two."""

LOADS = {"PNG-like, 12 ms/MB": 12e-9, "fast codec, 3 ms/MB": 3e-9}
CLIP_BYTES = 8 * 2 * 5 * 3 * (32 * 224**2 + 16 * 160**2)
"""All clips of a generation of the real run: 8 videos, 2 samples, 5 epochs, of both tasks."""


def bench(args: Namespace) -> Iterator[Result]:
    """The model, then the real runs."""
    yield from _model(args.model_videos, args.seed)
    if not args.model_only:
        yield from _real(args)


def _model(count: int, seed: int) -> Iterator[Result]:
    videos = videos_of(count)
    heights = np.clip(np.random.default_rng(seed).lognormal(np.log(360), 0.5, count), 144, 1080)
    height, width = ((heights * part // 16 * 16).astype(np.int64) for part in (1, 4 / 3))
    sized = replace(videos, height=height, width=width, native_bytes=height * width * 3 // 2)
    indexes = [
        index_of(300, 150, height=h, width=w) for h, w in zip(sized.height.tolist(), sized.width.tolist(), strict=True)
    ]
    for epochs in (10, 5):
        plans = [
            plan_of(task_of(tag, frames, stride), sized, epochs=epochs, grid=2)
            for tag, frames, stride in (("slowfast", 32, 2), ("mae", 16, 4))
        ]
        whole = [
            ToCome(plan, indexes.__getitem__, np.ones(len(plan), bool), np.zeros(len(plan), bool)) for plan in plans
        ]
        for name, load in LOADS.items():
            weighed = weigh(whole, CostModel(load_s_per_byte=load), most_bytes=1 << 40)
            yield from _budgets(f"{epochs} epochs, {name}", weighed)


def _budgets(title: str, weighed: Weighed) -> Iterator[Result]:
    every = int(weighed.options.bytes[:, weighed.options.leaf].sum())
    for share, paper in PAPER.items():
        cost = {name: rule(weighed.options, int(every * share)).cost_s for name, rule in RULES.items()}
        sand = f"Algorithm 1 {cost['sand'] / cost['leaves'] - 1:+.0%}"
        gain = cost["cheapest"] / cost["leaves"]
        yield Figure(
            f"{title}, {share:.0%} of all clips: cost, cheapest ÷ leaves",
            gain,
            f"({gain - 1:+.0%}; {', '.join(filter(None, (sand, paper)))})",
            Aim(at_most=1.0),
        )


def _real(args: Namespace) -> Iterator[Result]:
    order = random.Random(args.seed)
    for share in (0.8, 0.5, 0.25):
        runs: dict[str, list[Took]] = {rule: [] for rule in RULES}
        for repeat in range(args.repeats):
            for rule in order.sample(list(RULES), len(RULES)):
                race = Race(
                    TOGETHER, str(args.videos), "", "pair", args.seed + repeat, args.epochs,
                    budget_bytes=int(CLIP_BYTES * share), videos_per_batch=2, keep=rule,
                )  # fmt: skip
                runs[rule].append(run_race(race, args.dir))
                print(f"{share:.0%}, round {repeat}, {rule}: {runs[rule][-1]}", file=sys.stderr)
        timings = tuple(
            Timing(name, tuple(took.wall_s for took in each), tuple(took.cpu_s for took in each), asdict(each[-1]))
            for name, each in runs.items()
        )
        title = f"two tasks, {args.epochs} epochs, budget {share:.0%} of the clips of a generation"
        yield Comparison(title, "leaves", timings, "cpu_s", (Aim("cheapest", at_most=1.0),))
        frames = {name: statistics.median(took.decoded for took in each) for name, each in runs.items()}
        gain = frames["cheapest"] / frames["leaves"]
        yield Figure(f"{title}: decoded frames, cheapest ÷ leaves", gain, f"({frames})", Aim(at_most=1.0))


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--epochs", type=int, default=10, help="of both tasks in the real runs (default 10)")
    parser.add_argument("--model-videos", type=int, default=2000, help="in the model (default 2000)")
    parser.add_argument("--model-only", action="store_true", help="train nothing")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
