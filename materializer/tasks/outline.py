"""What a task's batches will look like before anything is drawn: shape, sizes, most bytes; and which videos do not fit.

Planned like a generation, neither drawn nor recorded.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.errors import BadInput
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.order import iterations
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.plan_generation import plan_generation
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.tasks.early import Early

__all__ = ["Outline"]


class OutlinedTask(Protocol):
    """What is asked of the task."""

    spec: TaskSpec
    graph: AbstractGraph
    dataset: Dataset
    task_id: int
    early: Early

    @property
    def seed(self) -> int:
        """Of its random numbers."""

    @property
    def grid(self) -> int:
        """Of the clip starts of what is not planned."""

    def is_large(self, number: int) -> bool:
        """Whether planning a generation takes long, and is still to be done."""

    def planned(self, number: int) -> ActiveGeneration | None:
        """A generation, if it is planned."""

    def generation(self, number: int) -> ActiveGeneration:
        """A generation's plan, drawn now if it is new."""

    def positions(self, epoch: int) -> int:
        """Videos in an epoch; draws its generation."""

    def iterations(self, epoch: int) -> int:
        """Batches in an epoch; draws its generation."""


class Outline:
    """What the batches of one task will look like."""

    def __init__(self, task: OutlinedTask, catalog: Catalog) -> None:
        """Look at a task."""
        self._task = task
        self._catalog = catalog
        self._shape: tuple[int, ...] | None = None
        self._shapes: dict[tuple[int, int], tuple[int, ...] | str] = {}
        """Size of a video → shape of its clips, or why there are none."""

    def clip_shape(self) -> tuple[int, ...]:
        """Shape of every clip; plans the first generation unless it is large, or the dataset grows."""
        task = self._task
        if task.is_large(0):
            return task.early.trial().shape
        if not task.spec.dataset.grows:
            return task.generation(0).plan.shape
        if self._shape is None:
            self._shape = self._trial().shape
        return self._shape

    def most_iterations(self) -> int:
        """Batches that an epoch has at most; of a dataset that grows as many as all its items would give."""
        task, dataset = self._task, self._task.dataset
        if not task.spec.dataset.grows:
            return task.iterations(0)
        return iterations(
            len(dataset.items) + len(dataset.files.gone), task.spec.sampling.videos_per_batch, drop_last=False
        )

    def batch_sizes(self) -> set[int]:
        """How many videos a batch of the first epoch has: the usual number, and that of the last batch.

        A large dataset is not drawn for it. Of a dataset that grows the last batch of some epoch may have a single one,
        unless it is dropped.
        """
        task, size = self._task, self._task.spec.sampling.videos_per_batch
        if task.spec.dataset.grows:
            return {size} if task.spec.drop_last else {size, 1}
        count = len(task.early.candidates()) if task.is_large(0) else task.positions(0)
        batches = iterations(count, size, task.spec.drop_last)
        return {min(size, count - iteration * size) for iteration in (0, batches - 1)}

    def batch_bound(self) -> tuple[int, int]:
        """Most bytes that one batch takes in the store, and how many clips that are; draws nothing.

        Raises:
            BadVideo: a video is bad and the policy is ``raise``.
            BadInput: the task selects no video, or its clips would differ in shape.
        """
        task, sampling = self._task, self._task.spec.sampling
        if task.is_large(0):
            plan = task.early.trial()
            clips = min(sampling.videos_per_batch, len(task.early.candidates())) * sampling.samples_per_video
        else:
            active = task.planned(0)
            plan = self._trial() if active is None else active.plan
            clips = len(plan.rows(plan.first_epoch, 0))
        if task.spec.dataset.grows:  # there may be few yet
            clips = sampling.videos_per_batch * sampling.samples_per_video
        if plan.blocks is None:
            return clips * plan.room, clips
        return clips * plan.room + plan.bound, clips  # of a short batch the last block counts as much as a long one

    def _trial(self) -> GenerationPlan:
        """One epoch in the order of names: what a plan would look like."""
        task = self._task
        if self._catalog.is_drawn(task.task_id, 0):
            return task.generation(0).plan
        task.dataset.files.headers.wait()
        return self._plan(task.dataset, task.dataset.epoch_like(task.dataset.candidates(task.spec)), spare=False)

    def _plan(self, dataset: Dataset, ids: NDArray[np.int64], *, spare: bool) -> GenerationPlan:
        task = self._task
        items, draws, _ = dataset.resolve_draws(task.spec, task.seed, 0, ids[None], {})
        return plan_generation(
            task.spec,
            task.graph,
            items,
            draws,
            seed=task.seed,
            number=0,
            first_epoch=0,
            grid=task.grid,
            ticks_of=dataset.ticks,
            spare=spare,
        )

    def misfits(self, dataset: Dataset, ids: NDArray[np.int64], like: int) -> dict[int, str]:
        """Which items would give clips of another shape than one that was drawn, or none; each with the reason.

        Args:
            dataset: of the task, which it may not have taken in yet.
            ids: of items that can be decoded.
            like: the one that was drawn.
        """
        files, rows = dataset.files, dataset.file_rows(ids.tolist())
        sizes = list(zip(files.height[rows].tolist(), files.width[rows].tolist(), strict=True))
        for at in {size: at for at, size in enumerate(sizes) if size not in self._shapes}.values():
            self._shapes[sizes[at]] = self._shape_of(dataset, ids[at : at + 1])
        shape = self._shape_of(dataset, np.array([like]))
        return {
            item_id: f"{files.uris[row]}: {_unlike(self._shapes[size], shape)}"
            for item_id, row, size in zip(ids.tolist(), rows, sizes, strict=True)
            if self._shapes[size] != shape
        }

    def _shape_of(self, dataset: Dataset, one: NDArray[np.int64]) -> tuple[int, ...] | str:
        try:
            return self._plan(dataset, one, spare=True).shape
        except BadInput as error:
            return str(error)


def _unlike(found: tuple[int, ...] | str, usual: tuple[int, ...] | str) -> str:
    if isinstance(found, str):
        return found
    return f"it gives clips of {found}, those drawn before are {usual}; end with a crop, or a resize to a shape"
