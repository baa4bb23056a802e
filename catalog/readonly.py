"""Read-only SQL for people: SELECTs, in a child process with limits, on data that they cannot change.

Each layer stops what the others let through: a copy of the database opened
read-only, no access outside it and locked settings, a READ ONLY transaction, one statement of type SELECT or EXPLAIN,
and a process with bounded memory, files and time. The price is the start of a process, a third of a second; several
queries can share it.

What is seen: a catalog that nobody owns, as it is; one that is owned, as of a snapshot that its owner publishes on
request; PostgreSQL, live.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewcache import errors
from viewcache.catalog.confined import QueryLimits, ask_confined, check_one, confine, serve_confined
from viewcache.catalog.revisions import NONE_ON_POSTGRESQL, is_older, too_old
from viewcache.catalog.statements import load
from viewcache.catalog.views import ORDER
from viewcache.suggest import suggest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["QueryLimits", "QueryResult", "run_queries", "run_query"]

REBUILD = "open the cache again (`viewcache run`): it is rebuilt from its journal and the store"

REUSED_S = 2.0
"""A snapshot younger than this answers another query: each one costs the owner a copy of its catalog."""

_PLAIN_EXPLAINS = [["explain", word] for word in ("select", "with", "values", "table", "from")]


_REACHING = re.compile(
    r"\b(pg_(terminate|cancel)_backend|pg_(try_)?advisory_\w+|pg_notify|set_config|dblink\w*|lo_\w+"
    r'|(query|cursor)_to_xml\w*|ts_stat|ts_rewrite)\b|\bu&"',
    re.IGNORECASE,
)
"""Functions of PostgreSQL that end sessions, hold locks, change settings, or run a text as a statement."""


_NO_TABLE = re.compile(r'(?P<what>Table with name (?P<name>.+) does not exist!)\nDid you mean "[^"\n]*"\?')


_LINE = re.compile(r"^LINE (?P<line>\d+):", re.MULTILINE)


_MARK = re.compile(r"\$([a-z_]+)\b")


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What came back."""

    columns: tuple[str, ...]
    arrow: bytes
    """The rows as an Arrow IPC stream."""
    truncated: bool
    """Whether there were more rows."""
    source: str
    """``file`` (nobody owns the catalog), ``snapshot`` (published by its owner) or ``postgresql`` (live)."""
    as_of_s: float
    """When the data was as shown, seconds since 1970-01-01 UTC."""

    def table(self) -> "pa.Table":
        """The rows as an Arrow table."""
        import pyarrow as pa

        return pa.ipc.open_stream(self.arrow).read_all()


Parameters = Mapping[str, str | int | float]
"""Values by name: ``$epoch`` in a statement is ``parameters["epoch"]``, and never a part of its text."""


def run_query(where: str | Path, sql: str, limits: QueryLimits | None = None, *, wait_s: float = 10.0) -> QueryResult:
    """Run one SELECT (or a plain EXPLAIN) over a catalog's public relations, from any process.

    Args:
        where: the catalog's folder or ``postgresql://`` URL, as for ``Catalog.open``.
        sql: the statement.
        limits: see ``QueryLimits``.
        wait_s: how long to wait for a snapshot of a catalog that is owned, seconds.

    Raises:
        QueryRefused: it is not one SELECT, it is wrong, or it went over a limit; the message says which.
        CatalogDamaged: it cannot be read, and is rebuilt when the cache is opened.
        CatalogVersion: it is of another release, and has not what is asked for.
        BadInput, CatalogBusy: PostgreSQL does not let us in, or does not answer.
        NotFound: there is no catalog.
        Timeout: the owner did not publish a snapshot.
    """
    return run_queries(where, [sql], limits, wait_s=wait_s)[0]


def run_queries(
    where: str | Path,
    queries: Sequence[str],
    limits: QueryLimits | None = None,
    *,
    wait_s: float = 10.0,
    parameters: Parameters | None = None,
) -> list[QueryResult]:
    """Run several such statements over one state of the catalog, in one process, with the limits on them together.

    Args:
        where: as for ``run_query``.
        queries: the statements.
        limits: the seconds and the memory are of all, the rows and the bytes of each.
        wait_s: as for ``run_query``.
        parameters: values for ``$name`` in the statements; a statement need not have all of them.

    Raises:
        QueryRefused: as for ``run_query``; the first that is refused ends all.
        CatalogDamaged: it cannot be read, and is rebuilt when the cache is opened.
        CatalogVersion: it is of another release, and has not what is asked for.
        BadInput, CatalogBusy: PostgreSQL does not let us in, or does not answer.
        NotFound: there is no catalog.
        Timeout: the owner did not publish a snapshot.
    """
    from viewcache.catalog.opening import is_postgresql

    limits = limits or QueryLimits()
    for sql in queries:
        try:
            sql.encode()
        except UnicodeEncodeError as error:
            raise errors.QueryRefused(f"the query is not valid UTF-8 at character {error.start}") from error
    request = {"queries": list(queries), "parameters": dict(parameters or {})}
    if is_postgresql(where):
        return _ask_child({"target": {"url": str(where)}, **request}, limits, "postgresql", time.time())
    with _readable(Path(where).absolute(), wait_s) as (database, source, as_of_s):
        target = {"database": str(database), "where": str(Path(where).absolute())}
        try:
            return _ask_child({"target": target, **request}, limits, source, as_of_s)
        except errors.CatalogDamaged as error:
            named = str(error).replace(f"{database.parent}/", f"{Path(where).absolute()}/")  # not our own copy
            raise errors.CatalogDamaged(f"the catalog cannot be read: {named}; {REBUILD}") from None


