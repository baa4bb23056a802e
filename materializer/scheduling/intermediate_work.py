"""Intermediates that clips are made from, as the dispatcher sees them, and what is kept of a generation (SAND §5.3)."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from viewcache.materializer.planning.recipe import Intermediate, IntermediateObject, Part, Recipe, VideoSource
from viewcache.materializer.scheduling.work import Key, Makeable, RowState, Work
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.workers.job import Made
from viewcache.materializer.workers.near import PIECE_BYTES
from viewcache.store.tier import LOCAL, MEMORY

__all__ = [
    "LATER_S",
    "FileWork",
    "GenerationContext",
    "IntermediateSchedule",
    "IntermediateWork",
    "Pack",
    "PackWork",
    "Sources",
    "hold_intermediates",
]


LATER_S = 1e12
"""When something is needed next that is kept for epochs which are not planned: later than everything that is."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Kept pictures of several images, which are one object."""

    object_id: int
    key: str
    """Content key."""
    bound: int
    """Most bytes that it takes on disk."""
    images: tuple[str, ...]
    """Content keys of the images, in the order of their pictures."""
    pictures: tuple[Recipe, ...] = ()
    """How the picture of each is made; nothing if that is not known, since it lies there from an earlier run."""
    recipe: Recipe | None = None
    """How the pack is made, without its parts: where the images lie is asked then. None as before."""
    block: str = ""
    """Content key of the block that it is best made with."""


class IntermediateSchedule(Work[Key]):
    """The intermediates of one generation of a group; each row is one object, for all tasks of the group."""

    task_id = -1  # of no task: of all that share the video
    rides = True

    def __init__(
        self,
        group_generation: int,
        objects: Sequence[tuple[Key, Hashable, int]],
        needs: Sequence[Callable[[Sequence[Hashable]], float | None]],
        free_bytes: int,
        lasting: Set[Key] = frozenset(),
        failed: dict[Key, Hashable] | None = None,
    ) -> None:
        """Take the objects, soonest needed first.

        Args:
            group_generation: the group's generation.
            objects: what names each object and its video, and most bytes that it takes on disk.
            needs: each says in how many seconds a clip of some videos that is not kept is needed next.
            free_bytes: room that is left for those clips.
            lasting: which of the objects are of use in later generations too.
            failed: what could not be made, for whichever generation shares this, see `GenerationContext`.
        """
        self._lasting = lasting
        self._failed = dict[Key, Hashable]() if failed is None else failed
        self.group_generation = group_generation
        self._objects = objects
        self._needs = needs
        self._free_bytes = free_bytes
        self._states = [RowState.PLANNED] * len(objects)
        self._cursor = 0
        self._rows = {key: row for row, (key, *_) in enumerate(objects)}
        self._of_video: dict[Hashable, list[int]] = {}
        for row, (_, video, _) in enumerate(objects):
            self._of_video.setdefault(video, []).append(row)

    def key(self, row: int) -> Key:
        """What names a row's object."""
        return self._objects[row][0]

    def video(self, row: int) -> Hashable:
        """What names the video that a row is made of."""
        return self._objects[row][1]

    def bound(self, row: int) -> int:
        """Most bytes that a row's object takes on disk."""
        return self._objects[row][2]

    def free_bytes(self, row: int) -> int:
        """Room that making a row ahead leaves."""
        return self._free_bytes

    def is_soon(self, row: int) -> bool:
        """An intermediate only takes room that nothing else needs."""
        return False

    def recurring(self) -> Iterable[tuple[Key, int]]:
        """The objects, as far as they can be made, and most bytes that each takes."""
        return ((key, size) for key, _, size in self._objects if key not in self._failed)

    def failed(self) -> set[Hashable]:
        """The videos of which an object could not be made."""
        return {self.video(row) for row, state in enumerate(self._states) if state == RowState.FAILED}

    def state(self, row: int) -> RowState:
        """How far a row is."""
        return self._states[row]

    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row is."""
        self._states[row] = state
        if state == RowState.FAILED:
            self._failed[self.key(row)] = self._of(row)
        if state == RowState.PLANNED:
            self._cursor = min(self._cursor, row)

    def _of(self, row: int) -> Hashable:
        """What a row's object is of, as is noted when it could not be made."""
        return self.video(row)

    def rows_of(self, key: Key) -> list[int]:
        """The row of an object; empty if there is none."""
        return [self._rows[key]] if key in self._rows else []

    def mark_present(self, has: Callable[[Key], bool]) -> None:
        """Note of which rows the object is there, without those being made, given whether an object is."""
        for row, (key, *_) in enumerate(self._objects):
            if self._states[row] in (RowState.PLANNED, RowState.READY):
                self.set_state(row, RowState.READY if has(key) else RowState.PLANNED)

    def next_planned(self) -> int | None:
        """The first row that is not made and that a clip to come is made from."""
        while self._cursor < len(self._states):
            if self._is_open(self._cursor) and self._due_in_s(self.video(self._cursor)) is not None:
                return self._cursor
            self._cursor += 1  # what is not needed now never is again: readers go forward
        return None

    def worth_making(self, video: Hashable) -> list[tuple[float, int, bool]]:
        """Rows of one video that are worth making while it is being decoded."""
        rows = [row for row in self._of_video.get(video, ()) if self._is_open(row)]
        due = self._due_in_s(video) if rows else None
        return [] if due is None else [(due, row, False) for row in rows]

    def rows_ahead(self) -> list[int]:
        """All rows that are worth making ahead for their own sake."""
        rows = range(len(self._objects))
        return [row for row in rows if self._is_open(row) and self._due_in_s(self.video(row)) is not None]

    def rows_beside(self, videos: Iterable[Hashable]) -> list[int]:
        """All rows that are worth making while some videos are decoded."""
        return [row for video in videos for _, row, _ in self.worth_making(video)]

    def _is_open(self, row: int) -> bool:
        return self._states[row] == RowState.PLANNED and self.key(row) not in self._failed

    def due_in_s(self, row: int) -> float:
        """Seconds until the first clip that is made from a row's object is needed."""
        return self._due_in_s(self.video(row)) or 0.0

    def next_due_in_s(self, key: Key) -> float | None:
        """The same for an object; None if no clip to come is made from it, in this generation or behind it."""
        due = self._due_in_s(self.video(self._rows[key])) if key in self._rows else None
        return LATER_S if due is None and key in self._lasting else due

    def _due_in_s(self, video: Hashable) -> float | None:
        return self._first_due_in_s([video])

    def _first_due_in_s(self, videos: Sequence[Hashable]) -> float | None:
        return min((due for each in self._needs if (due := each(videos)) is not None), default=None)


