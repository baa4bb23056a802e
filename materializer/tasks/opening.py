"""Opening tasks: scanning their datasets, registering them in the catalog, and sharing the videos in common."""

import logging
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from hashlib import blake2b

from viewcache.catalog import Catalog
from viewcache.catalog.records import TaskRow
from viewcache.catalog.replay import REBUILT, UNPLANNED
from viewcache.errors import BadInput, ViewcacheError
from viewcache.failpoints import failpoint
from viewcache.materializer.choices import OnBadVideo, WorkerKind
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.growing import Growing
from viewcache.materializer.dataset.listing import Progress, list_files
from viewcache.materializer.dataset.listing_spec import files_of, needs_headers, policies_among
from viewcache.materializer.dataset.past import Past
from viewcache.materializer.dataset.scan import Keep
from viewcache.materializer.freed_memory import give_back_memory
from viewcache.materializer.media.source import shown
from viewcache.materializer.planning.definition import canonical, graph_of, seed_of
from viewcache.materializer.planning.order import iterations
from viewcache.materializer.planning.redefined import keeps_views, names_labels, refused_keys
from viewcache.materializer.planning.size import check_size
from viewcache.materializer.spec import CacheSpec, DatasetSpec, TaskSpec
from viewcache.materializer.tasks.changes import changes_for, next_epoch, tell
from viewcache.materializer.tasks.class_numbers import renumbered
from viewcache.materializer.tasks.group import Group, shares
from viewcache.materializer.tasks.settings import TaskSettings
from viewcache.materializer.tasks.task import Task
from viewcache.materializer.telemetry.observer import Observer

__all__ = ["need_no_plan", "open_task", "plan_again", "share_among"]

LARGE = 100_000
"""Files of a dataset after whose opening freed memory is given back: that takes some milliseconds."""

_log = logging.getLogger("viewcache.recover")


def open_task(
    cache: CacheSpec,
    spec: TaskSpec,
    catalog: Catalog,
    *,
    budget_bytes: int,
    progress: Progress | None = None,
    observer: Observer | None = None,
    tasks: Iterable[TaskSpec] = (),
    listed: MutableMapping[DatasetSpec, Files] | None = None,
    grown: MutableMapping[DatasetSpec, Growing] | None = None,
    whole: bool = False,
    keep: Keep | None = None,
) -> Task:
    """List a task's dataset and register the task in a catalog; nothing is planned yet, nor shared: see `share_among`.

    Args:
        cache: the settings of the cache that the task belongs to.
        spec: the task.
        catalog: what we know.
        budget_bytes: of the local tier.
        progress: called while files are scanned, with (done, in all, name).
        observer: told of what is planned.
        tasks: all of the configuration; their ``on_changed_video`` says what becomes of replaced files.
        listed: datasets that were listed a moment ago, for tasks that are opened together; this one's is added.
        grown: datasets that grow, for all tasks of a cache; this one's is added.
        whole: read the headers of all files now, also of many.
        keep: given the files that lie far away and that looking into them had to read whole.

    Raises:
        BadInput: the catalog has draws of another definition under this name, a file of its draws was replaced, or no
            epoch would have a batch.
        ConfigError: a generation would have more clips than a plan may hold.
        DatasetNotFound: the dataset's folder or label table is not there, or holds no videos.
    """
    try:
        policies = policies_among((spec, *tasks), spec.dataset)
        listed, same = {} if listed is None else listed, files_of(spec)
        growing = {} if grown is None else grown
        if same in growing:
            listed[same] = growing[same].files
        if same not in listed:
            over = [each.dataset for each in (spec, *tasks) if files_of(each) == same]
            whole = whole or any(map(needs_headers, over))
            keep = None if all(each.remote is False for each in over) else keep
            listed[same] = list_files(
                same, catalog, workers=cache.workers, progress=progress, policies=policies, whole=whole, keep=keep
            )
        if spec.dataset.grows and same not in growing:
            growing[same] = Growing(same, catalog, listed[same], cache.workers)
        if cache.worker_kind == WorkerKind.THREADS and any(map(_is_web, listed[same].uris)):
            raise BadInput(
                f"{shown(spec.dataset.uri)} has videos of the web, and worker_kind: threads decodes in this process, "
                "which a hostile file could end; use worker_kind: processes"
            )
        before = next((row for row in catalog.load_tasks() if row.name == spec.name), None)
        known = None if before is None else before.task_id
        k = cache.epochs_at_once(spec)
        past = Past(catalog, known, 0 if known is None else next_epoch(known, k, catalog))
        dataset = Dataset(spec.dataset, spec.sampling, listed[same], catalog, past)
        if len(dataset) >= LARGE:  # what the labels of so many files were made of
            give_back_memory()
    except BadInput as error:
        if type(error) is not BadInput:
            raise
        raise BadInput(f"task {spec.name!r}: {error}") from error  # labels and predicates know no task
    _refuse_empty(spec, dataset, catalog, known)
    check_size(spec, k, len(dataset.epoch_like(dataset.base)))
    seed = seed_of(cache, spec)
    # How many epochs are planned at once decides the clips' starts, so it is part of what a path means.
    definition = f"{canonical(cache, spec)} epochs_per_generation={k}"
    row = TaskRow(
        name=spec.name,
        dataset_id=dataset.dataset_id,
        definition_key=blake2b(definition.encode(), digest_size=16).hexdigest(),
        definition=definition,
        epochs=spec.epochs,
        videos_per_batch=spec.sampling.videos_per_batch,
        samples_per_video=spec.sampling.samples_per_video,
        frames_per_clip=spec.sampling.frames_per_video,
        frame_stride=0 if spec.sampling.by_time else spec.sampling.frame_stride,
        seed=seed,
        drop_last=spec.drop_last,
    )
    try:
        row = catalog.ensure_task(row, keeps_views=before is not None and keeps_views(before.definition, definition))
    except BadInput as error:
        if before is None:
            raise
        raise BadInput(f"{error}. What differs: {refused_keys(before.definition, definition)}") from error
    dataset.record_rows(row.task_id)
    if before is not None and before.drop_last != row.drop_last:
        _count_anew(row, catalog)
    settings = TaskSettings(seed, k, budget_bytes)
    observer = observer or Observer()
    task = Task(spec, graph_of(spec), settings, catalog, dataset, row.task_id, observer, growing.get(same))
    first_named = before is not None and names_labels(before.definition, definition)
    moved = renumbered(spec.dataset, row.task_id, dataset.classes, catalog, first_named=first_named)
    task.changes = (*changes_for(spec, row.task_id, k, dataset, catalog), *moved)
    tell(spec, task.changes)
    if spec.dataset.grows and past.drawn is not None and spec.dataset.on_bad_video != OnBadVideo.RAISE:
        task.joining.leave_out_misfits(dataset, past.drawn["video_id"].to_numpy())  # else nobody stands in for another
    return task


