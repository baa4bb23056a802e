"""What was drawn, written a second time: a small file of checked lines beside the catalog (law 4).

Objects describe themselves and plans are functions of their draws, but the draws of tasks that draw together, what
stood in for bad videos, and how generations began are known to the catalog alone. Each transaction that decides such
things appends one line before it commits. The trade-off: one more flush per decision, none for what is only counted.
"""

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewcache import errors
from viewcache.catalog.engine import Session, arrow_schema
from viewcache.catalog.log_room import NO_SPACE
from viewcache.catalog.packing import expand, pack
from viewcache.catalog.statements import load
from viewcache.failpoints import failpoint

__all__ = [
    "FORMAT",
    "LAST_TICKET",
    "Journal",
    "Json",
    "Line",
    "Recording",
    "Step",
    "encode",
    "line_of",
    "read_lines",
    "step_of",
]

FORMAT = 1
"""Version of the lines; statements that they name keep their names and columns."""

LAST_TICKET = 2**63 - 1
"""A ticket is less: the catalog keeps 64 bits of it."""

_STEPS = {
    "insert_dataset": None,
    "insert_group": None,
    "upsert_videos": ("video_id", "dataset_id", "name", "uri", "key", "status", "label"),
    "set_video_keys": None,
    "insert_items": ("item_id", "dataset_id", "video_id", "start_s", "end_s", "ordinal"),
    "upsert_task": None,
    "insert_generation": None,
    "delete_generation": None,
    "delete_generations": None,
    "insert_draws": None,
    "move_draws": None,
    "delete_draws": None,
    "upsert_settled": None,
    "delete_settled": None,
    "insert_runs": None,
    "upsert_orders": None,
    "delete_orders": None,
    "delete_unused_runs": None,
    "load_substitutions": None,
    "delete_substitutions": None,
    "delete_uses": None,
    "delete_progress": None,
    "delete_task": None,
}
"""Statements that decide something that cannot be found again, and which columns of their rows tell it; None = all.

Of a video its identity and the key of its content are enough: the next scan reads the file again, since its size and
time are not written. Labels of segments are read again too.
"""

_TICKET = "write_ticket"
"""The statement that tells which ids were given out."""

_COUNTED = ("dataset", "group", "generation", "task", "video")
"""Kinds of ids that lines name; those of objects are given out anew, since the store knows objects by key."""

