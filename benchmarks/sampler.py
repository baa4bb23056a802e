"""What dependent sampling costs: a draw, a job that joins, a job that leaves (JOADER A.4: 54 µs, 0.57 s, 1.05 µs).

A round draws one element for every job; its seconds are divided by the jobs. The paper's figures are of its program in
Rust, for datasets of 1 to 2 million elements on another machine; the bounds here are those figures.
"""

import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Aim, Figure, Result, main
from viewcache.materializer.planning.joint_order import MOST_JOBS, DependentOrder, KeyedChance

PAPER_DRAW_US = 54.0
PAPER_LEAVE_US = 1.05
PAPER_INSERT_S = 0.57
JOBS = (2, 4, 8, 12, 32)

Sets = list[NDArray[np.int64]]


def bench(args: Namespace) -> Iterator[Result]:
    """Rounds of jobs with nested and with random data sets, then joining and leaving."""
    for jobs in JOBS:
        for kind, sets in _kinds(jobs, args.elements, args.seed):
            us = [_round_us(sets, args.rounds, args.seed + k) / jobs for k in range(args.repeats)]
            title = f"a draw of {jobs} {kind} jobs, {args.elements} elements"
            yield Figure(title, statistics.median(us), "µs", Aim(at_most=PAPER_DRAW_US), tuple(us))
    for millions in (1, 2):
        seconds = [_seconds(_insert, _joined(millions), millions) for _ in range(args.repeats)]
        title = f"a job with {millions} million elements joins another"
        yield Figure(title, statistics.median(seconds), "s", Aim(at_most=PAPER_INSERT_S), tuple(seconds))
    leaving = [_leave_us() for _ in range(args.repeats)]
    aim = Aim(at_most=PAPER_LEAVE_US)
    yield Figure("a job leaves 1 million elements", statistics.median(leaving), "µs", aim, tuple(leaving))


def _kinds(jobs: int, elements: int, seed: int) -> Iterator[tuple[str, Sets]]:
    random = np.random.default_rng(seed)
    yield "equal", [np.arange(elements)] * jobs
    yield "nested", [np.arange(elements * (jobs - k) // jobs) for k in range(jobs)]
    yield "random", [random.choice(elements, elements * 3 // 4, replace=False) for _ in range(jobs)]


def _round_us(sets: Sets, rounds: int, seed: int) -> float:
    order = DependentOrder(1 + max(int(each.max()) for each in sets), KeyedChance(seed))
    names = [f"job{k}" for k in range(len(sets))]
    for name, each in zip(names, sets, strict=True):
        order.insert(name, each)
    begun = time.perf_counter()
    for _ in range(rounds):
        order.draw(names)
    return (time.perf_counter() - begun) / rounds * 1e6


def _joined(millions: int) -> DependentOrder:
    order = DependentOrder(2_000_000, KeyedChance(0))
    order.insert("first", np.arange(0, 2_000_000, 2)[: millions * 500_000])
    return order


def _insert(order: DependentOrder, millions: int) -> None:
    order.insert("second", np.arange(millions * 1_000_000))


def _leave_us() -> float:
    names = [f"job{k}" for k in range(MOST_JOBS)]
    order = DependentOrder(1_000_000, KeyedChance(0))
    for name in names:
        order.insert(name, np.arange(1_000_000))
    begun = time.perf_counter()
    for name in names:
        order.remove(name)
    return (time.perf_counter() - begun) / len(names) * 1e6


def _seconds(call: Callable[..., object], *given: object) -> float:
    begun = time.perf_counter()
    call(*given)
    return time.perf_counter() - begun


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--elements", type=int, default=100_000, help="of the largest data set (default 100,000)")
    parser.add_argument("--rounds", type=int, default=1000, help="timed for each figure (default 1000)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
