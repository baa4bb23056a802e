"""Intermediates that clips are made from: their recipes, and their rows for the catalog (SAND §5.3)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import ObjectRow
from viewcache.catalog.rows import object_table
from viewcache.materializer.arrays import by_class
from viewcache.materializer.keys import content_digests, content_key
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.ops import NativeOp, get
from viewcache.materializer.planning.program import Instruction, Program
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe
from viewcache.materializer.planning.rows import ids_of
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.retention.ways import How

__all__ = [
    "Named",
    "intermediate_recipe",
    "intermediate_rows",
    "named",
    "native_like",
    "picture_keys",
    "picture_like",
    "picture_order",
    "picture_recipes",
    "recipe_in",
]

SIZES = 1 << 12
"""What so many sizes of pictures of images have in common is remembered."""

_FIRST = np.zeros(1, np.int32)
"""The frame that an image has."""

Named = Callable[[Sequence[tuple[str, int, Recipe]]], list[IntermediateObject]]
"""Gives objects their numbers in the catalog, by keys and numbers of their videos and their recipes; see `named`."""


def intermediate_recipe(video: str, how: How, frames: NDArray[np.int32], index: MediaIndex, codec: str = "") -> Recipe:
    """Frames of a video, as decoded, or after a resize and the loss behind it.

    Args:
        video: its content key.
        how: what they have been through; None for the decoder's own planes.
        frames: source frames, in the order in which they are kept: see `picture_order`.
        index: of the video.
        codec: how they are stored, a name of `viewcache.store.CODECS` or ``ENCODED``; empty = it is chosen when they
            are made.
    """
    if how is None:
        size = index.native_bytes
        assert size is not None  # otherwise they were not to be had
        shape = (len(frames), size)
        key, nothing = _frames_key(video, frames), np.zeros(0, np.int32)
        bound = clip_bound(math.prod(shape), len(frames))
        recipe = Recipe(key, Program(()), nothing, frames, shape, 0, bound, ObjectKind.FRAMES, native=True)
    else:
        recipe = _resized(how, frames)
        recipe = replace(recipe, key=_aug_key(video, recipe.program, frames, recipe.row))
    return recipe_in(codec, recipe) if codec else recipe


def _resized(how: tuple[tuple[Instruction, ...], bytes], frames: NDArray[np.int32]) -> Recipe:
    """Frames of any video behind a resize: a recipe without a key."""
    steps, row = how[0], np.frombuffer(how[1], np.int32)
    op = get(steps[0].name)
    assert isinstance(op, NativeOp)  # `ClipKind.resize` is one
    shape = (len(frames), 3, *op.target(steps[0].params, row)[:2])
    bound = clip_bound(math.prod(shape), len(frames))
    return Recipe("", _program(steps), row, frames, shape, 0, bound, ObjectKind.AUG)


def recipe_in(codec: str, recipe: Recipe) -> Recipe:
    """The same pictures in a codec that was decided with them.

    They may be kept in two ways for a while: when the budget was changed, one is made from the other.
    """
    return replace(recipe, key=_key_in(codec, recipe.key), codec=codec, codec_is_chosen=True)


@lru_cache(SIZES)
def picture_like(steps: tuple[Instruction, ...], row: bytes, codec: str, promised: float) -> Recipe:
    """What pictures of all images have in common that have been through the same: a recipe without a key.

    Args:
        steps: what they have been through.
        row: the numbers of that.
        codec: as for `intermediate_recipe`.
        promised: most bytes that each raw byte takes.
    """
    like = _resized((steps, row), _FIRST)
    like = replace(like, bound=clip_bound(int(math.prod(like.shape) * promised), 1))
    return replace(like, codec=codec, codec_is_chosen=True) if codec else like


@lru_cache(SIZES)
def native_like(size: int, codec: str, promised: float) -> Recipe:
    """The same as `picture_like` of what the decoder gives, whose planes take so many bytes."""
    like = Recipe("", Program(()), np.zeros(0, np.int32), _FIRST, (1, size), 0, 0, kind=ObjectKind.FRAMES, native=True)
    like = replace(like, bound=clip_bound(int(size * promised), 1))
    return replace(like, codec=codec, codec_is_chosen=True) if codec else like


def picture_recipes(images: Iterable[str], like: Recipe) -> list[Recipe]:
    """The recipes of images' pictures of which this is what they have in common, by the content keys of the images."""
    videos = [*map(bytes.fromhex, images)]
    return [replace(like, key=key.hex()) for key in _digests_like(videos, like)]


