"""What was decided for clips: their source frames, and every operation with what was drawn for it."""

from collections.abc import Sequence
from math import isfinite

import numpy as np

from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import grow, source_frames
from viewcache.materializer.reading.values import ClipRecipe

__all__ = ["clip_recipes", "rows_of_video"]


def clip_recipes(plan: GenerationPlan, rows: Sequence[int]) -> tuple[ClipRecipe, ...]:
    """What was decided for some clips of a plan, in their order."""
    planned = zip(rows, plan.frames(np.array(rows, np.int64)), strict=True)
    return tuple(
        ClipRecipe(
            video=plan.videos.names[int(plan.video[row])],
            sample=int(plan.ordinal[row]),
            item=int(plan.items.ids[plan.item[row]]),
            start_s=_unless_open(float(plan.items.start_s[plan.item[row]])),
            end_s=_unless_open(float(plan.items.end_s[plan.item[row]])),
            frames=tuple(source_frames(grow(plan.program(row), frames, plan.drawn(row))).ravel().tolist()),
            steps=tuple(plan.program(row).describe(plan.drawn(row))),
        )
        for row, frames in planned
    )


def _unless_open(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None


def rows_of_video(plan: GenerationPlan, video_id: int, epoch: int) -> list[int]:
    """The clips of a video, or of its segments, in an epoch; none where it is not drawn."""
    place = plan.videos.row_of.get(video_id, -1)
    rows: list[int] = np.flatnonzero((plan.video == place) & (plan.epoch == epoch)).tolist()
    return rows
