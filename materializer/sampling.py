"""Which frames make a clip, and how many clips make a batch, as a frozen value; part of a task's spec."""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

__all__ = ["TICKS_PER_S", "ClipSelection", "Coordination", "SamplingSpec", "clip_span"]

TICKS_PER_S = 30_000
"""Ticks of a second: times of frames are compared in ticks, so that the common rates have whole periods."""


class Coordination(StrEnum):
    """Whether random choices are coordinated over tasks and epochs."""

    SHARED = "shared"
    INDEPENDENT = "independent"


class ClipSelection(StrEnum):
    """Where the clips of a video start."""

    RANDOM = "random"
    """Anywhere alike, drawn anew in each epoch."""
    CENTER = "center"
    """In its middle."""
    UNIFORM = "uniform"
    """Evenly spaced, the first one at its start and the last one at its end."""


def clip_span(frames_per_clip: int, stride: int) -> int:
    """Return L, the number of source frames from a clip's first frame to its last, both included."""
    return (frames_per_clip - 1) * stride + 1


@dataclass(frozen=True, slots=True)
class SamplingSpec:
    """Which frames make a clip, and how many clips make a batch."""

    videos_per_batch: int
    frames_per_video: int
    """Frames of one clip before augmentation (F)."""
    frame_stride: int = 1
    """In frames of the source (s); a clip spans (F-1)*s+1 frames. Means nothing where ``fps`` is given."""
    samples_per_video: int = 1
    """Clips of one video in one epoch (m)."""
    coordination: Coordination = Coordination.SHARED
    """``shared`` (shared fraction, docs/design/0005) or ``independent``."""
    spread: float = 0.4
    """δ in (0, 1]: width of the window of a video, as a fraction, that the starts of one generation fall in."""
    fps: float | None = None
    """Frames a second of a clip, which then shows the same seconds of every video; None = by frames of the source.

    Clips are placed in frames of the source, or else in ticks of presentation time: starts, spans and grids count these
    units.
    """

    clips: ClipSelection = ClipSelection.RANDOM
    """Other than ``random`` they are the same in every epoch."""

    @property
    def by_time(self) -> bool:
        """Whether the unit is a tick of `TICKS_PER_S`, and not a frame."""
        return self.fps is not None

    @property
    def offsets(self) -> tuple[int, ...]:
        """(F,) where each frame of a clip is, in units from its start."""
        if self.fps is None:
            return tuple(range(0, self.frames_per_video * self.frame_stride, self.frame_stride))
        period = TICKS_PER_S / Fraction(str(self.fps))
        return tuple(round(number * period) for number in range(self.frames_per_video))

    @property
    def span(self) -> int:
        """L, the number of units from a clip's first frame to its last, both included."""
        return self.offsets[-1] + 1

    def in_words(self, units: int) -> str:
        """So many units, the first and the last included, as messages say it."""
        return f"{units} frames" if self.fps is None else f"{(units - 1) / TICKS_PER_S:g} s"

    @property
    def pitch(self) -> int:
        """Units from a frame of a clip to the next; of a rate whose period is no whole number, the nearest one."""
        return self.frame_stride if self.fps is None else max(1, round(TICKS_PER_S / Fraction(str(self.fps))))
