"""One long training by one system, in a process of its own: ``python -m benchmarks.longrun --one SETTING``.

CPU is that of this process and of all below it. It is looked at when the system is opened, at the end of each epoch and
after closing, so that it can be told what an epoch costs that comes late.
"""

import io
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.handmade import Arrays, Best, by_hand, in_process, with_workers
from benchmarks.harness import clips_in, cpu_seconds, import_ours
from benchmarks.rivals import Batches, Run, Setting, _data_loader, _disk_bytes, _OnDemand, _step, cached, described

__all__ = [
    "ARRAYS",
    "ARRAYS_HERE",
    "BEST",
    "ON_DEMAND",
    "OURS",
    "REENCODED",
    "REENCODED_PLAIN",
    "Long",
    "Took",
    "predicted_s",
]

ON_DEMAND, BEST = "on demand", "on demand at its best"
REENCODED, REENCODED_PLAIN = "re-encoded by hand", "re-encoded by hand, read as tutorials do"
ARRAYS, ARRAYS_HERE = "arrays in memory", "arrays in memory, no workers"
OURS = "viewcache"


@dataclass(frozen=True, slots=True)
class Long(Setting):
    """One run of one system."""

    keep: str = "cheapest"
    """Rule for what is kept under the budget."""
    quality: str = ""
    """The least PSNR of a lossy intermediate, as ``45dB``; empty = exact."""
    preset: str = "medium"
    """Of x264, for the files that are re-encoded by hand."""
    read: int = 0
    """Epochs that are read of all that there are; 0 = all."""
    known: Sequence[Mapping[str, Any]] = ()
    """Measured work that our system knows before it begins: rows of `io_samples`, as a run before has `Took.samples`.
    Then it is predicted what epochs will cost."""


