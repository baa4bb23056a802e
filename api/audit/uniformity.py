"""Tests of what was drawn against the uniform law, each on draws that are independent if that law holds (law 2).

Pure functions from arrays to a `Check`. A test is only as honest as its law: what a generation shares is taken out
before, discrete draws are spread evenly over their step, and statistics of orders have their exact mean. Which
statistic is valid for what, and why, says docs/design/0010-verify-statistics.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from importlib import import_module
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import MissingExtra

__all__ = ["LEAST_VALUES", "SURE", "UNLIKELY", "Check", "Verdict", "density_check", "holm", "order_checks"]

SURE = 1e-6
"""An adjusted p below this is no chance but an error: one cache in a million is accused wrongly."""

UNLIKELY = 0.01
"""An adjusted p below this is worth a second look when more epochs are drawn."""

LEAST_VALUES = 50
"""Below five values in each tenth the chi-square law does not hold."""

_TENTHS = 10
_BUCKETS = 5
"""Parts of an epoch that orders are compared by."""


class Verdict(StrEnum):
    """What a check says of what was drawn."""

    FITS = "fits"
    UNLIKELY = "unlikely"
    NOT_UNIFORM = "not uniform"
    TOO_FEW = "too few to tell"


@dataclass(frozen=True, slots=True)
class Check:
    """One test of uniformity and what came out."""

    about: str
    """``place``, ``next``, ``neighbours``, ``start``, ``crop rows`` or ``crop columns``."""
    of: str
    """What was counted, in words."""
    n: int
    """How many independent draws."""
    law: str = ""
    """Distribution of the statistic if draws are uniform."""
    statistic: float | None = None
    p: float | None = None
    """Chance of a statistic at least as far off; None if there are too few draws to tell."""
    adjusted: float | None = None
    """The same with all checks of the cache taken into account (Holm 1979); see `holm`."""
    density: tuple[float, ...] = ()
    """Per tenth of the range, 1 = uniform; of `density_check` only."""

    @property
    def verdict(self) -> Verdict:
        """What the adjusted p says."""
        if self.adjusted is None:
            return Verdict.TOO_FEW
        if self.adjusted < SURE:
            return Verdict.NOT_UNIFORM
        return Verdict.UNLIKELY if self.adjusted < UNLIKELY else Verdict.FITS


def density_check(about: str, of: str, values: NDArray[np.float64]) -> Check:
    """Test that independent values are uniform in [0, 1), by tenths.

    Args:
        about: see `Check`.
        of: likewise.
        values: (n,) float64; a discrete draw j of N counts as (j + V) / N with V uniform.

    Raises:
        MissingExtra: SciPy is not installed.
    """
    counts = np.bincount(np.minimum((values * _TENTHS).astype(np.int64), _TENTHS - 1), minlength=_TENTHS)
    n = len(values)
    if not n:
        return Check(about, of, 0)
    expected = n / _TENTHS
    check = Check(about, of, n, density=tuple((counts / expected).tolist()))
    if n < LEAST_VALUES:
        return check
    chi = float(((counts - expected) ** 2).sum() / expected)
    law = f"chi-square, {_TENTHS - 1} degrees of freedom"
    return replace(check, law=law, statistic=chi, p=_above_chi_square(_TENTHS - 1, chi))


def order_checks(orders: Sequence[NDArray[np.int64]]) -> list[Check]:
    """Test that the orders of epochs are uniformly random and independent of one another.

    Args:
        orders: per epoch the ids of its videos in the order drawn, each once. The videos that are in all epochs are
            looked at: if an order is uniform, so is that of some of its videos.

    Returns:
        ``place``: no video comes early or late more often than others, epoch after epoch. ``next``: where a video
        stands says nothing about where it stands in the next epoch; before the first is the listing by id.
        ``neighbours``: videos that are near each other in the listing do not come one after another.

    Raises:
        MissingExtra: SciPy is not installed.
    """
    # With a first value, so that one order is sorted too.
    common = reduce(np.intersect1d, orders, orders[0]) if orders else np.empty(0, np.int64)
    places = np.empty((len(orders), len(common)), np.int64)
    for at, order in zip(places, orders, strict=True):
        # Position among the common videos; columns stand for videos by id.
        at[:] = np.argsort(np.searchsorted(common, order[np.isin(order, common)]))
    return [_place(places), _next(places), _neighbours(places)]


def holm(checks: Sequence[Check]) -> list[Check]:
    """The checks with p adjusted for their number: the chance that any of them is so far off if all draws are uniform.

    Holds whatever the checks have to do with one another, e.g. those of tasks that share draws.
    """
    by_p = sorted((k for k, check in enumerate(checks) if check.p is not None), key=lambda k: checks[k].p or 0.0)
    out, at_least = list(checks), 0.0
    for done, k in enumerate(by_p):
        at_least = max(at_least, min(1.0, (checks[k].p or 0.0) * (len(by_p) - done)))
        out[k] = replace(checks[k], adjusted=at_least)
    return out


def _place(places: NDArray[np.int64]) -> Check:
    """Concordance of the epochs, Kendall's W on fifths of an epoch instead of ranks.

    With N the counts of (video, fifth), Q = (n-1)/n * sum (N - expected)**2 / expected has mean d = (n-1)(fifths-1) and
    variance 2d(E-1)/E exactly, and lies in [0, E*d]; W = Q/(E*d) is near a Beta law of that mean and variance.
    """
    epochs, n = places.shape
    check = Check("place", "video x fifth of the epoch", epochs * n)
    fifths = min(n, _BUCKETS)
    if epochs < 2 or n < 3 or epochs * n < LEAST_VALUES:
        return check
    sizes = _sizes(n, fifths)
    counts = np.zeros((n, fifths))
    np.add.at(counts, (np.broadcast_to(np.arange(n), places.shape), _bucket(places, n, fifths)), 1)
    expected = epochs * sizes / n
    freedom = (n - 1) * (fifths - 1)
    q = float(((counts - expected) ** 2 / expected).sum() * (n - 1) / n)
    w = min(1.0, q / (epochs * freedom))  # rounding must not leave the law's range
    a = freedom / 2 - 1 / epochs
    special = _special()
    low, high = float(special.betainc(a, (epochs - 1) * a, w)), float(special.betaincc(a, (epochs - 1) * a, w))
    law = f"concordance of {epochs} epochs, Beta({a:.4g}, {(epochs - 1) * a:.4g})"
    # Both ends: orders that are too alike, and orders that avoid one another.
    return replace(check, law=law, statistic=w, p=min(1.0, 2 * min(low, high)))


def _next(places: NDArray[np.int64]) -> Check:
    """Table of (part of one epoch, part of the next), added up over the pairs of epochs, which are independent."""
    epochs, n = places.shape
    check = Check("next", "part of an epoch x part of the next", epochs * n)
    parts = min(_BUCKETS, n, isqrt(epochs * n // 5))  # five in each cell
    if parts < 2 or epochs * n < LEAST_VALUES:
        return check
    before = np.vstack([np.arange(n), places[:-1]])
    table = np.zeros((parts, parts))
    np.add.at(table, (_bucket(before, n, parts), _bucket(places, n, parts)), 1)
    sizes = _sizes(n, parts)
    expected = epochs * np.outer(sizes, sizes) / n
    freedom = (parts - 1) ** 2
    # Margins are fixed, so a cell varies by n/(n-1) more than the textbook's independent counts.
    chi = float(((table - expected) ** 2 / expected).sum() * (n - 1) / n)
    law = f"chi-square, {freedom} degrees of freedom"
    return replace(check, law=law, statistic=chi, p=_above_chi_square(freedom, chi))


def _neighbours(places: NDArray[np.int64]) -> Check:
    """Serial correlation of the listing's numbers around each epoch (Wald and Wolfowitz 1943), a sum over epochs."""
    epochs, n = places.shape
    check = Check("neighbours", "pairs that follow one another", epochs * n)
    if n < 5 or epochs * n < LEAST_VALUES:
        return check
    listed = np.argsort(places, axis=1) - (n - 1) / 2
    serial = float((listed * np.roll(listed, -1, axis=1)).sum())
    numbers = np.arange(n) - (n - 1) / 2
    squares, fourths = float((numbers**2).sum()), float((numbers**4).sum())
    mean = -squares / (n - 1)
    variance = (squares**2 - fourths) / (n - 1) + (squares**2 - 2 * fourths) / ((n - 1) * (n - 2)) - mean**2
    z = (serial - epochs * mean) / (epochs * variance) ** 0.5
    p = float(2 * _special().ndtr(-abs(z)))
    return replace(check, law="normal", statistic=z, p=p)


def _bucket(places: NDArray[np.int64], n: int, buckets: int) -> NDArray[np.int64]:
    return np.asarray(places * buckets // n)


def _sizes(n: int, buckets: int) -> NDArray[np.int64]:
    return np.bincount(_bucket(np.arange(n), n, buckets), minlength=buckets)


def _above_chi_square(freedom: int, chi: float) -> float:
    return float(_special().chdtrc(freedom, chi))


def _special() -> Any:
    """SciPy's special functions; loaded here because only these tests need them."""
    try:
        return import_module("scipy.special")
    except ImportError as missing:
        raise MissingExtra("the tests of randomness need SciPy: pip install 'viewcache[verify]'") from missing
