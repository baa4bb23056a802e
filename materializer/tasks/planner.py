"""Plans the generations of one task, from its order and what is on record of it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.far import far_stamp
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.planning.draws import short_uses, stand_ins, with_substitutes
from viewcache.materializer.planning.graph import AbstractGraph
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.plan_generation import plan_generation
from viewcache.materializer.planning.recipe import VideoSource
from viewcache.materializer.planning.twins import rows_like
from viewcache.materializer.planning.weighted_order import occurrences
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.storage.irreplaceable import counted_on
from viewcache.materializer.tasks.drawn import DrawnGeneration
from viewcache.materializer.tasks.missing import StandIns, filled, tell_of_missing
from viewcache.materializer.tasks.numbering import Numbering
from viewcache.materializer.tasks.policies import record_policies
from viewcache.materializer.tasks.replacing import with_items

__all__ = ["Planner", "Twin"]

Twin = tuple[GenerationPlan, NDArray[np.int64]]
"""The plan of another task of the same definition, and the ids of its rows' objects."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans for one task. Thread-safe as long as one generation is planned at a time."""

    spec: TaskSpec
    graph: AbstractGraph
    catalog: Catalog
    dataset: Dataset
    numbering: Numbering
    task_id: int
    seed: int
    budget_bytes: int
    """Of the local tier."""
    sources: Callable[[GenerationPlan, Sequence[int]], Sequence[VideoSource]]
    """Gives the videos of rows to workers."""
    index_of: Callable[[GenerationPlan], Callable[[int], MediaIndex]]
    """Gives the packet index of a row of a plan's videos."""
    told: StandIns
    """Learns for which videos others stand in since they are gone."""

    def plan(self, drawn: DrawnGeneration, twins: Iterable[Twin], *, together: bool) -> ActiveGeneration:
        """Plan a generation and record it.

        Args:
            drawn: its order as it stands.
            twins: plans of the same epochs of the group, of tasks of the same definition.
            together: positions may still change.

        Raises:
            BadVideo: a drawn video is bad or gone and the policy is ``raise``.
            BadInput: the task selects no video, or its clips would differ in shape.
        """
        spec, epochs, known = self.spec, drawn.epochs, drawn.known
        ids, settled = drawn.order.ids.reshape(len(epochs), -1), drawn.order.settled
        of_clips = [each.replacement_id for each in known if each.sample >= 0 and each.replacement_id is not None]
        items, draws, used = self.dataset.resolve_draws(
            spec, self.seed, epochs.start, ids, stand_ins(known), of_clips, by_video=together
        )
        used = [replace(row, task_id=self.task_id) for row in used]
        found = self._like(twins, items, draws, drawn) if together and not of_clips else None
        if found is not None:
            plan, object_ids = found
            order = Order(ids, settled)
        else:
            plan = plan_generation(
                spec,
                self.graph,
                items,
                draws,
                seed=self.seed,
                number=drawn.number,
                first_epoch=epochs.start,
                grid=drawn.grid,
                ticks_of=self.dataset.ticks,
                joined=drawn.joined,
                group_generation=drawn.group_generation,
                spare=together,
                before=None if spec.dataset.weighted is None else occurrences(ids),
            )
            positions = len(plan) // len(epochs) // spec.sampling.samples_per_video
            order = Order(ids[:, :positions], np.minimum(settled, positions))
            plan, used = with_substitutes(
                plan, known, used, order, self.dataset, self.seed, self.task_id, by_video=together
            )
            plan, more = self._without_missing(plan, order, together=together)
            used += more
            object_ids = self.numbering.generation(plan, self.index_of(plan))
        where = self.catalog, self.task_id, spec.name
        tell_of_missing(*where, used, self.dataset, self.told, positions=order.positions)
        active = ActiveGeneration(plan, order, self.task_id, object_ids, self.sources, self._far)
        record_policies(self.catalog, active, [*used, *short_uses(plan, self.task_id)], known)
        return active

    def _far(self, plan: GenerationPlan, video: int) -> Stamp | None:
        return far_stamp(self.dataset, int(plan.videos.ids[video]))

    def _without_missing(
        self, plan: GenerationPlan, order: Order, *, together: bool
    ) -> tuple[GenerationPlan, list[SubstitutionRow]]:
        """The plan with others in place of videos that are gone and whose clips are not stored."""
        samples = self.spec.sampling.samples_per_video
        found, records = filled(
            plan,
            lambda row: int(order.ids[row // samples]),
            self.dataset,
            self.catalog,
            self.task_id,
            self.seed,
            counted_on(self.budget_bytes),
            by_video=together,
        )
        return (with_items(plan, list(found), list(found.values()), self.dataset) if found else plan), records

    def _like(
        self, twins: Iterable[Twin], items: Items, draws: NDArray[np.int64], drawn: DrawnGeneration
    ) -> Twin | None:
        """The first of some plans that has all clips, in this task's order."""
        for plan, object_ids in twins:
            rows = rows_like(plan, items, draws, drawn.first_epoch + drawn.joined)
            if rows is not None and plan.context.grid == drawn.grid:
                mine = plan.reordered(self.spec, items, rows, drawn.epochs, drawn.number, drawn.joined)
                ids = object_ids[plan.object_rows(rows)]
                self.numbering.twin(mine, ids)
                return mine, ids
        return None
