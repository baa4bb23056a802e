"""One task of an open cache: its videos, its draws and its generations.

A generation is planned when it is first needed, from recorded draws where there are any; the catalog gets the plan as a
record, and the plan in memory is computed again from the draws at every start (it is a function of them).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow
from viewcache.errors import BadVideo, ViewcacheError, ViewNotFound
from viewcache.materializer.dataset import Dataset
from viewcache.materializer.generation import ActiveGeneration
from viewcache.materializer.graph_check import AbstractGraph
from viewcache.materializer.order import draw_epoch, draw_substitute
from viewcache.materializer.plan import GenerationPlan, plan_generation
from viewcache.materializer.sampling import clip_span
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.tables import (
    CostModel,
    Summary,
    frames_keys,
    plan_objects,
    plan_tables,
    summarize,
    video_needs,
)
from viewcache.materializer.video import VideoIndex

__all__ = ["Task", "TaskSettings"]

KEEP_GENERATIONS = 4
"""Plans that stay in memory; an older one is computed again when it is read."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What a task needs of the cache's settings."""

    seed: int
    epochs_per_generation: int
    budget_bytes: int


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
    ) -> None:
        """Take what the session prepared; the engine is attached when one is needed."""
        self.spec = spec
        self.graph = graph
        self.task_id = task_id
        self.dataset = dataset
        self._settings = settings
        self._catalog = catalog
        self._planning = threading.RLock()
        self._generations: dict[int, ActiveGeneration] = {}
        self._grid = spec.sampling.frame_stride
        self._cost = CostModel()
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
        return epoch // self._settings.epochs_per_generation

    def iterations(self, epoch: int) -> int:
        """Batches in an epoch; forces its draw.

        Raises:
            ViewNotFound: the task has no such epoch.
        """
        return self.generation(self.generation_of(epoch)).plan.iterations

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
                active = self._generations[number] = self._plan(number)
                while len(self._generations) > KEEP_GENERATIONS:
                    del self._generations[next(iter(self._generations))]
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
        return _batch_bound(plan)

    def _trial(self) -> GenerationPlan:
        """One epoch in the order of names: what a plan would look like, neither drawn nor recorded."""
        if self._catalog.load_draws(self.task_id, 0, 0).num_rows:
            return self.generation(0).plan
        order = self.dataset.candidates(self.spec)[None]
        videos, draws, _ = self.dataset.resolve_draws(self.spec, self.seed, 0, order, {})
        return plan_generation(
            self.spec, self.graph, videos, draws, seed=self.seed, number=0, first_epoch=0, grid=self._grid
        )

    def last_generation(self) -> int:
        """The number of the task's last generation."""
        return self.generation_of(self.spec.epochs - 1)

    def _plan(self, number: int) -> ActiveGeneration:
        k = self._settings.epochs_per_generation
        first = number * k
        epochs = range(first, min(first + k, self.spec.epochs))
        order = self._order(epochs)
        known = self._substitutions(epochs)
        stand_ins = {(each.epoch, each.position): each.replacement_id for each in known if each.sample < 0}
        videos, draws, used = self.dataset.resolve_draws(self.spec, self.seed, epochs.start, order, stand_ins)
        plan = plan_generation(
            self.spec, self.graph, videos, draws, seed=self.seed, number=number, first_epoch=first, grid=self._grid
        )
        active = self._record(self._with_substitutes(plan, known))
        recorded = {_use(each) for each in known}
        now = [*(replace(row, task_id=self.task_id) for row in used), *self._short_uses(plan)]
        self._catalog.add_substitutions([row for row in now if _use(row) not in recorded])
        return active

    def _order(self, epochs: range) -> NDArray[np.int64]:
        """(epochs, videos) ids in drawn order; what is not drawn yet is drawn and recorded now."""
        recorded = self._catalog.load_draws(self.task_id, epochs.start, epochs.stop - 1)
        done = len(np.unique(recorded["epoch"].to_numpy()))
        drawn: NDArray[np.int64] = recorded["video_id"].to_numpy()
        known = list(drawn.reshape(done, -1)) if done else []
        if done == len(epochs):
            return np.stack(known)
        # A generation has one set of videos: epochs that are added to it later draw from those that it began with.
        candidates = self.dataset.by_name(known[0]) if done else self.dataset.candidates(self.spec)
        seed, name = self.seed, self.spec.name
        fresh = [candidates[draw_epoch(seed, name, epoch, len(candidates))] for epoch in epochs[done:]]
        order = np.stack([*known, *fresh])
        epoch, position = (axis.reshape(-1).astype(np.int32) for axis in np.indices(order.shape))
        self._catalog.record_draws(
            pa.table(
                {
                    "task_id": np.full(order.size, self.task_id),
                    "epoch": epoch + np.int32(epochs.start),
                    "position": position,
                    "video_id": order.reshape(-1),
                }
            )
        )
        return order

    def _substitutions(self, epochs: range) -> list[SubstitutionRow]:
        """What is recorded for some epochs, oldest first: a later one replaces an earlier."""
        rows = self._catalog.query("read_substitutions", task_id=self.task_id).to_pylist()
        return sorted((SubstitutionRow(**row) for row in rows if row["epoch"] in epochs), key=lambda row: row.at_s)

    def _with_substitutes(self, plan: GenerationPlan, known: list[SubstitutionRow]) -> GenerationPlan:
        """The plan with the clips that earlier runs had to replace replaced again."""
        row_of = plan.videos.row_of
        again = [each for each in known if each.sample >= 0 and each.replacement_id in row_of]
        rows = [plan.row(each.epoch, each.position, each.sample) for each in again]
        videos = [row_of[each.replacement_id] for each in again if each.replacement_id is not None]
        return plan.substituted(np.array(rows), np.array(videos)) if rows else plan

    def _short_uses(self, plan: GenerationPlan) -> list[SubstitutionRow]:
        """A row for each time a short video was clamped or looped."""
        sampling = self.spec.sampling
        span = clip_span(sampling.frames_per_video, sampling.frame_stride)
        short = np.flatnonzero((plan.videos.frames[plan.video] < span) & (plan.sample == 0))
        return [
            SubstitutionRow(
                task_id=self.task_id,
                epoch=int(plan.epoch[row]),
                position=int(plan.position[row]),
                sample=-1,
                video_id=int(plan.videos.ids[plan.video[row]]),
                policy=self.spec.dataset.on_short_video,
                reason=f"{plan.videos.frames[plan.video[row]]} frames, a clip spans {span}",
            )
            for row in short.tolist()
        ]

    def _record(self, plan: GenerationPlan) -> ActiveGeneration:
        """Give the plan's objects their ids and let the catalog know them, unless it does."""
        object_ids, known = self._object_ids(plan.keys)
        recorded = self._catalog.load_use_ids(self.task_id, plan.first_epoch, plan.last_epoch)["object_id"].to_numpy()
        if not np.array_equal(recorded, object_ids):
            needs = video_needs(plan, self.index_of(plan))
            keys = np.frombuffer(bytes.fromhex("".join(frames_keys(plan, needs))), "V16")
            frames_ids, frames_known = self._object_ids(keys)
            kept, cost = self.kept(plan), self._cost
            tables = plan_tables(
                plan,
                needs,
                object_ids,
                known,
                frames_ids,
                frames_known,
                task_id=self.task_id,
                kept=kept,
                cost=cost,
            )
            self._catalog.record_plan(tables)
        return ActiveGeneration(plan, self.task_id, object_ids, self.dataset.index_blob)

    def _object_ids(self, keys: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Each key's object id, and whether the catalog knew the object."""
        unique, inverse = np.unique(keys, return_inverse=True)
        text = unique.tobytes().hex()
        found = self._catalog.objects_by_key([text[k : k + 32] for k in range(0, len(text), 32)])
        ids = np.full(len(unique), -1, np.int64)
        if found.num_rows:
            there = np.frombuffer(bytes.fromhex("".join(found["key"].to_pylist())), "V16")
            ids[np.searchsorted(unique, there)] = found["object_id"].to_numpy()
        fresh = np.flatnonzero(ids < 0)
        if len(fresh):
            ids[fresh] = self._catalog.next_object_id(len(fresh)) + np.arange(len(fresh))
        known = np.ones(len(unique), bool)
        known[fresh] = False
        return ids[inverse.reshape(-1)], known[inverse.reshape(-1)]

    def kept(self, plan: GenerationPlan) -> int:
        """How many clips, soonest first, are kept ahead of reading: leaves until full."""
        reserve = self.demand_reserve(_batch_bound(plan)[0])
        return int((self._settings.budget_bytes - reserve) // plan.bound)

    def demand_reserve(self, batch_bytes: int) -> int:
        """Bytes of the budget that making ahead leaves free, so that a reader need not wait for an eviction."""
        return min(batch_bytes, self._settings.budget_bytes // 4)

    def summary(self, number: int) -> Summary:
        """A generation in numbers, before anything runs."""
        plan = self.generation(number).plan
        index_of = self.index_of(plan)
        return summarize(plan, video_needs(plan, index_of), index_of, self.kept(plan), self._cost)

    def index_of(self, plan: GenerationPlan) -> Callable[[int], VideoIndex]:
        """The packet index of a row of the plan's videos."""
        return lambda row: self.dataset.index(int(plan.videos.ids[row]))

    def substitute(self, active: ActiveGeneration, rows: list[int], why: str) -> ViewcacheError | None:
        """A video cannot give these clips: replace them by the task's policy, or say the error for the reader.

        The replacement of a clip depends on its place alone, not on when its damage was found (law 3).
        """
        with self._planning:
            plan = active.plan
            if self.spec.dataset.on_bad_video == "raise" or len(plan.videos) < 2:
                return BadVideo(f"{why}; repair or remove the file, or set on_bad_video: replace")
            videos, records = [], []
            for row in rows:
                replacement = self._replacement(plan, row)
                if replacement is None:
                    return BadVideo(f"{why}; no other video could stand in for it")
                videos.append(replacement)
                records.append(
                    SubstitutionRow(
                        task_id=self.task_id,
                        epoch=int(plan.epoch[row]),
                        position=int(plan.position[row]),
                        sample=int(plan.sample[row]),
                        video_id=int(plan.videos.ids[plan.video[row]]),
                        policy="replace",
                        reason=why,
                        replacement_id=int(plan.videos.ids[replacement]),
                    )
                )
            plan = plan.substituted(np.array(rows), np.array(videos))
            object_ids, known = self._object_ids(plan.keys)
            self._catalog.record_objects(plan_objects(plan, object_ids, known, self._cost))
            self._catalog.add_substitutions(records)
            active.replace(plan, object_ids)
            return None

    def _replacement(self, plan: GenerationPlan, row: int) -> int | None:
        place = (int(plan.epoch[row]), int(plan.position[row]), int(plan.sample[row]))
        tried = self._tried.setdefault(place, {int(plan.video[row])})
        for attempt in range(len(plan.videos)):
            video = draw_substitute(self.seed, self.spec.name, *place, attempt, len(plan.videos))
            if video not in tried:
                tried.add(video)
                return video
        return None

    @property
    def seed(self) -> int:
        """Of the task's random numbers."""
        return self._settings.seed if self.spec.seed is None else self.spec.seed


def _use(row: SubstitutionRow) -> tuple[object, ...]:
    """Which use of a policy a row is of."""
    return row.epoch, row.position, row.sample, row.video_id, row.policy, row.replacement_id


def _batch_bound(plan: GenerationPlan) -> tuple[int, int]:
    """Most bytes that a batch of the plan takes, and its clips."""
    clips = len(plan.rows(plan.first_epoch, 0))
    return clips * plan.bound, clips
