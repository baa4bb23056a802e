"""Filling up what a rank reads of a batch, so that every batch of every rank has the same shape."""

from collections.abc import Container, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.field_values import FieldValues, filled_field

__all__ = ["filled_up"]

_NOBODY = ("label", "label_other", "index", "sample", "item")
"""What is -1 for a clip that is none: 0 would be one of the dataset's."""


def filled_up(arrays: Mapping[str, FieldValues], clips: int, fields: Container[str] = ()) -> dict[str, FieldValues]:
    """What a batch has for each clip, filled up to so many rows, and ``valid``: (clips,) whether each row is a clip.

    Filling is black pixels, time 0, frame 0, and -1 for labels, video, item and sample; where there may be several
    labels it is none of them, and of ``fields`` zeros, empty texts and empty lists.

    Args:
        arrays: each of n rows, n at most ``clips``; those that are full are not copied.
        clips: how many rows.
        fields: which of them are further columns of the label table.
    """
    count = len(cast(NDArray[Any], arrays["index"]))
    valid = np.arange(clips) < count
    if count == clips:
        return {**arrays, "valid": valid}
    return {name: _longer(name, values, clips, name in fields) for name, values in arrays.items()} | {"valid": valid}


def _longer(name: str, values: FieldValues, clips: int, is_field: bool) -> FieldValues:
    if is_field or isinstance(values, tuple):
        return filled_field(values, clips)
    nobody = name in _NOBODY and values.ndim == 1
    out = np.full((clips, *values.shape[1:]), -1 if nobody else 0, values.dtype)
    out[: len(values)] = values
    return out