@dataclass(slots=True)
class Took:
    """What one run took. Times count from the process's start."""

    refused: str = ""
    """Why our system did not run: what its error says. The other figures are then of no use."""
    opened_wall_s: float = 0.0
    """When the loop began: interpreter, imports, opening, and what a rival makes before its first epoch."""
    wall_s: list[float] = field(default_factory=list)
    """At the end of each epoch."""
    closed_wall_s: float = 0.0
    imported_cpu_s: float = 0.0
    """Spent on the interpreter and on imports, which are the same for every length of training."""
    opened_cpu_s: float = 0.0
    cpu_s: list[float] = field(default_factory=list)
    """Spent until the end of each epoch, by all processes, the consumer's included."""
    closed_cpu_s: float = 0.0
    consumer_cpu_s: float = 0.0
    """Touching every byte, in all epochs together."""
    clips: int = 0
    disk_bytes: list[int] = field(default_factory=list)
    """What the folder held at the end of each epoch, in blocks of the file system."""
    predicted_cpu_s: dict[str, float] = field(default_factory=dict)
    """Epoch → what `viewcache plan` said before the run that it costs; empty where it said nothing."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """What our system has measured of its work."""

    def cost(self, epochs: int) -> tuple[float, float]:
        """(wall, CPU) seconds of so many epochs, opening and closing with them, imports without.

        More epochs than were run cost as much as those after the first did: what a rival does is the same in each.
        """
        wall = self._scaled(self.wall_s, self.opened_wall_s, self.closed_wall_s, epochs)
        cpu = self._scaled(self.cpu_s, self.opened_cpu_s, self.closed_cpu_s, epochs)
        return wall, cpu - self.imported_cpu_s

    @staticmethod
    def _scaled(ends: list[float], opened: float, closed: float, epochs: int) -> float:
        if epochs <= len(ends):
            return (ends[epochs - 1] if epochs < len(ends) else closed) if epochs else opened
        return closed + (epochs - len(ends)) * (ends[-1] - ends[0]) / (len(ends) - 1)

    def mean(self, first: int, last: int) -> tuple[float, float]:
        """(wall, CPU) seconds of an epoch after the first ``first`` ones, up to ``last``."""
        return tuple(  # type: ignore[return-value]  # a pair
            (ends[last - 1] - (ends[first - 1] if first else opened)) / (last - first)
            for ends, opened in ((self.wall_s, self.opened_wall_s), (self.cpu_s, self.opened_cpu_s))
        )

    def halves(self) -> float:
        """CPU of an epoch in the second half of those after the first ÷ in the first half: 1, if all cost the same."""
        middle = 1 + (len(self.cpu_s) - 1) // 2
        if middle < 2:
            return 1.0
        return self.mean(middle, len(self.cpu_s))[1] / self.mean(1, middle)[1]


def _ours(setting: Long) -> Batches:
    """Our system, from a YAML file that lies beside its store."""
    return cached(_written(setting))


def _written(setting: Long) -> Path:
    config = described(setting)
    config["cache"] |= {"store": str(Path(setting.folder, "store")), "keep": setting.keep}
    if setting.quality:
        config["dataset"]["intermediate"] = {"quality": setting.quality}
    path = Path(setting.folder, "train.yaml")
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


SYSTEMS: dict[str, Callable[[Long], Batches]] = {
    ON_DEMAND: lambda setting: _data_loader(_OnDemand(setting)),
    BEST: lambda setting: with_workers(Best(setting)),
    REENCODED: lambda setting: with_workers(Best(by_hand(setting, setting.preset))),
    REENCODED_PLAIN: lambda setting: _data_loader(_OnDemand(by_hand(setting, setting.preset))),
    ARRAYS: lambda setting: with_workers(Arrays(setting)),
    ARRAYS_HERE: lambda setting: in_process(Arrays(setting)),
    OURS: _ours,
}
"""Name → what opens the system; the loop starts with the first batch that is asked for."""


def _train(setting: Long) -> Took:
    if setting.system != OURS:
        return _read(setting)
    from viewcache.catalog import Catalog
    from viewcache.catalog.records import IoSampleRow
    from viewcache.errors import ViewcacheError

    store, predicted = Path(setting.folder, "store"), dict[str, float]()
    if setting.known:
        store.mkdir()
        with Catalog.open(store) as catalog:
            catalog.add_io_samples([IoSampleRow(**row) for row in setting.known])
        predicted = predicted_s(_plan(_written(setting)))
    try:
        took = _read(setting)
    except ViewcacheError as error:
        return Took(refused=str(error))
    took.predicted_cpu_s = predicted
    with Catalog.open(store, create=False) as catalog:
        took.samples = [asdict(row) for row in catalog.load_io_samples()]
    return took


def _read(setting: Long) -> Took:
    """Read all batches, touching every byte."""
    took, run, looking_s = Took(), Run(), 0.0
    took.imported_cpu_s = cpu_seconds()
    batches = SYSTEMS[setting.system](setting)
    took.opened_wall_s, took.opened_cpu_s = time.perf_counter() - setting.began_s, cpu_seconds()
    steps = -(-len(clips_in(setting.videos)) // setting.videos_per_batch)
    for _ in range(setting.read or setting.epochs):
        for _ in range(steps):
            _step(run, batches, setting.step_s)
        took.wall_s.append(time.perf_counter() - setting.began_s)
        took.cpu_s.append(cpu_seconds() - looking_s)
        before = time.thread_time()
        took.disk_bytes.append(_disk_bytes(setting.folder))
        looking_s += time.thread_time() - before
    if not setting.read:
        assert next(batches, None) is None, f"{setting.system} has more batches than it should"
    del batches  # closes what was not read to its end
    took.closed_wall_s, took.closed_cpu_s = time.perf_counter() - setting.began_s, cpu_seconds() - looking_s
    took.consumer_cpu_s, took.clips = run.consumer_cpu_s, run.clips
    return took


def _plan(config: Path) -> Mapping[str, Any]:
    """What ``viewcache plan CONFIG --json`` says, by the rates that the store knows."""
    from viewcache.api.cli.main import main

    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(io.StringIO()):
        failed = main(["plan", str(config), "--json"])
    answer: dict[str, Any] = {} if failed else json.loads(said.getvalue())
    return answer


def predicted_s(answer: Mapping[str, Any]) -> dict[str, float]:
    """Epoch → core seconds, of an answer of ``viewcache plan --json``; empty if it does not look that far.

    What is read is ``{"horizon": {"epoch_s": {"1": …, "10": …, "100": …}}}``. Where the answer has its figures under
    another name, this is the only place that must know.
    """
    horizon = answer.get("horizon") or {}
    return {str(epoch): float(cost) for epoch, cost in horizon.get("epoch_s", {}).items()}


if __name__ == "__main__":
    if sys.argv[1:2] != ["--one"]:
        sys.exit("this is one run of benchmarks.horizon, which starts it")
    given = Long(**json.loads(sys.argv[2]))
    if given.system == OURS:
        import_ours()
    print(json.dumps(asdict(_train(given))))
