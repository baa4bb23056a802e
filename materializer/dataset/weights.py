"""How often each of a dataset's videos comes in an epoch: by weight, balanced, or mixed in stated shares."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.dataset.table import as_text, is_list
from viewcache.suggest import did_you_mean

__all__ = ["ColumnWeights", "ValueWeights", "Weights", "epoch_length"]

MOST_POSITIONS = 1 << 24
"""Of an epoch: as many clips as one plan may have."""
_NAMED = 6
"""Values that a message names."""


def epoch_length(weights: NDArray[np.float64]) -> int:
    """How many positions an epoch has: the sum of the weights, rounded, halves up."""
    return int(np.floor(weights.sum() + 0.5))


class Weights(ABC):
    """How often each of a dataset's videos comes in an epoch of all of them."""

    def __init__(self, key: str, name: str, missing: NDArray[np.bool_]) -> None:
        """Know which videos have no value.

        Args:
            key: of the configuration.
            name: of the column.
            missing: (videos,).
        """
        self._key, self._name, self._missing = key, name, missing

    def check(self, chosen: NDArray[np.bool_], names: Sequence[str]) -> None:
        """Refuse values of chosen videos that say nothing of how often they come.

        Args:
            chosen: (videos,) which are looked at.
            names: of the videos.

        Raises:
            BadInput: one is missing, or is wrong, or an epoch would be empty.
        """
        lacking = np.flatnonzero(chosen & self._missing)
        if len(lacking):
            raise BadInput(
                f"{self._key}: column {self._name!r} has no value for {names[int(lacking[0])]!r} ({len(lacking)} "
                f"videos): fill it in, or leave them out by where: {self._name} is not null"
            )
        if chosen.any():
            self._check_values(chosen, names)

    @abstractmethod
    def _check_values(self, chosen: NDArray[np.bool_], names: Sequence[str]) -> None:
        """The same of values that are there; at least one video is chosen."""

    @abstractmethod
    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) how often some videos come in an epoch of all of them, on average."""

    @abstractmethod
    def strata(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """(n,) which value each of some videos has, numbered from 0; None where videos stand for themselves."""


class ColumnWeights(Weights):
    """A column of numbers: each says how often its video comes."""

    def __init__(self, name: str, column: pa.Array) -> None:
        """Take the column, (videos,).

        Raises:
            BadInput: it holds what is no number.
        """
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            kind = "lists" if is_list(column.type) else "true and false" if pa.types.is_boolean(column.type) else "text"
            kind = "nothing" if pa.types.is_null(column.type) else kind
            raise BadInput(f"weight: column {name!r} holds {kind}; a weight is a number from 0, such as 0.5 or 2")
        filled = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan)
        self._weights = np.asarray(filled.to_numpy(zero_copy_only=False), np.float64)
        super().__init__("weight", name, np.isnan(self._weights))

    def _check_values(self, chosen: NDArray[np.bool_], names: Sequence[str]) -> None:
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
        if total > MOST_POSITIONS:
            raise BadInput(
                f"weight: the weights in column {self._name!r} add up to {total:g}, and an epoch has at most "
                f"{MOST_POSITIONS} places: a weight says how often a video comes in an epoch, as 0.5 or 2"
            )

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `Weights.of`."""
        return np.asarray(self._weights[rows])

    def strata(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """None."""
        return None


class ValueWeights(Weights):
    """A column whose values come equally often, or in stated shares, in an epoch that is as long as without."""

    def __init__(
        self, key: str, name: str, column: pa.Array, shares: Mapping[str, float], *, grows: bool = False
    ) -> None:
        """Take the column, (videos,).

        Args:
            key: of the configuration.
            name: of the column.
            column: what is to be balanced or mixed.
            shares: value → its share, in proportion; empty = all values have the same.
            grows: whether videos are still to come, so that values may wait for their first.

        Raises:
            BadInput: it holds lists.
        """
        if is_list(column.type):
            raise BadInput(f"{key}: column {name!r} holds several values of a video, which cannot all be balanced")
        codes = as_text(column).dictionary_encode()
        self._values = np.asarray(pc.fill_null(codes.indices, -1).to_numpy(zero_copy_only=False), np.int64)
        self._named: list[str] = codes.dictionary.to_pylist()
        self._mixed = dict(shares)
        self._grows = grows
        self._shares = np.array([shares.get(value, 0.0) if shares else 1.0 for value in self._named], np.float64)
        super().__init__(key, name, self._values < 0)

    def _check_values(self, chosen: NDArray[np.bool_], names: Sequence[str]) -> None:
        there = {self._named[value] for value in np.unique(self._values[chosen]).tolist()}
        known = ", ".join(map(repr, sorted(there)[:_NAMED])) + (", …" if len(there) > _NAMED else "")
        if unknown := sorted(there - self._mixed.keys()) if self._mixed else []:
            raise BadInput(
                f"{self._key}: it names no share for {unknown[0]!r} of column {self._name!r}, which has {known}: add "
                "one, or leave its videos out by where"
            )
        absent = sorted(self._mixed.keys() - there)
        if absent and not self._grows:
            if absent[0] in self._named:
                why = "; others have it, but where or split leaves them out: leave the share out, too"
            else:
                hint = did_you_mean(absent[0], sorted(there))
                why = f"; {hint}" if hint else ""
            raise BadInput(
                f"{self._key}: no selected video has {absent[0]!r} in column {self._name!r}; it has {known}{why}"
            )

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `Weights.of`."""
        values, which, counts = np.unique(self._values[rows], return_inverse=True, return_counts=True)
        shares = self._shares[values] / self._shares[values].max()  # their sum could overflow
        shares /= shares.sum()
        return np.asarray((len(rows) * shares / counts)[which.reshape(-1)], np.float64)

    def strata(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Weights.strata`."""
        return np.unique(self._values[rows], return_inverse=True)[1].reshape(-1)
