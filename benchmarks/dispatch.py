"""What one dispatcher keeps up with: jobs a second, copies recorded a second, and how long a policy holds up the jobs.

Workers are processes of the product that answer at once (`benchmarks.answering`), over invented videos; catalog,
ledger, tier and rules are the real ones, and each object is a real one of a few kilobytes. CPU is that of the owner
alone: all of its threads, and not its workers. Jobs are counted on the disk and in shared memory, where no disk's pace
is in the figure. For the policies the tier is full of copies of clips of all epochs; what counts is the time from one
job that the dispatcher gives out to the next, and how long a reader waits meanwhile.
"""

import json
import os
import random
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Aim, Figure, Result, Table, main, run_apart
from benchmarks.invented import dataset_of, index_of, recorded_files, recorded_task
from viewcache.api.config.load import load
from viewcache.catalog import Catalog
from viewcache.catalog.policies import all_policies, find_policy
from viewcache.catalog.records import CopyRow, ProgressRow
from viewcache.materializer.child import start_child
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.scheduling.dispatcher import Dispatcher, DispatcherSettings
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.work import Position
from viewcache.materializer.storage.codecs import CodecChooser
from viewcache.materializer.storage.eviction import Eviction
from viewcache.materializer.storage.ledger import Ledger
from viewcache.materializer.storage.shelf import Copy, Shelf, written_row
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.workers import pool as pools
from viewcache.materializer.workers.job import FolderTarget, Job
from viewcache.materializer.workers.pool import Event, WorkerPool
from viewcache.store import ArrayMeta, LocalTier, Written, physical_of, write_object
from viewcache.store.tier import LOCAL

EPOCHS, FRAMES, GOP = 5, 250, 50
POLICIES = ("demand", "sand", "refcount", "lru", "fifo", "cost_benefit")
WORKERS = 2
LINKS = 30_000
"""Of one file: a file system has room for so many names of it."""
READ_EVERY_S = 0.05
"""How often the reader asks for a clip that nobody has made."""
BATCH = 4096
"""Copies that are recorded together, in bulk."""
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Run:
    """One part of the benchmark, in a process of its own."""

    part: str
    folder: str = ""
    videos: int = 10_000
    copies: int = 0
    seconds: float = 0.0
    policies: tuple[str, ...] = POLICIES
    seed: int = 0


class _Watch(Observer):
    """When the dispatcher gave out each job, and when some were done."""

    def __init__(self, jobs: int = 0, started: int = 0) -> None:
        """Wait for so many jobs; of these the first ``started`` are those that workers had to start for."""
        super().__init__()
        self.given_at: list[float] = []
        self.started, self.done = threading.Event(), threading.Event()
        self._ended, self._jobs, self._first = 0, jobs, started

    def given(self, job: Job, worker: int, paused: int) -> None:
        """Note the time."""
        super().given(job, worker, paused)
        self.given_at.append(time.perf_counter())

    def on_event(self, event: Event) -> None:
        """Count down."""
        super().on_event(event)
        self._ended += event.report is not None
        if self._ended == self._first:
            self.started.set()
        if self._ended == self._jobs:
            self.done.set()


class _Timed(Ledger):
    """Notes how long the policy was asked, and whether the dispatcher asked it."""

    def __init__(self, catalog: Catalog, eviction: Eviction | None = None) -> None:
        super().__init__(catalog, eviction=eviction)
        self.asked: list[float] = []

    def choose(self, tier: str, need: int, protected: set[str]) -> list[Copy]:
        """As usual, with a watch."""
        begun = time.perf_counter()
        try:
            return super().choose(tier, need, protected)
        finally:
            self.asked.append(time.perf_counter() - begun)


