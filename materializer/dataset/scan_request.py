"""What a scanning process is asked: by itself, since that process is to start with as few modules as it can."""

from dataclasses import dataclass

from viewcache.materializer.choices import ProbeMode

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a scanning process is asked."""

    uris: tuple[str, ...]
    max_pixels: int
    probe: ProbeMode
    """How thoroughly."""
    brings: bool = False
    """Whether files that lie far away and are read whole are handed over with what is found of them."""
    as_stored: bool = False
    """Whether they are images that are taken as they are stored."""
