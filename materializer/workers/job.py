"""What a worker is asked and what it answers: values that pickle, the same for processes, threads and other machines.

A job is one video and the objects to make of it, or several images and the blocks and packs to make of them. Doing it
twice is harmless: an object's name is its recipe's hash.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from viewcache.catalog.kinds import ObjectKind
from viewcache.errors import Broken, Full, OpFailed, OpWorkerFailed, SourceUnreachable, ViewcacheError
from viewcache.materializer.clock import UNKNOWN, Span
from viewcache.materializer.media.facts import Claims, Scanned
from viewcache.materializer.media.source import Stamp, shown
from viewcache.materializer.planning.recipe import Intermediate, Recipe
from viewcache.materializer.workers.ahead import Extent
from viewcache.store import ArrayMeta, MemoryHandle, Stored, Written, read_into, write_object
from viewcache.store.codec_trial import Trial
from viewcache.store.format import ChunkTable, shard_name
from viewcache.store.passing import Place, Room
from viewcache.store.tier import LOCAL

__all__ = ["Begun", "FolderTarget", "Job", "Made", "Near", "OnScanned", "PassingTarget", "Report", "Target"]

OnScanned = Callable[[str, Scanned], None]
"""Told the content key of a video, and what a worker found of it."""


class Target(Protocol):
    """Where a worker writes objects, and finds the intermediates that it starts from. A value that pickles."""

    @property
    def memory(self) -> MemoryHandle | None:
        """Of the memory tier, in which some of these may lie; None where there is none."""
        ...

    def write(self, key: str, array: np.ndarray | Iterable[np.ndarray], meta: ArrayMeta) -> Written:
        """Publish an object under its content key; see `write_object`."""
        ...

    def room(self, recipe: Recipe) -> Room | None:
        """Where an object is to be made, if it goes into memory that this process can have; then `write` is not due."""
        ...

    def read_into(self, stored: Stored, out: np.ndarray, chunks: Sequence[int]) -> None:
        """Read chunks of an object that lies there; see `viewcache.store.read_into`."""
        ...

    def extent_of(self, stored: Stored) -> Extent:
        """Where the bytes of an object that lies there are."""
        ...


@dataclass(frozen=True, slots=True)
class FolderTarget:
    """The folder of a local tier: the worker is on the machine that has it."""

    root: str
    durable: bool
    """Whether bytes are on the disk before the object counts as made."""
    memory: MemoryHandle | None = None
    """Of the memory tier above it, if there is one."""

    def write(self, key: str, array: np.ndarray | Iterable[np.ndarray], meta: ArrayMeta) -> Written:
        """Write into the folder; raises as `write_object` does."""
        return write_object(self.root, key, array, meta, durable=self.durable)

    def room(self, recipe: Recipe) -> Room | None:
        """None: what goes into a folder is made anywhere."""
        return None

    def read_into(self, stored: Stored, out: np.ndarray, chunks: Sequence[int]) -> None:
        """Read from the folder; raises as `viewcache.store.read_into` does."""
        read_into(self.root, stored, out, chunks)

    def extent_of(self, stored: Stored) -> Extent:
        """Of the object's shard the part with its chunks."""
        start, end = stored.span
        return Extent(f"{self.root}/{stored.physical}/{shard_name(len(stored.shape))}", start, end - start)


