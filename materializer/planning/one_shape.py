"""Whether all clips of a plan have one shape, as those of a task must: a batch takes any of them."""

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.arrays import distinct
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.planning.resolve import Resolved
from viewcache.materializer.spec import TaskSpec

__all__ = ["check_shape", "one_shape"]


def one_shape(task: TaskSpec, resolved: Resolved, items: Items, item: NDArray[np.int64]) -> tuple[int, ...]:
    """The shape that all clips have: (T,C,H,W), or (V,T,C,H,W) after ``stack``.

    Raises:
        BadInput: two differ, which the message names, or there are no clips.
    """
    height, width = resolved.shape
    clips = f"{task.dataset.media.clip}s"
    if not len(height):
        media = task.dataset.media
        raise BadInput(
            f"task {task.name!r}: no clips to make: there are {len(items)} {media}s to draw, and drop_last leaves out "
            f"a batch of fewer than {media.batch_key}, {task.sampling.videos_per_batch}"
        )
    odd = np.flatnonzero((height != height[0]) | (width != width[0]))
    if len(odd):
        a, b = 0, int(odd[0])
        raise BadInput(
            f"task {task.name!r}: all {clips} must have one size, but {items.named(int(item[a]))!r} gives "
            f"{height[a]}x{width[a]} and {items.named(int(item[b]))!r} gives {height[b]}x{width[b]}; end with a crop, "
            "or a resize to a shape"
        )
    leads = sorted({resolved.lead[k] for k in distinct(resolved.program).tolist()})
    if len(leads) > 1:
        raise BadInput(
            f"task {task.name!r}: all {clips} must have one shape, but branches give {leads[0]} and {leads[1]} "
            "frames; make all branches keep the same number of frames"
        )
    return (*leads[0], 3, int(height[0]), int(width[0]))


def check_shape(task: TaskSpec, name: str, shape: tuple[int, ...], usual: tuple[int, ...]) -> None:
    """Refuse clips of an item that have another shape than those that are planned.

    Raises:
        BadInput: they have.
    """
    if shape != usual:
        raise BadInput(
            f"task {task.name!r}: all {task.dataset.media.clip}s must have one size, but {name!r} gives {shape} and "
            f"others {usual}; end with a crop, or a resize to a shape"
        )
