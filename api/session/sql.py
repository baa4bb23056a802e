"""SQL from Python: the public relations of a cache as an Arrow table, whichever process owns it."""

from typing import TYPE_CHECKING

from viewcache.materializer.spec import CacheSpec

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["select"]


def select(cache: CacheSpec, query: str, seconds: float, rows: int) -> "pa.Table":
    """The answer to one SELECT; see `Cache.sql`."""
    from viewcache.catalog import QueryLimits, run_query  # they load the database

    where = cache.local.url if cache.catalog == "duckdb" else cache.catalog
    return run_query(where, query, QueryLimits(seconds=seconds, rows=rows)).table()
