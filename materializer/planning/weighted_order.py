"""The order of an epoch in which items come by weight: each ⌊w⌋ or ⌈w⌉ times, w times on average.

Systematic sampling: the weights are laid end to end in a random order, and every unit from a random start takes the
item that it falls on. The price of epochs of one length is that weights are scaled so that their sum is whole.
"""

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.randomness import ONE, address_word, fraction, permutation

__all__ = ["draw_weighted", "occurrences", "shares_of"]


def shares_of(weights: NDArray[np.float64], length: int) -> NDArray[np.int64]:
    """(n,) how often each item comes, in units of 2**-32, with the sum ``length`` exactly.

    Weights whose sum is ``length`` are kept to half a unit, and whole ones exactly.
    """
    scaled = weights * (length / weights.sum())
    shares = np.round(scaled * ONE).astype(np.int64)
    whole = (shares & (ONE - 1)) == 0
    left = length * ONE - int(shares.sum())
    open_to = np.flatnonzero(~whole)
    if left and len(open_to):  # rounding errors, a unit each where there are as few as items
        each, more = divmod(left, len(open_to))
        shares[open_to] += each
        shares[open_to[:more]] += 1
    return np.asarray(shares, np.int64)


def draw_weighted(
    seed: int, task: str, epoch: int, shares: NDArray[np.int64], strata: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Draw one epoch: ranks of items, as often as their shares say, in a uniformly random order.

    Args:
        seed: of the task.
        task: its name.
        epoch: which.
        shares: (n,) see `shares_of`.
        strata: (n,) numbers from 0 of what the items are of, such as classes: all items of one come together as often
            as their shares add up to, rounded up or down; None = items stand for themselves.

    Returns:
        (length,) 0-based ranks.
    """
    word = address_word(task)
    order = permutation(seed, "weights/order", len(shares), word, epoch)
    if strata is not None:  # those of one stratum lie side by side
        rank = permutation(seed, "weights/strata", int(strata.max()) + 1, word, epoch)
        order = order[np.argsort(rank[strata[order]], kind="stable")]
    ends = np.cumsum(shares[order])
    start = int(fraction(seed, "weights/start", word, epoch))
    taken = -((start - ends) // ONE)  # how many of start, start + 1, start + 2, … lie below each end
    counts = np.diff(np.concatenate([[0], taken]))
    drawn = np.repeat(order, counts)
    return np.asarray(drawn[permutation(seed, "order", len(drawn), word, epoch)])


def occurrences(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each of some ids came before in the same row: ids (..., n), the same shape."""
    flat = ids.reshape(-1, ids.shape[-1])
    out = np.empty_like(flat)
    for row, mine in zip(out, flat, strict=True):
        by_id = np.argsort(mine, kind="stable")
        begins = np.concatenate([[True], mine[by_id][1:] != mine[by_id][:-1]])
        first = np.maximum.accumulate(np.where(begins, np.arange(len(mine)), 0))
        row[by_id] = np.arange(len(mine)) - first
    return out.reshape(ids.shape)
