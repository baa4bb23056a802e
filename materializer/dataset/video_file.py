"""One file of a dataset, as a record to look at: `files` has all of them, as columns."""

from dataclasses import dataclass

from viewcache.catalog.records import VideoStatus
from viewcache.materializer.media.source import Stamp

__all__ = ["VideoFile"]


@dataclass(frozen=True, slots=True)
class VideoFile:
    """One file, as a record to look at."""

    video_id: int
    name: str
    """In paths; see `names`."""
    uri: str
    """Absolute path or URL."""
    path: str
    """Under the dataset."""
    key: str
    """32 hex digits: this version of this file."""
    stamp: Stamp
    status: VideoStatus
    error: str
    """Why it is bad, with the file's name; empty if it is not."""
    frames: int
    size: tuple[int, int]
    """(height, width) as shown; zeros if unknown."""
    fps: float | None
    duration_s: float | None
    codec: str | None
