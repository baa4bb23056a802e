"""Which of a dataset's videos fit a task: by their size, their rate and their length."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, BadVideo
from viewcache.materializer.choices import OnBadVideo, OnLowFps, OnShortVideo
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.links import is_of_link
from viewcache.materializer.dataset.past import Past
from viewcache.materializer.dataset.segments import KnownItems
from viewcache.materializer.media.index import too_large
from viewcache.materializer.media.source import shown
from viewcache.materializer.sampling import SamplingSpec
from viewcache.materializer.spec import DatasetSpec, TaskSpec

__all__ = ["Fit", "ItemFit"]

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

    def good(self, rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.bool_]:
        """(files,) or (rows,) whether each can be decoded, as far as is known, and fits in size and rate."""
        files = self.files
        good = files.whole[rows] & (files.height[rows] * files.width[rows] <= self.spec.max_pixels)
        if self.least_fps:
            good &= files.column("fps").fill_null(np.inf).to_numpy()[rows] >= self.least_fps
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


@dataclass(frozen=True, slots=True)
class ItemFit:
    """The same of its items: whole videos, and segments of them."""

    fit: Fit
    items: KnownItems

    def good(self, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """(items,) or (rows,) whether the video of each fits, and has a frame of it, as far as is known."""
        rows = np.arange(len(self.items)) if rows is None else rows
        good = self.fit.good(self.items.file[rows])
        there = np.flatnonzero(good)
        good[there] = ~self.items.empty(rows[there])
        return good

    def lengths(self, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """(items,) or (rows,) units from the first frame of each to its last, both included; see `SamplingSpec`."""
        return self.items.units(np.arange(len(self.items)) if rows is None else rows)[1]

    def usable(self, span: int, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """(items,) or (rows,) whether a clip can be taken of each."""
        return self.good(rows) & self.long_enough(span, rows)

    def long_enough(self, span: int, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """(items,) or (rows,) whether each has a clip's span, or need not have it."""
        if self.fit.spec.on_short_video != OnShortVideo.SKIP:
            return np.ones(len(self.items) if rows is None else len(rows), bool)
        return self.lengths(rows) >= span

    def error(self, row: int) -> str:
        """Why nothing can be taken of an item; empty if something can."""
        files, file = self.fit.files, int(self.items.file[row])
        error = self.fit.error(file)
        if error or not self.items.empty(np.array([row]))[0]:
            return error
        times = files.times_s(file, np.array([0, files.frames[file] - 1]))
        assert times is not None  # by which it was found that it has none
        return (
            f"{shown(files.uris[file])} has no frame in its segment{self.items.segment(row)}: they are shown from "
            f"{times[0]:g} s to {times[1]:g} s"
        )

    def too_short(self, row: int, span: int) -> str:
        """That an item is shorter than a clip, in words."""
        length = self.fit.sampling.in_words(int(self.lengths(np.array([row]))[0]))
        uri = self.fit.files.uris[self.items.file[row]]
        return f"{uri}{self.items.segment(row)} has {length} where a clip spans {self.fit.sampling.in_words(span)}"

    def selected(self, task: TaskSpec, chosen: NDArray[np.bool_], past: Past) -> NDArray[np.bool_]:
        """(items,) which of the chosen ones an epoch draws from; short and bad ones as the policies say.

        What the task has drawn (``past``) says which other policy may be chosen.

        Raises:
            BadVideo: a video is bad, or has no frame in a segment, and the policy is ``raise``.
            BadInput: none is left.
        """
        span, spec, good = task.sampling.span, self.fit.spec, self.good()
        bad = np.flatnonzero(chosen & ~good)
        if len(bad) and spec.on_bad_video == OnBadVideo.RAISE:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            policy, error = _other_policy(spec, past), self.error(int(bad[0]))
            if is_of_link(error):  # it has said what else can be done
                raise BadVideo(f"{error}, remove the link, {policy}{more}")
            raise BadVideo(f"{error}{more}; repair or remove it, {policy}")
        mine = chosen & (good | (spec.on_bad_video != OnBadVideo.SKIP)) & (self.long_enough(span) | ~good)
        if not (mine & self.usable(span)).any():
            rows = np.flatnonzero(chosen & good) if (chosen & good).any() else np.flatnonzero(chosen)
            longest, needed = map(task.sampling.in_words, (int(self.lengths(rows).max()), span))
            raise BadInput(
                f"task {task.name!r}: no {spec.media} is left of {int(chosen.sum())}: {len(bad)} are bad, and the "
                f"longest has {longest} where a clip spans {needed}"
            )
        return mine


def _other_policy(spec: DatasetSpec, past: Past) -> str:
    """Which other policy can be chosen: a task that has drawn refuses one by which it would have drawn other files."""
    if past.drawn is None or not len(past.drawn):
        return f"or set on_bad_{spec.media}: skip or replace"
    if spec.grows:
        return f"or give the task another tag and set on_bad_{spec.media}: skip or replace"
    return f"or set on_bad_{spec.media}: replace"
