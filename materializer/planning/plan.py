"""A generation's plan: every clip of k epochs of a task, with frames, choices and content key decided (SAND §5.2).

It is a function of the task, the videos and the recorded draws alone, so a process that has lost it computes it again
and gets the same keys. It lives in arrays; objects of Python exist only for the clips that are being made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.choices import Media
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.keys import as_text, as_texts
from viewcache.materializer.planning.audio import audio_bound, audio_keys, audio_recipe
from viewcache.materializer.planning.blocks import Blocks, block_keys, blocks_of, pictures_in_block
from viewcache.materializer.planning.clip_keys import clip_keys
from viewcache.materializer.planning.clip_starts import clip_frames, clip_starts, fixed_starts
from viewcache.materializer.planning.clip_times import MOST_STARTS, Ticks, timed_frames
from viewcache.materializer.planning.columns import ClipRecipes
from viewcache.materializer.planning.definition import places_of
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.one_shape import check_shape, one_shape
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.planning.resolve import Clips, Resolved, resolve
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.randomness import address_word
from viewcache.materializer.sampling import ClipSelection, Coordination
from viewcache.materializer.spec import AudioSpec, TaskSpec

__all__ = ["GenerationPlan", "PlanContext"]

_serials = count(1)


@dataclass(frozen=True)
class GenerationPlan:
    """The clips of consecutive epochs of one task, in the order in which they are needed.

    Arrays have length n = epochs x items x samples, less what ``drop_last`` drops.
    """

    context: "PlanContext"
    seq: NDArray[np.int64]
    """Global iteration number."""
    epoch: NDArray[np.int64]
    iteration: NDArray[np.int64]
    position: NDArray[np.int64]
    """Place of the item in its epoch's order, as planned; until that is settled, `ActiveGeneration` knows better."""
    sample: NDArray[np.int64]
    ordinal: NDArray[np.int64]
    """Ordinal of each clip among those of its item in the epoch, the address of its random numbers: ``sample``, and
    beyond the samples of an item where it comes again in the epoch."""
    item: NDArray[np.int64]
    """Row of ``items``."""
    start: NDArray[np.int64]
    """In units of the sampling, counted from the video's first: a frame, of which frame j of the clip is ``j * stride``
    further; or ticks. Both are treated by ``on_short_video`` past the end of the item."""
    resolved: Resolved
    shape: tuple[int, ...]
    """Of every clip: (T,C,H,W) or (V,T,C,H,W)."""

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.seq)

    @property
    def task(self) -> TaskSpec:
        """Whose plan it is."""
        return self.context.task

    @property
    def items(self) -> Items:
        """What ``item`` indexes."""
        return self.context.items

    @property
    def videos(self) -> Videos:
        """What ``video`` indexes."""
        return self.context.items.videos

    @cached_property
    def video(self) -> NDArray[np.int64]:
        """(n,) row of ``videos`` of each clip; clips of several items may be of one video, and share its decode."""
        return self.item if self.items.one_each else self.items.video[self.item]

    @property
    def number(self) -> int:
        """The generation's number."""
        return self.context.number

    @cached_property
    def serial(self) -> int:
        """Tells it from all other plans of this process, also from those that it was replaced by."""
        return next(_serials)

    @property
    def first_epoch(self) -> int:
        """First epoch of the generation."""
        return self.context.first_epoch

    @property
    def last_epoch(self) -> int:
        """Last epoch of the generation, inclusive."""
        return self.context.first_epoch + self.context.epochs - 1

    @property
    def iterations(self) -> int:
        """Batches in one epoch."""
        return self.context.iterations

    @cached_property
    def keys(self) -> NDArray[np.void]:
        """(n,) of 16 bytes: content keys of the objects that clips lie in: of their own, or of the blocks of images."""
        return self.clip_keys if self.blocks is None else block_keys(self.clip_keys, self.blocks)

    @cached_property
    def clip_keys(self) -> NDArray[np.void]:
        """(n,) of 16 bytes: content keys of the clips by themselves."""
        return clip_keys(self.videos.keys, self.video, self.resolved, self.frames)

    @cached_property
    def blocks(self) -> Blocks | None:
        """How images are parted into blocks; None of videos, whose clips are objects of their own."""
        if self.task.dataset.media == Media.VIDEO:
            return None
        sampling = self.task.sampling
        pictures = sampling.videos_per_batch * sampling.samples_per_video
        return blocks_of(self.seq, pictures_in_block(pictures, self.clip_bytes))

    def whole(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of all objects that some clips lie in."""
        return rows if self.blocks is None else self.blocks.whole(rows)

    @property
    def audio(self) -> AudioSpec | None:
        """The audio that comes with each clip, if any."""
        return self.task.audio

    @cached_property
    def audio_keys(self) -> NDArray[np.void]:
        """(n,) of 16 bytes: content keys of the clips' audio; (0,) of a task without."""
        if self.audio is None:
            return np.empty(0, "V16")
        return audio_keys(self.audio, self.videos.keys, self.video, self.frames)

    @property
    def object_keys(self) -> NDArray[np.void]:
        """Content keys of all objects: (n,), or (2n,) with the audio behind the clips."""
        return self.keys if self.audio is None else np.concatenate([self.keys, self.audio_keys])

    def object_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the objects of some clips: theirs, and with audio those of their audio behind them."""
        return rows if self.audio is None else np.concatenate([rows, len(self) + rows])

    @property
    def hex_keys(self) -> list[str]:
        """Content keys of all clips as text, which takes more memory than the plan: see `key`."""
        keys: list[str] = as_text(self.clip_keys).to_pylist()
        return keys

    def key(self, row: int) -> str:
        """Content key of a clip, or of the audio of one, as text."""
        one = self.keys[row] if row < len(self.keys) else self.audio_keys[row - len(self.keys)]
        return str(one.tobytes().hex())

    def keys_of(self, rows: Sequence[int]) -> list[str]:
        """The same of several."""
        if self.audio is not None or len(rows) < 2:
            return [*map(self.key, rows)]
        return as_texts(self.keys[rows])

    @property
    def clip_bytes(self) -> int:
        """Raw bytes of one clip."""
        return int(np.prod(self.shape))

    @cached_property
    def bound(self) -> int:
        """Most bytes that one object of clips takes on disk; asked for with each clip of each job."""
        clips = 1 if self.blocks is None else self.blocks.most
        return clip_bound(self.clip_bytes * clips, self.task.sampling.frames_per_video * clips)

    @cached_property
    def clip_room(self) -> int:
        """Most bytes that one clip takes on disk: of its object, or of its share of that."""
        return self.bound if self.blocks is None else -(-self.bound // self.blocks.most)

    @cached_property
    def room(self) -> int:
        """Most bytes that one clip takes on disk with its audio."""
        return self.clip_room + (0 if self.audio is None else audio_bound(self.audio))

    def rows(self, epoch: int, iteration: int) -> range:
        """The clips of one batch, in batch order, as planned."""
        size = self.task.sampling.videos_per_batch * self.task.sampling.samples_per_video
        each = len(self) // self.context.epochs
        start = (epoch - self.first_epoch) * each + iteration * size
        return range(start, min(start + size, (epoch - self.first_epoch + 1) * each))

    def row(self, epoch: int, position: int, sample: int) -> int:
        """The row of one clip, as planned."""
        each = len(self) // self.context.epochs
        return (epoch - self.first_epoch) * each + position * self.task.sampling.samples_per_video + sample

    def frames(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Source frames of clips: int32 (len(rows), F)."""
        sampling, start, item = self.task.sampling, self.start[rows], self.item[rows]
        on_short = self.task.dataset.on_short_video
        if sampling.by_time:
            return timed_frames(start, sampling.offsets, item, self.items, self.context.ticks_of, on_short)
        first, frames = self.items.begin[item], self.items.frames[item]
        numbers = clip_frames(start - first, sampling.frames_per_video, sampling.frame_stride, frames, on_short)
        return numbers + first[:, None].astype(np.int32)

    def program(self, row: int) -> Program:
        """The program of one clip."""
        return self.resolved.programs[int(self.resolved.program[row])]

    def clip(self, row: int) -> Clips:
        """Where the random numbers of one clip have their addresses."""
        one = slice(row, row + 1)
        return self.context.clips(self.epoch[one], self.ordinal[one], self.seq[one], self.item[one])

    def substituted(
        self, rows: NDArray[np.int64], items: NDArray[np.int64], among: Items | None = None
    ) -> "GenerationPlan":
        """The same plan with other items for some clips, rows of ``among``; all other clips keep their keys.

        ``among`` begins with the items of the plan; None = it is these.
        """
        context = self.context if among is None else replace(self.context, items=among)
        return self._patched(context, rows, items)

    def corrected(self, items: Items, rows: NDArray[np.int64]) -> "GenerationPlan":
        """The same plan where something else is known of the videos of some clips; all other clips keep their keys."""
        return self._patched(replace(self.context, items=items), rows, self.item[rows])

    def reordered(
        self, task: TaskSpec, items: Items, rows: NDArray[np.int64], epochs: range, number: int, joined: int
    ) -> "GenerationPlan":
        """The plan of a task of the same definition, whose order is another one; nothing is decided again.

        Args:
            task: whose plan it is.
            items: the same, by what is known of them now.
            rows: this plan's row of each of its clips, in its order; see `rows_like`.
            epochs: of the task, those that ``rows`` are of.
            number: the task's number of the generation.
            joined: epoch of the group in which the task had its first.
        """
        context = replace(self.context, task=task, items=items, number=number, joined=joined)
        context = replace(context, first_epoch=epochs.start, epochs=len(epochs))
        samples = task.sampling.samples_per_video
        shape = len(epochs), len(rows) // len(epochs) // samples, samples
        epoch, position, sample = (axis.reshape(-1) for axis in np.indices(shape, np.int64))
        epoch += epochs.start
        iteration = position // task.sampling.videos_per_batch
        seq = epoch * context.iterations + iteration
        item, start, resolved = self.item[rows], self.start[rows], self.resolved.taken(rows)
        at = context, seq, epoch, iteration, position, sample, self.ordinal[rows]
        plan = GenerationPlan(*at, item, start, resolved, self.shape)
        plan.__dict__["clip_keys"] = self.clip_keys[rows]  # what `cached_property` would compute for all
        if self.audio is not None:
            plan.__dict__["audio_keys"] = self.audio_keys[rows]
        return plan

    def _patched(self, context: "PlanContext", rows: NDArray[np.int64], items: NDArray[np.int64]) -> "GenerationPlan":
        """Decide some clips again. Of a plan of a million clips the others are copied, not computed."""
        place = self.epoch[rows], self.iteration[rows], self.position[rows], self.sample[rows]
        part = context.plan(*place, self.ordinal[rows], items)
        check_shape(self.task, context.items.named(int(items[0])), part.shape, self.shape)
        item, start, keys = self.item.copy(), self.start.copy(), self.clip_keys.copy()
        item[rows], start[rows], keys[rows] = items, part.start, part.clip_keys
        resolved = self.resolved.patched(rows, part.resolved)
        places = self.seq, self.epoch, self.iteration, self.position, self.sample, self.ordinal
        plan = GenerationPlan(context, *places, item, start, resolved, self.shape)
        plan.__dict__["clip_keys"] = keys  # what `cached_property` would compute for all
        if self.audio is not None:
            audio = self.audio_keys.copy()
            audio[rows] = part.audio_keys
            plan.__dict__["audio_keys"] = audio
        return plan

    def drawn(self, row: int) -> NDArray[np.int32]:
        """The numbers of one clip's program."""
        return self.resolved.rows[row, : self.program(row).columns]

    def recipe(self, row: int) -> Recipe:
        """All that a worker needs to make one clip by itself, but the video."""
        return self.recipes([row])[0]

    def recipes(self, rows: Sequence[int]) -> ClipRecipes:
        """The same for some clips: their frames are found out together."""
        at, resolved = np.array(rows, np.int64), self.resolved
        programs = [resolved.programs[number] for number in resolved.program[at].tolist()]
        keys, drawn, due = as_texts(self.clip_keys[at]), resolved.rows[at], self.seq[at].tolist()
        return ClipRecipes(keys, programs, drawn, self.frames(at), self.shape, due, self.bound)

    def audio_recipes(self, rows: Sequence[int]) -> dict[int, Recipe]:
        """The same for the audio of some clips, by the clips' rows."""
        audio, at = self.audio, np.array(rows, np.int64)
        assert audio is not None  # who asks has rows of it
        return {
            row: audio_recipe(audio, self.key(len(self) + row), first, seq)
            for row, first, seq in zip(rows, self.frames(at)[:, 0].tolist(), self.seq[at].tolist(), strict=True)
        }


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What all clips of a plan have in common, kept so that single clips can be decided again."""

    task: TaskSpec
    graph: AbstractGraph
    items: Items
    seed: int
    number: int
    first_epoch: int
    epochs: int
    iterations: int
    grid: int
    ticks_of: Ticks
    joined: int
    group_generation: int

    @property
    def independent(self) -> int | None:
        """Address word of a task that shares no draw; None if it shares."""
        return address_word(self.task.name) if self.task.sampling.coordination == Coordination.INDEPENDENT else None

    def clips(
        self, epoch: NDArray[np.int64], sample: NDArray[np.int64], seq: NDArray[np.int64], item: NDArray[np.int64]
    ) -> Clips:
        """The addresses of the clips at the given places, of the given rows of ``items``."""
        items, videos = self.items, self.items.videos
        video = items.video[item]
        size = videos.height[video], videos.width[video]
        independent = self.independent or 0
        addresses = self.seed, items.words[item], epoch + self.joined, sample, seq
        return Clips(*addresses, *size, lambda k: items.named(int(item[k])), independent, self.joined)

    def _starts(
        self, epoch: NDArray[np.int64], sample: NDArray[np.int64], item: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The first unit of clips, counted from that of their items."""
        sampling, lengths = self.task.sampling, np.minimum(self.items.length, MOST_STARTS)[item]
        if sampling.clips != ClipSelection.RANDOM:
            places = places_of(self.task.steps)
            clips = sampling.samples_per_video // places
            return fixed_starts(lengths, sample, span=sampling.span, clips=clips, places=places)
        return clip_starts(
            self.seed,
            self.items.words[item],
            self.group_generation,
            epoch + self.joined,
            sample,
            lengths,
            span=sampling.span,
            grid=self.grid,
            spread=sampling.spread,
            independent=self.independent,
        )

    def plan(
        self,
        epoch: NDArray[np.int64],
        iteration: NDArray[np.int64],
        position: NDArray[np.int64],
        sample: NDArray[np.int64],
        ordinal: NDArray[np.int64],
        item: NDArray[np.int64],
    ) -> GenerationPlan:
        """Decide the clips at the given places, of the given rows of ``items``."""
        seq = epoch * self.iterations + iteration
        start = self.items.first[item] + self._starts(epoch, ordinal, item)
        resolved = resolve(self.graph, self.task.sampling.frames_per_video, self.clips(epoch, ordinal, seq, item))
        shape = one_shape(self.task, resolved, self.items, item)
        return GenerationPlan(self, seq, epoch, iteration, position, sample, ordinal, item, start, resolved, shape)
