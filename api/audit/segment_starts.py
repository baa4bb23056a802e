"""Where the recorded clips of segments start within them, as `recorded.clip_places` says it of whole videos.

A recorded clip names a video and its frames; whose clip it is say the recorded draws, and which frames a segment has is
counted from its times. Segments of videos whose frames are not evenly spaced are left out: only an index tells them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.api.audit.recorded import Footage, start_values
from viewcache.catalog import Catalog
from viewcache.catalog.records import TaskRow
from viewcache.materializer.dataset.clock import frames_before_even

__all__ = ["Spans", "segment_places"]

_TIMES = ("time_first", "time_step", "time_numerator", "time_denominator")


@dataclass(frozen=True, slots=True)
class Spans:
    """Which frames each item of a dataset has: whole videos, and segments; arrays of length n, by id."""

    ids: NDArray[np.int64]
    video_id: NDArray[np.int64]
    begin: NDArray[np.int64]
    """Its first frame."""
    frames: NDArray[np.int64]
    """How many it has; 0 where that is not known."""

    @classmethod
    def load(cls, catalog: Catalog, dataset_id: int, footage: Footage) -> "Spans":
        """Read a dataset's items."""
        videos, items = catalog.load_videos(dataset_id), catalog.load_items(dataset_id)
        times = np.stack([videos[name].fill_null(-1).to_numpy() for name in _TIMES], axis=1)
        of = np.searchsorted(footage.ids, items["video_id"].to_numpy())
        times, frames = times[of], footage.frames[of]
        even = (times[:, 1] > 0) & (times[:, 3] > 0) & (frames > 0)
        begin, end = np.zeros(len(of), np.int64), frames * even
        for bound, name in ((begin, "start_s"), (end, "end_s")):
            seconds = items[name].fill_null(np.nan).to_numpy()
            at = np.flatnonzero(even & np.isfinite(seconds))
            bound[at] = frames_before_even(seconds[at], frames[at], times[at])
        ids = np.concatenate([footage.ids, items["item_id"].to_numpy()])
        order = np.argsort(ids)
        return cls(
            ids[order],
            np.concatenate([footage.ids, items["video_id"].to_numpy()])[order],
            np.concatenate([np.zeros(len(footage.ids), np.int64), begin])[order],
            np.concatenate([footage.frames, np.maximum(end - begin, 0)])[order],
        )


def segment_places(
    catalog: Catalog, task: TaskRow, spans: Spans, epochs: tuple[int, int], generation: int, grid: int
) -> NDArray[np.float64]:
    """Where the clips of one generation start in what was drawn; see `recorded.clip_places`.

    Args:
        catalog: what was recorded.
        task: whose clips.
        spans: of its dataset.
        epochs: the first and the last one of the generation.
        generation: its number.
        grid: frames between the starts of one phase.

    Returns:
        One value per (item, sample) that had a choice, but for clips of another video than the drawn one's.
    """
    clips, draws = catalog.load_clips(task.task_id, *epochs), catalog.load_draws(task.task_id, *epochs)
    drawn = _sorted_by_place(draws["epoch"].to_numpy(), draws["position"].to_numpy())
    asked = _place(clips["epoch"].to_numpy(), clips["position"].to_numpy())
    at = np.minimum(np.searchsorted(drawn[0], asked), max(len(drawn[0]) - 1, 0))
    if not len(asked) or not len(drawn[0]):
        return np.empty(0)
    item = draws["video_id"].to_numpy()[drawn[1]][at]
    row = np.minimum(np.searchsorted(spans.ids, item), len(spans.ids) - 1)
    mine = (drawn[0][at] == asked) & (spans.ids[row] == item) & (spans.frames[row] > 0)
    mine &= spans.video_id[row] == clips["video_id"].to_numpy()
    row = row[mine]
    start = clips["frame_start"].fill_null(-1).to_numpy().astype(np.int64)[mine]
    epoch, sample = (clips[name].to_numpy().astype(np.int64)[mine] for name in ("epoch", "sample"))
    where = start - spans.begin[row], spans.frames[row]
    return start_values(task, generation, grid, row, epoch, sample, *where)


def _place(epoch: NDArray[np.int32], position: NDArray[np.int32]) -> NDArray[np.int64]:
    return (epoch.astype(np.int64) << 32) | position.astype(np.int64)


def _sorted_by_place(
    epoch: NDArray[np.int32], position: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places in order, and which row each is."""
    place = _place(epoch, position)
    order = np.argsort(place, kind="stable")
    return place[order], order
