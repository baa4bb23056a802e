"""Numbers of a dataset's files as columns, in which what many files share is held once.

Of a million images each has one frame, no pace and no duration: 140 bytes of numbers in rows of their own, one or two
where each image tells only which of a few rows is its own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["RepeatedRows", "RowColumn", "distinct_rows", "index_type", "numbers"]

_REMEMBERED = 4096
"""Rows that were set and are found again if another one is to be alike."""
_MOST = 1 << 62
"""Combinations that a whole number can tell apart."""


def numbers(column: pa.ChunkedArray, missing: int = 0) -> NDArray[np.int64]:
    """A column of whole numbers, coded or not; it may have to be copied to be written to."""
    return np.asarray(column.cast(pa.int64()).fill_null(missing).to_numpy(), np.int64)


def index_type(count: int) -> type[np.signedinteger[Any]]:
    """The smallest type of places in a list of so many values, and of -1."""
    kinds = (np.int8, np.int16, np.int32, np.int64)
    return next(kind for kind in kinds if count <= np.iinfo(kind).max)


class RepeatedRows:
    """Rows of several numbers each, of which many are alike; each may be set, by one thread at a time."""

    def __init__(self, values: NDArray[Any], codes: NDArray[Any]) -> None:
        """Hold rows.

        Args:
            values: (m,) the different ones, with a field for each number.
            codes: (n,) where the one of each row stands among them.
        """
        self._values, self._count = values, len(values)
        self._codes = codes.astype(index_type(len(values)), copy=False)
        self._code_of: dict[tuple[Any, ...], int] = {}

    @classmethod
    def alike(cls, count: int, value: NDArray[Any]) -> "RepeatedRows":
        """So many rows that are all the same; ``value`` is (1,)."""
        return cls(value, np.zeros(count, np.int8))

    def __len__(self) -> int:
        """How many."""
        return len(self._codes)

    @property
    def nbytes(self) -> int:
        """What they take."""
        return self._values.nbytes + self._codes.nbytes

    def column(self, name: str) -> "RowColumn":
        """One number of each row; it shows what is set later."""
        return RowColumn(self, name)

    def at(self, name: str, rows: Any) -> Any:
        """One number of some rows, which are given as to an array."""
        codes = self._codes[rows]  # these first: what they tell of is only ever added to
        return self._values[name][codes]

    def code(self, row: int) -> int:
        """Which of the different rows one is; it stays that one's for ever."""
        return int(self._codes[row])

    def set_code(self, row: int, code: int) -> None:
        """Set a row to one of the different ones."""
        if code > np.iinfo(self._codes.dtype).max:
            self._codes = self._codes.astype(index_type(2 * code))
        self._codes[row] = code

    def put(self, row: int, record: tuple[Any, ...]) -> None:
        """Set all numbers of a row, in the order of the fields; None is not a number."""
        code = self._code_of.get(record)
        if code is None:
            code = self._added(record)
            if len(self._code_of) < _REMEMBERED:
                self._code_of[record] = code
        self.set_code(row, code)

    def _added(self, record: tuple[Any, ...]) -> int:
        code = self._count
        if code == len(self._values):
            more = np.zeros(max(8, code), self._values.dtype)
            self._values = np.concatenate([self._values, more])
        self._values[code] = record
        self._count += 1
        return code


class RowColumn:
    """One number of each of some `RepeatedRows`, read as an array is."""

    __slots__ = ("_name", "_rows")

    def __init__(self, rows: RepeatedRows, name: str) -> None:
        """Read a field of rows."""
        self._rows, self._name = rows, name

    def __len__(self) -> int:
        """How many."""
        return len(self._rows)

    def __getitem__(self, rows: Any) -> Any:
        """The numbers of some rows, or of one."""
        return self._rows.at(self._name, rows)


def distinct_rows(columns: Mapping[str, pa.ChunkedArray]) -> tuple[dict[str, pa.Array], NDArray[np.int32]]:
    """The different rows of some columns of equal lengths, and (n,) where each row stands among these."""
    codes, size = np.zeros(len(next(iter(columns.values()))), np.int64), 1
    for column in columns.values():
        mine, count = _coded(column)
        if size * (count + 1) > _MOST:
            codes, size = _renumbered(codes)
        codes = codes * (count + 1) + mine
        size *= count + 1
    codes, size = _renumbered(codes)
    first = np.zeros(size, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    rows = pa.array(first)
    return {name: _plain(column.take(rows)) for name, column in columns.items()}, codes.astype(np.int32)


def _coded(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], int]:
    """(n,) which of the different values each is, the last one where there is none; and how many there are."""
    coded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    indices = coded.indices if isinstance(coded, pa.DictionaryArray) else coded
    count = len(coded.dictionary)
    return np.asarray(pc.fill_null(indices.cast(pa.int32()), count).to_numpy(zero_copy_only=False)), count


def _renumbered(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The same, without numbers that nobody has; and how many are left."""
    found = pa.array(codes).dictionary_encode()
    return found.indices.to_numpy().astype(np.int64), len(found.dictionary)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.dictionary_decode() if isinstance(whole, pa.DictionaryArray) else whole
