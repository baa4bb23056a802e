"""Rows of a result that are very many, such as a million files, in little memory: what repeats is held once."""

from collections.abc import Container, Iterable, Iterator

import numpy as np
import pyarrow as pa

__all__ = ["PACKED_AT_ONCE", "packed", "parts_of"]

PACKED_AT_ONCE = 1 << 16
"""Rows of a result that are there twice while they are packed."""
_MOST = np.iinfo(np.int8).max
"""Values of which each stands in a byte."""


def packed(schema: pa.Schema, parts: Iterable[pa.Table], plain: Container[str]) -> pa.Table:
    """Rows in memory of their own: a column of a result may hold on to all of the result's columns.

    Args:
        schema: of the rows.
        parts: the rows, a part after the other.
        plain: the columns in which hardly a value comes twice, which stay as they are. Of all others each different
            value is held once, and for each row where it stands, in as few bytes as that takes.
    """
    columns: list[list[pa.Array]] = [[] for _ in schema]
    for part in parts:
        rows = pa.array(np.arange(len(part)))
        for name, column, chunks in zip(schema.names, part.columns, columns, strict=True):
            own = column.take(rows).combine_chunks() if name in plain else column.combine_chunks().dictionary_encode()
            chunks.append(own if name in plain else _narrow(own))
    for at, kind in enumerate(schema):
        columns[at] = _joined(kind, columns[at], coded=kind.name not in plain)
    return pa.table(columns, schema.names)


def parts_of(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows that are all there, in parts to be packed."""
    for first in range(0, len(rows), PACKED_AT_ONCE):
        yield rows.slice(first, PACKED_AT_ONCE)


def _joined(kind: pa.Field, chunks: list[pa.Array], *, coded: bool) -> pa.ChunkedArray:
    if not coded:
        return pa.chunked_array(chunks, kind.type)
    if not chunks:
        return pa.chunked_array([], pa.dictionary(pa.int8(), kind.type))
    wide = pa.int8() if sum(len(each.dictionary) for each in chunks) < _MOST else pa.int32()
    unified = pa.chunked_array([_indexed(each, wide) for each in chunks]).unify_dictionaries()
    return pa.chunked_array([_narrow(each) for each in unified.chunks])


def _narrow(codes: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same, where each value stands in as few bytes as it takes; all that have the same values get equally many."""
    kinds, count = (pa.int8(), pa.int16(), pa.int32()), len(codes.dictionary)
    return _indexed(codes, next(kind for kind in kinds if count < 1 << kind.bit_width - 1))


def _indexed(codes: pa.DictionaryArray, kind: pa.DataType) -> pa.DictionaryArray:
    if codes.type.index_type == kind:
        return codes
    return pa.DictionaryArray.from_arrays(codes.indices.cast(kind), codes.dictionary)
