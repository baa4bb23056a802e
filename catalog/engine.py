"""What the catalog needs of a database: transactions for its one writer, reads from any thread, Arrow in and out.

Two classes keep this contract, ``duck.DuckEngine`` and ``postgres.PostgresEngine``; ``tests/catalog`` runs every query
on both. They use the drivers directly: SQLAlchemy would cost each statement 0.1 to 0.35 ms and a
third of a second at import, and its Core is needed only where schemas are declared and compared.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

import pyarrow as pa

from viewcache import errors
from viewcache.catalog.statements import Statement, Typed

__all__ = ["ROWS_AT_A_TIME", "Engine", "Session", "arrow_schema", "handed_over"]

ROWS_AT_A_TIME = 4096
"""Of a result that is read until there is enough of it."""

_ARROW = {
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "text": pa.string(),
    "blob": pa.binary(),
    "boolean": pa.bool_(),
    "integer[]": pa.list_(pa.int32()),
}


def arrow_schema(columns: tuple[Typed, ...]) -> pa.Schema:
    """The Arrow schema of a statement's declared columns."""
    return pa.schema([(column.name, _ARROW[column.type]) for column in columns])


def handed_over(statement: Statement, given: pa.Table | None) -> pa.Table:
    """The rows for a statement's given relation, in its declared columns and types.

    Raises:
        Misuse: there are none, or they do not fit.
    """
    assert statement.given is not None
    if given is None:
        raise errors.Misuse(f"query {statement.name} needs the rows of {statement.given.name}")
    schema = arrow_schema(statement.given.columns)
    try:
        return given.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise errors.Misuse(f"query {statement.name} takes {schema.names}: {error}") from error


class Session(ABC):
    """One open transaction; used by one thread."""

    @abstractmethod
    def run(self, name: str, parameters: Mapping[str, object] | None = None, given: pa.Table | None = None) -> pa.Table:
        """Run a named statement.

        Args:
            name: of a file in ``sql/queries``.
            parameters: one value for each that the statement's header names.
            given: the rows of the relation that the header names.

        Returns:
            The result in the header's columns; no columns where it names none.
        """

    @abstractmethod
    def count(self, name: str, parameters: Mapping[str, object]) -> int:
        """Run a named INSERT, UPDATE or DELETE and say how many rows it changed; cheaper than RETURNING."""


class Engine(ABC):
    """One open database.

    Attributes:
        lost: the database gave up on this handle; ``reopen`` before the next use.
        life: how often it was opened again.
    """

    dialect: ClassVar[str]
    lost: bool = False
    life: int = 0

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Session]:
        """A transaction that commits when the block ends well and rolls back otherwise.

        Raises:
            Full: the disk is full; nothing was written.
            CatalogDamaged: the handle is lost and whether the transaction was committed is not known.
            CatalogBusy: the server could not do it just now; nothing was written.
        """

    @abstractmethod
    def query(
        self, name: str, parameters: Mapping[str, object] | None = None, given: pa.Table | None = None
    ) -> pa.Table:
        """Run a named SELECT outside any transaction, from any thread; arguments as in ``Session.run``."""

    @abstractmethod
    def query_packed(self, name: str, parameters: Mapping[str, object], plain: Container[str]) -> pa.Table:
        """Run a named SELECT of very many rows, with little more memory than what they take; see `packed_rows.packed`.

        Args:
            name: of a file in ``sql/queries``.
            parameters: one value for each that the statement's header names.
            plain: the columns in which hardly a value comes twice; all others are coded.
        """

    @abstractmethod
    def stream_ordered(
        self,
        statement: Statement,
        source: str,
        parameters: Mapping[str, object] | None = None,
        given: pa.Table | None = None,
    ) -> AbstractContextManager[Iterator[pa.Table]]:
        """Run a SELECT over the rows of a named one, and give its rows in their order while the block runs.

        Args:
            statement: the relation that its header is given holds those rows. Only the columns that it names there
                are asked for.
            source: name of the other, which ``parameters`` and ``given`` are for.
            parameters: as in ``Session.run``.
            given: likewise.

        Returns:
            A few thousand rows at a time: who has enough stops there, and what follows is not fetched.
        """

    @abstractmethod
    def checkpoint(self) -> bool:
        """Fold the log into the database file, where there is one.

        Returns:
            False if others are in the way for now: a transaction that writes, or some reads. Try again.

        Raises:
            CatalogDamaged: it failed and the handle is lost; committed rows are not.
        """

    @abstractmethod
    def reopen(self) -> None:
        """Close every connection and open the database anew."""

    @abstractmethod
    def hasten(self) -> None:
        """The catalog is about to be closed: from now on wait no longer for a lost database than closing may take."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""
