"""Search for the share of items to keep as raw pictures that gives the most items a second (Liquid §4.1, repaired).

Eleven shares are candidates, from none to all in tenths. The more is kept, the more bytes the devices have to give and
the less the cores have to do; the best share is beside the one from which on the devices are slower. The print
searches the wrong half and takes the share where the sign changes, without a look at its neighbour, which loses up to
65 %; here the half is the right one and both sides of the change are measured. The trade-off: rates are taken for
monotone, so at most five of eleven shares are measured, and a curve with two hills may be searched on the lower one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["MOST_PROBES", "TENTHS", "Probed", "Search", "search"]

TENTHS = range(11)
"""The candidates: of ten items so many are kept as raw pictures, the others are decoded."""

MOST_PROBES = 5
"""Mixes that are measured at most."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What was measured of one mix."""

    per_s: float
    """Items a second."""
    device_binds: bool
    """Whether its devices had more to do than its cores, of what each can."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found."""

    best: int
    """In tenths."""
    probed: Mapping[int, Probed]
    """By tenths, in the order in which they were measured."""


def search(probe: Callable[[int], Probed]) -> Search:
    """Find the best of `TENTHS`, measuring at most `MOST_PROBES` of them.

    Args:
        probe: measures one mix. As the share rises its devices must get no faster and its cores no slower.
    """
    probed: dict[int, Probed] = {}
    low, high = TENTHS.start - 1, TENTHS.stop
    while high - low > 1:
        middle = (low + high) // 2
        probed[middle] = probe(middle)
        # Too much is kept where the devices bind: smaller shares are on the left.
        low, high = (low, middle) if probed[middle].device_binds else (middle, high)
    # Both sides of the change are measured by now. What is left goes to the neighbour of the better one: the sign may
    # have been read wrongly where both have about as much to do.
    best = _best(probed)
    for beside in (best - 1, best + 1):
        if beside in TENTHS and beside not in probed and len(probed) < MOST_PROBES:
            probed[beside] = probe(beside)
    return Search(_best(probed), probed)


def _best(probed: Mapping[int, Probed]) -> int:
    """The fastest; of equal ones the one that keeps least."""
    return min(probed, key=lambda tenths: (-probed[tenths].per_s, tenths))
