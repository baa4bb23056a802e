"""One task of an open cache: its videos, its draws and its generations.

A generation is planned when it is first needed, from recorded draws where there are any; the catalog gets the plan as a
record, and the plan in memory is computed again from the draws at every start (it is a function of them).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow
from viewcache.errors import BadVideo, Broken, ViewcacheError, ViewNotFound
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.stand_ins import stand_in_for, substitute_place
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.draws import (
    known_substitutions,
    recorded_order,
    short_uses,
    stand_ins,
    with_substitutes,
)
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.needs import frame_needs
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.plan import GenerationPlan, plan_generation
from viewcache.materializer.planning.recipe import VideoSource
from viewcache.materializer.planning.rows import (
    Summary,
    ids_of,
    plan_objects,
    plan_tables,
    summarize,
)
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.spec import OnBadVideo, TaskSpec
from viewcache.materializer.tasks.policies import record_policies
from viewcache.materializer.tasks.settings import Share, TaskSettings
from viewcache.materializer.telemetry.observer import Observer

__all__ = ["OrderGroup", "Task"]

KEEP_GENERATIONS = 4
"""Plans that stay in memory though nobody uses them; an older one is computed again when it is read."""


class OrderGroup(Protocol):
    """What a task needs of the group that draws its order; `Group` is one."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while orders change."""

    def settle(self, task: "Task", epoch: int, positions: int) -> None:
        """Draw an epoch's order at least so far."""

    def leave(self, task: "Task") -> None:
        """Draw no more for a task."""

    def reached(self, task: "Task", epoch: int, position: int) -> None:
        """Note that a task's reader has had what is before a place."""

    def epoch(self, asking: "Task") -> int:
        """The furthest epoch that a task is in besides the one that asks, counted from the group's first."""

    def matching_generations(self, task: "Task", number: int) -> Iterator[tuple["Task", int]]:
        """The generations of other tasks that belong to the same epochs of the group."""


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
    ) -> None:
        """Take what `open_task` prepared."""
        self.group: OrderGroup | None = None
        """Tasks whose order is drawn together with this one's."""
        self.spec = spec
        self.graph = graph
        self.task_id = task_id
        self.dataset = dataset
        self._observer = observer
        self._settings = settings
        self._catalog = catalog
        self._planning = threading.RLock()
        self._guard: Callable[[], AbstractContextManager[object]] = nullcontext
        self._generations: WeakValueDictionary[int, ActiveGeneration] = WeakValueDictionary()
        """Every plan that anybody still uses. A second plan of the same epochs would not know what is drawn in the
        first, so none is computed while a reader, the group or the dispatcher has one."""
        self._recent: deque[ActiveGeneration] = deque(maxlen=KEEP_GENERATIONS)
        self._cost = CostModel()
        self._join: int | None = None
        self._at: tuple[int, int] | None = None
        self._tried: dict[tuple[int, int, int], set[int]] = {}
        """Place of a clip → rows of the videos that could not give it."""

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
                    self._join = 0 if recorded else self.group_epoch()
            return self._join

    @property
    def skipped(self) -> int:
        """Generations of the group that were over when the task joined."""
        return self.joined // self._settings.epochs_per_generation

    def place(self) -> tuple[int, int]:
        """Epoch and position of the first video that readers have not had, in this run or else before."""
        if self._at is None:
            progress = min(self._catalog.load_progress(self.task_id), key=lambda row: row.seq, default=None)
            batch = self.spec.sampling.videos_per_batch
            self._at = (0, 0) if progress is None else (progress.epoch, progress.iteration * batch)
        return self._at

    def share(
        self,
        share: Share,
        group: OrderGroup | None = None,
        guard: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Share with other tasks from now on; what is planned already stays as it is.

        ``guard`` gives the lock under which a plan that is being worked on may be replaced.
        """
        with self._planning:
            self._settings = replace(self._settings, grid=share.grid, together=share.together)
            self.group = group
            self._guard = guard

    @property
    def draws_together(self) -> bool:
        """Whether its order depends on the paces of other tasks."""
        return self._settings.together

    def iterations(self, epoch: int) -> int:
        """Batches in an epoch; plans its generation.

        Raises:
            ViewNotFound: the task has no such epoch.
        """
        return self.generation(self.generation_of(epoch)).plan.iterations

    def check_iteration(self, epoch: int, iteration: int) -> ActiveGeneration:
        """The generation of a batch that exists; draws nothing more.

        Raises:
            ViewNotFound: the task has no such epoch, or the epoch no such iteration.
        """
        active = self.generation(self.generation_of(epoch))
        if not 0 <= iteration < active.plan.iterations:
            raise ViewNotFound(
                f"epoch {epoch} of task {self.spec.name!r} has iterations 0 to {active.plan.iterations - 1}; "
                f"asked for {iteration}"
            )
        return active

    def settled(self, epoch: int, iteration: int) -> ActiveGeneration:
        """The generation of a batch, with its order drawn at least to the end of that batch.

        Raises:
            ViewNotFound: the task has no such epoch, or the epoch no such iteration.
        """
        active = self.check_iteration(epoch, iteration)
        end = min((iteration + 1) * active.batch, active.used)
        if active.settled(epoch) < end:
            self.settle(epoch, end)
        if active.settled(epoch) < end:
            raise Broken(
                f"epoch {epoch} of task {self.spec.name!r} is drawn to position {active.settled(epoch)} and not to "
                f"{end}; open the cache again, and report this"
            )
        return active

    def batch_sizes(self) -> set[int]:
        """How many videos a batch of the first epoch has: the usual number, and that of the last batch."""
        plan, samples = self.generation(0).plan, self.spec.sampling.samples_per_video
        return {len(plan.rows(plan.first_epoch, iteration)) // samples for iteration in (0, plan.iterations - 1)}

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
        with self._planning:  # readers of other generations go on meanwhile
            active = self._generations.get(number)
            if active is None:
                begun = time.monotonic()
                active = self._generations[number] = self._plan(number)
                self._observer.planned(self.spec.name, number, begun)
                self._recent.append(active)
            return active

    def planned(self, number: int) -> ActiveGeneration | None:
        """A generation, if it is planned already."""
        return self._generations.get(number)

    def batch_bound(self) -> tuple[int, int]:
        """Most bytes that the clips of one batch take in the store, and how many clips that are; draws nothing.

        Raises:
            BadVideo: a video is bad and the policy is ``raise``.
            BadInput: the task selects no video, or its clips would differ in shape.
        """
        active = self.planned(0)
        plan = self._trial() if active is None else active.plan
        clips = len(plan.rows(plan.first_epoch, 0))
        return clips * plan.bound, clips

    def _trial(self) -> GenerationPlan:
        """One epoch in the order of names: what a plan would look like, neither drawn nor recorded."""
        if self._catalog.load_draws(self.task_id, 0, 0).num_rows:
            return self.generation(0).plan
        order = self.dataset.candidates(self.spec)[None]
        videos, draws, _ = self.dataset.resolve_draws(self.spec, self.seed, 0, order, {})
        return plan_generation(
            self.spec, self.graph, videos, draws, seed=self.seed, number=0, first_epoch=0, grid=self._settings.grid
        )

    def last_generation(self) -> int:
        """The number of the task's last generation."""
        return self.generation_of(self.spec.epochs - 1)

    def _plan(self, number: int) -> ActiveGeneration:
        epochs, together = self.epochs_of(number), self._settings.together
        ids, settled = recorded_order(
            self._catalog, self.dataset, self.spec, self.task_id, self.seed, epochs, together=together
        )
        known = known_substitutions(self._catalog, self.task_id, epochs, settled)
        videos, draws, used = self.dataset.resolve_draws(
            self.spec, self.seed, epochs.start, ids, stand_ins(known), by_video=together
        )
        recorded = next((row for row in self._catalog.load_generations(self.task_id) if row.number == number), None)
        grid = self._settings.grid
        if recorded is not None:  # what its paths mean stays, whoever shares with it now
            grid = recorded.grid or self.spec.sampling.frame_stride
        plan = plan_generation(
            self.spec,
            self.graph,
            videos,
            draws,
            seed=self.seed,
            number=number,
            first_epoch=epochs.start,
            grid=grid,
            joined=self.joined,
            group_generation=(epochs.start + self.joined) // self._settings.epochs_per_generation,
            spare=together,
        )
        positions = len(plan) // len(epochs) // self.spec.sampling.samples_per_video
        order = Order(ids[:, :positions], np.minimum(settled, positions))
        plan, again = with_substitutes(plan, known, order, self.seed, self.task_id, by_video=together)
        with self._catalog.naming:
            active = self._record(plan, order)
        now = [*(replace(row, task_id=self.task_id) for row in used), *again, *short_uses(plan, self.task_id)]
        record_policies(self._catalog, active, now, known)
        return active

    def _record(self, plan: GenerationPlan, order: Order) -> ActiveGeneration:
        """Give the plan's objects their ids and let the catalog know them, unless it does."""
        object_ids, known = ids_of(self._catalog, plan.keys)
        recorded = self._catalog.load_use_ids(self.task_id, plan.first_epoch, plan.last_epoch)["object_id"].to_numpy()
        if not np.array_equal(recorded, object_ids[plan.iteration < plan.iterations]):
            needs = frame_needs(plan, self.index_of(plan))
            keys = needs.keys(plan.videos.keys)
            frames_ids, frames_known = ids_of(self._catalog, keys)
            cost = self._cost
            tables = plan_tables(
                plan,
                needs,
                keys,
                object_ids,
                known,
                frames_ids,
                frames_known,
                task_id=self.task_id,
                cost=cost,
            )
            self._catalog.record_plan(tables)
        return ActiveGeneration(plan, order, self.task_id, object_ids, self._source)

    def _source(self, plan: GenerationPlan, row: int) -> VideoSource:
        """The video of a row as a worker gets it, by what is known of it now."""
        videos, video = plan.videos, int(plan.video[row])
        blob, claims = self.dataset.looked_at(int(videos.ids[video]))
        uri, name, key, frames = videos.uris[video], videos.names[video], videos.keys[video], int(videos.frames[video])
        return VideoSource(uri, name, key, blob, frames, claims)

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

    def substitute(self, active: ActiveGeneration, rows: list[int], why: str) -> ViewcacheError | None:
        """A video cannot give these clips: replace them by the task's policy, or say the error for the reader.

        The replacement of a clip depends on its place alone, not on when its damage was found (law 3).
        """
        with self._planning, self.group.lock if self.group is not None else nullcontext(), self._catalog.naming:
            plan = active.plan
            if self.spec.dataset.on_bad_video == OnBadVideo.RAISE or len(plan.videos) < 2:
                return BadVideo(f"{why}; repair or remove the file, or set on_bad_video: replace")
            videos, records = [], []
            for row in rows:
                replacement = self._replacement(active, row)
                if replacement is None:
                    return BadVideo(f"{why}; no other video could stand in for it")
                videos.append(replacement)
                epoch, position, sample = active.place(row)
                record = SubstitutionRow(
                    task_id=self.task_id,
                    epoch=epoch,
                    position=position,
                    sample=sample,
                    video_id=int(plan.videos.ids[plan.video[row]]),
                    policy="replace",
                    reason=why,
                    replacement_id=int(plan.videos.ids[replacement]),
                )
                records.append(record)
            plan = plan.substituted(np.array(rows), np.array(videos))
            changed, object_ids = np.array(rows), active.object_ids.copy()
            object_ids[changed], known = ids_of(self._catalog, plan.keys[changed])
            self._catalog.record_objects(plan_objects(plan, changed, object_ids, known, self._cost))
            record_policies(self._catalog, active, records)
            with self._guard():
                active.replace(plan, object_ids)
            return None

    def correct(self, video_id: int) -> None:
        """Plan the clips of a video again, in each generation that anybody has: its header did not tell the truth.

        Nobody has seen a clip of it: its packets are looked at before the first one is made.
        """
        span = self.spec.sampling.span
        with self._planning, self.group.lock if self.group is not None else nullcontext(), self._catalog.naming:
            for active in list(self._generations.values()):
                plan = active.plan
                rows = np.flatnonzero(plan.video == plan.videos.row_of.get(video_id, -1))
                if not len(rows) or not self.dataset.is_usable(video_id, span):
                    continue  # who makes its clips finds that it cannot give them, which is the policy's case
                plan = plan.corrected(self.dataset.known_now(plan.videos, video_id), rows)
                object_ids = active.object_ids.copy()
                object_ids[rows], known = ids_of(self._catalog, plan.keys[rows])
                self._catalog.record_objects(plan_objects(plan, rows, object_ids, known, self._cost))
                with self._guard():
                    active.replace(plan, object_ids)

    def _replacement(self, active: ActiveGeneration, row: int) -> int | None:
        plan = active.plan
        epoch, position, sample = active.place(row)
        video_id = int(active.order.ids[row // active.samples])
        place = substitute_place(position, video_id, by_video=self._settings.together)
        tried = self._tried.setdefault((epoch, place, sample), set())
        tried |= {int(plan.video[row]), plan.videos.row_of.get(video_id, -1)}
        return stand_in_for(self.seed, self.spec.name, epoch, place, sample, len(plan.videos), tried)

    # Drawing with others -------------------------------------------------------------------------------------------

    def settle(self, epoch: int, positions: int) -> None:
        """Draw an epoch's order at least so far, together with the other tasks of the group."""
        if self.group is None:
            raise Broken(f"task {self.spec.name!r} draws with others but has no group")
        self.group.settle(self, epoch, positions)

    def reached(self, epoch: int, iteration: int) -> None:
        """A reader has had a batch: what follows is drawn in time."""
        active = self.generation(self.generation_of(epoch))
        self._at = epoch, min((iteration + 1) * active.batch, active.used)
        if self.group is not None:
            self.group.reached(self, *self._at)

    def group_epoch(self) -> int:
        """The epoch that the group is in."""
        return 0 if self.group is None else self.group.epoch(self)

    @property
    def seed(self) -> int:
        """Of the task's random numbers."""
        return self._settings.seed if self.spec.seed is None else self.spec.seed
