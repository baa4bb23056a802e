"""What a cache gives to read and to look at, the same whoever owns it: all of it comes from its tasks.

This module and what it imports load no database and no decoder; see `AttachedCache`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from viewcache.api.arguments import integer, number, optional, several, text
from viewcache.api.config.load import Config
from viewcache.api.pictures.show import COLUMNS, HEIGHT, show
from viewcache.api.port import TaskHandle
from viewcache.api.training.loader import Loader
from viewcache.errors import BadInput, ViewcacheError
from viewcache.materializer.choices import Media
from viewcache.materializer.dataset.changes import DatasetChange, FileChange
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.batch_memory import BatchMemory
from viewcache.materializer.reading.values import FrameRequest
from viewcache.materializer.shown import html_table

if TYPE_CHECKING:
    from viewcache.api.pictures.picture import Picture

__all__ = ["CacheReads"]


class CacheReads(ABC):
    """The part of a cache that asks nothing of its owner but the tasks."""

    batch_memory: BatchMemory
    """What loaders keep from one pass to the next."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The only process in which it can be used; None if any can."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Its store, and who owns that."""

    @property
    @abstractmethod
    def config(self) -> Config:
        """The settings and the tasks."""

    @abstractmethod
    def task(self, name: str) -> TaskHandle:
        """One task: its batches, frames, videos and classes.

        Raises:
            BadInput: the name is no text.
            ViewNotFound: there is no such task; the message lists those that there are.
        """

    @abstractmethod
    def check_open(self) -> None:
        """Refuse use after close, and in a forked child."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it. Harmless when done twice."""

    def __repr__(self) -> str:
        """One line: its store, whether it is open, its tasks; nothing is asked, read or made for it."""
        tasks = "; ".join(f"{name}: {facts}" for name, facts in self._task_facts().items())
        return f"<viewcache.Cache at {self.where}, {self._state()}; tasks {tasks}>"

    def _repr_html_(self) -> str:
        """The same as a table, for a notebook."""
        return html_table("viewcache.Cache", {"store": self.where, "state": self._state(), **self._task_facts()})

    def _task_facts(self) -> dict[str, str]:
        found = {}
        for task in self.config.tasks:
            sampling = task.sampling
            count = "1 epoch" if task.epochs == 1 else f"{task.epochs} epochs"
            media = task.dataset.media
            batches = f"{count} of batches of {sampling.videos_per_batch} {media}s, {sampling.samples_per_video}"
            clips = f"clips of each, {sampling.frames_per_video} frames a clip"
            found[task.name] = f"{batches} {clips if media == Media.VIDEO else 'pictures of each'}"
        return found

    def _state(self) -> str:
        try:
            self.check_open()
        except ViewcacheError as error:
            return error.kind
        return "open"

    def __enter__(self) -> Self:
        """The cache itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def classes(self, task: str) -> tuple[str, ...]:
        """The names of a task's labels; a label's number is its place here. Empty if labels are numbers or none.

        They are those that the task lists, or else the distinct labels, sorted; of a dataset that grows those that join
        later come behind.

        Raises:
            ViewNotFound: no such task.
        """
        return self.task(task).classes

    def changes(self, task: str) -> tuple[DatasetChange, ...]:
        """What happened to a task's files between the last time that its dataset was opened and this one.

        At most one value for each of added, removed, replaced and returned files, and of classes whose numbers are
        other ones now; empty if nothing happened. One more, at every opening, where bad files are an error of epochs
        to come. What a service finds that is started again meanwhile comes behind these.

        Raises:
            ViewNotFound: no such task.
        """
        return self.task(task).changes

    def _task_warnings(self, tasks: Iterable[str]) -> tuple[str, ...]:
        """Of tasks whose classes have other numbers than when their dataset was opened last, or whose files are bad."""
        return tuple(
            f"task {name!r}: {change}"
            for name in tasks
            for change in self.changes(name)
            if change.change in (FileChange.RENUMBERED, FileChange.BAD)
        )

    def loader(self, task: str, **options: Any) -> Loader:
        """Batches of a task as PyTorch tensors, or arrays of another ``framework``; see `Loader` for the options."""
        return Loader(self, task, **options)

    def read(self, task: str, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> Batch:
        """One batch as NumPy arrays.

        Raises:
            BadInput: a number is no whole number, or there is no such rank.
            ViewNotFound: no such task, epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
        """
        batch = self.task(task).read(
            integer("epoch", epoch), integer("iteration", iteration), integer("rank", rank), integer("world", world)
        )
        assert batch is not None  # only a cancelled read gives none
        return batch

    def frame(self, task: str, video: str, i: int) -> NDArray[np.uint8]:
        """Frame ``i`` of a video as decoded, uint8 (3,H,W).

        Raises:
            BadInput: the video's name is no text, or ``i`` no whole number.
            ViewNotFound: no such task, video or frame.
            BadVideo: the video cannot give it.
        """
        return self.task(task).frames([FrameRequest(text("video", video), integer("i", i))])[0]

    def frames(
        self, task: str, video: str, numbers: Sequence[int] = (), *, seconds: Sequence[float] = ()
    ) -> NDArray[np.uint8]:
        """Frames of a video as decoded, uint8 (n,3,H,W), by number or by presentation time; decoded together.

        Args:
            task: over whose dataset.
            video: its name.
            numbers: of the frames.
            seconds: in their place, times: each gives the frame that is shown nearest to it.

        Raises:
            BadInput: both are given, or neither; or something in them is no whole number, or no number.
            ViewNotFound: no such task, video or frame, or nothing is shown at a time; the message has the range.
            BadVideo: the video cannot give one.
        """
        handle, name = self.task(task), text("video", video)
        by_number = [FrameRequest(name, each) for each in several(integer, "numbers", numbers)]
        by_time = [FrameRequest(name, 0, at_s=each) for each in several(number, "seconds", seconds)]
        if bool(by_number) == bool(by_time):
            raise BadInput("frames: give numbers of frames, or seconds=[…], and at least one of them")
        return np.stack(handle.frames(by_time or by_number))

    def aug(
        self,
        task: str,
        video: str,
        i: int,
        depth: int,
        *,
        epoch: int | None = None,
        sample: int = 0,
        output: str | None = None,
        item: int | None = None,
    ) -> NDArray[np.uint8]:
        """Frame ``i`` of a video after the first ``depth`` augmentation steps, uint8 (3,H,W); see `Singles.aug`.

        Raises:
            BadInput: a name is no text, or a number no whole number.
            ViewNotFound: no such task, video, frame, step, output, epoch, item or sample.
            BadVideo: the video cannot give it.
        """
        request = FrameRequest(
            text("video", video),
            integer("i", i),
            integer("depth", depth),
            optional(integer, "epoch", epoch),
            integer("sample", sample),
            optional(text, "output", output),
            item=optional(integer, "item", item),
        )
        return self.task(task).frames([request])[0]

    def show(
        self,
        task: str,
        epoch: int = 0,
        iteration: int | None = None,
        *,
        video: str | None = None,
        columns: int = COLUMNS,
        height: int = HEIGHT,
    ) -> "Picture":
        """A batch or a video as a picture, with labels, times, crops and flips: ``cache.show("train", 0, 3)``.

        A notebook shows it, ``.save(file)`` writes it: ``.png`` is a contact sheet; ``.gif``, ``.webp`` and ``.mp4``
        move. Nothing counts as read, and no reader moves.

        Args:
            task: whose.
            epoch: of the batch; of a video, whose clips are drawn into it.
            iteration: of the batch; None = 0.
            video: name of a video, or its path below the dataset's folder, in the place of a batch.
            columns: most frames in a row, evenly chosen.
            height: most pixels of a frame's height; a larger one is made smaller.

        Raises:
            BadInput: an iteration and a video, columns or a height out of range, or no whole number where one is meant.
            ViewNotFound: no such task, epoch, iteration or video.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
        """
        return show(
            self.task(task),
            integer("epoch", epoch),
            optional(integer, "iteration", iteration),
            optional(text, "video", video),
            integer("columns", columns),
            integer("height", height),
        )

    def video(self, task: str, name: str) -> tuple[str, str]:
        """Where a video's file is (absolute path or URL), and the file's extension, ``.mp4``.

        Raises:
            BadInput: the name is no text.
            ViewNotFound: no such task or video.
        """
        video = self.task(task).video(text("name", name))
        return video.uri, video.extension
