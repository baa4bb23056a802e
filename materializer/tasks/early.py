"""Batches that are read before their generation is planned, so that training need not wait for a large dataset.

An order needs the names of all videos, and a batch the headers of its own: such a batch is planned alone, and gives the
very clips that the plan of its generation will have there. Tasks that draw together draw before they plan, too.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow
from viewcache.errors import BadInput
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.texts import IdPlaces
from viewcache.materializer.planning.draws import clip_stand_ins, stand_ins, uncovered
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.plan_generation import plan_batch
from viewcache.materializer.planning.recipe import VideoSource
from viewcache.materializer.planning.weighted_order import occurrences
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.storage.irreplaceable import counted_on
from viewcache.materializer.tasks.batch_work import BatchWork
from viewcache.materializer.tasks.drawn import DrawnGeneration
from viewcache.materializer.tasks.missing import StandIns, filled, tell_of_missing
from viewcache.materializer.tasks.numbering import Numbering
from viewcache.materializer.tasks.replacing import with_items

__all__ = ["Early"]

KEEP_BATCHES = 64
"""Plans of batches that stay in memory though nobody uses them."""
LOOKED_AT = 128
"""Headers that are read at once in search of a video that can be decoded."""

PREFERRED = 4096
"""Files whose headers are read in the order in which a reader needs them, ahead of it. All others are read as they lie
in the catalog's table, where those that follow one another are recorded for a third of what others take."""


class EarlyTask(Protocol):
    """What is asked of the task."""

    spec: TaskSpec
    graph: AbstractGraph
    dataset: Dataset
    task_id: int
    budget_bytes: int
    """Of the local tier."""

    @property
    def seed(self) -> int:
        """Of its random numbers."""

    @property
    def stand_ins(self) -> StandIns:
        """See `Task.stand_ins`."""

    @property
    def draws_together(self) -> bool:
        """Whether its order depends on the paces of other tasks."""

    def planned(self, number: int) -> object:
        """A generation, if it is planned."""

    def generation_of(self, epoch: int) -> int:
        """The generation that an epoch belongs to."""

    def order_now(self, number: int) -> DrawnGeneration:
        """A generation's order as it stands, and what else it is planned from; what is new is recorded now."""

    def sources(self, plan: GenerationPlan, rows: Sequence[int]) -> Sequence[VideoSource]:
        """The videos of some rows as a worker gets them."""


