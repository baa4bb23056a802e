"""The demo's second task: frames of the clips as JPEG files in a folder for each clip, read as a dataset of images."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.api.service.opening import open as open_cache
from viewcache.api.session.cache import Cache
from viewcache.api.text import Console
from viewcache.materializer.reading.values import FrameRequest

__all__ = ["Stills", "read_stills", "save_stills"]

OF_EACH = 24
"""Images of each clip, at most."""
EPOCHS = 3
TAG = "stills"

_CONFIG = """\
# Written by `viewcache demo`: a classifier of images, whose class is the folder.
cache:
  store: ./images-cache
  budget: {budget}
dataset:
  tag: {tag}
  image_dataset_path: ./images
  labels: folders
  epochs: {epochs}
  sampling: {{images_per_batch: 32}}
  augmentation:
  - {{branch_type: single, inputs: [frame], outputs: [a0], config: [{{resize: {{short_side: 256}}}}]}}
  - branch_type: single
    inputs: [a0]
    outputs: [a1]
    config:
    - random_crop: {{shape: [224, 224]}}
    - flip: {{flip_prob: 0.5}}
"""


@dataclass(frozen=True, slots=True)
class Stills:
    """What the demo measured of images."""

    images: int
    seconds: tuple[float, ...]
    """Wall clock of each epoch."""
    decoded: int
    """Images that were decoded in all epochs together."""
    differing: tuple[str, ...]
    """Batches, as ``epoch/iteration``, that were not the same when they were read again."""


def save_stills(cache: Cache, task: str, folder: Path) -> int:
    """Save some frames of each video of a task as JPEG, in a folder of the video's name; returns how many."""
    import cv2

    saved, handle = 0, cache.task(task)
    for video in handle.videos():
        if not video.frames:
            continue
        into = folder / video.name
        into.mkdir(parents=True, exist_ok=True)
        numbers = np.unique(np.linspace(0, video.frames - 1, OF_EACH).astype(int)).tolist()
        for number, frame in zip(
            numbers, handle.frames([FrameRequest(video.name, each) for each in numbers]), strict=True
        ):
            pixels = np.ascontiguousarray(frame.transpose(1, 2, 0)[:, :, ::-1])
            cv2.imwrite(str(into / f"{number:06d}.jpg"), pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])
            saved += 1
    return saved


def read_stills(folder: Path, budget: int, images: int, console: Console) -> Stills:
    """Train some epochs on the images of a folder, then read all of them once more and compare."""
    config = folder / "images.yaml"
    config.write_text(_CONFIG.format(budget=budget, tag=TAG, epochs=EPOCHS), "utf-8")
    seconds: list[float] = []
    first: dict[str, NDArray[np.uint8]] = {}
    differing: list[str] = []
    with console.progress("images") as bar, open_cache(config, service="off") as cache:
        loader = cache.loader(TAG)
        for epoch in range(EPOCHS):
            begun = time.perf_counter()
            for batch in loader:
                first[f"{epoch}/{batch['iteration']}"] = batch["image"].numpy().copy()
                bar.at(len(first), EPOCHS * len(loader))
            seconds.append(time.perf_counter() - begun)
        decoded = cache.owner.dispatcher_now().tally.frames["packets"]
        for batch in cache.loader(TAG).all_epochs():
            place = f"{batch['epoch']}/{batch['iteration']}"
            if not np.array_equal(first[place], batch["image"].numpy()):
                differing.append(place)
    return Stills(images, tuple(seconds), decoded, tuple(differing))
