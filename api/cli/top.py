"""What ``viewcache top`` draws: an overview in a terminal, the most urgent first, in pages where it is small."""

import os
import select
import sys
import termios
import time
import tty
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from viewcache.api.cli.terminal import UNCOUNTED
from viewcache.api.page.overview import DueBatch, Overview, TaskState, Verdict
from viewcache.api.page.watcher import Look, Watcher
from viewcache.api.service.answers import SeatOf
from viewcache.api.text import counted, duration, printable, size

__all__ = ["screen", "show_once", "watch"]

KEY_S = 0.25
"""How soon a key, or another size of the terminal, is noticed."""
LINES_OF_LISTS = 6
"""Rows that evictions and errors show; the page has all."""
WIDE = 110
"""Columns where stdout is no terminal."""

MARKS = {
    Verdict.READY: ("✓ ready", "green"),
    Verdict.IN_TIME: ("→ in time", ""),
    Verdict.LATE: ("! late", "bold red"),
    Verdict.UNKNOWN: ("? not known", "dim"),
}


def show_once(overview: Overview) -> None:
    """Print an overview on stdout."""
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)
    with console.capture() as drawn:
        console.print(screen(overview))
    # Not by rich: where the reader has gone (`| head`), it would end the process as if the command had failed.
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()), flush=True)


def watch(watcher: Watcher, interval_s: float) -> None:
    """Show a cache in the terminal until q or Ctrl-C; the terminal is left as it was, whatever happens.

    What does not fit is told in the last line, and the space bar shows it.

    Args:
        watcher: of the cache.
        interval_s: seconds between two looks.
    """
    # A shell's COLUMNS and LINES say how large the terminal was, not how large it is.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    console = Console(highlight=False, _environ=environment)
    live = Live(console=console, screen=True, auto_refresh=False)
    drawn, look, next_at = None, watcher.latest(), time.monotonic() + interval_s
    first = 0
    with suppress(KeyboardInterrupt), _keys() as pressed, live:
        while (key := pressed(0.0 if drawn is None else KEY_S)) not in ("q", "Q"):
            if time.monotonic() >= next_at:
                look, next_at = watcher.latest(), time.monotonic() + interval_s
            if key == " ":
                first += console.size.height - 1
            if drawn != (console.size, look.number, first):
                lines = console.render_lines(_live(look), pad=False)
                first = first if first < len(lines) else 0
                drawn = console.size, look.number, first
                live.update(_page(lines, first, console.size.height), refresh=True)


def _page(lines: list[list[Segment]], first: int, height: int) -> RenderableType:
    """As many lines as fit, from one on; the last says how many more there are."""
    if len(lines) <= height:
        return _Lines(lines)
    shown = lines[first : first + height - 1]
    more = len(lines) - first - len(shown)
    says = f"{counted(more, 'more line')} · space shows them" if more else "space goes back to the top"
    filled = [*shown, *([[]] * (height - 1 - len(shown))), [Segment(f"{says} · q ends", Style(reverse=True))]]
    return _Lines(filled)


class _Lines:
    """Lines that were drawn for this width."""

    def __init__(self, lines: list[list[Segment]]) -> None:
        self._lines = lines

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> Iterator[Segment]:
        for number, line in enumerate(self._lines):
            if number:
                yield Segment.line()
            yield from line


@contextmanager
def _keys() -> "Iterator[_Pressed]":
    """Keys one by one and unseen, while the block runs."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    try:
        yield _Pressed(stdin)
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


class _Pressed:
    """Keys of a terminal."""

    def __init__(self, stdin: int) -> None:
        self._stdin = stdin

    def __call__(self, wait_s: float) -> str:
        """The key that is pressed next; empty if none is within a time, ``q`` where there is no keyboard any more."""
        if not select.select([self._stdin], [], [], wait_s)[0]:
            return ""
        return os.read(self._stdin, 1).decode("latin-1") or "q"


def _live(look: Look) -> RenderableType:
    parts: list[RenderableType] = [screen(look.overview)]
    if look.problem:
        parts.insert(0, Text(printable(look.problem), style="bold red"))
    return Group(*parts)


def screen(overview: Overview) -> RenderableType:
    """An overview, to be drawn in any width."""
    parts = [_head(overview), *_tasks(overview), *_due(overview), *_tiers(overview), *_objects(overview)]
    return Group(*parts, *_videos(overview), *_evictions(overview), *_clients(overview))


def _head(overview: Overview) -> Text:
    who = {"file": "no process has it open", "postgresql": "live from PostgreSQL"}.get(overview.source)
    who = who or f"{'served' if overview.service else 'owned'} by process {overview.owner or 'unknown'}"
    head = Text("viewcache ", style="bold")
    head.append(printable(overview.store), style="")
    head.append(f"  {time.strftime('%H:%M:%S', time.localtime(overview.as_of_s))}, {who}", style="dim")
    for part, why in overview.missing.items():
        head.append(f"\n{part} cannot be shown: {printable(why)}", style="bold red")
    return head


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[RenderableType]]) -> Table:
    """A table; a head that begins with # is of numbers."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(head.removeprefix("#"), justify="right" if head.startswith("#") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    return table