@dataclass(slots=True)
class _Site:
    """A catalog with one task whose first generation is planned, and a store."""

    folder: str
    catalog: Catalog
    active: ActiveGeneration
    tier: LocalTier
    ledger: _Timed
    stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def make(cls, folder: str, videos: int, budget: int, stack: ExitStack) -> "_Site":
        catalog = stack.enter_context(Catalog.open(folder))
        # The smallest clips that are clips: what is measured is what happens once a job, an object or a decision.
        config = load({"dataset": dataset_of("t", 2, 2, crop=16)})
        files = recorded_files(catalog, videos, index_of(FRAMES, GOP))
        task = recorded_task(catalog, config, config.tasks[0], files, EPOCHS)
        return cls(folder, catalog, task.generation(0), LocalTier(folder, budget), _Timed(catalog))

    def dispatcher(self, watch: Observer, reserve: int = 0) -> Dispatcher:
        """One with workers that answer at once."""
        settings = DispatcherSettings(
            FolderTarget(self.tier.root, False), CodecChooser({"local": "raw"}, list, Prices), 1 << 28, reserve
        )
        pool = WorkerPool(WORKERS, memory_bytes=1 << 30, observer=watch)
        tiers = Tiers([self.tier], self.ledger)
        return Dispatcher(self.ledger, tiers, pool, settings, _no_bad_clip, _no_scan, watch)


def _no_bad_clip(work: object, rows: list[int], why: str) -> None:
    raise AssertionError(f"rows {rows} are bad: {why}")


def _no_scan(key: str, scanned: Scanned) -> None:
    raise AssertionError(f"{key} came with its index")


def _answering(module: str, fd: int, *arguments: str) -> Any:
    return start_child("benchmarks.answering", fd, *arguments)


