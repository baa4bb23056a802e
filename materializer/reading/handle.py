"""A task as its users see it: batches, frames and facts as plain values, whoever owns the cache.

`OwnedTask` is the handle in the process that owns the cache. Nothing that it takes or gives back refers to a plan, an
dispatcher or a catalog, so that the same verbs can be answered by another process.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow
from viewcache.errors import ViewNotFound
from viewcache.materializer.dataset.changes import DatasetChange
from viewcache.materializer.dataset.names import stem
from viewcache.materializer.dataset.video_file import VideoFile
from viewcache.materializer.gate import Cancelled, Gate, gated
from viewcache.materializer.ops.mix import Mixer
from viewcache.materializer.reading.batch import Batch, Buffers
from viewcache.materializer.reading.finishing import Mixing, finished, mixer_of
from viewcache.materializer.reading.frames import Moment, SingleFrame
from viewcache.materializer.reading.held import Held
from viewcache.materializer.reading.reader import Reader
from viewcache.materializer.reading.recipes import clip_recipes, rows_of_video
from viewcache.materializer.reading.values import ClipRecipe, FrameInfo, FrameRequest, Spent, VideoInfo
from viewcache.materializer.scheduling.seats import Seat, SeatKey

__all__ = ["OwnedSeat", "OwnedTask"]


class OwnedSeat:
    """The seat of a task's reader in the process that owns the cache. Thread-safe."""

    def __init__(self, reader: Reader, seat: Seat, gate: Gate) -> None:
        """Read through a reader; see `OwnedTask.sit`."""
        self.gate = gate
        self._reader = reader
        self._seat = seat

    @gated
    def read(
        self, epoch: int, iteration: int, buffers: Buffers | None = None, cancelled: Cancelled | None = None
    ) -> Batch | None:
        """Read the seat's share of a batch; see `Reader.read`."""
        key = self._seat.key
        return self._reader.read(epoch, iteration, key.rank, key.world, buffers, cancelled, self._seat)

    @gated
    def hold(self, epoch: int, iteration: int, cancelled: Cancelled | None = None) -> Held:
        """Make the seat's share of a batch and hold it for another process to load; see `Reader.hold`."""
        key = self._seat.key
        return self._reader.hold(epoch, iteration, key.rank, key.world, None, self._seat, cancelled)

    @property
    def key(self) -> SeatKey:
        """Which of the task's readers it is for."""
        return self._seat.key

    @property
    def place(self) -> tuple[int, int]:
        """Epoch and iteration of the batch that it needs next."""
        return self._seat.position.place

    def rise(self) -> None:
        """Stop reading; see `TaskSeat.rise`."""
        self._reader.task.seats.rise(self._seat)

    def leave(self) -> None:
        """Go for good: nothing is needed for this reader any more."""
        self._reader.task.seats.leave(self._seat)


