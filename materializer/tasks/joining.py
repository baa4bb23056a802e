"""New videos join a task whose dataset grows: before a generation is drawn, never in one that is (docs/design/0033).

Generations are drawn in their order, whichever is asked for, so that what has joined stays: a video that an epoch has,
all later ones have too, as long as its file is there. The price is that a look far ahead draws all that is before.
"""

import logging
import threading
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow
from viewcache.errors import BadInput, BadVideo, ViewcacheError
from viewcache.materializer.choices import OnBadVideo
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.growing import Growing
from viewcache.materializer.dataset.past import Past
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.tasks.outline import Outline

__all__ = ["DrawingGroup", "Joining"]

_log = logging.getLogger("viewcache.dataset")


class DrawingGroup(Protocol):
    """What is asked of the tasks that draw together."""

    def newest_drawn(self, group_generation: int) -> int | None:
        """The largest ``item_id`` that one of them has drawn of a generation; None if none has."""


class JoiningTask(Protocol):
    """What is asked of the task."""

    spec: TaskSpec
    dataset: Dataset
    task_id: int
    outline: Outline

    @property
    def joined(self) -> int:
        """The epoch of the group in which it has its first."""

    @property
    def group(self) -> DrawingGroup | None:
        """Tasks whose order is drawn together with this one's."""

    def epochs_of(self, number: int) -> range:
        """The epochs of a generation."""

    def group_generation_of(self, number: int) -> int:
        """The group's generation that one of its own belongs to."""

    def take_in(self, dataset: Dataset) -> None:
        """Draw from these videos from now on."""

    def draw(self, number: int, among: NDArray[np.int64] | None = None) -> object:
        """Draw a generation, of these videos."""


class Joining:
    """Lets videos join one task. Thread-safe."""

    def __init__(self, task: JoiningTask, catalog: Catalog, growing: Growing | None) -> None:
        """Take the files of the task's dataset, if it grows."""
        self._task = task
        self._catalog = catalog
        self._growing = growing
        self._lock = threading.RLock()
        self._next = 0
        """The first generation that is not known to be drawn."""
        self._told: set[int] = set()
        """Items that do not go with those that were drawn."""

    def before(self, number: int) -> None:
        """A generation is about to be read or planned: it is drawn now if it is not, of what is there by now.

        Raises:
            BadVideo: a video is bad and the policy is ``raise``.
            BadInput: nothing is there to draw from.
        """
        task = self._task
        if self._growing is None or number < self._next:
            return
        task.joined  # noqa: B018  # decided before the lock is taken: who decides it may hold another one
        with self._lock:
            for each in range(self._next, number + 1):
                if not self._is_drawn(each):
                    self._draw(each, self._growing)
                self._next = each + 1

    def is_due(self, number: int, epochs: Iterable[int]) -> bool:
        """Whether the generation behind one is planned ahead, when readers are in some epochs.

        Of a dataset that grows it is when a reader begins the last epoch before it, so that most can join.
        """
        return self._growing is None or self._task.epochs_of(number).stop - 1 in epochs

    def _is_drawn(self, number: int) -> bool:
        return self._catalog.is_drawn(self._task.task_id, self._task.epochs_of(number).start)

    def _draw(self, number: int, growing: Growing) -> None:
        """Draw a generation; those that draw it together have the same videos, also if a restart lies between."""
        task, group = self._task, self._task.group
        with growing.lock:
            newest = None if group is None else group.newest_drawn(task.group_generation_of(number))
            if newest is None or newest > task.dataset.items.ids.max():
                growing.list()
            self._take_in(growing.files)
            candidates = task.dataset.candidates(task.spec)
            among = candidates if newest is None else candidates[candidates <= newest]
            among = among if len(among) else candidates
            size = task.spec.sampling.videos_per_batch
            if task.spec.drop_last and len(among) < size:
                media = task.spec.dataset.media
                there = f"{len(among)} {media}s are there for epoch {task.epochs_of(number).start}"
                raise BadInput(
                    f"task {task.spec.name!r}: {there}, "
                    f"and drop_last leaves out a batch of fewer than {media.batch_key}, {size}; nothing is drawn until "
                    "more are"
                )
            task.draw(number, among)

    def _take_in(self, files: Files) -> None:
        """Let the task draw from these files; where its labels or its predicate refuse them, it stays as it is.

        Raises:
            BadVideo: clips of a new video do not go with those that were drawn, and the policy is ``raise``.
        """
        task = self._task
        past = Past(self._catalog, task.task_id)
        try:
            dataset = Dataset(task.spec.dataset, task.spec.sampling, files, self._catalog, past)
            if task.dataset.is_numbered and dataset.classes:
                raise BadInput(f"labels were whole numbers, and now there is {dataset.classes[-1]!r}")
        except ViewcacheError as error:
            _log.warning("task %r: nothing new joins: %s", task.spec.name, error, extra={"action": "not_taken_in"})
            return
        assert past.drawn is not None  # the task is known
        self.leave_out_misfits(dataset, past.drawn["video_id"].to_numpy())
        task.take_in(dataset)

    def leave_out_misfits(self, dataset: Dataset, drawn: NDArray[np.int64]) -> None:
        """Let nothing be drawn of videos whose clips would not go with those that were ``drawn``, (n,) ids.

        Raises:
            BadVideo: there is one, and the policy is ``raise``.
        """
        task = self._task
        usable = dataset.base[dataset.may_stand_in(dataset.base, task.spec.sampling.span)]
        seen = np.isin(usable, drawn)
        if not seen.any() or seen.all():
            return
        odd = task.outline.misfits(dataset, usable[~seen], int(usable[seen][0]))
        for item_id, why in odd.items():
            if task.spec.dataset.on_bad_video == OnBadVideo.RAISE:
                raise BadVideo(f"{why}; or remove it, or set on_bad_{task.spec.dataset.media}: skip")
            dataset.leave_out(item_id, why)
            if item_id not in self._told:
                self._told.add(item_id)
                _log.warning("%s", why, extra={"action": "misfit"})
                self._catalog.add_events([EventRow("error", task.task_id, detail=f"misfit: {why}")])
