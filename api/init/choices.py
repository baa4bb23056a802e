"""The values that fit the videos of a folder: nine of ten are as long as a clip, and the smallest fills the crop."""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from viewcache.api.init.looking import Looked

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
BATCH = 8
"""Videos."""
EPOCHS, GENERATION = 10, 5
ROOM = 1.25
"""Budget for each byte of clips."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the configuration says."""

    short_side: int
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
    """Videos in a batch."""
    need_bytes: int
    """Of the clips of a generation."""
    budget_bytes: int
    free_bytes: int
    """On the disk of the store."""


def choose(looked: Looked, store: Path) -> Chosen:
    """Choose the values.

    Args:
        looked: what lies in the folder.
        store: where clips will lie; of its disk the budget takes half of what is free, at the most.
    """
    rates = [facts.fps for facts in looked.facts]
    smallest = min(min(facts.shown_size) for facts in looked.facts)
    short_side, crop = _sides(smallest)
    if max(rates) > ALIKE * min(rates):
        fps, clip_s = _by_time(min(rates), _decile([facts.duration_s for facts in looked.facts]))
        frames, stride = max(1, math.floor(clip_s * fps + 1e-6)), 0
        shorter = sum(facts.duration_s < (frames - 1) / fps for facts in looked.facts)
    else:
        frames, stride = _by_frames(int(_decile([float(facts.frames) for facts in looked.facts])))
        fps, clip_s = 0.0, 0.0
        shorter = sum(facts.frames < (frames - 1) * stride + 1 for facts in looked.facts)
    need = frames * 3 * crop * crop * len(looked.paths) * GENERATION
    free = shutil.disk_usage(store).free
    budget = max(min(_rounded(int(need * ROOM)), free // 2 // 10**6 * 10**6), 10**6)
    batch = min(BATCH, len(looked.paths) - len(looked.bad))
    return Chosen(short_side, crop, frames, stride, fps, clip_s, shorter, batch, need, budget, free)


def _sides(smallest: int) -> tuple[int, int]:
    """Short side after resizing, and the side of the crop, for a smallest video."""
    if smallest >= SHORT_SIDE:
        return SHORT_SIDE, CROP
    short = smallest - smallest % 16 if smallest >= 16 else smallest
    crop = short * CROP // SHORT_SIDE
    return short, max(1, crop - crop % 8 if crop >= 8 else crop)


def _decile(lengths: list[float]) -> float:
    """The length that nine of ten reach."""
    return sorted(lengths)[(len(lengths) - 1) // 10]


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
