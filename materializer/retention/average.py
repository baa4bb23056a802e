"""What a generation costs of each video and way, on average over the last ones.

The clips of one generation are a small sample of those that come: of ten clips of a video some lie together and are
decoded at once, or far apart. By each generation's own clips a video that is about as well kept as not would be decided
anew with each, and what was built for it dropped and built again.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.horizon import epochs_left
from viewcache.materializer.retention.needs import Floats
from viewcache.materializer.retention.ways import Way

__all__ = ["Average", "Like", "like"]

GENERATIONS = 4
"""So many are looked at."""

KINDS = 4
"""So many kinds of generations are remembered: of groups that are at different places, of tasks that come and go."""

Like = tuple[tuple[int, int, bool], ...]
"""Of each task whose clips a generation has: its number, of how many epochs they are, and whether some come behind."""


def like(plans: Iterable[GenerationPlan], task_ids: Iterable[int]) -> Like:
    """What kind of generation some plans are."""
    return tuple(
        sorted((task, plan.context.epochs, epochs_left(plan) > 0) for task, plan in zip(task_ids, plans, strict=True))
    )


class Average:
    """Of the newest generations that were weighed."""

    def __init__(self) -> None:
        """Nothing was weighed yet."""
        self._cost: CostModel | None = None
        self._seen: dict[Like, dict[int, tuple[tuple[str, ...], tuple[Way, ...], NDArray[np.float32]]]] = {}

    def of(
        self,
        cost: CostModel,
        like: Like,
        generation: int,
        videos: tuple[str, ...],
        ways: tuple[Way, ...],
        again_s: Floats,
    ) -> Floats:
        """The mean of one generation and those before it.

        Args:
            cost: by which it was weighed; what was weighed by quite another one is forgotten.
            like: what its clips are of, see `Like`; only such generations are averaged.
            generation: its number; weighed again, it counts as it is now.
            videos: content keys.
            ways: to keep them.
            again_s: (V, ways) seconds of this generation alone; infinite where a way cannot be had.
        """
        if self._cost is None or cost.moved(self._cost):
            self._seen, self._cost = {}, cost
        seen = self._seen[like] = self._seen.pop(like, {})  # the newest stands last
        for other in list(self._seen)[:-KINDS]:
            del self._seen[other]
        seen[generation] = videos, ways, again_s.astype(np.float32)
        for number in sorted(seen)[:-GENERATIONS]:
            del seen[number]
        total, count = again_s.copy(), np.ones(again_s.shape)
        place = {video: k for k, video in enumerate(videos)}
        for number, (names, columns, seconds) in seen.items():
            if number == generation or columns != ways:
                continue
            rows = np.array([place.get(name, -1) for name in names], np.int64)
            there = np.flatnonzero(rows >= 0)
            known = np.isfinite(seconds[there])
            total[rows[there]] += np.where(known, seconds[there], 0)
            count[rows[there]] += known
        return total / count
