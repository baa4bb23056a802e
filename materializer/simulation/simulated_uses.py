"""Reading that is planned, as numbers: which clips each batch needs, and what each clip takes to make.

What `simulate` works on. Building it costs a few microseconds a use, most of it NumPy over whole generations.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.arrays import distinct
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.audio import audio_bound, audio_cost_s, stored_shape
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.chosen import IndexOf
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.spec import AudioSpec
from viewcache.store.blocks import BLOCK, ENTRY, whole_blocks

__all__ = [
    "OBJECT_BYTES",
    "ClipNeeds",
    "GenerationUses",
    "UseTrace",
    "VideoNeeds",
    "groups_of",
    "section_of",
    "stored_bytes",
    "trace_of",
]

OBJECT_BYTES = 2 * BLOCK + ENTRY
"""What an object takes on disk beside the blocks of its pixels: one for its metadata, its folder, and its name."""

Ints = NDArray[np.int64]
Runs = tuple[tuple[int, int], ...]
"""Packets to feed: from a key frame to one past the last that is needed."""


@dataclass(frozen=True, slots=True, eq=False)
class GenerationUses:
    """One generation of one task; a *use* is a clip of a batch, and its *rank* is its place in the order of need."""

    task: int
    """Which of the tasks."""
    group_generation: int
    """The group's generation, whose clips are decided together."""
    first_epoch: int
    iterations: int
    """Batches in an epoch."""
    per_epoch: int
    """Uses in an epoch."""
    batch: int
    """Uses in a batch; the last one of an epoch may have fewer."""
    plan: GenerationPlan
    index_of: IndexOf
    rows: Ints
    """(uses,) rows of the plan by rank."""

    def __len__(self) -> int:
        """Uses in all its epochs."""
        return len(self.rows)

    @property
    def epochs(self) -> int:
        """How many it has."""
        return len(self.rows) // self.per_epoch

    def batches(self) -> Iterator[tuple[int, int, range]]:
        """Epoch, iteration and ranks of each batch."""
        for epoch in range(self.epochs):
            start = epoch * self.per_epoch
            for iteration, first in enumerate(range(start, start + self.per_epoch, self.batch)):
                yield self.first_epoch + epoch, iteration, range(first, min(first + self.batch, start + self.per_epoch))


@dataclass(slots=True)
class ClipNeeds:
    """Every distinct clip, by its number."""

    video: list[int] = field(default_factory=list)
    bound: list[int] = field(default_factory=list)
    """Most bytes on disk: what is reserved while it is made."""
    raw: list[int] = field(default_factory=list)
    """Bytes of its pixels, and of its audio, which is made, kept and evicted with it here."""
    objects: list[int] = field(default_factory=list)
    """One, and one more for each audio that goes with it."""
    audio_s: list[float] = field(default_factory=list)
    """Core seconds that its audio takes to make."""
    frames: list[int] = field(default_factory=list)
    """A bit for each frame, counted among the frames that are needed of its video."""
    runs: list[Runs] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class VideoNeeds:
    """Every video, by its number."""

    keys: tuple[str, ...]
    """Content keys."""
    numbers: dict[str, int]
    """The number of a content key."""
    pixels: list[int]
    """Of one decoded frame."""
    first: list[int]
    """Where the packets of a video begin in ``bytes_before``."""
    bytes_before: Ints
    """Packet bytes before each packet; a video has one entry more than packets."""

    def bytes_of(self, video: int, runs: Iterable[tuple[int, int]]) -> int:
        """Bytes of the packets of some runs."""
        at = self.first[video]
        return sum(int(self.bytes_before[at + stop] - self.bytes_before[at + start]) for start, stop in runs)


@dataclass(frozen=True, slots=True)
class UseTrace:
    """All uses of some tasks."""

    tasks: tuple[tuple[GenerationUses, ...], ...]
    """The generations of each task."""
    uses: dict[int, Ints]
    """Identity of a section → (uses,) its clips by rank."""
    clips: ClipNeeds
    videos: VideoNeeds

    def clips_of(self, section: GenerationUses) -> Ints:
        """The clips of a section by rank."""
        return self.uses[id(section)]

    def __len__(self) -> int:
        """Uses in all."""
        return sum(map(len, self.uses.values()))


