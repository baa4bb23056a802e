"""The shared database: PostgreSQL through psycopg 3, one connection that writes and as many as there are readers.

Rows are handed over by COPY into a temporary table of the name that the statement gives, so the same SQL runs here and
on DuckDB, where they are a registered Arrow table. The trade-off: a COPY costs a millisecond for a single row, and is
six times faster than arrays for a million.
"""

import contextlib
import io
import os
import threading
import time
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from viewcache import errors
from viewcache.catalog.connecting import connect
from viewcache.catalog.engine import ROWS_AT_A_TIME, Engine, Session, arrow_schema, handed_over
from viewcache.catalog.owning import OwnerSession, own
from viewcache.catalog.packed_rows import packed, parts_of
from viewcache.catalog.sqlstates import error_of, not_made
from viewcache.catalog.statements import Given, Statement, load

if TYPE_CHECKING:
    import psycopg

__all__ = ["BUSY_S", "RECONNECT_S", "PostgresEngine", "sqlalchemy_url"]

_TYPES = {
    "bigint": "bigint",
    "integer": "integer",
    "double": "double precision",
    "text": "text",
    "blob": "bytea",
    "boolean": "boolean",
    "integer[]": "integer[]",
}
T = TypeVar("T")

RECONNECT_S = 120.0
"""How long the owner waits for a lost server, seconds: one that is managed takes a minute or two to fail over."""

BUSY_S = 10.0
"""The same of who only reads, while the cache is closed, and of a server that is there but takes no statement now."""


def sqlalchemy_url(url: str) -> str:
    """The same database as SQLAlchemy names it."""
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


