"""Intermediates that last behind their generation: pictures of all frames that clips of a video can ever have.

Their content keys hold neither a generation nor its draws, so each generation finds those that were made before. Most
videos have several, one behind the other: a worker holds one while it makes it, and room for its pixels is promised
before it is known how well they pack.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.arrays import by_value
from viewcache.materializer.media.loss import GROUP, LOSSY, encoding_order
from viewcache.materializer.ops.lossy import stride_of
from viewcache.materializer.planning.ladder import GUESSED, Ladder
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.retention.density import DensityOf
from viewcache.materializer.retention.horizon import Reach
from viewcache.materializer.retention.intermediates import (
    intermediate_recipe,
    native_like,
    picture_like,
    picture_order,
    picture_recipes,
    recipe_in,
)
from viewcache.materializer.retention.needs import VideoRows
from viewcache.materializer.retention.sources import native_bytes_of
from viewcache.materializer.retention.ways import ClipKind, How, ToCome, Way, Where, are_images

__all__ = ["LEAST_PICTURES", "PART_BYTES", "Lasting", "part_bytes_for", "part_of", "part_pictures"]

PART_BYTES = (128 << 20, 32 << 20, 8 << 20, 2 << 20)
"""Raw bytes that one object may have: a worker holds so many, and one damaged byte costs so much to make again. There
are few sizes, so that what lies in the store is found again under another budget."""

PARTS = 16
"""So many of them a budget holds at least: what is promised to one is not to be had by others."""

LEAST_PICTURES = 16
"""Two full groups of a stride of two: with fewer, groups pack badly."""


class Lasting:
    """What can be kept of some videos for all epochs to come."""

    def __init__(
        self,
        plans: Sequence[ToCome],
        kinds: Sequence[ClipKind],
        ways: Sequence[Way],
        where: Where,
        reach: Reach,
        part_bytes: int,
        ladder: Ladder,
        density: DensityOf,
    ) -> None:
        """Look at the videos' items.

        Args:
            plans: one generation of each task.
            kinds: of their clips.
            ways: all that are weighed.
            where: where the plans have the videos.
            reach: which frames of these clips can have.
            part_bytes: most bytes that are promised to one object.
            ladder: what packing does.
            density: how densely the pictures of each video are packed.
        """
        self.reach = reach
        self.ways = tuple(way for way in ways if way.lasts)
        """Those that last."""
        self.videos = where.videos
        """Content keys; a video's place is its place among them."""
        self.is_image = are_images(plans, self.videos)
        """(V,) which are images."""
        self._plans, self._kinds, self._where = plans, kinds, where
        self._part_bytes, self._ladder, self._density = part_bytes, ladder, density
        whole = [replace(each, rows=np.ones(len(each.plan), np.bool_)) for each in plans]
        self._rows = [VideoRows(each, places) for each, places in zip(whole, where.places, strict=True)]
        self._known: dict[tuple[int, How, str], tuple[Recipe, ...]] = {}

    def recipes(self, place: int, way: Way) -> tuple[Recipe, ...]:
        """The objects that a way keeps of the video at a place; none if it keeps none."""
        return tuple(each for how in self._hows(place, way) for each in self.parts(place, how, way.codec))

    def pictures(self, way: Way) -> Iterator[tuple[How, NDArray[np.int64]]]:
        """How the pictures of images begin that a way keeps, whether or not such a picture can be kept.

        Each with the places of the images that have one, once each.
        """
        seen: dict[How, NDArray[np.int64]] = {}
        for kind in self._kinds[way.kept :]:
            left = self.is_image.copy()
            for number in kind.plans:
                firsts = self._rows[number].firsts(len(self.videos))
                places = np.flatnonzero(left & (firsts >= 0))
                left[places] = False
                for how, mine in kind.hows(self._plans[number].plan, firsts[places], way.intermediate):
                    there = places[mine]
                    if how in seen:
                        there = np.setdiff1d(there, seen[how])
                    seen[how] = np.concatenate([seen.get(how, there[:0]), there])
                    yield how, there

    def alike(
        self, how: How, codec: str, places: NDArray[np.int64]
    ) -> Iterator[tuple[Recipe | None, NDArray[np.int64]]]:
        """Images whose pictures in a codec are alike, with what these have in common; none that cannot be kept.

        There may be a million, of each of which only the key is its own. None where more is: of what is encoded it is
        known how densely each image packs.
        """
        if how is not None:
            yield self._like(how, 0, codec), places
            return
        for size, mine in by_value(self._native_bytes[places]):
            if size >= 0:  # other planes cannot be kept
                yield self._like(None, size, codec), places[mine]

    def _like(self, how: How, size: int, codec: str) -> Recipe | None:
        """See `alike`; ``size`` is that of the decoder's planes."""
        of = partial(native_like, size) if how is None else partial(picture_like, *how)
        rung = self._ladder.rung(codec, math.prod(of(codec, 1.0).shape))
        return None if codec == LOSSY or rung.lead else of(codec, rung.promised)

    def packed(self, codec: str, size: int) -> int:
        """What a codec is expected to leave of a picture of so many bytes."""
        return math.ceil(size * self._ladder.rung(codec, size).packed)

    def raw_bytes(self, how: How, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the pictures of images that have been through the same; 0 where such a one cannot be kept."""
        if how is None:
            return np.maximum(0, self._native_bytes[places])
        return np.full(len(places), math.prod(picture_like(*how, "", 1.0).shape), np.int64)

    @cached_property
    def _native_bytes(self) -> NDArray[np.int64]:
        """(V,), see `native_bytes_of`."""
        return native_bytes_of(self._plans, self._where)

    def video_id(self, place: int) -> int:
        """The catalog's id of the video at a place."""
        number, row = self._where.first(place)
        return int(self._plans[number].plan.videos.ids[row])

    def _hows(self, place: int, way: Way) -> Iterable[How]:
        """How the clips of a video begin that a way does not keep, each once."""
        return dict.fromkeys(how for kind in self._kinds[way.kept :] for how in self._how(place, kind, way))

    def _how(self, place: int, kind: ClipKind, way: Way) -> list[How]:
        """How the clips of a kind begin, which is one way; none if there are none of the video."""
        for number in kind.plans:
            row = self._rows[number].first(place)
            if row is not None:
                return [kind.how(self._plans[number].plan, row, way.intermediate)]
        return []

    def parts(self, place: int, how: How, codec: str) -> tuple[Recipe, ...]:
        """The objects of the video at a place that are of pictures which have been through the same; none if none."""
        for like, _ in self.alike(how, codec, np.array([place])) if self.is_image[place] else ():
            if like is not None:
                return (*picture_recipes(self.videos[place : place + 1], like),)
        found = self._known.get((place, how, codec))
        if found is None:
            number, row = self._where.first(place)
            key, index = self.videos[place], self._plans[number].index_of(row)
            if how is None and index.native_bytes is None:
                return ()  # such planes cannot be kept
            reached = self.reach.frames(place)
            frames = reached[reached < index.frames]  # another task may have been planned by a header that lies
            if not len(frames):
                return ()
            if codec == LOSSY:
                assert how is not None  # there is a loss behind the resize only
                frames = whole_groups(frames, encoding_order(index.frames, stride_of(how[0][-1].params)))
            one = intermediate_recipe(key, how, frames[:1], index)
            picture = math.prod(one.shape)
            size = part_pictures(picture, part_of(codec, self._part_bytes))
            promised = self._density(key, codec, picture).of(self._ladder.rung(codec, picture)).promised
            parts = (frames[start : start + size] for start in range(0, len(frames), size))
            ordered = (
                part if codec == LOSSY else picture_order(part, int(self.reach.strides[place])) for part in parts
            )
            if len(frames) == 1:
                made = [recipe_in(codec, one)]
            else:
                made = [intermediate_recipe(key, how, part, index, codec) for part in ordered]
            found = tuple(
                replace(each, bound=clip_bound(int(math.prod(each.shape) * promised), len(each.frames)))
                for each in made
            )
            self._known[place, how, codec] = found
        return found


def whole_groups(frames: NDArray[np.int32], order: NDArray[np.int32]) -> NDArray[np.int32]:
    """All frames that are encoded together with some of a video, in the order in which they are."""
    wanted = np.isin(order, frames)
    starts = np.arange(0, len(order), GROUP)
    whole: NDArray[np.int32] = order[np.repeat(np.logical_or.reduceat(wanted, starts), GROUP)[: len(order)]]
    return whole


def part_bytes_for(budget_bytes: int, most_bytes: int) -> int:
    """Most raw bytes of one object under a budget, where a worker can hold ``most_bytes``."""
    most = min(budget_bytes // PARTS, most_bytes)
    return next((size for size in PART_BYTES if size <= most), PART_BYTES[-1])


def part_of(codec: str, part_bytes: int) -> int:
    """Most raw bytes of one object in a codec, where so many may be promised to it.

    What is packed well has more pictures, but no more than can be made in half a second: who is preempted loses them.
    """
    promised = GUESSED[codec].promised  # not as measured: parts must be found again
    return next((size for size in PART_BYTES[1:] if part_bytes < size <= part_bytes / promised), part_bytes)


def part_pictures(picture_bytes: int, part_bytes: int) -> int:
    """How many pictures one object has: whole groups of each class of a stride of two."""
    return max(LEAST_PICTURES, part_bytes // max(1, picture_bytes) // LEAST_PICTURES * LEAST_PICTURES)
