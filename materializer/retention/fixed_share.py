"""Keeping a stated share of all items, whatever that saves: Liquid's ratio of decoded to encoded ones, by hand.

Which items are kept says nothing of them: they are drawn, evenly over the batches, so that each batch has its share.
The trade-off: `balance` finds the best share and the best items; a share of one's own is for comparing with others, and
for machines of which nobody measured the disks.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.retention.choice import Options, WayChoice, prune, taken
from viewcache.materializer.retention.spread import spread

__all__ = ["keep_share"]


def keep_share(
    options: Options, budget: int, share: float, keeps: NDArray[np.bool_], before: NDArray[np.bool_]
) -> WayChoice:
    """Keep something of a share of the items, each in the way that is cheapest for it, and nothing of the others.

    Where the budget cannot hold that, fewer items are kept.

    Args:
        options: all ways.
        budget: bytes for what is kept.
        share: 0 to 1.
        keeps: (ways,) whether a way keeps clips or pictures.
        before: (V,) items that were kept before: they stay among those that are, so that nothing is made anew.
    """
    count = round(share * len(options.bytes))
    chosen = _drawn(options, count, before)
    asked = chosen[:, None] == keeps[None]
    there = (asked & np.isfinite(options.cost_s)).any(axis=1)  # of some items nothing can be kept
    wanted = np.where(asked | ~there[:, None], options.cost_s, np.inf)
    choice = prune(replace(options, cost_s=wanted), budget)
    if choice.short_bytes:
        wanted = np.where(asked | ~keeps[None], options.cost_s, np.inf)
        choice = prune(replace(options, cost_s=wanted), budget)
    return taken(options, choice.option, budget)


def _drawn(options: Options, count: int, before: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(V,) so many of the items, those of before first."""
    stays, others = (options.in_turn(np.flatnonzero(each)) for each in (before, ~before))
    chosen = np.zeros(len(before), np.bool_)
    chosen[stays[:count]] = True
    left = max(0, count - len(stays))
    batches = options.batches
    if batches is None:
        chosen[others[:left]] = True
    else:
        chosen[others[spread(batches[:, others], left, np.arange(len(others)))]] = True
    return chosen
