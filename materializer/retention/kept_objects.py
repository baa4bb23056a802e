"""The objects that a choice keeps of each video, named in the catalog, and where workers find what they are made of."""

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.recipe import IntermediateObject, Recipe
from viewcache.materializer.retention.chosen import Chosen
from viewcache.materializer.retention.chosen_images import Before, chosen_images, recipes_that_last
from viewcache.materializer.retention.clip_sources import ClipSources, clip_code
from viewcache.materializer.retention.intermediates import Named, intermediate_recipe
from viewcache.materializer.retention.lying import Lying
from viewcache.materializer.retention.packs import Packs, Picture, first_blocks
from viewcache.materializer.retention.ways import How, ToCome, Way, are_images
from viewcache.materializer.scheduling.generation import ActiveGeneration

__all__ = ["KeptObjects", "Objects", "ObjectsOf"]

Objects = tuple[IntermediateObject, ...]

ObjectsOf = Mapping[str, Objects]
"""By the content key of the video."""


class KeptObjects:
    """Names them. Not thread-safe: the keeper's lock guards it."""

    def __init__(
        self,
        named: Named,
        packs: Packs,
        lying: Lying,
        pack_bytes: Callable[[], int],
        before: Callable[[], Before] = lambda: (),
    ) -> None:
        """Nothing is named yet.

        Args:
            named: gives objects the catalog's numbers.
            packs: which pictures of images lie together.
            lying: is told what will last.
            pack_bytes: tells how many bytes the pictures of a new pack have at most.
            before: tells what was decided before, of any generation.
        """
        self._named, self._packs, self._lying, self._pack_bytes = named, packs, lying, pack_bytes
        self._before = before

    def chosen(
        self,
        chosen: Chosen,
        plans: Sequence[ToCome],
        works: Sequence[ActiveGeneration],
        kept: ObjectsOf,
        making: Callable[[], Set[str]],
    ) -> tuple[dict[str, Objects], ClipSources]:
        """The intermediates of all videos that have some, in the order of the videos; images come behind the others.

        Args:
            chosen: what was chosen.
            plans: for which.
            works: whose they are.
            kept: those that stay as they were.
            making: tells the content keys of all that is being made now.
        """
        recipes: list[tuple[str, int, Recipe]] = []
        clips: dict[str, int] = {}
        objects: dict[str, Objects] = {}
        is_image = are_images(plans, chosen.weighed.videos)
        for video in np.flatnonzero(~is_image).tolist():
            key = chosen.weighed.videos[video]
            way = chosen.weighed.ways[int(chosen.choice.option[video])]
            if way.intermediate is None:
                continue
            objects[key] = () if way.lasts else kept.get(key, ())
            # What pictures have been through → frames of all clips that begin with it.
            wanted: dict[How, list[NDArray[np.int32]]] = {}
            video_id = -1
            for kind in chosen.weighed.kinds[way.kept :]:
                for k in kind.plans:
                    each, plan, rows = plans[k], plans[k].plan, works[k].rows_of_video(key)
                    rows = rows[each.rows[rows]]
                    # Since the plan was weighed another video may have come to stand in.
                    rows = rows[[plan.videos.keys[number] == key for number in plan.video[rows].tolist()]]
                    if len(rows):
                        row = int(plan.video[rows[0]])
                        video_id = int(plan.videos.ids[row])
                        clips.setdefault(key, clip_code(int(rows[0]), k, len(works)))
                        if not way.lasts:
                            index = each.index_of(row)
                            how = kind.how(plan, int(rows[0]), way.intermediate)
                            frames = np.unique(plan.frames(rows))
                            # By its header it may have had more when the plan was drawn.
                            wanted.setdefault(how, []).append(frames[frames < index.frames])
            if way.lasts:
                assert chosen.weighed.lasting is not None
                whole = chosen.weighed.lasting.recipes(video, way)
                recipes += [(key, video_id, recipe) for recipe in whole]
                self._lying.will_last(works[0].group_generation, (recipe.key for recipe in whole))
            elif key not in kept:
                for how, parts in wanted.items():
                    frames = np.unique(np.concatenate(parts))
                    if len(frames):
                        recipes.append((key, video_id, intermediate_recipe(key, how, frames, index)))
        for mine in self._named(recipes):
            objects[mine.video] = (*objects[mine.video], mine)
        if not is_image.any():
            return objects, ClipSources(works, plans, clips)
        number, blocks = works[0].group_generation, first_blocks(plans)
        of_images = chosen_images(chosen, plans, works, self._packs.still(kept, making), self._before())
        objects |= of_images.staying
        among = [*compress(chosen.weighed.videos, is_image.tolist())]
        room = self._pack_bytes(), chosen.spare_bytes
        packed = self._packs.kept(number, of_images.pictures, among, blocks, making, *room)
        self._lying.will_last(number, {each.pack for (each,) in packed if each.recipe.codec_is_chosen})
        for picture in packed:
            image = picture[0].video
            objects[image] = (*objects[image], *picture) if objects[image] else picture
        return objects, ClipSources(works, plans, clips | of_images.clips if clips else of_images.clips)

    def lying(self, chosen: Chosen, objects: ObjectsOf) -> dict[str, tuple[Way, Objects]]:
        """What lasts and lies in the store of videos of which something else, or written otherwise, is kept."""
        lasting, ways, found = chosen.weighed.lasting, chosen.way_of(), list[tuple[str, int, Recipe]]()
        if lasting is None:
            return {}
        of_images: dict[Way, list[int]] = {}
        way_of: dict[str, Way] = {}
        for place, video in enumerate(lasting.videos):
            is_image = lasting.is_image[place]  # of which a picture is of use though others do not lie there
            known = chosen.weighed.lying.get(video, ())
            lying = [each for each in known if (each.made or is_image) and not each.is_coming]
            chosen_lies = objects.get(video) and any(each.way == ways.get(video) for each in lying)
            for kept in () if chosen_lies else lying[:1]:
                way_of[video] = kept.way
                if is_image:
                    of_images.setdefault(kept.way, []).append(place)
                else:
                    whole = lasting.recipes(place, kept.way)
                    found += [(video, lasting.video_id(place), recipe) for recipe in whole]
        pictures: list[Picture] = []
        before = self._before() if of_images else ()
        for way, mine in of_images.items():
            for how, places in lasting.pictures(way):
                wanted = places[np.isin(places, mine)]
                recipes = recipes_that_last(lasting, way, how, wanted, before)
                pictures += [(lasting.videos[place], recipe) for place, recipe in recipes]
        of_video: dict[str, Objects] = {}
        for lies in (*self._packs.lying(pictures), *((each,) for each in self._named(found))):
            video = lies[0].video
            of_video[video] = (*of_video[video], *lies) if video in of_video else lies
        return {video: (way_of[video], mine) for video, mine in of_video.items()}
