"""Labels, segments and further columns of a dataset's videos, from a label table or from folder names.

Rows are matched to videos by path, by path without extension, or by file name where that is unique. A table is read and
kept by columns: one of hundreds of thousands of segments takes no more than as many videos do.
"""

import csv
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.dataset.names import escape, names_for, stem
from viewcache.materializer.dataset.table import as_text, place_of, read_table
from viewcache.materializer.dataset.texts import Texts
from viewcache.materializer.media.far_files import open_far
from viewcache.materializer.media.source import is_local, local_path, shown
from viewcache.materializer.spec import FOLDERS, LABEL

__all__ = ["END", "START", "Labels", "columns_of", "has_segments", "labels_for", "taken"]

START, END = "start_s", "end_s"
"""Default names of the columns that make a row a segment of its video."""

LONGEST_HEAD = 1 << 20
"""Bytes of the first line of a table of text, with the names of its columns."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What a table says of a dataset's videos: one entry for each of its n rows that names one, in its order."""

    video: NDArray[np.int64]
    """(n,) the place of each row's video among the paths."""
    label: pa.Array
    """(n,) of each row, of the type that the table has; null where there is none."""
    table: pa.Table
    """All rows of the table, each column as it stands there; without columns where there is no table."""
    rows: NDArray[np.int64]
    """(n,) which rows of the table they are."""
    others: tuple[str, ...] = ()
    """The table's further columns, in its order."""
    segments: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    """(n,) where the segment of each row begins and where it ends, in seconds; -inf and inf where the table leaves that
    open. None for a table of one row a video."""

    def column(self, name: str) -> pa.Array:
        """(n,) a further column."""
        return taken(self.table[name], self.rows)


def labels_for(
    paths: Sequence[str],
    labels: str | None,
    video_column: str = "video",
    label_column: str = LABEL,
    names: Sequence[str] | None = None,
    start_column: str = START,
    end_column: str = END,
    *,
    read: pa.Table | None = None,
    some: bool = True,
) -> Labels:
    """What is said of a dataset's videos.

    Args:
        paths: relative paths of the videos.
        labels: path or URL of a CSV, Parquet or JSON lines table, ``folders``, or None.
        video_column: the column that names the video.
        label_column: the column that holds the label; the default one may be missing.
        names: of the videos, as `names_for` gives them; None = as if all were new.
        start_column: the column that says where a row's segment begins, in seconds; the default one may be missing.
        end_column: the same of where it ends.
        read: the table, where it was read already; its rows are then those that are counted.
        some: whether it is an error that the table names none of them, or one of them twice.

    Returns:
        The rows that name one of the videos; others are for another part of the dataset.

    Raises:
        DatasetNotFound: the table is not there.
        BadInput: it cannot be read, lacks a column, names none of the videos, has a segment that is none, or names a
            video twice without saying which segments of it.
    """
    nothing = np.empty(0, np.int64)
    if labels is None:
        return Labels(nothing, pa.nulls(0), pa.table({}), nothing)
    if labels == FOLDERS:
        # What stands before the last slash, and behind the one before that, if there is one.
        parents = pc.extract_regex(Texts.of(paths).array, r"(?s)(?:^|/)(?P<folder>[^/]*)/[^/]*\z")
        every = np.arange(len(paths))
        return Labels(every, pc.struct_field(parents, "folder"), pa.table({}), np.full(len(paths), -1))
    table, name = read_table(labels) if read is None else read, shown(labels)
    # Only the defaults may be missing, in a table of further columns: a name that was written is meant.
    asked = {video_column} | ({label_column, start_column, end_column} - {LABEL, START, END})
    for column in sorted(asked - set(table.column_names)):
        raise BadInput(f"{name} has no column {column!r}; it has {', '.join(map(repr, table.column_names))}")
    called = [_path(video) for video in as_text(table[video_column]).to_pylist()]
    video = _videos_of(called, paths, names_for(paths) if names is None else names)
    mine = np.flatnonzero(video >= 0)
    if not len(mine) and some:
        raise BadInput(
            f"{name}: none of its {len(video)} rows names a file of the dataset; column {video_column!r} has "
            f"{called[0]!r}, the first file is {paths[0]!r}"
        )
    segments = _segments(table, start_column, end_column, name)
    if segments is None and some:
        _refuse_second_rows(video[mine], mine, paths, called, table, name)
    special = (video_column, label_column, *((start_column, end_column) if segments else ()))
    return Labels(
        video[mine],
        taken(table[label_column], mine) if label_column in table.column_names else pa.nulls(len(mine)),
        table,
        mine,
        tuple(column for column in table.column_names if column not in special),
        None if segments is None else (segments[0][mine], segments[1][mine]),
    )


