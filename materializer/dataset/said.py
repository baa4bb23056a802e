"""Which items a label table makes of listed files, and what it says of each.

Segments get their numbers once and keep them, so that a table may gain, lose and reorder rows: what was drawn stays.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.labels import Labels, labels_for, taken
from viewcache.materializer.dataset.segments import KnownItems
from viewcache.materializer.dataset.table import read_table
from viewcache.materializer.spec import FOLDERS, ROOT, DatasetSpec

__all__ = ["Said", "known_items"]


@dataclass(frozen=True, slots=True)
class Said:
    """What a label table says of m known items, in their order."""

    labels: pa.Array
    """(m,) null without one."""
    table: pa.Table
    """The label table; without columns where there is none."""
    rows: NDArray[np.int64]
    """(m,) the table's row of each; -1 where it has none."""
    further: tuple[str, ...]
    """Further columns of the table."""
    roots: pa.Array | None
    """(m,) the place of the dataset each is of: the column ``root``; None for one place, or a table that has it."""
    named: NDArray[np.bool_]
    """(m,) whether the table has a row for it."""
    listed: NDArray[np.bool_]
    """(m,) whether it may be drawn: it has a row, is a whole video that has none, or its file is gone, which forbids
    it."""
    gone: NDArray[np.bool_]
    """(m,) whether its file is gone: its labels are those on record, its further columns those of the table."""
    recorded: pa.StringArray
    """(m,) labels on record, as text."""

    @property
    def others(self) -> tuple[str, ...]:
        """All columns beside the labels."""
        return self.further if self.roots is None else (*self.further, ROOT)

    def column(self, name: str) -> pa.Array:
        """(m,) one of them; null where the table has no value or no row."""
        if name == ROOT and self.roots is not None:
            return self.roots
        return taken(self.table[name], self.rows)


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
    read = None if spec.labels is None or spec.labels == FOLDERS else read_table(spec.labels)
    table = _table_of(spec, files, files.there, read)
    gone = _table_of(spec, files, ~files.there, read, some=False)
    ids, ids_of_gone = _ids_of(table, files, catalog), _ids_of(gone, files, catalog)
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
    labels = pa.chunked_array([files.labels.array, *recorded["label"].take(pa.array(here)).chunks], pa.string())
    entry = np.full(count, -1, np.int64)
    entry[at] = np.arange(len(at))
    rows = np.full(count, -1, np.int64)
    rows[at] = table.rows
    rows[_places(items.ids, ids_of_gone)] = gone.rows
    is_gone = ~files.there[items.file]
    roots = pa.array([files.roots[row] or None for row in items.file.tolist()]) if any(files.roots.values) else None
    return items, Said(
        taken(table.label, entry),
        pa.table({}) if read is None else read,
        rows,
        table.others,
        None if ROOT in table.others else roots,
        named,
        named | is_gone | (items.are_videos & ~has_rows[items.file]),
        is_gone,
        labels.take(pa.array(items.given)).combine_chunks(),
    )


def _table_of(
    spec: DatasetSpec, files: Files, which: NDArray[np.bool_], read: pa.Table | None, *, some: bool = True
) -> Labels:
    """What the table says of some files, by themselves: a word that could mean one of others means one of these.

    That it says nothing of any is an error where ``some`` is to be told.
    """
    rows = np.flatnonzero(which)
    table = labels_for(
        files.paths if which.all() else files.paths.taken(rows),
        spec.labels if len(rows) else None,
        spec.label_video_column,
        spec.label_column,
        files.names if which.all() else files.names.taken(rows),
        spec.label_start_column,
        spec.label_end_column,
        read=read,
        some=some,
    )
    return replace(table, video=rows[table.video])


def _ids_of(table: Labels, files: Files, catalog: Catalog) -> NDArray[np.int64]:
    """(rows of the table,) the id of each row's item."""
    return files.ids[table.video] if table.segments is None else _registered(table, files, catalog)


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
    if np.array_equal(ids, wanted):  # whole files, and a label for each: a million need not be sorted
        return np.arange(len(ids))
    order = np.argsort(ids, kind="stable")
    return np.asarray(order[np.searchsorted(ids, wanted, sorter=order)])