def stored_bytes(packed: float, objects: int = 1) -> int:
    """What objects take on disk whose pixels pack to so many bytes together."""
    return whole_blocks(int(packed)) + objects * OBJECT_BYTES


def section_of(
    task: int, active: ActiveGeneration, index_of: IndexOf, drawn: Sequence[int] | None = None
) -> GenerationUses:
    """A generation in the order in which it is read.

    Args:
        task: which of the tasks.
        active: the generation.
        index_of: gives the packet index of a row of its videos.
        drawn: its rows in the order of need; None = as it is drawn now.
    """
    plan, epochs = active.plan, _epochs(active.plan)
    if drawn is None:
        drawn = [row for epoch in epochs for k in range(plan.iterations) for row in active.rows(epoch, k)]
    batch = len(active.rows(plan.first_epoch, 0))
    per_epoch = len(drawn) // len(epochs)
    return GenerationUses(
        task,
        plan.context.group_generation,
        plan.first_epoch,
        plan.iterations,
        per_epoch,
        batch,
        plan,
        index_of,
        np.array(drawn, np.int64),
    )


def _epochs(plan: GenerationPlan) -> range:
    return range(plan.first_epoch, plan.last_epoch + 1)


def trace_of(tasks: Sequence[Sequence[GenerationUses]]) -> UseTrace:
    """Work out what the clips of some tasks need, in O(u F log F) for u uses of F frames.

    Args:
        tasks: the generations of each task, in their order.
    """
    sections = [each for of_task in tasks for each in of_task]
    videos, indexes = _videos(sections)
    keys = np.concatenate([each.plan.clip_keys[each.rows] for each in sections])
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))  # clips are numbered as they are first needed
    number = place[number.reshape(-1)]
    ends = np.cumsum([len(each) for each in sections])
    uses = {id(each): part for each, part in zip(sections, np.split(number, ends[:-1]), strict=True)}
    clips, seen = ClipNeeds(), 0
    blocks: list[tuple[Ints, NDArray[np.int32], int]] = []
    for each in sections:
        fresh, at = np.unique(uses[id(each)], return_index=True)
        fresh, at = fresh[fresh >= seen], at[fresh >= seen]
        seen += len(fresh)
        rows = each.rows[at]
        video_of = np.array([videos.numbers[key] for key in each.plan.videos.keys], np.int64)
        video, frames = video_of[each.plan.video[rows]], each.plan.frames(rows)
        clips.video += video.tolist()
        clips.bound += [each.plan.clip_room] * len(rows)
        clips.raw += [each.plan.clip_bytes] * len(rows)
        clips.objects += [1] * len(rows)
        clips.audio_s += [0.0] * len(rows)
        clips.runs += _runs(frames, video, indexes)
        if len(rows):
            blocks.append((video, frames, len(clips.frames)))
            clips.frames += [0] * len(rows)
    _mark_frames(clips, blocks)
    _add_audio(clips, sections, uses)
    return UseTrace(tuple(map(tuple, tasks)), uses, clips, videos)


def _add_audio(clips: ClipNeeds, sections: Sequence[GenerationUses], uses: Mapping[int, Ints]) -> None:
    """Count the audio of clips with them, each kind of it once, whichever tasks want it."""
    wanted: dict[AudioSpec, list[Ints]] = {}
    for each in sections:
        if each.plan.audio is not None:
            wanted.setdefault(each.plan.audio, []).append(uses[id(each)])
    for audio, parts in wanted.items():
        bound, raw, seconds = audio_bound(audio), math.prod(stored_shape(audio)), audio_cost_s(audio)
        for clip in distinct(np.concatenate(parts)).tolist():
            clips.bound[clip] += bound
            clips.raw[clip] += raw
            clips.objects[clip] += 1
            clips.audio_s[clip] += seconds


