"""Which video stands in for one that is bad or gone: drawn by the place of the clip, not by when it was found out.

The draw is over all videos that the task selects, and passes over those that cannot give the clip. So it does not
matter whether these were known when the clip was planned, or turn out one after the other. All clips of a place have
one draw: else it would matter whether its video was known to be bad, or failed clip by clip.
"""

from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.randomness import Sequence, address_word, hash_address

__all__ = ["stand_in_for", "substitute_place"]

PICKS = 64
"""Draws after which it is looked at all that are left: only where few of the videos are whole does it come to that."""


def substitute_place(position: int, video_id: int, *, by_video: bool) -> int:
    """Return the address for `stand_in_for`: the position, or the video where positions may still change."""
    return (1 << 40) + video_id if by_video else position


def stand_in_for(
    seed: int,
    task: str,
    epoch: int,
    place: int,
    ids: NDArray[np.int64],
    may: NDArray[np.bool_],
    tried: Container[int] = (),
) -> int | None:
    """The first of the videos that are drawn for a place that can give its clips; None if none can.

    Args:
        seed: of the task.
        task: its name.
        epoch: of the place to fill.
        place: its address, see `substitute_place`.
        ids: (videos,) of all that the task selects, in the order of names.
        may: (videos,) whether each is one that can stand in, as far as is known.
        tried: ids of videos that could not.
    """
    address = "substitute", address_word(task), epoch, place
    draw = Sequence(int(hash_address(seed, *address)))
    for _ in range(PICKS):
        at = draw.below(len(ids))
        if may[at] and int(ids[at]) not in tried:
            return int(ids[at])
    left = [at for at in np.flatnonzero(may).tolist() if int(ids[at]) not in tried]
    if not left:
        return None
    order = hash_address(seed, *address, np.array(left, np.uint64))
    return int(ids[left[int(order.argmin())]])
