"""Which video comes at which position of an epoch: a task alone draws a seeded permutation (DESIGN §8.4).

An order, once drawn, is recorded in `draws` and never drawn again; the dataset may grow or shrink meanwhile.
"""

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.keyed import permutation, word

__all__ = ["draw_epoch", "draw_substitute", "iterations"]


def draw_epoch(seed: int, task: str, epoch: int, videos: int) -> NDArray[np.int64]:
    """Return the order of ``videos`` videos (0-based ranks by name) in one epoch: uniform over all orders."""
    return permutation(seed, "order", videos, word(task), epoch)


def draw_substitute(seed: int, task: str, epoch: int, position: int, sample: int, attempt: int, videos: int) -> int:
    """Return which of ``videos`` good videos stands in for a bad one.

    Args:
        seed: of the task.
        task: its name.
        epoch: of the place to fill.
        position: likewise, in the order of the epoch.
        sample: likewise; -1 = all clips of the video.
        attempt: 0 for the first choice, 1 for the next, …; the choices of one place are all different.
        videos: how many there are.
    """
    return int(permutation(seed, "substitute", videos, word(task), epoch, position, sample)[attempt])


def iterations(videos: int, videos_per_batch: int, drop_last: bool) -> int:
    """Return how many batches an epoch has; the last one may be short unless it is dropped."""
    return videos // videos_per_batch if drop_last else -(-videos // videos_per_batch)
