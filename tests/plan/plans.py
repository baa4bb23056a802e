"""Plans of videos that need not exist: planning reads no file."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.tiny import AUGMENTATION
from viewcache.api.config.load import load
from viewcache.materializer import randomness
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.dataset.texts import Keys, Texts
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.order import draw_epoch
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.plan_generation import plan_generation
from viewcache.materializer.planning.resolve import Clips
from viewcache.materializer.spec import TaskSpec

__all__ = ["clips_of", "plan_of", "task_of", "videos_of"]


def task_of(
    steps: Sequence[object] = AUGMENTATION,
    *,
    batch: int = 2,
    frames: int = 4,
    stride: int = 2,
    samples: int = 2,
    spread: float = 0.4,
    coordination: str = "shared",
    tag: str = "train",
    **dataset: object,
) -> tuple[TaskSpec, AbstractGraph]:
    """A task and its graph, read as a configuration is."""
    config = load(
        {
            "dataset": {
                "tag": tag,
                "video_dataset_path": "/videos",
                "sampling": {
                    "videos_per_batch": batch,
                    "frames_per_video": frames,
                    "frame_stride": stride,
                    "samples_per_video": samples,
                    "spread": spread,
                    "coordination": coordination,
                },
                "augmentation": list(steps),
                **dataset,
            }
        }
    )
    return config.tasks[0], config.graph(config.tasks[0])


def videos_of(
    count: int,
    *,
    frames: int | Sequence[int] = 100,
    height: int | Sequence[int] = 48,
    width: int = 64,
    prefix: str = "v",
) -> Videos:
    """Videos named v0000, v0001, …; ids start at 1."""
    names = tuple(f"{prefix}{k:04}" for k in range(count))
    return Videos(
        ids=np.arange(count, dtype=np.int64) + 1,
        names=Texts.of(names),
        uris=Texts.of(f"/videos/{name}.mp4" for name in names),
        keys=Keys.of(f"{randomness.address_word(name):016x}" * 2 for name in names),
        words=np.array([randomness.address_word(name) for name in names], np.uint64),
        frames=np.broadcast_to(np.asarray(frames, np.int64), (count,)).copy(),
        height=np.broadcast_to(np.asarray(height, np.int64), (count,)).copy(),
        width=np.full(count, width, np.int64),
        keyframes=np.full(count, 5, np.int64),
        file_bytes=np.full(count, 40_000),
        native_bytes=np.broadcast_to(np.asarray(height, np.int64) * width * 3 // 2, (count,)).copy(),
        pace=np.tile(np.array([[1000, 1]]), (count, 1)),
        last=np.broadcast_to((np.asarray(frames, np.int64) - 1) * 1000, (count,)).copy(),
    )


def plan_of(
    task: tuple[TaskSpec, AbstractGraph],
    videos: Videos,
    *,
    epochs: int = 2,
    number: int = 0,
    seed: int = 0,
    grid: int = 2,
) -> GenerationPlan:
    """A generation with the order that a task alone draws."""
    spec, graph = task
    first = number * epochs
    draws = np.stack([draw_epoch(seed, spec.name, epoch, len(videos)) for epoch in range(first, first + epochs)])
    return plan_generation(
        spec,
        graph,
        Items.whole(videos, by_time=spec.sampling.by_time),
        draws,
        seed=seed,
        number=number,
        first_epoch=first,
        grid=grid,
        ticks_of=all_even,
    )


def all_even(video_id: int) -> NDArray[np.int64]:
    """These videos have evenly spaced frames, so nobody asks."""
    raise AssertionError(video_id)


def clips_of(
    count: int,
    *,
    epoch: int | np.ndarray = 0,
    iteration: int | np.ndarray = 0,
    height: int = 48,
    width: int = 64,
    seed: int = 0,
) -> Clips:
    """The first clip of each of many videos."""

    def each(value: int | np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.asarray(value, np.int64), (count,))

    words = randomness.hash_address(3, "videos", np.arange(count))
    return Clips(seed, words, each(epoch), each(0), each(iteration), each(height), each(width), str)
