"""Labels and further columns of a dataset's videos, from a CSV or Parquet table or from folder names.

Rows are matched to videos by path, by path without extension, or by file name where that is unique.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from viewcache.catalog.files import read_regular
from viewcache.errors import BadInput, DatasetNotFound, MissingExtra
from viewcache.materializer.dataset.names import escape, names_for, stem
from viewcache.materializer.media.source import is_local, local_path, shown

__all__ = ["Labelled", "Value", "labels_for"]

Value = str | int | float | bool | None

LABEL = "label"
"""Default name of the column with the label."""

MOST_BYTES = 1 << 30
"""Of a table: more than any list of videos takes, less than what a machine that reads it has."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """What a table says about one video."""

    label: Value = None
    columns: dict[str, Value] = field(default_factory=dict)
    """All further columns, by name."""
    named: bool = True
    """Whether the table has a row for it."""


def labels_for(
    paths: Sequence[str],
    labels: str | None,
    video_column: str = "video",
    label_column: str = LABEL,
    names: Sequence[str] | None = None,
) -> list[Labelled]:
    """Labels of a dataset's videos.

    Args:
        paths: relative paths of the videos.
        labels: path or URL of a CSV or Parquet table, ``folders``, or None.
        video_column: the column that names the video.
        label_column: the column that holds the label; the default one may be missing.
        names: of the videos, as `names_for` gives them; None = as if all were new.

    Returns:
        One entry per path; empty, and not ``named``, for videos that the table does not name.

    Raises:
        DatasetNotFound: the table is not there.
        BadInput: it cannot be read, lacks the video column, names a video twice, or names none of the videos.
    """
    if labels is None:
        return [Labelled()] * len(paths)
    if labels == "folders":
        return [Labelled(path.rsplit("/", 2)[-2] if "/" in path else None) for path in paths]
    rows = _rows(labels)
    if not rows:
        raise BadInput(f"{shown(labels)} has no rows; leave labels out for a dataset without labels")
    if video_column not in rows[0]:
        raise BadInput(f"{shown(labels)} has no column {video_column!r}; it has {', '.join(map(repr, rows[0]))}")
    if label_column not in rows[0] and label_column != LABEL:
        # Only the default may be missing, in a table of further columns: a name that was written is meant.
        raise BadInput(f"{shown(labels)} has no column {label_column!r}; it has {', '.join(map(repr, rows[0]))}")
    meanings = _meanings(paths, names_for(paths) if names is None else names)
    return _matched(paths, meanings, rows, shown(labels), video_column, label_column)


def _matched(
    paths: Sequence[str],
    meanings: Mapping[str, int],
    rows: list[dict[str, Value]],
    name: str,
    video_column: str,
    label_column: str,
) -> list[Labelled]:
    out: list[Labelled | None] = [None] * len(paths)
    for number, row in enumerate(rows, 1):
        video = str(row[video_column]).removeprefix("./").replace("\\", "/")
        at = meanings.get(video)
        if at is None:
            continue
        if out[at] is not None:
            raise BadInput(f"{name}: row {number} names {paths[at]!r} again ({video!r}); one row a video")
        others = {column: value for column, value in row.items() if column not in (video_column, label_column)}
        out[at] = Labelled(row.get(label_column), others)
    if not any(out):
        raise BadInput(
            f"{name}: none of its {len(rows)} rows names a video of the dataset; column {video_column!r} has "
            f"{str(rows[0][video_column])!r}, the first video is {paths[0]!r}"
        )
    return [each or Labelled(named=False) for each in out]


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


def _rows(labels: str) -> list[dict[str, Value]]:
    data = _bytes(labels)
    try:
        if data[:4] == b"PAR1":
            return _parquet(data)
        return _csv(data.decode("utf-8-sig"))
    except BadInput:
        raise
    except (ValueError, csv.Error, OSError, UnicodeDecodeError, KeyError, ArithmeticError) as bad:
        raise BadInput(f"{shown(labels)} is neither a UTF-8 CSV nor a Parquet table ({bad})") from bad


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


def _parquet(data: bytes) -> list[dict[str, Value]]:
    import pyarrow.parquet as parquet

    table = parquet.read_table(io.BytesIO(data))
    return [{str(name): _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: object) -> Value:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _csv(text: str) -> list[dict[str, Value]]:
    """Read a CSV whose first row names the columns; a column of whole numbers, or of numbers, becomes numbers."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    head = next(reader, [])
    if len(set(head)) != len(head):
        raise BadInput(f"the table names a column twice: {', '.join(head)}")
    rows = [row for row in reader if row]
    for number, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise BadInput(f"row {number} of the table has {len(row)} fields, the first row {len(head)}")
    columns = [_typed([row[k] for row in rows]) for k in range(len(head))]
    return [dict(zip(head, values, strict=True)) for values in zip(*columns, strict=True)]


def _typed(cells: list[str]) -> list[Value]:
    for kind in (int, float):
        try:
            return [kind(cell) if cell else None for cell in cells]
        except ValueError:
            continue
    return [cell or None for cell in cells]
