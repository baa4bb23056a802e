"""Planned clips that are being worked on, and what workers need to make them; those of a generation have a schedule.

A clip's audio is an object of its own: readers wait for the rows of both, and making ahead has a schedule for each.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.records import SubstitutionRow
from viewcache.materializer.planning.columns import BlockParts
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.recipe import Far, IntermediateObject, Recipe, VideoSource, block_recipe
from viewcache.materializer.scheduling.keeping import Keeping
from viewcache.materializer.scheduling.rows_by_key import RowsByKey
from viewcache.materializer.scheduling.schedule import Schedule
from viewcache.materializer.scheduling.work import Makeable, RowState, edges_of
from viewcache.materializer.storage.ledger import Copy
from viewcache.materializer.workers.job import Made

__all__ = ["ActiveGeneration", "AudioSchedule", "PlannedClips"]


class PlannedClips(Makeable):
    """Rows of a plan with the catalog's ids of their objects. Not thread-safe: the dispatcher's lock guards it.

    Of a task with audio rows from n on, as many as there are clips, are the audio of each clip.
    """

    plan: GenerationPlan
    object_ids: NDArray[np.int64]
    """(n,) of each row's object, or (2n,) with those of the clips' audio."""
    samples: int
    """Clips of a video in an epoch."""

    def __init__(self, task_id: int, sources: Callable[[GenerationPlan, Sequence[int]], Sequence[VideoSource]]) -> None:
        """Take whose clips they are, and who gives the videos of rows to workers."""
        self.task_id = task_id
        self.sources_of = sources
        """Gives those of a plan that is this one or was before it: since then others may have come to stand in."""

    @abstractmethod
    def rows(self, epoch: int, iteration: int) -> list[int]:
        """The clips of one batch, in batch order."""

    @abstractmethod
    def place(self, row: int) -> tuple[int, int, int]:
        """Epoch, position and sample of a row."""

    @abstractmethod
    def row_at(self, epoch: int, position: int, sample: int) -> int | None:
        """The row at a place; None if it is not among these clips."""

    @abstractmethod
    def drawn_id(self, row: int) -> int:
        """The item that was drawn for a row's place, whichever gives the clip."""

    def replace(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        """Go on with other videos for some rows; the others keep their states."""
        self.go_on(plan, object_ids)
        self.revision += 1

    @abstractmethod
    def go_on(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        """What `replace` does."""

    def clip_of(self, row: int) -> int:
        """The row of the clip that a row is, or is the audio of."""
        clips = len(self.plan)
        return row - clips if row >= clips else row

    def with_audio(self, rows: Sequence[int]) -> list[int]:
        """Rows of clips, and behind them those of their audio if the task has any."""
        found: list[int] = self.plan.object_rows(np.array(rows, np.int64)).tolist()
        return found

    def key(self, row: int) -> str:
        """Content key of a row's object."""
        return self.plan.key(row)

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Those of several."""
        return self.plan.keys_of(rows)

    def video(self, row: int) -> str:
        """Content key of the video that a row's object is of; of images that of the block, which is made by itself."""
        return self.file_key(row) if self.plan.blocks is None else self.key(row)

    def file_key(self, row: int) -> str:
        """Content key of the file that a row's clip is of."""
        return self.plan.videos.keys[int(self.plan.video[self.clip_of(row)])]

    def part(self, row: int, copy: Copy) -> Copy:
        """Of a copy of the block that a row is in, the picture of the row."""
        return replace(copy, stored=copy.stored.chunk(self.part_of(row)))

    def part_of(self, row: int) -> int:
        """The place of a row's picture in its block."""
        return 0 if self.plan.blocks is None else int(self.plan.blocks.part[row])

    def beside(self, row: int) -> Sequence[int]:
        """The rows of the block that a row is in; of a video's clip the row alone."""
        return [row] if self.plan.blocks is None else self.plan.blocks.rows(row)

    def item_id(self, row: int) -> int:
        """The catalog's id of the item that a row's clip is of."""
        return int(self.plan.items.ids[int(self.plan.item[row])])

    def video_id(self, row: int) -> int:
        """The catalog's id of the video that a row's object is of."""
        return int(self.plan.videos.ids[int(self.plan.video[self.clip_of(row)])])

    def bound(self, row: int) -> int:
        """Most bytes that a row's object takes on disk."""
        return self.plan.bound if row < len(self.plan) else self.plan.room - self.plan.bound

    def held(self, row: int) -> int:
        """Most raw bytes that a worker holds while it makes a row: streams that are averaged are whole clips."""
        return self.bound(row) * self.plan.program(row).streams if row < len(self.plan) else self.bound(row)

    def source(self, row: int) -> VideoSource:
        """The video that a row's object is of; of a block what messages call it, which is its first image."""
        rows, is_block = self.beside(row), self.plan.blocks is not None
        first = self.sources_of(self.plan, [rows[0] if is_block else self.clip_of(row)])[0]
        return VideoSource(first.uri, first.name, self.key(row), b"", len(rows)) if is_block else first

    def recipe(self, row: int) -> Recipe:
        """How a row's object is made."""
        return self.recipes([row])[row]

    def pictures(self, row: int) -> int:
        """How many source frames a row's clip is made of, or 1 for its audio: known without its recipe."""
        clips = 1 if self.plan.blocks is None else len(self.plan.blocks.rows(row))
        return self.plan.task.sampling.frames_per_video * clips if row < len(self.plan) else 1

    def recipes(self, rows: Sequence[int]) -> dict[int, Recipe]:
        """How the objects of some rows are made, by row; the frames of clips are found out together."""
        if self.plan.blocks is not None:
            return {row: self._block(row) for row in rows}
        clips, audio = [row for row in rows if row < len(self.plan)], [row for row in rows if row >= len(self.plan)]
        found = dict(zip(clips, self.plan.recipes(clips), strict=True)) if clips else {}
        if audio:
            of_clips = self.plan.audio_recipes([self.clip_of(row) for row in audio])
            found |= {row: of_clips[self.clip_of(row)] for row in audio}
        return found

    def _block(self, row: int) -> Recipe:
        """How the block that a row is in is made."""
        plan = self.plan
        assert plan.blocks is not None  # who calls has looked
        rows = plan.blocks.rows(row)
        parts = BlockParts(self.sources_of(plan, rows), plan.recipes(rows))
        return block_recipe(self.key(row), parts, int(plan.seq[row]), plan.bound)

    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""
        return Copy(int(self.object_ids[row]), made.key, made.stored, made.written.bytes)


class ActiveGeneration(Schedule[str], PlannedClips):
    """A plan, the order of its clips, the catalog's ids of its objects, and how far each clip is.

    Not thread-safe: the dispatcher's lock guards it.
    """

    def __init__(
        self,
        plan: GenerationPlan,
        order: Order,
        task_id: int,
        object_ids: NDArray[np.int64],
        sources: Callable[[GenerationPlan, Sequence[int]], Sequence[VideoSource]],
        far: Far = lambda plan, video: None,
    ) -> None:
        """Take the plan, its order and the id of each row's object.

        Args:
            plan: of the clips.
            order: in which they are needed.
            task_id: whose they are.
            object_ids: of each row.
            sources: gives the videos of rows to workers.
            far: tells the version of the file of a row of the plan's videos, if it lies far away.
        """
        sampling = plan.task.sampling
        PlannedClips.__init__(self, task_id, sources)
        Schedule.__init__(
            self, order, plan.first_epoch, plan.iterations, sampling.samples_per_video, sampling.videos_per_batch
        )
        self.group_generation = plan.context.group_generation
        self.far = far
        """Tells the version of the file of a row of a plan's videos, if it lies far away."""
        self.policies: dict[int, list[SubstitutionRow]] = {}
        """Planned index of a video → uses of policies that are recorded once its position is settled."""
        self.audio: AudioSchedule | None = None
        """Of the clips' audio; None of a task without."""
        self._adopt(plan, object_ids)
        self._leave_out(np.arange(len(plan)))
        if plan.audio is not None:
            self.audio = AudioSchedule(self)

    @property
    def schedules(self) -> "list[Makeable]":
        """All that is to be made ahead of it."""
        return [self] if self.audio is None else [self, self.audio]

    def _adopt(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        self.plan = plan
        self.object_ids = object_ids
        self._fill(plan.video, len(plan.videos))
        self._rows_by_key = RowsByKey(plan.keys)

    def go_on(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        """See `PlannedClips.go_on`."""
        states, changed = self._states, self.plan.keys != plan.keys
        self._adopt(plan, object_ids)
        self._states[:] = states
        self._states[changed] = RowState.PLANNED
        if self.audio is not None:
            self.audio.replace()

    @property
    def number(self) -> int:
        """The generation's number."""
        return self.plan.number

    # Where clips stand ---------------------------------------------------------------------------------------------

    def settled(self, epoch: int) -> int:
        """How many positions of an epoch never change again."""
        return int(self.order.settled[epoch - self.first_epoch])

    def place(self, row: int) -> tuple[int, int, int]:
        """Epoch, position and sample of a row."""
        planned_index, sample = divmod(row, self.samples)
        epoch, position = divmod(int(self.order.positions_of(np.array([planned_index]))[0]), self.order.positions)
        return epoch + self.first_epoch, position, sample

    def row_at(self, epoch: int, position: int, sample: int) -> int | None:
        """The row at a place; None if it is in another generation."""
        if not 0 <= epoch - self.first_epoch < self.order.epochs or position >= self.order.positions:
            return None
        return self.planned_index(epoch, position) * self.samples + sample

    def drawn_id(self, row: int) -> int:
        """The item that was drawn for a row's place, whichever gives the clip."""
        return int(self.order.ids[row // self.samples])

    def planned_index(self, epoch: int, position: int) -> int:
        """The planned index of the video at a position."""
        return self.order.planned_index(epoch - self.first_epoch, position)

    def draw(self, epoch: int, position: int, video_id: int) -> tuple[int, int]:
        """Let a video stand at a position that is not settled; returns the positions that changed."""
        at = epoch - self.first_epoch
        changed = self.order.place(at, position, video_id)
        start = at * self.order.positions
        ranks = [(start + each) * self.samples + sample for each in changed for sample in range(self.samples)]
        self.moved(ranks)
        if self.audio is not None:
            self.audio.moved(ranks)
        return changed

    # What the rows are ---------------------------------------------------------------------------------------------

    def rows_of(self, key: str) -> list[int]:
        """The rows that need an object; empty if none does."""
        return self._rows_by_key.find(key)

    def state(self, row: int) -> RowState:
        """How far a row's object is, as far as it was noted."""
        if row < len(self.plan) or self.audio is None:
            return Schedule.state(self, row)
        return self.audio.state(self.clip_of(row))

    def set_state(self, row: int, state: RowState) -> None:
        """Note how far a row's object is."""
        if row < len(self.plan) or self.audio is None:
            Schedule.set_state(self, row, state)
        else:
            self.audio.set_state(self.clip_of(row), state)

    def clip_states(self) -> NDArray[np.uint8]:
        """(n,) how far each clip is with its audio: no further than either, failed if either is."""
        if self.audio is None:
            return self._states
        clips, heard = self._states, self.audio.clip_states()
        failed = (clips != RowState.LEFT_OUT) & (heard == RowState.FAILED)
        return np.where(failed | (clips == RowState.FAILED), np.uint8(RowState.FAILED), np.minimum(clips, heard))

    def due_in_s(self, row: int) -> float:
        """Seconds until a row is needed."""
        return Schedule.due_in_s(self, self.clip_of(row))

    def is_next(self, row: int) -> bool:
        """Whether a row is of what its task needs next of the row's video."""
        return self.plan.blocks is not None or Schedule.is_next(self, self.clip_of(row))

    def free_bytes(self, row: int) -> int:
        """Room that making a row ahead leaves to clips that are not kept."""
        return Schedule.free_bytes(self, self.clip_of(row))

    def is_soon(self, row: int) -> bool:
        """Whether a row is needed so soon that what is needed later may be evicted for it."""
        return Schedule.is_soon(self, self.clip_of(row))

    def is_unkept(self, row: int) -> bool:
        """Whether it was decided that a row's object is made shortly before it is read, and not kept."""
        return Schedule.is_unkept(self, self.clip_of(row))

    def keep(self, keeping: Keeping | None) -> None:
        """Keep these clips from now on, and their audio; None = all."""
        Schedule.keep(self, keeping)
        if self.audio is not None:
            self.audio.keep(keeping)

    def video_number(self, video: Hashable) -> int:
        """The row of a video, by its content key, among the plan's videos; -1 if it is not among them."""
        return self.plan.videos.row_of_key.get(str(video), -1)

    def video_numbers(self, videos: Sequence[Hashable]) -> list[int]:
        """The same of several, found together."""
        found: list[int] = self.plan.videos.keys.rows_of([*map(str, videos)]).tolist()
        return found

    def video_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the video, or of the block, of each of some rows."""
        return Schedule.video_of(self, rows) if self.plan.blocks is None else np.asarray(self.plan.blocks.number[rows])

    def rows_beside(self, videos: Sequence[Hashable]) -> NDArray[np.int64]:
        """See `Schedule.rows_beside`; of blocks that are made, all their rows."""
        if self.plan.blocks is None:
            return Schedule.rows_beside(self, videos)
        rows = np.array([row for video in videos for row in self.rows_of(str(video))], np.int64)
        return np.asarray(rows[self._states[rows] == RowState.PLANNED])

    def worth_making(self, video: Hashable) -> list[tuple[float, int, bool]]:
        """The rows of a video, or of a block, worth making ahead that nobody has made or is making; soonest first."""
        if self.plan.blocks is None:
            return Schedule.worth_making(self, video)
        rows = self.rows_of(str(video))  # none of an image: its clips are made with their blocks
        return [(self.due_in_s(row), row, True) for row in rows if self.state(row) == RowState.PLANNED]

    def uses_to_come(self, key: str) -> int:
        """How many times readers still need an object: all pictures of a block are read at once."""
        uses = Schedule.uses_to_come(self, key)
        if self.plan.blocks is None or not uses:
            return uses
        rows = np.array(self.rows_of(key), np.int64)
        return len(np.unique(self.plan.seq[rows[self._ranks(rows) >= self.from_rank]]))

    def bytes_to_come(self) -> int:
        """Most bytes on disk of all clips that a reader has not had."""
        return (len(self) - self.from_rank) * self.plan.clip_room

    def edges_left(self) -> list[tuple[int, int]]:
        """The soonest row of each video of which clips are worth making ahead, and the edges that are left of it."""
        rows, counts = self._soonest_of_videos()
        if self.plan.blocks is not None:
            counts = [1] * len(rows)
        return [(row, count * edges_of(self.recipe(row))) for row, count in zip(rows, counts, strict=True)]

    def intermediates(self, row: int) -> Iterable[IntermediateObject]:
        """Intermediates that a row's clip may be made from; its audio is made of the file."""
        if self.keeping is None or row >= len(self.plan):
            return ()
        if self.plan.blocks is not None:
            rows = self.plan.blocks.rows(row)
            images = dict.fromkeys(self.plan.videos.keys.at(self.plan.video[rows.start : rows.stop]))
            found_of = self.keeping.intermediates.get
            return (each for image in images for each in found_of(image, ()))  # who looks for one asks no further
        found = self.keeping.intermediates.get(self.video(row), ())
        if len(found) < 2:
            return found
        return self.keeping.made_from(self.video(row), self.plan.frames(np.array([row]))[0])

    def from_kept(self) -> int:
        """How many of the clips that nobody has made are to be made of pictures that are kept for them."""
        kept, keys = {} if self.keeping is None else self.keeping.intermediates, self.plan.videos.keys
        has = np.fromiter((key in kept for key in keys), np.bool_, len(keys))
        return int((has[self.plan.video] & (self.clip_states() == RowState.PLANNED)).sum())


class AudioSchedule(Schedule[str], Makeable):
    """How far the audio of each clip of a generation is; row k is the audio of clip k. Not thread-safe, like that."""

    def __init__(self, clips: ActiveGeneration) -> None:
        """Take the generation, whose order it has."""
        Schedule.__init__(self, clips.order, clips.first_epoch, clips.iterations, clips.samples, clips.batch)
        self.clips = clips
        self.task_id = clips.task_id
        self.group_generation = clips.group_generation
        self._adopt()
        self._leave_out(np.arange(len(clips.plan)))

    def _adopt(self) -> None:
        plan = self.clips.plan
        self._keys = plan.audio_keys
        self._fill(plan.video, len(plan.videos))
        self._rows_by_key = RowsByKey(self._keys)

    def replace(self) -> None:
        """The generation has other videos for some rows; the others keep their states."""
        states, keys = self._states, self._keys
        self._adopt()
        self._states[:] = states
        self._states[keys != self._keys] = RowState.PLANNED
        self.revision += 1

    def in_clips(self, row: int) -> int:
        """A row as the generation counts it."""
        return row + len(self.clips.plan)

    def key(self, row: int) -> str:
        """Content key of a row's object."""
        return self.clips.key(self.in_clips(row))

    def video(self, row: int) -> str:
        """Content key of the video that a row is made of."""
        return self.clips.video(row)

    def bound(self, row: int) -> int:
        """Most bytes that a row's object takes on disk."""
        return self.clips.bound(self.in_clips(row))

    def source(self, row: int) -> VideoSource:
        """The video that a row is made of."""
        return self.clips.source(row)

    def recipe(self, row: int) -> Recipe:
        """How a row's object is made."""
        return self.clips.recipe(self.in_clips(row))

    def copy(self, made: Made, row: int) -> Copy:
        """The catalog's and the store's view of an object that was just made for a row."""
        return self.clips.copy(made, self.in_clips(row))

    def rows_of(self, key: str) -> list[int]:
        """The rows that need an object; empty if none does."""
        return self._rows_by_key.find(key)

    def video_number(self, video: Hashable) -> int:
        """The row of a video, by its content key, among the plan's videos; -1 if it is not among them."""
        return self.clips.video_number(video)
