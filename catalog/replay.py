"""Catalog and journal brought to the same state at open; a lost catalog gets from the journal what no file tells.

Whichever is ahead wins: a journal line that the catalog has not committed is carried out, since nobody can have been
given another answer; a catalog that knows more than its journal writes that anew. The trade-off: the journal is read
whole at each open, so it is written anew when it has doubled.
"""

import contextlib
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from viewcache import errors
from viewcache.catalog import files
from viewcache.catalog.engine import Engine, Session
from viewcache.catalog.journal import (
    FORMAT,
    LAST_TICKET,
    Journal,
    Json,
    Line,
    Step,
    encode,
    line_of,
    read_lines,
    step_of,
)
from viewcache.catalog.log_room import NO_SPACE
from viewcache.catalog.tasks import forget_task
from viewcache.failpoints import failpoint

__all__ = ["REBUILT", "UNPLANNED", "attach", "detach"]

REBUILT = "rebuilt"
"""Setting: ``yes`` from when the catalog lost something until the next owner has planned its tasks again."""

UNPLANNED = "unplanned"
"""Setting: ids of tasks, with spaces between, of whose plans the catalog lost something since they were open last."""

_JOURNAL = "journal"
"""Setting: which journal belongs to the catalog."""
_GROWN = 1 << 20
"""Bytes that a journal may gain before it is worth writing anew."""
_PART_ROWS = 10_000
_LAST_EPOCH = 2**31 - 1
_log = logging.getLogger("viewcache.catalog")


@dataclass(frozen=True, slots=True)
class _Head:
    """First line of a journal."""

    journal: str
    """Its name, which the catalog knows."""
    base: int
    """Bytes that it had when it was written anew."""
    since: Mapping[str, int]
    """Writer → number of its last transaction when the journal was written anew."""

    @classmethod
    def of(cls, plain: Json) -> "_Head | None":
        """What the line says; None where it is not as this release writes it: a file may be somebody else's text."""
        journal, base, since = plain.get("journal"), plain.get("base"), plain.get("since")
        if plain.get("format") != FORMAT or not isinstance(journal, str) or not isinstance(since, dict):
            return None
        if not all(type(number) is int and 0 <= number < LAST_TICKET for number in (base, *since.values())):
            return None
        return cls(journal, int(base), since)  # type: ignore[arg-type]  # looked at above


@dataclass(frozen=True, slots=True)
class _JournalFound:
    """A journal as it was found."""

    head: "_Head"
    is_ahead: bool
    """Whether the catalog lacks what was there when the journal was written anew, so that all of it is carried out."""
    lines: tuple[Line, ...]
    """What the catalog lacks; the others, which of a large dataset are 100 MB, are let go as soon as they are read."""
    last: Mapping[str, int]
    """Writer → number of its last transaction, of those that the journal has."""
    size: int
    """Bytes up to the end of the last line that is whole."""
    damaged: int
    """Lines before that which are not."""


def attach(path: Path, engine: Engine) -> Journal:
    """Bring both to the same state, and open the journal to append to it.

    A catalog that lost something is marked as ``REBUILT``.

    Raises:
        Full: the disk has no room for the journal or the rows.
        Broken: the journal cannot be read or written.
    """
    known = _setting(engine, _JOURNAL)
    empty = known is None and not engine.query("read_tasks").num_rows
    found = _read(path, _tickets(engine), empty=empty)
    ours = found is not None and (known == found.head.journal or empty)
    if found is not None and ours:
        if found.lines:
            _carry_out(engine, found)
        if not found.damaged and (known is not None or found.lines):
            journal = Journal(path, base=found.head.base)
            journal.take_back(found.size)
            if _is_worth_it(journal):
                journal.close()
                return _write(path, engine)
            return journal
    if path.exists() and (found is None or found.damaged or not ours):
        files.quarantine(path)
    return _write(path, engine)


def detach(journal: Journal, engine: Engine) -> None:
    """Close the journal, written anew if it has grown; without that it is only longer than it need be."""
    grown = _is_worth_it(journal)
    journal.close()
    if grown:
        with contextlib.suppress(errors.ViewcacheError):
            _write(journal.path, engine).close()


def _is_worth_it(journal: Journal) -> bool:
    return journal.size > 2 * journal.base + _GROWN


def _read(path: Path, tickets: Mapping[str, int], *, empty: bool) -> _JournalFound | None:
    """The journal; None if there is none, or its head cannot be read.

    Args:
        path: where it is.
        tickets: writer → number of its last transaction, of those that the catalog has.
        empty: whether the catalog has nothing.
    """
    if not path.exists():
        return None
    head: _Head | None = None
    ahead = empty
    lines: list[Line] = []
    last: Counter[str] = Counter()
    size = bad = damaged = 0
    try:
        for end, line in read_lines(path):
            if line is None:
                bad += 1
                continue
            damaged, size = bad, end  # what is not whole at the end was being written when its writer died
            if isinstance(line, Line):
                if line.by:
                    last[line.by] = max(last[line.by], line.ticket)
                if ahead or (line.by and line.ticket > tickets.get(line.by, 0)):
                    lines.append(line)
            elif head is None and (head := _Head.of(line)) is not None:
                ahead = empty or any(ticket > tickets.get(name, 0) for name, ticket in head.since.items())
    except OSError as error:
        raise errors.Broken(f"cannot read {path}: {error.strerror}; check its permissions and its disk") from error
    if head is None:
        return None
    if damaged:
        _log.error("%d lines of %s are damaged", damaged, path, extra={"action": "journal_damaged"})
    return _JournalFound(head, ahead, tuple(lines), last, size, damaged)


