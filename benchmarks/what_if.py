"""What `viewcache plan --budget` predicts, beside what real runs count and take.

A first run with room for everything measures what work costs on this machine; with these rates reading is simulated
under parts of that room and at several paces, and then really done, each in a process of its own with an empty store.
"""

import json
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Figure, Result, main, run_apart

EVERYTHING = 10**12
"""Bytes that are never full."""


@dataclass(frozen=True, slots=True)
class Run:
    """One task, read from the first epoch to the last."""

    videos: str
    folder: str
    budget_bytes: int
    pace_s: float
    epochs: int = 10
    generation: int = 5
    """Epochs of one."""
    videos_per_batch: int = 4
    seed: int = 0

    def config(self) -> dict[str, Any]:
        """As for `viewcache.open`."""
        steps = [
            {"resize": {"short_side": 256}},
            {"random_crop": {"shape": [224, 224]}},
            {"flip": {"flip_prob": 0.5}},
        ]
        sampling = {"frames_per_video": 16, "frame_stride": 4, "samples_per_video": 2}
        cache = {"store": self.folder, "budget": self.budget_bytes, "epochs_per_generation": self.generation}
        dataset = {
            "tag": "train",
            "video_dataset_path": self.videos,
            "epochs": self.epochs,
            "sampling": {"videos_per_batch": self.videos_per_batch, **sampling},
            "augmentation": [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": steps}],
        }
        return {"cache": {**cache, "seed": self.seed}, "dataset": dataset}


@dataclass(frozen=True, slots=True)
class Counted:
    """What a run counted and took, or what is predicted of it."""

    hits_first: float
    """Of the clips of the first epoch."""
    hits_later: float
    packets: float
    decode_s: float
    stall: float
    """Part of the time."""


def read(run: Run) -> Counted:
    """Really read it, with a consumer that takes its time for each batch."""
    import viewcache

    with viewcache.open(run.config()) as cache:
        reader = cache.task("train")
        hits: list[int] = []
        begun = time.perf_counter()
        for epoch in range(run.epochs):
            before = reader.spent.hits
            for iteration in range(reader.iterations(epoch)):
                reader.read(epoch, iteration)
                time.sleep(run.pace_s)
            hits.append(reader.spent.hits - before)
        wall_s = time.perf_counter() - begun
        waited_s, uses = reader.spent.waited_s, reader.spent.hits + reader.spent.misses
        assert cache.owner.dispatcher is not None
        packets, decode_s = cache.owner.dispatcher.tally.frames["packets"], cache.owner.dispatcher.tally.busy["decode"]
    each = uses / run.epochs
    later = sum(hits[1:]) / each / (run.epochs - 1)
    return Counted(hits[0] / each, later, packets, decode_s, waited_s / wall_s)


def read_apart(run: Run, where: Path | None, keep: str = "") -> Counted:
    """`read` in a process of its own with an empty store; ``keep`` names a folder where the store stays."""
    return Counted(**run_apart("benchmarks.what_if", run, where, keep))


def predicted(run: Run) -> tuple[Counted, int]:
    """The same simulated, with the rates of the store in its folder, and the most bytes in use."""
    from viewcache.api.config.load import load
    from viewcache.api.preview.what_if import Question, what_if

    question = Question((run.budget_bytes,), run.pace_s, prefetch=0)
    (found,) = what_if(load(run.config()), question).budgets
    later = found.hits_later or 0.0
    counted = Counted(found.hits_first, later, found.packets, found.decode_s, found.stall)
    return counted, found.most_bytes


def bench(args: Namespace) -> Iterator[Result]:
    """All budgets at all paces; the medians of the real runs beside what is predicted."""
    with tempfile.TemporaryDirectory(prefix="viewcache-rates-", dir=args.dir) as rates:
        run = Run(str(args.videos), rates, EVERYTHING, 0.0, args.epochs, args.generation, args.batch, args.seed)
        read_apart(run, args.dir, keep=rates)
        full = predicted(run)[1]
        for part in args.parts:
            for pace_s in args.paces:
                asked = replace(run, budget_bytes=int(full * part), pace_s=pace_s)
                guess = predicted(asked)[0]
                counts = [read_apart(asked, args.dir) for _ in range(args.repeats)]
                print(f"{part:.0%} at {pace_s} s: predicted {guess}, measured {counts}", file=sys.stderr)
                yield from _beside(f"{part:.0%} of {full / 1e6:.0f} MB, {pace_s:g} s a batch", guess, counts)


def _beside(title: str, guess: Counted, counts: list[Counted]) -> Iterator[Result]:
    for name, unit in UNITS.items():
        samples = tuple(sorted(getattr(each, name) for each in counts))
        real, told = samples[len(samples) // 2], getattr(guess, name)
        error = f"{told / real - 1:+.0%}" if unit in ("packets", "s") and real else f"{told - real:+.3f}"
        yield Figure(f"{title}: {name}, measured", real, f"{unit} (predicted {told:.4g}, {error})", samples=samples)


UNITS = {"hits_first": "of 1", "hits_later": "of 1", "packets": "packets", "decode_s": "s", "stall": "of 1"}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--epochs", type=int, default=10, help="of the task (default 10)")
    parser.add_argument("--generation", type=int, default=5, help="epochs that are planned at once (default 5)")
    parser.add_argument("--batch", type=int, default=4, help="videos of a batch (default 4)")
    parser.add_argument(
        "--parts", type=float, nargs="+", default=[1.0, 0.6, 0.3], help="budgets, of what everything takes"
    )
    parser.add_argument("--paces", type=float, nargs="+", default=[0.0, 0.3], help="seconds a batch (default 0 0.3)")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(asdict(read(Run(**json.loads(sys.argv[2]))))))
    else:
        main(__doc__, bench, _arguments)
