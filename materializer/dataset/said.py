"""Which items a label table makes of listed files, and what it says of each.

Segments get their numbers once and keep them, so that a table may gain, lose and reorder rows: what was drawn stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.labels import Labels, Value, labels_for
from viewcache.materializer.dataset.segments import KnownItems
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Said", "known_items"]


@dataclass(frozen=True, slots=True)
class Said:
    """What a label table says of m known items, in their order."""

    labels: Sequence[Value]
    """(m) None without one."""
    columns: Mapping[str, Sequence[Value]]
    """All further columns of the table, by name; (m) values each."""
    named: NDArray[np.bool_]
    """(m,) whether the table has a row for it."""
    listed: NDArray[np.bool_]
    """(m,) whether it may be drawn: it has a row, is a whole video that has none, or its file is gone, which forbids
    it."""
    recorded: Sequence[str | None]
    """(m) labels on record, as text."""


def known_items(spec: DatasetSpec, files: Files, catalog: Catalog, *, by_time: bool) -> tuple[KnownItems, Said]:
    """The items of listed files, and what the task's label table says of them; new segments are recorded now.

    Args:
        spec: of the task's dataset.
        files: that are there.
        catalog: what we know.
        by_time: whether clips are placed in ticks, and not in frames.

    Raises:
        DatasetNotFound: no label table.
        BadInput: it does not fit, see `labels_for`.
    """
    table = _of_those_there(spec, files)
    ids = files.ids[table.video] if table.segments is None else _registered(table, files, catalog)
    recorded = catalog.load_items(files.dataset_id)
    of_video = recorded["video_id"].to_numpy()
    here = np.flatnonzero(np.isin(of_video, files.ids))
    items = KnownItems(
        files,
        recorded["item_id"].to_numpy()[here],
        _places(files.ids, of_video[here]),
        recorded["start_s"].fill_null(-np.inf).to_numpy()[here],
        recorded["end_s"].fill_null(np.inf).to_numpy()[here],
        recorded["ordinal"].to_numpy()[here].astype(np.int64),
        by_time=by_time,
    )
    at, count = _places(items.ids, ids), len(items)
    named = np.zeros(count, bool)
    named[at] = True
    has_rows = np.zeros(len(files), bool)
    has_rows[table.video] = True
    labels = dict(zip(recorded["item_id"].to_pylist(), recorded["label"].to_pylist(), strict=True))
    labels |= dict(zip(files.ids.tolist(), files.labels, strict=True))
    gone = ~files.there[items.file]
    columns = {name: _spread(values, at, count) for name, values in table.columns.items()}
    if any(files.roots):
        columns.setdefault("root", [files.roots[row] or None for row in items.file.tolist()])
    recorded_labels = [labels[each] for each in items.ids.tolist()]
    said = _spread(table.label, at, count)
    if spec.labels is not None:
        _keep(said, recorded_labels, np.flatnonzero(gone))
    listed = named | gone | (items.are_videos & ~has_rows[items.file])
    return items, Said(said, columns, named, listed, recorded_labels)


def _of_those_there(spec: DatasetSpec, files: Files) -> Labels:
    """What the table says of the files that are there: a word that could mean one that is gone means another one."""
    there = np.flatnonzero(files.there)
    if not len(there):
        return Labels(there, ())
    rows = there.tolist()
    table = labels_for(
        [files.paths[row] for row in rows],
        spec.labels,
        spec.label_video_column,
        spec.label_column,
        [files.names[row] for row in rows],
        spec.label_start_column,
        spec.label_end_column,
    )
    return replace(table, video=there[table.video])


def _keep(labels: list[Value], recorded: Sequence[str | None], gone: NDArray[np.int64]) -> None:
    """Let items whose files are gone have the labels on record, so that classes keep their numbers."""
    numbered = all(isinstance(label, int) for label in labels if label is not None)
    for at in gone.tolist():
        text = recorded[at]
        is_number = numbered and text is not None and text.lstrip("-").isdecimal()
        labels[at] = int(text) if is_number and text is not None else text


def _registered(table: Labels, files: Files, catalog: Catalog) -> NDArray[np.int64]:
    """(rows of the table,) the id of each row's item: of a whole video its own, of a segment one that it keeps."""
    assert table.segments is not None
    (start, end), video = table.segments, table.video
    # Which of several equal rows is which depends on their order in the table, and what is drawn on nothing else of it.
    order = np.lexsort((end, start, video))
    new = np.ones(len(order), bool)
    new[1:] = np.logical_or.reduce([each[order][1:] != each[order][:-1] for each in (video, start, end)])
    at = np.arange(len(order))
    ordinal = np.empty(len(order), np.int64)
    ordinal[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    whole = (start == -np.inf) & (end == np.inf) & (ordinal == 0)
    rows = order[~whole[order]]
    segments = {
        "video_id": files.ids[video[rows]],
        "start_s": pa.array(start[rows] + 0.0, mask=start[rows] == -np.inf),
        "end_s": pa.array(end[rows] + 0.0, mask=end[rows] == np.inf),
        "ordinal": ordinal[rows].astype(np.int32),
    }
    ids = files.ids[video]
    ids[rows] = catalog.register_items(files.dataset_id, pa.table(segments))
    return ids


def _places(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """(wanted,) where each stands among ids, which have all of them."""
    order = np.argsort(ids, kind="stable")
    return np.asarray(order[np.searchsorted(ids, wanted, sorter=order)])


def _spread(values: Sequence[Value], at: NDArray[np.int64], count: int) -> list[Value]:
    """The values of some of ``count`` items, None for the others."""
    out: list[Value] = [None] * count
    for place, value in zip(at.tolist(), values, strict=True):
        out[place] = value
    return out
