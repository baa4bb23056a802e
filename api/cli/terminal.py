"""How the command line talks: data to stdout, words to stderr, progress as bars or, without a terminal, as lines.

rich is loaded when something is drawn, not before, so that ``--help`` and ``--json`` cost nothing.
"""

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Protocol

__all__ = ["Bar", "Terminal", "as_json", "counted", "duration", "printable", "size"]

LINE_EVERY_S = 5.0
"""How often progress is told where there is no terminal to draw on."""


class Bar(Protocol):
    """What shows how far some work is."""

    def at(self, done: int, total: int, note: str = "") -> None:
        """So much is done of so much; ``note`` is a few words about the last of it."""


class Terminal:
    """One command's output.

    Attributes:
        json: whether data is wanted as one JSON value instead of text.
    """

    def __init__(self, *, json: bool = False) -> None:
        """Write to the process's stdout and stderr."""
        self.json = json

    def say(self, text: str) -> None:
        """Tell a person something; never part of the data."""
        print(printable(text), file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """Lines of data, for people."""
        print(printable(text), flush=True)

    def data(self, value: object) -> None:
        """The command's answer as one JSON value."""
        print(as_json(value), flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
        """A table on stdout; numbers are set to the right."""
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else 200)
        table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
        for position, name in enumerate(columns):
            numeric = rows and all(
                isinstance(row[position], int | float | Decimal) for row in rows if row[position] is not None
            )
            table.add_column(Text(printable(name)), justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(_cell(value))) for value in row))
        with console.capture() as drawn:
            console.print(table)
        # Not by rich: where the reader has gone (`| head`), it would end the process as if the command had failed.
        print(drawn.get(), end="", flush=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Bar]:
        """A bar with the time that is left while the block runs; lines every few seconds if stderr is no terminal."""
        if not sys.stderr.isatty():
            lines = _Lines(what)
            yield lines
            lines.end()
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield _Drawn(progress, progress.add_task(what, total=None, note=""))


class _Drawn:
    """A bar that rich draws."""

    def __init__(self, progress: "object", task: "object") -> None:
        self._progress, self._task = progress, task

    def at(self, done: int, total: int, note: str = "") -> None:
        self._progress.update(self._task, completed=done, total=total, note=printable(note)[-60:])  # type: ignore[attr-defined]


class _Lines:
    """Progress for a log file: few lines, each whole in itself."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()
        self._told_at = self._start
        self._last = ""

    def at(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        left = f", about {duration((now - self._start) / done * (total - done))} left" if 0 < done < total else ""
        self._last = f"{self._what}: {done}/{total}"
        if now - self._told_at >= LINE_EVERY_S:
            self._told_at = now
            print(printable(f"{self._last}{left}{', ' if note else ''}{note}"), file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._last:
            print(f"{self._last} in {duration(time.monotonic() - self._start)}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """The text without characters that could steer a terminal; a file's name or an error may hold any."""
    return "".join(each if each.isprintable() or each in "\n\t" else f"\\x{ord(each):02x}" for each in text)


def as_json(value: object) -> str:
    """JSON of anything that a command answers; NaN and infinity become null, bytes become hex."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, indent=2)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(each) for each in value]
    return str(value)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if not 1e4 <= abs(value) < 1e15 else f"{value:.0f}"  # an instant keeps its seconds
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes"
    return str(value)


def size(count: float) -> str:
    """Bytes for people: 3.2 MB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}" if count < 100 else f"{count:.0f} {unit}"


def duration(seconds: float) -> str:
    """Seconds for people: 0.42 s, 75 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def counted(count: int, word: str, words: str = "") -> str:
    """1 clip, 2 clips."""
    return f"{count} {word if count == 1 else words or word + 's'}"
