"""Columns of a dataset's files that hold no Python object for each file: texts, keys, and where values stand.

A million names as ``str`` take 90 MB and are made anew by each list of them; in a column they take their own bytes.
The price is a microsecond where one value is read. What is read of all files is read from arrays.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from viewcache.materializer.column import Column
from viewcache.materializer.dataset.numbers import index_type
from viewcache.materializer.keys import KEY_BYTES, as_texts

__all__ = ["IdPlaces", "Keys", "Places", "RepeatedTexts", "Texts", "places_of_names"]

K = TypeVar("K")

AT_A_TIME = 1 << 16
"""Values that are objects of Python at the same time while all are gone through."""


class Texts(Column[str]):
    """Texts in one buffer; never changed."""

    __slots__ = ("array",)

    def __init__(self, texts: pa.Array | pa.ChunkedArray) -> None:
        """Hold texts; an array of Arrow, of any kind of strings."""
        whole = texts.cast(pa.large_string())
        self.array: pa.LargeStringArray = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
        """The same, as Arrow has them."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Texts":
        """Hold some strings."""
        return texts if isinstance(texts, cls) else cls(pa.array(list(texts), pa.large_string()))

    def __len__(self) -> int:
        """How many."""
        return len(self.array)

    def one(self, row: int) -> str:
        """The text of a row."""
        text: str = self.array[row].as_py()
        return text

    def some(self, rows: slice) -> list[str]:
        """The texts of some rows."""
        texts: list[str] = self.array[rows].to_pylist()
        return texts

    def __iter__(self) -> Iterator[str]:
        """All of them, in order."""
        for first in range(0, len(self), AT_A_TIME):
            yield from self.array.slice(first, AT_A_TIME).to_pylist()

    def taken(self, rows: NDArray[np.int64]) -> "Texts":
        """Some of them."""
        return Texts(self.array.take(pa.array(rows)))

    def at(self, rows: NDArray[np.int64]) -> list[str]:
        """The texts of a few rows: Arrow takes longer, and lets other threads go first each time."""
        _, ends, data = self.array.buffers()
        if data is None:
            return [""] * len(rows)
        places, whole = np.frombuffer(ends, np.int64), memoryview(data)
        first = places[rows + self.array.offset].tolist()
        last = places[rows + (self.array.offset + 1)].tolist()
        return [str(whole[start:end], "utf-8") for start, end in zip(first, last, strict=True)]

    def copied(self) -> "Texts":
        """The same in memory of its own: a column of a table holds on to all of the table's."""
        return self.taken(np.arange(len(self)))

    def joined(self, more: "Texts") -> "Texts":
        """These and, behind them, some more."""
        return Texts(pa.chunked_array([self.array, more.array]))


