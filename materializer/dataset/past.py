"""What a task has drawn by that is not so any more: it stays for what was drawn.

Of items that the label table has no row for the labels and fields stay.

A segment without a row is drawn no more. A whole video without one is, as one without a label; so it is recorded from
which epoch on, and what was drawn before keeps its label.

A file whose packets contradict its header, or that cannot be decoded, stays selected, or not, by what its header said:
the version of the file is the same, so no epoch may have other videos for when it was decoded first.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.catalog import Catalog

__all__ = ["ALWAYS", "Past", "keep_selection", "recorded_columns"]

ALWAYS = int(np.iinfo(np.int64).max)
"""Behind every epoch."""
_SETTING = "without_row"
_SELECTED_BY = "selected_by"


class Past:
    """What a task has drawn until its dataset is opened."""

    def __init__(self, catalog: Catalog, task_id: int | None, next_epoch: int = 0) -> None:
        """Look at a task.

        Args:
            catalog: what we know.
            task_id: of the task; None if it is new.
            next_epoch: the first epoch that it has not begun to draw.
        """
        self._catalog, self._task_id, self._next_epoch = catalog, task_id, next_epoch

    @cached_property
    def drawn(self) -> pa.Table | None:
        """As `Catalog.first_drawn` gives it; None for a new task."""
        return None if self._task_id is None else self._catalog.first_drawn(self._task_id)

    def has_drawn(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether the task has drawn each of some items."""
        return np.zeros(len(ids), bool) if self.drawn is None else np.isin(ids, self.drawn["video_id"].to_numpy())

    @cached_property
    def _known(self) -> dict[int, int]:
        text = None if self._task_id is None else self._catalog.setting(f"{_SETTING} {self._task_id}")
        return {item: int(epoch) for epoch, items in json.loads(text or "{}").items() for item in items}

    @cached_property
    def selected_by(self) -> dict[str, dict[str, Any]]:
        """Content key of a file → its columns as the predicate saw them, of those that were found to be others."""
        if self._task_id is None:
            return {}
        prefix = _selected_by(self._task_id, "")
        rows = self._catalog.query("read_settings", prefix=prefix).to_pylist()
        return {row["name"].removeprefix(prefix): json.loads(row["value"]) for row in rows}

    def since(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) from which epoch on each of some items, which the table has no row for, is without one."""
        return np.array([self._known.get(each, self._next_epoch) for each in ids.tolist()], np.int64)

    def record(self, task_id: int, ids: NDArray[np.int64]) -> None:
        """Record which items have no row now; before the task draws on."""
        since: dict[int, list[int]] = {}
        for item, epoch in zip(ids.tolist(), self.since(ids).tolist(), strict=True):
            since.setdefault(epoch, []).append(item)
        if {item: epoch for epoch, items in since.items() for item in items} != self._known:
            self._catalog.set_setting(f"{_SETTING} {task_id}", json.dumps(since, separators=(",", ":")))


def keep_selection(catalog: Catalog, task_id: int, key: str, columns: Mapping[str, Any]) -> None:
    """Record what a task's predicate saw of the file with this content key; what is on record stays."""
    name = _selected_by(task_id, key)
    if catalog.setting(name) is None:
        catalog.set_setting(name, json.dumps(columns, separators=(",", ":")))


def _selected_by(task_id: int, key: str) -> str:
    return f"{_SELECTED_BY} {task_id} {key}"


def recorded_columns(catalog: Catalog, dataset_id: int, ids: NDArray[np.int64], like: pa.Table) -> pa.Table:
    """Further columns of some items as they are on record, each of the type that the table has; null where none is.

    Args:
        catalog: what we know.
        dataset_id: of the items.
        ids: of the items.
        like: the label table's columns; none of them holds lists, which are not recorded.
    """
    rows = catalog.load_video_columns(dataset_id)
    rows = rows.filter(pc.is_in(rows["video_id"], pa.array(ids)))
    found: dict[str, dict[int, str]] = {name: {} for name in like.column_names}
    for name, item, text in zip(*(rows[key].to_pylist() for key in ("name", "video_id", "text_value")), strict=True):
        if name in found:
            found[name][item] = text
    columns = {}
    for name, of in found.items():
        texts = pa.array([of.get(each) for each in ids.tolist()], pa.large_string())
        columns[name] = _typed(texts, like.schema.field(name).type)
    return pa.table(columns)


def _typed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values of a type; null where one is none, because the column was of another type then."""
    if pa.types.is_large_string(kind):
        return texts
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_one(texts.slice(at, 1), kind) for at in range(len(texts))])


def _one(text: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)
