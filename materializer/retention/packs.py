"""Which kept pictures of images lie together, as packs: those that blocks to come need first, and as they lie already.

A pack stays and leaves as a whole. What is chosen is chosen image by image, so of packs that lie there those are kept
of which the largest part was chosen, as long as they take no more room than what was chosen of all of them and what is
left of the budget.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.planning.packs import pack_layout, pieces
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe, pack_recipe
from viewcache.materializer.planning.rows import ids_of
from viewcache.materializer.retention.intermediates import intermediate_rows
from viewcache.materializer.retention.ways import ToCome
from viewcache.materializer.scheduling.intermediate_work import Pack

__all__ = ["Lies", "LocatedPictures", "Packs", "Picture", "first_blocks"]

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
    """What it takes: its part of the pack; at most, of one that is coming."""
    is_coming: bool = False
    """Whether the pack is yet to be made."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A pack that was made, or is to be."""

    object_id: int
    images: tuple[str, ...]
    """Content keys."""
    pictures: tuple[str, ...]
    """Those of their pictures."""
    firsts: tuple[int, ...]
    """Where each of these begins, in bytes."""
    objects: list[tuple[IntermediateObject, ...]]
    """Each picture as decisions have it, in a tuple of its own, which all of them share; empty until one asks."""
    formed: Pack | None = None
    """How it is made, if it was formed in this run."""
    ways: Set[tuple[ObjectKind | None, str]] | None = None
    """Kinds and codecs of its pictures that were decided with them; None of a pack of an earlier run."""


class LocatedPictures(Mapping[str, tuple[IntermediateObject, ...]]):
    """Pictures by the content key of their image, each in a pack that lies there now, if any does."""

    def __init__(self, pictures: Mapping[str, tuple[IntermediateObject, ...]], packs: "Packs") -> None:
        """Pictures as it was decided, and where to look for them."""
        self._pictures, self._packs = pictures, packs

    def __getitem__(self, image: str) -> tuple[IntermediateObject, ...]:
        """Those of one image.

        Raises:
            KeyError: it is not among them.
        """
        return tuple(map(self._packs.located, self._pictures[image]))

    def __iter__(self) -> Iterator[str]:
        """All images."""
        return iter(self._pictures)

    def __len__(self) -> int:
        """How many."""
        return len(self._pictures)


