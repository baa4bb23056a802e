"""What kinds of objects there are: apart from the records, since worker processes load nothing else of the catalog."""

from enum import StrEnum

__all__ = ["ObjectKind"]


class ObjectKind(StrEnum):
    """What an object holds; the words stand in the catalog and beside the stored bytes."""

    CLIP = "clip"
    """A finished clip."""
    BLOCK = "block"
    """Finished clips of several images of a batch."""
    FRAMES = "frames"
    """Frames of a video as decoded."""
    AUG = "aug"
    """Frames of a video after some steps."""
    AUDIO = "audio"
    """The audio of a clip."""
    PACK = "pack"
    """Pictures of several images after some steps, which are kept together."""
    SOURCE = "source"
    """The encoded bytes of a video's file, kept near because it lies far away."""
