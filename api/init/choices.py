"""The values that fit the files of a folder: nine of ten videos are as long as a clip, and fill the crop."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from viewcache.api.init.looking import Looked
from viewcache.materializer.choices import Media

__all__ = ["Chosen", "choose"]

SHORT_SIDE, CROP = 256, 224
"""Pixels, as most models of video take them."""
FRAMES, STRIDE = 32, 2
"""Of a clip, where the videos are long enough: SlowFast's."""
LEAST_FRAMES = 8
"""Below which a clip is no longer halved, but takes what there is."""
CLIP_S, FPS = 2.5, 12.0
"""Of a clip by time, where the videos allow it."""
ALIKE = 1.05
"""Rates whose ratio is at most this count as one."""
BATCH, IMAGES = 8, 64
"""Videos, or images, in a batch."""
EPOCHS, EPOCHS_OF_IMAGES, GENERATION = 10, 90, 5
ROOM = 1.25
"""Budget for each byte of clips."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the configuration says."""

    short_side: int
    smaller: int
    """Files among those looked into whose short side is less, so that they are enlarged."""
    crop: int
    frames: int
    """Of a clip."""
    stride: int
    """In frames of the video; 0 where clips are by time."""
    fps: float
    """Of a clip by time; 0 where clips are by frames."""
    clip_s: float
    shorter: int
    """Videos among those looked into that are shorter than a clip."""
    batch: int
    """Videos or images in a batch."""
    is_all: bool
    """Whether there are no more."""
    epochs: int
    need_bytes: int
    """Of the clips of a generation, or of all resized images."""
    budget_bytes: int
    free_bytes: int
    """On the disk of the store."""


def choose(looked: Looked, store: Path) -> Chosen:
    """Choose the values.

    Args:
        looked: what lies in the folder.
        store: where clips will lie; of its disk the budget takes half of what is free, at the most.
    """
    shorts = [min(facts.shown_size) for facts in looked.facts]
    short_side, crop = _sides(int(_decile(shorts)))
    smaller = sum(each < short_side for each in shorts)
    if looked.media == Media.IMAGE:
        sizes = (facts.shown_size for facts in looked.facts)
        picture = 3 * short_side**2 * sum(max(each) / min(each) for each in sizes) / len(looked.facts)
        need = int(picture * len(looked.paths))
        return Chosen(
            short_side, smaller, crop, 1, 1, 0.0, 0.0, 0, *_batch(looked, IMAGES), EPOCHS_OF_IMAGES, *_room(need, store)
        )
    rates = [facts.fps for facts in looked.facts]
    if max(rates) > ALIKE * min(rates):
        fps, clip_s = _by_time(min(rates), _decile([facts.duration_s for facts in looked.facts]))
        frames, stride = max(1, math.floor(clip_s * fps + 1e-6)), 0
        shorter = sum(facts.duration_s < (frames - 1) / fps for facts in looked.facts)
    else:
        frames, stride = _by_frames(int(_decile([float(facts.frames) for facts in looked.facts])))
        fps, clip_s = 0.0, 0.0
        shorter = sum(facts.frames < (frames - 1) * stride + 1 for facts in looked.facts)
    need = frames * 3 * crop * crop * len(looked.paths) * GENERATION
    clip = frames, stride, fps, clip_s, shorter
    return Chosen(short_side, smaller, crop, *clip, *_batch(looked, BATCH), EPOCHS, *_room(need, store))


def _batch(looked: Looked, most: int) -> tuple[int, bool]:
    """How many files a batch has, and whether these are all."""
    there = len(looked.paths) - len(looked.bad)
    return min(most, there), there < most


def _room(need: int, store: Path) -> tuple[int, int, int]:
    """Bytes that are needed, those of the budget, and those that are free."""
    free = shutil.disk_usage(store).free
    return need, max(min(_rounded(int(need * ROOM)), free // 2 // 10**6 * 10**6), 10**6), free


def _sides(smallest: int) -> tuple[int, int]:
    """Short side after resizing, and the side of the crop, for a smallest video or image that is not enlarged."""
    if smallest >= SHORT_SIDE:
        return SHORT_SIDE, CROP
    short = smallest - smallest % 16 if smallest >= 16 else smallest
    crop = short * CROP // SHORT_SIDE
    return short, max(1, crop - crop % 8 if crop >= 8 else crop)


def _decile(sizes: Sequence[float]) -> float:
    """The length, or short side, that nine of ten reach."""
    return sorted(sizes)[(len(sizes) - 1) // 10]


def _by_frames(length: int) -> tuple[int, int]:
    """Frames and stride of a clip that spans at most so many frames."""
    for frames, stride in ((FRAMES, STRIDE), (FRAMES, 1), (FRAMES // 2, 1), (LEAST_FRAMES, 1)):
        if (frames - 1) * stride < length:
            return frames, stride
    return max(1, length), 1


def _by_time(slowest: float, length_s: float) -> tuple[float, float]:
    """Frames a second of a clip, which no video has to repeat, and its seconds, which nine of ten have."""
    fps = min(FPS, math.floor(slowest) if slowest >= 1 else max(0.001, math.floor(slowest * 1000) / 1000))
    seconds = min(CLIP_S, math.floor(length_s * 10) / 10)
    return fps, max(seconds, math.ceil(1000 / fps) / 1000)


def _rounded(count: int) -> int:
    """Up to two digits, and a gigabyte at the least."""
    step: int = 10 ** max(9, len(str(count)) - 2)
    return -(-count // step) * step
