"""Questions to a cache in SQL, from any process: the user's own, and those that the command line asks itself.

All go through the catalog's read-only door over the public relations, so what `viewcache status` shows a person can ask
too. What comes back says what it shows: the catalog itself, or how old a snapshot and whose.
"""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from viewcache.catalog import QueryLimits, QueryResult, run_queries
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.lock import OwnerLock
from viewcache.catalog.opening import is_postgresql
from viewcache.catalog.snapshot import lock_or_snapshot
from viewcache.errors import CatalogBusy, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Answer", "ask", "ask_all", "copy_catalog", "in_memory", "owner_of", "question", "questions"]

_QUESTIONS = Path(__file__).resolve().parent / "questions"


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of one query, and what they show."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    truncated: bool
    """Whether there were more rows than the limit."""
    seen: str
    """In words: which state of the catalog this is."""
    source: str
    """``file``, ``snapshot`` or ``postgresql``."""
    as_of_s: float
    """When it was so, seconds since 1970-01-01 UTC."""
    owner: int
    """Process that owns the catalog; 0 if none does, or on PostgreSQL."""

    def dicts(self) -> list[dict[str, object]]:
        """The rows by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def ask(where: str, sql: str, limits: QueryLimits | None = None, *, wait_s: float = 10.0) -> Answer:
    """Ask one SELECT.

    Args:
        where: the catalog's folder or ``postgresql://`` URL.
        sql: the statement.
        limits: of time, memory and rows.
        wait_s: how long to wait for a snapshot of a catalog that another process owns, seconds.

    Raises:
        QueryRefused: it is not one SELECT, is wrong, or went over a limit.
        NotFound: there is no catalog.
        CatalogVersion: it is of another release, and has not what is asked for.
        Timeout: the owner did not publish a snapshot.
    """
    return ask_all(where, [sql], limits, wait_s=wait_s)[0]


def ask_all(
    where: str,
    queries: Sequence[str],
    limits: QueryLimits | None = None,
    *,
    wait_s: float = 10.0,
    parameters: Mapping[str, str | int | float] | None = None,
) -> list[Answer]:
    """Ask several SELECTs over one state of the catalog: a third of a second for all together.

    Args:
        where: as for `ask`.
        queries: the statements.
        limits: the time and the memory are of all together, the rows of each.
        wait_s: as for `ask`.
        parameters: values for ``$name`` in the statements; a statement need not have all of them.

    Raises:
        QueryRefused: one of them is not one SELECT, is wrong, or went over a limit.
        NotFound: there is no catalog.
        CatalogVersion: it is of another release, and has not what is asked for.
        Timeout: the owner did not publish a snapshot.
    """
    owner = 0 if is_postgresql(where) else owner_of(where)
    results = run_queries(where, queries, limits, wait_s=wait_s, parameters=parameters)
    return [_answer(result, owner) for result in results]


def _answer(result: QueryResult, owner: int) -> Answer:
    table = result.table()
    # By position: two columns of a result may have the same name.
    rows = list(zip(*(_values(column) for column in table.columns), strict=True))
    if result.source == "snapshot":
        age = max(0.0, time.time() - result.as_of_s)
        seen = f"snapshot of {age:.1f} s ago, owner pid {owner or 'unknown'}"
    elif result.source == "postgresql":
        seen = "the database itself, live"
    else:
        seen = "the catalog itself; no process has it open"
    return Answer(result.columns, rows, result.truncated, seen, result.source, result.as_of_s, owner)


def _values(column: "pa.ChunkedArray") -> list[object]:
    """As Python's own types; as text where those are too narrow (years before 1 and after 9999, nanoseconds)."""
    import pyarrow as pa

    narrow = (OverflowError, ValueError)  # ValueError is what pyarrow's own errors are too
    try:
        return list(column.to_pylist())
    except narrow:
        pass
    try:
        return list(column.cast(pa.string()).to_pylist())
    except (*narrow, NotImplementedError):
        return [f"a {column.type} out of range"] * len(column)


def owner_of(folder: str) -> int:
    """Process id of the owner of a DuckDB catalog, 0 if nobody owns it."""
    layout = CatalogFiles(Path(folder).absolute())
    if not layout.lock.exists():
        return 0
    try:
        OwnerLock(layout.lock, exclusive=False).release()
    except CatalogBusy as busy:
        return busy.pid
    return 0


def copy_catalog(folder: str, into: str | Path) -> bool:
    """Copy a DuckDB catalog, or its owner's snapshot, into an empty folder; False if there is none.

    Raises:
        Timeout: the owner did not publish a snapshot.
    """
    layout, copy = CatalogFiles(Path(folder).absolute()), CatalogFiles(Path(into))
    if not layout.database.exists():
        return False
    found = lock_or_snapshot(folder)
    if isinstance(found, Path):
        shutil.copyfile(found, copy.database)
        _copy_if_there(layout.indexes, copy.indexes)
        return True
    with found:
        shutil.copyfile(layout.database, copy.database)
        _copy_if_there(layout.log, copy.log)
        _copy_if_there(layout.indexes, copy.indexes)
    return True


def _copy_if_there(path: Path, to: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.copyfile(path, to)


def in_memory(objects: Iterable[int] | None) -> dict[str, str]:
    """The parameter of questions that count as ready what lies in the owner's memory, and has no copy in the catalog.

    Args:
        objects: as the owner's service tells them (`StatsOf.in_memory`); None = nobody does.
    """
    return {"in_memory": ",".join(map(str, objects or ())) or "-1"}


@cache
def question(name: str) -> str:
    """The text of a question that ships with viewcache.

    Raises:
        NotFound: no such question; the message lists them.
    """
    path = _QUESTIONS / f"{name}.sql"
    if not path.is_file():
        raise NotFound(f"no question {name!r}; there are: {', '.join(questions())}")
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--")).strip()


def questions() -> list[str]:
    """Names of the questions that ship with viewcache, sorted."""
    return sorted(path.stem for path in _QUESTIONS.glob("*.sql"))