def one(run: Run) -> dict[str, Any]:
    """Run one part."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(pools, "start_child", _answering))
        parts: dict[str, Callable[[Run, ExitStack], dict[str, Any]]]
        parts = {"jobs": _jobs, "copies": _copies, "policies": _policies}
        return parts[run.part](run, stack)


# Jobs -----------------------------------------------------------------------------------------------------------------


def _jobs(run: Run, stack: ExitStack) -> dict[str, float]:
    """Everything that there is to make, with room for all of it."""
    site = _Site.make(run.folder, run.videos, 10**12, stack)
    started = run.videos // 10
    watch = _Watch(run.videos, started)
    dispatcher = site.dispatcher(watch)
    dispatcher.look_ahead([site.active])
    watch.started.wait()
    before, threads = (time.perf_counter(), time.process_time()), _thread_s()
    watch.done.wait()
    site.catalog.flush()
    wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    after = _thread_s()
    dispatcher.close()
    objects = len(site.ledger)
    assert objects == len(site.active) == site.catalog.load_copies().num_rows, "something was not made"
    return {
        "jobs": run.videos - started,
        "objects": objects,
        "wall_s": wall,
        "cpu_s": cpu,
        **{name: after[name] - threads.get(name, 0.0) for name in after},
    }


def _thread_s() -> dict[str, float]:
    """CPU seconds of the threads of this process that are known by name."""
    tick, found = os.sysconf("SC_CLK_TCK"), {}
    for thread in threading.enumerate():
        with suppress(FileNotFoundError):  # it has just ended, as threads do that only start something
            fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
            found[thread.name] = (int(fields[11]) + int(fields[12])) / tick
    return found


# Copies ---------------------------------------------------------------------------------------------------------------


def _copies(run: Run, stack: ExitStack) -> dict[str, float]:
    """Every clip of the plan recorded as a copy, in bulk."""
    site = _Site.make(run.folder, run.videos, 10**12, stack)
    written = _write(site, 0)
    made = [(int(each), site.active.key(row)) for row, each in enumerate(site.active.object_ids)]
    rows = [
        written_row(object_id, LOCAL, replace(written, key=key, physical=physical_of(key)), object_id)
        for object_id, key in made
    ]
    before = time.perf_counter(), time.process_time()
    for start in range(0, len(rows), BATCH):
        site.catalog.mark_ready(rows[start : start + BATCH])
    site.catalog.flush()
    wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    assert site.catalog.load_copies().num_rows == len(rows), "some copies were not recorded"
    return {"copies": len(rows), "wall_s": wall, "cpu_s": cpu}


def _write(site: _Site, row: int) -> Written:
    recipe = site.active.recipe(row)
    meta = ArrayMeta(recipe.shape, recipe.chunk_shape, "raw", {})
    return write_object(site.folder, recipe.key, np.zeros(recipe.shape, np.uint8), meta)


# Policies -------------------------------------------------------------------------------------------------------------


def _policies(run: Run, stack: ExitStack) -> dict[str, dict[str, float]]:
    """For each policy some seconds of look-ahead, and of a reader that jumps about, over a full tier."""
    site = _Site.make(run.folder, run.videos, 1, stack)
    _fill(site, run.copies, run.seed)
    batches = site.active.iterations
    site.catalog.advance(ProgressRow(site.active.task_id, 0, 1, 0, batches, 0.3))
    chance = random.Random(run.seed)
    return {policy: _policy(site, policy, run.seconds, chance) for policy in run.policies}


def _policy(site: _Site, policy: str, seconds: float, chance: random.Random) -> dict[str, float]:
    ledger = _Timed(site.catalog, Eviction(site.catalog, find_policy(policy, all_policies(None))))
    site.catalog.flush()
    ledger.adopt(Shelf.recorded(site.catalog, LOCAL))
    site.ledger, active, watch = ledger, site.active, _Watch()
    dispatcher = site.dispatcher(watch, reserve=8 * active.plan.bound)
    dispatcher.progressed(active, Position(1, 0, 0.3))
    waits: list[float] = []
    last = len(active) - len(active) // EPOCHS

    def read(count: int) -> None:
        rows = chance.sample(range(last, len(active)), 4 * count)
        rows = [row for row in rows if not ledger.has(active.key(row))][:count]
        asked = time.perf_counter()
        with dispatcher.fetch(active, rows, timeout_s=60):
            waits.append(time.perf_counter() - asked)

    read(WORKERS)  # of so many videos: now all workers have been started
    waits.clear()
    begun = time.perf_counter()
    dispatcher.look_ahead([active])
    while time.perf_counter() < begun + seconds:
        read(1)
        time.sleep(READ_EVERY_S)
    ended = time.perf_counter()
    dispatcher.close()
    gaps = np.diff([begun, *(at for at in watch.given_at if begun < at < ended), ended])
    return {
        "jobs": len(gaps) / (ended - begun),
        "policy": float(np.median(ledger.asked)) if ledger.asked else 0.0,
        **{f"gap {name}": value for name, value in _spread(gaps).items()},
        **{f"wait {name}": value for name, value in _spread(np.array(waits)).items()},
    }


def _spread(seconds: NDArray[np.float64]) -> dict[str, float]:
    return {"p50": float(np.median(seconds)), "p99": float(np.quantile(seconds, 0.99)), "worst": float(seconds.max())}


def _fill(site: _Site, count: int, seed: int) -> None:
    """Let clips of all epochs lie in the store, as many as that, and let it be full of them."""
    active = site.active
    rows = np.random.default_rng(seed).permutation(len(active))[:count].tolist()
    records: list[CopyRow] = []
    for start in range(0, count, LINKS):
        first, *others = rows[start : start + LINKS]
        written = _write(site, first)
        _link(site.folder, written.physical, [physical_of(active.key(row)) for row in others])
        for row in (first, *others):
            key = active.key(row)
            object_id, mine = int(active.object_ids[row]), replace(written, key=key, physical=physical_of(key))
            records.append(written_row(object_id, LOCAL, mine, object_id))
    for start in range(0, count, BATCH):
        site.catalog.mark_ready(records[start : start + BATCH])
    site.catalog.flush()
    site.ledger.adopt(Shelf.recorded(site.catalog, LOCAL))
    used = sum(row.bytes for row in records)
    site.tier.settle(used)
    site.tier.resize(used + 8 * active.plan.bound)


def _link(root: str, source: str, places: Sequence[str]) -> None:
    """Further names for the files of an object: what is evicted is deleted for real, and takes no room meanwhile."""
    names = os.listdir(f"{root}/{source}")
    for prefix in {place.rpartition("/")[0] for place in places}:
        os.makedirs(f"{root}/{prefix}", exist_ok=True)
    for place in places:
        os.mkdir(f"{root}/{place}")
        for name in names:
            os.link(f"{root}/{source}/{name}", f"{root}/{place}/{name}")


# All of it ------------------------------------------------------------------------------------------------------------


def bench(args: Namespace) -> Iterator[Result]:
    """Jobs, copies, policies."""
    yield from _job_figures(args, "", args.folder)
    if MEMORY.is_dir():
        yield from _job_figures(args, " in memory", MEMORY, 1000)
    found = [_apart(args.folder, Run("copies", videos=args.videos)) for _ in range(args.repeats)]
    what = f"{found[0]['copies']:,} copies recorded in bulk"
    by_cpu = tuple(each["copies"] / each["cpu_s"] for each in found)
    yield _figure(f"{what}, a CPU second", by_cpu, "copies/s", 20_000)
    yield _figure(f"{what}, a second", tuple(each["copies"] / each["wall_s"] for each in found), "copies/s")
    videos = args.uses // EPOCHS
    run = Run("policies", "", videos, args.copies, args.seconds, tuple(args.policies), args.seed)
    policies = _apart(args.folder, run)
    yield Table(
        f"{args.uses:,} uses, a full tier of {args.copies:,} copies",
        ("jobs/s", "policy, s", "no job for, ms: p50", "p99", "worst", "a reader waits, ms: p50", "p99", "worst"),
        {policy: _row_of(each) for policy, each in policies.items()},
    )


def _job_figures(args: Namespace, where: str, folder: Path | None, at_least: float | None = None) -> Iterator[Figure]:
    """Of jobs whose objects lie in a folder."""
    found = [_apart(folder, Run("jobs", videos=args.videos)) for _ in range(args.repeats)]
    per_job = {
        name: 1e3 * found[-1][f"viewcache-{name}"] / found[-1]["jobs"] for name in ("dispatcher", "catalog-writer")
        if f"viewcache-{name}" in found[-1]
    }  # fmt: skip
    of_which = ", ".join(f"{name} {ms:.2f} ms a job" for name, ms in per_job.items())
    what = f"{args.videos:,} videos, {EPOCHS} clips a job{where}"
    by_cpu = tuple(each["jobs"] / each["cpu_s"] for each in found)
    yield _figure(f"{what}: jobs a CPU second of the owner", by_cpu, f"jobs/s ({of_which})", at_least)
    yield _figure(f"{what}: jobs a second", tuple(each["jobs"] / each["wall_s"] for each in found), "jobs/s")


def _row_of(found: dict[str, float]) -> tuple[float, ...]:
    spread = [round(1e3 * found[f"{what} {name}"], 1) for what in ("gap", "wait") for name in ("p50", "p99", "worst")]
    return round(found["jobs"]), round(found["policy"], 2), *spread


def _figure(title: str, samples: tuple[float, ...], unit: str, at_least: float | None = None) -> Figure:
    aim = None if at_least is None else Aim(at_least=at_least)
    return Figure(title, float(np.median(samples)), unit, aim, samples)


def _apart(folder: Path | None, run: Run) -> Any:
    return run_apart("benchmarks.dispatch", run, folder)


def arguments(parser: ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--videos", type=int, default=10_000, help="of the part with jobs and copies (default 10,000)")
    parser.add_argument("--uses", type=int, default=1_000_000, help="of the part with policies (default 1,000,000)")
    parser.add_argument("--copies", type=int, default=200_000, help="in the full tier (default 200,000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that each policy is watched (default 20)")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), help="names (default: all that are shipped)")
    parser.add_argument("--folder", type=Path, help="where caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(Run(**json.loads(sys.argv[2])))))
    else:
        main(__doc__, bench, arguments)
