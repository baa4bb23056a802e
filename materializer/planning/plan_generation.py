"""Decide every clip of a generation, or of one batch of it, to the same clips (SAND §5.2)."""

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.planning.clip_times import Ticks
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.order import iterations
from viewcache.materializer.planning.plan import GenerationPlan, PlanContext
from viewcache.materializer.spec import TaskSpec

__all__ = ["plan_batch", "plan_generation"]


def plan_generation(
    task: TaskSpec,
    graph: AbstractGraph,
    items: Items,
    draws: NDArray[np.int64],
    *,
    seed: int,
    number: int,
    first_epoch: int,
    grid: int,
    ticks_of: Ticks,
    joined: int = 0,
    group_generation: int | None = None,
    spare: bool = False,
    before: NDArray[np.int64] | None = None,
) -> GenerationPlan:
    """Decide every clip of a generation.

    Args:
        task: what is asked.
        graph: its checked steps.
        items: what it draws from.
        draws: int64 (epochs, positions): rows of ``items`` in the order of each epoch.
        seed: of the random numbers.
        number: the generation's number.
        first_epoch: epoch of ``draws[0]``.
        grid: greatest common divisor of the pitches of the group's tasks.
        ticks_of: tells of videos whose frames are not evenly spaced; asked where sampling is by time.
        joined: epoch of the group in which the task had its first; the addresses of random choices count from there.
        group_generation: the group's generation, an address of the shared fraction; None = ``number``.
        spare: plan what ``drop_last`` drops too, because the order is not settled yet.
        before: int64 (epochs, videos): how often the drawn video came before in its epoch; None = each comes once.

    Raises:
        BadInput: clips would differ in shape, or an operation does not fit a video's frames.
    """
    sampling = task.sampling
    epochs, count = draws.shape
    per_epoch = iterations(count, sampling.videos_per_batch, task.drop_last)
    used = count if spare else min(count, per_epoch * sampling.videos_per_batch)
    epoch, position, sample = (
        axis.reshape(-1) for axis in np.indices((epochs, used, sampling.samples_per_video), np.int64)
    )
    iteration = position // sampling.videos_per_batch
    group_generation = number if group_generation is None else group_generation
    context = PlanContext(
        task, graph, items, seed, number, first_epoch, epochs, per_epoch, grid, ticks_of, joined, group_generation
    )
    ordinal = sample if before is None else before[epoch, position] * sampling.samples_per_video + sample
    return context.plan(epoch + first_epoch, iteration, position, sample, ordinal, draws[epoch, position])


def plan_batch(
    task: TaskSpec,
    graph: AbstractGraph,
    items: Items,
    draws: NDArray[np.int64],
    *,
    seed: int,
    number: int,
    epochs: range,
    positions: int,
    epoch: int,
    iteration: int,
    grid: int,
    ticks_of: Ticks,
    joined: int,
    group_generation: int,
    before: NDArray[np.int64] | None = None,
) -> GenerationPlan:
    """Decide the clips of one batch as `plan_generation` would, of a generation that is not planned yet.

    Args:
        task: what is asked.
        graph: its checked steps.
        items: what it draws from.
        draws: (positions of the batch,) rows of ``items`` in its order.
        seed: of the random numbers.
        number: the generation's number.
        epochs: of the generation.
        positions: items in an epoch.
        epoch: of the batch.
        iteration: of the batch.
        ticks_of: as for `plan_generation`.
        grid: as for `plan_generation`, like what follows.
        joined: likewise.
        group_generation: likewise.
        before: (positions of the batch,) likewise.

    Returns:
        A plan whose rows are the clips of the batch; `GenerationPlan.row` and `rows` do not hold for it.

    Raises:
        BadInput: clips would differ in shape, or an operation does not fit a video's frames.
    """
    size, samples = task.sampling.videos_per_batch, task.sampling.samples_per_video
    per_epoch = iterations(positions, size, task.drop_last)
    of_generation = number, epochs.start, len(epochs), per_epoch, grid, ticks_of, joined, group_generation
    context = PlanContext(task, graph, items, seed, *of_generation)
    place, sample = (axis.reshape(-1) for axis in np.indices((len(draws), samples), np.int64))
    of_epoch, of_batch = np.full(len(place), epoch), np.full(len(place), iteration)
    ordinal = sample if before is None else before[place] * samples + sample
    return context.plan(of_epoch, of_batch, iteration * size + place, sample, ordinal, draws[place])