def picture_keys(images: Iterable[str], how: How, codec: str) -> list[str]:
    """The content keys of the recipes of images' pictures in a codec that was decided with them."""
    videos = [*map(bytes.fromhex, images)]
    like = native_like(0, codec, 1.0) if how is None else picture_like(*how, codec, 1.0)  # of any size
    return [key.hex() for key in _digests_like(videos, like)]


def _digests_like(videos: Sequence[bytes], like: Recipe) -> list[bytes]:
    frames, drawn = like.frames.tobytes(), like.row.astype("<i4").tobytes()
    if like.native:
        found = content_digests("frames", videos, frames)
    else:
        found = content_digests("aug", videos, like.program.signature, frames, drawn)
    return content_digests("kept", found, like.codec.encode()) if like.codec_is_chosen else found


def _frames_key(video: str, frames: NDArray[np.int32]) -> str:
    return content_key("frames", bytes.fromhex(video), frames.tobytes())


def _aug_key(video: str, program: Program, frames: NDArray[np.int32], row: NDArray[np.int32]) -> str:
    drawn = row.astype("<i4").tobytes()
    return content_key("aug", bytes.fromhex(video), program.signature, frames.tobytes(), drawn)


def _key_in(codec: str, key: str) -> str:
    return content_key("kept", bytes.fromhex(key), codec.encode())


@lru_cache
def _program(steps: tuple[Instruction, ...]) -> Program:
    """What pictures have been through, for all videos alike: its signature is worked out once."""
    width = steps[0].width
    return Program(tuple(replace(step, sources=(k,), target=k + 1, column=k * width) for k, step in enumerate(steps)))


def picture_order(frames: NDArray[np.int32], stride: int) -> NDArray[np.int32]:
    """In which order pictures are packed in groups: for stride 2 all even frames, then all odd ones.

    A clip needs the frames of one class only, so that it unpacks no others. Where the tasks' strides differ, their
    greatest common divisor serves all of them.

    Args:
        frames: sorted and unique.
        stride: of the clips that are made from them.
    """
    return by_class(frames, stride)


def intermediate_rows(fresh: Mapping[int, tuple[str, int | None, Recipe]]) -> pa.Table:
    """New intermediates as the catalog records them; a pack is of no one video."""
    return object_table(
        [
            ObjectRow(
                object_id=object_id,
                key=recipe.key,
                kind=recipe.kind,
                video_id=video_id,
                depth=len(recipe.program.instructions),
                est_bytes=int(np.prod(recipe.shape)),
                cost_s=0.0,
                keep=True,
                shape="x".join(map(str, recipe.shape)),
                frame_list=recipe.frames.tolist() or None,
            )
            for object_id, (_, video_id, recipe) in fresh.items()
        ]
    )


def named(
    catalog: Catalog, recipes: Sequence[tuple[str, int, Recipe]], before: Mapping[str, int]
) -> list[IntermediateObject]:
    """Objects by the keys of their videos, their catalog's numbers and their recipes; new ones are recorded.

    ``before`` has numbers that were found before, by content key: they never change, and the catalog is not asked again
    for what lasts.
    """
    numbers = {recipe.key: before[recipe.key] for *_, recipe in recipes if recipe.key in before}
    asked = [each for each in recipes if each[2].key not in numbers]
    if asked:
        keys = np.frombuffer(bytes.fromhex("".join(recipe.key for *_, recipe in asked)), "V16")
        with catalog.naming:
            ids, known = ids_of(catalog, keys)
            fresh = {int(ids[k]): asked[k] for k in np.flatnonzero(~known).tolist()}
            if fresh:
                catalog.record_objects(intermediate_rows(fresh))
        numbers |= zip((recipe.key for *_, recipe in asked), ids.tolist(), strict=True)
    return [IntermediateObject(numbers[recipe.key], key, recipe) for key, _, recipe in recipes]