def _carry_out(engine: Engine, found: _JournalFound) -> None:
    """Do what the catalog lacks, in one transaction; if that was the whole, it knows what the journal knows."""
    # The larger of each.
    last = Counter(_tickets(engine)) | Counter(found.head.since) | Counter(found.last)
    count, lost = 0, {*(_setting(engine, UNPLANNED) or "").split()}
    with engine.transaction() as session:
        if found.is_ahead:  # what an older state of the catalog knows of tasks may have been forgotten since
            for name in session.run("read_tasks")["name"].to_pylist():
                forget_task(session, name)
        for line in found.lines:
            for step in line.steps():
                _run(session, step)
                lost |= _tasks_of(step)
                count += 1
        for name, ticket in last.items():
            session.run("write_ticket", {"name": name, "ticket": ticket})
        session.run("write_setting", {"name": _JOURNAL, "value": found.head.journal})
        session.run("write_setting", {"name": REBUILT, "value": "yes"})
        session.run("write_setting", {"name": UNPLANNED, "value": " ".join(sorted(lost))})
        failpoint("catalog.replayed-before-commit")
    failpoint("catalog.replayed-after-commit")
    what = "was rebuilt from its journal" if found.is_ahead else "took from its journal what it had not committed"
    _log.warning("the catalog %s: %d statements", what, count, extra={"action": "catalog_replayed"})


def _run(session: Session, step: Step) -> None:
    if step.do == "insert_draws":  # of two lines for one place the later one holds
        session.run("move_draws", {}, step.rows)
    session.run(step.do, step.given, step.rows)


def _tasks_of(step: Step) -> set[str]:
    """Ids of the tasks that a step tells of."""
    told = {step.given["task_id"]} if "task_id" in step.given else set()
    if step.rows is not None and "task_id" in step.rows.column_names:
        told.update(step.rows["task_id"].unique().to_pylist())
    return {*map(str, told)}


def _write(path: Path, engine: Engine) -> Journal:
    """Write the journal anew from the catalog, under another name first."""
    known = _setting(engine, _JOURNAL)
    if known is None:
        known = uuid.uuid4().hex
        with engine.transaction() as session:
            session.run("write_setting", {"name": _JOURNAL, "value": known})
    lines = [line_of("", 0, [step]) for step in _steps(engine)]
    base = sum(map(len, lines))
    head = encode({"journal": known, "format": FORMAT, "since": _tickets(engine), "base": base})
    try:
        with files.published(path) as file:
            file.writelines([head, *lines])
            file.flush()
            failpoint("journal.before-rename")
        failpoint("journal.after-rename")
    except OSError as error:
        if error.errno in NO_SPACE:
            raise errors.Full(f"journal {path}: {error.strerror}; free disk space") from error
        raise errors.Broken(f"journal {path}: {error.strerror}; check that its folder is writable") from error
    return Journal(path, base)


def _steps(engine: Engine) -> Iterator[Step]:
    """All that a journal tells, as of now."""
    for row in engine.query("read_counters").to_pylist():
        if not row["name"].startswith("writer") and row["name"] != "object":
            yield Step("write_ticket", {"name": row["name"], "ticket": row["next_id"]})
    for row in engine.query("read_datasets").to_pylist():
        yield Step("insert_dataset", row)
        videos = engine.query("read_videos", {"dataset_id": row["dataset_id"]})
        yield from _parts("upsert_videos", videos)
        yield from _parts("insert_items", engine.query("read_items", {"dataset_id": row["dataset_id"]}))
    for row in engine.query("read_groups").to_pylist():
        yield Step("insert_group", row)
    tasks = engine.query("read_tasks")
    yield from _parts("upsert_task", tasks)
    yield from _parts("insert_runs", engine.query("read_all_runs"))
    for task_id in tasks["task_id"].to_pylist():
        whose = {"task_id": task_id}
        epochs = {"first_epoch": 0, "last_epoch": _LAST_EPOCH}
        rows = {
            "insert_generation": engine.query("read_generations", whose),
            "insert_draws": engine.query("read_draw_rows", whose | epochs),
            "upsert_orders": engine.query("read_orders", whose | epochs),
            "upsert_settled": engine.query("read_settled", whose),
            "load_substitutions": engine.query("read_substitutions", whose),
        }
        for do, table in rows.items():
            yield from _parts(do, table)


def _parts(do: str, table: pa.Table) -> Iterator[Step]:
    """Lines of a length that people can look at."""
    for first in range(0, table.num_rows, _PART_ROWS):
        yield step_of(do, table.slice(first, _PART_ROWS))


def _setting(engine: Engine, name: str) -> str | None:
    values: list[str] = engine.query("read_setting", {"name": name})["value"].to_pylist()
    return values[0] if values else None


def _tickets(engine: Engine) -> dict[str, int]:
    """Writer → number of its last transaction."""
    rows = engine.query("read_counters").to_pylist()
    return {row["name"]: row["next_id"] for row in rows if row["name"].startswith("writer")}
