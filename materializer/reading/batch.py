"""A finished batch and how it is put together: clips out of the store into consecutive slots of one buffer.

The batch itself is never stored: it is assembled at reading, which costs one copy that a stored batch
would cost too.
"""

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.choices import Media
from viewcache.materializer.field_values import FieldValues
from viewcache.materializer.shown import html_table

__all__ = ["PER_CLIP", "RESERVED", "Batch", "Buffers", "audio_slots", "check_rank", "check_shares", "rank_share"]

PER_CLIP = ("label", "index", "frame", "time_s", "sample", "item", "start_s", "end_s")
"""Fields of every batch that are arrays with a row for each clip, beside its pixels; see `Batch.per_clip`."""

RESERVED = ("video", "image", *PER_CLIP, "audio", "valid", "epoch", "iteration", "label_mixed", "label_other", "lam")
"""What a batch of a loader has of its own, so that no column of the label table comes under such a name."""

_NAMED = 4
"""Videos, and labels, that a batch's line names."""


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """One iteration's clips for one rank; b = videos x samples of that rank's share."""

    task: str
    epoch: int
    iteration: int
    video: NDArray[np.uint8]
    """(b,T,C,H,W), or (b,V,T,C,H,W) after ``stack``; of images T is 1."""
    label: NDArray[Any]
    """(b,) int64 class numbers, -1 where the dataset has no labels; float32 (b, classes) of ones and zeros where a
    video may have several."""
    index: NDArray[np.int64]
    """(b,) ``video_id`` of each clip."""
    frame: NDArray[np.int64]
    """(b,T) source frame numbers."""
    time_s: NDArray[np.float64]
    """(b,T) presentation times in seconds."""
    sample: NDArray[np.int64]
    """(b,) ordinal of each clip among those of its item in the epoch."""
    item: NDArray[np.int64]
    """(b,) ``item_id`` of each clip: of a segment, or ``index`` where a whole video is drawn."""
    start_s: NDArray[np.float64]
    """(b,) where the segment begins in seconds, as the label table says; 0 where it leaves that open."""
    end_s: NDArray[np.float64]
    """(b,) where it ends; infinity where the table leaves that open."""
    videos: tuple[str, ...] = ()
    """(b) names of the videos."""
    keys: tuple[str, ...] = ()
    """(b) content keys of the clips."""
    audio: NDArray[np.float32] | None = None
    """(b,C,n) samples from each clip's first frame on, in [-1, 1]; None of a task without audio."""
    fields: Mapping[str, FieldValues] = field(default_factory=dict)
    """Further columns of the label table, by name."""
    waited_s: float = field(default=0.0, compare=False)
    """How long the read waited for clips to be made."""
    stalls: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Where the read's time went: seconds by cause (`stalls.CAUSES`). All but ``load``, ``plan`` and ``draw`` add up to
    ``waited_s``, with what a worker loaded of intermediates."""

    @property
    def per_clip(self) -> dict[str, NDArray[Any]]:
        """Its arrays that have a row for each clip, by name, without the pixels."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in PER_CLIP}
        return arrays if self.audio is None else arrays | {"audio": self.audio}

    def _facts(self) -> dict[str, object]:
        names = list(dict.fromkeys(self.videos))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        labels = self.label if self.label.ndim == 1 else np.nonzero(self.label)[1]
        fields = {"fields": ", ".join(self.fields)} if self.fields else {}
        return {
            "video": f"{self.video.shape} {self.video.dtype}",
            **({} if self.audio is None else {"audio": f"{self.audio.shape} {self.audio.dtype}"}),
            "videos": ", ".join(names[:_NAMED]) + more,
            "labels": ", ".join(map(str, np.unique(labels).tolist()[:_NAMED])),
            **fields,
        }

    def __repr__(self) -> str:
        """One line: place, shape and the first videos; never pixels."""
        facts = "; ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Batch {self.task}/{self.epoch}/{self.iteration}: {facts}>"

    def _repr_html_(self) -> str:
        """The same as a table, for a notebook."""
        return html_table(f"Batch {self.task}/{self.epoch}/{self.iteration}", self._facts())


