"""The epochs behind a generation: how many of its like come, and which frames their clips can have.

What is drawn there is not known yet. Each further epoch is expected to need of each video what an epoch of this
generation needs of it, wherever in the video its clips begin.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.plan import GenerationPlan

__all__ = ["Reach", "Reached", "epochs_left", "generations_later", "may_last", "reached_by_others"]


def epochs_left(plan: GenerationPlan) -> int:
    """How many epochs of its task come behind a plan's generation."""
    return max(0, plan.task.epochs - 1 - plan.last_epoch)


def generations_later(plans: Sequence[GenerationPlan]) -> float:
    """How many generations like that of some plans come behind it, by the clips that their tasks have left."""
    clips = later = 0.0
    for plan in plans:
        if left := epochs_left(plan):
            clips += len(plan)
            later += len(plan) * left / plan.context.epochs
    return later / clips if clips else 0.0


def may_last(plans: Sequence[GenerationPlan]) -> bool:
    """Whether something may be of use behind its generation: there are epochs before some plans, or behind."""
    return any(plan.first_epoch + plan.context.joined or epochs_left(plan) for plan in plans)


@dataclass(frozen=True, slots=True)
class Reached:
    """The frames that clips of one task can have: m runs, of items of its videos."""

    keys: Sequence[str]
    """Content keys of its videos."""
    video: NDArray[np.int64]
    """(m,) of which of them each run is."""
    begin: NDArray[np.int64]
    """(m,) the first frame of each."""
    frames: NDArray[np.int64]
    """(m,) how many it has."""
    stride: int
    """In frames; 1 where clips are placed by time."""

    @classmethod
    def by(cls, plan: GenerationPlan) -> "Reached":
        """By the task of a plan."""
        items, sampling = plan.items, plan.task.sampling
        stride = 1 if sampling.by_time else sampling.frame_stride
        return cls(plan.videos.keys, items.video, items.begin, items.frames, stride)


def reached_by_others(
    newest: Mapping[int, tuple[int, GenerationPlan]], number: int, tasks: Collection[int]
) -> list[Reached]:
    """What clips of other tasks can have: pictures that last are made for all, or each would have keys of its own.

    A task counts that has epochs behind its newest plan; one in its last generation, or through with it, for that and
    those before: tasks of the same length end one after the other, and the last of them uses what is there. One of a
    single generation does not, since nothing lasts for it: the pictures of a training would be of all frames of one
    validation. Nor do images, of which each picture is of one frame.

    Args:
        newest: the newest plan of each task of which something is planned, and its generation of the group; by task.
        number: the generation of the group for which it is decided what is kept.
        tasks: those for which it is.
    """
    counted = (
        plan
        for task_id, (generation, plan) in newest.items()
        if task_id not in tasks
        and plan.blocks is None
        and (epochs_left(plan) or (plan.first_epoch and generation >= number))
    )
    return [*map(Reached.by, counted)]


class Reach:
    """The frames that clips of some videos can have, whatever is drawn: those of all items of each."""

    def __init__(self, tasks: Sequence[Reached], places: Sequence[NDArray[np.int64]], count: int) -> None:
        """Of so many videos, and which of these each video of each task is; -1 if none."""
        found = []
        self.strides = np.zeros(count, np.int64)
        """(V,) the greatest common divisor of the strides of all tasks that have the video."""
        for task, of_video in zip(tasks, places, strict=True):
            mine = np.unique(of_video[of_video >= 0])
            self.strides[mine] = np.gcd(self.strides[mine], task.stride)
            found.append(np.stack([of_video[task.video], task.begin, task.begin + task.frames]))
        video, first, last = np.concatenate(found, axis=1)
        there = (video >= 0) & (last > first)
        order = np.lexsort((first[there], video[there]))
        self._video, first, last = video[there][order], first[there][order], last[there][order]
        # Where each run of frames that are reached begins: behind the last frame of all items before it.
        far = int(last.max(initial=0)) + 1
        until = np.maximum.accumulate(self._video * far + last) - self._video * far
        before = np.zeros(len(last), np.int64)
        same = self._video[1:] == self._video[:-1]
        before[1:] = np.where(same, until[:-1], 0)
        self._first, self._last = np.maximum(first, before), last
        size = np.maximum(0, self._last - self._first)
        self.counts = np.bincount(self._video, size, count).astype(np.float64)
        """(V,) how many frames there are of each video."""

    def frames(self, place: int) -> NDArray[np.int32]:
        """The frames of one video, rising."""
        start, stop = np.searchsorted(self._video, (place, place + 1))
        runs = zip(self._first[start:stop].tolist(), self._last[start:stop].tolist(), strict=True)
        found = [np.arange(first, last, dtype=np.int32) for first, last in runs]
        return np.concatenate([np.zeros(0, np.int32), *found])
