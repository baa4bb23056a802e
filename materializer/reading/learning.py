"""What is found of videos that were opened by their headers: recorded, and plans corrected where a header lied."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow
from viewcache.errors import BadVideo, ViewcacheError
from viewcache.materializer.dataset.columns import changed_columns
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.past import keep_selection
from viewcache.materializer.dataset.recording import facts_table
from viewcache.materializer.dataset.scan import look_at
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.source import Stamp, is_local, stamp_now
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import grow, source_frames
from viewcache.materializer.tasks.task import Task

__all__ = ["Learning"]

_log = logging.getLogger("viewcache.dataset")


class Learning:
    """Takes in what workers find when they decode a video first. Thread-safe."""

    def __init__(self, catalog: Catalog, tasks: Callable[[], Sequence[Task]]) -> None:
        """Record in a catalog; ``tasks`` gives those that are open."""
        self._catalog = catalog
        self._tasks = tasks

    def look(self, dataset: Dataset, video_ids: Iterable[int]) -> dict[int, str]:
        """Look into some videos, but for those that somebody has looked into, or that are gone.

        One process looks into all of them: to start it takes as long as to look into dozens of images.

        Returns:
            Why each of those that are bad is.
        """
        files = dataset.files
        rows = {video_id: files.row_of[video_id] for video_id in video_ids}
        unseen = [row for row in rows.values() if files.whole[row] and not files.is_looked_at(row)]
        found = self._looked_at(dataset, [row for row in unseen if not dataset.is_missing(int(files.ids[row]))])
        lost = {row: each.error for row, each in found.items() if not each.index}
        return {video_id: why for video_id, row in rows.items() if (why := lost.get(row) or files.error(row))}

    def index_of(self, dataset: Dataset, video_id: int) -> VideoIndex:
        """The packet index of a video, looked at now if nobody has.

        Raises:
            BadVideo: it cannot be decoded.
        """
        files, row = dataset.files, dataset.files.row_of[video_id]
        if not files.whole[row]:  # of one that went bad the index of what it was is still known
            raise BadVideo(files.error(row))
        index = files.exact_index(row)
        if index is None:
            found = self._looked_at(dataset, [row])[row]
            if not found.index:
                raise BadVideo(found.error)
            index = VideoIndex.from_bytes(found.index)
        return index

    def _looked_at(self, dataset: Dataset, rows: Sequence[int]) -> dict[int, Scanned]:
        """What is found of some files of a dataset, by row; it is learned."""
        files = dataset.files
        looked_into = files.some(rows)
        row_of, out = {file.uri: row for file, row in zip(looked_into, rows, strict=True)}, {}
        for file, found in look_at(looked_into, dataset.spec.max_pixels):
            row = row_of[file.uri]
            self.learn(files.keys[row], found)
            out[row] = found
        return out

    def frames(
        self, dataset: Dataset, plan: GenerationPlan, rows: list[int], shape: tuple[int, ...]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Which source frame each picture of some clips is, and when it is shown in seconds; an image is its only one.

        Args:
            dataset: of the plan.
            plan: of the clips.
            rows: of the plan.
            shape: of what is told, (clips, pictures).
        """
        frames, times = np.zeros(shape, np.int64), np.zeros(shape, np.float64)
        if plan.blocks is not None:
            return frames, times
        ids = plan.videos.ids[plan.video[rows]].tolist()
        for k, (row, each, video_id) in enumerate(zip(rows, plan.frames(np.array(rows, np.int64)), ids, strict=True)):
            frames[k] = source_frames(grow(plan.program(row), each, plan.drawn(row)))
            times[k] = self.times_s(dataset, video_id, frames[k])
        return frames, times

    def times_s(self, dataset: Dataset, video_id: int, frames: NDArray[np.int64]) -> NDArray[np.float64]:
        """Presentation times of a video's frames in seconds, same shape; its packets are looked at if nobody has.

        Raises:
            BadVideo: it cannot be decoded.
        """
        known = dataset.files.times_s(dataset.files.row_of[video_id], frames)
        return self.index_of(dataset, video_id).times_s(frames) if known is None else known

    def is_planning(self, key: str, found: Scanned) -> bool:
        """Whether `learn` would wait, because clips of a file whose header lied are being planned just now."""
        planning = [task for task in self._tasks() if key in task.dataset.files.row_of_key and task.is_planning()]
        if not planning or found.facts is None:
            return False
        files = planning[0].dataset.files
        return bool(files.claims([files.row_of_key[key]], 0)[0].contradicted(found.facts))

    def learn(self, key: str, found: Scanned) -> None:
        """Go by what was found of the file with this content key.

        Nothing is recorded of a file that could not be reached, or is another one by now: the next opening looks.

        Raises:
            ViewcacheError: its header lied, and the catalog cannot take its clips as they are planned now. Then it is
                not learned, and whoever decodes it again finds the same.
        """
        tasks = [task for task in self._tasks() if key in task.dataset.files.row_of_key]
        if not tasks or not found.lasting:
            return
        files = tasks[0].dataset.files
        row = files.row_of_key[key]
        (claims,) = files.claims([row], 0)
        if found.facts is not None and not found.facts.stamp.same(claims.stamp):
            return
        index_at = None
        try:
            self._keep_selections(tasks, key, found)  # before what they go by is another, whatever ends this process
            index_at = self._catalog.write_indexes([(key, found.index)])[0] if found.index else None
            if not _is_other_now(files.uris[row], claims.stamp):
                self._catalog.record_facts(facts_table([int(files.ids[row])], [(files.found(row), found)], [index_at]))
        except ViewcacheError as error:  # a full disk, say: the video is looked at again when it is decoded again
            _log.warning("what was found of %s is not kept: %s", files.uris[row], error, extra={"action": "not_kept"})
        wrong = "" if found.facts is None else claims.contradicted(found.facts)
        theirs = {id(task.dataset.files): task.dataset.files for task in tasks}.values()
        lied = bool(wrong) and not found.error
        takes_back = [each.as_now(each.row_of_key[key]) for each in theirs if lied]
        for each in theirs:
            each.learn(each.row_of_key[key], found, index_at)
        if not lied:
            return
        try:
            for task in tasks:
                if why := task.correct(int(files.ids[row])):
                    # Its clips would not go with the others: until the next opening it is a bad video to this run.
                    bad, mine = replace(found, error=f"{files.uris[row]}: {why}"), task.dataset.files
                    mine.learn(mine.row_of_key[key], bad, index_at)
        except BaseException:  # a full disk, say
            for take_back in takes_back:  # what goes by the index alone would make clips that it gives otherwise
                take_back()
            raise
        self._tell(tasks, f"{files.uris[row]}: {wrong}")

    def _keep_selections(self, tasks: Sequence[Task], key: str, found: Scanned) -> None:
        """Let each task go on to select the file, or not, by what its predicate saw of it."""
        for task in tasks:
            files = task.dataset.files
            before = files.file(files.row_of_key[key])
            if columns := changed_columns(task.spec.dataset.where, before, found.facts):
                keep_selection(self._catalog, task.task_id, key, columns)

    def _tell(self, tasks: Sequence[Task], what: str) -> None:
        _log.warning("%s", what, extra={"action": "header_differs"})
        self._catalog.add_events([EventRow("error", task.task_id, detail=f"header_differs: {what}") for task in tasks])


def _is_other_now(uri: str, listed: Stamp) -> bool:
    """Whether a local file went or was replaced since it was decoded, which may be on record already, see `has_gone`.

    Of one that lies far away it is not asked: whoever reads a clip next waits for the answer.
    """
    now = stamp_now(uri) if is_local(uri) else None
    return now is not None and not now.same(listed)
