"""Classes of a dataset's videos: the distinct text labels, and the number that each label gets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["class_names", "class_numbers", "first_epochs"]


def class_names(labels: Sequence[object], drawn: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """The distinct text labels; a label's number is its place here. Empty if labels are numbers or none.

    Args:
        labels: of all videos.
        drawn: label → first epoch that has a video of it. These come first and in that order, so that a label keeps
            its number when others come later; labels of one epoch, and those that are not drawn, are sorted.
    """
    given = [label for label in labels if label is not None]
    if all(isinstance(label, int) and not isinstance(label, bool) for label in given):
        return ()
    first = drawn or {}
    names = {str(label) for label in given} | first.keys()
    return tuple(sorted(names, key=lambda name: (name not in first, first.get(name, 0), name)))


def first_epochs(drawn: Iterable[Mapping[str, Any]], label_of: Mapping[int, object]) -> dict[str, int]:
    """Label → first epoch that has a video of it.

    Args:
        drawn: rows of `Catalog.first_drawn`.
        label_of: ``video_id`` → label; of videos that are gone the label on record holds.
    """
    first: dict[str, int] = {}
    for row in drawn:
        label = label_of.get(row["video_id"], row["label"])
        if label is not None:
            first[str(label)] = min(row["epoch"], first.get(str(label), row["epoch"]))
    return first


def class_numbers(labels: Sequence[object], names: Sequence[str]) -> NDArray[np.int64]:
    """(labels,) the number of each by `class_names`; -1 where there is no label."""
    number = {name: k for k, name in enumerate(names)}
    return np.array([_number(label, number) for label in labels], np.int64)


def _number(label: object, number: Mapping[str, int]) -> int:
    if label is None:
        return -1
    if number:
        return number[str(label)]
    assert isinstance(label, int)  # there are no classes for whole numbers only
    return label
