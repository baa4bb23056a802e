"""Further columns of the label table that come with each clip in a batch: numbers, text, and lists of both.

Which form a column takes is decided by the whole table, and not by a batch or by the videos of one task, so that it is
the same in every batch, for training and for validation.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.dataset.table import is_list
from viewcache.materializer.field_values import FieldValues, Ragged

__all__ = ["Fields"]


MOST_BATCH_BYTES = 8 << 20
"""Of all fields of a batch: more than captions, boxes and points take, less than what a service hands over at once."""
_NULL_KINDS = "whole numbers and true/false have no value for 'missing'"


class Fields:
    """Columns of a label table, ready to be taken for the clips of a batch."""

    def __init__(
        self,
        table: pa.Table,
        rows: NDArray[np.int64],
        others: Sequence[str],
        names: Sequence[str],
        *,
        grows: bool = False,
        record: pa.Table | None = None,
        recorded: NDArray[np.int64] | None = None,
    ) -> None:
        """Look at the columns.

        Args:
            table: the label table.
            rows: (items,) the table's row of each; -1 where it has none.
            others: columns of the table that may be asked for.
            names: of the columns.
            grows: whether rows are still to come, so that lists of one length so far need not stay so.
            record: what is on record of items whose rows have left the table; columns of lists are not in it.
            recorded: (items,) the row of the record of each; -1 where it has none.

        Raises:
            BadInput: a column is not there, has no value at all, or holds lists that fit no array.
        """
        self._rows = rows
        past = rows if recorded is None else recorded
        self._past = np.where(past >= 0, past + table.num_rows, rows) if record is not None else rows
        """(items,) the same, with the rows on record behind those of the table."""
        self._on_record = frozenset() if record is None else frozenset(record.column_names)
        self._columns: dict[str, _Column] = {}
        for name in names:
            if name not in others:
                there = ", ".join(map(repr, others)) or "none"
                raise BadInput(f"fields: the label table has no further column {name!r}; it has {there}")
            column = table[name]
            if record is not None and name in self._on_record and not pa.types.is_null(column.type):
                column = pa.chunked_array([*column.chunks, record[name].combine_chunks()], column.type)
            self._columns[name] = _column(name, column, grows=grows)

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._columns)

    def check(self, chosen: NDArray[np.bool_], names: Sequence[str], clips: int) -> None:
        """Refuse columns that have no value for a chosen video where they need one, and such as are too large.

        Args:
            chosen: (items,) which are looked at.
            names: of their videos.
            clips: of a batch.

        Raises:
            BadInput: the message names the column and a video.
        """
        videos = np.flatnonzero(chosen)
        rows = self._rows[videos]
        size = 0
        for name, column in self._columns.items():
            lacking = videos[column.lacks(rows)]
            if len(lacking):
                more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
                raise BadInput(
                    f"fields: column {name!r} has no value for {names[int(lacking[0])]!r}{more}, and {_NULL_KINDS}: "
                    f"fill them in, write numbers with a point, or leave what has none out by where: {name} is not null"
                )
            size += clips * column.largest(rows[rows >= 0])
        if size > MOST_BATCH_BYTES:
            raise BadInput(
                f"fields: a batch of {clips} clips has up to {size} bytes of {', '.join(self._columns)}; at most "
                f"{MOST_BATCH_BYTES} are handed over with it: keep large arrays in files, and their names in the table"
            )

    def values(self, items: NDArray[np.int64], past: NDArray[np.bool_] | None = None) -> dict[str, FieldValues]:
        """The columns of some items, by name.

        Args:
            items: places in the dataset.
            past: (items,) whether each is to be as it was when it had a row; None = none.
        """
        rows = self._rows[items]
        then = rows if past is None else np.where(past, self._past[items], rows)
        return {name: each.taken(then if name in self._on_record else rows) for name, each in self._columns.items()}


class _Column:
    """One column; methods take rows of the table, -1 = none."""

    def lacks(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows have no value where one is needed."""
        return np.zeros(len(rows), bool)

    def largest(self, rows: NDArray[np.int64]) -> int:
        """Most bytes of one row."""
        raise NotImplementedError

    def taken(self, rows: NDArray[np.int64]) -> FieldValues:
        """The values of some rows."""
        raise NotImplementedError


