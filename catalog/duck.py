"""The embedded database: one DuckDB file, one process, many threads.

The instance is locked down at open (no files, no network, no extensions, no settings), so that no SQL can reach past
the catalog. A failed checkpoint makes DuckDB refuse everything until all its connections are closed;
then ``lost`` is set and ``reopen`` starts again on the same file.
"""

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from viewcache import errors
from viewcache.catalog.driver import duckdb
from viewcache.catalog.engine import (
    ROWS_AT_A_TIME,
    Engine,
    Session,
    arrow_schema,
    handed_over,
)
from viewcache.catalog.log_room import LogRoom
from viewcache.catalog.packed_rows import PACKED_AT_ONCE, packed
from viewcache.catalog.statements import Statement, load
from viewcache.catalog.uninterrupted import uninterrupted

__all__ = ["DuckEngine", "locked_down"]

_DAMAGED = ("corrupt database file", "not a valid duckdb database file", "could not read enough bytes")
"""What DuckDB says of a file whose bytes are not as it wrote them (tried with flips, cuts and other files)."""
_NO_SPACE = ("no space left", "disk full", "enospc", "file too large", "disk quota exceeded")

_REOPEN_S = 5.0
"""How long a reader waits for the writer to open a lost database again, seconds."""

_LOG_BYTES, _LOG_SHARE = 64 << 10, 2
"""Room in the log that a transaction has before it is committed: so many bytes, and so many for each that it was given.
"""

_NEVER = "1024TB"
"""Size of a log that DuckDB would fold into its file by itself, in a commit: `snapshot.Upkeep` decides when."""

_THREADS = 1
"""Each query runs on the thread that asks, and on no other. DuckDB's own threads take the GIL to let go of an Arrow
table that Python gave, while the asker spins until they have: seen to hang for good in a process with busy threads.
They also take cores from the decoders (docs/design/0003-catalog.md, rule 12)."""


def locked_down(memory_bytes: int, threads: int) -> dict[str, str]:
    """DuckDB settings that leave SQL nothing to reach but the database itself."""
    return {
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "allow_community_extensions": "false",
        "lock_configuration": "true",
        "memory_limit": f"{max(memory_bytes, 64 << 20)}B",
        "threads": str(threads),
    }


def is_damage(text: str) -> bool:
    """Whether DuckDB's words say that the bytes of a file are not as it wrote them."""
    return any(mark in text.lower() for mark in _DAMAGED)


def is_full(error: duckdb.Error) -> bool:
    """Whether an error says that the disk, or a quota of it, is full."""
    return any(mark in str(error).lower() for mark in _NO_SPACE)


