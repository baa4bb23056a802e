"""Clips of videos that are gone: those that are stored are given as before, elsewhere another video stands in.

Which it is, is decided when the clips are planned, and for all clips of a place alike. What stands in is on record, so
that the place shows it from then on, whatever comes back.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np

from viewcache.catalog import Catalog
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import EventRow, SubstitutionRow
from viewcache.materializer.choices import OnChangedVideo
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.media.source import NO_FILE, stamp_now
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.store.tier import LOCAL

__all__ = ["StandIns", "filled", "has_gone", "stored_of", "tell_of_missing"]

NAMED = 3
"""Videos that a warning names."""

_log = logging.getLogger("viewcache.dataset")


class StandIns:
    """What was logged of a task's files that are gone, a line for each, for readers in other processes. Thread-safe."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._lock = Lock()
        self._known: set[int] = set()
        self._lines: list[str] = []

    def note(self, dataset: Dataset, item_id: int, why: str) -> None:
        """Another one stands in for an item; of each video the first time counts."""
        row = int(dataset.items.row_of.find([item_id])[0])
        video_id = item_id if row < 0 else int(dataset.files.ids[dataset.items.file[row]])
        with self._lock:
            if video_id not in self._known:
                self._known.add(video_id)
                self._lines.append(f"another {dataset.spec.media} stands in: {why}")

    def after(self, count: int) -> tuple[str, ...]:
        """The lines behind the first ``count``."""
        return tuple(self._lines[count:])


def has_gone(dataset: Dataset, item_id: int, catalog: Catalog) -> bool:
    """Whether the file of an item is gone by now; or was replaced, where the old content counts as gone then.

    Either is recorded, so that what is stored of it stays: it could not be made again.
    """
    if dataset.is_missing(item_id):
        return True
    row = int(dataset.items.file[dataset.items.row_of[item_id]])
    listed, now = dataset.files.found(row), stamp_now(dataset.files.uris[row])
    is_other = now is not None and not now.same(listed.stamp)
    if is_other:
        catalog.mark_missing([int(dataset.files.ids[row])])
    keeps_versions = dataset.spec.on_changed_video == OnChangedVideo.VERSION
    return now == NO_FILE or (keeps_versions and is_other)


def stored_of(catalog: Catalog, video_id: int) -> str:
    """What can still be read of a video whose file is gone, in words; what was found damaged is not stored any more."""
    catalog.flush()
    copies = catalog.copies_of_videos([video_id])
    kinds = Counter(dict(zip(copies["key"].to_pylist(), copies["kind"].to_pylist(), strict=True)).values())
    clips, pictures = kinds[ObjectKind.CLIP], kinds[ObjectKind.FRAMES] + kinds[ObjectKind.AUG]
    if not clips and not pictures:
        return "nothing of it is stored"
    return f"what is stored of it can still be read: {clips} clips, {pictures} objects of kept pictures"


def filled(
    plan: GenerationPlan,
    drawn_id: Callable[[int], int],
    dataset: Dataset,
    catalog: Catalog,
    task_id: int,
    seed: int,
    most_bytes: int,
    *,
    by_video: bool,
) -> tuple[Mapping[int, int], list[SubstitutionRow]]:
    """What stands in for clips of a plan whose video is gone, and that are not stored.

    Args:
        plan: of some clips, in which videos that are gone stand where they were drawn.
        drawn_id: a row of the plan → the item that was drawn there.
        dataset: of the task.
        catalog: knows what is stored.
        task_id: of the task.
        seed: of the task.
        most_bytes: of stored clips that can be counted on. They cannot be made again, so they do not leave before they
            are read, and what is left of the budget must do for all else.
        by_video: positions may still change.

    Returns:
        Row of the plan → the item that gives the clip, and a record of each choice.

    Raises:
        BadVideo: a clip is not stored and the policy is ``raise``, or no other video can stand in.
    """
    ids = plan.items.ids
    missing = ids[np.unique(plan.item)]
    missing = missing[dataset.missing(missing)]
    if not len(missing):
        return {}, []
    rows = np.flatnonzero(np.isin(ids[plan.item], missing)).tolist()
    stored = _served(catalog, dataset, most_bytes)
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for row in rows:
        objects = [row] if plan.audio is None else [row, len(plan) + row]  # its pixels, and what is heard with them
        if not all(plan.key(each) in stored for each in objects):
            place = int(plan.epoch[row]), int(plan.position[row])
            places[place] = drawn_id(row), int(ids[plan.item[row]])
    # What stands in has to be one of the task's, whichever of them the plan has so far.
    may = dataset.may_stand_in(dataset.items.ids, plan.task.sampling.span)
    records = [
        dataset.filled(plan.task, seed, place, video_id, gone, may, by_video=by_video)
        for place, (video_id, gone) in places.items()
    ]
    chosen = {(each.epoch, each.position): each.replacement_id for each in records}
    found = {}
    for row in rows:
        video_id = chosen.get((int(plan.epoch[row]), int(plan.position[row])))
        if video_id is not None:
            found[row] = video_id
    return found, [replace(each, task_id=task_id) for each in records]


def _served(catalog: Catalog, dataset: Dataset, most_bytes: int) -> set[str]:
    """Keys of what is stored of videos that are gone, by age as much as the local tier may give to them.

    It is the same for every plan, so that a batch that is planned alone shows what the plan of its generation does.
    """
    catalog.flush()  # what was made a moment ago
    found = catalog.copies_of_videos(dataset.files.ids[~dataset.files.there].tolist())
    served: set[str] = set()
    taken = 0
    for key, tier, size in zip(*(found[name].to_pylist() for name in ("key", "tier", "bytes")), strict=True):
        taken += size if tier == LOCAL else 0
        if taken <= most_bytes:
            served.add(key)
    return served


def tell_of_missing(
    catalog: Catalog,
    task_id: int,
    task: str,
    records: Sequence[SubstitutionRow],
    dataset: Dataset,
    told: StandIns,
    *,
    positions: int,
) -> None:
    """Warn of places where another video stands in for one that is gone, and let ``errors`` have it.

    Args:
        catalog: gets the row.
        task_id: of the task.
        task: its name.
        records: of what stands in, for videos that are gone and others.
        dataset: of the task.
        told: gets a line for each of these videos.
        positions: of an epoch; those behind are never read.
    """
    gone = [
        each
        for each in records
        if each.policy == "replace" and each.position < positions and dataset.is_missing(each.video_id)
    ]
    for each in gone:
        told.note(dataset, each.video_id, each.reason)
    if gone:
        epochs, why = sorted({each.epoch for each in gone}), sorted({each.reason for each in gone})
        places = f"{len(gone)} places" if len(gone) > 1 else "one place"
        among = f"epochs {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"epoch {epochs[0]}"
        what = f"{'; '.join(why[:NAMED])}: another {dataset.spec.media} stands in at {places} of {among}"
        _log.warning("task %r: %s", task, what, extra={"action": "missing_videos"})
        catalog.add_events([EventRow("error", task_id, count=len(gone), detail=f"missing_video: {what}")])
