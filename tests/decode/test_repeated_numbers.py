"""Rows of numbers of which many are alike: what is read of them is what a list of all rows says."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.dataset.numbers import RepeatedRows, distinct_rows, index_type, numbers

KIND = np.dtype([("frames", "i8"), ("times", "i8", 2), ("fps", "f8")])
Row = tuple[object, ...]
ROW = st.tuples(
    st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from([0.0, 25.0, float("nan")]),
)
NUMBER = st.none() | st.integers(0, 3) | st.integers(-(2**63), 2**63 - 1)


def array_of(rows: list[Row]) -> np.ndarray:
    """The rows as NumPy has them."""
    return np.array(rows, KIND)


@given(st.lists(ROW, min_size=1), st.lists(st.tuples(st.integers(0, 50), ROW)))
def test_each_row_is_what_was_set_last(first: list[Row], then: list[tuple[int, Row]]) -> None:
    """One by one, of some rows, by a mask and of all, whatever was set before."""
    expected = array_of(first)
    held = RepeatedRows(array_of(first), np.arange(len(first)))
    columns = {name: held.column(name) for name in KIND.names or ()}
    for at, row in then:
        held.put(at % len(first), row)
        expected[at % len(first)] = array_of([row])[0]
    mask = expected["frames"] > 0
    for name, column in columns.items():
        assert len(column) == len(first)
        for rows in (slice(None), mask, np.flatnonzero(mask), len(first) - 1, slice(1, 2)):
            assert np.array_equal(column[rows], expected[name][rows], equal_nan=True)


@given(st.lists(ROW, min_size=2))
def test_a_row_becomes_what_it_was(rows: list[Row]) -> None:
    """Whatever was set meanwhile."""
    held = RepeatedRows.alike(2, array_of(rows[:1]))
    before = held.code(0)
    for row in rows:
        held.put(0, row)
    held.set_code(0, before)
    for name in KIND.names or ():
        assert np.array_equal(held.at(name, slice(None)), array_of(rows[:1] * 2)[name], equal_nan=True)


def test_rows_may_all_become_different() -> None:
    """More than a byte tells apart, and more than are remembered by what they are."""
    held = RepeatedRows.alike(10_000, array_of([(0, (0, 0), 0.0)]))
    for row in range(10_000):
        held.put(row, (row % 6_000, (0, 0), 25.0))
    assert held.at("frames", slice(None)).tolist() == [row % 6_000 for row in range(10_000)]


def test_what_is_alike_takes_a_byte() -> None:
    """However often it is set: a million images are learned of one by one."""
    held = RepeatedRows.alike(1_000, array_of([(0, (0, 0), 0.0)]))
    for _ in range(3):
        for row in range(1_000):
            held.put(row, (1, (0, 0), None))
    assert held.nbytes < 1_000 + 10 * KIND.itemsize


@given(st.lists(st.tuples(NUMBER, NUMBER, st.sampled_from(["a", "b", None]))), st.booleans(), st.integers(0, 3))
def test_distinct_rows_are_all_rows(
    rows: list[tuple[int | None, int | None, str | None]], is_coded: bool, cut: int
) -> None:
    """Each is where it is said to be, and none is there twice; columns may be coded, in parts, and lack values."""
    one, two, texts = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    columns = {"one": pa.array(one, pa.int64()), "two": pa.array(two, pa.int64()), "text": pa.array(texts, pa.string())}
    given = {name: pa.chunked_array([column[:cut], column[cut:]]) for name, column in columns.items()}
    if is_coded:
        given = {name: column.dictionary_encode() for name, column in given.items()}
    few, codes = distinct_rows(given)
    values = [*zip(*(column.to_pylist() for column in few.values()), strict=True)]
    assert [values[code] for code in codes.tolist()] == rows
    assert len(values) == len(set(rows)) == len(set(values))


@given(st.lists(NUMBER), st.booleans())
def test_numbers_are_those_of_the_column(values: list[int | None], is_coded: bool) -> None:
    """Coded or not; what is missing is told by another number."""
    column = pa.chunked_array([pa.array(values, pa.int64())])
    found = numbers(column.dictionary_encode() if is_coded else column, -1)
    assert found.tolist() == [-1 if value is None else value for value in values]


def test_places_fit() -> None:
    """Also the place behind the last one, of what is added next."""
    assert [index_type(count) for count in (0, 127, 128, 32_767, 32_768, 2**31)] == [
        np.int8,
        np.int8,
        np.int16,
        np.int16,
        np.int32,
        np.int64,
    ]
