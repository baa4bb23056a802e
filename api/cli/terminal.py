"""How the command line talks: data to stdout, words to stderr, progress as bars or, without a terminal, as lines.

rich is loaded when something is drawn, not before, so that ``--help`` and ``--json`` cost nothing.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal

from viewcache.api.text import Bar, duration, printable

__all__ = ["NARROW", "UNCOUNTED", "Lines", "Terminal", "as_json"]

LINE_EVERY_S = 5.0
"""How often progress is told where there is no terminal to draw on."""

WIDE, NARROW = 200, 100
"""Characters of a table's line where stdout is no terminal: for tables of values, and for tables with sentences."""

UNCOUNTED = "clips that are ready in the memory of the owner are not counted: no service tells of them"
"""Beside numbers of what is ready, where the catalog alone was asked (docs/page.md)."""

LONGEST_CELL = 10_000
"""Characters of one value that a table shows: to wrap a million of them takes a second, and ten million ten."""


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

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "", *, width: int = WIDE
    ) -> None:
        """Print a table on stdout; numbers are set to the right.

        Args:
            columns: their names.
            rows: values in the order of the columns.
            title: a line above it.
            width: most characters of a line where stdout is no terminal; longer cells are wrapped.
        """
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else width)
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
        print("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()), end="", flush=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Bar]:
        """A bar with the time that is left while the block runs; lines every few seconds if stderr is no terminal."""
        if not sys.stderr.isatty():
            lines = Lines(what)
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


class Lines:
    """Progress for a log file: few lines, each whole in itself."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Tell of ``what``, on stderr; the clock gives seconds."""
        self._what, self._clock = what, clock
        self._start = self._told_at = clock()
        self._first: tuple[float, int] | None = None
        """When the first parts were done, and how many."""
        self._last = ""

    def at(self, done: int, total: int, note: str = "") -> None:
        """See `Bar.at`."""
        now = self._clock()
        if self._first is None and done:
            self._first = now, done
        self._last = f"{self._what}: {done}/{total}"
        if now - self._told_at >= LINE_EVERY_S and done < total:
            self._told_at = now
            text = ", ".join(part for part in (self._last, self._left(now, done, total), note) if part)
            print(printable(text), file=sys.stderr, flush=True)

    def _left(self, now: float, done: int, total: int) -> str:
        """The time that is left, at the pace since the first parts were done: until then workers were starting."""
        if self._first is None or not self._first[1] < done < total:
            return ""
        begun, before = self._first
        return f"about {duration((now - begun) / (done - before) * (total - done))} left"

    def end(self) -> None:
        """Tell how far it came, and how long it took."""
        if self._last:
            print(f"{self._last} in {duration(self._clock() - self._start)}", file=sys.stderr, flush=True)


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
    text = str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}… ({len(text)} characters)"
