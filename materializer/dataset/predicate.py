"""Choose a dataset's videos by a SQL predicate over their columns (JOADER's predicate).

The predicate is text from a configuration, so it runs in a child process with limits, over a copy of the columns in a
database of its own: without files, network, extensions or Python variables (law 10). The price is the start of a
process, a third of a second, at each opening of a task that has a predicate.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from viewcache.catalog.confined import QueryLimits, ask_confined, confine, serve_confined
from viewcache.errors import BadInput, QueryRefused

if TYPE_CHECKING:
    import pyarrow

__all__ = ["LIMITS", "matching", "refuse_bad_syntax"]

LIMITS = QueryLimits(seconds=10.0, memory_bytes=512 << 20)
"""What a predicate may use."""
_ROW = "viewcache row"
"""A column name that no label table is likely to have."""
_PROBLEM = "problem"
"""The column of the answer to what is no condition."""


def matching(videos: "pyarrow.Table", where: str, limits: QueryLimits = LIMITS) -> np.ndarray:
    """Which videos a predicate holds for.

    Args:
        videos: one row a video; its columns can be used in the predicate.
        where: a SQL expression in DuckDB's dialect, without ``WHERE``.
        limits: what it may use.

    Returns:
        bool, one per row; NULL counts as false.

    Raises:
        BadInput: it is not an expression over the columns; the message lists them.
        QueryRefused: it took too long or too much memory.
    """
    import pyarrow as pa

    first: dict[str, str] = {}
    for name in videos.column_names:
        other = first.setdefault(name.lower(), name)
        if other != name and name.lower() in where.lower():
            raise BadInput(
                f"where: {where!r}: {name!r} and {other!r} are one name in SQL, in which capital letters are as small "
                "ones: rename the column of the label table"
            )
    sink = pa.BufferOutputStream()
    numbered = videos.append_column(_ROW, [np.arange(videos.num_rows)])
    with pa.ipc.new_stream(sink, numbered.schema) as writer:
        writer.write_table(numbered)
    try:
        answered = ask_confined(__name__, {"where": where}, limits, sink.getvalue().to_pybytes())
    except QueryRefused as refused:
        raise QueryRefused(f"where: {where!r}: {refused}") from refused
    answer = pa.ipc.open_stream(answered).read_all()
    if answer.column_names == [_PROBLEM]:
        columns = ", ".join(videos.column_names)
        raise BadInput(f"where: {where!r} is not a condition on the columns {columns} ({answer[_PROBLEM][0]})")
    kept = np.zeros(videos.num_rows, bool)
    kept[answer[_ROW].to_numpy()] = True
    return kept


def refuse_bad_syntax(where: str) -> None:
    """Refuse what is no SQL expression, whatever the columns are: it is parsed as `matching` does it, and not run.

    Raises:
        BadInput: the message says what is wrong.
    """
    import pyarrow as pa

    answer = pa.ipc.open_stream(ask_confined(__name__, {"where": where, "parse": True}, LIMITS)).read_all()
    if answer.num_rows:
        raise BadInput(f"where: {where!r} is not a condition ({answer[_PROBLEM][0]})")


def _answer(request: Mapping[str, Any], limits: QueryLimits) -> "list[pyarrow.Table]":
    """What the child does: the numbers of the rows that the predicate holds for, or why it is no condition.

    Where it is only to be parsed that alone is told, if it is so.
    """
    import duckdb
    import pyarrow as pa

    from viewcache.catalog.duck import locked_down

    if request.get("parse"):
        confine(limits, files=64)
        try:
            duckdb.SQLExpression(request["where"])
        except duckdb.Error as error:
            return [_problem(error)]
        return [_problem()]
    videos = pa.ipc.open_stream(sys.stdin.buffer).read_all()
    confine(limits, files=64)
    config = {
        **locked_down(limits.memory_bytes // 2, 1),
        "temp_directory": "",
        "python_enable_replacements": "false",
    }
    with duckdb.connect(":memory:", config=dict(config)) as connection:
        try:
            rows = connection.from_arrow(videos)
            return [rows.filter(request["where"]).project(f'"{_ROW}"').to_arrow_table()]
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise QueryRefused(f"it took more than {limits.memory_bytes >> 20} MiB of memory") from error
        except duckdb.Error as error:
            return [_problem(error)]


def _problem(*errors: Exception) -> "pyarrow.Table":
    import pyarrow as pa

    return pa.table({_PROBLEM: pa.array([str(error).splitlines()[0] for error in errors], pa.string())})


if __name__ == "__main__":
    serve_confined(_answer)
