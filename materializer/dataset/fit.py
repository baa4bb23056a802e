"""Which of a dataset's videos fit a task: by their size, their rate and their length."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.dataset.files import Files
from viewcache.materializer.media.index import too_large
from viewcache.materializer.media.source import shown
from viewcache.materializer.sampling import SamplingSpec
from viewcache.materializer.spec import DatasetSpec, OnLowFps

__all__ = ["Fit"]

SLACK = 1e-3
"""Of a rate: 29.97 frames a second are 30 to whoever asks for 30."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a task asks of its videos, and what these have."""

    spec: DatasetSpec
    sampling: SamplingSpec
    files: Files

    @property
    def least_fps(self) -> float:
        """Frames a second that a video has to have; 0 where none are asked for."""
        fps = self.sampling.fps if self.spec.on_low_fps == OnLowFps.BAD else None
        return 0.0 if fps is None else fps * (1 - SLACK)

    def good(self) -> NDArray[np.bool_]:
        """(files,) whether each can be decoded, as far as is known, and fits in size and rate."""
        files = self.files
        good = files.whole & (files.height * files.width <= self.spec.max_pixels)
        if self.least_fps:
            good &= files.column("fps").fill_null(np.inf).to_numpy() >= self.least_fps
        return np.asarray(good)

    def error(self, row: int) -> str:
        """Why a video does not; empty if it does."""
        files, most = self.files, self.spec.max_pixels
        width, height = int(files.width[row]), int(files.height[row])
        if files.error(row):
            return files.error(row)
        if width * height > most:
            return f"{shown(files.uris[row])}: {too_large(width, height, most)}"
        fps = files.file(row).fps if self.least_fps else None
        if fps is not None and fps < self.least_fps:
            return (
                f"{shown(files.uris[row])} has {fps:g} frames a second where the task asks for {self.sampling.fps:g}; "
                "lower sampling.fps, or set on_low_fps: repeat"
            )
        return ""

    def lengths(self) -> NDArray[np.int64]:
        """(files,) units from the first frame of each to its last, both included; see `SamplingSpec`."""
        if not self.sampling.by_time:
            return self.files.frames
        self.files.time(np.arange(len(self.files)))
        return self.files.last + 1
