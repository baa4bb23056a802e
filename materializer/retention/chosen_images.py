"""What a choice keeps of images, of which there may be a million: worked out together for all that are alike.

The trade-off: an image has one frame, so none of this asks which frames are wanted. Recipes that another decision has
made are taken over, so that those of several generations are the same in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.arrays import by_value
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe
from viewcache.materializer.retention.chosen import Chosen
from viewcache.materializer.retention.clip_sources import clip_code
from viewcache.materializer.retention.intermediates import native_like, picture_like, picture_recipes
from viewcache.materializer.retention.lasting import Lasting
from viewcache.materializer.retention.needs import VideoRows
from viewcache.materializer.retention.sources import native_bytes_of
from viewcache.materializer.retention.ways import How, ToCome, Way, are_images
from viewcache.materializer.scheduling.generation import ActiveGeneration

__all__ = ["Before", "ChosenImages", "chosen_images", "recipes_that_last"]

Before = Sequence[Mapping[Way, Mapping[str, Sequence[IntermediateObject]]]]
"""What was decided before: pictures by the way for which they were chosen and the content key of their image."""


@dataclass(frozen=True, slots=True)
class ChosenImages:
    """What is kept of some images."""

    staying: dict[str, tuple[IntermediateObject, ...]]
    """Content key of each image of which something is kept → what of that is as it was before."""
    clips: dict[str, int]
    """Content key of each of them that a clip is to come of → such a clip, see `clip_code`."""
    pictures: list[tuple[str, Recipe]]
    """Content keys of images, in the order of need, and how the pictures of them are made that are not as before."""


def chosen_images(
    chosen: Chosen,
    plans: Sequence[ToCome],
    works: Sequence[ActiveGeneration],
    staying: Mapping[str, tuple[IntermediateObject, ...]],
    before: Before,
) -> ChosenImages:
    """What a choice keeps of images.

    Args:
        chosen: what was chosen.
        plans: for which, some of them of images.
        works: whose they are.
        staying: what is kept as before, by content key.
        before: recipes that are known.
    """
    return _Choice(chosen, plans, works).images(staying, before)


class _Choice:
    """A choice by columns: arrays are (V,) over all videos that were weighed."""

    def __init__(self, chosen: Chosen, plans: Sequence[ToCome], works: Sequence[ActiveGeneration]) -> None:
        self._chosen, self._weighed, self._plans, self._works = chosen, chosen.weighed, plans, works
        self._videos = self._weighed.videos
        option, ways = chosen.choice.option, self._weighed.ways
        keeps = np.array([way.intermediate is not None for way in ways])[option]
        self._kept = np.array([way.kept for way in ways])[option]
        self._mine = are_images(plans, self._videos) & keeps
        self._firsts = [
            VideoRows(replace(each, rows=_still(work, each)), places).firsts(len(self._videos))
            for work, each, places in zip(works, plans, self._weighed.where.places, strict=True)
        ]
        """Of each plan the row of the first clip to come of each video; -1 of one that has none."""

    def images(self, staying: Mapping[str, tuple[IntermediateObject, ...]], before: Before) -> ChosenImages:
        """See `chosen_images`."""
        codes = self._codes()
        there = self._mine & (codes >= 0)
        videos, ways, option = self._videos, self._weighed.ways, self._chosen.choice.option
        stays = np.zeros(len(videos), np.bool_)
        mine: dict[str, tuple[IntermediateObject, ...]] = {}
        for place in np.flatnonzero(self._mine).tolist():
            video = videos[place]
            stays[place] = video in staying
            mine[video] = staying.get(video, ())
        found: list[tuple[int, Recipe]] = []
        for column in np.unique(option[there]).tolist():
            way, wanted = ways[column], there & (option == column) & ~stays
            for how, places in self._begin(way, wanted):
                found += self._recipes(way, how, places, before)
        found.sort(key=itemgetter(0))
        places = np.flatnonzero(there)
        of = dict(zip(map(videos.__getitem__, places.tolist()), codes[places].tolist(), strict=True))
        pictures = [(videos[place], recipe) for place, recipe in found]
        return ChosenImages(mine, of, pictures)

    def _codes(self) -> NDArray[np.int64]:
        """A clip to come that is not kept of each image, see `clip_code`; -1 where there is none."""
        codes = np.full(len(self._videos), -1, np.int64)
        for number, kind in enumerate(self._weighed.kinds):
            for k in kind.plans:
                fresh = self._mine & (self._kept <= number) & (codes < 0) & (self._firsts[k] >= 0)
                codes[fresh] = clip_code(self._firsts[k][fresh], k, len(self._works))
        return codes

    def _begin(self, way: Way, wanted: NDArray[np.bool_]) -> Iterator[tuple[How, NDArray[np.int64]]]:
        """How pictures that a way keeps begin, with the places of some images that have them, each once."""
        if way.lasts:
            assert self._weighed.lasting is not None
            yield from ((how, places[wanted[places]]) for how, places in self._weighed.lasting.pictures(way))
            return
        found: dict[How, list[NDArray[np.int64]]] = {}
        for kind in self._weighed.kinds[way.kept :]:
            for k in kind.plans:
                places = np.flatnonzero(wanted & (self._firsts[k] >= 0))
                for how, mine in kind.hows(self._plans[k].plan, self._firsts[k][places], way.intermediate):
                    found.setdefault(how, []).append(places[mine])
        yield from ((how, np.unique(np.concatenate(each))) for how, each in found.items())

    def _recipes(self, way: Way, how: How, places: NDArray[np.int64], before: Before) -> Iterator[tuple[int, Recipe]]:
        """Pictures of images that have been through the same, with the places of these."""
        if way.lasts:
            assert self._weighed.lasting is not None
            yield from recipes_that_last(self._weighed.lasting, way, how, places, before)
            return
        likes = [(picture_like(*how, "", 1.0), places)] if how is not None else self._native(places)
        for like, mine in likes:
            images = [*map(self._videos.__getitem__, mine.tolist())]
            yield from zip(mine.tolist(), _made_like(images, like, before), strict=True)

    def _native(self, places: NDArray[np.int64]) -> Iterator[tuple[Recipe, NDArray[np.int64]]]:
        """Images whose planes have one size, and what pictures have in common that are these."""
        sizes = native_bytes_of(self._plans, self._weighed.where)[places]
        yield from ((native_like(size, "", 1.0), places[mine]) for size, mine in by_value(sizes) if size >= 0)


def recipes_that_last(
    lasting: Lasting, way: Way, how: How, places: NDArray[np.int64], before: Before
) -> Iterator[tuple[int, Recipe]]:
    """Pictures that last of images that have been through the same, with the places of these.

    Args:
        lasting: has the images.
        way: in which the pictures are kept.
        how: how they begin.
        places: of the images.
        before: recipes that are known.
    """
    for like, mine in lasting.alike(how, way.codec, places):
        if like is None:
            yield from ((place, each) for place in mine.tolist() for each in lasting.parts(place, how, way.codec))
        else:
            images = [*map(lasting.videos.__getitem__, mine.tolist())]
            yield from zip(mine.tolist(), _made_like(images, like, before), strict=True)


def _still(work: ActiveGeneration, each: ToCome) -> NDArray[np.bool_]:
    """(n,) clips to come whose image is the same as when the plan was weighed: another may have come to stand in."""
    plan, now = each.plan, work.plan
    if now is plan:
        return each.rows
    mine, others = (of.videos.keys.packed[of.video] for of in (plan, now))
    return np.asarray(each.rows & (mine == others).all(axis=1))


def _made_like(images: Sequence[str], like: Recipe, before: Before) -> list[Recipe]:
    """The recipes of some images' pictures, as `picture_recipes`, those that are known from before."""
    alike = [of_way for decided in before for way, of_way in decided.items() if way.codec == like.codec]
    known = [_known(image, like, alike) for image in images]
    fresh = iter(picture_recipes((image for image, recipe in zip(images, known, strict=True) if not recipe), like))
    return [recipe or next(fresh) for recipe in known]


def _known(image: str, like: Recipe, before: Sequence[Mapping[str, Sequence[IntermediateObject]]]) -> Recipe | None:
    for objects in before:
        for each in objects.get(image, ()):
            if each.recipe.row is like.row:  # which is the array of this `picture_like`, and of no other
                return each.recipe
    return None
