"""Caches of so many slots, counted and not timed: which accesses miss, by what a policy gives up first.

References to come and the need of drawn elements are told by the caller, as the catalog's views tell them to a policy.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["POLICIES", "Cache", "Known", "misses"]

Elements = NDArray[np.int64]


class Known:
    """What is known of each of ``elements`` elements."""

    def __init__(self, elements: int) -> None:
        """Start with no use to come."""
        self.references = np.zeros(elements, np.int64)
        """Uses to come, drawn or not."""
        self.need = np.full(elements, np.inf)
        """Time of the next use that is drawn; infinite if none is."""
        self.entered = np.zeros(elements)
        self.used = np.zeros(elements)
        """When it came into the cache, and when it was used last, in accesses."""


class Cache:
    """Elements in at most ``slots`` slots; a miss puts the element in and gives up the policy's victim."""

    def __init__(self, slots: int, policy: str, known: Known, seed: int = 0) -> None:
        """Start empty."""
        self.misses = 0
        self._known = known
        self._slots = np.zeros(slots, np.int64)
        self._filled = 0
        self._inside = np.zeros(len(known.references), bool)
        self._rank = POLICIES[policy]
        self._knowing = policy not in ("lru", "fifo", "random")
        self._random = np.random.default_rng(seed)
        self._now = 0

    def access(self, element: int) -> None:
        """Use an element; its reference counts as past already."""
        self._now += 1
        known = self._known
        known.used[element] = self._now
        if self._inside[element]:
            return
        self.misses += 1
        if self._knowing and not known.references[element]:
            return  # nothing will ask for it again
        at = self._filled
        if at < len(self._slots):
            self._filled += 1
        else:
            at = int(np.argmin(self._rank(self._slots, known, self._random)))
            self._inside[self._slots[at]] = False
        self._slots[at] = element
        self._inside[element] = True
        known.entered[element] = self._now


def _demand(inside: Elements, known: Known, random: np.random.Generator) -> NDArray[np.float64]:
    references, need = known.references[inside], known.need[inside]
    not_drawn = np.where(references == 0, -2e18, -1e18 + references)
    return np.where(np.isinf(need), not_drawn, -need)


POLICIES: dict[str, Callable[[Elements, Known, np.random.Generator], NDArray[np.float64]]] = {
    "lru": lambda inside, known, random: known.used[inside],
    "fifo": lambda inside, known, random: known.entered[inside],
    "random": lambda inside, known, random: random.random(len(inside)),
    "refcount": lambda inside, known, random: known.references[inside].astype(float),
    "longest deadline": lambda inside, known, random: -known.need[inside],
    "demand": _demand,
}
"""What is lowest leaves first. ``refcount`` is JOADER's rule, ``longest deadline`` SAND's, ``demand`` ours."""


def misses(trace: Sequence[int], slots: int, policy: str, elements: int) -> int:
    """Misses of a trace of which nothing but the number of uses to come is known."""
    known = Known(elements)
    np.add.at(known.references, np.array(trace), 1)
    cache = Cache(slots, policy, known)
    for element in trace:
        known.references[element] -= 1
        cache.access(element)
    return cache.misses
