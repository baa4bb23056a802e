"""What listing and planning need to know of a video, small enough to be a row: from its header, or from its index."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from viewcache.materializer.column import Column
from viewcache.materializer.media.index import NO_TIME, VideoIndex
from viewcache.materializer.media.source import Stamp, shown

__all__ = ["Claims", "FrameTimes", "ManyClaims", "Scanned", "VideoFacts"]


class FrameTimes(NamedTuple):
    """Presentation times of a video whose frames follow each other evenly."""

    first: int
    """Of the first frame, in units."""
    step: int
    """Units from each frame to the next."""
    numerator: int
    """A unit is ``numerator / denominator`` seconds."""
    denominator: int

    def times_s(self, frames: np.ndarray) -> np.ndarray:
        """Seconds of frames by number, float64: to the last bit what `VideoIndex.times_s` gives."""
        units = self.first + self.step * np.asarray(frames, np.int64)
        return np.asarray(units * (self.numerator / self.denominator), np.float64)

    @property
    def period(self) -> Fraction:
        """Seconds from each frame to the next, exactly."""
        return Fraction(self.step * self.numerator, self.denominator)

    @classmethod
    def of(cls, index: VideoIndex) -> "FrameTimes | None":
        """The times of an index; None if its frames are not evenly spaced."""
        times = index.frame_pts
        if not len(times) or NO_TIME in (int(times[0]), int(times[-1])):
            return None
        return cls.even(times, index.time_base)

    @classmethod
    def even(cls, times: np.ndarray, unit: tuple[int, int]) -> "FrameTimes | None":
        """Rising times of at least one frame, in units of so many seconds; None if they are not evenly spaced."""
        steps = np.diff(times)
        step = int(steps[0]) if len(steps) else 0
        return cls(int(times[0]), step, *unit) if bool((steps == step).all()) else None


class VideoFacts(NamedTuple):
    """One video in numbers. What a header claims is compared with the packets when the video is decoded first.

    A tuple, because there may be a million of them on their way from one process to another.
    """

    stamp: Stamp
    """Of the file that they were read from."""
    frames: int
    width: int
    """Pixels, before rotation."""
    height: int
    """Pixels, before rotation."""
    rotation: int
    """Degrees counter-clockwise to turn a decoded frame for display: 0, 90, 180 or 270."""
    fps: float
    duration_s: float
    """From the first frame to the end of the last."""
    codec: str
    pix_fmt: str
    color_space: str
    color_range: str
    keyframes: int
    gop_max: int
    """Most packets from one key frame to the next."""
    times: FrameTimes | None = None
    """None for frames that are not evenly spaced, and from a header that does not tell."""
    damage: str = ""
    """Why the file is not whole."""

    @property
    def shown_size(self) -> tuple[int, int]:
        """(height, width) in pixels after rotation."""
        return (self.width, self.height) if self.rotation in (90, 270) else (self.height, self.width)

    @classmethod
    def of(cls, index: VideoIndex) -> "VideoFacts":
        """What an index says."""
        return cls(
            stamp=index.stamp,
            frames=index.frames,
            width=index.width,
            height=index.height,
            rotation=index.rotation,
            fps=index.fps,
            duration_s=index.duration_s,
            codec=index.codec,
            pix_fmt=index.pix_fmt,
            color_space=index.color_space_name,
            color_range=index.color_range_name,
            keyframes=index.keyframes,
            gop_max=index.gop_max,
            times=FrameTimes.of(index),
            damage=index.damage,
        )


@dataclass(frozen=True, slots=True)
class Claims:
    """What a plan was made from, of a video whose packets nobody has looked at."""

    stamp: Stamp
    """Of the file that was listed."""
    frames: int
    height: int
    """Pixels, as shown."""
    width: int
    """Pixels, as shown."""
    pix_fmt: str
    max_pixels: int
    """A frame with more makes the video bad."""
    error: str = ""
    """Why it is bad, if it was looked at and is."""
    times: FrameTimes | None = None
    """None: nothing is claimed of them."""
    as_stored: bool = False
    """Whether an image is taken as it is stored, whatever orientation it tells."""

    def contradicted(self, found: VideoFacts) -> str:
        """What is there instead of what was claimed; empty if it is the same."""
        height, width = found.shown_size
        times = None if self.times is None else found.times
        pictures = replace(self, height=height, width=width, pix_fmt=found.pix_fmt)
        there = replace(pictures, frames=found.frames, error="", times=times)
        return "" if there == self else f"its header says {self}; its packets give {there}"

    def __str__(self) -> str:
        """For messages."""
        rate = "" if self.times is None else f", one every {float(self.times.period):g} s"
        return f"{self.frames} frames of {self.width}x{self.height} in {self.pix_fmt}{rate}"


@dataclass(frozen=True, slots=True)
class ManyClaims(Column[Claims]):
    """`Claims` of several videos or images: a list for each field that differs."""

    file_bytes: list[int]
    mtimes_ns: list[int]
    etags: list[str]
    frames: list[int]
    heights: list[int]
    widths: list[int]
    pix_fmts: list[str]
    max_pixels: int
    errors: list[str]
    times: list[FrameTimes | None]
    as_stored: bool

    def __len__(self) -> int:
        """Of how many."""
        return len(self.frames)

    def one(self, row: int) -> Claims:
        """Those of one."""
        stamp = Stamp(self.file_bytes[row], self.mtimes_ns[row], self.etags[row])
        return Claims(
            stamp,
            self.frames[row],
            self.heights[row],
            self.widths[row],
            self.pix_fmts[row],
            self.max_pixels,
            self.errors[row],
            self.times[row],
            self.as_stored,
        )


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was found of one file."""

    facts: VideoFacts | None = None
    """None if nothing can be decoded; a damaged file may have facts and an error."""
    index: bytes = b""
    """`VideoIndex.to_bytes()`; empty if only the header was read."""
    error: str = ""
    """Why it is bad, with the file's name."""
    of_video: bool = True
    """Whether the error says something about the file, and not about the process that read it."""
    lasting: bool = True
    """Whether the error would be there the next time too."""
    content: bytes = b""
    """All bytes of a file that lies far away and was read whole, for who wants to keep it; else empty."""

    def __reduce__(self) -> tuple[object, ...]:
        """By position: by name, as dataclasses with slots do it, takes five times as long."""
        return Scanned, (self.facts, self.index, self.error, self.of_video, self.lasting, self.content)

    @classmethod
    def of(cls, uri: str, index: VideoIndex) -> "Scanned":
        """What an index tells."""
        error = f"{shown(uri)}: {index.damage}" if index.damage else ""
        return cls(VideoFacts.of(index), index.to_bytes(), error)
