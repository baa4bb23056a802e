"""A connection to PostgreSQL, or why there is none: refused for good, refused for now, or nobody there.

libpq tells no SQLSTATE of a connection that was refused (18, psycopg 3.3), so the server's words are looked at. The
trade-off: of a server that speaks another language a refusal is taken for one that may pass.
"""

import os
from typing import TYPE_CHECKING, Any

from viewcache import errors

if TYPE_CHECKING:
    import psycopg

__all__ = ["connect"]

_TIMES = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""Seconds, and milliseconds of the last: a host that has vanished is noticed within half a minute, not two or more.
What the URL says of these holds."""

_CREDENTIALS = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "is not permitted to log in")
"""Of SQLSTATE 28P01 and 28000, in lower case."""


def connect(url: str, **settings: Any) -> "psycopg.Connection[Any]":
    """Connect to a database, each statement a transaction of its own.

    Args:
        url: ``postgresql://…`` or ``postgresql+psycopg://…``.
        settings: as psycopg takes them.

    Raises:
        MissingExtra: psycopg is not installed.
        BadInput: this is not a URL, the server refuses the user or the password, or has no such database.
        CatalogBusy: no server answers, or it takes nobody just now.
    """
    try:
        import psycopg
    except ImportError as error:
        raise errors.MissingExtra(
            "a PostgreSQL catalog needs psycopg: pip install 'viewcache[pg]', or use catalog: duckdb"
        ) from error
    try:
        plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
        given = psycopg.conninfo.conninfo_to_dict(plain)
        times: dict[str, Any] = {name: value for name, value in _TIMES.items() if name not in given}
        if "PGCONNECT_TIMEOUT" in os.environ:
            times.pop("connect_timeout", None)
        return psycopg.connect(plain, **{"autocommit": True, **times, **settings})
    except psycopg.OperationalError as error:
        raise _refusal(" ".join(str(error).split())) from error
    except psycopg.ProgrammingError as error:
        # Not with the driver's words: they may repeat a password.
        raise errors.BadInput("cache.catalog is no URL that PostgreSQL's client library can read") from error


def _refusal(said: str) -> errors.ViewcacheError:
    """The error for what libpq said."""
    words = said.lower()
    unknown = "does not exist" in words
    if any(mark in words for mark in _CREDENTIALS) or (unknown and 'role "' in words):
        return errors.BadInput(
            f"PostgreSQL refuses the user or the password: {said}; set PGPASSWORD or write the password to ~/.pgpass, "
            "and name the user in cache.catalog (postgresql://USER@HOST/DATABASE)"
        )
    if unknown and 'database "' in words:
        return errors.BadInput(
            f"PostgreSQL has no such database: {said}; make it with createdb, or correct cache.catalog"
        )
    if "fatal:" in words:
        return errors.CatalogBusy(f"PostgreSQL takes nobody just now: {said}; try again")
    return errors.CatalogBusy(
        f"no PostgreSQL server answers: {said}; start it, or correct host and port in cache.catalog"
    )
