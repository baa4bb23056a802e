"""Clips of one task that another video gives instead of theirs, or that are planned again by what is known by now.

Whether a clip belongs to a planned generation or to a batch that came before it, the outcome is the same: it depends on
the clip's place, not on when anything was found out (law 3).
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow
from viewcache.errors import BadInput, BadVideo
from viewcache.failpoints import failpoint
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.stand_ins import substitute_place
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.scheduling.generation import ActiveGeneration, PlannedClips
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.tasks.missing import StandIns, stored_of
from viewcache.materializer.tasks.numbering import Numbering
from viewcache.materializer.tasks.policies import record_policies

__all__ = ["Replacing", "with_items"]

_log = logging.getLogger("viewcache.dataset")


def with_items(plan: GenerationPlan, rows: Sequence[int], ids: Sequence[int], dataset: Dataset) -> GenerationPlan:
    """The same plan with these items for some clips; all other clips keep their keys."""
    items = plan.items
    new = [each for each in dict.fromkeys(ids) if each not in items.row_of]
    if new:
        items = items.joined(dataset.items_of(new))
    return plan.substituted(np.array(rows), np.array([items.row_of[each] for each in ids]), items)


class Replacing:
    """Replaces clips that were planned. Not thread-safe: the task's locks guard it."""

    def __init__(
        self,
        spec: TaskSpec,
        dataset: Callable[[], Dataset],
        catalog: Catalog,
        numbering: Numbering,
        task_id: int,
        seed: int,
    ) -> None:
        """Nothing was tried yet; ``dataset`` gives the videos as they are known by now."""
        self._spec = spec
        self._dataset = dataset
        self._catalog = catalog
        self._numbering = numbering
        self._task_id = task_id
        self._seed = seed
        self.told = StandIns()
        """Videos that are gone."""
        self._tried: dict[tuple[int, int, int], set[int]] = {}
        """Place of a clip → ids of the items that could not give it."""

    def substitute(
        self,
        clips: PlannedClips,
        rows: Sequence[int],
        why: str,
        twins: Sequence[PlannedClips],
        guard: Callable[[], AbstractContextManager[object]],
        *,
        gone: bool,
        by_video: bool,
    ) -> list[SubstitutionRow]:
        """A video cannot give these clips: replace them by the task's policy.

        Args:
            clips: whose rows.
            rows: which.
            why: what is wrong with the video.
            twins: other plans in which the same clips may stand.
            guard: the lock under which a plan that is being worked on may be replaced.
            gone: whether its file is there no more, see `has_gone`; that takes long to ask, and locks are held here.
            by_video: positions may still change.

        Returns:
            What was chosen for each row.

        Raises:
            BadVideo: the policy is ``raise``, or no other video can stand in.
        """
        dataset = self._dataset()
        if dataset.spec.refuses(missing=gone):
            cure = (
                "restore the file, or set on_missing_video"
                if gone
                else f"repair or remove the file, or set on_bad_{dataset.spec.media}"
            )
            if gone and dataset.spec.media == "video":
                why = f"{why}; {stored_of(self._catalog, clips.video_id(rows[0]))}"
            raise BadVideo(f"{why}; {cure}: replace")
        if gone:
            what = f"another {dataset.spec.media} stands in: {why}"
            _log.warning("task %r: %s", self._spec.name, what, extra={"action": "missing_videos"})
            self.told.note(dataset, clips.item_id(rows[0]), why)
        plan, records, chosen = clips.plan, [], []
        among = plan.items.ids if isinstance(clips, ActiveGeneration) else dataset.items.ids
        may = dataset.may_stand_in(among, self._spec.sampling.span)
        for row in rows:
            (epoch, position, sample), failed = clips.place(row), clips.item_id(row)
            place = substitute_place(position, clips.drawn_id(row), by_video=by_video)
            tried = self._tried.setdefault((epoch, place, sample), set())
            tried |= {failed, clips.drawn_id(row)}
            found = dataset.stand_in(self._spec, self._seed, epoch, place, may, tried)
            if found is None:
                raise BadVideo(f"{why}; no other {dataset.spec.media} could stand in for it")
            chosen.append(found)
            records.append(SubstitutionRow(self._task_id, epoch, position, sample, failed, "replace", why, found))
        self._put(clips, rows, chosen, guard, records)
        places = [clips.place(row) for row in rows]
        for twin in twins:
            there = zip((twin.row_at(*place) for place in places), chosen, strict=True)
            at = {row: each for row, each in there if row is not None}
            if at:
                self._put(twin, list(at), list(at.values()), guard)
        return records

    def _put(
        self,
        clips: PlannedClips,
        rows: Sequence[int],
        ids: Sequence[int],
        guard: Callable[[], AbstractContextManager[object]],
        records: Sequence[SubstitutionRow] = (),
    ) -> None:
        plan = with_items(clips.plan, rows, ids, self._dataset())
        object_ids, rows = clips.object_ids.copy(), plan.whole(np.array(rows)).tolist()
        self._numbering.some(plan, np.array(rows), object_ids)
        if isinstance(clips, ActiveGeneration):
            record_policies(self._catalog, clips, records)
        else:
            self._catalog.add_substitutions(list(records))
        self._go_on(clips, rows, plan, object_ids, guard)

    def correct(self, clips: PlannedClips, video_id: int, guard: Callable[[], AbstractContextManager[object]]) -> str:
        """Plan the clips of a video again, by what is known of it now; returns why that cannot be, empty if it can.

        Nobody has seen a clip of it: its packets are looked at before the first one is made.
        """
        plan, dataset = clips.plan, self._dataset()
        rows = np.flatnonzero(plan.video == plan.videos.row_of.get(video_id, -1))
        span = self._spec.sampling.span
        unusable = [
            each for each in np.unique(plan.items.ids[plan.item[rows]]).tolist() if not dataset.is_usable(each, span)
        ]
        if unusable and (why := dataset.too_little(unusable[0], span)):
            return why
        if not len(rows) or unusable:
            return ""  # who makes its clips finds that it cannot give them, which is the policy's case
        try:
            plan = plan.corrected(dataset.items.known_now(plan.items, video_id), rows)
        except BadInput as error:
            return str(error)
        object_ids, rows = clips.object_ids.copy(), plan.whole(rows)
        self._numbering.some(plan, rows, object_ids)
        self._go_on(clips, rows.tolist(), plan, object_ids, guard)
        return ""

    def _go_on(
        self,
        clips: PlannedClips,
        rows: Sequence[int],
        plan: GenerationPlan,
        object_ids: NDArray[np.int64],
        guard: Callable[[], AbstractContextManager[object]],
    ) -> None:
        with guard():
            clips.replace(plan, object_ids)
            places = [clips.place(row) for row in rows]  # where they stand now: what is not settled may have moved
        failpoint("uses.before-move")
        # A batch whose generation is not recorded has no uses yet, and none are added: its plan brings them.
        self._numbering.move(places, object_ids[plan.object_rows(np.array(rows))])