_START = re.compile(rb'\{"by":("[^"]*"),"ticket":(\d+),"run":\[')

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a transaction."""

    do: str
    """Name of the statement."""
    given: Mapping[str, object]
    """Its parameters."""
    rows: pa.Table | None = None
    """The rows that it takes."""

    def as_json(self) -> Json:
        """For a line."""
        plain: Json = {"do": self.do}
        if self.given:
            plain["with"] = dict(self.given)
        if self.rows is not None:
            plain["n"] = self.rows.num_rows
            plain["rows"] = {name: pack(self.rows[name]) for name in self.rows.column_names}
        return plain

    @classmethod
    def of_json(cls, plain: Json) -> "Step":
        """What `as_json` wrote, in the statement's own columns; those that were not written are null.

        Raises:
            KeyError, TypeError, ValueError, ArrowInvalid, OverflowError: it is no step.
        """
        if plain["do"] not in _STEPS and plain["do"] != _TICKET:  # a line may be somebody else's text
            raise ValueError(f"{plain['do']!r} is no statement of a journal")
        given = load(plain["do"], "duckdb").given
        if given is None:
            return cls(plain["do"], plain.get("with", {}))
        count, columns = int(plain["n"]), plain["rows"]
        return cls(plain["do"], plain.get("with", {}), _table(arrow_schema(given.columns), count, columns))


def _table(schema: pa.Schema, count: int, columns: Mapping[str, object]) -> pa.Table:
    """The rows of a step. Columns of a value for each row come first: they show that there are as many as announced."""
    spelled = {name for name, written in columns.items() if isinstance(written, list | dict)}
    if count != 1 and not spelled:
        raise ValueError(f"{count} rows are announced, of which no column has so many")
    arrays: dict[str, pa.Array] = {}
    for field in sorted(schema, key=lambda field: field.name not in spelled):
        arrays[field.name] = expand(columns.get(field.name), count, field.type)
        if len(arrays[field.name]) != count:
            raise ValueError(f"{count} rows are announced, and {field.name} has {len(arrays[field.name])}")
    return pa.table([arrays[field.name] for field in schema], schema=schema)


def step_of(do: str, rows: pa.Table | None = None, /, **given: object) -> Step:
    """A step with the columns that lines hold."""
    takes = load(do, "duckdb").given
    if rows is None or takes is None:
        return Step(do, given)
    return Step(do, given, rows.select(_STEPS[do] or [column.name for column in takes.columns]))


@dataclass(frozen=True, slots=True)
class Line:
    """One transaction, or a part of the catalog as it was when the journal was written anew."""

    by: str
    """Name of the writer; empty for what was there before."""
    ticket: int
    """Number of its transaction."""
    text: bytes
    """As JSON, checked."""

    def steps(self) -> list[Step]:
        """The statements, in their order.

        Raises:
            Broken: the line is whole, but not as this release writes it.
        """
        try:
            return [Step.of_json(each) for each in json.loads(self.text)["run"]]
        except (
            LookupError,
            TypeError,
            ValueError,
            ArithmeticError,
            AttributeError,
            RecursionError,
            errors.NotFound,
        ) as error:
            raise errors.Broken(
                f"a line of the journal cannot be understood ({type(error).__name__}: {error}); open the cache with "
                "the release of viewcache that wrote it"
            ) from error


class Recording(Session):
    """A session that remembers which statements belong in the journal, and whether there is anything to commit."""

    def __init__(self, session: Session):
        """Around the session of an open transaction."""
        self._session = session
        self.steps: list[Step] = []
        self.changes = False
        """Whether any of its statements may have changed something."""

    def run(self, name: str, parameters: Mapping[str, object] | None = None, given: pa.Table | None = None) -> pa.Table:
        """See ``Session.run``."""
        self.changes = self.changes or not load(name, "duckdb").reads
        result = self._session.run(name, parameters, given)
        if name in _STEPS and (given is None or given.num_rows):
            self.steps.append(step_of(name, given, **parameters or {}))
        elif name == "claim_ids" and parameters is not None and parameters["name"] in _COUNTED:
            counter = {"name": parameters["name"], "ticket": result["next_id"][0].as_py()}
            self.steps.append(Step(_TICKET, counter))
        return result

    def count(self, name: str, parameters: Mapping[str, object]) -> int:
        """See ``Session.count``; nothing that is only counted belongs in the journal."""
        self.changes = True
        return self._session.count(name, parameters)


class Journal:
    """The open file; used by one thread at a time."""

    def __init__(self, path: Path, base: int = 0):
        """Append to a file that is whole.

        Args:
            path: of the file.
            base: bytes that it had when it was written anew.

        Raises:
            Broken: it cannot be opened.
        """
        self.path = path
        self.base = base
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self.size = os.fstat(self._fd).st_size
            """Bytes of the lines; what lies behind them could not be cut off, and is before the next one is written."""
        except OSError as error:
            raise errors.Broken(f"cannot write {path}: {error.strerror}; check that it is writable") from error

    def append(self, by: str, ticket: int, steps: Iterable[Step]) -> None:
        """Write a line to the device; when that fails, nothing of it is left.

        Args:
            by: name of the writer.
            ticket: number of its transaction.
            steps: what the transaction decides.

        Raises:
            Full: the disk has no room.
            Broken: it cannot be written for another reason.
        """
        text = line_of(by, ticket, steps)
        failpoint("journal.before-write")
        try:
            self._cut()
            written = os.write(self._fd, text)
            while written < len(text):  # a full disk shows as a short write first
                written += os.write(self._fd, text[written:])
            os.fdatasync(self._fd)
        except OSError as error:
            self._try_to_cut()
            if error.errno in NO_SPACE:
                raise errors.Full(f"journal {self.path}: {error.strerror}; free disk space") from error
            raise errors.Broken(f"journal {self.path}: {error.strerror}; nothing new can be drawn") from error
        self.size += len(text)
        failpoint("journal.after-write")

    def take_back(self, size: int) -> None:
        """Cut off lines of transactions that were not committed.

        Should that fail, it is tried again before the next line. Until then they are harmless: nobody was given what
        they tell, and later lines have the last word.
        """
        self.size = min(self.size, size)
        self._try_to_cut()

    def _try_to_cut(self) -> None:
        with contextlib.suppress(OSError):
            self._cut()

    def _cut(self) -> None:
        if os.fstat(self._fd).st_size > self.size:
            os.ftruncate(self._fd, self.size)

    def close(self) -> None:
        """Let go of the file; harmless when done twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def line_of(by: str, ticket: int, steps: Iterable[Step]) -> bytes:
    """The line of a transaction."""
    return encode({"by": by, "ticket": ticket, "run": [step.as_json() for step in steps]})


def encode(value: Json) -> bytes:
    """One line: the crc32 of the text in 8 hexadecimal digits, a space, the text as JSON."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read_lines(path: Path) -> Iterator[tuple[int, Json | Line | None]]:
    """Each line's end in the file, and what it is: the head as it says, then lines; None where one is damaged."""
    end = 0
    with path.open("rb") as file:
        for raw in file:
            end += len(raw)
            yield end, _decoded(raw)


def _decoded(raw: bytes) -> Json | Line | None:
    text = raw[9:-1]
    if raw[-1:] != b"\n" or raw[:9] != b"%08x " % zlib.crc32(text):
        return None
    try:  # a checksum is no proof of who wrote the line
        if start := _START.match(text):  # what it tells is read only if it is needed
            line = Line(json.loads(start[1]), int(start[2]), text)
            return line if line.ticket < LAST_TICKET else None
        head = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) else None
