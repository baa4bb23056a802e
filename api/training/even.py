"""Filling up what a rank reads of a batch, so that every batch of every rank has the same shape."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["filled_up"]

_NOBODY = ("label", "label_other", "index", "sample", "item")
"""What is -1 for a clip that is none: 0 would be one of the dataset's."""


def filled_up(arrays: Mapping[str, NDArray[Any]], clips: int) -> dict[str, NDArray[Any]]:
    """Arrays with a row for each clip, filled up to so many rows, and ``valid``: (clips,) whether each row is a clip.

    Filling is black pixels, time 0, frame 0, and -1 for labels, video, item and sample.

    Args:
        arrays: each (n, ...), n at most ``clips``; those that are full are not copied.
        clips: how many rows.
    """
    valid = np.arange(clips) < len(arrays["index"])
    return {name: _longer(name, array, clips) for name, array in arrays.items()} | {"valid": valid}


def _longer(name: str, array: NDArray[Any], clips: int) -> NDArray[Any]:
    if len(array) == clips:
        return array
    out = np.full((clips, *array.shape[1:]), -1 if name in _NOBODY else 0, array.dtype)
    out[: len(array)] = array
    return out