def _tasks(overview: Overview) -> Iterator[RenderableType]:
    rows = [
        (
            task.task,
            _progress(task),
            _place(task),
            f"{task.ready_to_come} of {task.clips_to_come}",
            "" if task.reading_share is None else f"{task.reading_share:.1%}",
            f"{task.hits / (task.hits + task.misses):.0%}" if task.hits + task.misses else "",
            str(len(task.places)),
        )
        for task in overview.tasks
    ]
    heads = ("task", "", "next", "#ready of to come", "#in reads", "#were there", "#readers")
    if rows:
        yield _table("Tasks", heads, rows)
    else:
        yield Text("No task has been described yet.")


def _progress(task: TaskState) -> ProgressBar:
    within = min(task.iteration / task.iterations, 1.0) if task.iterations else 0.0
    return ProgressBar(total=max(task.epochs, 1), completed=min(task.epoch + within, task.epochs), width=16)


def _place(task: TaskState) -> str:
    if not task.places:
        return "not read yet"
    if task.epoch >= task.epochs:
        return f"all {task.epochs} epochs read"
    of = f" of {task.iterations}" if task.iterations else ""
    return f"epoch {task.epoch} of {task.epochs}, batch {task.iteration}{of}"


def _due(overview: Overview) -> Iterator[RenderableType]:
    rows = [
        (f"{batch.task}/{batch.epoch}/{batch.iteration}", _when(batch), f"{batch.ready} of {batch.clips}", _mark(batch))
        for batch in overview.due[: 2 * LINES_OF_LISTS]
    ]
    if rows:
        rate = overview.pace.objects_per_s
        how = "" if rate is None or overview.source == "file" else f", {rate:.2g} objects a second "
        how += ("were made" if overview.pace.measured else "can be made") if how else ""
        yield _table(f"Due next{how}", ("batch", "due", "#ready", "late?"), rows)
        if not overview.counts_memory:
            yield Text(UNCOUNTED, style="dim")


def _when(batch: DueBatch) -> str:
    if batch.due_s is not None:
        return f"in {duration(batch.due_s)}"
    return f"after {counted(batch.ahead, 'batch', 'batches')}" if batch.ahead else "next"


def _mark(batch: DueBatch) -> Text:
    words, style = MARKS[batch.verdict]
    if batch.verdict == Verdict.LATE and batch.ready_s is not None and batch.due_s is not None:
        words += f" by {duration(batch.ready_s - batch.due_s)}"
    return Text(words if batch.drawn else f"{words}, order not drawn yet", style=style)


def _tiers(overview: Overview) -> Iterator[RenderableType]:
    rows = [
        (
            tier.tier,
            ProgressBar(total=max(tier.budget_bytes, 1), completed=min(tier.used_bytes, tier.budget_bytes), width=16),
            f"{size(tier.used_bytes)} of {size(tier.budget_bytes)}",
            f"{tier.used_bytes / tier.budget_bytes:.0%}" if tier.budget_bytes else "",
            str(tier.copies),
        )
        for tier in overview.tiers
    ]
    if rows:
        yield _table("Tiers", ("tier", "", "#used of the budget", "#full", "#objects"), rows)
    if overview.passed.made:
        yield Text(f"read once, through memory: {overview.passed.read} objects, {size(overview.passed.bytes)}")


def _objects(overview: Overview) -> Iterator[RenderableType]:
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for each in overview.objects:
        kinds[each.kind].append(f"{each.objects} {each.state}")
    for kind, states in kinds.items():
        yield Text(f"{kind}: {', '.join(states)}")


def _videos(overview: Overview) -> Iterator[RenderableType]:
    rows = [(video.video, video.message, str(video.uses)) for video in overview.videos[:LINES_OF_LISTS]]
    if rows:
        more = len(overview.videos) - len(rows)
        yield _table("Errors by video" + (f" ({more} more)" if more else ""), ("video", "why", "#times"), rows)


def _evictions(overview: Overview) -> Iterator[RenderableType]:
    rows = [
        (each.reason, each.detail, each.tier, str(each.objects), size(each.bytes))
        for each in overview.evictions[:LINES_OF_LISTS]
    ]
    if rows:
        yield _table("Evictions", ("reason", "why", "tier", "#objects", "#bytes"), rows)


def _seat(seat: SeatOf) -> str:
    return f"{seat.task} {seat.epoch}/{seat.iteration} as rank {seat.rank} of {seat.world}"


def _clients(overview: Overview) -> Iterator[RenderableType]:
    if overview.service is None:
        return
    rows = [
        (
            str(client.pid),
            f"{client.program}, job {client.job}" if client.job else client.program,
            str(client.held),
            ", ".join(map(_seat, client.seats)),
        )
        for client in overview.service.clients
    ]
    title = f"Service: process {overview.service.pid}, {duration(overview.service.cpu_s)} of CPU"
    yield _table(title, ("client", "program", "#held", "reads next"), rows)
