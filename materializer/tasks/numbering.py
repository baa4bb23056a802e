"""Ids of the objects of a task's plans: asked of the catalog by content key, and claimed where it knows none."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import GenerationRow
from viewcache.materializer.freed_memory import give_back_memory
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.needs import FrameNeeds, frame_needs
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.rows import audio_sample, ids_of, plan_objects, plan_tables, twin_tables
from viewcache.materializer.tasks.drawn import DrawnGeneration

__all__ = ["Numbering"]


class Numbering:
    """Gives the objects of one task's plans their ids, and records those that are new. Thread-safe."""

    def __init__(self, catalog: Catalog, task_id: int) -> None:
        """Number for a task."""
        self._catalog = catalog
        self._task_id = task_id
        self._cost = CostModel()

    def begin(self, drawn: DrawnGeneration) -> None:
        """Record what clips of a generation depend on besides its draws, before anybody reads one of them."""
        first, last = drawn.epochs.start, drawn.epochs.stop - 1
        row = GenerationRow(self._task_id, drawn.number, first, last, group_epoch=first + drawn.joined, grid=drawn.grid)
        self._catalog.begin_generation(row)

    def some(self, plan: GenerationPlan, rows: NDArray[np.int64], object_ids: NDArray[np.int64]) -> None:
        """Put the ids of some clips' objects into ``object_ids``, those of all objects."""
        objects = plan.object_rows(rows)
        keys = plan.keys[rows] if plan.audio is None else np.concatenate([plan.keys[rows], plan.audio_keys[rows]])
        with self._catalog.naming:
            object_ids[objects], known = ids_of(self._catalog, keys)
            self._catalog.record_objects(plan_objects(plan, rows, object_ids, known, self._cost))

    def move(self, places: Sequence[tuple[int, int, int]], object_ids: NDArray[np.int64]) -> None:
        """Let recorded uses at some places, (epoch, position, sample), be of these objects.

        Args:
            places: (n) of clips.
            object_ids: (n,) of the clips, or (2n,) with those of their audio behind.
        """
        epochs, positions, samples = np.array(places, np.int64).T
        if len(object_ids) > len(places):
            epochs, positions = np.tile(epochs, 2), np.tile(positions, 2)
            samples = np.concatenate([samples, audio_sample(samples)])
        columns = {"epoch": epochs, "position": positions, "sample": samples, "object_id": object_ids}
        self._catalog.move_uses(pa.table({"task_id": [self._task_id] * len(epochs)} | columns))

    def generation(self, plan: GenerationPlan, index_of: Callable[[int], MediaIndex]) -> NDArray[np.int64]:
        """The ids of all objects, see `GenerationPlan.object_rows`; the catalog gets to know the plan, unless it does.

        Args:
            plan: of the generation.
            index_of: the packet index of a row of its videos.
        """
        used, recorded = plan.iteration < plan.iterations, self._recorded(plan)
        fresh = len(recorded) != int(used.sum())
        # Readers wait for names, of early batches too, so what takes long is done before.
        keys, frames = plan.object_keys, _frames(plan, index_of) if fresh else None
        give_back_memory()  # what planning took, before recording takes as much
        with self._catalog.naming:
            if frames is None:
                object_ids, _ = ids_of(self._catalog, keys)
                if not np.array_equal(recorded, object_ids[: len(plan)][used]):
                    frames = _frames(plan, index_of)
            if frames is not None:
                object_ids = self._record(plan, *frames)
                del frames
        give_back_memory()
        return object_ids

    def _record(self, plan: GenerationPlan, needs: FrameNeeds, of_frames: NDArray[np.void]) -> NDArray[np.int64]:
        """Let the catalog know a plan, and give the ids of all objects; all keys are looked up by one statement."""
        count = len(plan.object_keys)
        ids, known = ids_of(self._catalog, np.concatenate([plan.object_keys, of_frames]))
        object_ids = ids[:count]
        mine = object_ids, known[:count], ids[count:], known[count:]
        tables = plan_tables(plan, needs, of_frames, *mine, task_id=self._task_id, cost=self._cost)
        self._catalog.record_plan(tables)
        return object_ids

    def twin(self, plan: GenerationPlan, object_ids: NDArray[np.int64]) -> None:
        """Let the catalog know of a plan whose objects it has from another one, unless it does.

        Args:
            plan: of the generation.
            object_ids: of all objects.
        """
        if not np.array_equal(self._recorded(plan), object_ids[: len(plan)][plan.iteration < plan.iterations]):
            self._catalog.record_plan(twin_tables(plan, object_ids, task_id=self._task_id))

    def _recorded(self, plan: GenerationPlan) -> NDArray[np.int64]:
        """The clips of the uses that the catalog has of a generation, in reading order."""
        uses = self._catalog.load_use_ids(self._task_id, plan.first_epoch, plan.last_epoch)
        return np.asarray(uses["object_id"].to_numpy())


def _frames(plan: GenerationPlan, index_of: Callable[[int], MediaIndex]) -> tuple[FrameNeeds, NDArray[np.void]]:
    """The frames that a plan needs of each video, and their content keys."""
    needs = frame_needs(plan, index_of)
    return needs, needs.keys(plan.videos.keys)
