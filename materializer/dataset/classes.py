"""Classes of a dataset's videos: the distinct text labels, and the number that each label gets."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["class_names", "class_numbers"]


def class_names(labels: Sequence[object]) -> tuple[str, ...]:
    """The distinct text labels, sorted; a label's number is its place here. Empty if labels are numbers or none."""
    given = [label for label in labels if label is not None]
    if all(isinstance(label, int) and not isinstance(label, bool) for label in given):
        return ()
    return tuple(sorted({str(label) for label in given}))


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
