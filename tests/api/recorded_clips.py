"""Clips as a catalog would have recorded them, of plans and of the biased ways to draw that the literature has."""

import numpy as np
from numpy.typing import NDArray

from viewcache.api.audit.recorded import Footage, RecordedClips
from viewcache.catalog.records import TaskRow
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.planning.plan import GenerationPlan

__all__ = ["clips_of", "footage_of", "made_clips", "pool_starts", "row_of"]


def row_of(name: str, frames: int, stride: int) -> TaskRow:
    """A task of which only the clips' shape matters."""
    return TaskRow(name, 1, "", "", 100, 8, 1, frames, stride, 0)


def footage_of(videos: Videos) -> Footage:
    """The same videos as `verify` sees them."""
    sizes = zip(videos.height.tolist(), videos.width.tolist(), strict=True)
    return Footage(videos.ids, videos.words, videos.frames, dict(zip(videos.keys, sizes, strict=True)))


def clips_of(plan: GenerationPlan) -> RecordedClips:
    """What a generation's plan records; the number of a row stands for its object."""
    sampling = plan.task.sampling
    row = row_of(plan.task.name, sampling.frames_per_video, sampling.frame_stride)
    return RecordedClips(row, plan.epoch, plan.sample, plan.video, np.arange(len(plan)), plan.start, ())


def made_clips(task: TaskRow, starts: NDArray[np.int64], first_epoch: int = 0) -> RecordedClips:
    """Clips with given starts, (videos, epochs)."""
    video, epoch = (axis.reshape(-1) for axis in np.indices(starts.shape))
    nothing = np.zeros(starts.size, np.int64)
    return RecordedClips(task, epoch + first_epoch, nothing, video, np.arange(starts.size), starts.reshape(-1), ())


def pool_starts(
    random: np.random.Generator, videos: int, epochs: int, *, frames: int, span: int, pool: int
) -> NDArray[np.int64]:
    """SAND §5.2 read literally: a pool at random for all epochs of a generation, a clip at random inside it."""
    where = random.integers(0, frames - pool + 1, (videos, 1))
    return np.asarray(where + random.integers(0, pool - span + 1, (videos, epochs)))
