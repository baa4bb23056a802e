"""Which video comes at which position of an epoch: a task alone draws a seeded permutation (law 2).

An order, once drawn, is recorded in `draws` and never drawn again; the dataset may grow or shrink meanwhile. Tasks that
draw together settle their epochs bit by bit; until then such a permutation stands in, and drawing swaps its places.
"""

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.randomness import address_word, begin_address, permuted

__all__ = ["Order", "draw_epoch", "iterations", "order_state"]


def draw_epoch(seed: int, task: str, epoch: int, videos: int) -> NDArray[np.int64]:
    """Return the order of ``videos`` videos (0-based ranks by name) in one epoch: uniform over all orders."""
    return permuted(order_state(seed, task, epoch), videos)


def order_state(seed: int, task: str, epoch: int) -> int:
    """Return what the random words of an epoch's ranks have in common, 64 bits: see `permuted`."""
    return begin_address(seed, "order", address_word(task), epoch)


def iterations(videos: int, videos_per_batch: int, drop_last: bool) -> int:
    """Return how many batches an epoch has; the last one may be short unless it is dropped."""
    return videos // videos_per_batch if drop_last else -(-videos // videos_per_batch)


class Order:
    """Where the videos of some epochs stand, and how far that is settled. Not thread-safe.

    Positions count through the epochs. The *planned index* of a video is the position that it was planned for at first:
    by it stays what was planned for the video (frames, keys, states), while drawing moves it from position to position.
    """

    def __init__(self, ids: NDArray[np.int64], settled: NDArray[np.int64]) -> None:
        """Start as recorded.

        Args:
            ids: (epochs, positions) ``video_id`` that is drawn or planned for each position.
            settled: (epochs,) how many positions of each epoch are drawn for certain.
        """
        self.epochs, self.positions = map(int, ids.shape)
        self.ids = ids.reshape(-1)
        """(planned indexes,) the video of each."""
        self.settled = settled
        """(epochs,) positions that never change again, counted from the first."""
        self.drawn = settled.copy()
        """(epochs,) positions that are drawn, counted from the first; they are settled once that is recorded."""
        self.unrecorded = [set[int]() for _ in range(self.epochs)]
        """Of each epoch the positions at which the catalog may have another video."""
        self._moved: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        """Of each position the planned index that stands there, and where each stands: once one has moved at all, since
        of a million images and five epochs it takes 80 MB."""
        self._by_id: dict[int, NDArray[np.int64]] = {}

    @property
    def moved(self) -> bool:
        """Whether any video has left the position that it was planned for."""
        return self._moved is not None

    def planned_indexes(self, first: int, last: int) -> NDArray[np.int64]:
        """The planned indexes of the videos at positions first…last (exclusive)."""
        return np.arange(first, min(last, self.ids.size)) if self._moved is None else self._moved[0][first:last]

    def planned_index(self, epoch: int, position: int) -> int:
        """The planned index of the video at a position of an epoch."""
        at = epoch * self.positions + position
        return at if self._moved is None else int(self._moved[0][at])

    def positions_of(self, planned_indexes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions at which videos stand, by their planned indexes."""
        return np.array(planned_indexes if self._moved is None else self._moved[1][planned_indexes])

    def waiting(self, epoch: int) -> NDArray[np.int64]:
        """The ids of an epoch that are not drawn yet."""
        start = epoch * self.positions
        return np.asarray(self.ids[self.planned_indexes(start + int(self.drawn[epoch]), start + self.positions)])

    def place(self, epoch: int, position: int, video_id: int) -> tuple[int, int]:
        """Exchange a video with the one that stands at a position; returns both positions in the epoch."""
        start = epoch * self.positions
        target = start + position
        planned = self._planned_index_of(epoch, video_id)
        other = planned if self._moved is None else int(self._moved[1][planned])
        self.unrecorded[epoch].update((position, other - start))
        if other != target:
            if self._moved is None:
                self._moved = np.arange(self.ids.size), np.arange(self.ids.size)
            planned_at, position_of = self._moved
            here, there = planned_at[target], planned_at[other]
            planned_at[target], planned_at[other] = there, here
            position_of[there], position_of[here] = target, other
        return position, other - start

    def settle(self, epoch: int) -> None:
        """All that is drawn of an epoch is recorded."""
        self.settled[epoch] = self.drawn[epoch]
        self.unrecorded[epoch].clear()

    def _planned_index_of(self, epoch: int, video_id: int) -> int:
        start = epoch * self.positions
        if epoch not in self._by_id:
            self._by_id[epoch] = np.argsort(self.ids[start : start + self.positions], kind="stable")
        by_id = self._by_id[epoch]
        ids = self.ids[start : start + self.positions]
        return int(start + by_id[np.searchsorted(ids, video_id, sorter=by_id)])
