"""What arrays of numbers are put through in several rooms."""

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["by_class", "by_value", "distinct", "same"]

Integer = TypeVar("Integer", bound=np.integer)


def distinct(values: NDArray[Integer]) -> NDArray[Integer]:
    """The distinct ones of some whole numbers, rising, as `np.unique` gives them.

    That one hashes its numbers since NumPy 2.3, which takes thirty times as long as sorting for half a million of them.
    """
    rising = np.sort(values, axis=None)
    first = np.ones(len(rising), bool)
    first[1:] = rising[1:] != rising[:-1]
    return rising[first]


def by_class(values: NDArray[Integer], stride: int) -> NDArray[Integer]:
    """Rising whole numbers by classes of a stride: for two all even ones, then all odd ones."""
    return values[np.lexsort((values, values % max(1, stride)))]


def by_value(values: NDArray[Integer]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each distinct one of some whole numbers, rising, with the places where it stands, which rise too."""
    order = np.argsort(values, kind="stable")
    rising = values[order]
    starts = np.flatnonzero(np.diff(rising, prepend=rising[:1] - 1))
    if len(starts):
        yield from zip(rising[starts].tolist(), np.split(order, starts[1:]), strict=True)


def same(value: float, count: int) -> NDArray[Any]:
    """(count,) one number everywhere, which takes the memory of one; it cannot be written to."""
    return np.broadcast_to(np.asarray(value), count)
