"""Planning: uses a second and memory, from an empty catalog to a recorded generation, and how both grow with its size.

A generation of 5 epochs with 2 clips of 32 frames a video and epoch, so ten uses a video, over invented videos whose
packet indexes are read like real ones. Two tasks draw together and have half of the uses each. Each size is a process
of its own; the parts are timed inside the run that is timed as a whole, which is that of `Task.generation`.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import wraps
from typing import Any

from benchmarks.harness import ROOT, Figure, Result, main
from benchmarks.invented import dataset_of, index_of, recorded_files, recorded_task
from viewcache.api.config.load import load
from viewcache.catalog import Catalog
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.tasks import numbering, planner
from viewcache.materializer.tasks import task as planning
from viewcache.materializer.tasks.group import Group, shares

EPOCHS, SAMPLES, FRAMES, GOP = 5, 2, 300, 150
TASKS = {"slowfast": (32, 2), "mae": (16, 4)}
PARTS = ("order", "clips", "keys", "ids", "frames and packets", "rows", "record")


@dataclass(slots=True)
class Took:
    """What one run took."""

    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds by part of the work."""
    before_mib: float = 0.0
    """Most memory until planning began: imports, and the videos with their indexes."""
    peak_mib: float = 0.0


def bench(args: Namespace) -> Iterator[Result]:
    """Each size with one task, then with two."""
    for tasks in (1, 2):
        for uses in args.uses:
            # Minutes are long enough to be measured once.
            took = [_run(uses, tasks, args.folder) for _ in range(args.repeats if uses <= 10**5 else 1)]
            title = f"{uses:.0e} uses of {tasks} {'task' if tasks == 1 else 'tasks'}"
            seconds = tuple(one.seconds for one in took)
            middle, last = statistics.median(seconds), took[-1]
            parts = ", ".join(f"{part} {last.parts.get(part, 0.0):.3g}" for part in PARTS)
            yield Figure(
                f"{title}: planned and recorded", middle, f"s ({uses / middle:,.0f} a second; {parts})", None, seconds
            )
            each = (last.peak_mib - last.before_mib) * 2**20 / uses
            unit = f"MiB ({last.before_mib:.0f} before; {each:.0f} B a use)"
            yield Figure(f"{title}: memory at most", round(last.peak_mib), unit)


def _run(uses: int, tasks: int, folder: str | None) -> Took:
    command = [sys.executable, "-m", "benchmarks.planning", "--one", str(uses), str(tasks), folder or ""]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Took(**json.loads(done.stdout.splitlines()[-1]))


def plan_once(uses: int, tasks: int, where: str) -> Took:
    """Plan and record one generation of each task; ``uses`` in all."""
    took = Took()
    config = load({"dataset": [dataset_of(name, *clip, samples=SAMPLES) for name, clip in list(TASKS.items())[:tasks]]})
    with Catalog.open(where) as catalog:
        files = recorded_files(catalog, uses // tasks // (EPOCHS * SAMPLES), index_of(FRAMES, GOP))
        members = [recorded_task(catalog, config, spec, files, EPOCHS) for spec in config.tasks]
        group = Group(catalog, 0, 16, lambda: _nobody_reads())
        for task, share in zip(members, shares(members), strict=True):
            task.share(share, group if share.together else None)
        _time_parts(catalog, took)
        took.before_mib = _peak_mib()
        begun = time.perf_counter()
        for task in members:
            task.generation(0)
        took.seconds = time.perf_counter() - begun
        took.peak_mib = _peak_mib()
        assert sum(len(task.generation(0).plan) for task in members) == uses
    return took


def _nobody_reads() -> Any:
    raise AssertionError("planning draws nothing for readers")


def _time_parts(catalog: Catalog, took: Took) -> None:
    """Put a stopwatch around the parts where the task calls them."""

    def timed(part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(work)
        def run(*args: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return work(*args, **options)
            finally:
                took.parts[part] = took.parts.get(part, 0.0) + time.perf_counter() - begun

        return run

    for part, holder, name in (
        ("order", planning, "recorded_order"),
        ("clips", planner, "plan_generation"),
        ("keys", GenerationPlan.keys, "func"),
        ("ids", catalog, "objects_by_key"),
        ("frames and packets", numbering, "frame_needs"),
        ("rows", numbering, "plan_tables"),
        ("record", catalog, "record_plan"),
    ):
        setattr(holder, name, timed(part, getattr(holder, name)))


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--uses",
        type=int,
        nargs="+",
        default=[10**5, 10**6, 10**7],
        help="of one generation of all tasks (default 1e5 1e6 1e7)",
    )
    parser.add_argument("--folder", help="where the catalogs are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        with tempfile.TemporaryDirectory(prefix="viewcache-planning-", dir=sys.argv[4] or None) as folder:
            print(json.dumps(asdict(plan_once(int(sys.argv[2]), int(sys.argv[3]), f"{folder}/catalog"))))
    else:
        main(__doc__, bench, _arguments)