class Packs:
    """The packs of one cache. Not thread-safe but for what says so: the keeper's lock guards it."""

    def __init__(self, catalog: Catalog, size_of: Callable[[str], int | None]) -> None:
        """None is known yet.

        Args:
            catalog: what we know.
            size_of: tells how many bytes an object takes in the store, by its content key; None if it is not there.
        """
        self._catalog, self._size_of = catalog, size_of
        self._known: dict[str, _Known] = {}
        """By content key."""
        self._packs_of: dict[str, tuple[str, ...]] = {}
        """Content key of a picture → those of the packs that have it; all pictures of one pack share one tuple."""
        self._formed_for: dict[int, set[str]] = {}
        """Generation of a group → content keys of the packs that were formed for it when it was chosen last."""
        self._superseded: set[str] = set()
        self._failures: Counter[str] = Counter()
        """How often a pack of an image could not be made."""

    def __len__(self) -> int:
        """How many are known: those that lie there, and those that are to be made."""
        return len(self._known)

    def __contains__(self, key: object) -> bool:
        """Whether one is known, by its content key; any thread may ask."""
        return key in self._known

    def look(self) -> bool:
        """Learn which packs lie in the store; returns whether any do."""
        there = self._catalog.query("read_packs")
        ids, known = there["object_id"].to_pylist(), {pack.object_id for pack in self._known.values()}
        if fresh := [each for each in ids if each not in known]:
            parts: dict[tuple[str, int], list[tuple[str, str, int]]] = {}
            for row in self._catalog.pack_parts(fresh).to_pylist():
                part = row["video_key"], row["key"], row["first_byte"]
                parts.setdefault((row["pack"], row["object_id"]), []).append(part)
            for (key, object_id), mine in parts.items():
                images, pictures, firsts = zip(*mine, strict=True)
                self._learn(key, _Known(object_id, images, pictures, firsts, [()] * len(mine)))
        return bool(ids)

    def finder(self, before: int | None = None) -> Callable[[str], Lies | None]:
        """Tells where a picture lies now, by its content key; None if it is not there.

        ``before`` is a generation of a group: what is made for earlier ones counts as lying there.
        """
        lies: dict[str, Lies] = {}
        coming = set[str]() if before is None else self._coming(before, frozenset())
        for key, pack in self._known.items():
            size = self._size_of(key)
            is_coming = size is None and key in coming
            if is_coming:
                assert pack.formed is not None  # as of all that is to be made
                size = pack.formed.bound
            if size is not None:
                lies[key] = Lies(key, -(-size // len(pack.pictures)), is_coming)
        packs_of = self._packs_of

        def find(picture: str) -> Lies | None:
            for pack in packs_of.get(picture, ()):
                if pack in lies:
                    return lies[pack]
            return None

        return find

    def may_have(self, kind: ObjectKind | None, codec: str) -> bool:
        """Whether pictures of a kind in a codec that was decided with them may lie in a pack."""
        return any(pack.ways is None or (kind, codec) in pack.ways for pack in self._known.values())

    def failed(self, packs: Iterable[Pack]) -> None:
        """Take note of packs that could not be made, whether or not they are forgotten by now."""
        for pack in packs:
            self._failures.update(pack.images)

    def lying(self, pictures: Iterable[Picture]) -> list[tuple[IntermediateObject, ...]]:
        """Those of some pictures that lie in the store, each in a tuple of its own."""
        find = self.finder()
        found = ((video, recipe, find(recipe.key)) for video, recipe in pictures)
        return [self._object(video, recipe, lies.pack) for video, recipe, lies in found if lies is not None]

    def forget(self, group_generation: int) -> None:
        """A generation is over: what is to be made for it and is not being made is forgotten at the next choice."""
        self._formed_for.pop(group_generation, None)

    def take_superseded(self) -> set[str]:
        """Packs in whose place others were formed, since when it was asked last."""
        taken, self._superseded = self._superseded, set()
        return taken

    def forget_superseded(self, making: Set[str]) -> None:
        """Forget what neither lies there nor is to be made: from now on nobody begins it.

        Until then it is made as it was decided before, so that no block is made without its pack meanwhile.
        """
        wanted = set().union(*self._formed_for.values())
        for key, pack in list(self._known.items()):
            if key not in wanted and not self._stays(key, making):
                del self._known[key]
                for picture in set(pack.pictures):  # a store may hold one that says the same picture twice
                    if others := tuple(each for each in self._packs_of[picture] if each != key):
                        self._packs_of[picture] = others
                    else:
                        del self._packs_of[picture]

    def located(self, each: IntermediateObject) -> IntermediateObject:
        """A picture in a pack that lies there, if any does: it may have come otherwise than was planned.

        Any thread may ask.
        """
        if not each.pack or self._size_of(each.pack) is not None:
            return each
        for pack in self._packs_of.get(each.recipe.key, ()):
            known = self._known.get(pack)
            if known is not None and self._size_of(pack) is not None:
                first = known.firsts[known.pictures.index(each.recipe.key)]
                return replace(each, object_id=known.object_id, pack=pack, first=first)
        return each

    def still(
        self, kept: Mapping[str, Sequence[IntermediateObject]], making: Callable[[], Set[str]]
    ) -> dict[str, tuple[IntermediateObject, ...]]:
        """Of pictures that are to stay as they were those of images whose packs lie there or are being made.

        Args:
            kept: content key of an image → its pictures.
            making: tells the content keys of all that is being made now.
        """
        stays = cache(partial(self._stays, making=making()))
        return {image: tuple(mine) for image, mine in kept.items() if all(stays(each.pack) for each in mine)}

    def kept(
        self,
        group_generation: int,
        pictures: Sequence[Picture],
        weighed: Collection[str],
        blocks: Mapping[str, tuple[int, str]],
        making: Callable[[], Set[str]],
        most_bytes: int,
        spare_bytes: int,
    ) -> list[tuple[IntermediateObject, ...]]:
        """Which of the pictures that were chosen are kept, in packs that lie there or come, and in new ones.

        Each is in a tuple of its own, the same one in each decision: there may be a million.

        What was formed for the generation before and is not being made is formed anew: a task that has joined since
        may need an image sooner, and the block that has it first is the one that decodes it.

        Args:
            group_generation: the generation for which they were chosen.
            pictures: what was chosen.
            weighed: content keys of the images among which was chosen.
            blocks: see `first_blocks`; a picture of which nothing is said there is left for another time.
            making: tells the content keys of all that is being made now.
            most_bytes: of the pictures of a new pack.
            spare_bytes: of the budget, which nothing that was chosen takes.
        """
        coming = self._coming(group_generation, making())
        find = self.finder()  # asked after that: what was being made lies there now
        lies = {recipe.key: there for _, recipe in pictures if (there := find(recipe.key)) is not None}
        stays = self._those_that_stay(Counter(each.pack for each in lies.values()), set(weighed), spare_bytes)
        found: list[tuple[IntermediateObject, ...]] = []
        fresh: dict[tuple[int, str, str, str], list[Picture]] = {}
        for video, recipe in pictures:
            lying = lies.get(recipe.key)
            if lying is not None and lying.pack in stays:
                pack: str | None = lying.pack
            else:  # it may lie in another one, too
                packs = self._packs_of.get(recipe.key, ())
                pack = next((each for there in (stays, coming) for each in packs if each in there), None)
            if pack is not None:
                found.append(self._object(video, recipe, pack))
            elif lying is None and video in blocks and (failures := self._failures[video]) < TRIES:
                alone = video if failures else ""
                fresh.setdefault((*blocks[video], recipe.codec, alone), []).append((video, recipe))
        new = [each for key in sorted(fresh) for each in self._pieces(key[1], fresh[key], most_bytes)]
        formed = self._form(new)
        kept = [*found, *formed]
        self._supersede(group_generation, {each.pack for (each,) in formed}, [each for (each,) in kept])
        return kept

    def packs_of(self, objects: Iterable[IntermediateObject]) -> list[Pack]:
        """The packs that some pictures lie in, in the order of these."""
        found = []
        for key in dict.fromkeys(each.pack for each in objects):
            known = self._known.get(key)
            if known is not None:
                unknown = Pack(known.object_id, key, self._size_of(key) or 0, known.images)
                found.append(known.formed or unknown)
        return found

    def _coming(self, group_generation: int, making: Set[str]) -> set[str]:
        """Packs that are made whatever is kept for a generation: now, or for an earlier one."""
        earlier = set().union(*(mine for number, mine in self._formed_for.items() if number < group_generation))
        return {
            key
            for key in earlier | making
            if (pack := self._known.get(key)) is not None
            and pack.formed is not None
            and max(map(self._failures.__getitem__, pack.images)) < (1 if len(pack.images) > 1 else TRIES)
        }

    def _supersede(self, group_generation: int, formed: set[str], kept: Sequence[IntermediateObject]) -> None:
        """What was formed takes the place of what was before, and later generations need no packs of what is kept."""
        needless = self._formed_for.get(group_generation, set())
        self._formed_for[group_generation] = formed
        later = [mine for number, mine in self._formed_for.items() if number > group_generation and mine]
        pictures = {each.recipe.key for each in kept} if later else set[str]()
        for mine in later:
            covered = {key for key in mine if pictures.issuperset(self._known[key].pictures)}
            mine -= covered
            needless |= covered
        needless -= {each.pack for each in kept}
        self._superseded |= {key for key in needless if self._size_of(key) is None}

    def _those_that_stay(self, wanted: Mapping[str, int], weighed: Set[str], spare_bytes: int) -> set[str]:
        """Of packs of which so many pictures each were chosen; of other images than those nothing is known.

        What else lies in a pack takes room that is spare, or that of pictures whose packs do not stay.
        """
        sizes = {key: self._size_of(key) or 0 for key in wanted}
        asked = {key: sum(image in weighed for image in self._known[key].images) for key in wanted}
        share = {key: count / asked[key] for key, count in wanted.items()}
        chosen = math.fsum(sizes[key] * count / len(self._known[key].images) for key, count in wanted.items())
        room = chosen + spare_bytes
        stays: set[str] = set()
        for key in sorted(wanted, key=lambda key: (-share[key], key)):
            if sizes[key] <= room + 0.5:
                room -= sizes[key]
                stays.add(key)
        return stays

    def _pieces(self, block: str, pictures: Sequence[Picture], most_bytes: int) -> list[tuple[str, list[Picture]]]:
        places = pieces([math.prod(recipe.shape) for _, recipe in pictures], most_bytes)
        return [(block, [pictures[place] for place in each]) for each in places]

    def _form(self, packs: Sequence[tuple[str, list[Picture]]]) -> list[tuple[IntermediateObject, ...]]:
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
        named = zip(formed, firsts, strict=True)
        rows = [*_rows((pack, places) for pack, places in named if pack.key not in self._known)]
        if rows:
            self._catalog.record_packs(pa.Table.from_pylist(rows))
        objects: list[tuple[IntermediateObject, ...]] = []
        for pack, places in zip(formed, firsts, strict=True):
            ways = {(each.kind, each.codec) for each in pack.pictures if each.codec_is_chosen}
            keys_in = tuple(each.key for each in pack.pictures)
            before = self._known.get(pack.key)
            nothing: list[tuple[IntermediateObject, ...]] = [()] * len(keys_in)
            shared = nothing if before is None else before.objects
            made = _Known(pack.object_id, pack.images, keys_in, places, shared, pack, ways)
            self._learn(pack.key, made)
            for place, (image, picture) in enumerate(zip(pack.images, pack.pictures, strict=True)):
                objects.append(_object(made, pack.key, place, image, picture))
        return objects

    def _learn(self, key: str, pack: _Known) -> None:
        self._known[key] = pack
        alone = (key,)
        for picture in pack.pictures:
            others = self._packs_of.setdefault(picture, alone)
            if key not in others:
                self._packs_of[picture] = (*others, key)

    def _object(self, video: str, recipe: Recipe, pack: str) -> tuple[IntermediateObject, ...]:
        known = self._known[pack]
        return _object(known, pack, known.pictures.index(recipe.key), video, recipe)

    def _stays(self, key: str, making: Set[str]) -> bool:
        """Whether a pack is being made or lies there; in this order, since it may arrive meanwhile."""
        return key in self._known and (key in making or self._size_of(key) is not None)


def _object(known: _Known, pack: str, place: int, video: str, recipe: Recipe) -> tuple[IntermediateObject, ...]:
    """The picture at a place of a pack, as it is known or as it is made otherwise now."""
    found = known.objects[place]
    if not found or found[0].recipe is not recipe:
        found = known.objects[place] = (IntermediateObject(known.object_id, video, recipe, pack, known.firsts[place]),)
    return found


def _rows(packs: Iterable[tuple[Pack, tuple[int, ...]]]) -> Iterator[dict[str, object]]:
    """Which pictures packs have, ``schemas.PACK_PART``; and where each begins."""
    for pack, mine in packs:
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
        firsts = rows[first]
        blocks = zip(plan.seq[firsts].tolist(), plan.keys_of(firsts.tolist()), strict=True)
        for image, mine in zip(plan.videos.keys.taken(numbers), blocks, strict=True):
            if image not in found or mine < found[image]:
                found[image] = mine
    return found
