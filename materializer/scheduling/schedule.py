"""Where the clips of one generation of one task stand, where its readers are, and how far each clip is.

The dispatcher's generations and the simulation's are both schedules, so what is due when, and what is worth making
ahead, is decided by the same lines. All of it is arrays over rows: a plan may have a million of them.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.order import Order
from viewcache.materializer.scheduling.keeping import Keeping
from viewcache.materializer.scheduling.reader import Reader
from viewcache.materializer.scheduling.work import Key, Position, RowState, Work

__all__ = ["SCAN", "Schedule"]

_NONE = np.zeros(0, np.int64)

_STATES: tuple[RowState, ...] = tuple(RowState)
_PLANNED = int(RowState.PLANNED)

SCAN = 8192
"""Rows that are looked at together for the next one to be made."""


class Schedule(Work[Key]):
    """One generation of one task. Not thread-safe.

    A row is a clip as it was planned; its *rank* is its place in the order of need, which drawing may still change.
    """

    def __init__(self, order: Order, first_epoch: int, iterations: int, samples: int, batch: int) -> None:
        """Begin before the first batch; nothing is made and every clip is kept. `_fill` says what the rows are of.

        Args:
            order: of the videos of each epoch.
            first_epoch: of the generation.
            iterations: batches in an epoch.
            samples: clips of a video in an epoch.
            batch: videos in a batch.
        """
        self.order = order
        self.first_epoch = first_epoch
        self.iterations = iterations
        self.samples = samples
        self.batch = batch
        self.used = min(iterations * batch, order.positions)
        """Positions of an epoch that its batches have; `drop_last` leaves out the rest."""
        self.clips_per_epoch = order.positions * samples
        """Clips in an epoch."""
        self.position = Position(first_epoch, 0, 1.0)
        self.from_rank = 0
        """So many of the clips, in the order of need, no reader needs any more: all have read them."""
        self._readers = [Reader(0, first_epoch * iterations, 1.0)]
        """Never empty; those who are furthest behind first."""
        self.keeping: Keeping | None = None
        """What is kept; None = every clip."""

    def _fill(self, videos: NDArray[np.int64], count: int) -> None:
        """Take the number of each row's video, of so many videos; every row is planned."""
        self._states, self._videos = np.zeros(len(videos), np.uint8), videos
        self._plan_from(0)
        self._by_video = np.argsort(videos, kind="stable")
        self._video_starts: NDArray[np.int64] = np.searchsorted(videos[self._by_video], np.arange(count + 1))

    def video_number(self, video: Hashable) -> int:
        """The number of a video among those of the rows; -1 if it is not among them."""
        raise NotImplementedError

    def video_numbers(self, videos: Sequence[Hashable]) -> list[int]:
        """The same of several."""
        return [*map(self.video_number, videos)]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._states)

    # Where clips stand ---------------------------------------------------------------------------------------------

    def rows(self, epoch: int, iteration: int) -> list[int]:
        """The clips of one batch, in batch order; what is not settled may still change."""
        first, last = self._positions(epoch, iteration)
        return [int(row) for row in self._rows_at(first * self.samples, last * self.samples)]

    def rank_after(self, epoch: int, iteration: int) -> int:
        """The rank of the first clip after a batch."""
        return self._positions(epoch, iteration)[1] * self.samples

    def _positions(self, epoch: int, iteration: int) -> tuple[int, int]:
        start = (epoch - self.first_epoch) * self.order.positions
        first = iteration * self.batch
        return start + first, start + min(first + self.batch, self.used)

    def _rows_at(self, first: int, last: int) -> NDArray[np.int64]:
        """Rows of ranks first…last (exclusive)."""
        ranks = np.arange(first, last)
        if not self.order.moved:
            return ranks
        positions, samples = np.divmod(ranks, self.samples)
        return self.order.planned_indexes(0, self.order.ids.size)[positions] * self.samples + samples

    def _ranks(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self.order.moved:
            return rows
        planned_indexes, samples = np.divmod(rows, self.samples)
        return self.order.positions_of(planned_indexes) * self.samples + samples

    def _rank(self, row: int) -> int:
        return int(self._ranks(np.array([row]))[0]) if self.order.moved else row

    def moved(self, ranks: Sequence[int]) -> None:
        """Other rows have these ranks now."""
        self._plan_from(min(ranks))
        self._leave_out(np.concatenate([self._rows_at(rank, rank + 1) for rank in ranks]))

    def _leave_out(self, rows: NDArray[np.int64]) -> None:
        """Rows behind the last batch of an epoch are not made; those that came from there are."""
        if self.used == self.order.positions:
            return
        behind = self._ranks(rows) // self.samples % self.order.positions >= self.used
        states = self._states[rows]
        self._states[rows[behind & (states == _PLANNED)]] = RowState.LEFT_OUT
        self._states[rows[~behind & (states == RowState.LEFT_OUT)]] = RowState.PLANNED

    # Where the readers are -----------------------------------------------------------------------------------------

    def at(self, *positions: Position) -> None:
        """Note where the task's readers are, in this generation or in others.

        Who is in an earlier one needs all of this one, who is in a later one has no more need of it.
        """
        known_s = self.position.pace_s
        readers = sorted(
            Reader(self.from_rank_of(each), each.epoch * self.iterations + had, each.pace_s or known_s)
            for each in positions
            for had in [min(each.iteration, self.iterations)]  # of an earlier epoch, which may have had more
        )
        self.position = min(positions, key=lambda each: each.place)
        self.position = Position(*self.position.place, self.position.pace_s or known_s)
        for each in readers:
            each.go_on(self._readers)
        self._readers, self.from_rank = readers, readers[0].from_rank

    def from_rank_of(self, position: Position) -> int:
        """The rank of the first clip that a reader at a position has not had."""
        epoch = position.epoch - self.first_epoch
        if not 0 <= epoch < self.order.epochs:
            return 0 if epoch < 0 else len(self)
        done = min(position.iteration * self.batch, self.used)
        return (epoch * self.order.positions + done) * self.samples

    def is_begun(self) -> bool:
        """Whether the reader who is furthest behind is in this generation, or a later one."""
        return self.position.epoch >= self.first_epoch

    def is_soon(self, row: int) -> bool:
        """Whether a reader is about to need a row; what is only kept evicts nothing that is needed."""
        return self.keeping is None or self._is_near(self._rank(row), self.keeping.window)

    def is_unkept(self, row: int) -> bool:
        """Whether it was decided that a row's clip is made shortly before it is read, and not kept."""
        return self.keeping is not None and not self.keeping.clips[row]

    def bytes_to_come(self) -> int:
        """Most bytes on disk of all clips that a reader has not had."""
        return (len(self) - self.from_rank) * self.bound(0) if len(self) else 0

    def uses_to_come(self, key: Key) -> int:
        """How many rows that a reader has not had need an object."""
        rows = np.array(self.rows_of(key), np.int64)
        rows = rows[self._states[rows] != RowState.LEFT_OUT]
        return int((self._ranks(rows) >= self.from_rank).sum())

    def _is_near(self, rank: int, window: int) -> bool:
        return rank < self.from_rank + window or any(
            each.from_rank <= rank < each.from_rank + window for each in self._readers[1:]
        )

    def _are_near(self, ranks: NDArray[np.int64], window: int) -> NDArray[np.bool_]:
        """The same of ranks that some reader has not had."""
        near = ranks < self.from_rank + window
        for each in self._readers[1:]:
            near |= (ranks >= each.from_rank) & (ranks < each.from_rank + window)
        return np.asarray(near)

    def _windows(self, count: int) -> Iterator[tuple[int, int]]:
        """The next ``count`` ranks of each reader, as ranges that do not overlap, in order."""
        end = 0
        for each in self._readers:
            start, end = max(each.from_rank, end), min(each.from_rank + count, len(self))
            if start < end:
                yield start, end

    def is_next(self, row: int) -> bool:
        """Whether a row is in the epoch in which the task needs the row's video next."""
        ranks = self._to_come(self.video(row))[1]
        return len(ranks) > 0 and self._rank(row) // self.clips_per_epoch == int(ranks[0]) // self.clips_per_epoch

    def due_in_s(self, row: int) -> float:
        """Seconds until a row is needed (SAND §5.4, with the task's own pace)."""
        return self._due_in_s(self._rank(row))

    def _due_in_s(self, rank: int) -> float:
        """The soonest that a reader needs it who has not had it; less than 0 if all have."""
        batches, first = self.batches_before(rank), self._readers[0]
        due_s = float(batches - first.batches) * first.pace_s
        for each in self._readers[1:]:
            if each.from_rank > rank:
                break
            due_s = min(due_s, float(batches - each.batches) * each.pace_s)
        return due_s

    def batches_before(self, rank: int) -> int:
        """Batches of the task, counted over all epochs, before the one that a rank is in."""
        epoch, place = divmod(rank // self.samples, self.order.positions)
        return int((self.first_epoch + epoch) * self.iterations + place // self.batch)

    def last_due_in_s(self) -> float:
        """Seconds until the generation's last row is needed."""
        return self._due_in_s(len(self) - 1)

    def next_due_in_s(self, key: Key) -> float | None:
        """Seconds until an object is needed next; None if it is not."""
        ranks = self._ranks(np.array(self.rows_of(key), np.int64))
        return self._soonest_s(ranks[ranks >= self.from_rank].tolist())

    def unkept_due_in_s(self, videos: Sequence[Hashable]) -> float | None:
        """Seconds until a clip of any of these videos that is not kept is needed next; None if none is."""
        return self._soonest_s(self._unkept_ranks(videos).tolist())

    def _soonest_s(self, ranks: Sequence[int]) -> float | None:
        if len(self._readers) == 1:
            return self._due_in_s(min(ranks)) if ranks else None
        return min(map(self._due_in_s, ranks), default=None)

    def unkept_ranks(self, video: Hashable) -> list[int]:
        """The ranks of a video's clips to come that are not kept, soonest first."""
        found: list[int] = np.sort(self._unkept_ranks([video])).tolist()
        return found

    def _unkept_ranks(self, videos: Sequence[Hashable]) -> NDArray[np.int64]:
        if self.keeping is None:
            return _NONE
        rows = self._rows_of_videos(videos)
        rows = rows[~self.keeping.clips[rows]]
        if self.used < self.order.positions:
            rows = rows[self._states[rows] != RowState.LEFT_OUT]
        ranks = self._ranks(rows) if self.order.moved else rows
        return ranks[ranks >= self.from_rank]

    def next_needed(self, count: int) -> list[tuple[float, Key]]:
        """(seconds until it is needed, key) of the next ``count`` clips of each reader, soonest first."""
        found: list[tuple[float, Key]] = []
        for first, last in self._windows(count):
            rows = self._rows_at(first, last)
            wanted = self._states[rows] != RowState.LEFT_OUT
            ranks = np.arange(first, last)[wanted].tolist()
            found += [
                (self._due_in_s(rank), self.key(row)) for rank, row in zip(ranks, rows[wanted].tolist(), strict=True)
            ]
        return sorted(found, key=lambda each: each[0]) if len(self._readers) > 1 else found

    def rows_of_video(self, video: Hashable) -> NDArray[np.int64]:
        """All rows of one video."""
        number = self.video_number(video)
        return self._by_video[self._video_starts[number] : self._video_starts[number + 1]] if number >= 0 else _NONE

    def _rows_of_videos(self, videos: Sequence[Hashable]) -> NDArray[np.int64]:
        """All rows of some."""
        if len(videos) == 1:
            return self.rows_of_video(videos[0])
        starts, numbers = self._video_starts, self.video_numbers(videos)
        return np.concatenate([_NONE, *(self._by_video[starts[n] : starts[n + 1]] for n in numbers if n >= 0)])

    def _to_come(self, video: Hashable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of one video that a reader has not had, and their ranks, soonest first."""
        rows = ranks = self.rows_of_video(video)
        if self.order.moved:
            ranks = self._ranks(rows)
            order = np.argsort(ranks)
            rows, ranks = rows[order], ranks[order]
        first = int(ranks.searchsorted(self.from_rank))
        rows, ranks = rows[first:], ranks[first:]
        if self.used < self.order.positions:
            there = self._states[rows] != RowState.LEFT_OUT
            rows, ranks = rows[there], ranks[there]
        return rows, ranks

    def to_come(self) -> NDArray[np.bool_]:
        """(n,) whether a reader has not had a row yet."""
        behind = self._ranks(np.arange(len(self))) < self.from_rank
        return np.asarray(~behind & (self._states != RowState.LEFT_OUT))

    def epochs_read(self) -> int:
        """How many of its epochs all readers are through with."""
        left_out = (self.order.positions - self.used) * self.samples  # behind the last batch of each epoch
        return int((self.from_rank + left_out) // max(1, self.clips_per_epoch))

    # How far clips are ---------------------------------------------------------------------------------------------

    def state(self, row: int) -> RowState:
        """How far a row's clip is, as far as it was noted."""
        return _STATES[int(self._states[row])]

    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row's clip is."""
        self._states[row] = state
        if state == RowState.PLANNED:
            self._plan_from(self._rank(row))
            if self.used < self.order.positions:
                self._leave_out(np.array([row]))

    def _plan_from(self, rank: int) -> None:
        """Something may be planned at a rank: what is worth making is sought from there on."""
        for each in self._readers:
            each.cursor, each.near = min(each.cursor, rank), min(each.near, rank)

    def mark_present(self, has: Callable[[Key], bool]) -> None:
        """Note of which rows the object is there, without those being made, given whether an object is."""
        rows = np.flatnonzero((self._states == _PLANNED) | (self._states == RowState.READY))
        keys = self.keys(rows.tolist())
        there = {key for key in set(keys) if has(key)}
        self._states[rows] = [RowState.READY if key in there else _PLANNED for key in keys]
        self._plan_from(0)  # of what was there something may have left
        self._leave_out(rows)

    def ready(self) -> NDArray[np.bool_]:
        """(n,) whether a row's clip is known to be in the store, or on its way there."""
        return np.asarray(np.isin(self._states, (RowState.READY, RowState.MAKING)))

    def clip_states(self) -> NDArray[np.uint8]:
        """(n,) how far each row's clip is."""
        return self._states

    def counts(self) -> dict[str, int]:
        """How many clips are in each state; without those that are left out."""
        counts = np.bincount(self.clip_states(), minlength=len(RowState)).tolist()
        return {state.name.lower(): counts[state] for state in RowState if state != RowState.LEFT_OUT}

    # What is worth making ahead ------------------------------------------------------------------------------------

    def keep(self, keeping: Keeping | None) -> None:
        """Keep these clips from now on; None = all."""
        self.keeping = keeping
        self._plan_from(0)

    def free_bytes(self, row: int) -> int:
        """Room that making a row ahead leaves to clips that are not kept."""
        keeping = self.keeping
        return 0 if keeping is None or not keeping.clips[row] else keeping.free_bytes

    def next_planned(self) -> int | None:
        """The row that is needed soonest of those worth making ahead that nobody has made or is making."""
        found = self._next()
        return None if found is None else self._row_at(found[0])

    def _next(self) -> tuple[int, Reader] | None:
        """The rank of that row, and the reader who needs it."""
        best: tuple[float, int, Reader] | None = None
        for each in self._readers:
            rank = self._next_of(each)
            if rank < len(self):
                due_s = self._due_in_s(rank) if len(self._readers) > 1 else 0.0
                if best is None or due_s < best[0]:
                    best = due_s, rank, each
        return None if best is None else best[1:]

    def _next_of(self, reader: Reader) -> int:
        """The first rank from one reader on that is worth making ahead; as many as there are rows if none is."""
        reader.cursor = self._seek(max(reader.cursor, reader.from_rank), len(self), kept=True)
        if self.keeping is not None:
            end = min(reader.from_rank + self.keeping.window, reader.cursor)
            reader.near = self._seek(max(reader.near, reader.from_rank), end, kept=False)
            if reader.near < end:
                return reader.near
        return reader.cursor

    def _row_at(self, rank: int) -> int:
        return int(self._rows_at(rank, rank + 1)[0]) if self.order.moved else rank

    def _seek(self, rank: int, end: int, *, kept: bool) -> int:
        """The first rank from one on that is planned, and to be kept if that is asked; ``end`` if there is none."""
        mask = self.keeping.clips if kept and self.keeping is not None else None
        count = 8  # most of the time it is the first of all
        while rank < end:
            last = min(rank + count, end)
            rows = self._rows_at(rank, last) if self.order.moved else slice(rank, last)
            found = self._states[rows] == _PLANNED
            if mask is not None:
                found &= mask[rows]
            first = int(found.argmax())
            if found[first]:
                return rank + first
            rank, count = last, min(8 * count, SCAN)
        return max(rank, end)

    def worth_making(self, video: Hashable) -> list[tuple[float, int, bool]]:
        """The rows of one video worth making ahead that nobody has made or is making; soonest first.

        What is read next of the video is so also when it is not so soon: it will not be decoded again before that.
        """
        rows, ranks = self._to_come(video)
        if not len(rows):
            return []
        end, wanted = (int(ranks[0]) // self.clips_per_epoch + 1) * self.clips_per_epoch, self._states[rows] == _PLANNED
        if self.keeping is not None:
            wanted &= self.keeping.clips[rows] | (ranks < end) | self._are_near(ranks, self.keeping.window)
        found = zip(ranks[wanted].tolist(), rows[wanted].tolist(), strict=True)
        return [(self._due_in_s(rank), row, rank < end) for rank, row in found]

    def rows_ahead(self) -> NDArray[np.int64]:
        """All rows that are worth making ahead and that nobody has made or is making."""
        wanted = self.to_come() & (self._states == _PLANNED)
        if self.keeping is not None:
            wanted &= self.keeping.clips | self._are_near(self._ranks(np.arange(len(self))), self.keeping.window)
        return np.flatnonzero(wanted)

    def rows_beside(self, videos: Sequence[Hashable]) -> NDArray[np.int64]:
        """What is read next of some videos that are decoded, as `worth_making` says, but for what others make."""
        rows = self._rows_of_videos(videos)
        rows = rows[self.to_come()[rows]]
        epochs, number = self._ranks(rows) // self.clips_per_epoch, self.video_of(rows)
        soonest = np.full(int(number.max(initial=-1)) + 1, len(self))
        np.minimum.at(soonest, number, epochs)
        return np.asarray(rows[(epochs == soonest[number]) & (self._states[rows] == _PLANNED)])

    def _soonest_of_videos(self) -> tuple[list[int], list[int]]:
        """The soonest row worth making ahead of each video, and how many there are of it, of the next `SCAN` rows.

        What is needed much later is not next, however short it is.
        """
        found = self._next()
        if found is None:
            return [], []
        reader = found[1]
        start = min(reader.cursor, reader.from_rank) if self.keeping is not None else reader.cursor
        rows = self._rows_at(start, min(start + SCAN, len(self)))
        wanted = self._states[rows] == _PLANNED
        if self.keeping is not None:
            wanted &= self.keeping.clips[rows] | (np.arange(len(rows)) < self.keeping.window)
        rows = rows[wanted]
        _, first, count = np.unique(self.video_of(rows), return_index=True, return_counts=True)
        return rows[first].tolist(), count.tolist()

    def video_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the video of each of some rows, or of what else its object is made with."""
        return np.asarray(self._videos[rows])
