"""How an object is made: values that pickle, for plans and for the jobs that workers get."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.media.facts import Claims
from viewcache.materializer.media.kept import CHUNK_BYTES
from viewcache.materializer.media.loss import GROUP as LOSSY_GROUP
from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.media.source import Stamp, shown
from viewcache.materializer.planning.packs import PackLayout, pack_key, pack_layout
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.size import clip_bound
from viewcache.store import ENCODED, Stored
from viewcache.store.codec_choice import CodecTable
from viewcache.store.tier import LOCAL

if TYPE_CHECKING:
    from viewcache.materializer.spec import AudioSpec

__all__ = [
    "GROUP",
    "Far",
    "Intermediate",
    "IntermediateObject",
    "KeptFile",
    "Part",
    "Recipe",
    "VideoSource",
    "block_recipe",
    "pack_recipe",
]

GROUP = 8
"""Pictures that are packed together: a clip reads half of so many for nothing, and longer groups save little."""

_GROUP_BYTES = 1 << 28  # of pixels, at most: 16K pictures go in smaller groups


@dataclass(frozen=True, slots=True)
class Part:
    """One picture of a block or a pack: a clip of an image, or what is kept of it."""

    source: "VideoSource"
    recipe: "Recipe"
    """Of the picture by itself."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one clip is made, or a block of them."""

    key: str
    """Content key, 32 hex digits."""
    program: Program
    row: np.ndarray
    """int32 (program.columns,)."""
    frames: np.ndarray
    """int32 (F,): source frames in clip order."""
    shape: tuple[int, ...]
    """(T,C,H,W), or (V,T,C,H,W) after ``stack``; (bytes,) of a file."""
    due: int
    """Order of need; lower first."""
    bound: int
    """Most bytes it can take on disk."""
    kind: ObjectKind = ObjectKind.CLIP
    native: bool = False
    """Keep the decoder's own planes, half the bytes of RGB, as (T, bytes of a frame); only for an empty program."""
    codec: str = "raw"
    """``raw``, ``lz4`` or ``zstd1``; of intermediates also a name of `viewcache.store.ENCODED`: pictures in groups."""
    codec_is_chosen: bool = False
    """Whether the codec is part of what was decided to be kept; else it is chosen when the object is made."""
    codecs: CodecTable | None = None
    """What each codec costs, if a sample of the object is to say which it gets: then ``codec`` says nothing."""
    audio: "AudioSpec | None" = None
    """Of an object of kind ``audio``: what it is; ``frames`` is then the clip's first frame, when the audio begins."""
    parts: Sequence[Part] = ()
    """Of an object of kind ``block``: its clips, one behind the other on the first axis, a chunk each. Of one of kind
    ``pack``: its pictures, see `pack_layout`."""

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Clips and their audio are read whole, what is of several pictures one by one, or encoded in groups.

        The bytes of a file are read in pieces.
        """
        if self.kind == ObjectKind.SOURCE:
            return (min(CHUNK_BYTES, self.shape[0]),)
        if self.codec == LOSSY:
            return (min(LOSSY_GROUP, self.shape[0]), *self.shape[1:])
        if self.codec in ENCODED:
            picture = math.prod(self.shape[1:])
            return (max(1, min(GROUP, self.shape[0], _GROUP_BYTES // picture)), *self.shape[1:])
        if self.kind == ObjectKind.BLOCK:
            return self.parts[0].recipe.shape
        if self.kind == ObjectKind.PACK:
            return (self.layout.chunk_bytes,)
        whole = self.kind in (ObjectKind.CLIP, ObjectKind.AUDIO)
        return self.shape if whole else (1, *self.shape[1:])

    def about(self, name: str, video_key: str) -> dict[str, object]:
        """What is stored beside the pixels, JSON-ready.

        Args:
            name: of the video.
            video_key: its content key.
        """
        return {
            "video": name,
            "video_key": video_key,
            "kind": str(self.kind),
            "frames": self.frames.tolist(),
            "recipe": self.program.describe(self.row),
        }

    @property
    def layout(self) -> PackLayout:
        """Of an object of kind ``pack``: where its pictures lie."""
        return pack_layout([math.prod(part.recipe.shape) for part in self.parts])


@dataclass(frozen=True, slots=True)
class VideoSource:
    """A video as a job needs it."""

    uri: str
    name: str
    """The video's name in paths, for messages."""
    key: str
    """Content key of the file."""
    index: bytes
    """`VideoIndex.to_bytes()`; empty for a video whose packets nobody has looked at."""
    frames: int
    claims: Claims | None = None
    """What is taken for granted where there is no index."""

    @property
    def file(self) -> str:
        """Its URI as messages may show it."""
        return shown(self.uri)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A copy of a video's file that may lie in the store."""

    key: str
    """Content key of the object."""
    stamp: Stamp
    """The version of the file that it is of."""