def check_rank(rank: int, world: int) -> None:
    """Refuse a rank that there is not.

    Raises:
        BadInput: it is below 0, or not below the world's size.
    """
    if not 0 <= rank < world:
        raise BadInput(f"rank {rank} of {world}: a rank is at least 0 and below the world's size")


def check_shares(videos: int, world: int, media: Media) -> None:
    """Refuse batches of which a rank would have nothing; ``media`` is what they are of.

    Raises:
        BadInput: a batch has fewer videos than there are ranks.
    """
    if videos < world:
        raise BadInput(
            f"a batch of {videos} {media}s cannot be shared by {world} ranks; use {media.batch_key} >= {world}, and "
            "drop_last: true, or the loader's even=True, if only the last batch is too short"
        )


def rank_share(videos: int, samples: int, rank: int, world: int) -> slice:
    """Which clips of a batch of ``videos`` x ``samples`` one rank reads: shares differ by at most one video.

    Raises:
        BadInput: there is no such rank.
    """
    check_rank(rank, world)
    return slice(rank * videos // world * samples, (rank + 1) * videos // world * samples)


def audio_slots(shape: tuple[int, ...] | None) -> tuple[NDArray[np.float32] | None, list[NDArray[np.uint8]]]:
    """Fresh memory for audio (b,C,n), and the bytes of each clip's part of it, uint8 (C, 4n), to be read into."""
    if shape is None:
        return None, []
    audio = np.empty(shape, "<f4")
    return audio, list(audio.view(np.uint8))


def _anywhere(size: int) -> NDArray[np.uint8]:
    return np.empty(size, np.uint8)


class Buffers:
    """Arrays that are used again once nobody refers to them: fresh memory costs more than the read itself.

    Not thread-safe: one reader owns it.
    """

    def __init__(self, allocate: Callable[[int], NDArray[np.uint8]] = _anywhere) -> None:
        """Start without any.

        Args:
            allocate: gives an array of so many bytes, in whichever memory clips are to be read into.
        """
        self._allocate = allocate
        self._owners: list[NDArray[np.uint8]] = []

    def take(self, shape: Sequence[int]) -> NDArray[np.uint8]:
        """A writable, page-aligned uint8 array of ``shape`` in memory that nobody refers to any more."""
        size = int(np.prod(shape))
        self._owners = [owner for owner in self._owners if owner.size >= size + mmap.PAGESIZE]
        for owner in self._owners:
            # Every view, through any number of steps, refers to the memory's owner itself; here the list, the loop and
            # getrefcount's argument do, so a fourth reference is a user's.
            if getrefcount(owner) == _IDLE_REFERENCES:
                return _aligned(owner, size).reshape(shape)
        owner = self._allocate(size + mmap.PAGESIZE)
        self._owners.append(owner)
        return _aligned(owner, size).reshape(shape)

    def trim(self, most: int) -> None:
        """Let go of memory that nobody refers to, but for ``most`` arrays that are likely to be taken next."""
        idle = [owner for owner in self._owners if getrefcount(owner) == _IDLE_REFERENCES]
        gone = {id(owner) for owner in idle[most:]}
        self._owners = [owner for owner in self._owners if id(owner) not in gone]

    def shrink(self, most: int) -> None:
        """Keep ``most`` arrays, free ones first; the others live as long as somebody refers to them."""
        self._owners.sort(key=getrefcount)
        del self._owners[most:]


_IDLE_REFERENCES = 3


def _aligned(owner: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The first ``size`` bytes from a page's start: the kernel copies into them at twice the speed."""
    start = -owner.ctypes.data % mmap.PAGESIZE
    return owner[start : start + size]
