"""What changes of a dataset's files mean for one task: from which epoch new ones count, which batches show old ones."""

import logging
from collections.abc import Iterator

import numpy as np

from viewcache.catalog import Catalog
from viewcache.errors import BadInput, BadVideo
from viewcache.materializer.dataset.changes import DatasetChange, FileChange, Names
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.media.source import shown
from viewcache.materializer.planning.digests import computed_orders
from viewcache.materializer.spec import TaskSpec

__all__ = ["changes_for", "next_epoch", "tell"]

NAMED = 10
"""Videos, and batches, that a change names."""

_log = logging.getLogger("viewcache.dataset")


def changes_for(spec: TaskSpec, task_id: int, k: int, dataset: Dataset, catalog: Catalog) -> tuple[DatasetChange, ...]:
    """What happened to a task's files since their dataset was listed last; nothing is drawn for it.

    Args:
        spec: of the task.
        task_id: of the task.
        k: epochs of its generations.
        dataset: of the task.
        catalog: what we know.
    """
    return tuple(_changes(spec, task_id, k, dataset, catalog))


def _changes(spec: TaskSpec, task_id: int, k: int, dataset: Dataset, catalog: Catalog) -> Iterator[DatasetChange]:
    for change, names in dataset.files.changes:
        if change in (FileChange.ADDED, FileChange.RETURNED):
            drawn = {
                row["video_id"] for row in catalog.drawn_among(list(names)).to_pylist() if row["task_id"] == task_id
            }
            selected = set(dataset.files.ids[dataset.file_rows(dataset.base.tolist())].tolist())
            fresh = {
                video_id: name
                for video_id, name in names.items()
                if video_id in selected and (video_id not in drawn or change == FileChange.RETURNED)
            }
            if fresh:
                epoch = next_epoch(task_id, k, catalog)
                yield DatasetChange(change, len(fresh), _first(fresh), epoch if epoch < spec.epochs else None)
        else:
            views = _read_views(spec, task_id, names, catalog)
            yield DatasetChange(change, len(names), _first(names), None, len(views), tuple(views[:NAMED]))
    if spec.dataset.refuses(missing=False):
        yield from _refused(spec, task_id, k, dataset, catalog)


def _refused(spec: TaskSpec, task_id: int, k: int, dataset: Dataset, catalog: Catalog) -> Iterator[DatasetChange]:
    """What is known to be bad of what the next generation is drawn from, which is an error when it is.

    A task that has drawn nothing gets that error at once. One that has goes on: what it drew stays readable.
    """
    epoch = next_epoch(task_id, k, catalog)
    if not 0 < epoch < spec.epochs:
        return
    try:
        dataset.candidates(spec)
    except BadVideo as error:
        bad = dataset.base[~dataset.may_stand_in(dataset.base, 0)]
        yield DatasetChange(FileChange.BAD, len(set(dataset.file_rows(bad.tolist()))), (str(error),), epoch)
    except BadInput:  # nothing is left to draw from
        return


def _first(names: Names) -> tuple[str, ...]:
    return tuple(sorted(names.values())[:NAMED])


def next_epoch(task_id: int, k: int, catalog: Catalog) -> int:
    """The first epoch of the first generation that is not drawn, by the k epochs of generations."""
    recorded = catalog.load_generations(task_id)
    joined = next((row.group_epoch - row.first_epoch for row in recorded if row.group_epoch is not None), 0)
    epoch = max((max(0, (row.number + 1) * k - joined % k) for row in recorded), default=0)
    while catalog.is_drawn(task_id, epoch):  # drawn, and not planned yet
        epoch += k - joined % k if epoch == 0 else k
    return epoch


def _read_views(spec: TaskSpec, task_id: int, names: Names, catalog: Catalog) -> list[tuple[int, int]]:
    """Epoch and iteration of the batches before the furthest reader that show some videos."""
    furthest = max(((row.epoch, row.iteration) for row in catalog.load_progress(task_id)), default=(0, 0))
    size, found = spec.sampling.videos_per_batch, set()
    rows = catalog.places_of_videos(task_id, list(names)).to_pylist()
    orders = computed_orders(catalog, spec.name, task_id, range(furthest[0] + 1))
    places = [
        (row["epoch"], row["position"], row["videos"] or len(orders.get(row["epoch"], ())))
        for row in rows
        if row["epoch"] <= furthest[0]
    ]
    for epoch, order in orders.items():
        at = np.flatnonzero(np.isin(order, list(names)))
        places += [(epoch, position, len(order)) for position in at.tolist()]
    for epoch, position, videos in places:
        view = epoch, position // size
        if view < furthest and not (spec.drop_last and view[1] >= videos // size):
            found.add(view)
    return sorted(found)


def tell(spec: TaskSpec, changes: tuple[DatasetChange, ...]) -> None:
    """Log what happened to a task's files, in one line."""
    if changes:
        quiet = FileChange.ADDED, FileChange.RETURNED
        touched = any(each.change not in quiet for each in changes)
        level = logging.WARNING if touched else logging.INFO
        what = "; ".join(map(str, changes))
        _log.log(level, "task %r, %s: %s", spec.name, shown(spec.dataset.uri), what, extra={"action": "files_changed"})
