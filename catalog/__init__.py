"""What we know: SQL tables, public views and named queries behind one door.

Everything else passes value types in and gets value types or Arrow tables back; no SQL is written outside this folder.
The names load on first use (PEP 562), because the drivers below them take a third of a second to import.

In the order of work:

- ``upgrading``: the schema that the scripts of migrations lead to
- ``creating``: a new database, of SQL that is written down
- ``revisions``: whether a catalog is of this release
- ``opening``: the lock, creation, the schema's revision, the journal, damaged files
- ``files``: atomic creation, the reserve for a full disk, quarantine
- ``blobs``: packet indexes of videos, in a file beside the database
- ``lock``: who owns the catalog
- ``owning``: who owns one on PostgreSQL
- ``sqlstates``: which of our errors an error of PostgreSQL is
- ``engine``: what the catalog needs of a database
- ``packed_rows``: very many rows of a result in little memory
- ``uninterrupted``: calls in which no signal handler can raise
- ``driver``: DuckDB's module, imported where no Ctrl-C interrupts it
- ``log_room``: room on the disk for its log, claimed before a commit
- ``duck``: the embedded database: one DuckDB file
- ``connecting``: a connection to PostgreSQL, or why there is none
- ``postgres``: PostgreSQL: bulk rows by COPY
- ``tables``: the declared tables
- ``schemas``: their bulk forms, as Arrow schemas
- ``rows``: row objects to Arrow and back
- ``records``: the values that pass through the door
- ``kinds``: what kinds of objects there are
- ``door``: the one door to the database, in verbs: record a plan, mark ready, what is due
- ``tasks``: what registering datasets, videos, tasks and draws means
- ``plans``: a plan, checked and recorded in bulk
- ``draws``: the door's verbs about orders, by rows or by digests
- ``videos``: the door's verbs about datasets and their videos
- ``leaving``: the door's verbs about what leaves and what may not
- ``ends``: the door's verbs about how a cache begins and ends
- ``measures``: the door's verbs about what was measured and what happened
- ``pending``: small changes until the next commit, as their net effect
- ``writer``: the single writer thread and its batches
- ``journal``: what was drawn, written a second time: a checked line per decision
- ``packing``: columns of rows in its lines
- ``replay``: catalog and journal brought to the same state; a lost catalog gets its draws back
- ``statements``: loads the named statements of `catalog/sql/queries`
- ``views``: the public relations in `catalog/sql/views`, built after every migration
- ``private``: a private folder for a copy of a catalog, gone with its maker
- ``snapshot``: a copy to read for other processes while a run is on
- ``readonly``: users' SQL over the catalog, read-only
- ``confined``: other people's SQL in a child process with limits
- ``eviction``: what an eviction policy is, and the cut
- ``policies``: the shipped policies and those of users, checked
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewcache.catalog.door import Catalog
    from viewcache.catalog.readonly import QueryLimits, QueryResult, run_queries, run_query

__all__ = ["Catalog", "QueryLimits", "QueryResult", "run_queries", "run_query"]

_HOMES = {
    "Catalog": "viewcache.catalog.door",
    "QueryLimits": "viewcache.catalog.readonly",
    "QueryResult": "viewcache.catalog.readonly",
    "run_queries": "viewcache.catalog.readonly",
    "run_query": "viewcache.catalog.readonly",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'viewcache.catalog' has no attribute {name!r}; it has: {', '.join(__all__)}")
