"""A search in processes: trainings side by side through one service, and against what else there is.

``equal``: four equal trainings at a fixed step, fed by one service, a cache for each, one loader in lock step (CoorDL's
way), or a DataLoader of two workers for each. ``network``: the same with real steps of a small 3D network. ``paces``,
``staggered`` and ``overlap`` are JOADER's Fig. 6, 7a and 7b. CPU is that of the whole family from the first batch to
the end of closing, the service's by its own report; starting and opening are apart.
"""

import multiprocessing
import random
import shutil
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, Stopwatch, Table, Timing, cpu_seconds, main
from benchmarks.lockstep import PATIENCE_S, Desk, make_desk, serve
from benchmarks.scale import make_clips
from benchmarks.trainees import APART, FEEDS, LOCK_STEP, ON_DEMAND, SERVICE, Job, Took, setting_of, train
from viewcache.api.service.stopping import stop
from viewcache.errors import NotFound

__all__ = ["PARTS", "Run", "bench", "run"]

JOBS = 4
CONTEXT = multiprocessing.get_context("spawn")
SMALL: dict[str, Any] = {"frames": 16, "short_side": 240, "crop": 224, "step_s": 0.15}
"""Of trainings over invented clips, where packets are counted and time is not."""


@dataclass(frozen=True, slots=True)
class Run:
    """Trainings that ran side by side."""

    took: tuple[Took, ...]
    ready_cpu_s: float
    """Of starting and opening, all processes."""
    wall_s: float
    """From the first word to begin until all have closed; taking down an interpreter with torch in it comes later."""
    trainings_cpu_s: float
    """In that time: of the trainings with their workers, and of a loader in lock step."""
    service_cpu_s: float
    """In that time: of the service with its workers."""
    work: dict[str, float]
    """What the workers of the service have done in all."""

    @property
    def cpu_s(self) -> float:
        """Of the whole family."""
        return self.trainings_cpu_s + self.service_cpu_s


def run(jobs: Sequence[Job], *, staggered: bool = False, keep: bool = False) -> Run:
    """Run trainings, each in a process.

    Args:
        jobs: of one feed.
        staggered: each begins when the one before has had half an epoch, else all begin at once.
        keep: leave the service running, for a further run.

    Returns:
        What they took.
    """
    before = cpu_seconds()
    begin, processes = CONTEXT.Event(), list[SpawnProcess]()
    try:
        desk = _lock_step(jobs, processes, begin) if jobs[0].feed == LOCK_STEP else None
        lines = [_start(job, processes, desk) for job in jobs]
        for line in lines:
            _expect(line, "ready")
        ready_cpu_s = cpu_seconds() - before
        with Stopwatch() as watch:
            begin.set()
            lines[0].send("go")
            for earlier, later in pairwise(lines):
                if staggered:
                    _expect(earlier, "half")
                later.send("go")
            took = tuple(_told(line) for line in lines)
        for line in lines:
            line.send("end")
        for process in processes:
            process.join()
    finally:
        for process in processes:
            process.kill()  # harmless to those that have ended
    last = max(took, key=lambda each: each.service_cpu_s[1])
    ready_s = max(each.service_cpu_s[0] for each in took)
    if jobs[0].feed == SERVICE and not keep:
        stop(Path(jobs[0].folder))
    own = ready_cpu_s + ready_s
    return Run(took, own, watch.wall_s, watch.cpu_s, last.service_cpu_s[1] - ready_s, last.work)


def _lock_step(jobs: Sequence[Job], processes: list[SpawnProcess], begin: Event) -> Desk:
    """Start the one loader and wait until it has looked at the videos."""
    setting, ready = setting_of(jobs[0]), CONTEXT.Event()
    desk = make_desk(CONTEXT, setting, len(jobs))
    processes.append(CONTEXT.Process(target=serve, args=(desk, setting, ready, begin)))
    processes[-1].start()
    assert ready.wait(PATIENCE_S), "the loader did not get ready"
    return desk


def _start(job: Job, processes: list[SpawnProcess], desk: Desk | None) -> Connection:
    """Start a training."""
    line, theirs = CONTEXT.Pipe()
    processes.append(CONTEXT.Process(target=train, args=(job, theirs, desk)))
    processes[-1].start()
    theirs.close()
    return line


def _expect(line: Connection, word: str) -> None:
    said = line.recv()
    assert said == word, f"a training said {said!r} where {word!r} was to come"


def _told(line: Connection) -> Took:
    said: object = "half"
    while said == "half":
        said = line.recv()
    assert isinstance(said, Took)
    return said


