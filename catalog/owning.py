"""Who owns a PostgreSQL catalog: a session advisory lock on the connection that writes (law 9).

The store's own lock lies in the store's folder, and a folder can be copied. This one is the server's, which gives it
back when the session ends, however that ended. The trade-off: a pool that gives one session to several clients
(transaction pooling) cannot hold it.
"""

import os
import time
from dataclasses import dataclass
from socket import gethostname
from typing import TYPE_CHECKING, Any

from viewcache import errors
from viewcache.catalog.lock import OPEN_HERE
from viewcache.catalog.sqlstates import READ_ONLY

if TYPE_CHECKING:
    import psycopg

__all__ = ["OwnerSession", "own"]

_WAIT_S = 5.0
"""How long the session of an owner that was killed may take to end, seconds."""

# The server keeps locks of each database apart; one database may hold a catalog in each of several schemas.
_KEY = "hashtext('viewcache.owner'), hashtext(coalesce(current_schema(), ''))"
_READ_ONLY = "select current_setting('transaction_read_only') = 'on'"
_TAKE = f"select pg_try_advisory_lock({_KEY})"
_HOLDER = f"""
select a.pid, a.application_name
from pg_locks l
join pg_stat_activity a on a.pid = l.pid
join (values ({_KEY})) as k (kind, place)
    on cast(l.classid as bigint) = cast(cast(k.kind as bit(32)) as bigint)
    and cast(l.objid as bigint) = cast(cast(k.place as bit(32)) as bigint)
where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
"""
_ITSELF = "select pid, cast(backend_start as text) from pg_stat_activity where pid = pg_backend_pid()"
_END = """
select pg_terminate_backend(pid)
from pg_stat_activity
where pid = %s and cast(backend_start as text) = %s and pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class OwnerSession:
    """The server's session that holds the lock; a number alone is used again."""

    pid: int
    begun: str


def own(connection: "psycopg.Connection[Any]", before: OwnerSession | None = None) -> OwnerSession:
    """Keep all others from writing for as long as this connection lives.

    Args:
        connection: on which nothing is under way.
        before: the session that had the lock for this process; the server may not have noticed that it has ended.

    Raises:
        CatalogBusy: another process owns the catalog, or the server takes no changes; the message says which process,
            and what to do.
    """
    if _first(connection, _READ_ONLY)[0]:
        raise errors.CatalogBusy(READ_ONLY)
    connection.execute("select set_config('application_name', %s, false)", [f"viewcache {os.getpid()} {gethostname()}"])
    if before is not None:
        connection.execute(_END, [before.pid, before.begun])
    until = time.monotonic() + _WAIT_S
    while not _first(connection, _TAKE)[0]:
        if time.monotonic() > until:
            raise errors.CatalogBusy(_busy(connection))
        time.sleep(0.05)
    pid, begun = _first(connection, _ITSELF)
    return OwnerSession(pid, begun)


def _first(connection: "psycopg.Connection[Any]", text: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(text.encode()).fetchone()
    assert row is not None
    return row


def _busy(connection: "psycopg.Connection[Any]") -> str:
    found = connection.execute(_HOLDER.encode()).fetchone()
    who, cure = "another process", "Stop that process first"
    if found is not None:
        session, name = found
        _, pid, machine = (*str(name).split(" ", 2), "", "")[:3]
        who = f"process {pid} on {machine}" if machine else who
        who = f"{who} (session {session} of the server)"
        cure = OPEN_HERE if (pid, machine) == (str(os.getpid()), gethostname()) else cure
    return (
        f"the PostgreSQL catalog is owned by {who}; only one process may own a cache, also where its folder was "
        f"copied. {cure}, or name another database for a cache of its own"
    )
