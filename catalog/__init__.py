"""What we know: SQL tables, public views and named queries behind one door (DESIGN §6).

Everything else passes value types in and gets value types or Arrow tables back; no SQL is written outside this folder.
The names load on first use (PEP 562), because the drivers below them take a third of a second to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewcache.catalog.door import Catalog
    from viewcache.catalog.readonly import QueryLimits, QueryResult, run_queries, run_query
    from viewcache.catalog.snapshot import read_snapshot

__all__ = ["Catalog", "QueryLimits", "QueryResult", "read_snapshot", "run_queries", "run_query"]

_HOMES = {
    "Catalog": "viewcache.catalog.door",
    "QueryLimits": "viewcache.catalog.readonly",
    "QueryResult": "viewcache.catalog.readonly",
    "read_snapshot": "viewcache.catalog.snapshot",
    "run_queries": "viewcache.catalog.readonly",
    "run_query": "viewcache.catalog.readonly",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'viewcache.catalog' has no attribute {name!r}; it has: {', '.join(__all__)}")
