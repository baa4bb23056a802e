"""The plan of a task of the same definition, in another order: what jobs of one search have of each other.

Which frames a clip has and what is drawn for it depend on its video, its sample and the epoch of its group, not on
where an order has it (law 2). So the plan of a further job is that of the first one with its rows in another order.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.spec import TaskSpec

__all__ = ["asks_for", "is_twin", "rows_like"]


def is_twin(task: TaskSpec, other: TaskSpec) -> bool:
    """Whether two tasks are the same but for their names and the number of their epochs."""
    return replace(task, name="", epochs=1) == replace(other, name="", epochs=1)


def asks_for(task: TaskSpec, what: str) -> bool:
    """Whether a condition of a task's steps compares with its own ``epoch`` or ``iteration``."""
    conditions = (branch.condition or "" for step in task.steps for branch in step.branches)
    return any(what in condition for condition in conditions)


def rows_like(
    plan: GenerationPlan, items: Items, draws: NDArray[np.int64], group_epoch: int
) -> NDArray[np.int64] | None:
    """The rows of a plan that have the clips of another order.

    Args:
        plan: of a task of the same definition, all of whose positions are planned.
        items: what the other one draws from.
        draws: int64 (epochs, positions): its order, as rows of ``items``.
        group_epoch: the group's epoch of ``draws[0]``.

    Returns:
        (epochs x positions x samples,) rows in that order; None if the plan does not have all of them.
    """
    (epochs, count), samples = draws.shape, plan.task.sampling.samples_per_video
    first = group_epoch - plan.first_epoch - plan.context.joined
    if first < 0 or first + epochs > plan.context.epochs or len(plan) != plan.context.epochs * count * samples:
        return None
    standing = plan.item.reshape(plan.context.epochs, count, samples)[first : first + epochs]
    if (standing != standing[:, :, :1]).any() or not _are_same(plan.items, items, plan.task):
        return None  # another one stands in for one clip, or more is known of a video by now
    position_of = np.full((epochs, len(items)), -1)
    np.put_along_axis(position_of, standing[:, :, 0], np.arange(count)[None, :], axis=1)
    position = np.take_along_axis(position_of, draws, axis=1)
    if (position < 0).any():
        return None
    place = (first + np.arange(epochs))[:, None] * count + position
    return np.asarray((place[:, :, None] * samples + np.arange(samples)).reshape(-1))


def _are_same(items: Items, others: Items, task: TaskSpec) -> bool:
    """Whether the same is known of two plans' items, as far as it decides clips."""
    if items is others:
        return True
    deciding = "ids", "frames", "height", "width", *(("pace", "last") if task.sampling.by_time else ())
    columns = [(getattr(items.videos, name), getattr(others.videos, name)) for name in deciding]
    columns += [(getattr(items, name), getattr(others, name)) for name in ("ids", "first", "length")]
    columns.append((items.videos.keys.packed, others.videos.keys.packed))
    return all(np.array_equal(mine, theirs) for mine, theirs in columns)
