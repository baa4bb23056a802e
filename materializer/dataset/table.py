"""A label table as columns: CSV, Parquet or JSON lines, told apart by their bytes and not by the file's name.

Columns are Arrow's, so that a table of a million rows takes a second. Each holds values of one type: text, whole
numbers, numbers, true and false, or lists of these; anything else is shown as text.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from viewcache.catalog.files import read_regular
from viewcache.errors import BadInput, DatasetNotFound, MissingExtra
from viewcache.materializer.media.far_files import open_far
from viewcache.materializer.media.reaching import cure, is_absent
from viewcache.materializer.media.source import is_local, local_path, said, shown

__all__ = ["as_text", "is_list", "place_of", "read_table", "typed"]

MOST_BYTES = 1 << 30
"""Of a table: more than any list of videos takes, less than what a machine that reads it has."""
MOST_ROWS = 10_000_000
"""Of a table: a small Parquet file may announce any number of rows."""

_FIRST_LINE = b"first_line"
"""In a table's metadata: the line of its first row in the file, where each row has a line of its own."""

_UNREADABLE = (ValueError, csv.Error, OSError, UnicodeDecodeError, KeyError, ArithmeticError)


def read_table(labels: str) -> pa.Table:
    """The rows of a label table; texts are ``large_string``, whole numbers int64, numbers float32 or float64.

    Args:
        labels: path or URL of a CSV, Parquet or JSON lines table.

    Raises:
        DatasetNotFound: the table is not there.
        BadInput: it cannot be read, has no rows, or names a column twice.
    """
    data = _bytes(labels)
    try:
        table, first_line = _read(data)
    except BadInput as refused:
        raise BadInput(f"{shown(labels)}: {refused}") from refused
    except _UNREADABLE as bad:
        raise BadInput(f"{shown(labels)} is neither a UTF-8 CSV nor a Parquet or JSON lines table ({bad})") from bad
    names = [str(name) for name in table.column_names]
    if len(set(names)) != len(names):
        raise BadInput(f"{shown(labels)}: the table names a column twice: {', '.join(names)}")
    if not table.num_rows:
        raise BadInput(f"{shown(labels)} has no rows; leave labels out for a dataset without labels")
    metadata = None if first_line is None else {_FIRST_LINE: str(first_line)}
    return pa.table([_plain(column) for column in table.columns], names, metadata=metadata)


def place_of(table: pa.Table, row: int) -> str:
    """Where a row stands, for errors: its line in the file where that is known, else which of the data rows it is."""
    first = (table.schema.metadata or {}).get(_FIRST_LINE)
    return f"data row {row + 1}" if first is None else f"line {int(first) + row}"


def _read(data: bytes) -> tuple[pa.Table, int | None]:
    """The table, and the line of its first row; None if not every row has one line of its own."""
    if data[:4] == b"PAR1":
        import pyarrow.parquet as parquet

        file = parquet.ParquetFile(io.BytesIO(data))
        _refuse_many(file.metadata.num_rows)
        return file.read(), None
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        return _json_lines(data.removeprefix(b"\xef\xbb\xbf"))
    return _csv(data.decode("utf-8-sig"))


def _refuse_many(rows: int) -> None:
    if rows > MOST_ROWS:
        raise BadInput(f"the table has {rows} rows; at most {MOST_ROWS} are read: divide the dataset")


def _bytes(labels: str) -> bytes:
    try:
        if is_local(labels):
            return read_regular(local_path(labels), MOST_BYTES)
        with open_far(labels) as file:
            data = bytes(file.read(MOST_BYTES + 1))
    except BadInput as refused:
        raise BadInput(f"labels {refused}") from refused
    except ImportError as missing:
        scheme = labels.partition("://")[0]
        raise MissingExtra.of_url(f"labels {shown(labels)}: reading them", scheme, missing) from missing
    except Exception as failed:  # as in open_source
        if is_absent(failed):
            raise DatasetNotFound(f"labels {shown(labels)}: no such table") from failed
        why = getattr(failed, "strerror", None)  # the rest of the text may be the number of a descriptor
        told = f"{type(failed).__name__}: {why}" if why else said(failed)
        todo = "" if is_local(labels) else cure(failed)
        raise DatasetNotFound(f"labels {shown(labels)} cannot be read ({told}){todo}") from failed
    if len(data) > MOST_BYTES:
        raise BadInput(f"labels {shown(labels)} is too large: at most {MOST_BYTES} bytes of a table are read")
    return data


# CSV ------------------------------------------------------------------------------------------------------------------