@dataclass(frozen=True, slots=True)
class PassingTarget:
    """Some objects go into memory that the owner of the cache has, to be read once and never stored; others as usual.

    A place that cannot be written is no reason to fail a reader: the job fails, and the owner has all of it stored.
    """

    folder: Target
    passing: MemoryHandle
    """Of the memory that has the places."""
    places: dict[str, Place]
    """Content key → where it goes."""

    @property
    def memory(self) -> MemoryHandle | None:
        """Of the memory tier."""
        return self.folder.memory

    def write(self, key: str, array: np.ndarray | Iterable[np.ndarray], meta: ArrayMeta) -> Written:
        """Write where the object belongs; raises as `write_object` and `Place.write` do."""
        place = self.places.get(key)
        return self.folder.write(key, array, meta) if place is None else place.write(self.passing, key, array, meta)

    def room(self, recipe: Recipe) -> Room | None:
        """The place of an object; raises as `Place.room` does."""
        place = self.places.get(recipe.key)
        if place is None or recipe.codec != "raw" or recipe.codecs is not None:
            return None
        return place.room(self.passing, recipe.key, recipe.shape, recipe.chunk_shape)

    def read_into(self, stored: Stored, out: np.ndarray, chunks: Sequence[int]) -> None:
        """Read what is stored; raises as `viewcache.store.read_into` does."""
        self.folder.read_into(stored, out, chunks)

    def extent_of(self, stored: Stored) -> Extent:
        """Of what is stored."""
        return self.folder.extent_of(stored)


@dataclass(frozen=True, slots=True)
class Near:
    """A copy of a video's file in the local tier, from which it is decoded."""

    key: str
    """Content key of the object."""
    stamp: Stamp
    """The version of the file that it is of."""
    stored: Stored


@dataclass(frozen=True, slots=True)
class Job:
    """One video, or several images, decoded once, and everything that is made of that."""

    number: int
    uri: str
    name: str
    """The video's name in paths, for messages; of several images that of the first, as ``uri`` is."""
    video_key: str
    """Content key of the video; of several images that of the block or the pack."""
    index: bytes
    """`VideoIndex.to_bytes()`; empty for a video whose packets nobody has looked at: then the job begins with that."""
    clips: tuple[Recipe, ...]
    target: Target
    estimate_s: float = 10.0
    """How long it should take; a worker that is silent much longer counts as hung."""
    intermediates: tuple[Intermediate, ...] = ()
    """Pictures that need not be decoded."""
    laps: bool = False
    """Whether to say when each stage was on."""
    trial: bool = False
    """Try all codecs on the first object."""
    claims: Claims | None = None
    """What its clips were planned from, where there is no index."""
    near: Near | None = None
    """Where the file need not be fetched."""
    names_images: bool = False
    """Whether it says of each of several images when it begins with it: a worker has died on it before."""

    @property
    def file(self) -> str:
        """The video's file, as messages may show it."""
        return shown(self.uri)

    @property
    def pictures(self) -> tuple[Recipe, ...]:
        """What is made of frames, and audio."""
        return tuple(clip for clip in self.clips if clip.kind != ObjectKind.SOURCE)

    @property
    def is_of_images(self) -> bool:
        """Whether it is for several images, which are those of the blocks and packs that it makes."""
        return any(clip.parts for clip in self.clips)

    @property
    def block(self) -> Recipe | None:
        """The block that it makes."""
        return next((clip for clip in self.clips if clip.kind == ObjectKind.BLOCK), None)

    @property
    def to_keep(self) -> Recipe | None:
        """The copy of the file that it makes on the way."""
        return next((clip for clip in self.clips if clip.kind == ObjectKind.SOURCE), None)

    @property
    def bound(self) -> int:
        """Most bytes that its objects can take together."""
        return sum(clip.bound for clip in self.clips)

    @property
    def loads(self) -> str:
        """The codec of what it loads from the folder."""
        return next((each.stored.codec for each in self.intermediates if each.tier == LOCAL), "raw")

    @property
    def keys(self) -> tuple[str, ...]:
        """Content keys of all it makes."""
        return tuple(clip.key for clip in self.clips)


@dataclass(frozen=True, slots=True)
class Begun:
    """A job of several images goes on to another one of them."""

    image: str
    """Content key of its file; "" = it has made all that it can of them."""


@dataclass(frozen=True, slots=True)
class Made:
    """An object is in its place, whole."""

    key: str
    written: Written
    """Where, how many bytes, and how to read them."""
    seconds: dict[str, float]
    """Busy seconds by stage since the last word of this job."""
    span: Span = UNKNOWN
    """Since that word, or the job's begin."""

    @property
    def stored(self) -> Stored:
        """What the store's reader wants."""
        written = self.written
        table = ChunkTable.from_bytes(written.table)
        return Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)


