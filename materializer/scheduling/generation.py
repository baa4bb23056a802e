"""Planned clips that are being worked on, and what workers need to make them; those of a generation have a schedule."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.records import SubstitutionRow
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe, VideoSource
from viewcache.materializer.scheduling.schedule import Schedule
from viewcache.materializer.scheduling.work import Makeable, RowState, edges_of
from viewcache.materializer.storage.ledger import Copy
from viewcache.materializer.workers.job import Made

__all__ = ["ActiveGeneration", "PlannedClips"]


class PlannedClips(Makeable):
    """Rows of a plan with the catalog's ids of their objects. Not thread-safe: the dispatcher's lock guards it."""

    plan: GenerationPlan
    object_ids: NDArray[np.int64]
    """(n,) of each row's object."""
    samples: int
    """Clips of a video in an epoch."""

    def __init__(self, task_id: int, source: Callable[[GenerationPlan, int], VideoSource]) -> None:
        """Take whose clips they are, and who gives the video of a row to a worker."""
        self.task_id = task_id
        self._source = source

    @abstractmethod
    def rows(self, epoch: int, iteration: int) -> list[int]:
        """The clips of one batch, in batch order."""

    @abstractmethod
    def place(self, row: int) -> tuple[int, int, int]:
        """Epoch, position and sample of a row."""

    @abstractmethod
    def row_at(self, epoch: int, position: int, sample: int) -> int | None:
        """The row at a place; None if it is not among these clips."""

    @abstractmethod
    def drawn_id(self, row: int) -> int:
        """The item that was drawn for a row's place, whichever gives the clip."""

    @abstractmethod
    def replace(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        """Go on with other videos for some rows; the others keep their states."""

    def key(self, row: int) -> str:
        """Content key of a row's clip."""
        return self.plan.key(row)

    def video(self, row: int) -> str:
        """Content key of the video that a row's clip is of."""
        return self.plan.videos.keys[int(self.plan.video[row])]

    def item_id(self, row: int) -> int:
        """The catalog's id of the item that a row's clip is of."""
        return int(self.plan.items.ids[int(self.plan.item[row])])

    def video_id(self, row: int) -> int:
        """The catalog's id of the video that a row's clip is of."""
        return int(self.plan.videos.ids[int(self.plan.video[row])])

    def bound(self, row: int) -> int:
        """Most bytes that a row's clip takes on disk."""
        return self.plan.bound

    def held(self, row: int) -> int:
        """Most raw bytes that a worker holds while it makes a row: streams that are averaged are whole clips."""
        return self.plan.bound * self.plan.program(row).streams

    def source(self, row: int) -> VideoSource:
        """The video that a row's clip is of."""
        return self._source(self.plan, row)

    def recipe(self, row: int) -> Recipe:
        """How a row's clip is made."""
        return self.plan.recipe(row)

    def recipes(self, rows: Sequence[int]) -> dict[int, Recipe]:
        """How the clips of some rows are made, by row; their frames are found out together."""
        return self.plan.recipes(rows)

    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""
        return Copy(int(self.object_ids[row]), made.key, made.stored, made.written.bytes)


class ActiveGeneration(Schedule[str], PlannedClips):
    """A plan, the order of its clips, the catalog's ids of its objects, and how far each clip is.

    Not thread-safe: the dispatcher's lock guards it.
    """

    def __init__(
        self,
        plan: GenerationPlan,
        order: Order,
        task_id: int,
        object_ids: NDArray[np.int64],
        source: Callable[[GenerationPlan, int], VideoSource],
    ) -> None:
        """Take the plan, its order, the id of each row's object, and who gives the video of a row to a worker."""
        sampling = plan.task.sampling
        PlannedClips.__init__(self, task_id, source)
        Schedule.__init__(
            self, order, plan.first_epoch, plan.iterations, sampling.samples_per_video, sampling.videos_per_batch
        )
        self.group_generation = plan.context.group_generation
        self.policies: dict[int, list[SubstitutionRow]] = {}
        """Planned index of a video → uses of policies that are recorded once its position is settled."""
        self._adopt(plan, object_ids)
        self._leave_out(np.arange(len(plan)))

    def _adopt(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        self.plan = plan
        self.object_ids = object_ids
        self._fill(plan.video, len(plan.videos))
        # Sorted first halves of the keys: a key is found without a dict of a million strings.
        self._halves = plan.keys.view("<u8").reshape(-1, 2)[:, 0]
        self._by_half = np.argsort(self._halves, kind="stable")

    def replace(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        """Go on with other videos for some rows; the others keep their states."""
        states = self._states
        changed = self.plan.keys != plan.keys
        self._adopt(plan, object_ids)
        self._states[:] = states
        self._states[changed] = RowState.PLANNED

    @property
    def number(self) -> int:
        """The generation's number."""
        return self.plan.number

    # Where clips stand ---------------------------------------------------------------------------------------------

    def settled(self, epoch: int) -> int:
        """How many positions of an epoch never change again."""
        return int(self.order.settled[epoch - self.first_epoch])

    def place(self, row: int) -> tuple[int, int, int]:
        """Epoch, position and sample of a row."""
        planned_index, sample = divmod(row, self.samples)
        epoch, position = divmod(int(self.order.positions_of(np.array([planned_index]))[0]), self.order.positions)
        return epoch + self.first_epoch, position, sample

    def row_at(self, epoch: int, position: int, sample: int) -> int | None:
        """The row at a place; None if it is in another generation."""
        if not 0 <= epoch - self.first_epoch < self.order.epochs or position >= self.order.positions:
            return None
        return self.planned_index(epoch, position) * self.samples + sample

    def drawn_id(self, row: int) -> int:
        """The item that was drawn for a row's place, whichever gives the clip."""
        return int(self.order.ids[row // self.samples])

    def planned_index(self, epoch: int, position: int) -> int:
        """The planned index of the video at a position."""
        return self.order.planned_index(epoch - self.first_epoch, position)

    def draw(self, epoch: int, position: int, video_id: int) -> tuple[int, int]:
        """Let a video stand at a position that is not settled; returns the positions that changed."""
        at = epoch - self.first_epoch
        changed = self.order.place(at, position, video_id)
        start = at * self.order.positions
        ranks = [(start + each) * self.samples + sample for each in changed for sample in range(self.samples)]
        self._plan_from(min(ranks))
        self._leave_out(np.concatenate([self._rows_at(rank, rank + 1) for rank in ranks]))
        return changed

    # What the rows are ---------------------------------------------------------------------------------------------

    def rows_of(self, key: str) -> list[int]:
        """The rows that need an object; empty if none does."""
        half = np.frombuffer(bytes.fromhex(key)[:8], "<u8")[0]
        left, right = (np.searchsorted(self._halves, half, side, sorter=self._by_half) for side in ("left", "right"))
        return [row for row in self._by_half[left:right].tolist() if self.plan.key(row) == key]

    def video_number(self, video: Hashable) -> int:
        """The row of a video, by its content key, among the plan's videos; -1 if it is not among them."""
        return self.plan.videos.row_of_key.get(str(video), -1)

    def _video_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(self.plan.video[rows])

    def edges_left(self) -> list[tuple[int, int]]:
        """The soonest row of each video of which clips are worth making ahead, and the edges that are left of it."""
        rows, counts = self._soonest_of_videos()
        return [(row, count * edges_of(self.plan.recipe(row))) for row, count in zip(rows, counts, strict=True)]

    def intermediates(self, row: int) -> Sequence[IntermediateObject]:
        """Intermediates that a row's clip may be made from."""
        return () if self.keeping is None else self.keeping.intermediates.get(self.video(row), ())