def taken(column: pa.ChunkedArray | pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """Some rows of a column; null for -1."""
    found = column.take(pa.array(rows, mask=rows < 0))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _path(video: str | None) -> str:
    return "" if video is None else video.removeprefix("./").replace("\\", "/")


# Segments -------------------------------------------------------------------------------------------------------------


def has_segments(labels: str | None, start_column: str = START, end_column: str = END) -> bool:
    """Whether the rows of a label table are segments; its names of columns are looked at, and nothing else.

    A table that cannot be read has none: who reads it whole says what is wrong.
    """
    return not {start_column, end_column}.isdisjoint(columns_of(labels))


def columns_of(labels: str | None) -> frozenset[str]:
    """The names of a label table's columns; none where there is no table, or one that cannot be read."""
    if labels is None or labels == FOLDERS:
        return frozenset()
    version = None
    if is_local(labels):
        try:
            found = os.stat(local_path(labels))
        except OSError:
            return frozenset()
        if not stat.S_ISREG(found.st_mode):
            return frozenset()
        version = found.st_mtime_ns, found.st_size
    return _names_of_columns(labels, version)


@lru_cache(maxsize=64)
def _names_of_columns(labels: str, _version: object) -> frozenset[str]:
    """The columns of a version of a table; of a remote one, as they were when it was looked at first.

    Of JSON lines those of the first line: a key that only others have makes a table of segments all the same, but
    headers may then be read later than for one that says so at once.
    """
    try:
        with open(local_path(labels), "rb") if is_local(labels) else open_far(labels) as file:
            if file.read(4) == b"PAR1":
                import pyarrow.parquet as parquet

                file.seek(0)
                return frozenset(map(str, parquet.read_schema(file).names))
            file.seek(0)
            head = file.readline(LONGEST_HEAD).decode("utf-8-sig")
            if head.lstrip().startswith("{"):
                return frozenset(json.loads(head))
            return frozenset(name.strip() for name in next(csv.reader([head]), []))
    except (OSError, ValueError, ImportError, csv.Error):
        return frozenset()


def _segments(
    table: pa.Table, start_column: str, end_column: str, name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Where each row's segment begins and ends; None if the table has neither column."""
    if {start_column, end_column}.isdisjoint(table.column_names):
        return None
    start = _seconds(table, start_column, -np.inf, name)
    end = _seconds(table, end_column, np.inf, name)
    wrong = np.flatnonzero(start >= end)
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(
            f"{name}: the segment in {place_of(table, row)} begins at {start[row]:g} s and ends at {end[row]:g} s; it "
            "must end after it begins"
        )
    return start, end


def _seconds(table: pa.Table, column: str, missing: float, name: str) -> NDArray[np.float64]:
    """A column of seconds; ``missing`` where a cell is empty."""
    if column not in table.column_names or pa.types.is_null(table[column].type):
        return np.full(table.num_rows, missing)
    cells = table[column]
    empty = cells.is_null().to_numpy()
    if pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type):
        seconds = np.asarray(pc.fill_null(cells.cast(pa.float64(), safe=False), missing).to_numpy(), np.float64)
    else:
        seconds = np.array([_number(cell) for cell in cells.to_pylist()], np.float64)
    wrong = np.flatnonzero(~np.isfinite(seconds) & ~empty)
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(
            f"{name}: {column} in {place_of(table, row)} is {cells[row].as_py()!r}; it must be a number of seconds, "
            "or empty for where the video begins or ends"
        )
    return np.where(empty, missing, seconds)


def _number(cell: object) -> float:
    try:
        return float(cell) if isinstance(cell, str) else np.nan
    except ValueError:
        return np.nan


def _refuse_second_rows(
    video: NDArray[np.int64],
    rows: NDArray[np.int64],
    paths: Sequence[str],
    called: Sequence[str],
    table: pa.Table,
    name: str,
) -> None:
    _, first = np.unique(video, return_index=True)
    again = np.setdiff1d(np.arange(len(video)), first)
    if len(again):
        at = int(again[0])
        row = int(rows[at])
        raise BadInput(
            f"{name}: {place_of(table, row)} names {paths[int(video[at])]!r} again ({called[row]!r}); one row a file, "
            f"or say in columns {START} and {END} which segment of it each row is"
        )


# Which video a row means ----------------------------------------------------------------------------------------------


def _videos_of(called: Sequence[str], paths: Sequence[str], names: Sequence[str]) -> NDArray[np.int64]:
    """(rows,) which video each row means; -1 for none.

    A word that could mean two videos means neither, unless it is meant in a way that comes first. Of two that differ in
    their extension alone the one that is named without it is meant: a name is given once.
    """
    found = np.full(len(called), -1, np.int64)
    for words, meant in _meanings(paths, names):
        left = np.flatnonzero(found < 0)
        if not len(left):
            break
        meaning = _unambiguous(words, meant)
        found[left] = [meaning.get(called[row], -1) for row in left.tolist()]
    return found


def _meanings(paths: Sequence[str], names: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """What a table may call the videos, and which video is meant; each is asked for only if the ones before fail."""
    itself = range(len(paths))
    yield paths, itself
    stems = list(map(stem, paths))
    several = {path for path, count in Counter(stems).items() if count > 1}
    named = {path: at for at, path in enumerate(stems) if path in several and names[at] == escape(path)}
    one_of_stem = [named.get(path, at) for at, path in enumerate(stems)]
    yield stems, one_of_stem
    yield names, itself
    files = [path.rsplit("/", 1)[-1] for path in paths]
    yield files, itself
    yield list(map(stem, files)), one_of_stem


def _unambiguous(words: Sequence[str], meant: Sequence[int]) -> dict[str, int]:
    meaning: dict[str, int] = dict(zip(words, meant, strict=True))
    if len(meaning) < len(words):
        twice = {word for word, at in zip(words, meant, strict=True) if meaning[word] != at}
        meaning = {word: at for word, at in meaning.items() if word not in twice}
    return meaning