def _is_web(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def _count_anew(task: TaskRow, catalog: Catalog) -> None:
    """Epochs have another number of batches: what was counted through all epochs is counted anew."""
    catalog.forget_uses(task.task_id)  # planning brings them back
    for row in catalog.load_progress(task.task_id):
        videos = catalog.count_places(task.task_id, row.epoch, row.epoch)
        each = iterations(videos, task.videos_per_batch, task.drop_last)
        place = (row.epoch + 1, 0) if row.iteration >= each > 0 else (row.epoch, row.iteration)
        catalog.advance(replace(row, epoch=place[0], iteration=place[1], seq=place[0] * each + place[1]))


def _refuse_empty(spec: TaskSpec, dataset: Dataset, catalog: Catalog, known: int | None) -> None:
    """A task without a single batch is refused before it is recorded; one that has drawn has its batches."""
    if not spec.drop_last or (known is not None and catalog.is_drawn(known, 0)):
        return
    videos, batch = len(dataset.epoch_like(dataset.candidates(spec))), spec.sampling.videos_per_batch
    if videos < batch:
        media = spec.dataset.media
        raise BadInput(
            f"task {spec.name!r}: no clips to make: there are {videos} {media}s to draw, and drop_last leaves out a "
            f"batch of fewer than {media.batch_key}, {batch}; add {media}s, or set drop_last: false or a smaller batch"
        )


def share_among(
    tasks: Sequence[Task],
    catalog: Catalog,
    cache: CacheSpec,
    groups: MutableMapping[int, Group],
    guard: Callable[[], AbstractContextManager[object]],
) -> None:
    """Let tasks that have videos in common share them, and draw their orders together.

    Args:
        tasks: all that are open.
        catalog: where orders are recorded.
        cache: the settings of the cache.
        groups: dataset id → the group of its tasks; new groups are added.
        guard: the lock under which clips may change places.
    """
    for task, share in zip(tasks, shares(tasks), strict=True):
        group = task.group  # in which an epoch that is half drawn is drawn on, though the others have been closed
        if share.together:
            group = groups.get(task.dataset.dataset_id)
            if group is None:
                group = groups[task.dataset.dataset_id] = Group(catalog, cache.seed, cache.draw_ahead, guard)
            group.add(task)
        task.share(share, group, guard)


def plan_again(catalog: Catalog, tasks: Sequence[Task]) -> int:
    """Plan the generations again that a catalog has lost, so that what was adopted is known to be needed.

    Tasks of another configuration are left: until they are open too, `gc` takes no object.

    Returns:
        How many; 0 if nothing was lost.
    """
    rebuilt, lost = catalog.setting(REBUILT) == "yes", _unplanned(catalog)
    again = [task for task in tasks if rebuilt or task.task_id in lost]
    if not rebuilt and not again:
        return 0
    count = 0
    for task in again:
        for row in catalog.load_generations(task.task_id):
            if row.first_epoch < task.spec.epochs:
                with suppress(ViewcacheError):  # who reads that generation gets it
                    task.generation(row.number)
                    count += 1
                failpoint("recover.planned")
    need_no_plan(catalog, [task.task_id for task in again])
    catalog.set_setting(REBUILT, "no")
    _log.warning("%d generations were planned again", count, extra={"action": "planned_again"})
    return count


def need_no_plan(catalog: Catalog, task_ids: Iterable[int]) -> None:
    """What was planned of these tasks is known, or nobody needs it any more."""
    before = _unplanned(catalog)
    left = before.difference(task_ids)
    if left != before:
        catalog.set_setting(UNPLANNED, " ".join(map(str, sorted(left))))


def _unplanned(catalog: Catalog) -> set[int]:
    return {*map(int, (catalog.setting(UNPLANNED) or "").split())}
