"""What is said of a dataset's videos beside their pixels: labels, their classes, further columns of the table."""

import json
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.materializer.dataset.classes import Classes, first_epochs, separated
from viewcache.materializer.dataset.columns import predicate_table, record_columns, record_labels
from viewcache.materializer.dataset.fields import Fields
from viewcache.materializer.dataset.past import ALWAYS, Past, recorded_columns
from viewcache.materializer.dataset.rules import classes_of, part_of, refuse_below_zero, weights_of
from viewcache.materializer.dataset.said import Said
from viewcache.materializer.dataset.segments import KnownItems
from viewcache.materializer.dataset.table import as_text, is_list
from viewcache.materializer.dataset.texts import Texts
from viewcache.materializer.field_values import FieldValues
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Annotations"]


class Annotations:
    """Labels and further columns of a task's dataset; arrays have one entry for each of its items. Thread-safe."""

    def __init__(self, spec: DatasetSpec, items: KnownItems, said: Said, catalog: Catalog, past: Past) -> None:
        """Take what the label table says, and record it.

        Args:
            spec: of the task's dataset.
            items: that can be named.
            said: of them.
            catalog: what we know.
            past: what the task has drawn.

        Raises:
            BadInput: the table does not fit.
        """
        self._spec = spec
        self._items = items
        self._said = said
        self._past = past
        labels = said.labels
        if spec.label_separator is not None:
            labels = separated(labels, spec.label_separator)
        self._until = _until(spec, items, said, past)
        """(items,) the epochs before it have the label and the fields that are on record; 0 for what has a row."""
        ever = labels
        if spec.labels is not None:
            ever = _kept(labels, said, said.gone | (self._until > 0))
            # A whole video without a row has no label from now on, and is drawn all the same.
            lost = (self._until > 0) & said.listed & ~said.gone
            labels = pc.if_else(pa.array(lost), pa.scalar(None, ever.type), ever) if lost.any() else ever
            record_labels(catalog, items, said, labels)
        record_columns(catalog, items, said)
        self._ever = _classes(spec, items, said, ever, past.drawn if spec.grows else None)
        """Names and numbers of all labels, those that only what was drawn has among them."""
        self.classes = replace(self._ever, labels=labels)
        """The same, where each item has the label that the next generation draws it with."""
        self._batch_columns = self._fields_of(spec, catalog)
        self._weights = weights_of(spec, said, self.classes.labels)

    def _fields_of(self, spec: DatasetSpec, catalog: Catalog) -> Fields:
        said, kept = self._said, np.flatnonzero((self._until > 0) & (self._said.rows < 0))
        record, rows = None, np.full(len(self._items), -1, np.int64)
        names = [name for name in spec.fields if name in said.further and not is_list(said.table[name].type)]
        if len(kept) and names:
            record = recorded_columns(
                catalog, self._items.files.dataset_id, self._items.ids[kept], said.table.select(names)
            )
            rows[kept] = np.arange(len(kept))
        return Fields(said.table, said.rows, said.further, spec.fields, grows=spec.grows, record=record, recorded=rows)

    @cached_property
    def _names(self) -> Texts:
        """Of the items' videos."""
        names, file = self._items.files.names, self._items.file
        return names if np.array_equal(file, np.arange(len(names))) else names.taken(file)

    def check(self, chosen: NDArray[np.bool_], clips: int) -> None:
        """Refuse labels and columns that do not fit the videos which the task selects.

        Args:
            chosen: which these are.
            clips: of a batch.

        Raises:
            BadInput: a label is none of the classes or below 0, a weight is none, or a field lacks a value or is too
                large.
        """
        self.classes.check(chosen)
        refuse_below_zero(self._spec, self._said, self.classes.labels, chosen)
        if self._weights is not None:
            self._weights.check(chosen, self._names)
        self._batch_columns.check(chosen, self._names, clips)

    def predicate_table(self, good: NDArray[np.bool_]) -> pa.Table:
        """What a predicate can name; ``good`` says which files the task can use."""
        labels, column = self.classes.labels, self._spec.label_column
        return predicate_table(self._items, good, self._said, labels, column, self._past.selected_by)

    def part_mask(self, selected: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which items are in the task's part of the dataset; see `split.part_mask`."""
        if self._spec.split is None:
            return np.ones(len(self._items), bool)
        return part_of(self._spec, self._said, self.classes.labels, self._names, selected)

    def weights(self, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """(n,) how often some items come in an epoch of all of them; None where each comes once."""
        return None if self._weights is None else self._weights.of(rows)

    def strata(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """(n,) which value each of some items has of those that are balanced; None where none are."""
        return None if self._weights is None else self._weights.strata(rows)

    def has_labels(self) -> bool:
        """Whether any file has one."""
        return bool(self.classes.labels.null_count < len(self.classes.labels))

    def labels(self, rows: NDArray[np.int64], epoch: int = ALWAYS) -> NDArray[Any]:
        """The labels of some items in an epoch, see `Classes.numbers`; of what the table has no more the last one."""
        found = self.classes.numbers(rows)
        then = epoch < self._until[rows]
        if then.any():
            found[then] = self._ever.numbers(rows[then])
        return found

    def label(self, row: int) -> int | tuple[int, ...]:
        """The class number of one item, -1 without a label; where items may have several, the numbers of all."""
        found = self.labels(np.array([row]))[0]
        return tuple(np.flatnonzero(found).tolist()) if self.classes.is_multi else int(found)

    def fields(self, rows: NDArray[np.int64], epoch: int = ALWAYS) -> dict[str, FieldValues]:
        """The columns that come with the clips of some items in an epoch; see `labels`."""
        return self._batch_columns.values(rows, epoch < self._until[rows])


def _until(spec: DatasetSpec, items: KnownItems, said: Said, past: Past) -> NDArray[np.int64]:
    """(items,) the epochs before it show an item that the table has no row for as it was when it had one."""
    until = np.zeros(len(items), np.int64)
    if spec.labels is None:
        return until
    lost = (said.rows < 0) & ~said.named
    if not spec.fields:
        lost &= said.recorded.is_valid().to_numpy(zero_copy_only=False)
    if not lost.any():  # most often; what was drawn is looked at for no others
        return until
    rows = np.flatnonzero(lost)
    rows = rows[past.has_drawn(items.ids[rows])]
    drawn_on = said.listed[rows] & ~said.gone[rows] & (not spec.grows)
    until[rows] = np.where(drawn_on, past.since(items.ids[rows]), ALWAYS)
    return until


def _kept(labels: pa.Array, said: Said, which: NDArray[np.bool_]) -> pa.Array:
    """Labels, where some items have those on record, so that classes keep their numbers.

    These are items whose files are gone, and such as were drawn and have no row any more.
    """
    if not which.any():
        return labels
    texts = [text if kept else None for text, kept in zip(said.recorded.to_pylist(), which.tolist(), strict=True)]
    kept = pa.array(which)
    if is_list(labels.type):
        return pc.if_else(
            kept, pa.array([_listed(text, labels.type.value_type) for text in texts], labels.type), labels
        )
    whole = pa.types.is_integer(labels.type) or pa.types.is_null(labels.type)
    if whole and all(text is None or text.removeprefix("-").isdecimal() for text in texts):
        numbers = pa.array([None if text is None else int(text) for text in texts], pa.int64())
        return pc.if_else(kept, numbers, labels.cast(pa.int64()))
    return pc.if_else(kept, pa.array(texts, pa.large_string()), as_text(labels))


def _listed(text: str | None, kind: pa.DataType) -> list[Any] | None:
    """Several labels as they are on record, a JSON list; those of another kind than the table's are none of them."""
    found = [] if text is None else json.loads(text) if text.startswith("[") else [text]
    if pa.types.is_integer(kind):
        return [each for each in found if isinstance(each, int)]
    return [str(each) for each in found]


def _classes(spec: DatasetSpec, items: KnownItems, said: Said, labels: pa.Array, drawn: pa.Table | None) -> Classes:
    recorded = [] if drawn is None or spec.labels is None or is_list(labels.type) else drawn.to_pylist()
    there = said.named | said.gone  # of what has no row any more the label on record holds
    listed = labels.filter(pa.array(there)).to_pylist() if recorded else []
    label_of = dict(zip(items.ids[there].tolist(), listed, strict=True)) if recorded else {}
    return classes_of(spec, labels, first_epochs(recorded, label_of))