class _Numbers(_Column):
    """A number, or an array of one shape, for each row.

    Where none is known of an item that was drawn and has no row any more it is NaN, or -1 if it is whole; or false.
    """

    def __init__(self, values: NDArray[Any], missing: NDArray[np.bool_]) -> None:
        self._values = values
        self._missing = missing

    def lacks(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        if self._values.dtype.kind == "f":
            return super().lacks(rows)
        return np.where(rows < 0, True, self._missing[rows])

    def largest(self, rows: NDArray[np.int64]) -> int:
        return int(np.prod(self._values.shape[1:])) * self._values.itemsize

    def taken(self, rows: NDArray[np.int64]) -> FieldValues:
        found = self._values[rows]
        found[rows < 0] = {"f": np.nan, "b": False}.get(self._values.dtype.kind, -1)
        return found


class _RaggedNumbers(_Column):
    """A list of numbers, or of arrays of one shape, for each row."""

    def __init__(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        self._values = values
        self._offsets = offsets

    def _lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(rows < 0, 0, self._offsets[rows + 1] - self._offsets[rows])

    def largest(self, rows: NDArray[np.int64]) -> int:
        inner = int(np.prod(self._values.shape[1:])) * self._values.itemsize
        return int(self._lengths(rows).max(initial=0)) * inner

    def taken(self, rows: NDArray[np.int64]) -> FieldValues:
        lengths = self._lengths(rows)
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Ragged(self._values[np.repeat(self._offsets[rows], lengths) + within], offsets)


class _Text(_Column):
    """A text, or a list of texts, for each row."""

    def __init__(self, values: pa.Array, lengths: NDArray[np.int64], *, lists: bool) -> None:
        self._values = values
        self._lengths = lengths
        """Characters of each row's."""
        self._lists = lists

    def largest(self, rows: NDArray[np.int64]) -> int:
        return int(self._lengths[rows].max(initial=0))

    def taken(self, rows: NDArray[np.int64]) -> FieldValues:
        found = self._values.take(pa.array(rows, mask=rows < 0)).to_pylist()
        return tuple(tuple(each or ()) for each in found) if self._lists else tuple(found)


def _column(name: str, column: pa.ChunkedArray, *, grows: bool) -> _Column:
    array = column.combine_chunks()
    leaf, depth = array.type, 0
    while is_list(leaf):
        leaf, depth = leaf.value_type, depth + 1
    if pa.types.is_null(leaf):
        raise BadInput(f"fields: column {name!r} has no value in any row of the table")
    if pa.types.is_large_string(leaf) and depth == 0:
        return _Text(array, _numpy(pc.fill_null(pc.binary_length(array), 0)), lists=False)
    if pa.types.is_large_string(leaf) and depth == 1:
        if _flat(array).null_count:
            raise BadInput(f"fields: column {name!r} holds lists of texts, and one of them has an element that is null")
        offsets = _offsets(array)
        sizes = np.concatenate([[0], np.cumsum(_numpy(pc.binary_length(_flat(array))))])
        return _Text(array, sizes[offsets[1:]] - sizes[offsets[:-1]], lists=True)
    if pa.types.is_large_string(leaf):
        raise BadInput(f"fields: column {name!r} holds lists of lists of texts; at most lists of texts become a batch")
    missing = _numpy(array.is_null())
    if depth == 0:
        return _Numbers(_filled(array), missing)
    inner = _inner(name, _flat(array))
    offsets = _offsets(array)
    lengths = np.unique(np.diff(offsets))
    one_length = len(lengths) == 1 and not missing.any() and not grows
    if one_length or pa.types.is_fixed_size_list(array.type):
        return _dense(array, inner, missing)
    return _RaggedNumbers(inner, offsets)


def _dense(array: pa.Array, inner: NDArray[Any], missing: NDArray[np.bool_]) -> _Numbers:
    """Lists of one length; rows without one are NaN where that is a number."""
    there = np.flatnonzero(~missing)
    length = len(inner) // max(len(there), 1)
    values = np.full((len(array), length, *inner.shape[1:]), np.nan if inner.dtype.kind == "f" else 0, inner.dtype)
    values[there] = inner.reshape(len(there), length, *inner.shape[1:])
    return _Numbers(values, missing)


def _inner(name: str, values: pa.Array) -> NDArray[Any]:
    """The elements of all lists as one array: numbers, or lists that have one length each level.

    Raises:
        BadInput: they have not, or one is null.
    """
    if not is_list(values.type):
        if values.null_count and not pa.types.is_floating(values.type):
            raise BadInput(f"fields: column {name!r} holds lists with an element that is null, and {_NULL_KINDS}")
        return _filled(values)
    lengths = np.unique(np.diff(_offsets(values)))
    if values.null_count or len(lengths) > 1:
        raise BadInput(
            f"fields: column {name!r} holds lists of lists of different lengths ({_some(lengths)}); lists may differ "
            "in their length at the outermost level alone, as the boxes of a video do: pad the inner ones"
        )
    inner = _inner(name, _flat(values))
    return inner.reshape(len(values), int(lengths[0]) if len(lengths) else 0, *inner.shape[1:])


def _some(lengths: NDArray[np.int64]) -> str:
    return ", ".join(map(str, lengths[:5].tolist())) + (", …" if len(lengths) > 5 else "")


def _flat(array: pa.Array) -> pa.Array:
    return pc.list_flatten(array)


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    """(rows + 1,) where each list begins among all; one that is null is empty."""
    lengths = _numpy(pc.fill_null(pc.list_value_length(array), 0))
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _filled(array: pa.Array) -> NDArray[Any]:
    """Numbers; NaN for missing ones, and 0 where these are whole."""
    usual = float("nan") if pa.types.is_floating(array.type) else False if pa.types.is_boolean(array.type) else 0
    return _numpy(pc.fill_null(array, pa.scalar(usual, array.type)))


def _numpy(array: pa.Array) -> NDArray[Any]:
    return np.asarray(array.to_numpy(zero_copy_only=False))
