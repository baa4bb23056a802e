"""What was decided, as rows of the catalog."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe
from viewcache.materializer.planning.rows import ids_of
from viewcache.materializer.retention.chosen import Chosen
from viewcache.materializer.retention.intermediates import intermediate_rows
from viewcache.materializer.scheduling.generation import ActiveGeneration

__all__ = ["foretell", "named", "record"]


def named(catalog: Catalog, recipes: Sequence[tuple[str, int, Recipe]]) -> list[IntermediateObject]:
    """Objects by the keys of their videos, their catalog's numbers and their recipes; new ones are recorded."""
    if not recipes:
        return []
    keys = np.frombuffer(bytes.fromhex("".join(recipe.key for *_, recipe in recipes)), "V16")
    with catalog.naming:
        ids, known = ids_of(catalog, keys)
        fresh = {int(ids[k]): recipes[k] for k in np.flatnonzero(~known).tolist()}
        catalog.record_objects(intermediate_rows(fresh))
    found = zip(ids.tolist(), recipes, strict=True)
    return [IntermediateObject(object_id, key, recipe) for object_id, (key, _, recipe) in found]


def record(
    catalog: Catalog,
    chosen: Chosen,
    works: Sequence[ActiveGeneration],
    objects: Mapping[str, tuple[IntermediateObject, ...]],
    stale: Sequence[IntermediateObject],
    group_generation: int,
) -> None:
    """Let the catalog know what is kept, and which clips are made from what; ``stale`` intermediates may leave."""
    parents, children, ids, kept = [], [], [], []
    for work in works:
        assert work.keeping is not None
        ids.append(work.object_ids)
        kept.append(np.tile(work.keeping.clips, len(work.object_ids) // len(work.plan)))  # audio as its clip
        for video, of_video in objects.items():
            rows = work.rows_of_video(video)
            rows = rows[~work.keeping.clips[rows]]
            mine = np.unique(work.object_ids[rows])
            frames = work.plan.frames(rows) if len(of_video) > 1 else np.zeros((0, 1), np.int32)
            for each in of_video:
                if len(of_video) > 1:  # of a long video each has a part
                    mine = np.unique(work.object_ids[rows[each.has_some_of(frames)]])
                parents.append(np.full(len(mine), each.object_id))
                children.append(mine)
    unique, first = np.unique(np.concatenate(ids), return_index=True)
    intermediates = _ids(each for of_video in objects.values() for each in of_video)
    gone = _ids(stale)
    flags = np.concatenate(kept)[first], np.ones(len(intermediates), bool), np.zeros(len(gone), bool)
    keep = pa.table({"object_id": np.concatenate([unique, intermediates, gone]), "keep": np.concatenate(flags)})
    nothing = np.zeros(0, np.int64)
    # Images of one block may lie in one pack.
    made_from = np.unique([np.concatenate([nothing, *parents]), np.concatenate([nothing, *children])], axis=1)
    count = made_from.shape[1]
    edges = pa.table(
        {
            "parent_id": made_from[0],
            "child_id": made_from[1],
            "op": pa.array(["augment"] * count, pa.string()),
            "cost_s": np.zeros(count),
        }
    )
    catalog.record_keeping(keep, edges, gone.tolist())
    detail = f"generation {group_generation}: {chosen.describe()}"
    event = EventRow("prune", None, count=len(unique), bytes=chosen.choice.bytes, detail=detail)
    catalog.add_events([event])


def _ids(objects: Iterable[IntermediateObject]) -> NDArray[np.int64]:
    """The catalog's numbers of some; pictures of one pack have one."""
    return np.unique(np.array([each.object_id for each in objects], np.int64))


def foretell(catalog: Catalog, chosen: Chosen, works: Sequence[ActiveGeneration]) -> None:
    """Let the catalog know what an epoch of a generation of which nothing was read will cost."""
    costs = chosen.epoch_costs()
    if costs is not None:
        events = [EventRow("forecast", work.task_id, seconds=costs.now_s, detail=str(work.number)) for work in works]
        catalog.add_events(events)
