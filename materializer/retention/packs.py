"""Which kept pictures of images lie together, as packs: those that blocks to come need first, and as they lie already.

A pack stays and leaves as a whole. What is chosen is chosen image by image, so of packs that lie there those are kept
of which the largest part was chosen, as long as they take no more room than what was chosen of all of them.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.materializer.planning.packs import pack_layout, pieces
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe, pack_recipe
from viewcache.materializer.planning.rows import ids_of
from viewcache.materializer.retention.intermediates import intermediate_rows
from viewcache.materializer.retention.ways import ToCome
from viewcache.materializer.scheduling.intermediate_work import Pack

__all__ = ["Packs", "first_blocks"]

Picture = tuple[str, Recipe]
"""Content key of an image, and how a picture of it is made."""

TRIES = 3
"""A pack that could not be made so often is not tried again."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a picture lies."""

    pack: str
    """Content key of the pack."""
    first: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A pack that was made, or is to be."""

    object_id: int
    pictures: tuple[str, ...]
    """Their content keys."""
    images: tuple[str, ...]
    """Those of their images."""


class Packs:
    """The packs of one cache. Not thread-safe: the keeper's lock guards it."""

    def __init__(self, catalog: Catalog, size_of: Callable[[str], int | None]) -> None:
        """None is known yet.

        Args:
            catalog: what we know.
            size_of: tells how many bytes an object takes in the store, by its content key; None if it is not there.
        """
        self._catalog, self._size_of = catalog, size_of
        self._known: dict[str, _Known] = {}
        """By content key."""
        self._places: dict[str, tuple[_Place, ...]] = {}
        """By the content key of the picture; of several packs that have it, the last one that was told of is first."""
        self._formed: dict[str, Pack] = {}
        """Packs that were formed in this run: they can be made."""
        self._to_come: dict[int, set[str]] = {}
        """Generation of a group → content keys of its blocks that are still to be made."""
        self._failures: Counter[str] = Counter()

    def look(self) -> set[str]:
        """Learn which packs lie in the store; returns in which codecs."""
        there = self._catalog.query("read_packs")
        ids, known = there["object_id"].to_pylist(), {pack.object_id for pack in self._known.values()}
        if fresh := [each for each in ids if each not in known]:
            found: dict[tuple[str, int], list[tuple[str, str]]] = {}
            for row in self._catalog.pack_parts(fresh).to_pylist():
                found.setdefault((row["pack"], row["object_id"]), []).append((row["key"], row["video_key"]))
                self._put(row["key"], _Place(row["pack"], row["first_byte"]))
            for (key, object_id), parts in found.items():
                pictures, images = zip(*parts, strict=True)
                self._known[key] = _Known(object_id, pictures, images)
        return set(there["codec"].to_pylist())

    def _put(self, key: str, place: _Place) -> None:
        """A picture lies in one more pack, or will."""
        others = (each for each in self._places.get(key, ()) if self._size_of(each.pack) is not None)
        self._places[key] = (place, *others)

    def _lies(self, key: str) -> _Place | None:
        """Where a picture lies in the store."""
        return next((each for each in self._places.get(key, ()) if self._size_of(each.pack) is not None), None)

    def pack_of(self, key: str) -> str | None:
        """Content key of the pack in the store that a picture lies in; None if there is none."""
        place = self._lies(key)
        return None if place is None else place.pack

    def pictures_of(self, pack: str) -> tuple[str, ...]:
        """Content keys of the pictures of a pack."""
        return self._known[pack].pictures

    def size_of(self, key: str) -> int | None:
        """What a picture takes in the store, by its content key: its part of its pack; None if it is not there."""
        place = self._lies(key)
        size = None if place is None else self._size_of(place.pack)
        if place is None or size is None:
            return None
        return -(-size // len(self.pictures_of(place.pack)))

    def failed(self, keys: Iterable[str]) -> None:
        """Take note of packs that could not be made."""
        self._failures.update(keys)

    def lying(self, pictures: Iterable[Picture]) -> list[IntermediateObject]:
        """Those of some pictures that lie in the store."""
        places = ((video, recipe, self._lies(recipe.key)) for video, recipe in pictures)
        return [self._object(video, recipe, place) for video, recipe, place in places if place is not None]

    def forget(self, group_generation: int) -> None:
        """A generation is over: none of its blocks is to come."""
        self._to_come.pop(group_generation, None)

    def kept(
        self,
        group_generation: int,
        pictures: Sequence[Picture],
        weighed: Collection[str],
        blocks: Mapping[str, tuple[int, str]],
        most_bytes: int,
    ) -> list[IntermediateObject]:
        """Which of the pictures that were chosen are kept, in packs that lie there or are to be made, and in new ones.

        Args:
            group_generation: the generation for which they were chosen.
            pictures: what was chosen.
            weighed: content keys of the images among which was chosen.
            blocks: see `first_blocks`; a picture of which nothing is said there is left for another time.
            most_bytes: of the pictures of a new pack.
        """
        lies = {recipe.key: place for _, recipe in pictures if (place := self._lies(recipe.key)) is not None}
        wanted = Counter(place.pack for place in lies.values())
        stays = self._those_that_stay(wanted, set(weighed))
        self._to_come[group_generation] = {block for _, block in blocks.values()}
        to_come, chosen = set().union(*self._to_come.values()), {recipe.key for _, recipe in pictures}
        making = {
            key
            for key, pack in self._formed.items()
            if key not in wanted and pack.block in to_come and chosen.issuperset(self.pictures_of(key))
        }
        found: list[IntermediateObject] = []
        fresh: dict[tuple[int, str, str], list[Picture]] = {}
        for video, recipe in pictures:
            place = lies.get(recipe.key)
            if place is None:
                place = next((each for each in self._places.get(recipe.key, ()) if each.pack in making), None)
                if place is None and video in blocks:
                    fresh.setdefault((*blocks[video], recipe.codec), []).append((video, recipe))
            elif place.pack not in stays:
                place = None
            if place is not None:
                found.append(self._object(video, recipe, place))
        new = [each for key in sorted(fresh) for each in self._pieces(key[1], fresh[key], most_bytes)]
        return [*found, *self._form(new)]

    def to_make(self, objects: Iterable[IntermediateObject]) -> list[Pack]:
        """The packs that some pictures lie in, as far as they can be made; in the order of the pictures."""
        keys = dict.fromkeys(each.pack for each in objects)
        return [self._formed[key] for key in keys if key in self._formed and self._failures[key] < TRIES]

    def _those_that_stay(self, wanted: Mapping[str, int], weighed: Set[str]) -> set[str]:
        """Of packs of which so many pictures each were chosen; of other images than those nothing is known."""
        sizes = {key: self._size_of(key) or 0 for key in wanted}
        asked = {key: sum(image in weighed for image in self._known[key].images) for key in wanted}
        share = {key: count / asked[key] for key, count in wanted.items()}
        room = math.fsum(sizes[key] * share[key] for key in wanted)
        stays: set[str] = set()
        for key in sorted(wanted, key=lambda key: (-share[key], key)):
            room -= sizes[key]
            if room < -0.5:
                break
            stays.add(key)
        return stays

    def _pieces(self, block: str, pictures: Sequence[Picture], most_bytes: int) -> list[tuple[str, list[Picture]]]:
        places = pieces([math.prod(recipe.shape) for _, recipe in pictures], most_bytes)
        return [(block, [pictures[place] for place in each]) for each in places]

    def _form(self, packs: Sequence[tuple[str, list[Picture]]]) -> list[IntermediateObject]:
        """New packs of pictures, each with its block; they are recorded."""
        if not packs:
            return []
        recipes = [pack_recipe([recipe for _, recipe in pictures]) for _, pictures in packs]
        keys = np.frombuffer(bytes.fromhex("".join(recipe.key for recipe in recipes)), "V16")
        with self._catalog.naming:
            ids, known = ids_of(self._catalog, keys)
            fresh = {int(ids[k]): ("", None, recipes[k]) for k in np.flatnonzero(~known).tolist()}
            if fresh:
                self._catalog.record_objects(intermediate_rows(fresh))
        objects: list[IntermediateObject] = []
        rows: list[dict[str, object]] = []
        for object_id, recipe, (block, pictures) in zip(ids.tolist(), recipes, packs, strict=True):
            firsts = pack_layout([math.prod(each.shape) for _, each in pictures]).firsts
            images, parts = zip(*((video, each.key) for video, each in pictures), strict=True)
            self._known[recipe.key] = _Known(object_id, parts, images)
            self._formed[recipe.key] = Pack(object_id, recipe, block, tuple(pictures))
            for place, (first, (video, each)) in enumerate(zip(firsts, pictures, strict=True)):
                self._put(each.key, _Place(recipe.key, first))
                objects.append(self._object(video, each, _Place(recipe.key, first)))
                columns = ("object_id", "place", "key", "video_key", "first_byte")
                rows.append(dict(zip(columns, (object_id, place, each.key, video, first), strict=True)))
        self._catalog.record_packs(pa.Table.from_pylist(rows))
        return objects

    def _object(self, video: str, recipe: Recipe, place: _Place) -> IntermediateObject:
        return IntermediateObject(self._known[place.pack].object_id, video, recipe, place.pack, place.first)


def first_blocks(plans: Sequence[ToCome]) -> dict[str, tuple[int, str]]:
    """Content key of each image → order of need and content key of the first block to come that has it and is not made.

    Of an image of which all blocks to come are made nothing is said.
    """
    found: dict[str, tuple[int, str]] = {}
    for each in plans:
        plan = each.plan
        rows = np.flatnonzero(each.rows & ~each.ready)
        rows = rows[np.argsort(plan.seq[rows], kind="stable")]
        numbers, first = np.unique(plan.video[rows], return_index=True)
        for number, row in zip(numbers.tolist(), rows[first].tolist(), strict=True):
            image, mine = plan.videos.keys[number], (int(plan.seq[row]), plan.key(row))
            found[image] = min(mine, found.get(image, mine))
    return found
