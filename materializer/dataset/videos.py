"""The videos that a plan is of, as arrays."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.dataset.texts import IdPlaces, Keys, Places, Texts
from viewcache.materializer.randomness import Words

__all__ = ["Videos"]


@dataclass(frozen=True)  # no slots: row_of is cached
class Videos:
    """The videos that a plan is of, each once; arrays of length n."""

    ids: NDArray[np.int64]
    """``video_id`` in the catalog."""
    names: Texts
    uris: Texts
    keys: Keys
    """Content keys of the files."""
    words: Words
    """Addresses of their random numbers: of the name, so that a dataset that moves keeps its draws."""
    frames: NDArray[np.int64]
    height: NDArray[np.int64]
    """As shown, rotation applied."""
    width: NDArray[np.int64]
    keyframes: NDArray[np.int64]
    """At least 1."""
    native_bytes: NDArray[np.int64]
    """Of a frame in the decoder's own planes; -1 if these are not kept."""
    file_bytes: NDArray[np.int64]
    """Of the file."""
    pace: NDArray[np.int64]
    """(n, 2) ticks from a frame to the next, as fractions; zeros where frames are not evenly spaced. See `clock`."""
    last: NDArray[np.int64]
    """Ticks from the first frame to the last; -1 where nobody has looked."""

    def __len__(self) -> int:
        """Number of videos."""
        return len(self.ids)

    def taken(self, rows: NDArray[np.int64]) -> "Videos":
        """Some of them."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return Videos(**{name: _taken(column, rows) for name, column in columns.items()})

    def joined(self, more: "Videos") -> "Videos":
        """These and, behind them, some more."""
        columns = {each.name: (getattr(self, each.name), getattr(more, each.name)) for each in fields(self)}
        return Videos(**{name: _chained(*both) for name, both in columns.items()})

    @cached_property
    def row_of(self) -> IdPlaces:
        """``video_id`` → position in the arrays."""
        return IdPlaces(self.ids)

    @cached_property
    def row_of_key(self) -> Places[str]:
        """Content key → position in the arrays."""
        return self.keys.places


def _taken(column: Any, rows: NDArray[np.int64]) -> Any:
    """Some values of a column of texts or an array."""
    return column[rows] if isinstance(column, np.ndarray) else column.taken(rows)


def _chained(one: Any, other: Any) -> Any:
    """Two columns of texts, or two arrays, one behind the other."""
    return np.concatenate([one, other]) if isinstance(one, np.ndarray) else one.joined(other)
