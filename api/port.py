"""The port between who owns a cache and who reads it: what loader, ``view://``, demo and command line may use.

All values are plain, so that a task can be answered for by another process as well as by this one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.dataset.changes import DatasetChange
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.ops.mix import Mixer
from viewcache.materializer.reading.batch import Batch, Buffers
from viewcache.materializer.reading.batch_memory import BatchMemory
from viewcache.materializer.reading.finishing import Mixing
from viewcache.materializer.reading.values import ClipRecipe, FrameInfo, FrameRequest, Spent, VideoInfo

__all__ = ["TaskHandle", "TaskSeat", "TaskSource"]


class TaskSeat(Protocol):
    """One reader of a task, whose place decides what the task needs."""

    def read(
        self, epoch: int, iteration: int, buffers: Buffers | None = None, cancelled: Cancelled | None = None
    ) -> Batch | None:
        """Read the seat's share of a batch; see `Reader.read`."""

    def rise(self) -> None:
        """Stop reading. The seat stays at its place until it is taken again: what follows is still made and kept."""


class TaskHandle(Protocol):
    """One task of an open cache."""

    @property
    def name(self) -> str:
        """The task's name in paths."""

    @property
    def task_id(self) -> int:
        """Its number in the catalog."""

    @property
    def epochs(self) -> int:
        """How many epochs it has."""

    @property
    def seed(self) -> int:
        """Seed of its random numbers."""

    @property
    def layout(self) -> str:
        """Axis order of its clips: ``TCHW``, ``CTHW`` or ``THWC``."""

    @property
    def videos_per_batch(self) -> int:
        """Videos in a batch; the last one of an epoch may have fewer."""

    @property
    def samples_per_video(self) -> int:
        """Clips of one video in one epoch."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels: a label's number is its place here. Empty if labels are numbers or none.

        They are those that the task lists, or else the distinct labels, sorted; of a dataset that grows a label keeps
        its number, and those of videos that join later come behind.
        """

    @property
    def changes(self) -> tuple[DatasetChange, ...]:
        """What happened to its files since they were listed before the cache was opened; empty if nothing did."""

    @property
    def draws_together(self) -> bool:
        """Whether its order depends on how far the readers of other tasks are."""

    @property
    def spent(self) -> Spent:
        """Where its readers spent their time since the cache was opened."""

    @property
    def clip_shape(self) -> tuple[int, ...]:
        """Shape of every clip: (T,C,H,W), or (V,T,C,H,W) after ``stack``; plans the first generation."""

    @property
    def audio_shape(self) -> tuple[int, int] | None:
        """Shape of every clip's audio, (C,n); None of a task without audio."""

    def generation_of(self, epoch: int) -> int:
        """Number of the generation, the epochs that are planned together, that an epoch belongs to.

        Raises:
            ViewNotFound: the task has no such epoch.
        """

    def check_epochs(self, epochs: int) -> None:
        """Refuse more epochs than the task has.

        Raises:
            ViewNotFound: the message has the number.
        """

    def iterations(self, epoch: int) -> int:
        """Batches in an epoch; plans its generation.

        Raises:
            ViewNotFound: the task has no such epoch.
        """

    def check_iteration(self, epoch: int, iteration: int) -> None:
        """Refuse a batch that the task does not have; draws nothing more.

        Raises:
            ViewNotFound: the task has no such epoch, or the epoch no such iteration.
        """

    def batch_sizes(self) -> set[int]:
        """How many videos a batch has: the usual number, and that of the last batch of an epoch."""

    def check_world(self, world: int) -> None:
        """Refuse several ranks of a task that draws its order with others: as processes they would read other batches.

        Raises:
            BadInput: the message says what to change.
        """

    def planned_at(self, epoch: int) -> float:
        """When the generation of an epoch was planned first, in seconds since 1970; plans it now if it is new."""

    @property
    def parts(self) -> int:
        """How many DataLoader workers take turns at a rank's batches, as it was read last."""

    def version(self, epoch: int, iteration: int) -> object:
        """A value that is another one as soon as a clip of the batch had to be replaced; it is to be compared."""

    def sit(
        self, rank: int = 0, world: int = 1, part: int = 0, parts: int = 1, epoch: int = 0, iteration: int = 0
    ) -> TaskSeat:
        """Take a seat, to read from a place on: from now on the task needs what this reader needs, too.

        Args:
            rank: whose share of each batch.
            world: number of shares.
            part: of the rank's batches, where several workers take turns.
            parts: number of workers.
            epoch: of the first batch that will be read.
            iteration: of the same.

        Raises:
            BadInput: ranks in several processes would have different orders.
        """

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

    def audio(self, epoch: int, iteration: int, which: range, rank: int = 0, world: int = 1) -> NDArray[np.float32]:
        """The audio of some clips of a batch, float32 (len(which),C,n); it does not count as read.

        Raises:
            ViewNotFound: no such epoch or iteration, or the task has no audio.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
        """

    def describe(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> Batch:
        """A batch as planned, without its pixels; see `Reader.describe`."""

    def recipes(self, epoch: int, iteration: int) -> tuple[ClipRecipe, ...]:
        """What was decided for each clip of a batch; nothing is made for it.

        Raises:
            ViewNotFound: no such epoch or iteration.
        """

    def recipes_of(self, video: str, epoch: int) -> tuple[ClipRecipe, ...]:
        """The same of the clips of a video in an epoch: none where it is not drawn.

        Raises:
            ViewNotFound: no such video or epoch.
            BadVideo: the video cannot be decoded.
        """

    def shape(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> tuple[int, ...]:
        """Shape of a batch, (B·m,T,C,H,W), or of one rank's share; draws the order up to there.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadInput: the batch is too small for so many ranks.
        """

    @property
    def mixer(self) -> Mixer | None:
        """What mixes its batches when they are handed out; None if clips stay apart."""

    def finish(self, video: Any, mixing: Mixing | None = None) -> Any:
        """Apply the operations that run at reading (normalize, dtype, mixup); see `finished`."""

    def videos(self) -> Iterator[VideoInfo]:
        """All videos of the dataset, by name."""

    def video(self, name: str) -> VideoInfo:
        """One video.

        Raises:
            ViewNotFound: the dataset has no video of that name.
        """

    def find_video(self, name: str) -> VideoInfo | None:
        """One video, or None where there is none of that name."""

    def depths(self) -> tuple[int, ...]:
        """The numbers of augmentation steps after which a single frame can be asked for."""

    def describe_frame(self, request: FrameRequest) -> FrameInfo:
        """What a single frame is; nothing is made for it.

        Raises:
            ViewNotFound: no such video, frame, step, output, epoch or sample.
        """

    def frames(self, requests: Sequence[FrameRequest]) -> list[NDArray[np.uint8]]:
        """Single frames, uint8 (3,H,W) each; those of one video are decoded together.

        Raises:
            ViewNotFound: no such video, frame, step, output, epoch or sample.
            BadVideo: a video cannot give its frame.
        """


class TaskSource(Protocol):
    """What has tasks and can be closed: a cache that this process owns, or one that a service does."""

    def task(self, name: str) -> TaskHandle:
        """One of its tasks.

        Raises:
            ViewNotFound: there is no such task; the message lists those that there are.
        """

    @property
    def where(self) -> str:
        """Its store, and who owns that."""

    @property
    def pid(self) -> int | None:
        """The only process in which it can be used; None if any can."""

    @property
    def batch_memory(self) -> BatchMemory:
        """What loaders keep from one pass to the next; given back when it is closed."""

    def check_open(self) -> None:
        """Refuse use after close, and in a forked child.

        Raises:
            Closed: it was closed.
            WrongProcess: this is another process than the one that opened it.
        """