class DuckEngine(Engine):
    """``Engine`` on a DuckDB file."""

    dialect = "duckdb"

    def __init__(self, path: Path, *, read_only: bool = False, memory_bytes: int = 1 << 30):
        """Open an existing file.

        Args:
            path: of the database file.
            read_only: refuse every write; several processes may then have it open.
            memory_bytes: most memory that DuckDB's buffers take.

        Raises:
            CatalogBusy: another process has the file open.
            CatalogDamaged: the file or its log cannot be read.
        """
        self._path, self._read_only = path, read_only
        self._config = locked_down(memory_bytes, _THREADS) | {"checkpoint_threshold": _NEVER}
        self._lock = threading.Lock()
        self._reopened = threading.Condition(self._lock)
        self._log = path.with_name(f"{path.name}.wal")
        self._log_room = LogRoom(self._log)
        self._root = self._connect()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        self._keep_log_private()
        try:
            return uninterrupted(
                lambda: duckdb.connect(str(self._path), read_only=self._read_only, config=dict(self._config))
            )
        except duckdb.Error as error:
            text = str(error)
            if "Could not set lock" in text or "Conflicting lock" in text:
                raise errors.CatalogBusy(f"catalog {self._path} is open in another process: {text}") from error
            if is_full(error):
                raise errors.Full(f"catalog {self._path}: {text}; free disk space") from error
            self._suspect(text)
            raise errors.CatalogDamaged(f"catalog {self._path} cannot be opened: {text}") from error

    def _keep_log_private(self) -> None:
        """Let the write-ahead log be this user's alone: DuckDB, which makes it after each checkpoint, asks the umask.

        It is only created here, never opened: closing a file that DuckDB has open could give up its lock.
        """
        if self._read_only:
            return
        with contextlib.suppress(OSError):  # a disk that is full is told by the transaction
            try:
                os.close(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                if stat.S_IMODE(os.stat(self._log).st_mode) & 0o077:
                    os.chmod(self._log, 0o600)

    def _suspect(self, text: str) -> bool:
        """Whether an error means that the file is damaged; then the next open that may write moves it aside."""
        damaged = is_damage(text)
        if damaged and not self._read_only:
            with contextlib.suppress(OSError):
                self._path.with_suffix(".suspect").touch(0o600)
        return damaged

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock, self._translated():  # it is closed when opening it again has failed
            return self._root.cursor()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """See ``Engine.transaction``."""
        self._keep_log_private()
        cursor = self._cursor()
        try:
            with self._translated():
                cursor.begin()
            session = _DuckSession(self, cursor)
            try:
                yield session
                if session.changes:
                    self._log_room.claim(_LOG_BYTES + _LOG_SHARE * session.given_bytes)
            except BaseException:
                with contextlib.suppress(duckdb.Error):  # the first error is the one to tell
                    cursor.rollback()
                raise
            with self._translated():
                cursor.commit()
        finally:
            cursor.close()

    def query(
        self,
        name: str,
        parameters: Mapping[str, object] | None = None,
        given: pa.Table | None = None,
        *,
        only: Sequence[str] = (),
    ) -> pa.Table:
        """See ``Engine.query``."""
        return self._tried_again(lambda session: session.select(load(name, "duckdb"), parameters, given, only))

    def query_packed(self, name: str, parameters: Mapping[str, object], plain: Container[str]) -> pa.Table:
        """See ``Engine.query_packed``."""
        return self._tried_again(lambda session: session.select_packed(load(name, "duckdb"), parameters, plain))

    def _tried_again(self, read: "Callable[[_DuckSession], pa.Table]") -> pa.Table:
        """What is read by a cursor of its own, once more where the database was opened again meanwhile."""
        while True:
            life = self.life
            try:
                with contextlib.closing(self._cursor()) as cursor:
                    return read(_DuckSession(self, cursor))
            except errors.CatalogDamaged:
                if not self._is_reopened(life):
                    raise

    def _is_reopened(self, life: int) -> bool:
        """Whether a life is over; where the database was lost, the writer is given the time to open it again."""
        with self._reopened:
            patience = 0.0 if self._read_only or not self.lost else _REOPEN_S
            return self._reopened.wait_for(lambda: self.life != life, patience)

    @contextlib.contextmanager
    def stream_ordered(
        self,
        statement: Statement,
        source: str,
        parameters: Mapping[str, object] | None = None,
        given: pa.Table | None = None,
    ) -> Iterator[Iterator[pa.Table]]:
        """See ``Engine.stream_ordered``."""
        assert statement.given is not None
        rows = self.query(source, parameters, given, only=statement.given.names)
        schema = arrow_schema(statement.columns)
        name, table = statement.given.name, handed_over(statement, rows)
        cursor = self._cursor()
        try:
            uninterrupted(lambda: cursor.register(name, table))
            with self._translated():
                batches = uninterrupted(
                    lambda: cursor.execute(statement.text).to_arrow_reader(ROWS_AT_A_TIME), stop=cursor.interrupt
                )
                yield (pa.Table.from_batches([batch]).cast(schema) for batch in batches)
        finally:
            cursor.close()

    def checkpoint(self) -> bool:
        """See ``Engine.checkpoint``."""
        with contextlib.closing(self._cursor()) as cursor, self._translated():
            try:
                uninterrupted(lambda: cursor.execute("checkpoint"))
            except duckdb.TransactionException as error:
                if "Cannot CHECKPOINT" not in str(error):
                    raise
                return False
        return True

    def reopen(self) -> None:
        """See ``Engine.reopen``."""
        with self._lock:
            self._root.close()
            self._log_room.close()
            self._reach()
            self._root = self._connect()
            self.life += 1
            self.lost = False
            self._reopened.notify_all()

    def hasten(self) -> None:
        """See ``Engine.hasten``; a file is not waited for."""

    def _reach(self) -> None:
        """Open the files once without DuckDB: where it cannot open its log, it aborts the process (1.5.6).

        Only where the database is closed: closing a file of it gives up DuckDB's own lock.
        """
        for path in (self._path, self._log):
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise errors.CatalogDamaged(f"catalog {path} cannot be opened again: {error.strerror}") from error

    def close(self) -> None:
        """See ``Engine.close``."""
        with self._lock:
            self._root.close()
            self._log_room.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """The driver's errors as ours; sets ``lost`` when the instance has given up."""
        try:
            yield
        except duckdb.Error as error:
            text = str(error)
            gone = isinstance(error, duckdb.FatalException) or "database has been invalidated" in text
            self.lost = self.lost or gone
            if is_full(error):
                raise errors.Full(f"catalog {self._path}: {text}; free disk space") from error
            if os.strerror(errno.EMFILE) in text:
                raise errors.Full(
                    f"catalog {self._path}: {text}; close files, or raise the limit (ulimit -n)"
                ) from error
            if self._suspect(text):
                cure = "open the cache again: it is rebuilt from its journal and the store"
                raise errors.CatalogDamaged(f"catalog {self._path}: {text}; {cure}") from error
            if gone or "Connection already closed" in text or isinstance(error, duckdb.ConnectionException):
                raise errors.CatalogDamaged(f"catalog {self._path}: {text}") from error
            raise errors.Broken(f"catalog {self._path}: {text}") from error


class _DuckSession(Session):
    def __init__(self, engine: DuckEngine, cursor: duckdb.DuckDBPyConnection):
        self._engine, self._cursor = engine, cursor
        self.changes = False
        """Whether any of its statements may have changed something."""
        self.given_bytes = 0
        """Of the rows and texts that they were given."""

    def run(self, name: str, parameters: Mapping[str, object] | None = None, given: pa.Table | None = None) -> pa.Table:
        return self.select(load(name, "duckdb"), parameters, given)

    def select(
        self,
        statement: Statement,
        parameters: Mapping[str, object] | None,
        given: pa.Table | None,
        only: Sequence[str] = (),
    ) -> pa.Table:
        """Run a statement; of its columns only some, if any are named."""
        statement.check(parameters or {})
        self.changes = self.changes or not statement.reads
        statement = statement.only(only) if only else statement
        with self._engine._translated():
            table = uninterrupted(
                lambda: self._run(statement, dict(parameters or {}), given), stop=self._cursor.interrupt
            )
        schema = arrow_schema(statement.columns)
        return schema.empty_table() if table is None else table.cast(schema)

    def select_packed(self, statement: Statement, parameters: Mapping[str, object], plain: Container[str]) -> pa.Table:
        """See ``Engine.query_packed``."""
        statement.check(parameters)
        schema = arrow_schema(statement.columns)

        def read() -> pa.Table:
            batches = self._cursor.execute(statement.text, dict(parameters)).to_arrow_reader(PACKED_AT_ONCE)
            return packed(schema, (pa.Table.from_batches([batch]).cast(schema) for batch in batches), plain)

        with self._engine._translated():
            return uninterrupted(read, stop=self._cursor.interrupt)

    def _run(self, statement: Statement, parameters: dict[str, object], given: pa.Table | None) -> pa.Table | None:
        if statement.given is not None:
            rows = handed_over(statement, given)
            self.given_bytes += rows.nbytes
            self._cursor.register(statement.given.name, rows)
        self.given_bytes += sum(len(each) for each in parameters.values() if isinstance(each, str | bytes))
        try:
            result = self._cursor.execute(statement.text, parameters or None)
            return result.to_arrow_table() if statement.columns else None
        finally:
            if statement.given is not None:
                self._cursor.unregister(statement.given.name)

    def count(self, name: str, parameters: Mapping[str, object]) -> int:
        statement = load(name, "duckdb")
        statement.check(parameters)
        self.changes = self.changes or not statement.reads
        with self._engine._translated():
            row = uninterrupted(
                lambda: self._cursor.execute(statement.text, dict(parameters)).fetchone(), stop=self._cursor.interrupt
            )
        return int(row[0]) if row else 0
