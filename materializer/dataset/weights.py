"""How often each of a dataset's videos comes in an epoch: by a column of weights, or so that values are balanced."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.dataset.table import as_text, is_list

__all__ = ["Weights", "epoch_length"]


def epoch_length(weights: NDArray[np.float64]) -> int:
    """How many positions an epoch has: the sum of the weights, rounded, halves up."""
    return int(np.floor(weights.sum() + 0.5))


class Weights:
    """The weights of a dataset's videos, by a column of the label table or by the labels."""

    def __init__(self, name: str, column: pa.Array, *, balance: bool) -> None:
        """Take the column, (videos,).

        Args:
            name: of the column.
            column: numbers, or what is to be balanced.
            balance: whether each of its values comes equally often, instead of each video as often as it says.

        Raises:
            BadInput: it holds what is no weight, or lists.
        """
        self._name = name
        self._balance = balance
        if balance:
            if is_list(column.type):
                raise BadInput(
                    f"balance: column {name!r} holds several values of a video, which cannot all be balanced"
                )
            codes = pc.fill_null(as_text(column).dictionary_encode().indices, -1)
            self._values = np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
            self._missing = self._values < 0
            return
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            kind = "lists" if is_list(column.type) else "true and false" if pa.types.is_boolean(column.type) else "text"
            kind = "nothing" if pa.types.is_null(column.type) else kind
            raise BadInput(f"weight: column {name!r} holds {kind}; a weight is a number from 0, such as 0.5 or 2")
        filled = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan)
        self._weights = np.asarray(filled.to_numpy(zero_copy_only=False), np.float64)
        self._missing = np.isnan(self._weights)

    def check(self, chosen: NDArray[np.bool_], names: Sequence[str]) -> None:
        """Refuse weights of chosen videos that are none.

        Args:
            chosen: (videos,) which are looked at.
            names: of the videos.

        Raises:
            BadInput: one is missing, negative or not finite, or an epoch would be empty.
        """
        key = "balance" if self._balance else "weight"
        lacking = np.flatnonzero(chosen & self._missing)
        if len(lacking):
            raise BadInput(
                f"{key}: column {self._name!r} has no value for {names[int(lacking[0])]!r} ({len(lacking)} videos): "
                f"fill it in, or leave them out by where: {self._name} is not null"
            )
        if self._balance or not chosen.any():
            return
        wrong = np.flatnonzero(chosen & ((self._weights < 0) | ~np.isfinite(self._weights)))
        if len(wrong):
            value = float(self._weights[wrong[0]])
            raise BadInput(
                f"weight: column {self._name!r} has {value:g} for {names[int(wrong[0])]!r} ({len(wrong)} videos); a "
                "weight is a finite number from 0"
            )
        total = float(self._weights[chosen].sum())
        if total < 0.5:
            raise BadInput(
                f"weight: the weights in column {self._name!r} add up to {total:g}, so an epoch would be empty: a "
                "weight says how often a video comes in an epoch"
            )

    def strata(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """(n,) which value each of some videos has, numbered from 0; None where nothing is balanced."""
        return np.unique(self._values[rows], return_inverse=True)[1].reshape(-1) if self._balance else None

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) how often some videos come in an epoch of all of them, on average."""
        if not self._balance:
            return np.asarray(self._weights[rows])
        values = self._values[rows]
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        return np.asarray(len(rows) / (len(counts) * counts[which]), np.float64)
