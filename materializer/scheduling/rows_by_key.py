"""The rows of a plan that need an object, found by its content key."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowsByKey"]


class RowsByKey:
    """Finds the rows of a key among a million without a dict of as many strings, by sorted halves of the keys."""

    def __init__(self, keys: NDArray[np.void]) -> None:
        """Of keys of 16 bytes each."""
        self._keys = keys
        self._halves = keys.view("<u8").reshape(-1, 2)[:, 0]
        self._by_half = np.argsort(self._halves, kind="stable")

    def find(self, key: str) -> list[int]:
        """The rows that have a key, given as 32 hex digits; empty if none has."""
        whole = bytes.fromhex(key)
        half = np.frombuffer(whole[:8], "<u8")[0]
        left, right = (np.searchsorted(self._halves, half, side, sorter=self._by_half) for side in ("left", "right"))
        return [row for row in self._by_half[left:right].tolist() if self._keys[row].tobytes() == whole]
