"""Which of our errors an error of PostgreSQL is, told by its SQLSTATE, and what to do about it.

The server's own words are repeated, in whichever language it speaks; the statement is not. The trade-off: what an
operator cancels by hand reads like a statement that took too long, because both have one SQLSTATE.
"""

from typing import TYPE_CHECKING

from viewcache import errors

if TYPE_CHECKING:
    import psycopg

__all__ = ["READ_ONLY", "error_of", "not_made"]

READ_ONLY = (
    "the PostgreSQL server of the catalog takes no changes just now; wait until a failover is over, name the server "
    "that takes them in cache.catalog, or unset default_transaction_read_only"
)


def error_of(error: "psycopg.Error", role: str, *, gone: bool) -> errors.ViewcacheError:
    """The error of our tree for one of the driver.

    Args:
        error: of a statement, not of connecting.
        role: who asked.
        gone: whether the connection ended with it.
    """
    from psycopg import OperationalError
    from psycopg import errors as states

    said = error.diag.message_primary or str(error)
    if isinstance(error, states.DiskFull):
        return errors.Full(f"the PostgreSQL catalog's disk is full: {said}; free disk space")
    if isinstance(error, states.ReadOnlySqlTransaction):
        return errors.CatalogBusy(f"{READ_ONLY} ({said})")
    if isinstance(error, states.InsufficientPrivilege):
        return errors.BadInput(
            f"role {role!r} may not do this in the PostgreSQL catalog: {said}; name the role that owns its tables in "
            "cache.catalog (postgresql://USER@HOST/DATABASE)"
        )
    if gone:
        return errors.CatalogDamaged(f"the connection to the PostgreSQL catalog was lost: {said}")
    if isinstance(error, (states.QueryCanceled, states.LockNotAvailable)):
        return errors.CatalogBusy(
            f"the PostgreSQL catalog did not answer in time: {said}; if statement_timeout or lock_timeout of role "
            f"{role!r} is short, raise it"
        )
    if isinstance(error, OperationalError):
        return errors.CatalogBusy(f"the PostgreSQL catalog cannot do it just now: {said}; try again")
    return errors.Broken(f"the PostgreSQL catalog: {said}")


def not_made(error: "psycopg.Error", role: str) -> errors.ViewcacheError:
    """The same where tables were to be made or changed; nothing was, because that is one transaction."""
    from psycopg import errors as states

    if not isinstance(error, (states.InsufficientPrivilege, states.InvalidSchemaName)):
        return error_of(error, role, gone=False)
    return errors.BadInput(
        f"role {role!r} may not make or change the catalog's tables: {error.diag.message_primary}; name the role that "
        f'owns them in cache.catalog. For a new catalog make "{role}" the owner of the database, or say '
        f'`grant usage, create on schema public to "{role}"` as its owner'
    )