class PostgresEngine(Engine):
    """``Engine`` on a PostgreSQL database."""

    dialect = "postgresql"

    def __init__(self, url: str):
        """Connect.

        Args:
            url: ``postgresql://…``; a password comes from the environment or ~/.pgpass rather than from here.

        Raises:
            MissingExtra: psycopg is not installed.
            CatalogBusy: the server does not answer.
            BadInput: this is not a URL, or the server does not let us in; the message says what to do.
        """
        self._url = url
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection[Any]] = []
        self._owner: OwnerSession | None = None
        self._hurries = False
        self._writing = self._connect()
        self._role = self._writing.info.user
        _open.add(self)
        self._psycopg = import_module("psycopg")  # after that, which tells of a missing one

    def _connect(self) -> "psycopg.Connection[Any]":
        return connect(self._url, application_name="viewcache")

    def own(self) -> None:
        """Keep all other processes from writing until this one is closed.

        Raises:
            CatalogBusy: another process owns the catalog, or the server takes no changes.
        """
        with self._translated(self._writing):
            self._owner = own(self._writing)

    def is_empty(self) -> bool:
        """Whether the database holds no schema of ours."""
        with self._translated(self._writing):
            row = self._writing.execute("select to_regclass('alembic_version') is null").fetchone()
        return bool(row and row[0])

    def upgrade(self) -> None:
        """Bring the schema to this release's revision, from nothing too.

        Raises:
            BadInput: the role may not; the message says what would let it.
            CatalogBusy: the server gave up on it; nothing was changed.
        """
        from sqlalchemy.exc import DBAPIError

        from viewcache.catalog.upgrading import upgrade

        try:
            upgrade(sqlalchemy_url(self._url))
        except DBAPIError as error:  # its own words repeat the statement
            raise not_made(cast("psycopg.Error", error.orig), self._role) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """See ``Engine.transaction``."""
        with self._translated(self._writing), self._writing.transaction():
            yield _PostgresSession(self, self._writing)

    def query(
        self, name: str, parameters: Mapping[str, object] | None = None, given: pa.Table | None = None
    ) -> pa.Table:
        """See ``Engine.query``; waits for a server that restarts, which has dropped all connections."""

        def run(connection: "psycopg.Connection[Any]") -> pa.Table:
            with self._translated(connection), connection.transaction():
                return _PostgresSession(self, connection).run(name, parameters, given)

        result, connection = self._connected(run)
        self._had(connection)
        return result

    def query_packed(self, name: str, parameters: Mapping[str, object], plain: Container[str]) -> pa.Table:
        """See ``Engine.query_packed``; the driver has all rows at once."""
        rows = self.query(name, parameters)
        return packed(rows.schema, parts_of(rows), plain)

    @contextlib.contextmanager
    def stream_ordered(
        self,
        statement: Statement,
        source: str,
        parameters: Mapping[str, object] | None = None,
        given: pa.Table | None = None,
    ) -> Iterator[Iterator[pa.Table]]:
        """See ``Engine.stream_ordered``; the rows in between do not leave the server, which is waited for as above."""

        def begin(connection: "psycopg.Connection[Any]") -> "tuple[contextlib.ExitStack, psycopg.ServerCursor[Any]]":
            with contextlib.ExitStack() as stack:
                stack.enter_context(self._translated(connection))
                stack.enter_context(connection.transaction())
                _PostgresSession(self, connection).fill(statement, load(source, "postgresql"), parameters, given)
                cursor = stack.enter_context(connection.cursor(name="stream_ordered", binary=True))
                cursor.execute(statement.text.encode())
                return stack.pop_all(), cursor

        (begun, cursor), connection = self._connected(begin)
        try:
            with begun:
                yield _batches(cursor, statement)
        except BaseException:
            connection.close()
            raise
        self._had(connection)

    def _connected(self, use: "Callable[[psycopg.Connection[Any]], T]") -> "tuple[T, psycopg.Connection[Any]]":
        """What ``use`` gives of a connection that nobody else uses, and the connection; `_had` takes that back.

        Waits for a server that restarts, which has dropped all connections, or fails over, and a little for one that
        does not answer just now: another connection is used then.
        """
        begun = time.monotonic()
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            try:
                connection = connection or self._connect()
                return use(connection), connection
            except BaseException as error:
                was_lost = connection is not None and (connection.closed or connection.broken)
                if connection is not None:
                    connection.close()
                may_pass = was_lost or isinstance(error, errors.CatalogBusy)
                is_lost = was_lost or connection is None
                if not may_pass or time.monotonic() - begun > self._patience_s(is_lost=is_lost):
                    raise
                time.sleep(0.05)

    def _had(self, connection: "psycopg.Connection[Any]") -> None:
        with self._lock:
            self._idle.append(connection)

    def checkpoint(self) -> bool:
        """Nothing: the server sees to it."""
        return True

    def reopen(self) -> None:
        """See ``Engine.reopen``; waits for a server that restarts or fails over, or takes no changes just now."""
        self.close()
        begun = time.monotonic()
        while True:
            try:
                self._writing = self._connect_again()
                break
            except errors.CatalogBusy:
                if time.monotonic() - begun > self._patience_s(is_lost=True):
                    raise
                time.sleep(0.1)
        self.lost = False

    def _patience_s(self, *, is_lost: bool) -> float:
        """How long the server is waited for in all; to be asked each time, as closing may have begun meanwhile."""
        return RECONNECT_S if is_lost and self._owner is not None and not self._hurries else BUSY_S

    def hasten(self) -> None:
        """See ``Engine.hasten``."""
        self._hurries = True

    def _connect_again(self) -> "psycopg.Connection[Any]":
        connection = self._connect()
        if self._owner is None:
            return connection
        try:  # the lock went with the session
            with self._translated(connection):
                self._owner = own(connection, self._owner)
        except errors.CatalogDamaged as error:
            connection.close()
            raise errors.CatalogBusy(str(error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def leave(self) -> None:
        """In a forked child: let go of the sockets, so that the sessions end with the parent that has them."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in (*self._idle, self._writing):
            if not connection.closed:
                os.dup2(nothing, connection.fileno(), inheritable=False)
        os.close(nothing)

    def close(self) -> None:
        """See ``Engine.close``."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in (*idle, self._writing):
            connection.close()

    @contextlib.contextmanager
    def _translated(self, connection: "psycopg.Connection[Any]") -> Iterator[None]:
        """The driver's errors as ours; sets ``lost`` when the writing connection is gone."""
        try:
            yield
        except self._psycopg.errors.ReadOnlySqlTransaction as error:
            connection.close()  # the next one may be to the server that has taken over
            self._note_lost()
            raise error_of(error, self._role, gone=True) from error
        except self._psycopg.Error as error:
            self._note_lost()
            raise error_of(error, self._role, gone=connection.closed or connection.broken) from error

    def _note_lost(self) -> None:
        self.lost = self.lost or self._writing.closed or self._writing.broken


class _PostgresSession(Session):
    def __init__(self, engine: PostgresEngine, connection: "psycopg.Connection[Any]"):
        self._engine, self._connection = engine, connection

    def run(self, name: str, parameters: Mapping[str, object] | None = None, given: pa.Table | None = None) -> pa.Table:
        statement = load(name, "postgresql")
        statement.check(parameters or {})
        if statement.given is not None:
            self._hand_over(statement, given)
        schema = arrow_schema(statement.columns)
        with self._connection.cursor(binary=True) as cursor:
            cursor.execute(statement.text.encode(), dict(parameters) if parameters else None)
            rows = cursor.fetchall() if statement.columns else []
            if statement.given is not None:
                cursor.execute(f"drop table pg_temp.{statement.given.name}".encode())
        return _table(rows, schema)

    def fill(
        self,
        statement: Statement,
        source: Statement,
        parameters: Mapping[str, object] | None,
        given: pa.Table | None,
    ) -> None:
        """Put the rows of one statement where another is given them."""
        assert statement.given is not None
        source.check(parameters or {})
        if source.given is not None:
            self._hand_over(source, given)
        self._declare(statement.given)
        relation, rows = statement.given.name, source.only(statement.given.names).text
        columns = ", ".join(column.name for column in source.only(statement.given.names).columns)
        into = f"insert into pg_temp.{relation} ({columns}) {rows}"
        self._connection.execute(into.encode(), dict(parameters) if parameters else None)

    def count(self, name: str, parameters: Mapping[str, object]) -> int:
        statement = load(name, "postgresql")
        statement.check(parameters)
        return self._connection.execute(statement.text.encode(), dict(parameters)).rowcount

    def _hand_over(self, statement: Statement, given: pa.Table | None) -> None:
        assert statement.given is not None
        rows = handed_over(statement, given)
        relation = statement.given.name
        self._declare(statement.given)
        with self._connection.cursor() as cursor:
            with cursor.copy(f"copy pg_temp.{relation} from stdin (format csv)".encode()) as copy:
                copy.write(_csv(rows))
            if rows.num_rows > _ANALYZE_ROWS:
                cursor.execute(f"analyze pg_temp.{relation}".encode())

    def _declare(self, given: Given) -> None:
        """Make the temporary table that a statement's header names, for this transaction."""
        columns = ", ".join(f"{column.name} {_TYPES[column.type]}" for column in given.columns)
        # Names and types come from the statement's own header, never from a caller.
        self._connection.execute(f"create temporary table {given.name} ({columns}) on commit drop".encode())


def _table(rows: "Sequence[tuple[Any, ...]]", schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _leave_in_child() -> None:
    for engine in list(_open):
        engine.leave()


_open: "weakref.WeakSet[PostgresEngine]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_leave_in_child)


def _batches(cursor: "psycopg.ServerCursor[Any]", statement: Statement) -> Iterator[pa.Table]:
    schema = arrow_schema(statement.columns)
    while rows := cursor.fetchmany(ROWS_AT_A_TIME):
        yield _table(rows, schema)


_ANALYZE_ROWS = 1000
"""Above so many given rows the planner's guess about a temporary table costs more than counting them."""


def _csv(rows: pa.Table) -> memoryview:
    """The rows as CSV that COPY reads; null is nothing, an empty text is ``""``."""
    plain = pa.table({field.name: _text(rows[field.name], field.type) for field in rows.schema})
    out = io.BytesIO()
    arrow_csv.write_csv(plain, out, arrow_csv.WriteOptions(include_header=False))
    return out.getbuffer()


def _text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Columns that CSV has no form for, in PostgreSQL's text form."""
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_list(kind):
        joined = pc.binary_join(column.cast(pa.list_(pa.string())), ",")
        return pc.binary_join_element_wise("{", joined, "}", "")
    return column
