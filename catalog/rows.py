"""Row objects to Arrow and back, by the names of their fields."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import TypeVar, get_args, get_type_hints

import pyarrow as pa

from viewcache.catalog import schemas
from viewcache.catalog.records import ObjectRow

__all__ = ["column_table", "from_table", "object_table", "to_table"]

T = TypeVar("T")


_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary(), bool: pa.bool_()}
"""What fields of records are annotated with → how Arrow holds it."""


def to_table(rows: Sequence[object]) -> pa.Table:
    """One column per field of the rows' dataclass; at least one row."""
    kind: type = type(rows[0])
    schema = _schema_of(kind)
    return pa.table([pa.array([getattr(row, name) for row in rows], schema.field(name).type) for name in schema.names],
                    schema=schema)  # fmt: skip


@cache
def _schema_of(kind: type) -> pa.Schema:
    """The columns of a dataclass, by its annotations. Without types Arrow looks for modules at each column."""
    hints = get_type_hints(kind)
    columns = []
    for field in fields(kind):
        either = get_args(hints[field.name]) or (hints[field.name],)
        of = next(each for each in either if each is not type(None))
        columns.append((field.name, next(arrow for plain, arrow in _ARROW.items() if _is(of, plain))))
    return pa.schema(columns)


def _is(kind: type, plain: type) -> bool:
    """Whether values of a kind are stored as a plain one; ``bool`` is an ``int`` to Python alone."""
    return kind is plain or (issubclass(kind, plain) and kind is not bool)


def from_table(kind: type[T], table: pa.Table) -> list[T]:
    """One dataclass object per row; columns that it has no field for are left out."""
    wanted = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    names = [name for name in table.column_names if name in wanted]
    return [kind(**row) for row in table.select(names).to_pylist()]


def object_table(rows: Sequence[ObjectRow]) -> pa.Table:
    """Objects as ``schemas.OBJECT``."""
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in schemas.OBJECT}
    return pa.table(columns, schema=schemas.OBJECT)


def column_table(rows: Sequence[tuple[object, ...]], **kinds: type) -> pa.Table:
    """Tuples as columns of these names and Python types; at least one tuple."""
    columns = zip(kinds.items(), zip(*rows, strict=True), strict=True)
    return pa.table({name: pa.array(values, _ARROW[kind]) for (name, kind), values in columns})
