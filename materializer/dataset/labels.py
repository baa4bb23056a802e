"""Labels, segments and further columns of a dataset's videos, from a CSV or Parquet table or from folder names.

Rows are matched to videos by path, by path without extension, or by file name where that is unique. A table is read and
kept by columns: one of hundreds of thousands of segments takes no more than as many videos do.
"""

import csv
import io
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.files import read_regular
from viewcache.errors import BadInput, DatasetNotFound, MissingExtra
from viewcache.materializer.dataset.names import escape, names_for, stem
from viewcache.materializer.media.source import is_local, local_path, shown

__all__ = ["END", "START", "Labels", "Value", "has_segments", "labels_for"]

Value = str | int | float | bool | None
_Columns = dict[str, list[Value]]
"""A table: every column has one value a row."""

LABEL = "label"
"""Default name of the column with the label."""
START, END = "start_s", "end_s"
"""Default names of the columns that make a row a segment of its video."""

MOST_BYTES = 1 << 30
"""Of a table: more than any list of videos takes, less than what a machine that reads it has."""
MOST_ROWS = 10_000_000
"""Of a table: a small Parquet file may announce any number of rows."""


LONGEST_HEAD = 1 << 20
"""Bytes of the first line of a CSV, with the names of its columns."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What a table says of a dataset's videos: one entry for each of its n rows that names one, in its order."""

    video: NDArray[np.int64]
    """(n,) the place of each row's video among the paths."""
    label: Sequence[Value]
    """(n) of each row."""
    columns: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    """All further columns, by name; (n) values each."""
    segments: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    """(n,) where the segment of each row begins and where it ends, in seconds; -inf and inf where the table leaves that
    open. None for a table of one row a video."""


def labels_for(
    paths: Sequence[str],
    labels: str | None,
    video_column: str = "video",
    label_column: str = LABEL,
    names: Sequence[str] | None = None,
    start_column: str = START,
    end_column: str = END,
) -> Labels:
    """What is said of a dataset's videos.

    Args:
        paths: relative paths of the videos.
        labels: path or URL of a CSV or Parquet table, ``folders``, or None.
        video_column: the column that names the video.
        label_column: the column that holds the label; the default one may be missing.
        names: of the videos, as `names_for` gives them; None = as if all were new.
        start_column: the column that says where a row's segment begins, in seconds; the default one may be missing.
        end_column: the same of where it ends.

    Returns:
        The rows that name one of the videos; others are for another part of the dataset.

    Raises:
        DatasetNotFound: the table is not there.
        BadInput: it cannot be read, lacks a column, names none of the videos, has a segment that is none, or names a
            video twice without saying which segments of it.
    """
    if labels is None:
        return Labels(np.empty(0, np.int64), ())
    if labels == "folders":
        parents = [path.rsplit("/", 2)[-2] if "/" in path else None for path in paths]
        return Labels(np.arange(len(paths)), parents)
    table, name = _read(labels), shown(labels)
    if not table or not next(iter(table.values())):
        raise BadInput(f"{name} has no rows; leave labels out for a dataset without labels")
    # Only the defaults may be missing, in a table of further columns: a name that was written is meant.
    asked = {video_column} | ({label_column, start_column, end_column} - {LABEL, START, END})
    for column in sorted(asked - table.keys()):
        raise BadInput(f"{name} has no column {column!r}; it has {', '.join(map(repr, table))}")
    meanings = _meanings(paths, names_for(paths) if names is None else names)
    called = [str(value).removeprefix("./").replace("\\", "/") for value in table[video_column]]
    video = np.array([meanings.get(each, -1) for each in called], np.int64)
    mine = np.flatnonzero(video >= 0)
    if not len(mine):
        raise BadInput(
            f"{name}: none of its {len(video)} rows names a video of the dataset; column {video_column!r} has "
            f"{called[0]!r}, the first video is {paths[0]!r}"
        )
    segments = _segments(table, start_column, end_column, name)
    if segments is None:
        _refuse_second_rows(video[mine], mine, paths, called, name)
    special = (video_column, label_column, *((start_column, end_column) if segments else ()))
    rows = mine.tolist()

    def of(column: list[Value]) -> list[Value]:
        return column if len(rows) == len(column) else [column[row] for row in rows]

    return Labels(
        video[mine],
        of(table[label_column]) if label_column in table else [None] * len(mine),
        {column: of(values) for column, values in table.items() if column not in special},
        None if segments is None else (segments[0][mine], segments[1][mine]),
    )


def has_segments(labels: str | None, start_column: str = START, end_column: str = END) -> bool:
    """Whether the rows of a label table are segments; its names of columns are looked at, and nothing else.

    A table that cannot be read has none: who reads it whole says what is wrong.
    """
    if labels is None or labels == "folders":
        return False
    version = None
    if is_local(labels):
        try:
            found = os.stat(local_path(labels))
        except OSError:
            return False
        if not stat.S_ISREG(found.st_mode):
            return False
        version = found.st_mtime_ns, found.st_size
    return not {start_column, end_column}.isdisjoint(_names_of_columns(labels, version))


@lru_cache(maxsize=64)
def _names_of_columns(labels: str, _version: object) -> frozenset[str]:
    """The columns of a version of a table; of a remote one, as they were when it was looked at first."""
    import fsspec

    try:
        with fsspec.open(local_path(labels) if is_local(labels) else labels, "rb") as file:
            if file.read(4) == b"PAR1":
                import pyarrow.parquet as parquet

                file.seek(0)
                return frozenset(map(str, parquet.read_schema(file).names))
            file.seek(0)
            head = file.readline(LONGEST_HEAD).decode("utf-8-sig")
            return frozenset(next(csv.reader([head]), []))
    except (OSError, ValueError, ImportError, csv.Error):
        return frozenset()


