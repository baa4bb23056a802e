"""Fair timings on a noisy machine: rivals take turns, CPU time counts, ratios come first.

Absolute times on a shared two-core machine say little, so every round runs each rival once in a new random order
and compares it with the baseline *of the same round*; the figure is the median of those ratios, spread beside it.

A benchmark is a module with a generator that yields ``Comparison``, ``Figure`` or ``Table``, and one last line::

    def bench(args: Namespace) -> Iterator[Result]:
        yield compare("batch, warm", {"np.load": load, "raw": read}, baseline="np.load", args=args,
                      aims=[Aim("raw", at_most=1.0)])

    if __name__ == "__main__":
        main(__doc__, bench)
"""

import gc
import importlib
import json
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = [
    "Aim",
    "Comparison",
    "Figure",
    "Note",
    "Result",
    "Stopwatch",
    "Table",
    "Timing",
    "clips_in",
    "compare",
    "cpu_seconds",
    "import_ours",
    "machine",
    "main",
    "run_apart",
]

os.environ.setdefault("VIEWCACHE_SERVICE", "off")
"""What is measured is mostly the owner, in this process; who measures a service says so."""

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("numpy", "av", "duckdb", "pyarrow", "numcodecs", "google-crc32c", "zarr", "torch", "opencv-python-headless")


def import_ours() -> None:
    """Import all that opening a cache needs, so that it counts as imports, as of rivals.

    pandas is not ours: where it is installed, as for the tests, DuckDB imports it with its first statement.
    """
    importlib.import_module("viewcache.api.session.cache")
    with suppress(ImportError):
        importlib.import_module("pandas")


def cpu_seconds() -> float:
    """CPU seconds, user and system, of this process and of all its descendants, living and reaped, until now.

    A living child counts in clock ticks (10 ms). A process that left the tree (a daemon) is not seen.
    """
    return _own_and_reaped() + _living_descendants()


def _own_and_reaped() -> float:
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + reaped.ru_utime + reaped.ru_stime


