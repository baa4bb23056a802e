"""A planned generation that is being worked on: which of its clips are planned, being made, ready or failed."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.job import Made, Recipe, Source
from viewcache.materializer.ledger import Copy
from viewcache.materializer.plan import GenerationPlan
from viewcache.materializer.work import RowState, Work

__all__ = ["ActiveGeneration"]


class ActiveGeneration(Work):
    """A plan, the catalog's ids of its objects, and how far each clip is.

    Not thread-safe: the engine's lock guards it.
    """

    def __init__(
        self, plan: GenerationPlan, task_id: int, object_ids: NDArray[np.int64], index_blob: Callable[[int], bytes]
    ) -> None:
        """Take the plan, the id of each row's object, and who gives the packet index of a ``video_id``."""
        self.task_id = task_id
        self._index_blob = index_blob
        self._adopt(plan, object_ids)
        self.from_row = 0
        self.at_seq = int(plan.seq[0])
        self.pace_s = 1.0

    def _adopt(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        self.plan = plan
        self.object_ids = object_ids
        self._states = np.zeros(len(plan), np.uint8)
        self._cursor = 0
        # Sorted first halves of the keys: a key is found without a dict of a million strings.
        self._halves = plan.keys.view("<u8").reshape(-1, 2)[:, 0]
        self._by_half = np.argsort(self._halves, kind="stable")
        self._by_video = np.argsort(plan.video, kind="stable")
        self._video_starts = np.searchsorted(plan.video[self._by_video], np.arange(len(plan.videos) + 1))

    def replace(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        """Go on with other videos for some rows; the others keep their states."""
        states = self._states
        changed = self.plan.keys != plan.keys
        self._adopt(plan, object_ids)
        self._states[:] = states
        self._states[changed] = RowState.PLANNED

    def key(self, row: int) -> str:
        """Content key of a row's clip."""
        return self.plan.hex_keys[row]

    def rows_of(self, key: str) -> list[int]:
        """The rows that need an object; empty if none does."""
        half = np.frombuffer(bytes.fromhex(key)[:8], "<u8")[0]
        left, right = (np.searchsorted(self._halves, half, side, sorter=self._by_half) for side in ("left", "right"))
        return [row for row in self._by_half[left:right].tolist() if self.plan.hex_keys[row] == key]

    def state(self, row: int) -> RowState:
        """How far a row's clip is."""
        return RowState(int(self._states[row]))

    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row's clip is."""
        self._states[row] = state
        if state == RowState.PLANNED:
            self._cursor = min(self._cursor, row)

    def set_state_of(self, key: str, state: RowState) -> None:
        """The same for all rows of an object, unless it is being made."""
        for row in self.rows_of(key):
            if self._states[row] != RowState.MAKING:
                self.set_state(row, state)

    def at(self, seq: int, pace_s: float) -> None:
        """Note that the task's reader needs ``seq`` next, and its pace in seconds an iteration."""
        self.at_seq = seq
        self.pace_s = pace_s or self.pace_s

    def video(self, row: int) -> str:
        """Content key of the video that a row's clip is of."""
        return self.plan.videos.keys[int(self.plan.video[row])]

    @property
    def bound(self) -> int:
        """Most bytes that one object takes on disk."""
        return self.plan.bound

    def need_s(self, row: int) -> float:
        """Seconds until a row is needed (SAND §5.4, with the task's own pace)."""
        return float(self.plan.seq[row] - self.at_seq) * self.pace_s

    def last_need_s(self) -> float:
        """Seconds until the generation's last row is needed."""
        return self.need_s(len(self.plan) - 1)

    def next_planned(self) -> int | None:
        """The first row, from where the reader is, that nobody has made or is making."""
        self._cursor = min(max(self._cursor, self.from_row), len(self._states))
        left = self._states[self._cursor :] == RowState.PLANNED
        if not left.any():
            self._cursor = len(self._states)
            return None
        self._cursor += int(left.argmax())
        return self._cursor

    def planned_of(self, video: str) -> list[int]:
        """The rows of one video, from where the reader is, that nobody has made or is making; soonest first."""
        place = self.plan.videos.row_of_key.get(video)
        if place is None:
            return []
        rows = self._by_video[self._video_starts[place] : self._video_starts[place + 1]]
        wanted = (rows >= self.from_row) & (self._states[rows] == RowState.PLANNED)
        return [int(row) for row in rows[wanted]]

    def next_need_s(self, key: str) -> float | None:
        """Seconds until an object is needed next; None if it is not."""
        rows = [row for row in self.rows_of(key) if row >= self.from_row]
        return self.need_s(min(rows)) if rows else None

    def recognize(self, has: Callable[[str], bool]) -> None:
        """Mark the rows whose object is there, given whether an object is."""
        for row in np.flatnonzero(self._states == RowState.PLANNED).tolist():
            if has(self.plan.hex_keys[row]):
                self._states[row] = RowState.READY

    def counts(self) -> dict[str, int]:
        """How many clips are in each state."""
        counts = np.bincount(self._states, minlength=len(RowState)).tolist()
        return {state.name.lower(): counts[state] for state in RowState}

    def source(self, row: int) -> Source:
        """The video that a row's clip is of."""
        video, videos = int(self.plan.video[row]), self.plan.videos
        blob = self._index_blob(int(videos.ids[video]))
        return Source(videos.uris[video], videos.names[video], videos.keys[video], blob, int(videos.frames[video]))

    def recipe(self, row: int) -> Recipe:
        """How a row's clip is made."""
        return self.plan.recipe(row)

    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""
        return Copy(int(self.object_ids[row]), made.key, made.stored, made.written.bytes)