# Four equal trainings ------------------------------------------------------------------------------------------------


def _equal(args: Namespace, folder: Path) -> Iterator[Result]:
    yield from _race(
        args, folder, f"four equal trainings, {args.step:g} s a batch", epochs=args.epochs, step_s=args.step
    )


def _network(args: Namespace, folder: Path) -> Iterator[Result]:
    yield from _race(args, folder, "four trainings of a 3D network", epochs=min(args.epochs, 2), step_s=0.0)


def _race(args: Namespace, folder: Path, title: str, **job: Any) -> Iterator[Result]:
    """All feeds in every round, in a new order."""
    order, runs = random.Random(args.seed), {feed: list[Run]() for feed in FEEDS}
    for repeat in range(args.repeats):
        for feed in order.sample(FEEDS, len(FEEDS)):
            with _emptied(folder / "store") as store:
                shared = Job("", feed, str(args.videos), str(store), seed=args.seed + repeat, **job)
                runs[feed].append(run(_equal_jobs(shared, feed)))
    clips = {sum(took.clips for took in each.took) for all_of in runs.values() for each in all_of}
    assert len(clips) == 1, f"the feeds did not do the same work: {clips} clips"
    timings = tuple(
        Timing(feed, tuple(each.wall_s for each in all_of), tuple(each.cpu_s for each in all_of))
        for feed, all_of in runs.items()
    )
    fixed = job["step_s"] > 0
    aims = (Aim(SERVICE, at_most=0.08),) if fixed else ()
    yield Comparison(f"{title}: CPU of the whole family", ON_DEMAND, timings, "cpu_s", aims)
    yield Comparison(f"{title}: wall", ON_DEMAND, timings, "wall_s")
    for rival in (APART, LOCK_STEP):
        ratios = tuple(ours.cpu_s / its.cpu_s for ours, its in zip(runs[SERVICE], runs[rival], strict=True))
        yield Figure(f"{title}: CPU, {SERVICE} ÷ {rival}", median(ratios), "x", samples=ratios)
    for feed, all_of in runs.items():
        later = tuple(max(took.later for took in each.took) for each in all_of)
        aim = Aim(at_most=1.02) if fixed and feed == SERVICE else None
        yield Figure(
            f"{title}: epochs after the first ÷ the trainings' own time, {feed}", median(later), "x", aim, later
        )
    columns = (
        "trainings, CPU s",
        "service, CPU s",
        "before the first batch, CPU s",
        "a training's peak, MB",
        "waited, s",
    )
    yield Table(f"{title}: where it goes, medians", columns, {feed: _row(each) for feed, each in runs.items()})


def _equal_jobs(shared: Job, feed: str) -> list[Job]:
    budget = shared.budget_bytes // (JOBS if feed == APART else 1)
    return [replace(shared, name=f"job{n}", number=n, budget_bytes=budget) for n in range(JOBS)]


def _row(runs: Sequence[Run]) -> tuple[float, ...]:
    def middle(of: Callable[[Run], float]) -> float:
        return round(median(map(of, runs)), 2)

    return (
        middle(lambda each: each.trainings_cpu_s),
        middle(lambda each: each.service_cpu_s),
        middle(lambda each: each.ready_cpu_s),
        middle(lambda each: max(took.memory_mb for took in each.took)),
        middle(lambda each: max(took.waited_s for took in each.took)),
    )


# JOADER's Fig. 6, 7a and 7b ------------------------------------------------------------------------------------------


def _paces(args: Namespace, folder: Path) -> Iterator[Result]:
    """Paces 1 : 0.5 : 0.25; then the fast one again, alone, on what is there; and all of them in lock step."""
    alone, company, later, locked = list[float](), list[float](), list[float](), list[float]()
    for repeat in range(args.repeats):
        with _emptied(folder / "store") as store:
            fast = Job(
                "fast", SERVICE, str(args.videos), str(store), seed=args.seed + repeat, epochs=3, step_s=args.step
            )
            jobs = [replace(fast, name=f"pace{k}", number=k, step_s=args.step * 2**k) for k in range(3)]
            together, warm = run(jobs, keep=True), run(jobs[:1])
            assert warm.work["packets"] == together.work["packets"], "alone, the fast one read what was there"
        in_step = run([replace(job, feed=LOCK_STEP) for job in jobs])
        base = warm.took[0]
        alone.append(base.wall_s)
        company.append(together.took[0].wall_s / base.wall_s)
        later.append((together.took[0].wall_s - together.took[0].first_s) / (base.wall_s - base.first_s))
        locked.append(in_step.took[0].wall_s / base.wall_s)
    title = "paces 1 : 0.5 : 0.25, the fast one ÷ alone on a warm cache"
    yield Figure(f"{title}: {SERVICE}, epochs after the first", median(later), "x", Aim(at_most=1.03), tuple(later))
    yield Figure(
        f"{title}: {SERVICE}, with the first, from an empty store", median(company), "x", samples=tuple(company)
    )
    yield Figure(f"{title}: {LOCK_STEP}", median(locked), "x", samples=tuple(locked))
    yield Figure("the fast one alone", median(alone), "s", samples=tuple(alone))