def _living_descendants() -> float:
    """Each living process carries what it reaped, so the sum over the living ones is complete."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:
                continue  # it ended between the listing and the look
            fields = stat[stat.rindex(")") + 2 :].split()  # the command name before it may hold spaces
            pid = int(entry.name)
            parents[pid] = int(fields[1])
            ticks[pid] = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    family, me = {os.getpid()}, os.getpid()
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return sum(ticks[pid] for pid in family if pid != me and pid in ticks) / os.sysconf("SC_CLK_TCK")


class Stopwatch:
    """Wall and CPU seconds of a ``with`` block, for rivals that must time a part of themselves."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Descendants included, see ``cpu_seconds``."""

    def __enter__(self) -> "Stopwatch":
        # Looking through /proc takes 2 ms of CPU: it happens outside of both ends of the measured span.
        self._living, self._own, self._wall = _living_descendants(), _own_and_reaped(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall_s = time.perf_counter() - self._wall
        own = _own_and_reaped() - self._own
        self.cpu_s = own + _living_descendants() - self._living


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should be, so that a report says met or missed by itself."""

    name: str = ""
    """The rival in a comparison; empty for a ``Figure``."""
    at_most: float | None = None
    at_least: float | None = None
    """For a comparison both bound the ratio rival / baseline."""

    def verdict(self, value: float) -> str:
        """One phrase: ``met (aim ≤ 2)`` or ``MISSED (aim ≤ 2)``."""
        met = (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)
        bounds = [f"≤ {self.at_most:g}"] if self.at_most is not None else []
        bounds += [f"≥ {self.at_least:g}"] if self.at_least is not None else []
        return f"{'met' if met else 'MISSED'} (aim {' and '.join(bounds)})"


@dataclass(frozen=True, slots=True)
class Timing:
    """One rival's rounds."""

    name: str
    wall_s: tuple[float, ...]
    """Seconds per call, one entry a round; entry i of every rival belongs to the same round."""
    cpu_s: tuple[float, ...]
    """CPU seconds per call, descendants included."""
    note: object = None
    """What the last call returned, when it is plain data (counts, bytes), to show that the rivals did the same work."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rivals at the same work."""

    title: str
    baseline: str
    timings: tuple[Timing, ...]
    measure: str = "cpu_s"
    """What the ratios are taken of: ``cpu_s`` or ``wall_s``."""
    aims: tuple[Aim, ...] = ()

    def timing(self, name: str) -> Timing:
        """The rounds of one rival, by name."""
        return next(timing for timing in self.timings if timing.name == name)

    def ratios(self, name: str) -> list[float]:
        """Rival over baseline, for each round; a baseline of zero (below the clock's tick) gives infinity."""
        mine, base = getattr(self.timing(name), self.measure), getattr(self.timing(self.baseline), self.measure)
        return [a / b if b else float("inf") for a, b in zip(mine, base, strict=True)]

    def lines(self) -> Iterator[str]:
        """A Markdown table, ratios first."""
        unit = {"cpu_s": "CPU", "wall_s": "wall"}[self.measure]
        rounds = len(self.timings[0].wall_s)
        yield f"### {self.title}"
        yield ""
        yield f"| rival | {unit} ÷ {self.baseline} (spread) | CPU ms | wall ms | aim |"
        yield "|---|---|---|---|---|"
        for timing in self.timings:
            ratios = self.ratios(timing.name)
            ratio = statistics.median(ratios)
            aims = "; ".join(aim.verdict(ratio) for aim in self.aims if aim.name == timing.name)
            spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
            cpu, wall = (statistics.median(values) * 1e3 for values in (timing.cpu_s, timing.wall_s))
            yield f"| {timing.name} | {ratio:.2f} ({spread}) | {cpu:.2f} | {wall:.2f} | {aims} |"
        yield ""
        yield f"Medians of {rounds} interleaved rounds."
        for timing in self.timings:
            if timing.note is not None:
                yield f"- {timing.name}: {timing.note}"

    def as_json(self) -> dict[str, object]:
        """The whole of it, with the median ratios."""
        ratios = {timing.name: statistics.median(self.ratios(timing.name)) for timing in self.timings}
        return {"kind": "comparison", "ratios": ratios, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that stands alone (a count, bytes, seconds against a fixed aim)."""

    title: str
    value: float
    unit: str
    aim: Aim | None = None
    samples: tuple[float, ...] = field(default=())
    """All repeats, where ``value`` is their median."""

    def lines(self) -> Iterator[str]:
        """One line of Markdown."""
        spread = f" ({min(self.samples):.4g}-{max(self.samples):.4g}, n={len(self.samples)})" if self.samples else ""
        verdict = f": {self.aim.verdict(self.value)}" if self.aim else ""
        value = f"{self.value:,.0f}" if float(self.value).is_integer() else f"{self.value:.4g}"
        yield f"- {self.title}: **{value}** {self.unit}{spread}{verdict}"

    def as_json(self) -> dict[str, object]:
        """The whole of it."""
        return {"kind": "figure", **asdict(self)}


@dataclass(frozen=True, slots=True)
class Table:
    """Counts by name, each once for every column: what is compared side by side and has no rounds."""

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    """Name → one number for each column."""

    def lines(self) -> Iterator[str]:
        """A Markdown table."""
        yield f"### {self.title}"
        yield ""
        yield f"| | {' | '.join(self.columns)} |"
        yield f"|---|{'---:|' * len(self.columns)}"
        for name, counts in self.rows.items():
            yield f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |"

    def as_json(self) -> dict[str, object]:
        """The whole of it."""
        return {"kind": "table", "title": self.title, "columns": self.columns, "rows": dict(self.rows)}


@dataclass(frozen=True, slots=True)
class Note:
    """What is said in words: how something was counted, or why a figure is missing."""

    text: str

    def lines(self) -> Iterator[str]:
        """One line of Markdown."""
        yield f"- {self.text}"

    def as_json(self) -> dict[str, object]:
        """The whole of it."""
        return {"kind": "note", "text": self.text}


Result = Comparison | Figure | Note | Table
"""What a benchmark's generator yields."""


def compare(
    title: str,
    rivals: Mapping[str, Callable[[], object]],
    *,
    baseline: str,
    args: Namespace,
    measure: str = "cpu_s",
    calls: int = 1,
    warmup: int = 1,
    before: Callable[[str], object] | None = None,
    aims: Sequence[Aim] = (),
) -> Comparison:
    """Time rivals in interleaved rounds of random order.

    Args:
        title: heading of the table.
        rivals: name to a call that does the whole work once.
        baseline: the name that the ratios divide by.
        args: ``repeats`` (rounds) and ``seed`` (of the order) are read.
        measure: ``cpu_s`` or ``wall_s``.
        calls: calls per timing, for work shorter than about 20 ms; the times stay per call.
        warmup: untimed calls of each rival first.
        before: untimed, called with the rival's name before each timing (empty a cache, make a folder).
        aims: bounds on the median ratio.

    Returns:
        The comparison, rivals in the order given.
    """
    for name, run in rivals.items():
        for _ in range(warmup):
            if before is not None:
                before(name)
            run()
    order = random.Random(args.seed)
    wall: dict[str, list[float]] = {name: [] for name in rivals}
    cpu: dict[str, list[float]] = {name: [] for name in rivals}
    notes: dict[str, object] = {}
    for _ in range(args.repeats):
        for name in order.sample(list(rivals), len(rivals)):
            if before is not None:
                before(name)
            gc.collect()  # else one rival pays for another's garbage
            with Stopwatch() as watch:
                for _ in range(calls):
                    notes[name] = rivals[name]()
            wall[name].append(watch.wall_s / calls)
            cpu[name].append(watch.cpu_s / calls)
    timings = tuple(Timing(name, tuple(wall[name]), tuple(cpu[name]), _plain(notes.get(name))) for name in rivals)
    return Comparison(title, baseline, timings, measure, tuple(aims))


def _plain(note: object) -> object:
    """Keep what prints in a line and goes into JSON; a returned batch is no note."""
    return note if isinstance(note, str | int | float | dict | tuple) else None


def machine() -> dict[str, object]:
    """What the figures were taken on: CPU, cores, memory, load, versions, commit."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "load_1min": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": dict(_versions()),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    """Short hash, ``+`` when the tree differs from it, empty outside a checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue


def clips_in(folder: str | Path) -> list[Path]:
    """The videos that lie in a folder, by name."""
    return sorted(path for path in Path(folder).iterdir() if path.suffix in {".mp4", ".webm", ".mkv", ".avi"})


def run_apart(
    module: str, setting: object, where: Path | None, keep: str = "", checkout: Path = ROOT, python: str = ""
) -> dict[str, Any]:
    """Run one setting of a benchmark, ``python -m module --one SETTING``, in a process of its own with a folder.

    Args:
        module: of the benchmark.
        setting: a dataclass of plain values; its field ``folder`` is filled in. What has its default is not sent, so
            that a checkout of before it runs too.
        where: below which an empty folder is made, and removed afterwards; None = where temporary files are.
        keep: a folder that is there and stays, instead.
        checkout: another one of this repository whose code runs, in its own ``.venv``.
        python: the interpreter of another environment, instead.

    Returns:
        The JSON object on the last line that it printed.
    """
    folder = keep or tempfile.mkdtemp(prefix=f"viewcache-{module.rpartition('.')[2]}-", dir=where)
    try:
        defaults = {each.name: each.default for each in fields(setting)}  # type: ignore[arg-type] # any dataclass
        values: dict[str, Any] = asdict(setting)  # type: ignore[call-overload] # the same
        sent = {name: value for name, value in values.items() if value != defaults[name]}
        text = json.dumps(sent | {"folder": folder})
        python = python or (sys.executable if checkout == ROOT else str(checkout / ".venv" / "bin" / "python"))
        command = [python, "-m", module, "--one", text]
        done = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said
    finally:
        if not keep:
            shutil.rmtree(folder)


def main(
    description: str | None,
    bench: Callable[[Namespace], Iterable[Result]],
    arguments: Callable[[ArgumentParser], object] | None = None,
    argv: Sequence[str] | None = None,
) -> None:
    """Run one benchmark module from the command line.

    Args:
        description: the module's docstring, shown by ``--help``.
        bench: generator of results; each is printed as soon as it is there.
        arguments: adds the module's own options to the parser.
        argv: the command line, for tests.
    """
    parser = ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything there, '-' for stdout alone")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the rivals (default 0)")
    if arguments is not None:
        arguments(parser)
    args = parser.parse_args(argv)
    if args.repeats < 1:
        parser.error(f"--repeats must be at least 1, not {args.repeats}")
    # Where it is set, as in many containers, each process that starts compiles all modules anew: a third of a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    alone = args.json == Path("-")
    before, results = machine(), []
    if not alone:
        print(f"# {(description or '').strip().splitlines()[0]}\n\n{_machine_line(before)}\n", flush=True)
    for result in bench(args):
        results.append(result.as_json())
        if not alone:
            print("\n".join(result.lines()), flush=True)
    if args.json is not None:
        report = json.dumps({"machine": before, "load_after": os.getloadavg()[0], "results": results}, indent=1)
        if alone:
            sys.stdout.write(report + "\n")
        else:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(report + "\n")


def _machine_line(info: Mapping[str, object]) -> str:
    packages = info["packages"]
    versions = ", ".join(f"{k} {v}" for k, v in packages.items()) if isinstance(packages, dict) else ""
    return (
        f"{info['when']}, commit {info['commit']}, {info['cores']} cores of {info['cpu']}, {info['memory_gib']} GiB, "
        f"load {info['load_1min']}, Python {info['python']}, {versions}"
    )
