"""Rows of a result that are packed: the same rows, in little memory."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from viewcache.catalog.packed_rows import PACKED_AT_ONCE, packed, parts_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("frames", pa.int32()), ("fps", pa.float64())])
ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.none() | st.text(max_size=3),
        st.none() | st.integers(0, 400),
        st.none() | st.sampled_from([25.0, 30.0]),
    )
)


def table_of(rows: list[tuple[object, ...]]) -> pa.Table:
    """The rows as a database gives them."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@given(st.lists(ROWS))
def test_packed_rows_are_the_same(parts: list[list[tuple[object, ...]]]) -> None:
    """However many there are, in however many parts."""
    tables = [table_of(part) for part in parts]
    found = packed(SCHEMA, tables, {"id"})
    assert found.to_pylist() == [row for table in tables for row in table.to_pylist()]
    assert found.cast(SCHEMA).to_pylist() == found.to_pylist()
    assert found.schema.field("id").type == pa.int64()


def test_what_repeats_takes_a_byte() -> None:
    """Two where it must, over parts of which each has other values than the one before."""
    count = 3 * PACKED_AT_ONCE
    numbers = list(range(count))
    rows = pa.table([numbers, ["jpeg"] * count, [k // 500 for k in numbers], [25.0] * count], SCHEMA.names).cast(SCHEMA)
    found = packed(SCHEMA, parts_of(rows), {"id"})
    assert found.equals(packed(SCHEMA, [rows], {"id"}).cast(found.schema))
    assert found.cast(SCHEMA).equals(rows)
    assert found.nbytes < (8 + 1 + 2 + 1) * count * 1.2


def test_one_value_more_than_a_byte_tells_apart() -> None:
    """Of 127 and 128 values, in one part and in two: each row has its own."""
    for values in range(126, 130):
        for parts in (1, 2):
            each = [table_of([(0, None, value, None)]) for value in range(values)]
            size = -(-values // parts)
            tables = [pa.concat_tables(each[first : first + size]) for first in range(0, values, size)]
            assert packed(SCHEMA, tables, {"id"})["frames"].to_pylist() == list(range(values))