Far = Callable[[Any, int], Stamp | None]
"""Tells the version of the file of a row of the videos of a `GenerationPlan`, if it lies far away."""


@dataclass(frozen=True, slots=True)
class Intermediate:
    """Intermediates of a video, from which clips are made without decoding it: a kept ancestor (SAND §5.3)."""

    key: str
    """Content key, 32 hex digits."""
    stored: Stored
    """One chunk a frame, or a group of them."""
    frames: np.ndarray
    """int32 (n,), in any order: source frames."""
    program: Program
    """What was done to each frame, one operation at the most; empty for the decoder's own planes."""
    row: np.ndarray
    """int32 (program.columns,)."""
    video: str = ""
    """Content key of the video."""
    picture: tuple[int, ...] = ()
    """Shape of the one picture, whose bytes ``stored`` has with zeros behind them: it is one of a pack."""
    tier: str = LOCAL
    """Where it is read: the local tier, or memory."""


@dataclass(frozen=True, slots=True)
class IntermediateObject:
    """Pictures of one video that are kept: the nearest kept ancestor of its clips."""

    object_id: int
    video: str
    """Content key of the video."""
    recipe: Recipe
    pack: str = ""
    """Content key of the pack that they lie in, if it is one of an image: then ``object_id`` is that of the pack."""
    first: int = 0
    """Where they begin there, in bytes."""

    @property
    def key(self) -> str:
        """Content key of the object that they lie in."""
        return self.pack or self.recipe.key

    def has_some_of(self, frames: np.ndarray) -> np.ndarray:
        """Of which clips it may hold some frames, bool (n,) for source frames (n,F): theirs are in the same stretch."""
        mine = self.recipe.frames
        return np.asarray((frames.min(axis=1) <= mine.max()) & (mine.min() <= frames.max(axis=1)))

    def stored_as(self, stored: Stored, tier: str = LOCAL) -> Intermediate:
        """What a worker needs to read the copy that is stored there, in this tier.

        A plan that named these frames before them has recorded the size of their pictures, not that of their planes.
        """
        recipe, picture = self.recipe, tuple[int, ...]()
        if self.pack:
            picture, rows = recipe.shape[1:], stored.chunk_rows
            stored = stored.chunks(self.first // rows, -(-math.prod(picture) // rows))
        else:
            stored = replace(stored, shape=recipe.shape)
        return Intermediate(self.key, stored, recipe.frames, recipe.program, recipe.row, self.video, picture, tier)


def block_recipe(key: str, parts: Sequence[Part], due: int, bound: int) -> Recipe:
    """How a block of clips is made, which have one shape.

    Args:
        key: content key of the block.
        parts: its clips.
        due: order of need.
        bound: most bytes that it can take on disk.
    """
    first, frames = parts[0].recipe, np.zeros(len(parts), np.int32)
    shape, nothing = (len(parts) * first.shape[0], *first.shape[1:]), np.zeros(0, np.int32)
    return Recipe(key, first.program, nothing, frames, shape, due, bound, kind=ObjectKind.BLOCK, parts=parts)


PART_METADATA_BOUND = 512
"""Bytes that zarr.json has for each picture of a pack, at most."""


def pack_recipe(recipes: Sequence[Recipe]) -> Recipe:
    """How a pack is made, as far as that is known without the files of its images: its ``parts`` are still to be named.

    Args:
        recipes: of its pictures, each of one frame, all in one codec.
    """
    first, layout = recipes[0], pack_layout([math.prod(each.shape) for each in recipes])
    chunks = layout.bytes // layout.chunk_bytes
    bound = clip_bound(layout.bytes, chunks) + PART_METADATA_BOUND * len(recipes)
    return replace(
        first,
        key=pack_key([each.key for each in recipes]),
        frames=np.zeros(len(recipes), np.int32),
        shape=(layout.bytes,),
        bound=bound,
        kind=ObjectKind.PACK,
    )
