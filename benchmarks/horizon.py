"""A long training: what its epochs cost, the first and the late ones, beside what practitioners build by hand.

The rivals do the same work in the same run: PyAV on demand, as tutorials write it and at its best; videos re-encoded
once and read on demand; whole resized videos as arrays in memory. Each run is a process of its own with an empty
folder. CPU is that of all processes from opening to the end of closing: what a rival makes before its first epoch is in
it, imports are not. Rivals run fewer epochs and are scaled, since each of theirs costs the same; how far that is true
is told.
"""

import os
import random
import statistics
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Note, Result, Table, Timing, clips_in, main, run_apart
from benchmarks.longrun import (
    ARRAYS,
    ARRAYS_HERE,
    BEST,
    ON_DEMAND,
    OURS,
    REENCODED,
    REENCODED_PLAIN,
    Long,
    Took,
)
from benchmarks.several import APART, TOGETHER, Race, run_race
from viewcache.materializer.media.probe import probe
from viewcache.materializer.ops.resize import short_side_size
from viewcache.materializer.retention.balance import RULES

GB = 10**9
SHORT_SIDE = 256
RULE = "cheapest"
"""The default of `cache.keep`."""
TEN = 10
"""Epochs after which a training is a long one."""
MARKS = (1, 2, 5, 10, 20, 30, 50, 100, 200, 300)
"""Epochs at whose end it is told what was spent."""
RIVALS = (ON_DEMAND, BEST, REENCODED, REENCODED_PLAIN, ARRAYS, ARRAYS_HERE)
SHARES = (3, 10, 30, 100)
"""Percent of the resized planes, for which the cost must fall."""
ONE_GB, SHORT, TODAY, LOSSY = (
    "viewcache, 1 GB",
    "viewcache, 1 GB, ten epochs",
    "viewcache before",
    "viewcache, 10 %, 45dB",
)
KNOWN = "rates known"
"""Of runs that know from others what work costs on this machine, and of which it is predicted what epochs cost."""
LEARNT = 20
"""Epochs that such another run reads."""
UNKNOWN = "unknown key 'intermediate'"
"""How our system refuses what it cannot do yet."""
QUICK: dict[str, Any] = {"frames": 4, "short_side": 72, "crop": 64, "videos_per_batch": 2, "step_s": 0.0}


@dataclass(frozen=True, slots=True)
class Planes:
    """All frames of the videos after the resize."""

    frames: int
    rgb_bytes: int
    """3·H·W a frame."""
    yuv420_bytes: int
    """H·W and two planes of half its height and width, rounded up."""


@dataclass(frozen=True, slots=True)
class Row:
    """One question of the issue's table."""

    asks: str
    runs: tuple[str, ...]
    """Names of the runs that answer it."""
    answer: Callable[["Rounds"], Iterator[Result]]


@dataclass(frozen=True, slots=True)
class Rounds:
    """What all runs took, by name, one entry a round."""

    args: Namespace
    took: Mapping[str, list[Took]]

    def has(self, *names: str) -> bool:
        """Whether all of them ran."""
        return all(name in self.took and not any(each.refused for each in self.took[name]) for name in names)

    def timing(self, name: str, cost: Callable[[Took], tuple[float, float]]) -> Timing:
        """One rival of a comparison."""
        wall, cpu = zip(*map(cost, self.took[name]), strict=True)
        return Timing(name, wall, cpu)

    def against(
        self,
        title: str,
        names: Sequence[str],
        cost: Callable[[Took], tuple[float, float]],
        aims: Sequence[Aim] = (),
        measure: str = "cpu_s",
    ) -> Iterator[Result]:
        """The first name is the baseline; what did not run is left out, with a word."""
        ran = [name for name in names if self.has(name)]
        if ran[:1] == list(names[:1]) and len(ran) > 1:
            timings = tuple(self.timing(name, cost) for name in ran)
            yield Comparison(title, names[0], timings, measure, tuple(aim for aim in aims if aim.name in ran))
        yield from (Note(f"{title}: {name} is left out, see below") for name in names if name not in ran)


