"""What is said of a task's videos, frames and reads, in plain values that any process may have."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from viewcache.catalog.records import VideoStatus
from viewcache.materializer.media.source import Stamp

__all__ = ["ClipRecipe", "FrameInfo", "FrameRequest", "Spent", "VideoInfo"]


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What is known of one video of a task."""

    video_id: int
    name: str
    """In paths."""
    uri: str
    """Where its file is: an absolute path, or a URL without credentials."""
    extension: str
    """Of the file, with the dot; empty if it has none."""
    key: str
    """Content key of the file, 32 hex digits."""
    label: int | tuple[int, ...]
    """Number of its class, -1 without a label; the numbers of all where a video may have several."""
    status: VideoStatus
    """``ok``, or why it cannot be used."""
    error: str
    """The reason in words; empty if it is usable."""
    stamp: Stamp
    """Which version of the file it is; its size is 0 if the file cannot be read."""
    frames: int
    """0 if it cannot be decoded, like all that follows."""
    height: int
    """In pixels as shown, rotation applied; so is the width."""
    width: int
    fps: float | None
    duration_s: float | None
    codec: str | None


@dataclass(frozen=True, slots=True)
class FrameRequest:
    """One frame of a video, as decoded or after some augmentation steps."""

    video: str
    frame: int
    depth: int | None = None
    """So many steps; None = as decoded."""
    epoch: int | None = None
    """Of the clip whose random choices count; None = the first use in the generation that the task is in."""
    sample: int = 0
    """Ordinal of that clip among the video's clips in its epoch."""
    output: str | None = None
    """Which output of a step that has several; None = the first."""
    at_s: float | None = None
    """Presentation time in seconds, in the place of ``frame``: the frame that is shown nearest to it."""
    item: int | None = None
    """``item_id`` of the item that the clip is of: a segment, or the whole video; None = the first one in the plan."""


@dataclass(frozen=True, slots=True)
class FrameInfo:
    """What a `FrameRequest` gives, without its pixels."""

    video_id: int
    video: str
    label: int | tuple[int, ...]
    """As `VideoInfo.label`."""
    frame: int
    depth: int
    shape: tuple[int, int, int]
    """(3,H,W)."""
    time_s: float
    """Presentation time."""
    key: str
    """Content key of the object that holds it."""
    recipe: tuple[dict[str, object], ...]
    """What is done to the frame, with what was drawn for it."""


@dataclass(frozen=True, slots=True)
class ClipRecipe:
    """What was decided for one clip, without its pixels."""

    video: str
    """Its video's name."""
    sample: int
    """Ordinal of the clip among its item's clips in its epoch."""
    item: int
    """``item_id``: of a segment, or the video's own where it is drawn as a whole."""
    start_s: float | None
    """Where the segment begins, in seconds; None where the video does."""
    end_s: float | None
    """Where it ends; None where the video does."""
    frames: tuple[int, ...]
    """Source frames, in the order of the clip; of several views one after the other."""
    steps: tuple[dict[str, object], ...]
    """What is done to them, with what was drawn for it; see `Program.describe`."""

    @property
    def segment(self) -> str:
        """Its segment of the video in words; empty where it is drawn as a whole."""
        begin = "" if self.start_s is None else f"from {self.start_s:g} s"
        end = "" if self.end_s is None else f"to {self.end_s:g} s"
        return f"segment {begin} {end}".replace("  ", " ").strip() if begin or end else ""


@dataclass(slots=True)
class Spent:
    """Where a task's readers spent their time since the cache was opened."""

    batches: int = 0
    waited_s: float = 0.0
    """Until clips were made."""
    loaded_s: float = 0.0
    """Copying clips out of the store."""
    hits: int = 0
    """Clips that were there, with their audio, when they were asked for."""
    misses: int = 0
    """Clips that were not."""
    rebuilt: int = 0
    """Objects whose stored bytes were damaged: a clip's audio is one of its own."""
    stalls: Counter[str] = field(default_factory=Counter)
    """Seconds of reads by cause, see `stalls.CAUSES`."""

    def waited(self, seconds: float, hits: int, misses: int, stalls: Mapping[str, float]) -> None:
        """Add what was told of a batch that was asked for."""
        self.waited_s += seconds
        self.hits += hits
        self.misses += misses
        self.stalls.update(stalls)