def _staggered(args: Namespace, folder: Path) -> Iterator[Result]:
    """Four trainings that begin half an epoch apart, against one."""
    videos, ratios, cpu = _invented(folder), list[float](), list[float]()
    for repeat in range(args.repeats):
        taken: dict[int, Run] = {}
        for count in (1, JOBS):
            with _emptied(folder / "store") as store:
                shared = Job("", SERVICE, str(videos), str(store), seed=args.seed + repeat, epochs=4, **SMALL)
                jobs = [replace(shared, name=f"job{n}", number=n) for n in range(count)]
                taken[count] = run(jobs, staggered=True)
        ratios.append(taken[JOBS].work["packets"] / taken[1].work["packets"])
        cpu.append(taken[JOBS].service_cpu_s / taken[1].service_cpu_s)
    title = "four trainings half an epoch apart ÷ one"
    yield Figure(f"{title}: packets decoded", median(ratios), "x", Aim(at_most=1.1), tuple(ratios))
    yield Figure(f"{title}: CPU of the service", median(cpu), "x", samples=tuple(cpu))


def _overlap(args: Namespace, folder: Path) -> Iterator[Result]:
    """Two trainings over half of the videos each, of which they have 0 to 100 % in common."""
    videos, rows = _invented(folder), dict[str, tuple[float, ...]]()
    names = sorted(path.stem for path in videos.iterdir())
    half = len(names) // 2
    base: Run | None = None
    for percent in (0, 25, 50, 75, 100):
        begin = half - half * percent // 100
        with _emptied(folder / "store") as store:
            shared = Job("", SERVICE, str(videos), str(store), seed=args.seed, epochs=4, **SMALL)
            bounds = [(names[first], names[first + half - 1]) for first in (0, begin)]
            jobs = [
                replace(shared, name=f"job{n}", number=n, where=f"name >= '{least}' and name <= '{most}'")
                for n, (least, most) in enumerate(bounds)
            ]
            done = run(jobs)
        base = base or done
        rows[f"{percent} %"] = (
            done.work["packets"],
            round(done.work["packets"] / base.work["packets"], 2),
            1 - percent / 200,
            round(done.service_cpu_s / base.service_cpu_s, 2),
        )
    columns = ("packets", "÷ those without overlap", "least possible", "CPU of the service ÷ without overlap")
    yield Table("two trainings, by what they have in common", columns, rows)


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    """An empty folder that is removed afterwards, whatever serves it ended."""
    folder.mkdir()
    try:
        yield folder
    finally:
        with suppress(NotFound):
            stop(folder, now=True)
        shutil.rmtree(folder)


def _invented(folder: Path) -> Path:
    """32 clips of moving pictures whose names sort."""
    videos = folder / "videos"
    if not videos.exists():
        for number, path in enumerate(make_clips(videos, 32, 100)):
            path.rename(videos / f"v{number:02}.mp4")
    return videos


PARTS: dict[str, Callable[[Namespace, Path], Iterator[Result]]] = {
    "equal": _equal,
    "network": _network,
    "paces": _paces,
    "staggered": _staggered,
    "overlap": _overlap,
}
"""Name → what measures it, given a folder of its own."""


def bench(args: Namespace) -> Iterator[Result]:
    """The parts that were asked for."""
    for name in args.parts:
        folder = Path(tempfile.mkdtemp(prefix="viewcache-search-", dir=args.dir))
        try:
            yield from PARTS[name](args, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured (default all)")
    parser.add_argument(
        "--epochs", type=int, choices=range(2, 31), metavar="N", default=10, help="of equal trainings (default 10)"
    )
    parser.add_argument("--step", type=float, default=1.0, help="seconds a batch takes its training (default 1)")
    parser.add_argument("--dir", type=Path, help="where the stores are made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