@contextlib.contextmanager
def _readable(folder: Path, wait_s: float) -> Iterator[tuple[Path, str, float]]:
    """A database file that stays as it is: a copy if nobody owns the catalog, else the owner's snapshot."""
    from viewcache.catalog.files import CatalogFiles
    from viewcache.catalog.private import private_folder
    from viewcache.catalog.snapshot import lock_or_snapshot

    layout = CatalogFiles(folder)
    if not os.path.exists(layout.database):  # also of a folder whose name is too long, where `Path.exists` raises
        raise errors.NotFound(f"no catalog in {folder}; `viewcache run` makes one")
    with private_folder() as private:
        copy = private / layout.database.name
        found = lock_or_snapshot(folder, wait_s, max_age_s=REUSED_S)
        if isinstance(found, Path):
            as_of_s = found.stat().st_mtime
            yield found, "snapshot", as_of_s
            return
        # Only the copy is made under the lock: a query must not keep a training run from starting.
        with found:
            as_of_s = time.time()
            shutil.copyfile(layout.database, copy)
            if layout.log.exists():
                shutil.copyfile(layout.log, copy.with_name(layout.log.name))
        yield copy, "file", as_of_s


def _ask_child(request: Mapping[str, Any], limits: QueryLimits, source: str, as_of_s: float) -> list[QueryResult]:
    answered = ask_confined(__name__, request, limits)
    import pyarrow as pa

    results, streams = [], pa.BufferReader(answered)
    for _ in request["queries"]:
        began = streams.tell()
        schema = pa.ipc.open_stream(streams).read_all().schema
        truncated = (schema.metadata or {}).get(b"truncated") == b"1"
        arrow = answered[began : streams.tell()]
        results.append(QueryResult(tuple(schema.names), arrow, truncated, source, as_of_s))
    return results


def _answer(request: "Mapping[str, Any]", limits: QueryLimits) -> "Iterator[pa.Table]":
    """What the child does with a request."""
    answer = _on_postgresql if "url" in request["target"] else _on_duckdb
    for table, truncated in answer(request["target"], request["queries"], request["parameters"], limits):
        yield table.replace_schema_metadata({"truncated": "1" if truncated else "0"})


