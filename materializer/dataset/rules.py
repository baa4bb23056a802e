"""What the keys of a dataset make of its label table: classes, parts, weights; nothing is asked of a catalog.

Opening a task and `viewcache lint` go by these, so that both say the same of a mistake.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.dataset.classes import Classes, class_names
from viewcache.materializer.dataset.said import Said
from viewcache.materializer.dataset.split import part_mask
from viewcache.materializer.dataset.table import as_text, is_list, place_of
from viewcache.materializer.dataset.weights import ColumnWeights, ValueWeights, Weights
from viewcache.materializer.media.source import shown
from viewcache.materializer.spec import LABEL, ROOT, DatasetSpec

__all__ = ["classes_of", "part_of", "refuse_below_zero", "weights_of"]

MOST_CLASSES = 1_000_000
"""Where a video may have several labels: a clip then has four bytes for each."""


def classes_of(spec: DatasetSpec, labels: pa.Array, first: Mapping[str, int] | None = None) -> Classes:
    """Names and numbers of labels.

    Args:
        spec: of the dataset.
        labels: of each item.
        first: see `class_names`.

    Raises:
        BadInput: several labels of a video come without names where they need them, or in too many classes.
    """
    if spec.classes:
        return Classes(labels, spec.classes, given=True)
    if not is_list(labels.type):
        return Classes(labels, class_names(labels, first))
    if spec.grows:
        raise BadInput("videos with several labels, in a dataset that grows, need the key classes: all their names")
    found = Classes(labels, class_names(labels.flatten()))
    if found.count > MOST_CLASSES:
        raise BadInput(
            f"labels: column {spec.label_column!r} has lists with the number {found.count - 1}, and a batch has a "
            f"column for each class, at most {MOST_CLASSES}: number the classes from 0, or name them by classes"
        )
    if not found.count:
        raise BadInput(f"labels: column {spec.label_column!r} holds lists, and no video has a label in its own")
    return found


def refuse_below_zero(spec: DatasetSpec, said: Said, labels: pa.Array, chosen: NDArray[np.bool_]) -> None:
    """Refuse a class number below 0, which no loss takes: -1 in a batch says that a clip has no label.

    Names of classes that are given may be whole numbers themselves: see `Classes.check` of these, and of lists.

    Args:
        spec: of the dataset.
        said: of its items.
        labels: of each item.
        chosen: (items,) which are looked at.

    Raises:
        BadInput: the message names table, row and number.
    """
    if spec.labels is None or spec.classes or not pa.types.is_integer(labels.type):
        return
    numbers = pc.fill_null(labels, 0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(chosen & (said.rows >= 0) & (numbers < 0))
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(
            f"{shown(spec.labels)}: {spec.label_column} in {place_of(said.table, int(said.rows[row]))} is "
            f"{numbers[row]}; whole numbers are class numbers, from 0: leave the cell empty for no label"
        )


def weights_of(spec: DatasetSpec, said: Said, labels: pa.Array) -> Weights | None:
    """How often items come; None where each comes once.

    Raises:
        BadInput: the table has no such column, or none of such values.
    """
    name = spec.weighted
    if name is None:
        return None
    if spec.weight is not None:
        return ColumnWeights(name, _named_column(spec, said, labels, name, "weight"))
    key = "mix" if spec.mix else "balance"
    column = _named_column(spec, said, labels, name, key)
    return ValueWeights(key, name, column, dict(spec.mix), grows=spec.grows)


def part_of(
    spec: DatasetSpec, said: Said, labels: pa.Array, names: Sequence[str], selected: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(items,) which are in the task's part of the dataset; see `split.part_mask`."""
    if spec.split is None or spec.part is None:
        return np.ones(len(selected), bool)
    name = spec.split.by or spec.split.column
    column = None if name is None else as_text(_named_column(spec, said, labels, name, "split"))
    return part_mask(spec.split, spec.part, names, selected, column, may_be_empty=spec.grows)


def _named_column(spec: DatasetSpec, said: Said, labels: pa.Array, name: str, key: str) -> pa.Array:
    """A column of the label table; that of the labels is `LABEL`, too, unless another one is called so."""
    if name == spec.label_column or (name == LABEL and name not in said.others):
        return labels
    if name not in said.others:
        there = ", ".join(map(repr, (spec.label_column, *said.others)))
        if key == "mix" and name == ROOT:  # which nobody need have named, and which several places have
            why = "the dataset is one place, so there is nothing to mix"
            raise BadInput(f"mix: {why}; or say by mix_column which column of the label table: it has {there}")
        raise BadInput(f"{key}: the label table has no column {name!r}; it has {there}")
    return said.column(name)