@dataclass(frozen=True, slots=True)
class Report:
    """A job is over: what it cost, and what could not be made."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Busy seconds by stage since the last object: ``decode``, ``convert``, ``augment``, ``store``."""
    frames: dict[str, int] = field(default_factory=dict)
    """Counts: ``packets``, ``decoded``, ``wanted``, ``bytes_read``, ``converted``; ``loaded`` and ``loaded_bytes`` of
    intermediates, and of these ``resident``, ``resident_bytes`` and ``resident_us``, which that took, from memory;
    ``frame_bytes``, of one frame at 4:2:0; ``fetched_bytes`` from far away, and ``fetched_us`` that it
    took."""
    failed: dict[str, str] = field(default_factory=dict)
    """Key → why, for objects that this video cannot give (bad frames)."""
    returned: tuple[str, ...] = ()
    """Keys left unmade because a reader was waiting for other videos; they are asked for again."""
    damaged: tuple[str, ...] = ()
    """Keys of intermediates whose copy in the local tier is damaged; their frames were decoded. Or of the copy of the
    file."""
    trials: tuple[Trial, ...] = ()
    """What other codecs would have done, and what packing in groups took."""
    error: str = ""
    """Why the whole job failed (the disk is full, say); empty if it did not."""
    error_kind: str = ""
    span: Span = UNKNOWN
    """Since the last object, or the job's begin."""
    scanned: Scanned | None = None
    """What was found of a video that came without its index."""
    failed_by_ops: dict[str, str] = field(default_factory=dict)
    """Key → why, for objects on which an op worker failed."""
    silenced: dict[str, str] = field(default_factory=dict)
    """Key → what is wrong, for audio that was made and has silence for what the video has lost."""
    untracked: dict[str, str] = field(default_factory=dict)
    """An audio track that was asked for → what the video has instead, where its clips are silent therefore."""
    unpacked: dict[str, str] = field(default_factory=dict)
    """Key → why, for pictures that could not be packed in groups, so that they were stored as pixels."""
    bad_parts: dict[str, dict[int, str]] = field(default_factory=dict)
    """Key of a block → place in it of images that cannot give their pictures → why."""
    contradicted: tuple[tuple[str, Scanned], ...] = ()
    """Content key of images of a block that are not what their headers said, and what they are."""
    broken: dict[str, str] = field(default_factory=dict)
    """Key → why, for objects that were not made through no fault of the video: an encoder failed."""
    damaged_in_memory: tuple[str, ...] = ()
    """Keys of intermediates whose copy in memory is damaged: they were read in the local tier, or decoded."""

    def learned(self, video_key: str) -> Iterator[tuple[str, Scanned]]:
        """Content keys of videos or images, and what was found of them; ``video_key`` is that of the job."""
        if self.scanned is not None:
            yield video_key, self.scanned
        yield from self.contradicted

    def failures(self) -> Iterator[tuple[str, str, Callable[[str], ViewcacheError] | None]]:
        """Keys that cannot be made, why, and the error that their readers get instead of that the video is bad."""
        of_op = partial(OpWorkerFailed, of_clip=True)
        for key, why in self.failed.items():
            yield key, why, None
        for key, parts in self.bad_parts.items():
            yield key, parts[min(parts)], of_op if key in self.failed_by_ops else None
        for key, why in self.failed_by_ops.items():
            if key not in self.bad_parts:
                yield key, why, of_op

    @property
    def failure(self) -> Broken:
        """Why the whole job failed, as an error."""
        kinds: tuple[type[Broken], ...] = (Full, OpFailed, OpWorkerFailed, SourceUnreachable)
        return next((kind for kind in kinds if kind.kind == self.error_kind), Broken)(self.error)
