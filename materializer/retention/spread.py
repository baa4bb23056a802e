"""Which of many equal items are kept, so that every batch has its share of them (Liquid §5).

Items that are as good as one another must not be taken in the order of need: an epoch would read only kept pictures at
first and only decode in the end, so that the disk is waited for in one half and the cores in the other. A keyed shuffle
spreads them as dice do. Where the batches are known they are spread evenly, nearly to one. The trade-off: items are
looked at some at a time, so that of those looked at together several may come into one batch.
"""

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.randomness import hash_address

__all__ = ["shuffled", "spread"]

NOWHERE = -1
"""The batch of an item that an epoch does not have."""

AT_ONCE = 8
"""Items that are looked at together are one for so many batches."""


def shuffled(keys: tuple[str, ...]) -> NDArray[np.uint64]:
    """(n,) by what items are sorted where they are as good as one another, the same for ever.

    Args:
        keys: their content keys, 32 hex digits each.
    """
    words = np.frombuffer(bytes.fromhex("".join(keys)), "<u8").reshape(-1, 2)
    return hash_address(0, "keep/ties", *words.T)


def spread(batches: NDArray[np.int32], count: int, order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Choose some items so that every batch has as many of them as any other of its size.

    Args:
        batches: (epochs, n) the batch of each item in each epoch, or `NOWHERE`.
        count: how many to choose.
        order: (n,) in which they are looked at, without regard to batches.

    Returns:
        (n,) whether an item was chosen; just ``count`` are.
    """
    epochs, items = batches.shape
    chosen = np.zeros(items, np.bool_)
    if not 0 < count < items:
        chosen[:] = count > 0
        return chosen
    share = count / items
    there = batches != NOWHERE
    most = int(batches.max(initial=0)) + 1
    place = np.where(there, batches + np.arange(epochs)[:, None] * most, 0)
    over = np.zeros(epochs * most)  # by how much a batch has more than its share of what was looked at

    def much(which: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much the batches of some items have more than their share, on the whole."""
        return np.asarray((over[place[:, which]] * there[:, which]).sum(axis=0))

    step = max(1, most // AT_ONCE)
    for start in range(0, items, step):
        which = order[start : start + step]
        # Taken, it adds 1 - share to each of its batches; else it takes share from them: what leaves the least squares.
        take = much(which) <= there[:, which].sum(axis=0) * (share - 0.5)
        chosen[which] = take
        np.add.at(over, place[:, which], np.where(there[:, which], take - share, 0.0))
    wrong = int(chosen.sum()) - count
    if wrong:
        which = order[chosen[order] == (wrong > 0)]
        worst = np.argsort(-much(which) if wrong > 0 else much(which), kind="stable")[: abs(wrong)]
        chosen[which[worst]] = wrong < 0
    return chosen
