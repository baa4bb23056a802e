"""Kept pictures that clips are made from, as the dispatcher sees them, and what is kept of a generation (SAND §5.3)."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.recipe import Base, BaseObject, Recipe, Source
from viewcache.materializer.scheduling.work import RowState, Work
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.workers.job import Made
from viewcache.store.tier import LOCAL

__all__ = ["BaseWork", "Keeping", "hold_bases"]


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept of one task's generation; all others of its clips are made shortly before they are read."""

    clips: NDArray[np.bool_]
    """(n,) rows whose clips are kept."""
    window: int
    """So many clips from the reader on are made ahead though they are not kept."""
    free_bytes: int
    """Room that making what is kept leaves for those."""
    bases: Mapping[str, tuple[BaseObject, ...]] = field(default_factory=dict)
    """Content key of a video → what its clips are made from."""


class BaseWork(Work):
    """The kept pictures of one generation of a group; each row is one object, for all tasks of the group."""

    def __init__(
        self,
        born: int,
        objects: Sequence[BaseObject],
        sources: Mapping[str, Source],
        needs: Sequence[Callable[[str], float | None]],
        free_bytes: int,
        usable: Mapping[str, Sequence[BaseObject]],
    ) -> None:
        """Take the objects, soonest needed first.

        Args:
            born: the group's generation.
            objects: what is to be kept.
            sources: the videos by content key.
            needs: each says in how many seconds a video's clips that are not kept are needed next, by its content key.
            free_bytes: room that is left for those clips.
            usable: what may be there already to make an object from.
        """
        self.task_id = -1  # of no task: of all that share the video
        self.born = born
        self._objects = objects
        self._sources = sources
        self._needs = needs
        self._free_bytes = free_bytes
        self._usable = usable
        self._states = [RowState.PLANNED] * len(objects)
        self._cursor = 0
        self._rows = {each.recipe.key: row for row, each in enumerate(objects)}
        self._of_video: dict[str, list[int]] = {}
        for row, each in enumerate(objects):
            self._of_video.setdefault(each.video, []).append(row)

    def bound(self, row: int) -> int:
        """Most bytes that a row's object takes on disk."""
        return self._objects[row].recipe.bound

    def free_bytes(self, row: int) -> int:
        """Room that making a row ahead leaves."""
        return self._free_bytes

    def bases(self, row: int) -> Sequence[BaseObject]:
        """Kept pictures that a row may be made from."""
        return [each for each in self._usable.get(self.video(row), ()) if each.recipe.key != self.key(row)]

    def failed(self) -> Set[str]:
        """Content keys of the videos of which an object could not be made."""
        return {self.video(row) for row, state in enumerate(self._states) if state == RowState.FAILED}

    def is_soon(self, row: int) -> bool:
        """A base only takes room that nothing else needs."""
        return False

    def key(self, row: int) -> str:
        """Content key of a row's object."""
        return self._objects[row].recipe.key

    def video(self, row: int) -> str:
        """Content key of the video that a row is made of."""
        return self._objects[row].video

    def state(self, row: int) -> RowState:
        """How far a row is."""
        return self._states[row]

    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row is."""
        self._states[row] = state
        if state == RowState.PLANNED:
            self._cursor = min(self._cursor, row)

    def set_state_of(self, key: str, state: RowState) -> None:
        """The same for an object, unless it is being made."""
        row = self._rows.get(key)
        if row is not None and self._states[row] != RowState.MAKING:
            self.set_state(row, state)

    def source(self, row: int) -> Source:
        """The video that a row is made of."""
        return self._sources[self.video(row)]

    def recipe(self, row: int) -> Recipe:
        """How a row's object is made."""
        return self._objects[row].recipe

    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""
        return Copy(self._objects[row].object_id, made.key, made.stored, made.written.bytes)

    def recognize(self, has: Callable[[str], bool]) -> None:
        """Mark the rows whose object is there, given whether an object is."""
        for row, each in enumerate(self._objects):
            if self._states[row] == RowState.PLANNED and has(each.recipe.key):
                self._states[row] = RowState.READY

    def next_planned(self) -> int | None:
        """The first row that is not made and that a clip to come is made from."""
        while self._cursor < len(self._states):
            planned = self._states[self._cursor] == RowState.PLANNED
            if planned and self._need_s(self.video(self._cursor)) is not None:
                return self._cursor
            self._cursor += 1  # what is not needed now never is again: readers go forward
        return None

    def planned_of(self, video: str) -> list[int]:
        """Rows of one video that are worth making while it is being decoded."""
        if self._need_s(video) is None:
            return []
        return [row for row in self._of_video.get(video, ()) if self._states[row] == RowState.PLANNED]

    def need_s(self, row: int) -> float:
        """Seconds until the first clip that is made from a row's object is needed."""
        return self._need_s(self.video(row)) or 0.0

    def next_need_s(self, key: str) -> float | None:
        """The same for an object; None if no clip to come is made from it."""
        row = self._rows.get(key)
        return None if row is None else self._need_s(self.video(row))

    def _need_s(self, video: str) -> float | None:
        return min((need for each in self._needs if (need := each(video)) is not None), default=None)


def hold_bases(ledger: Ledger, wanted: Iterable[tuple[Work, int]]) -> tuple[list[Base], list[Copy]]:
    """The kept pictures that some rows can be made from, and the holds on them."""
    objects = {base.recipe.key: base for work, row in wanted for base in work.bases(row)}
    found: list[Base] = []
    held: list[Copy] = []
    for key, base in objects.items():
        for copy in ledger.hold([key], LOCAL) or ():  # workers read the local tier only
            found.append(base.stored_as(copy.stored))
            held.append(copy)
    return found, held
