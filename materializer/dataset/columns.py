"""What a label table says of a dataset's items, as rows of the catalog and for predicates: labels, further columns."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import VideoStatus
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.said import Said
from viewcache.materializer.dataset.segments import KnownItems
from viewcache.materializer.dataset.table import as_text, is_list
from viewcache.materializer.dataset.texts import RepeatedTexts
from viewcache.materializer.dataset.video_file import VideoFile
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.spec import LABEL

__all__ = ["add_label", "changed_columns", "predicate_table", "record_columns", "record_labels"]

_FACTS = ("frames", "fps", "duration_s", "height", "width", "codec")
_OF_HEADERS = (*_FACTS, "status")
"""What a predicate names of a file."""


def add_label(columns: dict[str, Any], label_column: str, labels: pa.Array) -> None:
    """Let a predicate name the labels as their table does, too, unless SQL takes that name for another column's."""
    if label_column.lower() not in {*map(str.lower, columns), *_OF_HEADERS}:
        columns[label_column] = labels


def predicate_table(
    items: KnownItems,
    good: NDArray[np.bool_],
    said: Said,
    labels: pa.Array,
    label_column: str = LABEL,
    selected_by: Mapping[str, Mapping[str, Any]] | None = None,
) -> pa.Table:
    """What a predicate can name: the items' own columns and those of the label table.

    A video's name is ``video``, as in the catalog's relations, and ``name``. Labels are ``label``, and what their table
    calls them.

    Args:
        items: of the dataset.
        good: (files,) whether the task can use each.
        said: of each item.
        labels: of each item.
        label_column: the name that the table has for them.
        selected_by: content key of a file → columns that hold in place of what is known of it now.

    Returns:
        One row for each item that may be drawn, in their order.
    """
    files, at = items.files, pa.array(items.file)

    def of_files(values: pa.Array) -> pa.Array:
        return values.take(at)

    status = pa.array([(VideoStatus.OK if each else VideoStatus.BAD).value for each in good.tolist()])
    columns: dict[str, Any] = {
        "video": of_files(files.names.array),
        "name": of_files(files.names.array),
        "path": of_files(files.paths.array),
        "label": labels,
        **{name: of_files(_as_selected(files, name, selected_by or {})) for name in _FACTS},
        "status": of_files(status),
    }
    for name in sorted(said.others):
        columns.setdefault(name, said.column(name))
    if not items.is_whole.all():
        columns.setdefault("start_s", pa.array(items.start_s, mask=items.start_s == -np.inf))
        columns.setdefault("end_s", pa.array(items.end_s, mask=items.end_s == np.inf))
    add_label(columns, label_column, labels)
    return pa.table(columns).filter(pa.array(said.listed))


def _as_selected(files: Files, name: str, selected_by: Mapping[str, Mapping[str, Any]]) -> pa.Array:
    """(files,) what a predicate sees of a column: what is known now, or what the task has drawn by."""
    known = files.column(name) if name in ("fps", "duration_s", "codec") else pa.array(getattr(files, name))
    before = {files.row_of_key.get(key): each[name] for key, each in selected_by.items() if name in each}
    before.pop(None, None)  # of files that are others by now
    if not before:
        return known
    values = known.to_pylist()
    for row, value in before.items():
        values[row] = value
    return pa.array(values, known.type)


def changed_columns(where: str | None, before: VideoFile, found: VideoFacts | None) -> dict[str, Any]:
    """The columns of a file that a predicate names, as they were, if one of them is found to be another.

    Args:
        where: the predicate.
        before: the file as it was known.
        found: what was found of it; None if nothing can be decoded.
    """
    named = [name for name in _FACTS if where is not None and re.search(rf"\b{name}\b", where, re.IGNORECASE)]
    height, width = before.size
    known = {name: getattr(before, name) for name in ("frames", "fps", "duration_s", "codec")}
    known |= {"height": height, "width": width}
    now: dict[str, Any] = {}
    if found is not None:
        now = found._asdict() | dict(zip(("height", "width"), found.shown_size, strict=True))
    return {name: known[name] for name in named} if any(known[name] != now.get(name) for name in named) else {}


def record_labels(catalog: Catalog, items: KnownItems, said: Said, labels: pa.Array) -> None:
    """Record the labels of the items that have a row, where they are not what is recorded; several as a JSON list.

    What is recorded of others is what they had when they were drawn.
    """
    texts, before = as_text(labels), said.recorded.cast(pa.large_string())
    same = pc.or_(pc.fill_null(pc.equal(texts, before), False), pc.and_(texts.is_null(), before.is_null()))
    changed = said.named & ~np.asarray(same.to_numpy(zero_copy_only=False))
    for are_videos, record in ((True, catalog.set_labels), (False, catalog.set_item_labels)):
        at = np.flatnonzero(changed & (items.are_videos == are_videos))
        new = texts.take(pa.array(at))
        record(dict(zip(items.ids[at].tolist(), new.to_pylist(), strict=True)))
        if are_videos and len(at):  # who looks at these files again asks the catalog for the labels of segments alone
            files = items.files
            files.labels = files.labels.with_others(items.file[at], RepeatedTexts(new))


def record_columns(catalog: Catalog, items: KnownItems, said: Said) -> None:
    """Record the label table's further columns, by item, where they are not what is recorded; those of lists are not.

    An array of each item would fill a catalog, and SQL has little use for it.
    """
    columns = {name: said.column(name) for name in said.others}
    rows = [_column_rows(items.ids, name, values) for name, values in columns.items() if not is_list(values.type)]
    given = pa.concat_tables([schemas.empty(schemas.VIDEO_COLUMN), *rows])
    if not given.num_rows:
        return
    names = schemas.VIDEO_COLUMN.names
    known = catalog.load_video_columns(items.files.dataset_id).select(names).cast(schemas.VIDEO_COLUMN)
    sides = [side.append_column("side", [np.full(len(side), k)]) for k, side in ((1, given), (2, known))]
    found = pa.concat_tables(sides).group_by(names).aggregate([("side", "sum")])
    unlike = pc.unique(found.filter(pc.less(found["side_sum"], 3))["video_id"])  # on one side only
    if said.table.num_columns:  # what is known of items without a row is what they had when they were drawn
        kept = np.isin(items.ids, known["video_id"].to_numpy()) & (said.rows < 0)
        unlike = unlike.filter(pc.invert(pc.is_in(unlike, pa.array(items.ids[kept]))))
    catalog.set_video_columns(given.filter(pc.is_in(given["video_id"], unlike)))


def _column_rows(ids: NDArray[np.int64], name: str, values: pa.Array) -> pa.Table:
    """One row for each value of a column, by item."""
    there = values.is_valid()
    kept = values.filter(there)
    kind = kept.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    number = kept.cast(pa.float64(), safe=False) if is_number else pa.nulls(len(kept), pa.float64())
    columns = [pa.array(ids).filter(there), pa.array([name] * len(kept), pa.string()), as_text(kept), number]
    return pa.table(columns, schemas.VIDEO_COLUMN.names).cast(schemas.VIDEO_COLUMN)