def _on_duckdb(
    target: dict[str, str], queries: Sequence[str], parameters: Parameters, limits: QueryLimits
) -> "Iterator[tuple[pa.Table, bool]]":
    import duckdb

    from viewcache.catalog.duck import is_damage, locked_down

    confine(limits, files=64)
    # A quarter is for what DuckDB does not count, and for the rows that come back.
    config = {**locked_down(limits.memory_bytes * 3 // 4, 2), "temp_directory": ""}
    try:
        connection = duckdb.connect(target["database"], read_only=True, config=dict(config))
    except (duckdb.IOException, duckdb.SerializationException, duckdb.InternalException) as error:
        raise errors.CatalogDamaged(str(error)) from error
    except (duckdb.Error, MemoryError) as error:
        raise errors.QueryRefused(f"the catalog cannot be opened for the query: {error}") from error
    try:
        connection.execute("begin transaction read only")
        for sql in queries:
            _check_one_select(sql, [statement.type.name for statement in connection.extract_statements(sql)])
            # DuckDB takes no more than the statement names.
            named = {name: parameters[name] for name in _MARK.findall(sql) if name in parameters}
            reader = connection.execute(sql, named).to_arrow_reader(2048)
            yield _first_rows(reader.schema, reader, limits)
    except (duckdb.Error, MemoryError) as error:
        if is_damage(str(error)):
            raise errors.CatalogDamaged(str(error)) from error
        if isinstance(error, (duckdb.BinderException, duckdb.CatalogException)):
            with contextlib.suppress(duckdb.Error):
                _check_revision(connection.execute(load("read_revision", "duckdb").text).fetchone(), target["where"])
        raise errors.QueryRefused(f"the query failed: {_NO_TABLE.sub(_public, str(error))}") from error


def _check_revision(row: "tuple[str, ...] | None", where: str) -> None:
    """Tell that a catalog is of another release, which is why it may lack what a statement names."""
    if row is not None and is_older(row[0], where):
        raise too_old(where)


def _public(proposed: re.Match[str]) -> str:
    """What DuckDB says of an unknown table, with a public relation in place of one that is only ours."""
    near = suggest(proposed["name"], ORDER)
    return f"{proposed['what']}\n" + (f'Did you mean "{near}"?' if near else f"There are {', '.join(ORDER)}.")


def _check_one_select(sql: str, kinds: list[str]) -> None:
    check_one(kinds)
    if kinds[0] == "SELECT" or (kinds[0] == "EXPLAIN" and _is_plain_explain(sql)):
        return
    raise _no_select(kinds[0])


def _no_select(kind: str) -> errors.QueryRefused:
    what = "EXPLAIN with options" if kind == "EXPLAIN" else kind
    return errors.QueryRefused(f"this is {what}; the catalog can be read only: send one SELECT, or a plain EXPLAIN")


def _is_plain_explain(sql: str) -> bool:
    """Whether it starts ``explain select``: EXPLAIN ANALYZE would run the statement."""
    return [word.lower() for word in sql.split(None, 2)[:2]] in _PLAIN_EXPLAINS


def _on_postgresql(
    target: dict[str, str], queries: Sequence[str], parameters: Parameters, limits: QueryLimits
) -> "Iterator[tuple[pa.Table, bool]]":
    from viewcache.catalog.connecting import connect

    options = f"-c default_transaction_read_only=on -c statement_timeout={int(limits.seconds * 1000)}"
    connection = connect(target["url"], options=options, application_name="viewcache sql")
    import psycopg
    import pyarrow as pa

    confine(limits, files=64)
    row = connection.execute("select current_setting('is_superuser')").fetchone()
    if row != ("off",):
        raise errors.QueryRefused(
            "a PostgreSQL superuser can leave any read-only transaction: name a role that may only SELECT in the URL"
        )
    try:
        connection.execute("begin transaction isolation level repeatable read, read only")
        for number, sql in enumerate(queries):
            # A server-side cursor takes one SELECT or VALUES and nothing that writes; the extended protocol one
            # statement.
            plain = _is_plain_explain(sql)
            _check_functions(sql)
            before = "\n" if plain else f"declare answer{number} no scroll cursor for\n"
            text = f"{before}{sql.strip().rstrip(';')}\n"
            try:
                cursor = connection.execute(*_bound(text, parameters), prepare=True)
            except psycopg.errors.SyntaxError as error:
                word = re.match(r"\s*(\w+)", sql)
                if word is None or error.diag.statement_position != str(len(before) + 1):
                    raise
                raise _no_select(word[1].upper()) from error
            if not plain:
                cursor = connection.execute(f"fetch forward {limits.rows + 1} from answer{number}".encode())
            rows = cursor.fetchall()
            names = [column.name for column in cursor.description or ()]
            columns = [_column(values) for values in zip(*rows, strict=True)] if rows else [pa.nulls(0)] * len(names)
            table = pa.table(columns, names=names)
            yield _first_rows(table.schema, table.to_batches(2048), limits)
    except (psycopg.Error, MemoryError) as error:
        if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)):
            with contextlib.suppress(psycopg.Error):  # nor need this role be let in there
                connection.execute("rollback")
                try:
                    revision = connection.execute(load("read_revision", "postgresql").text.encode()).fetchone()
                except psycopg.errors.UndefinedTable:
                    raise errors.NotFound(NONE_ON_POSTGRESQL) from error
                _check_revision(revision, "of the PostgreSQL database")
        raise errors.QueryRefused(f"the query failed: {_LINE.sub(_line_before, str(error))}") from error


def _line_before(told: re.Match[str]) -> str:
    """The line that the server names, as that of the query: the text that was sent has one line before it."""
    return f"LINE {int(told['line']) - 1}:".ljust(len(told[0]))


def _check_functions(sql: str) -> None:
    """Refuse functions that a read-only transaction allows and that reach beyond it: the owner's role may call them.

    A name must stand in the text as it is, but for ``U&"…"``, which can spell any name and is refused with them.
    """
    if found := _REACHING.search(sql):
        raise errors.QueryRefused(f"the query names {found[0]}; the catalog can be read only: leave it out")


def _bound(text: str, parameters: Parameters) -> tuple[bytes, dict[str, str | int | float] | None]:
    """A statement with psycopg's own marks for its parameters, and these; without any its text is not looked at."""
    if not parameters:
        return text.encode(), None
    return _MARK.sub(r"%(\1)s", text.replace("%", "%%")).encode(), dict(parameters)


def _column(values: "tuple[object, ...]") -> "pa.Array":
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])


def _first_rows(
    schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", limits: QueryLimits
) -> "tuple[pa.Table, bool]":
    """Rows up to the limits, and whether there are more."""
    import pyarrow as pa

    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        size += batch.nbytes
        if size > limits.result_bytes and kept:
            return pa.Table.from_batches(kept, schema), True
        kept.append(batch.slice(0, limits.rows - rows))
        if rows + batch.num_rows > limits.rows:
            return pa.Table.from_batches(kept, schema), True
        rows += batch.num_rows
    return pa.Table.from_batches(kept, schema), False


if __name__ == "__main__":
    serve_confined(_answer)
