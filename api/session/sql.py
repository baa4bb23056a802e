"""SQL from Python: the public relations of a cache as an Arrow table, whichever process owns it."""

from typing import TYPE_CHECKING

from viewcache.api.arguments import integer, number, text
from viewcache.errors import BadInput
from viewcache.materializer.spec import CacheSpec

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["select"]

MOST_S = 1_000_000
"""Of one query, eleven days: what the system's clocks can wait for."""


def select(cache: CacheSpec, query: str, seconds: float, rows: int) -> "pa.Table":
    """The answer to one SELECT; see `Cache.sql`."""
    query, seconds, rows = text("query", query), number("seconds", seconds), integer("rows", rows, least=0)
    if not 0 < seconds <= MOST_S:  # no time is no limit to the clock that ends the query
        raise BadInput(f"seconds={seconds:g}: more than 0, and at most {MOST_S}")
    from viewcache.catalog import QueryLimits, run_query  # they load the database

    where = cache.local.url if cache.catalog == "duckdb" else cache.catalog
    return run_query(where, query, QueryLimits(seconds=seconds, rows=rows)).table()
