"""DuckDB's Python module, imported where no Ctrl-C can interrupt it: that would end the process with a crash."""

from importlib import import_module
from typing import TYPE_CHECKING

from viewcache.catalog.uninterrupted import uninterrupted

if TYPE_CHECKING:
    import duckdb
else:
    duckdb = uninterrupted(lambda: import_module("duckdb"))

__all__ = ["duckdb"]