class OwnedTask:
    """The handle of a task in the process that owns the cache. Thread-safe."""

    def __init__(self, reader: Reader, catalog: Catalog, gate: Gate) -> None:
        """Answer for the task of a reader.

        Args:
            reader: reads its batches.
            catalog: what we know.
            gate: of the open cache.
        """
        self.gate = gate
        self._iterations: dict[int, int] = {}
        """Epoch → batches in it, once it is planned."""
        self._reader = reader
        self.task = reader.task
        """The task itself, for whoever lives in the owner's process."""
        self._catalog = catalog
        self._spec = reader.spec

    # Facts ---------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The task's name in paths."""
        return self._spec.name

    @property
    def task_id(self) -> int:
        """Its number in the catalog."""
        return self.task.task_id

    @property
    def epochs(self) -> int:
        """How many epochs it has."""
        return self._spec.epochs

    @property
    def seed(self) -> int:
        """Seed of its random numbers."""
        return self.task.seed

    @property
    def layout(self) -> str:
        """Axis order of its clips: ``TCHW``, ``CTHW`` or ``THWC``."""
        return str(self._spec.layout)

    @property
    def videos_per_batch(self) -> int:
        """Videos in a batch; the last one of an epoch may have fewer."""
        return self._spec.sampling.videos_per_batch

    @property
    def samples_per_video(self) -> int:
        """Clips of one video in one epoch."""
        return self._spec.sampling.samples_per_video

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels: a label's number is its place here. Empty if labels are numbers or none.

        They are those that the task lists, or else the distinct labels, sorted; of a dataset that grows a label keeps
        its number, and those of videos that join later come behind.
        """
        return self.task.dataset.classes

    @property
    def changes(self) -> tuple[DatasetChange, ...]:
        """What happened to its files since they were listed before the cache was opened; empty if nothing did."""
        return self.task.changes

    @property
    def draws_together(self) -> bool:
        """Whether its order depends on how far the readers of other tasks are."""
        return self.task.draws_together

    @property
    def spent(self) -> Spent:
        """Where its readers spent their time since the cache was opened."""
        return self._reader.accounts.spent

    @property
    def clip_shape(self) -> tuple[int, ...]:
        """Shape of every clip: (T,C,H,W), or (V,T,C,H,W) after ``stack``."""
        return self.gate.run(lambda: self.task.outline.clip_shape())

    @property
    def audio_shape(self) -> tuple[int, int] | None:
        """Shape of every clip's audio, (C,n); None without."""
        audio = self._spec.audio
        return None if audio is None else audio.shape

    def generation_of(self, epoch: int) -> int:
        """Number of the generation, the epochs that are planned together, that an epoch belongs to.

        Raises:
            ViewNotFound: the task has no such epoch.
        """
        return self.task.generation_of(epoch)

    def check_epochs(self, epochs: int) -> None:
        """Refuse more epochs than the task has.

        Raises:
            ViewNotFound: the message has the number.
        """
        self.task.check_epochs(epochs)

    def iterations(self, epoch: int) -> int:
        """Batches in an epoch; plans its generation.

        Raises:
            ViewNotFound: the task has no such epoch.
        """
        known = self._iterations.get(epoch)
        if known is None:
            known = self._iterations[epoch] = self.gate.run(lambda: self.task.iterations(epoch))
        return known

    @gated
    def check_iteration(self, epoch: int, iteration: int) -> None:
        """Refuse a batch that the task does not have; draws nothing more.

        Raises:
            ViewNotFound: the task has no such epoch, or the epoch no such iteration.
        """
        self.task.check_iteration(epoch, iteration)

    @gated
    def batch_sizes(self) -> set[int]:
        """How many videos a batch has: the usual number, and that of the last batch of an epoch."""
        return self.task.outline.batch_sizes()

    def check_world(self, world: int) -> None:
        """Refuse several ranks of a task that draws its order with others; see `Reader.check_world`."""
        self._reader.check_world(world)

    @property
    def parts(self) -> int:
        """How many DataLoader workers take turns at a rank's batches, as it was read last."""
        return self.task.seats.parts

    @gated
    def planned_at(self, epoch: int) -> float:
        """When the generation of an epoch was planned first, in seconds since 1970; plans it now if it is new."""
        number = self.task.generation_of(epoch)
        self.task.generation(number)
        rows = self._catalog.load_generations(self.task.task_id)
        return next(row.planned_at for row in rows if row.number == number)

    @gated
    def version(self, epoch: int, iteration: int) -> int:
        """See `TaskHandle.version`."""
        return self.task.batch(epoch, iteration).plan.serial

    # Batches -------------------------------------------------------------------------------------------------------

    @gated
    def sit(
        self, rank: int = 0, world: int = 1, part: int = 0, parts: int = 1, epoch: int = 0, iteration: int = 0
    ) -> "OwnedSeat":
        """Take a seat; see `TaskHandle.sit`."""
        seat = self._reader.sit(SeatKey(rank, world, part, parts), epoch, iteration)
        return OwnedSeat(self._reader, seat, self.gate)

    @gated
    def read(
        self,
        epoch: int,
        iteration: int,
        rank: int = 0,
        world: int = 1,
        buffers: Buffers | None = None,
        cancelled: Cancelled | None = None,
    ) -> Batch | None:
        """Read one batch, or one rank's share of it; see `Reader.read`."""
        return self._reader.read(epoch, iteration, rank, world, buffers, cancelled)

    @gated
    def clips(
        self,
        epoch: int,
        iteration: int,
        which: range,
        rank: int = 0,
        world: int = 1,
        buffers: Buffers | None = None,
        cancelled: Cancelled | None = None,
    ) -> NDArray[np.uint8]:
        """Some clips of a batch, uint8 (len(which), T,C,H,W); it does not count as read. See `Reader.clips`."""
        return self._reader.clips(epoch, iteration, which, rank, world, buffers, cancelled)

    @gated
    def audio(self, epoch: int, iteration: int, which: range, rank: int = 0, world: int = 1) -> NDArray[np.float32]:
        """The audio of some clips of a batch, float32 (len(which),C,n); see `Reader.audio`."""
        return self._reader.audio(epoch, iteration, which, rank, world)

    @gated
    def hold(
        self,
        epoch: int,
        iteration: int,
        rank: int = 0,
        world: int = 1,
        which: range | None = None,
        cancelled: Cancelled | None = None,
        *,
        heard: bool = False,
    ) -> Held:
        """Make a batch and hold it for another process to load; see `Reader.hold`."""
        return self._reader.hold(epoch, iteration, rank, world, which, None, cancelled, heard=heard)

    @gated
    def end(self, held: Held, wrong: Mapping[int, Exception], samples: Sequence[IoSampleRow], loaded_s: float) -> None:
        """What was held was loaded; see `Reader.end`."""
        self._reader.end(held, wrong, samples, loaded_s)

    def facts(self, held: Held) -> Batch:
        """What a held batch is, without its pixels; see `describe`."""
        silence = None if held.audio_shape is None else np.broadcast_to(np.float32(0), held.audio_shape)
        return self._reader.facts(held, np.broadcast_to(np.uint8(0), held.shape), silence)

    @gated
    def describe(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> Batch:
        """A batch as planned, without its pixels; see `Reader.describe`."""
        return self._reader.describe(epoch, iteration, rank, world)

    @gated
    def recipes(self, epoch: int, iteration: int) -> tuple[ClipRecipe, ...]:
        """What was decided for each clip of a batch; nothing is made for it.

        Raises:
            ViewNotFound: no such epoch or iteration.
        """
        active, rows = self._reader.rows(epoch, iteration)
        return clip_recipes(active.plan, rows)

    @gated
    def recipes_of(self, video: str, epoch: int) -> tuple[ClipRecipe, ...]:
        """The same of the clips of a video in an epoch: none where it is not drawn.

        Raises:
            ViewNotFound: no such video or epoch.
            BadVideo: the video cannot be decoded.
        """
        found = self._reader.singles.frame(video, 0)  # its packets are looked at, so that what is said of it holds
        plan = self.task.generation(self.task.generation_of(epoch)).plan
        return clip_recipes(plan, rows_of_video(plan, found.video_id, epoch))

    @gated
    def shape(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> tuple[int, ...]:
        """Shape of a batch, (B·m,T,C,H,W), or of one rank's share; draws the order up to there.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadInput: the batch is too small for so many ranks.
        """
        active, rows = self._reader.rows(epoch, iteration, rank, world)
        return (len(rows), *active.plan.shape)

    @property
    def mixer(self) -> Mixer | None:
        """What mixes its batches when they are handed out; None if clips stay apart."""
        return mixer_of(self._reader.read_ops, self.seed, self.name)

    def finish(self, video: Any, mixing: Mixing | None = None) -> Any:
        """Apply the operations that run at reading (normalize, dtype, mixup); see `finished`."""
        return finished(self._reader.read_ops, video, mixing)

    # Videos and frames ---------------------------------------------------------------------------------------------

    def videos(self) -> Iterator[VideoInfo]:
        """All videos of the dataset, by name."""
        return (self._info(self.task.dataset.one(name)) for name in self.task.dataset.names())

    @gated
    def videos_after(self, name: str, count: int) -> list[VideoInfo]:
        """The next so many videos by name, behind one of the dataset; an empty name begins with the first."""
        names = self.task.dataset.names()
        begin = bisect_right(names, name)
        return [self._info(self.task.dataset.one(each)) for each in names[begin : begin + count]]

    @gated
    def video(self, name: str) -> VideoInfo:
        """One video.

        Raises:
            ViewNotFound: the dataset has no video of that name.
        """
        return self._info(self.task.dataset.one(name))

    def find_video(self, name: str) -> VideoInfo | None:
        """One video, or None where there is none of that name."""
        try:
            return self.video(name)
        except ViewNotFound:
            return None

    def depths(self) -> tuple[int, ...]:
        """The numbers of augmentation steps after which a single frame can be asked for."""
        return self._reader.singles.depths()

    @gated
    def describe_frame(self, request: FrameRequest) -> FrameInfo:
        """What a single frame is; nothing is made for it.

        Raises:
            ViewNotFound: no such video, frame, step, output, epoch, item or sample.
        """
        single = self._single(request)
        return FrameInfo(
            video_id=single.video_id,
            video=single.video,
            label=self.task.dataset.label(single.video_id if request.item is None else request.item),
            frame=single.frame,
            depth=single.depth,
            shape=single.shape,
            time_s=single.time_s,
            key=single.recipe.key,
            recipe=tuple(single.recipe.program.describe(single.recipe.row)),
        )

    @gated
    def frames(self, requests: Sequence[FrameRequest]) -> list[NDArray[np.uint8]]:
        """Single frames, uint8 (3,H,W) each; those of one video are decoded together.

        Raises:
            ViewNotFound: no such video, frame, step, output, epoch, item or sample.
            BadVideo: a video cannot give its frame.
        """
        singles = self._reader.singles
        singles.look({each.video for each in requests})
        return singles.read([self._single(each) for each in requests])

    def _single(self, request: FrameRequest) -> SingleFrame:
        singles = self._reader.singles
        place = request.frame if request.at_s is None else Moment(request.at_s)
        if request.depth is None:
            return singles.frame(request.video, place)
        return singles.aug(
            request.video,
            place,
            request.depth,
            epoch=request.epoch,
            sample=request.sample,
            output=request.output,
            item=request.item,
        )

    def _info(self, found: VideoFile) -> VideoInfo:
        height, width = found.size
        return VideoInfo(
            video_id=found.video_id,
            name=found.name,
            uri=found.uri,
            extension=found.path[len(stem(found.path)) :],
            key=found.key,
            label=self.task.dataset.label(found.video_id),
            status=found.status,
            error=found.error,
            stamp=found.stamp,
            frames=found.frames,
            height=height,
            width=width,
            fps=found.fps,
            duration_s=found.duration_s,
            codec=found.codec,
        )