class Sources(Protocol):
    """Where workers find videos; asked when an object is made, since much may be known by then."""

    def __contains__(self, video: object) -> bool:
        """Whether a video, by its content key, is among them."""

    def of(self, videos: Sequence[str]) -> list[VideoSource]:
        """Those of some videos, which are among them."""


@dataclass(frozen=True, slots=True)
class GenerationContext:
    """What all intermediates of one generation of a group have in common, whatever form they have."""

    group_generation: int
    sources: Sources
    needs: Sequence[Callable[[Sequence[Hashable]], float | None]]
    """Each says in how many seconds a clip of some videos that is not kept is needed next, by their content keys."""
    free_bytes: int
    """Room that is left for those clips."""
    usable: Mapping[str, Sequence[IntermediateObject]]
    """Content key of a video → what may be there already to make an object from."""
    lasting: Set[str] = frozenset()
    """Keys of the objects that are of use in later generations too."""
    failed: dict[str, Hashable] | None = None
    """Those that could not be made for any generation → the content key of the video, or the pack."""


class IntermediateWork(IntermediateSchedule[str], Makeable):
    """The intermediates of one generation, with what workers need to make them."""

    def __init__(self, context: GenerationContext, objects: Sequence[IntermediateObject]) -> None:
        """Take what is to be kept, soonest needed first."""
        self._take(context, [(each.recipe.key, each.video, each.recipe.bound) for each in objects])
        self._intermediates = objects

    def _take(self, context: GenerationContext, named: Sequence[tuple[str, str, int]]) -> None:
        of = context.group_generation, named, context.needs, context.free_bytes, context.lasting, context.failed
        IntermediateSchedule.__init__(self, *of)
        self._sources, self._usable = context.sources, context.usable

    def intermediates(self, row: int) -> Sequence[IntermediateObject]:
        """Intermediates that a row may be made from."""
        return [
            each for each in self._usable.get(self._intermediates[row].video, ()) if each.recipe.key != self.key(row)
        ]

    def held(self, row: int) -> int:
        """Most raw bytes that a worker holds while it makes a row."""
        return max(self.bound(row), math.prod(self.recipe(row).shape))

    def source(self, row: int) -> VideoSource:
        """The video that a row is made of."""
        return self._sources.of([self._intermediates[row].video])[0]

    def recipe(self, row: int) -> Recipe:
        """How a row's object is made."""
        return self._intermediates[row].recipe

    def raw_bytes(self, row: int) -> int:
        """Bytes of a row's object before it is packed."""
        return math.prod(self.recipe(row).shape)

    def parts(self, rows: Iterable[int]) -> dict[str, float]:
        """Content key of a video, or of an image, of which some rows have pictures → which part of all of it."""
        whole = Counter[str]()
        for each in self._intermediates:
            whole[each.video] += len(each.recipe.frames)
        found = Counter[str]()
        for each in map(self._intermediates.__getitem__, rows):
            found[each.video] += len(each.recipe.frames)
        return {video: count / whole[video] for video, count in found.items()}

    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""
        return Copy(self._intermediates[row].object_id, made.key, made.stored, made.written.bytes)


