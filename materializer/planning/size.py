"""How large a plan may be, and the most bytes that an object of it takes on disk."""

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ConfigCode, ConfigError
from viewcache.store.blocks import OBJECT_BOUND
from viewcache.store.format import ALIGNMENT, CRC_BYTES

if TYPE_CHECKING:
    from viewcache.materializer.spec import TaskSpec

__all__ = ["MOST_CLIPS", "check_size", "clip_bound"]

MOST_CLIPS = 1 << 24
"""Clips of one generation. While it is planned a clip takes about 400 bytes of memory, so this is below 7 GB."""

METADATA_BOUND = 8192
"""Bytes that an object's zarr.json may have at most, besides those of `FRAME_BOUND`."""
FRAME_BOUND = 16 + CRC_BYTES + ALIGNMENT + 48 + 40
"""The same of each frame that is a chunk: its place in the shard's index, its checksum, what fills it up to where the
next one begins, what a codec adds to what does not pack, and what zarr.json and a remote tier's list say of it."""

N = TypeVar("N", int, NDArray[np.float64])


def clip_bound(clip_bytes: N, frames: N) -> N:
    """Most bytes that an object of so many raw bytes and frames takes on disk, in any codec, metadata included."""
    return clip_bytes + clip_bytes // 128 + FRAME_BOUND * frames + METADATA_BOUND + OBJECT_BOUND


def check_size(task: "TaskSpec", epochs_per_generation: int, videos: int) -> None:
    """Refuse a task whose generations would not fit into memory, before anything of it is recorded.

    Args:
        task: what is asked.
        epochs_per_generation: k of the cache's settings.
        videos: how many the task draws from.

    Raises:
        ConfigError: a generation has more than `MOST_CLIPS` clips; the message has the numbers.
    """
    epochs, samples = min(epochs_per_generation, task.epochs), task.sampling.samples_per_video
    clips = epochs * videos * samples
    if clips > MOST_CLIPS:
        media = task.dataset.media
        raise ConfigError(
            ConfigCode.PLAN_TOO_LARGE,
            f"task {task.name!r}: a generation of {epochs} epochs, {videos} {media}s and {samples} samples of each has "
            f"{clips} clips; a plan holds at most {MOST_CLIPS}: lower cache.epochs_per_generation to at most "
            f"{max(1, MOST_CLIPS // (videos * samples))}, or {media.samples_key}",
            task.place.file,
            task.place.line,
            task.place.column,
        )
