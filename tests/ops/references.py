"""What SciPy says, with types: it ships none, so the tests go through these few functions."""

from importlib import import_module

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["beta_below", "gaussian", "p_even", "p_given", "p_uniform", "turned"]

ndimage = import_module("scipy.ndimage")
stats = import_module("scipy.stats")


def p_even(counts: ArrayLike) -> float:
    """How likely counts as uneven as these are if all cells are equally likely (chi-squared)."""
    return float(stats.chisquare(counts).pvalue)


def p_given(counts: ArrayLike, expected: ArrayLike) -> float:
    """How likely counts as far from the expected ones as these are (chi-squared)."""
    return float(stats.chisquare(counts, expected).pvalue)


def p_uniform(values: ArrayLike) -> float:
    """How likely values as uneven as these are if they are uniform in [0, 1] (Kolmogorov-Smirnov)."""
    return float(stats.kstest(values, "uniform").pvalue)


def beta_below(values: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """The probability that a number of Beta(alpha, alpha) is at most each of the values."""
    return np.asarray(stats.beta.cdf(values, alpha, alpha), np.float64)


def gaussian(plane: NDArray[np.float64], sigma: float, radius: int) -> NDArray[np.float64]:
    """A plane blurred with a Gaussian that ends at a radius, its borders mirrored."""
    return np.asarray(ndimage.gaussian_filter(plane, sigma, mode="mirror", radius=radius), np.float64)


def turned(
    plane: NDArray[np.float64], matrix: NDArray[np.float64], offset: NDArray[np.float64], fill: float
) -> NDArray[np.float64]:
    """A plane whose pixel p is read bilinearly at matrix @ p + offset, ``fill`` outside."""
    moved = ndimage.affine_transform(plane, matrix, offset, order=1, mode="grid-constant", cval=fill)
    return np.asarray(moved, np.float64)