def planes_of(folder: Path, short_side: int) -> Planes:
    """Count the bytes of all frames after the resize."""
    frames = rgb = yuv = 0
    for path in clips_in(folder):
        index = probe(str(path))
        shown = [np.asarray(size) for size in index.shown_size]
        height, width = map(int, short_side_size(shown[0], shown[1], short_side))
        frames += index.frames
        rgb += index.frames * 3 * height * width
        yuv += index.frames * (height * width + 2 * (-(-height // 2) * -(-width // 2)))
    return Planes(frames, rgb, yuv)


def share(percent: int) -> str:
    """The name of our run under a part of the planes."""
    return f"viewcache, {percent} %"


# The rows ------------------------------------------------------------------------------------------------------------


def _whole(ours: str, at_most: float) -> Row:
    def answer(rounds: Rounds) -> Iterator[Result]:
        epochs = rounds.args.epochs
        yield from rounds.against(
            f"{epochs} epochs, {ours}", (REENCODED, ours), lambda took: took.cost(epochs), [Aim(ours, at_most=at_most)]
        )

    return Row(f"all epochs, {ours} ÷ re-encoded by hand, ≤ {at_most}", (REENCODED, ours), answer)


def _later(rounds: Rounds) -> Iterator[Result]:
    aims = [Aim(name, at_most=1.1) for name in (ONE_GB, share(100))]
    names = (ARRAYS, ARRAYS_HERE, ONE_GB, share(100))
    last = rounds.args.epochs
    title = f"an epoch after the {TEN}th of {last}" if last > TEN else f"an epoch after the first of {last}"
    yield from rounds.against(title, names, lambda took: late(took, rounds.args.generation), aims)


def late(took: Took, generation: int) -> tuple[float, float]:
    """(wall, CPU) of an epoch after the tenth.

    From the end of one generation to the end of another, the last one left out where there are enough: what is made
    ahead at both ends is then alike. A run of ten epochs or fewer gives those after its first.
    """
    last = len(took.cpu_s)
    if last <= TEN:
        return took.mean(min(1, last - 1), last)
    return took.mean(TEN, last - generation if last - generation > TEN else last)


def _ten(rounds: Rounds) -> Iterator[Result]:
    count = len(rounds.took[SHORT][0].cpu_s) or TEN
    names = (ON_DEMAND, BEST, SHORT)
    yield from rounds.against(f"{count} epochs", names, lambda took: took.cost(count), [Aim(SHORT, at_most=0.15)])


def _first(rounds: Rounds) -> Iterator[Result]:
    def first(took: Took) -> tuple[float, float]:
        return took.wall_s[0], took.cpu_s[0]

    title = "from the process's start to the end of the first epoch"
    for measure in ("wall_s", "cpu_s"):
        yield from rounds.against(title, (ON_DEMAND, SHORT), first, measure=measure)
        if rounds.args.before is not None:
            aims = [Aim(SHORT, at_most=1.1)]
            yield from rounds.against(f"{title}, against before", (TODAY, SHORT), first, aims, measure)
    if rounds.args.before is None:
        yield Note("the first epoch ÷ that of an older checkout: not measured, name one with --before DIR")


def _two(rounds: Rounds) -> Iterator[Result]:
    def cost(took: Took) -> tuple[float, float]:
        return took.closed_wall_s, took.closed_cpu_s

    title = f"two unlike tasks, {rounds.args.epochs} epochs"
    yield from rounds.against(title, (APART, TOGETHER), cost, [Aim(TOGETHER, at_most=0.6)])


def _budgets(rounds: Rounds) -> Iterator[Result]:
    names = [share(percent) for percent in SHARES]
    epochs = rounds.args.epochs
    yield from rounds.against(f"{epochs} epochs by budget", names, lambda took: took.cost(epochs))
    for less, more in pairwise(names):
        if rounds.has(less, more):
            pairs = zip(rounds.took[less], rounds.took[more], strict=True)
            ratios = [b.cost(epochs)[1] / a.cost(epochs)[1] for a, b in pairs]
            title = f"{epochs} epochs: CPU with {more.split(', ')[1]} of the planes ÷ with {less.split(', ')[1]}"
            yield Figure(title, statistics.median(ratios), "x", Aim(at_most=1.0), tuple(ratios))


def _rules(rounds: Rounds) -> Iterator[Result]:
    epochs = rounds.args.epochs
    for percent in SHARES:
        names = (share(percent), *(_ruled(percent, rule) for rule in RULES if rule != RULE))
        aims = [Aim(name, at_least=1.0) for name in names[1:]]
        yield from rounds.against(f"{epochs} epochs by rule, {percent} %", names, lambda took: took.cost(epochs), aims)


def _ruled(percent: int, rule: str) -> str:
    return f"{share(percent)}, {rule}"


def _known(name: str) -> str:
    return f"{name}, {KNOWN}"


def _foreseen(rounds: Rounds) -> Iterator[Result]:
    for name in FORESEEN:
        if rounds.has(name):
            yield from predicted(name, rounds.took[name], rounds.args.generation)


def predicted(name: str, runs: Sequence[Took], generation: int) -> Iterator[Result]:
    """Predicted ÷ measured for the epochs that `viewcache plan` spoke of before the run, without the consumer's part.

    These are the first generation on average, that of the tenth epoch, the first ten on average, and the late ones, see
    `late`, of which the tenth stands for the hundredth where a training has fewer.
    """
    if not runs[0].predicted_cpu_s:
        yield Note(f"cost of an epoch, predicted ÷ measured, {name}: not predicted")
        return
    rounds = [_foreseen_of(took, generation) for took in runs]
    for which in rounds[0]:
        ratios = tuple(each[which] for each in rounds)
        title = f"cost of an epoch, predicted ÷ measured, {name}, {which}"
        yield Figure(title, statistics.median(ratios), "x", Aim(at_least=0.8, at_most=1.2), ratios)


def _foreseen_of(took: Took, generation: int) -> dict[str, float]:
    said, count = took.predicted_cpu_s, len(took.cpu_s)
    consumer_s = took.consumer_cpu_s / count

    def ratio(cost_s: float, measured: tuple[float, float]) -> float:
        return cost_s / (measured[1] - consumer_s)

    found = {"the first generation": ratio(said["1"], took.mean(0, min(generation, count)))}
    if "10" in said and count >= TEN:
        both_s = (generation * said["1"] + (TEN - generation) * said["10"]) / TEN
        found["the tenth"] = ratio(said["10"], took.mean(TEN - generation, TEN))
        found["the first ten"] = ratio(both_s, took.mean(0, TEN))
    if "10" in said and count > TEN:
        found["a late one"] = ratio(said.get("100", said["10"]), late(took, generation))
    return found


FORESEEN = tuple(map(_known, (share(100), ONE_GB, *(share(percent) for percent in (30, 25, 10, 3)))))


def _rivals(rounds: Rounds) -> Iterator[Result]:
    yield from rounds.against("an epoch of a rival", RIVALS, lambda took: late(took, rounds.args.generation))


ROWS: dict[str, Row] = {
    "1gb": _whole(ONE_GB, 0.35),
    "25": _whole(share(25), 0.6),
    "10": _whole(share(10), 1.1),
    "10-45db": _whole(LOSSY, 0.6),
    "later": Row("an epoch after the 10th ÷ of arrays, ≤ 1.1", (ARRAYS, ARRAYS_HERE, ONE_GB, share(100)), _later),
    "ten": Row("ten epochs ÷ on demand, ≤ 0.15", (ON_DEMAND, BEST, SHORT), _ten),
    "first": Row("the first epoch ÷ that of --before, ≤ 1.1", (ON_DEMAND, SHORT, TODAY), _first),
    "two": Row("two unlike tasks in one cache ÷ a cache each, ≤ 0.6", (APART, TOGETHER), _two),
    "budgets": Row("the cost falls from 3 to 10, 30, 100 %", tuple(map(share, SHARES)), _budgets),
    "rivals": Row("an epoch of each rival", RIVALS, _rivals),
    "rules": Row(
        "no other rule of `cache.keep` does better",
        tuple(_ruled(percent, rule) if rule != RULE else share(percent) for percent in SHARES for rule in RULES),
        _rules,
    ),
    "predicted": Row("what `plan` says before a run that an epoch costs ÷ measured, 0.8 to 1.2", FORESEEN, _foreseen),
}
"""Name on the command line → row."""
USUAL = [name for name in ROWS if name not in ("rivals", "rules", "predicted")]


# The runs ------------------------------------------------------------------------------------------------------------


def runs_of(args: Namespace, planes_bytes: int) -> dict[str, Long | Race]:
    """Every run that a row may ask for, by name."""
    base = Long(OURS, str(args.videos), "", 0.0, GB, args.seed, args.epochs, args.generation, preset=args.preset)
    base = replace(base, short_side=SHORT_SIDE, videos_per_batch=4, step_s=args.step)
    base = replace(base, **QUICK) if args.quick else base
    runs: dict[str, Long | Race] = {
        name: replace(base, system=name, epochs=min(args.rival_epochs, args.epochs)) for name in RIVALS
    }
    runs[ONE_GB] = base
    runs[SHORT] = runs[TODAY] = replace(base, epochs=min(TEN, args.epochs))
    for percent in (*SHARES, 25):
        ours = replace(base, budget_bytes=planes_bytes * percent // 100)
        runs[share(percent)] = ours
        if percent in SHARES:
            runs |= {_ruled(percent, rule): replace(ours, keep=rule) for rule in RULES if rule != RULE}
    runs |= {_known(name): runs[name] for name in (ONE_GB, *map(share, (*SHARES, 25)))}
    runs[LOSSY] = replace(base, budget_bytes=planes_bytes // 10, quality="45dB")
    for name in (TOGETHER, APART):
        runs[name] = Race(name, base.videos, "", "pair", args.seed, args.epochs, GB, base.videos_per_batch, base.step_s)
    return runs


def _run(name: str, run: Long | Race, args: Namespace) -> Took:
    if isinstance(run, Race):
        raced = run_race(run, args.dir)
        return Took(closed_wall_s=raced.wall_s, closed_cpu_s=raced.cpu_s, clips=raced.clips)
    checkout = args.before.resolve() if name == TODAY else ROOT
    run = replace(run, began_s=time.perf_counter())
    if name in FORESEEN:
        learning = _apart(replace(run, read=min(LEARNT, run.epochs - 1)), args)
        run = replace(run, known=learning.samples, began_s=time.perf_counter())
    return _apart(run, args, checkout)


def _apart(run: Long, args: Namespace, checkout: Path = ROOT) -> Took:
    said = run_apart("benchmarks.longrun", run, args.dir, checkout=checkout)
    known = {each.name for each in fields(Took)}
    return Took(**{key: value for key, value in said.items() if key in known})


def bench(args: Namespace) -> Iterator[Result]:
    """All runs that the rows ask for in every round, in a new order; then the rows."""
    short_side = QUICK["short_side"] if args.quick else SHORT_SIDE
    planes = planes_of(args.videos, short_side)
    yield Note(
        f"the resized planes of all {planes.frames} frames, short side {short_side}: {planes.rgb_bytes / 1e6:,.0f} MB "
        f"as RGB (3·H·W a frame), {planes.yuv420_bytes / 1e6:,.0f} MB as 4:2:0; shares are of {args.planes}"
    )
    rows = [ROWS[name] for name in args.rows or USUAL]
    every = runs_of(args, planes.rgb_bytes if args.planes == "rgb" else planes.yuv420_bytes)
    asked = {name: every[name] for row in rows for name in row.runs if name != TODAY or args.before}
    order, rounds = random.Random(args.seed), Rounds(args, {name: list[Took]() for name in asked})
    for repeat in range(args.repeats):
        for name in order.sample(list(asked), len(asked)):
            run, began = asked[name], time.perf_counter()
            took = _run(name, replace(run, seed=args.seed + repeat), args)
            rounds.took[name].append(took)
            print(f"round {repeat}, {name}: {_short(took, time.perf_counter() - began)}", file=sys.stderr, flush=True)
    for row in rows:
        yield from row.answer(rounds)
    yield from _accounts(rounds, asked)


def _short(took: Took, ran_s: float) -> str:
    said = f"{took.closed_cpu_s - took.imported_cpu_s:.1f} s CPU, {len(took.cpu_s) or 'all'} epochs"
    return f"{_why(took.refused) or said}; ran {ran_s:.0f} s, load {os.getloadavg()[0]:.1f}"


def _why(refused: str) -> str:
    return "this code does not know the key `intermediate` yet" if UNKNOWN in refused else refused


def _accounts(rounds: Rounds, asked: Mapping[str, Long | Race]) -> Iterator[Result]:
    """What every run took, how true the scaling is, and what was refused."""
    refused = {name: took.refused for name, (took, *_) in rounds.took.items() if took.refused}
    yield from (Note(f"left out, {name}: {_why(why)}") for name, why in refused.items())
    long = {name: run for name, run in asked.items() if isinstance(run, Long) and name not in refused}
    if not long:
        return

    def middle(name: str, value: Callable[[Took], float]) -> float:
        return round(statistics.median(map(value, rounds.took[name])), 3)

    def spent(name: str, epochs: int) -> float:
        return middle(name, lambda took: took.cost(epochs)[1])

    columns = {
        "epochs run": lambda took: len(took.cpu_s),
        "CPU s, opening": lambda took: took.opened_cpu_s - took.imported_cpu_s,
        "first epoch": lambda took: took.cpu_s[0] - took.opened_cpu_s,
        "a late epoch": lambda took: late(took, rounds.args.generation)[1],
        "the consumer's, an epoch": lambda took: took.consumer_cpu_s / len(took.cpu_s),
        "all epochs that it ran": lambda took: took.cost(len(took.cpu_s))[1],
        "wall s, as run": lambda took: took.closed_wall_s - took.opened_wall_s,
        "disk MB, most": lambda took: max(took.disk_bytes) / 1e6,
        "disk MB, at the end": lambda took: took.disk_bytes[-1] / 1e6,
    }
    rows = {name: tuple(middle(name, value) for value in columns.values()) for name in long}
    yield Table("every run, CPU seconds of all processes", tuple(columns), rows)
    marks = sorted({mark for mark in MARKS if mark < rounds.args.epochs} | {rounds.args.epochs})
    until = {name: tuple(spent(name, mark) for mark in marks) for name in long if name not in (SHORT, TODAY)}
    yield Table("CPU seconds until the end of an epoch, with opening; rivals are scaled", tuple(map(str, marks)), until)
    for name in long:
        if name in RIVALS and len(rounds.took[name][0].cpu_s) > 2:
            halves = [took.halves() for took in rounds.took[name]]
            title = f"{name}: scaled linearly; CPU of an epoch, second half ÷ first half"
            yield Figure(title, statistics.median(halves), "x", samples=tuple(halves))


def _arguments(parser: ArgumentParser) -> None:
    asks = "; ".join(f"{name}: {row.asks}" for name, row in ROWS.items()).replace("%", "%%")
    parser.set_defaults(repeats=1)
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="NAME", help=f"{asks} (default: all but three last)")
    parser.add_argument("--epochs", type=int, default=100, help="of our system (default 100)")
    parser.add_argument("--rival-epochs", type=int, default=10, help="that rivals run; they are scaled (default 10)")
    parser.add_argument("--generation", type=int, default=5, help="k, epochs that are planned at once (default 5)")
    parser.add_argument("--step", type=float, default=0.0, help="seconds a batch of 8 clips takes its consumer, as 0.3")
    parser.add_argument("--planes", choices=("rgb", "yuv420"), default="rgb", help="what shares are of (default rgb)")
    parser.add_argument("--preset", default="medium", help="of x264, for what is re-encoded (default medium)")
    parser.add_argument("--before", type=Path, metavar="DIR", help="an older checkout with its .venv, for row first")
    parser.add_argument("--dir", type=Path, help="where stores are made (default: the system's temporary folder)")
    parser.add_argument("--quick", action="store_true", help="tiny clips: does it all run?")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
