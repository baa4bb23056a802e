"""What a label table says of a dataset's items, as rows of the catalog and for predicates: labels, further columns."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import VideoStatus
from viewcache.materializer.dataset.labels import Value
from viewcache.materializer.dataset.said import Said
from viewcache.materializer.dataset.segments import KnownItems

__all__ = ["predicate_table", "record_columns", "record_labels"]


def predicate_table(items: KnownItems, good: NDArray[np.bool_], said: Said) -> pa.Table:
    """What a predicate can name: the items' own columns and those of the label table.

    A video's name is ``video``, as in the catalog's relations, and ``name``.

    Args:
        items: of the dataset.
        good: (files,) whether the task can use each.
        said: of each item.

    Returns:
        One row for each item that may be drawn, in their order.
    """
    files, at = items.files, pa.array(items.file)

    def of_files(values: pa.Array) -> pa.Array:
        return values.take(at)

    status = pa.array([(VideoStatus.OK if each else VideoStatus.BAD).value for each in good.tolist()])
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "video": of_files(pa.array(files.names)),
        "name": of_files(pa.array(files.names)),
        "path": of_files(pa.array(files.paths)),
        "label": _as_column(said.labels),
        "frames": of_files(pa.array(files.frames)),
        "fps": of_files(files.column("fps")),
        "duration_s": of_files(files.column("duration_s")),
        "height": of_files(pa.array(files.height)),
        "width": of_files(pa.array(files.width)),
        "codec": of_files(files.column("codec")),
        "status": of_files(status),
    }
    for name in sorted(said.columns):
        columns.setdefault(name, _as_column(said.columns[name]))
    if not items.is_whole.all():
        columns.setdefault("start_s", pa.array(items.start_s, mask=items.start_s == -np.inf))
        columns.setdefault("end_s", pa.array(items.end_s, mask=items.end_s == np.inf))
    return pa.table(columns).filter(pa.array(said.listed))


def _as_column(values: Sequence[object]) -> pa.Array:
    """An Arrow column; one of mixed kinds becomes text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])


def record_labels(catalog: Catalog, items: KnownItems, said: Said) -> None:
    """Record the labels of the items that may be drawn, where they are not what is recorded."""
    videos: dict[int, str | None] = {}
    segments: dict[int, str | None] = {}
    for at in np.flatnonzero(said.listed).tolist():
        label = said.labels[at]
        text = None if label is None else str(label)
        if text != said.recorded[at]:
            (videos if items.are_videos[at] else segments)[int(items.ids[at])] = text
    catalog.set_labels(videos)
    catalog.set_item_labels(segments)


def record_columns(catalog: Catalog, items: KnownItems, said: Said) -> None:
    """Record the label table's further columns, by item, where they are not what is recorded."""
    if not said.columns:
        return
    names = ["video_id", "name", "text_value", "number_value"]
    table = _column_rows(items.ids, said.columns)
    known = catalog.load_video_columns(items.files.dataset_id).select(names).cast(table.schema)
    asked = pa.array(np.union1d(items.ids[said.named], table["video_id"].to_numpy()))
    known = known.filter(pc.is_in(known["video_id"], asked))
    if table.equals(known):
        return
    rows, before = (set(zip(*(each[name].to_pylist() for name in names), strict=True)) for each in (table, known))
    changed = pa.array({row[0] for row in rows ^ before}, pa.int64())
    catalog.set_video_columns(table.filter(pc.is_in(table["video_id"], changed)))


def _column_rows(ids: NDArray[np.int64], columns: Mapping[str, Sequence[Value]]) -> pa.Table:
    """One row for each value, by item and column."""
    parts = []
    for name, values in columns.items():
        there = [at for at, value in enumerate(values) if value is not None]
        given = [values[at] for at in there]
        part = {
            "video_id": pa.array(ids[there], pa.int64()),
            "name": pa.array([name] * len(there), pa.string()),
            "text_value": pa.array(list(map(str, given)), pa.string()),
            "number_value": pa.array([float(v) if isinstance(v, int | float) else None for v in given], pa.float64()),
        }
        parts.append(pa.table(part))
    return pa.concat_tables(parts).sort_by([("video_id", "ascending"), ("name", "ascending")]).combine_chunks()
