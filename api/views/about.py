"""What is told of videos and batches beside their pixels, as plain values that JSON can hold."""

from typing import Any

import numpy as np

from viewcache.materializer.choices import Layout, Media
from viewcache.materializer.field_values import as_lists
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.values import VideoInfo

__all__ = ["about_audio", "about_batch", "about_video", "plain_label", "shape_of"]


def shape_of(batch: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The shape of a batch's pixels as paths show it: of images without the axis of time, which has one frame."""
    return batch if Layout(layout).media == Media.VIDEO else (*batch[:-4], *batch[-3:])


def about_video(task: str, video: VideoInfo) -> dict[str, Any]:
    """What a video of a task is."""
    about: dict[str, Any] = {
        "task": task,
        "index": [video.video_id],
        "videos": [video.name],
        "label": [plain_label(video.label)],
        "status": video.status,
        "keys": [video.key],
    }
    if video.frames:
        about |= {
            "shape": [video.frames, 3, video.height, video.width],
            "dtype": "uint8",
            "fps": video.fps,
            "duration_s": video.duration_s,
            "codec": video.codec,
        }
    return about


def plain_label(label: int | tuple[int, ...]) -> int | list[int]:
    """A class number, or the numbers of all of an item's classes."""
    return label if isinstance(label, int) else list(label)


def about_audio(batch: Batch, layout: str, clip: int | None) -> dict[str, Any]:
    """What the audio of a batch is, or that of one of its clips: then lists have one element."""
    assert batch.audio is not None  # there is such a path
    about = about_batch(batch, layout) | {"shape": list(batch.audio.shape), "dtype": "float32"}
    if clip is None:
        return about
    for name in _PER_CLIP:
        about[name] = [about[name][clip]]
    fields = {name: [values[clip]] for name, values in about["fields"].items()}
    return about | {"shape": list(batch.audio.shape[1:]), "fields": fields}


_PER_CLIP = ("index", "videos", "label", "frame", "time_s", "sample", "item", "start_s", "end_s", "keys")


def about_batch(batch: Batch, layout: str) -> dict[str, Any]:
    """What a batch shows; lists have one element per clip."""
    return {
        "task": batch.task,
        "epoch": batch.epoch,
        "iteration": batch.iteration,
        "shape": list(shape_of(batch.video.shape, layout)),
        "dtype": "uint8",
        "index": batch.index.tolist(),
        "videos": list(batch.videos),
        "label": batch.label.tolist()
        if batch.label.ndim == 1
        else [np.flatnonzero(each).tolist() for each in batch.label],
        "frame": batch.frame.tolist(),
        "time_s": batch.time_s.tolist(),
        "sample": batch.sample.tolist(),
        "item": batch.item.tolist(),
        "start_s": batch.start_s.tolist(),
        "end_s": [None if each == np.inf else each for each in batch.end_s.tolist()],  # JSON has no infinity
        "keys": list(batch.keys),
        "fields": {name: as_lists(values) for name, values in batch.fields.items()},
    }
