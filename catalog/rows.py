"""Row objects to Arrow and back, by the names of their fields."""

from collections.abc import Sequence
from dataclasses import fields
from typing import TypeVar

import pyarrow as pa

from viewcache.catalog import schemas
from viewcache.catalog.records import ObjectRow

__all__ = ["column_table", "from_table", "object_table", "to_table"]

T = TypeVar("T")


def to_table(rows: Sequence[object]) -> pa.Table:
    """One column per field of the rows' dataclass; at least one row."""
    names = [field.name for field in fields(rows[0])]  # type: ignore[arg-type]
    return pa.table({name: pa.array([getattr(row, name) for row in rows]) for name in names})


def from_table(kind: type[T], table: pa.Table) -> list[T]:
    """One dataclass object per row; columns that it has no field for are left out."""
    wanted = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    names = [name for name in table.column_names if name in wanted]
    return [kind(**row) for row in table.select(names).to_pylist()]


def object_table(rows: Sequence[ObjectRow]) -> pa.Table:
    """Objects as ``schemas.OBJECT``."""
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in schemas.OBJECT}
    return pa.table(columns, schema=schemas.OBJECT)


def column_table(rows: Sequence[tuple[object, ...]], *names: str) -> pa.Table:
    """Tuples as columns of these names; at least one tuple."""
    return pa.table({name: pa.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)})