class PackWork(IntermediateWork):
    """Packs of kept pictures of images, each named as the block that it is best made with, since that has its images.

    One whose block has been made without it is made by itself. One that lies there and could not be made again, as an
    image of it is not wanted now or it is of an earlier run, is of use as long as it lies there.
    """

    def __init__(
        self, context: GenerationContext, packs: Sequence[Pack], is_wanted: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Take the packs, soonest needed first; the videos of the context are the images.

        ``is_wanted`` tells whether one is still to be made, by its content key: others may have its pictures by then.
        """
        self._is_wanted = is_wanted
        self._images: dict[str, list[str]] = {}
        """What names packs → their images."""
        for pack in packs:
            self._images.setdefault(pack.block or pack.key, []).extend(pack.images)
        named = [(pack.key, pack.block or pack.key, pack.bound) for pack in packs]
        self._take(context, named)
        self._packs = packs

    def failed(self) -> set[Hashable]:
        """None of the videos: it is a pack that failed."""
        return set()

    def _of(self, row: int) -> Pack:
        """The pack itself: by the time it fails nobody else may know it any more."""
        return self._packs[row]

    def intermediates(self, row: int) -> Sequence[IntermediateObject]:
        """Kept pictures that those of a row may be made from."""
        usable = (self._usable.get(image, ()) for image in self._packs[row].images)
        return [each for of_image in usable for each in of_image if each.key != self.key(row)]

    def source(self, row: int) -> VideoSource:
        """What messages call the images of a row, which is the first of them."""
        images = self._packs[row].images
        first = self._sources.of(images[:1])[0]
        return VideoSource(first.uri, first.name, self.key(row), b"", len(images))

    def recipe(self, row: int) -> Recipe:
        """How a pack is made, of images as they are known now."""
        pack = self._packs[row]
        assert pack.recipe is not None  # else it is never asked for
        return replace(pack.recipe, parts=tuple(map(Part, self._sources.of(pack.images), pack.pictures)))

    def raw_bytes(self, row: int) -> int:
        """Bytes of a pack before its pictures are packed."""
        recipe = self._packs[row].recipe
        return 0 if recipe is None else math.prod(recipe.shape)

    def parts(self, rows: Iterable[int]) -> dict[str, float]:
        """See `IntermediateWork.parts`; an image has one picture."""
        return {image: 1.0 for row in rows for image in self._packs[row].images}

    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of a pack that was just made for a row."""
        return Copy(self._packs[row].object_id, made.key, made.stored, made.written.bytes)

    def _is_open(self, row: int) -> bool:
        pack = self._packs[row]
        can_be_made = pack.recipe is not None and all(map(self._sources.__contains__, pack.images))
        return super()._is_open(row) and can_be_made and self._is_wanted(pack.key)

    def _due_in_s(self, video: Hashable) -> float | None:
        return self._first_due_in_s(self._images.get(str(video), []))


class FileWork(IntermediateWork):
    """Encoded files of videos that lie far away, to be kept near; each row is one.

    None is made for its own sake: it rides on whatever decodes the video, and so fetches its file anyway.
    """

    def next_planned(self) -> int | None:
        """Nothing."""
        return None

    def rows_ahead(self) -> list[int]:
        """Nothing."""
        return []

    def parts(self, rows: Iterable[int]) -> dict[str, float]:
        """Nothing: a file has no pictures."""
        return {}

    def recurring(self) -> Iterable[tuple[str, int]]:
        """Nothing: files are opened by their place in the folder."""
        return ()

    def worth_making(self, video: Hashable) -> list[tuple[float, int, bool]]:
        """The file of a video, as long as it is not there."""
        rows = [row for row in self._of_video.get(video, ()) if self._is_open(row)]
        return [(self._due_in_s(video) or 0.0, row, False) for row in rows]

    def held(self, row: int) -> int:
        """Most raw bytes that a worker holds while it makes a row: a piece of the file, and what it looks at then."""
        return min(self.bound(row), 2 * PIECE_BYTES)


def hold_intermediates(ledger: Ledger, wanted: Iterable[tuple[Makeable, int]]) -> tuple[list[Intermediate], list[Copy]]:
    """The intermediates that some rows can be made from, and the holds on them."""
    objects: dict[str, dict[str, IntermediateObject]] = {}
    for work, row in wanted:
        for each in work.intermediates(row):
            objects.setdefault(each.key, {})[each.recipe.key] = each  # of a pack several
    found: list[Intermediate] = []
    held: list[Copy] = []
    for tier in (MEMORY, LOCAL):  # workers read no other; the second is for when the first turns out to be damaged
        there = [key for key in objects if ledger.lies_in(key, tier)]
        copies = ledger.hold(there, tier) if there else []
        if copies is None:  # one has just left
            copies = [copy for key in there for copy in ledger.hold([key], tier) or ()]
        for copy in copies:
            found += [each.stored_as(copy.stored, tier) for each in objects[copy.key].values()]
        held += copies
    return found, held