def _csv(text: str) -> tuple[pa.Table, int | None]:
    """Read a CSV whose first row names the columns; a column of whole numbers, or of numbers, becomes numbers."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    head = [name.strip() for name in next(reader, [])]
    if len(set(head)) != len(head):
        raise BadInput(f"the table names a column twice, blanks around names aside: {', '.join(head)}")
    rows: list[list[str]] = []
    before, has_lines = reader.line_num, True
    for row in reader:
        if row:
            if len(row) != len(head):
                raise BadInput(f"line {before + 1} of the table has {len(row)} fields, the first line {len(head)}")
            rows.append(row)
            has_lines = has_lines and before == len(rows)
        before = reader.line_num
    _refuse_many(len(rows))
    columns = zip(*rows, strict=True) if rows else ((),) * len(head)
    return pa.table([typed(column) for column in columns], head), 2 if has_lines else None


def typed(cells: Iterable[str]) -> pa.Array:
    """Cells of text as whole numbers if all are, else as numbers if all are, else as text; empty ones are missing."""
    cells = list(cells)
    kinds: tuple[tuple[Callable[[str], object], pa.DataType], ...] = ((int, pa.int64()), (float, pa.float64()))
    for kind, arrow in kinds:
        try:
            return pa.array([kind(cell) if cell else None for cell in cells], arrow)
        except (ValueError, OverflowError):  # more digits than int64 has are a text: an id
            if kind is int and _are_whole(cells):
                break
    return pa.array([cell or None for cell in cells], pa.large_string())


def _are_whole(cells: Iterable[str]) -> bool:
    return all(cell.strip().lstrip("+-").isdecimal() for cell in cells if cell)


# JSON lines -----------------------------------------------------------------------------------------------------------


def _json_lines(data: bytes) -> tuple[pa.Table, int | None]:
    """Read a table with an object a line; a text that looks like a time stays a text."""
    read = _parse_json(data, {})
    texts = {field.name: kept for field in read.schema if (kept := _as_written(field.type)) != field.type}
    has_lines = data.rstrip().count(b"\n") + 1 == read.num_rows
    return _parse_json(data, texts) if texts else read, 1 if has_lines else None


def _parse_json(data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    import pyarrow.json

    # In one block: a column's type is inferred in the first one.
    block = pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(data), 1) + 1)
    parse = pyarrow.json.ParseOptions(explicit_schema=pa.schema(list(types.items())) if types else None)
    try:
        return pyarrow.json.read_json(io.BytesIO(data), block, parse)
    except pa.ArrowInvalid as bad:
        raise BadInput(
            "it is no JSON lines table, with an object in each line and values of one type in each column: "
            f"{_with_line(str(bad), data)}"
        ) from bad


def _with_line(why: str, data: bytes) -> str:
    """What Arrow says of JSON, with the line instead of the row, which it counts from 0 and without empty lines."""
    said, found, row = why.rpartition(" in row ")
    if not found or not row.isdecimal():
        return why
    lines = [number for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    return f"{said} in line {lines[min(int(row), len(lines) - 1)]}"


def _as_written(kind: pa.DataType) -> pa.DataType:
    """A type as which a JSON value is what was written."""
    if is_list(kind):
        return pa.list_(_as_written(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind


# Types ----------------------------------------------------------------------------------------------------------------


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of any or of one length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = _plain_type(column.type)
    try:
        if kind is not None:
            return column.cast(kind)
    except pa.ArrowInvalid:  # whole numbers beyond int64
        pass
    return pa.chunked_array([_said(column)], pa.large_string())


def _plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type as which a column is kept; None for what is kept as text."""
    types = pa.types
    if types.is_boolean(kind) or types.is_null(kind) or kind in (pa.float32(), pa.float64()):
        return kind
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind):
        return pa.float32()
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.large_string()
    inner = _plain_type(kind.value_type) if is_list(kind) else None
    if inner is None:
        return None
    return pa.list_(inner, kind.list_size) if types.is_fixed_size_list(kind) else pa.large_list(inner)


def as_text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Each value as Python shows it, lists as JSON; missing ones stay missing."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_large_string(array.type):
        return array
    if pa.types.is_integer(array.type):
        return array.cast(pa.large_string())
    if is_list(array.type):
        texts = [None if each is None else json.dumps(each, ensure_ascii=False) for each in array.to_pylist()]
        return pa.array(texts, pa.large_string())
    if pa.types.is_null(array.type):
        return array.cast(pa.large_string())
    return _said(array)


def _said(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    try:
        distinct = pc.unique(column)
        codes = pc.index_in(column, distinct, skip_nulls=True)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # structs and the like
        return pa.array([None if each is None else str(each) for each in column.to_pylist()], pa.large_string())
    words = pa.array([None if each is None else str(each) for each in distinct.to_pylist()], pa.large_string())
    said = words.take(codes)
    return said.combine_chunks() if isinstance(said, pa.ChunkedArray) else said
