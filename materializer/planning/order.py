"""Which video comes at which position of an epoch: a task alone draws a seeded permutation (law 2).

An order, once drawn, is recorded in `draws` and never drawn again; the dataset may grow or shrink meanwhile. Tasks that
draw together settle their epochs bit by bit; until then such a permutation stands in, and drawing swaps its places.
"""

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.randomness import permutation, word

__all__ = ["Order", "draw_epoch", "iterations"]


def draw_epoch(seed: int, task: str, epoch: int, videos: int) -> NDArray[np.int64]:
    """Return the order of ``videos`` videos (0-based ranks by name) in one epoch: uniform over all orders."""
    return permutation(seed, "order", videos, word(task), epoch)


def iterations(videos: int, videos_per_batch: int, drop_last: bool) -> int:
    """Return how many batches an epoch has; the last one may be short unless it is dropped."""
    return videos // videos_per_batch if drop_last else -(-videos // videos_per_batch)


class Order:
    """Where the videos of some epochs stand, and how far that is settled. Not thread-safe.

    A *slot* is a position of an epoch, a *seat* is the video that was planned for that slot at first: seats keep what
    was planned for them (frames, keys, states) while drawing moves them from slot to slot.
    """

    def __init__(self, ids: NDArray[np.int64], settled: NDArray[np.int64]) -> None:
        """Start as recorded.

        Args:
            ids: (epochs, positions) ``video_id`` that is drawn or planned for each slot.
            settled: (epochs,) how many positions of each epoch are drawn for certain.
        """
        self.epochs, self.positions = ids.shape
        self.ids = ids.reshape(-1)
        """(seats,) the video of each seat."""
        self.settled = settled
        """(epochs,) positions that never change again, counted from the first."""
        self.moved = False
        """Whether any seat has left its slot."""
        self._seat_at = np.arange(self.ids.size)
        self._slot_of = np.arange(self.ids.size)
        self._by_id: dict[int, NDArray[np.int64]] = {}

    def seats(self, first: int, last: int) -> NDArray[np.int64]:
        """The seats at slots first…last (exclusive); slots count through the epochs."""
        return self._seat_at[first:last]

    def slots(self, seats: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where seats stand."""
        return np.asarray(self._slot_of[seats])

    def waiting(self, epoch: int) -> NDArray[np.int64]:
        """The ids of an epoch that are not drawn yet."""
        start = epoch * self.positions
        return np.asarray(self.ids[self._seat_at[start + int(self.settled[epoch]) : start + self.positions]])

    def place(self, epoch: int, position: int, video_id: int) -> tuple[int, int]:
        """Let a video stand at a position, in exchange with who stands there; returns the two slots."""
        start = epoch * self.positions
        slot = start + position
        other = int(self._slot_of[self._seat(epoch, video_id)])
        if other != slot:
            self.moved = True
            here, there = self._seat_at[slot], self._seat_at[other]
            self._seat_at[slot], self._seat_at[other] = there, here
            self._slot_of[there], self._slot_of[here] = slot, other
        return slot, other

    def _seat(self, epoch: int, video_id: int) -> int:
        start = epoch * self.positions
        if epoch not in self._by_id:
            self._by_id[epoch] = np.argsort(self.ids[start : start + self.positions], kind="stable")
        by_id = self._by_id[epoch]
        ids = self.ids[start : start + self.positions]
        return int(start + by_id[np.searchsorted(ids, video_id, sorter=by_id)])