class Early:
    """The early batches of one task. Thread-safe."""

    def __init__(self, task: EarlyTask, catalog: Catalog, numbering: Numbering) -> None:
        """Nothing is drawn yet."""
        self._task = task
        self._catalog = catalog
        self._numbering = numbering
        self.lock = threading.RLock()
        """Held while a batch is planned or replaced, so that each is planned by what is known, or replaced then."""
        self._drawing = threading.Lock()
        self._drawn: dict[int, DrawnGeneration] = {}
        """By number of the generation."""
        self._closed: set[int] = set()
        """Generations that are being planned, of which no order was known before."""
        self._batches: WeakValueDictionary[tuple[int, int], BatchWork] = WeakValueDictionary()
        """Every one that anybody still uses, by epoch and iteration."""
        self._recent: deque[BatchWork] = deque(maxlen=KEEP_BATCHES)
        self._trial: GenerationPlan | None = None
        self._preferred: tuple[int, int] | None = None
        """Epoch and position from which `PREFERRED` headers are read first."""

    def begin(self, number: int) -> bool:
        """Let a generation's order be known before it is planned; False if that is being done, and it was not."""
        with self._drawing:
            return number not in self._closed and bool(self._begun(number))

    def close(self, number: int) -> bool:
        """A generation is about to be planned; whether its order was known before, and may have been drawn further."""
        with self._drawing:
            if number not in self._drawn:
                self._closed.add(number)
            return number in self._drawn

    def begun(self, number: int) -> DrawnGeneration | None:
        """A generation whose order is known, and that is not planned."""
        return self._drawn.get(number)

    def live(self) -> list[BatchWork]:
        """The batches that somebody uses, or that were planned a moment ago; the lock is held."""
        return list(self._batches.values())

    def note(self, chosen: Sequence[SubstitutionRow]) -> None:
        """Other videos stand in for some clips from now on; that is on record."""
        with self._drawing:
            for drawn in self._drawn.values():
                drawn.known.extend(each for each in chosen if each.epoch in drawn.epochs)

    def forget(self, number: int) -> None:
        """A generation is planned, and its batches are read from there; or it cannot be.

        Then its order stays: others draw on it, and may have drawn what is not recorded.
        """
        with self._drawing:
            if self._task.planned(number):
                self._drawn.pop(number, None)
            self._closed.discard(number)
        self._recent.clear()

    def candidates(self) -> NDArray[np.int64]:
        """Ids of the items that an epoch has, by name: drawn ones if the first epoch is drawn; draws nothing.

        Where they come by weight, as many as it has positions.

        Raises:
            BadVideo: one is known to be bad, none is drawn, and the policy is ``raise``.
            BadInput: there is nothing to draw from.
        """
        task = self._task
        if not self._is_drawn():
            return task.dataset.epoch_like(task.dataset.candidates(task.spec))
        drawn = self.order(0).ids(0)
        named = task.dataset.by_name(drawn)
        return named if task.spec.dataset.weighted is None else np.resize(named, len(drawn))

    def _is_drawn(self) -> bool:
        return self._catalog.is_drawn(self._task.task_id, 0)

    def trial(self) -> GenerationPlan:
        """What a batch looks like, neither drawn nor recorded; read from the first videos that can be decoded.

        Raises:
            BadVideo: a video that is drawn or may be is known to be bad, and the policy is ``raise``.
            BadInput: there is nothing to draw from, or clips would differ in shape.
        """
        if self._trial is None:
            task = self._task
            order = self.candidates()
            if self._is_drawn():
                self._refuse_missing(self.order(0))
            named = Order(order[None], np.zeros(1, np.int64))
            of_first = DrawnGeneration(0, range(1), named, task.spec.sampling.pitch, 0, 0)
            self._trial = self._plan(0, 0, of_first, self._readable(order))
        return self._trial

    def _refuse_missing(self, drawn: DrawnGeneration) -> None:
        """Say at once what is known to be bad or gone of what was drawn, where the policy is to raise it."""
        task = self._task
        if task.dataset.spec.refuses(missing=True) or task.dataset.spec.refuses(missing=False):
            stood_in, base = stand_ins(drawn.known), task.dataset.base
            good = IdPlaces(base[task.dataset.may_stand_in(base, task.spec.sampling.span)])
            if not stood_in and all((good.find(drawn.ids(epoch)) >= 0).all() for epoch in drawn.epochs):
                return  # all that was drawn is there and good; what follows looks at each
            ids = np.stack([drawn.ids(epoch) for epoch in drawn.epochs])
            task.dataset.resolve_draws(
                task.spec, task.seed, drawn.first_epoch, ids, stood_in, by_video=task.draws_together
            )

    def _readable(self, ids: NDArray[np.int64]) -> list[int]:
        """The first of some videos that can be decoded: so many as a batch has, of which one is known."""
        task = self._task
        dataset, sampling = task.dataset, task.spec.sampling
        for at in range(0, len(ids), LOOKED_AT):
            part = ids[at : at + LOOKED_AT].tolist()
            dataset.files.headers.look(dataset.file_rows(part))
            found = [each for each in part if dataset.gives(each, sampling.span)]
            if found:
                return found[: sampling.videos_per_batch]
        task.dataset.candidates(task.spec)  # says what is wrong with them
        raise BadInput(f"task {task.spec.name!r}: none of {len(ids)} drawn {task.dataset.spec.media}s is left to read")

    # One batch -----------------------------------------------------------------------------------------------------

    def batch(self, epoch: int, iteration: int) -> BatchWork:
        """A batch that exists, whose order is settled, planned alone.

        Raises:
            BadVideo: a video is bad or gone and the policy is ``raise``.
            BadInput: its clips differ in shape from one another, or from those of other batches.
        """
        known = self._batches.get((epoch, iteration))
        if known is not None:
            return known
        task, dataset = self._task, self._task.dataset
        spec, seed = task.spec, task.seed
        drawn, samples = self.order(task.generation_of(epoch)), spec.sampling.samples_per_video
        first = iteration * spec.sampling.videos_per_batch
        ahead, together = drawn.ids(epoch, first), task.draws_together
        mine = ahead[: spec.sampling.videos_per_batch].tolist()
        self._prefer(epoch, first, ahead)
        noted = [each for each in drawn.known if each.epoch == epoch and 0 <= each.position - first < len(mine)]
        ids, records = dataset.resolve_batch(spec, seed, epoch, first, mine, stand_ins(noted), by_video=together)
        single, more = clip_stand_ins(
            noted,
            lambda clip: mine[clip[1] - first],
            dataset,
            spec,
            seed,
            task.task_id,
            dataset.items.ids,
            by_video=together,
        )
        trial = self.trial()
        with self.lock:
            known = self._batches.get((epoch, iteration))
            if known is not None:
                return known
            plan = self._plan(epoch, iteration, drawn, ids)
            if single:
                rows = [(position - first) * samples + sample for _, position, sample in single]
                plan = with_items(plan, rows, list(single.values()), dataset)
            gone, filling = filled(
                plan,
                lambda row: mine[row // samples],
                dataset,
                self._catalog,
                task.task_id,
                seed,
                counted_on(task.budget_bytes),
                by_video=together,
            )
            if gone:
                plan = with_items(plan, list(gone), list(gone.values()), dataset)
            self._check_shape(plan, trial)
            object_ids = np.zeros(len(plan.object_rows(np.arange(len(plan)))), np.int64)
            self._numbering.some(plan, np.arange(len(plan)), object_ids)
            fresh = [*(self._of_task(each) for each in uncovered(records, single, samples)), *more, *filling]
            where, positions = (self._catalog, task.task_id, spec.name), drawn.order.positions
            tell_of_missing(*where, fresh, dataset, task.stand_ins, positions=positions)
            self._catalog.add_substitutions(fresh)
            drawn.known.extend(fresh)
            work = BatchWork(plan, mine, task.task_id, object_ids, task.sources)
            self._batches[epoch, iteration] = work
            self._recent.append(work)
            return work

    def order(self, number: int) -> DrawnGeneration:
        """A generation's order, drawn as far as it is, and recorded now if it is new."""
        with self._drawing:
            return self._begun(number)

    def _begun(self, number: int) -> DrawnGeneration:
        task, drawn = self._task, self._drawn.get(number)
        if drawn is None:
            drawn = task.order_now(number)
            self._numbering.begin(drawn)
            if not task.planned(number):  # that is drawn on in the plan, and this would fall behind
                self._drawn[number] = drawn
        return drawn

    def _prefer(self, epoch: int, first: int, ahead: NDArray[np.int64]) -> None:
        """Let the headers of the next videos be read in the order in which a reader needs them, from where it is."""
        dataset, before = self._task.dataset, self._preferred
        if not len(dataset.files.headers):
            return
        if before is None or before[0] != epoch or not before[1] <= first < before[1] + PREFERRED // 2:
            self._preferred = epoch, first
            dataset.files.headers.prefer(dict.fromkeys(dataset.file_rows(ahead[:PREFERRED].tolist())))

    def _plan(self, epoch: int, iteration: int, drawn: DrawnGeneration, ids: Sequence[int]) -> GenerationPlan:
        task = self._task
        items, rows = np.unique(np.array(ids, np.int64), return_inverse=True)
        return plan_batch(
            task.spec,
            task.graph,
            task.dataset.items_of(items.tolist()),
            rows.reshape(-1),
            seed=task.seed,
            number=drawn.number,
            epochs=drawn.epochs,
            positions=drawn.order.positions,
            epoch=epoch,
            iteration=iteration,
            grid=drawn.grid,
            ticks_of=task.dataset.ticks,
            joined=drawn.joined,
            group_generation=drawn.group_generation,
            before=self._before(drawn, epoch, iteration * task.spec.sampling.videos_per_batch, len(ids)),
        )

    def _before(self, drawn: DrawnGeneration, epoch: int, first: int, count: int) -> NDArray[np.int64] | None:
        """How often the videos of some positions came before in their epoch; None where each comes once."""
        if self._task.spec.dataset.weighted is None:
            return None
        return occurrences(drawn.ids(epoch))[first : first + count]

    def _check_shape(self, plan: GenerationPlan, trial: GenerationPlan) -> None:
        if plan.shape != trial.shape:
            name, other = plan.items.named(int(plan.item[0])), trial.items.named(int(trial.item[0]))
            spec = self._task.spec
            raise BadInput(
                f"task {spec.name!r}: all {spec.dataset.media.clip}s must have one size, but {name!r} gives "
                f"{plan.shape} and {other!r} gives {trial.shape}; end with a crop, or a resize to a shape"
            )

    def _of_task(self, row: SubstitutionRow) -> SubstitutionRow:
        return replace(row, task_id=self._task.task_id)
