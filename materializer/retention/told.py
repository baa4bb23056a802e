"""Telling the catalog what is kept of each generation, and only what it has not been told yet.

It is decided again after each epoch, mostly with the same result, and to record it takes as long as to make two clips
of kept pictures.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow
from viewcache.materializer.planning.recipe import IntermediateObject
from viewcache.materializer.retention.chosen import Chosen
from viewcache.materializer.scheduling.generation import ActiveGeneration

__all__ = ["Told", "foretell", "kept_tables"]

NOTHING = -1
"""Stands for an object where there is none."""


class Told:
    """What the catalog was told of each generation of the group. Not thread-safe: who decides has a lock."""

    def __init__(self, catalog: Catalog) -> None:
        """Nothing was told yet."""
        self._catalog = catalog
        self._last: dict[int, tuple[pa.Table, pa.Table]] = {}
        """Generation of the group → what is kept of it, and its edges."""
        self._overruled: set[int] = set()
        """Generations behind which another one was told something else of the same objects: they say it again."""
        self.given_up = 0
        """How often it was told that something is not kept any more."""

    def keep(
        self,
        group_generation: int,
        chosen: Chosen,
        works: Sequence[ActiveGeneration],
        objects: Mapping[str, Sequence[IntermediateObject]],
        stale: Sequence[IntermediateObject],
    ) -> None:
        """Say what was chosen, and which clips are made from what.

        Args:
            group_generation: the group's generation.
            chosen: what was chosen.
            works: the generations of tasks, each with what is kept of it.
            objects: the intermediates that are kept, by content key of the video.
            stale: those that were kept before, and may leave.
        """
        keep, edges = kept_tables(works, objects, stale)
        last = self._last.get(group_generation)
        is_new = bool(stale) or last is None or not (last[0].equals(keep) and last[1].equals(edges))
        if is_new or group_generation in self._overruled:
            self.forget(group_generation)
            if is_new:  # what was given up takes its edges with it, whoever told them
                self._overruled.update(n for n, (other, _) in self._last.items() if stale or _contradict(keep, other))
            self._catalog.record_keeping(keep, edges, [each.object_id for each in stale])
            self._last[group_generation] = keep, edges
            self.given_up += bool(stale)
        detail = f"generation {group_generation}: {chosen.describe()}"
        event = EventRow("prune", None, count=keep.num_rows, bytes=chosen.choice.bytes, detail=detail)
        self._catalog.add_events([event])

    def keep_all(self, group_generation: int, work: ActiveGeneration) -> None:
        """Say that every clip of a task's generation is kept."""
        self.forget(group_generation)
        self._overruled.update(self._last)
        self._catalog.keep_all(work.task_id, work.plan.first_epoch, work.plan.last_epoch)

    def forget(self, group_generation: int) -> None:
        """A generation is over."""
        self._last.pop(group_generation, None)
        self._overruled.discard(group_generation)


def _contradict(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables of ``schemas.KEEP`` differ in an object that both have."""
    mine, theirs = (table["object_id"].to_numpy() for table in (one, other))
    _, here, there = np.intersect1d(mine, theirs, return_indices=True)
    kept, others = (table["keep"].to_numpy(zero_copy_only=False) for table in (one, other))
    return bool((kept[here] != others[there]).any())


def kept_tables(
    works: Sequence[ActiveGeneration],
    objects: Mapping[str, Sequence[IntermediateObject]],
    stale: Sequence[IntermediateObject],
) -> tuple[pa.Table, pa.Table]:
    """What is kept and its edges, ``schemas.KEEP`` and ``schemas.EDGE``; arguments as for `Told.keep`."""
    parents, children, ids, kept = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [], []
    alone = {video: mine[0].object_id for video, mine in objects.items() if len(mine) == 1}
    several = {video: mine for video, mine in objects.items() if len(mine) > 1}
    for work in works:
        assert work.keeping is not None
        ids.append(work.object_ids)
        kept.append(np.tile(work.keeping.clips, len(work.object_ids) // len(work.plan)))  # audio as its clip
        video_of = work.plan.video
        made_from = np.full(len(work.plan.videos) + 1, NOTHING, np.int64)
        made_from[work.video_numbers([*alone])] = [*alone.values()]
        made_from[-1] = NOTHING  # which is where the videos of other tasks are
        rows = np.flatnonzero(~work.keeping.clips & (made_from[video_of] != NOTHING))
        parents.append(made_from[video_of[rows]])
        children.append(work.object_ids[rows])
        for video, of_video in several.items():  # of a long one each has a part
            rows = work.rows_of_video(video)
            rows = rows[~work.keeping.clips[rows]]
            frames = work.plan.frames(rows)
            for each in of_video:
                mine = work.object_ids[rows[each.has_some_of(frames)]]
                parents.append(np.full(len(mine), each.object_id))
                children.append(mine)
    unique, first = np.unique(np.concatenate(ids), return_index=True)
    intermediates = _ids(each for of_video in objects.values() for each in of_video)
    gone = _ids(stale)
    flags = np.concatenate(kept)[first], np.ones(len(intermediates), bool), np.zeros(len(gone), bool)
    keep = pa.table({"object_id": np.concatenate([unique, intermediates, gone]), "keep": np.concatenate(flags)})
    parent, child = _each_once(np.concatenate(parents), np.concatenate(children))
    edges = pa.table(
        {
            "parent_id": parent,
            "child_id": child,
            "op": pa.array(["augment"] * len(parent), pa.string()),
            "cost_s": np.zeros(len(parent)),
        }
    )
    return keep, edges


def _each_once(one: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of numbers, sorted, each once: images of one block may lie in one pack."""
    order = np.lexsort((other, one))
    one, other = one[order], other[order]
    differs = np.ones(len(one), np.bool_)
    differs[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    return one[differs], other[differs]


def _ids(objects: Iterable[IntermediateObject]) -> NDArray[np.int64]:
    """The catalog's numbers of some; pictures of one pack have one."""
    return np.unique(np.array([each.object_id for each in objects], np.int64))


def foretell(catalog: Catalog, chosen: Chosen, works: Sequence[ActiveGeneration]) -> None:
    """Let the catalog know what an epoch of a generation of which nothing was read will cost."""
    costs = chosen.epoch_costs()
    if costs is not None:
        events = [EventRow("forecast", work.task_id, seconds=costs.now_s, detail=str(work.number)) for work in works]
        catalog.add_events(events)