def _videos(sections: Sequence[GenerationUses]) -> tuple[VideoNeeds, list[MediaIndex]]:
    """The videos that are drawn, and their packet indexes."""
    numbers: dict[str, int] = {}
    indexes: list[MediaIndex] = []
    for each in sections:
        for row in np.unique(each.plan.video[each.rows]).tolist():
            key = each.plan.videos.keys[row]
            if key not in numbers:
                numbers[key] = len(numbers)
                indexes.append(each.index_of(row))
    counts = np.array([len(index.packet_bytes) + 1 for index in indexes])
    before = np.concatenate([np.cumsum(np.concatenate(([0], index.packet_bytes)), dtype=np.int64) for index in indexes])
    pixels = [index.frame_pixels for index in indexes]
    first: list[int] = (np.cumsum(counts) - counts).tolist()
    return VideoNeeds(tuple(numbers), numbers, pixels, first, before), indexes


def _runs(frames: NDArray[np.int32], video: Ints, indexes: Sequence[MediaIndex]) -> list[Runs]:
    """The packets that each clip needs, group of pictures by group of pictures."""
    if not len(frames):
        return []
    which, inverse = np.unique(video, return_inverse=True)
    mine = [indexes[k] for k in which.tolist()]
    counts = np.array([index.frames for index in mine])
    offset = (np.cumsum(counts) - counts)[inverse.reshape(-1)][:, None]
    starts = np.concatenate([index.starts for index in mine])[offset + frames]
    packets = np.concatenate([index.ends for index in mine])[offset + frames]
    by_start = np.argsort(starts, axis=1, kind="stable")
    starts, packets = (np.take_along_axis(each, by_start, 1) for each in (starts, packets))
    begins = np.ones(starts.shape, bool)
    begins[:, 1:] = starts[:, 1:] != starts[:, :-1]
    at = np.flatnonzero(begins)
    begin: list[int] = starts.reshape(-1)[at].tolist()
    end: list[int] = (np.maximum.reduceat(packets.reshape(-1), at) + 1).tolist()
    found: list[list[tuple[int, int]]] = [[] for _ in range(len(frames))]
    for clip, start, stop in zip((at // frames.shape[1]).tolist(), begin, end, strict=True):
        found[clip].append((start, stop))
    return [tuple(each) for each in found]


def _mark_frames(clips: ClipNeeds, blocks: Sequence[tuple[Ints, NDArray[np.int32], int]]) -> None:
    """Give each needed frame of a video a bit, and each clip the bits of its frames."""
    most = 1 + max(int(frames.max()) for _, frames, _ in blocks)
    codes = [(video[:, None] * most + frames).reshape(-1) for video, frames, _ in blocks]
    needed = distinct(np.concatenate(codes))
    video = needed // most
    place = np.arange(len(needed)) - np.searchsorted(video, video)
    for code, (_, frames, at) in zip(codes, blocks, strict=True):
        bits = place[np.searchsorted(needed, code)].reshape(frames.shape)
        for number, row in enumerate(bits, at):
            mask = 0
            for bit in row.tolist():
                mask |= 1 << bit
            clips.frames[number] = mask


def groups_of(runs: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The first packet of each run → the run that is decoded for it, together with all others that overlap it.

    Runs with one begin are one, up to the last end; leading pictures of an open GOP reach past the next key frame.
    """
    last: dict[int, int] = {}
    for start, stop in runs:
        last[start] = max(stop, last.get(start, 0))
    found: dict[int, tuple[int, int]] = {}
    together: list[int] = []
    begin = end = 0
    for start in sorted(last):
        if together and start >= end:
            found.update(dict.fromkeys(together, (begin, end)))
            together = []
        if not together:
            begin = end = start
        together.append(start)
        end = max(end, last[start])
    found.update(dict.fromkeys(together, (begin, end)))
    return found
