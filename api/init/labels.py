"""Where the labels of a folder's videos are: in a table that lies there and names them, or in their folders' names."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from viewcache.errors import ViewcacheError
from viewcache.materializer.dataset.labels import labels_for
from viewcache.materializer.dataset.table import is_list
from viewcache.materializer.spec import TABLE_SUFFIXES

__all__ = ["Labels", "find_labels", "is_split"]

JSON_SUFFIXES = (".jsonl", ".ndjson")
MOST_BYTES = 64 << 20
"""Of a table that is tried; a list of a million videos is smaller."""
MOST_TABLES, MOST_COLUMNS = 16, 32
ENOUGH = 0.5
"""Share of the videos that a table must name."""
LABEL_COLUMNS = ("label", "class", "class_name", "category", "target", "action", "label_id", "class_id", "y")
"""Names of a column that is taken to be the label, the likeliest first."""
SPLITS = frozenset(("train", "training", "val", "valid", "validation", "test", "testing"))
"""Names of folders that part a dataset and are no classes."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Where labels are."""

    source: str = ""
    """``folders``, the path of a table, or empty: there are none."""
    video_column: str = "video"
    label_column: str = ""
    """Empty: the table has none that is known as such."""
    others: tuple[str, ...] = ()
    """Further columns of the table."""
    named: int = 0
    """Videos that the table names, or that lie in a folder."""
    classes: int = 0


def find_labels(folder: Path, paths: Sequence[str]) -> Labels:
    """Look for labels: in tables in the folder and beside it, then in the names of folders."""
    found = [
        each for place in (folder, folder.parent) for table in _tables(place) for each in _columns_of(table, paths)
    ]
    best = max(found, key=lambda each: (each.named, bool(each.label_column)), default=Labels())
    return best if best.named >= ENOUGH * len(paths) else _folders(paths)


def is_split(paths: Sequence[str]) -> bool:
    """Whether the folders part the videos into those for training and those for something else."""
    return len({path.split("/")[0].lower() for path in paths if "/" in path} & SPLITS) > 1


def _folders(paths: Sequence[str]) -> Labels:
    """Classes are folders of two videos and more on average, in which every video lies."""
    parents = {path.rsplit("/", 2)[-2] for path in paths if "/" in path}
    looks_so = all("/" in path for path in paths) and 2 <= len(parents) <= len(paths) / 2
    if not looks_so or {parent.lower() for parent in parents} <= SPLITS:
        return Labels()
    return Labels("folders", named=len(paths), classes=len(parents))


def _tables(folder: Path) -> list[Path]:
    try:
        there = sorted(path for path in folder.iterdir() if path.suffix.lower() in TABLE_SUFFIXES)
        return [path for path in there if path.is_file() and path.stat().st_size <= MOST_BYTES][:MOST_TABLES]
    except OSError:
        return []


def _columns_of(table: Path, paths: Sequence[str]) -> Iterator[Labels]:
    """Each of its columns that names videos, once each."""
    columns = _head(table)
    for video in columns:
        others = tuple(column for column in columns if column != video)
        lowered = {column.lower(): column for column in reversed(others)}
        label = next((lowered[name] for name in LABEL_COLUMNS if name in lowered), "")
        label = label or (others[0] if len(others) == 1 else "")
        try:
            found = labels_for(paths, str(table), video, label or "label")
        except ViewcacheError:
            continue  # the column names none of them, or one of them twice
        classes = len(found.label.drop_null().unique()) if not is_list(found.label.type) else 0
        rest = tuple(column for column in others if column != label)
        yield Labels(str(table), video, label, rest, len(set(found.video.tolist())), classes)


def _head(table: Path) -> list[str]:
    """The names of its columns; none of what is no table."""
    try:
        if table.suffix.lower() == ".parquet":
            import pyarrow.parquet as parquet

            names = [str(name) for name in parquet.read_schema(table).names]
        elif table.suffix.lower() in JSON_SUFFIXES:
            with table.open(encoding="utf-8-sig") as file:
                first = json.loads(file.readline() or "{}")
            names = list(first) if isinstance(first, dict) else []
        else:
            with table.open(encoding="utf-8-sig", newline="") as file:
                names = next(csv.reader(file), [])
    except (OSError, ValueError, csv.Error):
        return []
    return names[:MOST_COLUMNS]