def _segments(
    table: _Columns, start_column: str, end_column: str, name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Where each row's segment begins and ends; None if the table has neither column."""
    if start_column not in table and end_column not in table:
        return None
    count = len(next(iter(table.values())))
    start = _seconds(table, start_column, count, -np.inf, name)
    end = _seconds(table, end_column, count, np.inf, name)
    wrong = np.flatnonzero(start >= end)
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(
            f"{name}: the segment of row {row + 1} begins at {start[row]:g} s and ends at {end[row]:g} s; it must end "
            "after it begins"
        )
    return start, end


def _seconds(table: _Columns, column: str, count: int, missing: float, name: str) -> NDArray[np.float64]:
    """A column of seconds; ``missing`` where a cell is empty."""
    out = np.full(count, missing)
    for row, value in enumerate(table.get(column, ())):
        if value is None:
            continue
        try:
            seconds = float(value) if not isinstance(value, bool) else np.nan
        except ValueError:
            seconds = np.nan
        if not np.isfinite(seconds):
            raise BadInput(
                f"{name}: {column} of row {row + 1} is {value!r}; it must be a number of seconds, or empty for where "
                "the video begins or ends"
            )
        out[row] = seconds
    return out


def _refuse_second_rows(
    video: NDArray[np.int64], rows: NDArray[np.int64], paths: Sequence[str], called: Sequence[str], name: str
) -> None:
    _, first = np.unique(video, return_index=True)
    again = np.setdiff1d(np.arange(len(video)), first)
    if len(again):
        at = int(again[0])
        row = int(rows[at])
        raise BadInput(
            f"{name}: row {row + 1} names {paths[int(video[at])]!r} again ({called[row]!r}); one row a video, or say "
            f"in columns {START} and {END} which segment of it each row is"
        )


def _meanings(paths: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """What a table may call each video; a word that could mean two of them means neither.

    Of two that differ in their extension alone the one that is named without it is meant: a name is given once.
    """
    stems, files = list(map(stem, paths)), [path.rsplit("/", 1)[-1] for path in paths]
    named = {path: at for at, path in enumerate(stems) if names[at] == escape(path)}
    itself, one_of_stem = range(len(paths)), [named.get(path, at) for at, path in enumerate(stems)]
    meanings: dict[str, int] = {}
    for called, meant in (
        (paths, itself),
        (stems, one_of_stem),
        (names, itself),
        (files, itself),
        (map(stem, files), one_of_stem),
    ):
        words: dict[str, int] = {}
        twice: set[str] = set()
        for at, word in zip(meant, called, strict=True):
            if words.setdefault(word, at) != at:
                twice.add(word)
        meanings = {word: at for word, at in words.items() if word not in twice} | meanings
    return meanings


def _read(labels: str) -> _Columns:
    data = _bytes(labels)
    try:
        if data[:4] == b"PAR1":
            return _parquet(data)
        return _csv(data.decode("utf-8-sig"))
    except BadInput:
        raise
    except (ValueError, csv.Error, OSError, UnicodeDecodeError, KeyError, ArithmeticError) as bad:
        raise BadInput(f"{shown(labels)} is neither a UTF-8 CSV nor a Parquet table ({bad})") from bad


def _refuse_many(rows: int) -> None:
    if rows > MOST_ROWS:
        raise BadInput(f"the table has {rows} rows; at most {MOST_ROWS} are read: divide the dataset")


def _bytes(labels: str) -> bytes:
    import fsspec

    try:
        if is_local(labels):
            return read_regular(local_path(labels), MOST_BYTES)
        with fsspec.open(labels, "rb") as file:
            data = bytes(file.read(MOST_BYTES + 1))
    except BadInput as refused:
        raise BadInput(f"labels {refused}") from refused
    except FileNotFoundError as missing:
        raise DatasetNotFound(f"labels {shown(labels)}: no such table") from missing
    except ImportError as missing:
        scheme = labels.partition("://")[0]
        raise MissingExtra.of_url(f"labels {shown(labels)}: reading them", scheme, missing) from missing
    except (OSError, ValueError) as failed:
        raise DatasetNotFound(f"labels {shown(labels)} cannot be read ({type(failed).__name__}: {failed})") from failed
    if len(data) > MOST_BYTES:
        raise BadInput(f"labels {shown(labels)} is too large: at most {MOST_BYTES} bytes of a table are read")
    return data


def _parquet(data: bytes) -> _Columns:
    import pyarrow.parquet as parquet

    file = parquet.ParquetFile(io.BytesIO(data))
    _refuse_many(file.metadata.num_rows)
    table = file.read()
    return {str(name): [_plain(value) for value in table[name].to_pylist()] for name in table.column_names}


def _plain(value: object) -> Value:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _csv(text: str) -> _Columns:
    """Read a CSV whose first row names the columns; a column of whole numbers, or of numbers, becomes numbers."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    head = next(reader, [])
    if len(set(head)) != len(head):
        raise BadInput(f"the table names a column twice: {', '.join(head)}")
    rows = [row for row in reader if row]
    _refuse_many(len(rows))
    for number, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise BadInput(f"row {number} of the table has {len(row)} fields, the first row {len(head)}")
    cells = zip(*rows, strict=True) if rows else ([] for _ in head)
    return {name: _typed(column) for name, column in zip(head, cells, strict=True)}


def _typed(cells: Sequence[str]) -> list[Value]:
    for kind in (int, float):
        try:
            return [kind(cell) if cell else None for cell in cells]
        except ValueError:
            continue
    return [cell or None for cell in cells]