class RepeatedTexts(Column[str | None]):
    """Texts of which there are few different ones, or none; each may be set."""

    def __init__(self, texts: pa.Array | pa.ChunkedArray) -> None:
        """Hold texts; an array of Arrow, with nulls or without."""
        coded = texts.dictionary_encode()
        whole = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        self.values: list[str | None] = [*whole.dictionary.to_pylist(), None]
        """The different ones."""
        codes = whole.indices.cast(pa.int32()).fill_null(len(self.values) - 1)
        self.codes: NDArray[Any] = codes.to_numpy(zero_copy_only=False).astype(index_type(len(self.values)))
        """(n,) where the text of each stands in ``values``."""
        self._code_of = {text: code for code, text in enumerate(self.values)}

    @classmethod
    def coded(cls, values: Sequence[str | None], codes: NDArray[Any]) -> "RepeatedTexts":
        """Hold texts that are given by where each stands in ``values``, which are different ones."""
        texts = cls.__new__(cls)
        texts.values, texts.codes = list(values), codes
        texts._code_of = {text: code for code, text in enumerate(texts.values)}
        return texts

    def __len__(self) -> int:
        """How many."""
        return len(self.codes)

    def one(self, row: int) -> str | None:
        """The text of a row, if it has one."""
        return self.values[int(self.codes[row])]

    def some(self, rows: slice) -> list[str | None]:
        """The texts of some rows."""
        return self.at(rows)

    def at(self, rows: NDArray[np.int64] | slice) -> list[str | None]:
        """The texts of a few rows."""
        return [self.values[code] for code in self.codes[rows].tolist()]

    def __setitem__(self, row: int, text: str | None) -> None:
        """Set one of them."""
        code = self._code_of.get(text)
        if code is None:
            code = self._code_of[text] = len(self.values)
            self.values.append(text)
            self.codes = self.codes.astype(index_type(len(self.values)), copy=False)
        self.codes[row] = code

    def taken(self, rows: NDArray[np.int64]) -> "RepeatedTexts":
        """Some of them."""
        return RepeatedTexts.coded(self.values, self.codes[rows])

    def with_others(self, rows: NDArray[np.int64], others: "RepeatedTexts") -> "RepeatedTexts":
        """The same, with others in some rows."""
        values = list(dict.fromkeys([*self.values, *others.values]))
        code_of, codes = {text: code for code, text in enumerate(values)}, self.codes.astype(index_type(len(values)))
        codes[rows] = np.array([code_of[text] for text in others.values], codes.dtype)[others.codes]
        return RepeatedTexts.coded(values, codes)

    def unlike(self, others: "RepeatedTexts", rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(rows,) whether these and some others differ there; None and nothing are alike."""
        mine, theirs = (each.taken(rows).array.fill_null("") for each in (self, others))
        return np.asarray(pc.not_equal(mine, theirs).to_numpy(zero_copy_only=False))

    def are(self, text: str) -> NDArray[np.bool_]:
        """(n,) whether each is this one."""
        return np.asarray(self.codes == self._code_of.get(text, -1))

    @property
    def array(self) -> pa.Array:
        """The same, as Arrow has them."""
        return pa.array(self.values, pa.string()).take(pa.array(self.codes))


class Keys(Column[str]):
    """Content keys: 16 bytes each, read, set and found as 32 hex digits."""

    def __init__(self, packed: NDArray[np.uint8]) -> None:
        """Hold keys; (n, 16) bytes."""
        self.packed = packed
        self._sorted: tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64]] | None = None
        """Rows by key, and the first and the second halves of their keys, once somebody asked for one."""
        self._set: dict[str, int] = {}
        """Keys that were set since → row; the ones from before are still found."""

    @classmethod
    def of(cls, keys: "Iterable[str] | pa.Array | pa.ChunkedArray") -> "Keys":
        """Hold keys that are given as text."""
        texts = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else Texts.of(keys).array
        packed = np.empty((len(texts), KEY_BYTES), np.uint8)
        for first in range(0, len(texts), AT_A_TIME):
            part = bytes.fromhex("".join(texts[first : first + AT_A_TIME].to_pylist()))
            packed[first : first + AT_A_TIME] = np.frombuffer(part, np.uint8).reshape(-1, KEY_BYTES)
        return cls(packed)

    def __len__(self) -> int:
        """How many."""
        return len(self.packed)

    def one(self, row: int) -> str:
        """The key of a row."""
        return bytes(self.packed[row]).hex()

    def some(self, rows: slice) -> list[str]:
        """The keys of some rows."""
        return as_texts(self.packed[rows])

    def __iter__(self) -> Iterator[str]:
        """All of them, in order; who holds one shares it with whoever else holds it."""
        for first in range(0, len(self), AT_A_TIME):
            yield from map(intern, as_texts(self.packed[first : first + AT_A_TIME]))

    def __setitem__(self, row: int, key: str) -> None:
        """Set one of them."""
        self.packed[row] = np.frombuffer(bytes.fromhex(key), np.uint8)
        self._set[key] = row

    def taken(self, rows: NDArray[np.int64]) -> "Keys":
        """Some of them."""
        return Keys(self.packed[rows])

    def at(self, rows: NDArray[np.int64]) -> list[str]:
        """The keys of a few rows."""
        return as_texts(self.packed[rows])

    def joined(self, more: "Keys") -> "Keys":
        """These and, behind them, some more."""
        return Keys(np.concatenate([self.packed, more.packed]))

    @property
    def places(self) -> "Places[str]":
        """Key → row; of equal ones the last one."""
        return Places(self, self._row)

    def rows_of(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """(keys,) the row of each, as `places` has it, and -1 of what is not there: all found at once."""
        if self._set or any(len(key) != 2 * KEY_BYTES for key in keys):
            return np.array([self._row(key) for key in keys], np.int64)
        try:
            wanted = np.frombuffer(bytes.fromhex("".join(keys)), np.uint8).view(np.uint64).reshape(-1, 2)
        except ValueError:
            return np.array([self._row(key) for key in keys], np.int64)
        rows, first_half, second_half = self._in_order()
        if not len(rows):
            return np.full(len(keys), -1, np.int64)
        first, after = (first_half.searchsorted(wanted[:, 0], side) for side in ("left", "right"))
        there = (after > first) & (second_half[after - 1] == wanted[:, 1])
        found = np.where(there, rows[after - 1], -1)
        several = after - first > 1  # keys with the same first half, of which there are hardly any
        for place in np.flatnonzero(several).tolist():
            found[place] = self._row(keys[place])
        return found

    def _row(self, key: str) -> int:
        if key in self._set:
            return self._set[key]
        try:
            wanted = np.frombuffer(bytes.fromhex(key), np.uint8)
        except ValueError:
            return -1
        if len(wanted) != KEY_BYTES:
            return -1
        rows, *columns = self._in_order()
        first, last = 0, len(rows)
        for half, column in zip(wanted.view(np.uint64), columns, strict=True):
            among = column[first:last]
            first, last = first + int(among.searchsorted(half)), first + int(among.searchsorted(half, "right"))
        return int(rows[last - 1]) if first < last else -1

    def _in_order(self) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64]]:
        if self._sorted is None:
            # A copy: another thread may set one of them meanwhile.
            first_half, second_half = self.packed.copy().view(np.uint64).T
            order = np.lexsort((second_half, first_half))
            self._sorted = order, first_half[order], second_half[order]
        return self._sorted


class Places(Mapping[K, int], Generic[K]):
    """Value → its row in a column, without a table of all of them."""

    def __init__(self, values: Sequence[K], find: Callable[[K], int]) -> None:
        """Find rows of values by a function, which gives -1 for what is not there."""
        self._values = values
        self._finder = find

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._values)

    def __iter__(self) -> Iterator[K]:
        """All values, in the order of rows."""
        return iter(self._values)

    def __getitem__(self, value: K) -> int:
        """The row of a value.

        Raises:
            KeyError: it has none.
        """
        row = self._finder(value)
        if row < 0:
            raise KeyError(value)
        return row


def places_of_names(names: Texts) -> Places[str]:
    """Name → row; they are sorted."""

    def find(name: str) -> int:
        row = bisect_left(names, name)
        return row if row < len(names) and names[row] == name else -1

    return Places(names, find)


class IdPlaces(Mapping[int, int]):
    """Id → its row in an array, without a table of all of them."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        """Find rows of ids, each of which comes once; in any order, which is not changed."""
        self._ids = ids
        rising = bool((ids[1:] > ids[:-1]).all())
        self._order = None if rising else np.argsort(ids, kind="stable")
        self._sorted = ids if self._order is None else ids[self._order]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        """All ids, in the order of rows."""
        return iter(self._ids.tolist())

    def __getitem__(self, wanted: int) -> int:
        """The row of an id.

        Raises:
            KeyError: it has none.
        """
        at = int(self._sorted.searchsorted(wanted))  # the function of numpy takes four times as long
        if at == len(self._ids) or self._sorted[at] != wanted:
            raise KeyError(wanted)
        return at if self._order is None else int(self._order[at])

    def of(self, wanted: ArrayLike) -> NDArray[np.int64]:
        """(wanted,) the row of each.

        Raises:
            KeyError: one has none.
        """
        rows = self.find(wanted)
        if (rows < 0).any():
            raise KeyError(int(np.asarray(wanted)[rows < 0][0]))
        return rows

    def find(self, wanted: ArrayLike) -> NDArray[np.int64]:
        """(wanted,) the row of each; -1 of what has none."""
        ids = np.asarray(wanted, np.int64)
        if not len(self._ids):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, ids), len(self._ids) - 1)
        found = self._sorted[at] == ids
        return np.where(found, at if self._order is None else self._order[at], -1)
