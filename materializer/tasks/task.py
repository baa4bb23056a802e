"""One task of an open cache: its videos, its draws and its generations.

A generation is planned when it is first needed, from recorded draws where there are any; the catalog gets the plan as a
record, and the plan in memory is computed again from the draws at every start (it is a function of them).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.errors import Broken, Closed, ViewcacheError, ViewNotFound
from viewcache.materializer.dataset.changes import DatasetChange
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.growing import Growing
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.columns import VideoSources
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.draws import known_substitutions, recorded_order
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.needs import frame_needs
from viewcache.materializer.planning.order import Order, iterations
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.rows import Summary, summarize
from viewcache.materializer.scheduling.generation import ActiveGeneration, PlannedClips
from viewcache.materializer.scheduling.seats import Seats
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.tasks.drawn import Drawable, DrawnGeneration, OrderGroup
from viewcache.materializer.tasks.early import Early
from viewcache.materializer.tasks.joining import Joining
from viewcache.materializer.tasks.missing import StandIns
from viewcache.materializer.tasks.numbering import Numbering
from viewcache.materializer.tasks.outline import Outline
from viewcache.materializer.tasks.planner import Planner
from viewcache.materializer.tasks.replacing import Replacing
from viewcache.materializer.tasks.settings import Share, TaskSettings
from viewcache.materializer.telemetry.observer import Observer

__all__ = ["Task"]

PLANNED_AT_ONCE = 20_000
"""Clips of a generation that is planned when it is read first: that takes less than half a second."""
KEEP_GENERATIONS = 4
"""Plans that stay in memory though nobody uses them; an older one is computed again when it is read."""


class Task:
    """A task of an open cache. Thread-safe."""

    def __init__(
        self,
        spec: TaskSpec,
        graph: AbstractGraph,
        settings: TaskSettings,
        catalog: Catalog,
        dataset: Dataset,
        task_id: int,
        observer: Observer,
        growing: Growing | None = None,
    ) -> None:
        """Take what `open_task` prepared."""
        self.group: OrderGroup[Task] | None = None
        """Tasks whose order is drawn together with this one's."""
        self.spec = spec
        self.graph = graph
        self.task_id = task_id
        self.dataset = dataset
        self.changes: tuple[DatasetChange, ...] = ()
        """What happened to its files since they were listed before it was opened."""
        self._observer = observer
        self._settings = settings
        self.budget_bytes = settings.budget_bytes
        """Of the local tier."""
        self._catalog = catalog
        self._planning = threading.RLock()
        self._drawing = threading.Lock()  # held while an order is read, and drawn if it is new
        self._guard: Callable[[], AbstractContextManager[object]] = nullcontext
        self._shared: tuple[Share, OrderGroup[Task] | None] | None = None
        """What `share` was told last."""
        self._generations: WeakValueDictionary[int, ActiveGeneration] = WeakValueDictionary()
        """Every plan that anybody still uses. A second plan of the same epochs would not know what is drawn in the
        first, so none is computed while a reader, the group or the dispatcher has one."""
        self._recent: deque[ActiveGeneration] = deque(maxlen=KEEP_GENERATIONS)
        self.unrecorded: dict[int, Drawable] = {}
        """Generations of which more is drawn than the catalog knows, by number; the lock of the group guards it."""
        self._failed: set[int] = set()
        """Numbers of generations that cannot be planned as things are: who reads them is told why."""
        self._cost = CostModel()
        self._join: int | None = None
        self._at: tuple[int, int] | None = None
        self.seats = Seats()
        """Who reads it."""
        self._numbering = Numbering(catalog, task_id)
        self._replacing = Replacing(spec, lambda: self.dataset, catalog, self._numbering, task_id, self.seed)
        self.early = Early(self, catalog, self._numbering)
        """Batches that are read before their generation is planned."""
        self.joining = Joining(self, catalog, growing)
        """New videos of a dataset that grows."""
        self.outline = Outline(self, catalog)
        """What batches will look like."""

    # Where things are ----------------------------------------------------------------------------------------------

    def check_epochs(self, epochs: int) -> None:
        """Refuse more epochs than the task has.

        Raises:
            ViewNotFound: the message has the number.
        """
        if not 1 <= epochs <= self.spec.epochs:
            raise ViewNotFound(f"task {self.spec.name!r} has {self.spec.epochs} epochs; asked for {epochs}")

    def generation_of(self, epoch: int) -> int:
        """The generation that an epoch belongs to.

        Raises:
            ViewNotFound: the task has no such epoch.
        """
        if not 0 <= epoch < self.spec.epochs:
            raise ViewNotFound(f"task {self.spec.name!r} has epochs 0 to {self.spec.epochs - 1}; asked for {epoch}")
        k = self._settings.epochs_per_generation
        return (epoch + self.joined % k) // k

    def epochs_of(self, number: int) -> range:
        """The epochs of a generation; the first is shorter for a task that joined others late, to end with theirs."""
        k = self._settings.epochs_per_generation
        first = number * k - self.joined % k
        return range(max(0, first), min(first + k, self.spec.epochs))

    @property
    def joined(self) -> int:
        """The epoch of the group in which the task has its first; decided when first asked for, and recorded."""
        if self._join is not None:
            return self._join  # without the lock: who draws for the group asks this
        with self._planning:
            if self._join is None:
                recorded = self._catalog.load_generations(self.task_id)
                first = next((row for row in recorded if row.group_epoch is not None), None)
                if first is not None and first.group_epoch is not None:
                    self._join = first.group_epoch - first.first_epoch
                else:
                    self._join = 0 if recorded or self.group is None else self.group.epoch(self)
            return self._join

    @property
    def has_joined(self) -> bool:
        """Whether it is decided in which epoch of the group it has its first."""
        return self._join is not None

    @property
    def skipped(self) -> int:
        """Generations of the group that were over when the task joined."""
        return self.joined // self._settings.epochs_per_generation

    def place(self) -> tuple[int, int]:
        """Epoch and position behind the last video that a reader had in this run; else where all were before."""
        if self._at is None:
            batch, rows = self.spec.sampling.videos_per_batch, self._catalog.load_progress(self.task_id)
            self._at = min(((row.epoch, row.iteration * batch) for row in rows), default=(0, 0))
        return self._at

    def share(
        self,
        share: Share,
        group: OrderGroup["Task"] | None = None,
        guard: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Share with other tasks from now on; what is planned already stays as it is.

        ``guard`` gives the lock under which a plan that is being worked on may be replaced.
        """
        if (share, group) == self._shared:
            return  # dozens of jobs when one more comes: that one need not wait until each of them has planned
        with self._planning:
            self._settings = replace(self._settings, grid=share.grid, together=share.together)
            self.group = group
            self._guard = guard
        self._shared = share, group

    @property
    def grid(self) -> int:
        """Greatest common divisor of the strides of the tasks that it shares clips with."""
        return self._settings.grid

    @property
    def epochs_at_once(self) -> int:
        """Epochs of a generation."""
        return self._settings.epochs_per_generation

    @property
    def draws_together(self) -> bool:
        """Whether its order depends on the paces of other tasks."""
        return self._settings.together

    def is_early(self, number: int) -> bool:
        """Whether batches of a generation are planned one by one, because planning all of it takes long."""
        self.joining.before(number)
        return self.is_large(number) and (not self._settings.together or self.early.begin(number))

    def is_large(self, number: int) -> bool:
        """Whether planning a generation takes long, and is still to be done."""
        epochs = min(self._settings.epochs_per_generation, self.spec.epochs)
        clips = len(self.dataset) * self.spec.sampling.samples_per_video * epochs
        return clips > PLANNED_AT_ONCE and number not in self._failed and self.planned(number) is None

    def positions(self, epoch: int) -> int:
        """Videos in an epoch; draws its generation.

        Raises:
            ViewNotFound: the task has no such epoch.
        """
        return self.drawn(self.generation_of(epoch)).order.positions

    def iterations(self, epoch: int) -> int:
        """Batches in an epoch; draws its generation.

        Raises:
            ViewNotFound: the task has no such epoch.
        """
        return iterations(self.positions(epoch), self.spec.sampling.videos_per_batch, self.spec.drop_last)

    def check_iteration(self, epoch: int, iteration: int) -> None:
        """Refuse a batch that does not exist; draws nothing more.

        Raises:
            ViewNotFound: the task has no such epoch, or the epoch no such iteration.
        """
        batches = self.iterations(epoch)
        if not 0 <= iteration < batches:
            raise ViewNotFound(
                f"epoch {epoch} of task {self.spec.name!r} has iterations 0 to {batches - 1}; asked for {iteration}"
            )

    def batch(self, epoch: int, iteration: int) -> PlannedClips:
        """The clips of a batch, with its order drawn at least to the end of that batch.

        Raises:
            ViewNotFound: the task has no such epoch, or the epoch no such iteration.
            BadVideo: a video is bad or gone and the policy is ``raise``.
        """
        self.check_iteration(epoch, iteration)
        number = self.generation_of(epoch)
        drawn = self.drawn(number)
        self._settle_batch(drawn, epoch, iteration)
        return self.planned(number) or self.early.batch(epoch, iteration)

    def settled(self, epoch: int, iteration: int) -> ActiveGeneration:
        """The generation of a batch that exists, with its order drawn at least to the end of that batch."""
        active = self.generation(self.generation_of(epoch))
        self._settle_batch(active, epoch, iteration)
        return active

    def _settle_batch(self, drawn: Drawable, epoch: int, iteration: int) -> None:
        end = min((iteration + 1) * self.spec.sampling.videos_per_batch, drawn.order.positions)
        if drawn.settled(epoch) < end:
            self.settle(epoch, end)
            if self.drawn(drawn.number).settled(epoch) < end:
                raise Broken(f"epoch {epoch} of task {self.spec.name!r} is not drawn to position {end}; report this")

    # Planning ------------------------------------------------------------------------------------------------------

    def generation(self, number: int) -> ActiveGeneration:
        """A generation's plan, drawn and recorded now if it is new.

        Raises:
            BadVideo: a drawn video is bad or gone and the policy is ``raise``.
            BadInput: the task selects no video, or its clips would differ in shape.
        """
        active = self._generations.get(number)
        if active is not None:
            return active
        try:
            self.joining.before(number)
            self.dataset.files.headers.wait()
            with self._planning:  # readers of other generations go on meanwhile
                active = self._generations.get(number)
                if active is None:
                    begun = time.monotonic()
                    with self._rest(number):
                        active = self._plan(number)
                        with self.early.lock:
                            self._generations[number] = active
                            self.unrecorded.pop(number, None)  # of an order whose place it takes
                    self._observer.planned(self.spec.name, number, begun)
                    self._recent.append(active)
        except Closed:
            raise
        except ViewcacheError:
            self._failed.add(number)
            raise
        self._failed.discard(number)
        return active

    @contextmanager
    def _rest(self, number: int) -> Iterator[None]:
        """Nothing more is drawn of a generation while it is planned, though its order was drawn before."""
        drawn = self.early.close(number)
        try:
            with self._order_lock() if drawn else nullcontext():
                if drawn and self.group is not None:
                    self.group.rest(self)
                yield
        finally:
            self.early.forget(number)

    def drawn(self, number: int) -> Drawable:
        """A generation whose order may be drawn further; planned now, if it is not and that takes no time."""
        return self.early.order(number) if self.is_early(number) else self.generation(number)

    def begun(self, number: int) -> Drawable | None:
        """The same, if it is planned or its order is known."""
        return self.planned(number) or self.early.begun(number)

    def planned(self, number: int) -> ActiveGeneration | None:
        """A generation, if it is planned already."""
        return self._generations.get(number)

    def is_planning(self) -> bool:
        """Whether a generation is being planned, so that `substitute` would wait."""
        if free := self._planning.acquire(blocking=False):
            self._planning.release()
        return not free

    def last_generation(self) -> int:
        """The number of the task's last generation."""
        return self.generation_of(self.spec.epochs - 1)

    def order_of(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A generation's order as it stands, see `recorded_order`; what is new is recorded now."""
        self.joining.before(number)
        return self.draw(number)

    def draw(self, number: int, among: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same, of some videos where it is new."""
        with self._drawing:
            candidates = (lambda: self.dataset.candidates(self.spec)) if among is None else (lambda: among)
            drawn = self._catalog, self.dataset, candidates, self.spec, self.task_id, self.seed
            return recorded_order(*drawn, self.epochs_of(number), together=self._settings.together)

    def take_in(self, dataset: Dataset) -> None:
        """Draw from these videos from now on: all that there were, and more."""
        self.dataset = dataset

    def grid_of(self, number: int) -> int:
        """The grid of a generation's clip starts: what its paths mean stays, whoever shares with it now."""
        recorded = next((row for row in self._catalog.load_generations(self.task_id) if row.number == number), None)
        return self._settings.grid if recorded is None else recorded.grid or self.spec.sampling.pitch

    def order_now(self, number: int) -> DrawnGeneration:
        """A generation's order as it stands, and what else it is planned from; what is new is recorded now."""
        epochs = self.epochs_of(number)
        ids, settled = self.order_of(number)
        known = known_substitutions(self._catalog, self.task_id, epochs, settled)
        order, grid, of_group = Order(ids, settled), self.grid_of(number), self.group_generation_of(number)
        return DrawnGeneration(number, epochs, order, grid, self.joined, of_group, known)

    def group_generation_of(self, number: int) -> int:
        """The group's generation that one of the task's own belongs to."""
        return (self.epochs_of(number).start + self.joined) // self._settings.epochs_per_generation

    def _plan(self, number: int) -> ActiveGeneration:
        drawn = self.order_now(number)
        twins = () if self.group is None else self.group.twins(self, number)
        of_task = self.spec, self.graph, self._catalog, self.dataset, self._numbering, self.task_id, self.seed
        planner = Planner(*of_task, self.budget_bytes, self.sources, self.index_of, self.stand_ins)
        return planner.plan(drawn, twins, together=self._settings.together)

    def sources(self, plan: GenerationPlan, rows: Sequence[int]) -> VideoSources:
        """The videos of some rows as a worker gets them, by what is known of them now."""
        videos, video = plan.videos, plan.video[np.array(rows, np.int64)]
        uris, names, keys = (each.at(video) for each in (videos.uris, videos.names, videos.keys))
        indexes, claims = self.dataset.looked_at(videos.ids[video])
        return VideoSources(uris, names, keys, indexes, videos.frames[video].tolist(), claims)

    def demand_reserve(self, batch_bytes: int) -> int:
        """Bytes of the budget that making ahead leaves free, so that a reader need not wait for an eviction."""
        return min(batch_bytes, self._settings.budget_bytes // 4)

    def summary(self, number: int) -> Summary:
        """A generation in numbers, before anything runs."""
        plan = self.generation(number).plan
        index_of = self.index_of(plan)
        return summarize(plan, frame_needs(plan, index_of), index_of, self._cost)

    def index_of(self, plan: GenerationPlan) -> Callable[[int], MediaIndex]:
        """The packet index of a row of the plan's videos."""
        return lambda row: self.dataset.index(int(plan.videos.ids[row]))

    def substitute(self, clips: PlannedClips, rows: list[int], why: str, *, gone: bool) -> ViewcacheError | None:
        """A video cannot give these clips (it may be `gone`): replace them by the policy, or say the reader's error."""
        with self._planning, self._order_lock(), self.early.lock:
            twins = [each for each in (*self._generations.values(), *self.early.live()) if each is not clips]
            try:
                how = clips, rows, why, twins, self._guard
                chosen = self._replacing.substitute(*how, gone=gone, by_video=self._settings.together)
            except ViewcacheError as error:
                return error
            self.early.note(chosen)
            return None

    def correct(self, video_id: int) -> str:
        """Plan the clips of a video again, wherever anybody has them: its header did not tell the truth.

        Returns why clips of it cannot be planned, empty if they can.
        """
        with self._planning, self._order_lock(), self.early.lock:
            planned = [*self._generations.values(), *self.early.live()]
            return max((self._replacing.correct(each, video_id, self._guard) for each in planned), default="")

    def _order_lock(self) -> AbstractContextManager[object]:
        return nullcontext() if self.group is None else self.group.lock

    # Drawing with others -------------------------------------------------------------------------------------------

    def settle(self, epoch: int, positions: int) -> None:
        """Draw an epoch's order at least so far, together with the other tasks of the group."""
        if self.group is None:
            raise Broken(f"task {self.spec.name!r} draws with others but has no group")
        self.group.settle(self, epoch, positions)

    def reached(self, epoch: int, iteration: int) -> None:
        """A reader has had a batch: what follows the one who is ahead of all is drawn in time."""
        size = self.spec.sampling.videos_per_batch
        epoch, iteration = self.seats.furthest() or (epoch, iteration)
        used = min(self.positions(epoch), self.iterations(epoch) * size)
        self._at = epoch, min((iteration + 1) * size, used)
        if self.group is not None:
            self.group.reached(self, *self._at)

    @property
    def stand_ins(self) -> StandIns:
        """What was logged of its files that are gone."""
        return self._replacing.told

    @property
    def seed(self) -> int:
        """Of the task's random numbers."""
        return self._settings.seed if self.spec.seed is None else self.spec.seed
