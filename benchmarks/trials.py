"""A search of many trials over a large dataset: what each further trial takes of the service, the catalog and its time.

Trials are jobs of one definition, one after another, as a scheduler that ends most of them early starts them. Each
opens the cache, reads a few batches and ends. Clips are made up and lie under many names, as in `benchmarks.scale`.
What Python takes to import is told apart: a training has most of it imported for itself.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import ROOT, Aim, Figure, Result, Table, main
from benchmarks.scale import link, make_clips
from viewcache.api.service.stopping import stop

BATCHES = 3
"""That a trial reads before it ends."""

RESTED = 7
"""Further trials, each of which begins when the service has nothing to do."""

QUIET_S = 0.1
"""CPU seconds in a second: a service that takes less has nothing to plan."""

TRIAL = """
import json, sys, time
started = time.perf_counter()
import viewcache.api.service.attached
open_cache = viewcache.open
given, job, batches = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
begun = time.perf_counter()
with open_cache(given, service="auto", job=job) as cache:
    seat = cache.task("train").sit()
    opened = time.perf_counter()
    seat.read(0, 0)
    first = time.perf_counter()
    for iteration in range(1, batches):
        seat.read(0, iteration)
    print(json.dumps({"import_s": begun - started, "open_s": opened - begun, "first_s": first - opened}), flush=True)
    sys.stdin.readline()
"""


def bench(args: Namespace) -> Iterator[Result]:
    """The first trial, which lists and plans, and the mean of those after it."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-trials-", dir=args.dir))
    try:
        link(make_clips(folder / "clips", args.distinct, args.frames), folder / "videos", args.videos)
        given = _described(folder)
        with _trial(given, "watch") as watch:
            told = [_told(watch)]
            service = _Service(folder / "store", given)
            before = service.look()
            for number in range(args.trials):
                with _trial(given, f"trial{number}") as trial:
                    told.append(_told(trial))
            after = service.look()
            rested = []
            for number in range(RESTED):
                with _trial(given, f"rested{number}") as trial:
                    rested.append(_told(trial)["open_s"])
                service.look()
            _end(watch)
        stop(folder / "store")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    each = {name: (after[name] - before[name]) / args.trials for name in after}
    of_trials = {name: statistics.median(one[name] for one in told[1:]) for name in told[0]}
    title = f"{args.trials} trials over {args.videos:,} videos, each one"
    yield Figure(f"{title}: opening and taking its seat, wall", of_trials["open_s"] * 1000, "ms", Aim(at_most=50))
    alone = "the same, when the service has nothing else to do"
    yield Figure(alone, statistics.median(rested) * 1000, "ms", Aim(at_most=50))
    yield Figure(f"{title}: catalog", each["catalog_mb"], "MB", Aim(at_most=1))
    columns = ("import, s", "open and sit, s", "first batch, s", "service, CPU s", "service, MB", "catalog, MB")
    rows = {
        "the first": (*told[0].values(), before["cpu_s"], before["rss_mb"], before["catalog_mb"]),
        "each further one": (*of_trials.values(), each["cpu_s"], each["rss_mb"], each["catalog_mb"]),
    }
    yield Table(
        f"trials of {BATCHES} batches", columns, {name: tuple(round(n, 3) for n in row) for name, row in rows.items()}
    )


class _Service:
    """What the service has taken so far, without its workers."""

    def __init__(self, store: Path, given: dict[str, object]) -> None:
        self._store, self._given = store, given

    def look(self) -> dict[str, float]:
        """CPU seconds, memory and catalog, once all is planned that was asked for."""
        import viewcache

        observer = viewcache.open(self._given, service="attach", job="watch")
        try:
            pid = observer.stats().pid  # type: ignore[attr-defined]
            while True:  # planning goes on in the background
                before = _cpu_s(pid)
                time.sleep(1.0)
                if _cpu_s(pid) - before < QUIET_S:
                    break
            observer.sql("select count(*) from uses")  # what waits is committed
        finally:
            observer.close()
        status = Path(f"/proc/{pid}/status").read_text()
        files = [each for each in self._store.glob("catalog.*") if each.name != "catalog.reserve"]
        return {
            "cpu_s": _cpu_s(pid),
            "rss_mb": int(status.split("VmRSS:")[1].split()[0]) / 1024,
            "catalog_mb": sum(each.stat().st_size for each in files) / 2**20,
        }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _described(folder: Path) -> dict[str, object]:
    return {
        "cache": {"store": str(folder / "store"), "budget": "100MB", "memory": "2GB", "service_idle": 60},
        "dataset": {
            "tag": "train",
            "video_dataset_path": str(folder / "videos"),
            "epochs": 10,
            "sampling": {"videos_per_batch": 8, "frames_per_video": 8, "frame_stride": 2},
            "augmentation": [
                {
                    "branch_type": "single",
                    "inputs": ["frame"],
                    "outputs": ["a"],
                    "config": [{"resize": {"shape": [112, 112]}}],
                }
            ],
        },
    }


def _trial(given: dict[str, object], job: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", TRIAL, json.dumps(given), job, str(BATCHES)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _told(trial: "subprocess.Popen[str]") -> dict[str, float]:
    assert trial.stdout is not None
    return dict(json.loads(trial.stdout.readline()))


def _end(trial: "subprocess.Popen[str]") -> None:
    trial.communicate("\n")


def arguments(parser: ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--videos", type=int, default=10_000, help="names of clips (default 10,000)")
    parser.add_argument("--trials", type=int, default=20, help="after the first one (default 20)")
    parser.add_argument("--distinct", type=int, default=50, help="clips that are made (default 50)")
    parser.add_argument("--frames", type=int, default=100, help="of each clip (default 100)")
    parser.add_argument("--dir", default=None, help="where clips and caches lie (default: the system's temporary one)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
