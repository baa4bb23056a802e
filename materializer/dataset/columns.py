"""What a label table says of a dataset's videos, as rows of the catalog and for predicates: labels, further columns."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import VideoColumnRow, VideoStatus
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.labels import Value

__all__ = ["predicate_table", "record_columns", "record_labels"]


def predicate_table(
    files: Files, good: NDArray[np.bool_], labels: Sequence[Value], further: Sequence[Mapping[str, Value]]
) -> pa.Table:
    """What a predicate can name: the videos' own columns and those of the label table.

    A video's name is ``video``, as in the catalog's relations, and ``name``.

    Args:
        files: of the dataset.
        good: (files,) whether the task can use each.
        labels: of each.
        further: columns of the label table, of each.
    """
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "video": pa.array(files.names),
        "name": pa.array(files.names),
        "path": pa.array(files.paths),
        "label": _as_column(labels),
        "frames": pa.array(files.frames),
        "fps": files.column("fps"),
        "duration_s": files.column("duration_s"),
        "height": pa.array(files.height),
        "width": pa.array(files.width),
        "codec": files.column("codec"),
        "status": pa.array([(VideoStatus.OK if each else VideoStatus.BAD).value for each in good.tolist()]),
    }
    for name in sorted({name for each in further for name in each}):
        columns.setdefault(name, _as_column([each.get(name) for each in further]))
    return pa.table(columns)


def _as_column(values: Sequence[object]) -> pa.Array:
    """An Arrow column; one of mixed kinds becomes text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])


def record_labels(catalog: Catalog, files: Files, labels: Sequence[Value]) -> None:
    """Record the files' labels where they are not what is recorded."""
    texts = [None if label is None else str(label) for label in labels]
    ids = files.ids.tolist()
    changed = {each: text for each, text, old in zip(ids, texts, files.labels, strict=True) if text != old}
    catalog.set_labels(changed)


def record_columns(catalog: Catalog, dataset_id: int, columns: Mapping[int, Mapping[str, Value]]) -> None:
    """Record the label table's further columns, by ``video_id``, where they are not what is recorded."""
    if not any(columns.values()):
        return
    names = ("video_id", "name", "text_value", "number_value")
    known: dict[int, set[tuple[object, ...]]] = {}
    for row in catalog.load_video_columns(dataset_id).to_pylist():
        known.setdefault(row["video_id"], set()).add(tuple(row[name] for name in names))
    changed = []
    for video_id, values in columns.items():
        rows = _column_rows(video_id, values)
        if {tuple(getattr(row, name) for name in names) for row in rows} != known.get(video_id, set()):
            changed += rows
    catalog.set_video_columns(changed)


def _column_rows(video_id: int, values: Mapping[str, Value]) -> list[VideoColumnRow]:
    rows = []
    for name, value in values.items():
        if value is not None:
            number = float(value) if isinstance(value, int | float) else None
            rows.append(VideoColumnRow(video_id, name, str(value), number))
    return rows
