"""Choose a dataset's videos by a SQL predicate over their columns (JOADER's predicate).

The predicate is text from a configuration, so it runs in a database of its own: in memory, without files, network,
extensions or Python variables, its settings locked, one thread, a time limit (law 10).
"""

import threading
from typing import TYPE_CHECKING

import numpy as np

from viewcache.errors import BadInput, QueryRefused

if TYPE_CHECKING:
    import pyarrow

__all__ = ["matching"]

LIMIT_S = 10.0
"""Seconds that a predicate may take."""
MEMORY = "512MB"
_ROW = "viewcache row"
"""A column name that no label table is likely to have."""


def matching(videos: "pyarrow.Table", where: str, limit_s: float = LIMIT_S) -> np.ndarray:
    """Which videos a predicate holds for.

    Args:
        videos: one row a video; its columns can be used in the predicate.
        where: a SQL expression in DuckDB's dialect, without ``WHERE``.
        limit_s: seconds that it may take.

    Returns:
        bool, one per row; NULL counts as false.

    Raises:
        BadInput: it is not an expression over the columns; the message lists them.
        QueryRefused: it took too long or too much memory.
    """
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": MEMORY,
        "threads": 1,
        "python_enable_replacements": False,
        "lock_configuration": True,
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        rows = connection.from_arrow(videos.append_column(_ROW, [np.arange(videos.num_rows)]))
        alarm = threading.Timer(limit_s, connection.interrupt)
        alarm.start()
        try:
            chosen = rows.filter(where).project(f'"{_ROW}"').fetchnumpy()[_ROW]
        except (duckdb.InterruptException, duckdb.OutOfMemoryException) as stopped:
            raise QueryRefused(f"where: {where!r} took more than {limit_s:g} s or {MEMORY}") from stopped
        except duckdb.Error as bad:
            columns = ", ".join(videos.column_names)
            raise BadInput(
                f"where: {where!r} is not a condition on the columns {columns} ({str(bad).splitlines()[0]})"
            ) from bad
        finally:
            alarm.cancel()
            alarm.join()
    kept = np.zeros(videos.num_rows, bool)
    kept[np.asarray(chosen, np.int64)] = True
    return kept
