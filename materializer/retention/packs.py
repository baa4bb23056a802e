"""Which kept pictures of images lie together, as packs: those that blocks to come need first, and as they lie already.

A pack stays and leaves as a whole. What is chosen is chosen image by image, so of packs that lie there those are kept
of which the largest part was chosen, as long as they take no more room than what was chosen of all of them.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.catalog.records import ObjectKind
from viewcache.materializer.planning.packs import pack_layout, pieces
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe, pack_recipe
from viewcache.materializer.planning.rows import ids_of
from viewcache.materializer.retention.intermediates import intermediate_rows
from viewcache.materializer.retention.ways import ToCome
from viewcache.materializer.scheduling.intermediate_work import Pack

__all__ = ["Packs", "Picture", "first_blocks"]

Picture = tuple[str, Recipe]
"""Content key of an image, and how a picture of it is made."""

TRIES = 3
"""An image whose packs could not be made so often is not packed again; after the first time it is packed alone."""


@dataclass(frozen=True, slots=True)
class Lies:
    """Where a picture lies in the store."""

    pack: str
    """Content key of the pack."""
    bytes: int
    """What it takes: its part of the pack."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A pack that was made, or is to be."""

    object_id: int
    images: tuple[str, ...]
    """Content keys."""
    pictures: tuple[str, ...]
    """Those of their pictures."""
    formed: Pack | None = None
    """How it is made, if it was formed in this run."""
    ways: Set[tuple[ObjectKind | None, str]] | None = None
    """Kinds and codecs of its pictures that were decided with them; None of a pack of an earlier run."""


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
        self._places: dict[str, dict[str, int]] = {}
        """Content key of a picture → that of each pack that has it, and where it begins there in bytes."""
        self._to_come: dict[int, set[str]] = {}
        """Generation of a group → content keys of its blocks that are still to be made."""
        self._failures: Counter[str] = Counter()
        """How often a pack of an image could not be made."""

    def __len__(self) -> int:
        """How many are known: those that lie there, and those that are to be made."""
        return len(self._known)

    def look(self) -> bool:
        """Learn which packs lie in the store; returns whether any do."""
        there = self._catalog.query("read_packs")
        ids, known = there["object_id"].to_pylist(), {pack.object_id for pack in self._known.values()}
        if fresh := [each for each in ids if each not in known]:
            parts: dict[tuple[str, int], list[tuple[str, str]]] = {}
            for row in self._catalog.pack_parts(fresh).to_pylist():
                parts.setdefault((row["pack"], row["object_id"]), []).append((row["video_key"], row["key"]))
                self._places.setdefault(row["key"], {})[row["pack"]] = row["first_byte"]
            for (key, object_id), mine in parts.items():
                images, pictures = zip(*mine, strict=True)
                self._known[key] = _Known(object_id, images, pictures)
        return bool(ids)

    def finder(self) -> Callable[[str], Lies | None]:
        """Tells where a picture lies now, by its content key; None if it is not there."""
        sizes = {key: self._size_of(key) for key in self._known}
        lies = {
            key: Lies(key, -(-size // len(self._known[key].pictures)))
            for key, size in sizes.items()
            if size is not None
        }
        return lambda picture: next((lies[pack] for pack in self._places.get(picture, ()) if pack in lies), None)

    def may_have(self, kind: ObjectKind | None, codec: str) -> bool:
        """Whether pictures of a kind in a codec that was decided with them may lie in a pack."""
        return any(pack.ways is None or (kind, codec) in pack.ways for pack in self._known.values())

    def failed(self, packs: Iterable[Pack]) -> None:
        """Take note of packs that could not be made, whether or not they are forgotten by now."""
        for pack in packs:
            self._failures.update(pack.images)

    def lying(self, pictures: Iterable[Picture]) -> list[IntermediateObject]:
        """Those of some pictures that lie in the store."""
        find = self.finder()
        found = ((video, recipe, find(recipe.key)) for video, recipe in pictures)
        return [self._object(video, recipe, lies.pack) for video, recipe, lies in found if lies is not None]

    def come(self, group_generation: int, blocks: Iterable[str]) -> None:
        """Take note of the blocks of a generation that are to come and are not made, by their content keys."""
        self._to_come[group_generation] = set(blocks)

    def forget(self, group_generation: int) -> None:
        """A generation is over: none of its blocks is to come; what is to be made with them is forgotten later."""
        self._to_come.pop(group_generation, None)

    def still(
        self, kept: Mapping[str, Sequence[IntermediateObject]], making: Set[str]
    ) -> dict[str, tuple[IntermediateObject, ...]]:
        """Of pictures that are to stay as they were those of images whose packs lie there, or come with a block.

        Args:
            kept: content key of an image → its pictures.
            making: content keys of all that is being made now.
        """
        stays = cache(partial(self._is_of_use, making=making, to_come=self._all_to_come()))
        return {image: tuple(mine) for image, mine in kept.items() if all(stays(each.pack) for each in mine)}

    def kept(
        self,
        pictures: Sequence[Picture],
        weighed: Collection[str],
        blocks: Mapping[str, tuple[int, str]],
        making: Set[str],
        most_bytes: int,
    ) -> list[IntermediateObject]:
        """Which of the pictures that were chosen are kept, in packs that lie there or are to be made, and in new ones.

        Args:
            pictures: what was chosen.
            weighed: content keys of the images among which was chosen.
            blocks: see `first_blocks`; a picture of which nothing is said there is left for another time.
            making: content keys of all that is being made now.
            most_bytes: of the pictures of a new pack.
        """
        find = self.finder()
        lies = {recipe.key: there for _, recipe in pictures if (there := find(recipe.key)) is not None}
        stays = self._those_that_stay(Counter(each.pack for each in lies.values()), set(weighed))
        coming = self._coming({recipe.key for _, recipe in pictures}, making)
        found: list[IntermediateObject] = []
        fresh: dict[tuple[int, str, str, str], list[Picture]] = {}
        for video, recipe in pictures:
            if recipe.key in lies:
                pack = lies[recipe.key].pack if lies[recipe.key].pack in stays else None
            else:
                pack = next((each for each in self._places.get(recipe.key, {}) if each in coming), None)
                failures = self._failures[video]
                if pack is None and video in blocks and failures < TRIES:
                    alone = video if failures else ""
                    fresh.setdefault((*blocks[video], recipe.codec, alone), []).append((video, recipe))
            if pack is not None:
                found.append(self._object(video, recipe, pack))
        new = [each for key in sorted(fresh) for each in self._pieces(key[1], fresh[key], most_bytes)]
        formed = self._form(new)
        self._prune(making)
        return [*found, *formed]

    def packs_of(self, objects: Iterable[IntermediateObject]) -> list[Pack]:
        """The packs that some pictures lie in, in the order of these."""
        found = []
        for key in dict.fromkeys(each.pack for each in objects):
            known = self._known.get(key)
            if known is not None:
                unknown = Pack(known.object_id, key, self._size_of(key) or 0, known.images)
                found.append(known.formed or unknown)
        return found

    def _coming(self, chosen: set[str], making: Set[str]) -> set[str]:
        """Packs that are being made, or are to be made with a block to come, of pictures that are all chosen."""
        to_come = self._all_to_come()
        return {
            key
            for key, pack in self._known.items()
            if self._comes(key, making, to_come)
            and chosen.issuperset(pack.pictures)
            and max(map(self._failures.__getitem__, pack.images)) < (1 if len(pack.images) > 1 else TRIES)
        }

    def _those_that_stay(self, wanted: Mapping[str, int], weighed: Set[str]) -> set[str]:
        """Of packs of which so many pictures each were chosen; of other images than those nothing is known."""
        sizes = {key: self._size_of(key) or 0 for key in wanted}
        asked = {key: sum(image in weighed for image in self._known[key].images) for key in wanted}
        share = {key: count / asked[key] for key, count in wanted.items()}
        room = math.fsum(sizes[key] * count / len(self._known[key].images) for key, count in wanted.items())
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
        formed = []
        for object_id, recipe, (block, pictures) in zip(ids.tolist(), recipes, packs, strict=True):
            images, mine = zip(*pictures, strict=True)
            formed.append(Pack(object_id, recipe.key, recipe.bound, images, mine, recipe, block))
        firsts = [pack_layout([math.prod(each.shape) for each in pack.pictures]).firsts for pack in formed]
        self._catalog.record_packs(pa.Table.from_pylist(list(_rows(formed, firsts))))
        objects: list[IntermediateObject] = []
        for pack, places in zip(formed, firsts, strict=True):
            ways = {(each.kind, each.codec) for each in pack.pictures if each.codec_is_chosen}
            keys_in = tuple(each.key for each in pack.pictures)
            self._known[pack.key] = _Known(pack.object_id, pack.images, keys_in, pack, ways)
            for image, picture, first in zip(pack.images, pack.pictures, places, strict=True):
                self._places.setdefault(picture.key, {})[pack.key] = first
                objects.append(self._object(image, picture, pack.key))
        return objects

    def _object(self, video: str, recipe: Recipe, pack: str) -> IntermediateObject:
        return IntermediateObject(self._known[pack].object_id, video, recipe, pack, self._places[recipe.key][pack])

    def _all_to_come(self) -> set[str]:
        return set().union(*self._to_come.values())

    def _comes(self, key: str, making: Set[str], to_come: Set[str]) -> bool:
        """Whether a pack is being made, or is to be made with a block to come."""
        formed = self._known[key].formed
        return key in making or (formed is not None and formed.block in to_come)

    def _is_of_use(self, key: str, making: Set[str], to_come: Set[str]) -> bool:
        """Whether a pack comes, or lies there; asked in this order, since one that is being made may be there then."""
        return key in self._known and (self._comes(key, making, to_come) or self._size_of(key) is not None)

    def _prune(self, making: Set[str]) -> None:
        """Forget packs that neither lie there nor come: their pictures are packed with others."""
        to_come = self._all_to_come()
        for key, pack in list(self._known.items()):
            if not self._is_of_use(key, making, to_come):
                del self._known[key]
                for picture in set(pack.pictures):  # a store may hold one that says the same picture twice
                    places = self._places[picture]
                    del places[key]
                    if not places:
                        del self._places[picture]


def _rows(packs: Sequence[Pack], firsts: Sequence[tuple[int, ...]]) -> Iterator[dict[str, object]]:
    """Which pictures packs have, ``schemas.PACK_PART``; and where each begins."""
    for pack, mine in zip(packs, firsts, strict=True):
        for place, (image, picture, first) in enumerate(zip(pack.images, pack.pictures, mine, strict=True)):
            row = {"object_id": pack.object_id, "place": place, "first_byte": first}
            yield row | {"key": picture.key, "video_key": image}


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
