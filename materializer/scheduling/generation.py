"""A planned generation that is being worked on: where its clips stand, and how far each of them is."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.records import SubstitutionRow
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.recipe import BaseObject, Recipe, Source
from viewcache.materializer.scheduling.bases import Keeping
from viewcache.materializer.scheduling.work import RowState, Work, edges_of
from viewcache.materializer.storage.ledger import Copy
from viewcache.materializer.workers.job import Made

__all__ = ["ActiveGeneration"]

_NONE = np.zeros(0, np.int64)

_SCAN = 8192
"""Rows that are looked at together for the next one to be made."""


class ActiveGeneration(Work):
    """A plan, the order of its clips, the catalog's ids of its objects, and how far each clip is.

    A row of the plan is a clip; its *rank* is its place in the order of need, which drawing may still change. Not
    thread-safe: the engine's lock guards it.
    """

    def __init__(
        self,
        plan: GenerationPlan,
        order: Order,
        task_id: int,
        object_ids: NDArray[np.int64],
        index_blob: Callable[[int], bytes],
    ) -> None:
        """Take the plan, its order, the id of each row's object, and who gives the packet index of a ``video_id``."""
        self.task_id = task_id
        self.born = plan.place.born
        self.order = order
        self.samples = plan.task.sampling.samples_per_video
        self.batch = plan.task.sampling.videos_per_batch
        self.used = min(plan.iterations * self.batch, order.positions)
        """Positions of an epoch that its batches have; `drop_last` leaves out the rest."""
        self.policies: dict[int, list[SubstitutionRow]] = {}
        """Seat → uses of policies that are recorded once its position is settled."""
        self.keeping: Keeping | None = None
        """What is kept; None = every clip."""
        self._index_blob = index_blob
        self._adopt(plan, object_ids)
        self.from_rank = 0
        self.at_seq = plan.first_epoch * plan.iterations
        self.pace_s = 1.0
        self._leave_out(np.arange(len(plan)))

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

    # Where clips stand ---------------------------------------------------------------------------------------------

    def rows(self, epoch: int, iteration: int) -> list[int]:
        """The clips of one batch, in batch order; what is not settled may still change."""
        first, last = self._slots(epoch, iteration)
        return [int(row) for row in self._rows_at(first * self.samples, last * self.samples)]

    def rank_after(self, epoch: int, iteration: int) -> int:
        """The rank of the first clip after a batch."""
        return self._slots(epoch, iteration)[1] * self.samples

    def settled(self, epoch: int) -> int:
        """How many positions of an epoch never change again."""
        return int(self.order.settled[epoch - self.plan.first_epoch])

    def place(self, row: int) -> tuple[int, int, int]:
        """Epoch, position and sample of a row."""
        seat, sample = divmod(row, self.samples)
        epoch, position = divmod(int(self.order.slots(np.array([seat]))[0]), self.order.positions)
        return epoch + self.plan.first_epoch, position, sample

    def seat(self, epoch: int, position: int) -> int:
        """Who stands at a position."""
        slot = (epoch - self.plan.first_epoch) * self.order.positions + position
        return int(self.order.seats(slot, slot + 1)[0])

    def draw(self, epoch: int, position: int, video_id: int) -> tuple[int, int]:
        """Let a video stand at a position that is not settled; returns the positions that changed."""
        at, start = epoch - self.plan.first_epoch, (epoch - self.plan.first_epoch) * self.order.positions
        slots = self.order.place(at, position, video_id)
        ranks = [slot * self.samples + sample for slot in slots for sample in range(self.samples)]
        self._cursor = min(self._cursor, *ranks)
        self._leave_out(np.concatenate([self._rows_at(rank, rank + 1) for rank in ranks]))
        return slots[0] - start, slots[1] - start

    def _slots(self, epoch: int, iteration: int) -> tuple[int, int]:
        start = (epoch - self.plan.first_epoch) * self.order.positions
        first = iteration * self.batch
        return start + first, start + min(first + self.batch, self.used)

    def _rows_at(self, first: int, last: int) -> NDArray[np.int64]:
        """Rows of ranks first…last (exclusive)."""
        ranks = np.arange(first, last)
        if not self.order.moved:
            return ranks
        slots, samples = np.divmod(ranks, self.samples)
        return self.order.seats(0, self.order.ids.size)[slots] * self.samples + samples

    def _ranks(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self.order.moved:
            return rows
        seats, samples = np.divmod(rows, self.samples)
        return self.order.slots(seats) * self.samples + samples

    def _leave_out(self, rows: NDArray[np.int64]) -> None:
        """Rows behind the last batch of an epoch are not made; those that came from there are."""
        if self.used == self.order.positions:
            return
        behind = self._ranks(rows) // self.samples % self.order.positions >= self.used
        states = self._states[rows]
        self._states[rows[behind & (states == RowState.PLANNED)]] = RowState.LEFT_OUT
        self._states[rows[~behind & (states == RowState.LEFT_OUT)]] = RowState.PLANNED

    # How far clips are ---------------------------------------------------------------------------------------------

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
            self._cursor = min(self._cursor, int(self._ranks(np.array([row]))[0]))
            self._leave_out(np.array([row]))

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

    def bound(self, row: int) -> int:
        """Most bytes that a row's clip takes on disk."""
        return self.plan.bound

    def held(self, row: int) -> int:
        """Most raw bytes that a worker holds while it makes a row: streams that are averaged are whole clips."""
        return self.plan.bound * self.plan.program(row).streams

    def free_bytes(self, row: int) -> int:
        """Room that making a row ahead leaves to clips that are not kept."""
        keeping = self.keeping
        return 0 if keeping is None or not keeping.clips[row] else keeping.free_bytes

    def is_soon(self, row: int) -> bool:
        """Whether the reader is about to need a row; what is only kept evicts nothing that is needed."""
        return self.keeping is None or int(self._ranks(np.array([row]))[0]) < self.from_rank + self.keeping.window

    def is_next(self, row: int) -> bool:
        """Whether a row is in the epoch in which the task needs the row's video next."""
        ranks, visit = self._to_come(self.video(row))[1], self.order.positions * self.samples
        return len(ranks) > 0 and int(self._ranks(np.array([row]))[0]) // visit == ranks[0] // visit

    def bases(self, row: int) -> Sequence[BaseObject]:
        """Kept pictures that a row's clip may be made from."""
        return () if self.keeping is None else self.keeping.bases.get(self.video(row), ())

    def need_s(self, row: int) -> float:
        """Seconds until a row is needed (SAND §5.4, with the task's own pace)."""
        return self._need_s(int(self._ranks(np.array([row]))[0]))

    def _need_s(self, rank: int) -> float:
        epoch, position = divmod(rank // self.samples, self.order.positions)
        seq = (self.plan.first_epoch + epoch) * self.plan.iterations + position // self.batch
        return float(seq - self.at_seq) * self.pace_s

    def last_need_s(self) -> float:
        """Seconds until the generation's last row is needed."""
        return self._need_s(len(self.plan) - 1)

    def next_planned(self) -> int | None:
        """The first row, from where the reader is, that is worth making ahead and that nobody has made or is making."""
        self._cursor = max(self._cursor, self.from_rank)
        while self._cursor < len(self._states):
            rows = self._rows_at(self._cursor, min(self._cursor + _SCAN, len(self._states)))
            found = (self._states[rows] == RowState.PLANNED) & self._is_kept(rows)
            if found.any():
                self._cursor += int(found.argmax())
                break
            self._cursor += len(rows)
        if self.keeping is not None:
            rows = self._rows_at(self.from_rank, min(self.from_rank + self.keeping.window, self._cursor))
            found = self._states[rows] == RowState.PLANNED
            if found.any():
                return int(rows[found.argmax()])
        return int(self._rows_at(self._cursor, self._cursor + 1)[0]) if self._cursor < len(self._states) else None

    def unmade(self) -> list[tuple[int, int]]:
        """The soonest row of each video of which clips are worth making ahead, and the edges that are left of it.

        Of the next `_SCAN` rows only: what is needed much later is not next, however short it is.
        """
        if self.next_planned() is None:
            return []
        start = min(self._cursor, self.from_rank) if self.keeping is not None else self._cursor
        rows = self._rows_at(start, min(start + _SCAN, len(self._states)))
        soon = np.arange(len(rows)) < (0 if self.keeping is None else self.keeping.window)
        rows = rows[(self._states[rows] == RowState.PLANNED) & (self._is_kept(rows) | soon)]
        _, first, count = np.unique(self.plan.video[rows], return_index=True, return_counts=True)
        each = [edges_of(self.plan.recipe(row)) for row in rows[first].tolist()]
        return list(zip(rows[first].tolist(), (count * each).tolist(), strict=True))

    def coming(self, count: int) -> list[tuple[float, str]]:
        """(seconds until it is needed, key) of the next ``count`` clips from where the reader is, soonest first."""
        last = min(self.from_rank + count, len(self._states))
        rows = self._rows_at(self.from_rank, last)
        wanted = self._states[rows] != RowState.LEFT_OUT
        ranks = np.arange(self.from_rank, last)[wanted].tolist()
        return [(self._need_s(rank), self.key(row)) for rank, row in zip(ranks, rows[wanted].tolist(), strict=True)]

    def planned_of(self, video: str) -> list[int]:
        """The rows of one video worth making ahead that nobody has made or is making; soonest first."""
        rows, ranks = self._to_come(video)
        wanted = (self._states[rows] == RowState.PLANNED) & self._is_kept(rows)
        if self.keeping is not None and len(ranks):
            # What is read next of the video also when it is not so soon: it will not be decoded again before that.
            visit = self.order.positions * self.samples
            soon = (ranks < self.from_rank + self.keeping.window) | (ranks // visit == ranks[0] // visit)
            wanted |= (self._states[rows] == RowState.PLANNED) & soon
        return [int(row) for row in rows[wanted]]

    def unkept_need_s(self, video: str) -> float | None:
        """Seconds until a clip of a video that is not kept is needed next; None if none is."""
        rows, ranks = self._to_come(video)
        ranks = ranks[~self._is_kept(rows)]
        return self._need_s(int(ranks[0])) if len(ranks) else None

    def _is_kept(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.ones(len(rows), np.bool_) if self.keeping is None else self.keeping.clips[rows]

    def rows_of_video(self, video: str) -> NDArray[np.int64]:
        """All rows of one video, by its content key."""
        place = self.plan.videos.row_of_key.get(video, -1)
        return self._by_video[self._video_starts[place] : self._video_starts[place + 1]] if place >= 0 else _NONE

    def _to_come(self, video: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of one video from where the reader is, and their ranks, soonest first."""
        rows = self.rows_of_video(video)
        ranks = self._ranks(rows)
        order = np.argsort(ranks)
        order = order[(ranks[order] >= self.from_rank) & (self._states[rows[order]] != RowState.LEFT_OUT)]
        return rows[order], ranks[order]

    def to_come(self) -> NDArray[np.bool_]:
        """(n,) whether the reader has not had a row yet."""
        behind = self._ranks(np.arange(len(self.plan))) < self.from_rank
        return np.asarray(~behind & (self._states != RowState.LEFT_OUT))

    def epochs_read(self) -> int:
        """How many of its epochs the reader is through with."""
        left_out = (self.order.positions - self.used) * self.samples  # behind the last batch of each epoch
        return int((self.from_rank + left_out) // max(1, self.order.positions * self.samples))

    def ready(self) -> NDArray[np.bool_]:
        """(n,) whether a row's clip is known to be in the store, or on its way there."""
        return np.asarray(np.isin(self._states, (RowState.READY, RowState.MAKING)))

    def keep(self, keeping: Keeping | None) -> None:
        """Keep these clips from now on; None = all."""
        self.keeping = keeping
        self._cursor = 0

    def next_need_s(self, key: str) -> float | None:
        """Seconds until an object is needed next; None if it is not."""
        ranks = self._ranks(np.array(self.rows_of(key), np.int64))
        ranks = ranks[ranks >= self.from_rank]
        return self._need_s(int(ranks.min())) if len(ranks) else None

    def recognize(self, has: Callable[[str], bool]) -> None:
        """Mark the rows whose object is there, given whether an object is."""
        for row in np.flatnonzero(self._states == RowState.PLANNED).tolist():
            if has(self.plan.hex_keys[row]):
                self._states[row] = RowState.READY

    def counts(self) -> dict[str, int]:
        """How many clips are in each state; without those that are left out."""
        counts = np.bincount(self._states, minlength=len(RowState)).tolist()
        return {state.name.lower(): counts[state] for state in RowState if state != RowState.LEFT_OUT}

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
