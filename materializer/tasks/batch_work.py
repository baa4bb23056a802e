"""The clips of one batch, of a generation that is not planned yet: they are made when a reader waits for them."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.recipe import VideoSource
from viewcache.materializer.scheduling.generation import PlannedClips
from viewcache.materializer.scheduling.work import RowState

__all__ = ["BatchWork"]


class BatchWork(PlannedClips):
    """One batch of one task; each row is a clip, or its audio. Not thread-safe: the dispatcher's lock guards it."""

    def __init__(
        self,
        plan: GenerationPlan,
        drawn: Sequence[int],
        task_id: int,
        object_ids: NDArray[np.int64],
        sources: Callable[[GenerationPlan, Sequence[int]], Sequence[VideoSource]],
    ) -> None:
        """Take the plan of the batch, the drawn video of each position, and the id of each row's object."""
        super().__init__(task_id, sources)
        self.plan = plan
        self.object_ids = object_ids
        self.samples = plan.task.sampling.samples_per_video
        self.group_generation = plan.context.group_generation
        self._drawn = tuple(drawn)
        self._states = [RowState.PLANNED] * len(object_ids)

    def rows(self, epoch: int, iteration: int) -> list[int]:
        """All of them: there is one batch."""
        return list(range(len(self.plan)))

    def place(self, row: int) -> tuple[int, int, int]:
        """Epoch, position and sample of a row."""
        plan = self.plan
        return int(plan.epoch[row]), int(plan.position[row]), int(plan.sample[row])

    def row_at(self, epoch: int, position: int, sample: int) -> int | None:
        """The row at a place; None if it is not in the batch."""
        row = (position - int(self.plan.position[0])) * self.samples + sample
        return row if 0 <= row < len(self.plan) and self.place(row) == (epoch, position, sample) else None

    def drawn_id(self, row: int) -> int:
        """The video that was drawn for a row's place."""
        return self._drawn[row // self.samples]

    def go_on(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        """See `PlannedClips.go_on`."""
        for row in np.flatnonzero(self.plan.object_keys != plan.object_keys).tolist():
            self._states[row] = RowState.PLANNED
        self.plan, self.object_ids = plan, object_ids

    def state(self, row: int) -> RowState:
        """How far a row's object is, as far as it was noted."""
        return self._states[row]

    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row's object is."""
        self._states[row] = state

    def rows_of(self, key: str) -> list[int]:
        """The rows that need an object; empty if none does."""
        wanted = bytes.fromhex(key)
        return [row for row, each in enumerate(self.plan.object_keys) if each.tobytes() == wanted]
