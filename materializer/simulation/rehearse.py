"""What would be kept while reading is simulated: the decisions of `keep.choose`, on what is made by then.

The keeper itself decides for a catalog and a running engine; here are only its inputs and what follows from a choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import clip_bound
from viewcache.materializer.retention.keeper import Chosen, KeepSettings, choose, free_bytes_for
from viewcache.materializer.retention.options import Kept, ToCome, Way
from viewcache.materializer.simulation.simulated_uses import Section, Trace

__all__ = ["BaseNeeds", "Decision", "SectionKeeping", "decide"]


@dataclass(frozen=True, slots=True)
class BaseNeeds:
    """Pictures of one video that are to be kept, so that clips can be made from them."""

    video: int
    way: Way
    bound: int
    """Most bytes on disk."""
    raw: int
    """Bytes of its pixels."""


@dataclass(frozen=True, slots=True)
class SectionKeeping:
    """What is kept of one generation of one task."""

    clips: bytes
    """One byte a use by rank: whether its clip is kept."""
    window: int
    """So many uses from the reader on are made ahead though they are not kept."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is kept of one generation of all tasks; without ``chosen`` every clip is."""

    sections: tuple[SectionKeeping | None, ...]
    bases: tuple[BaseNeeds, ...] = ()
    """What must be made; a base that was chosen before and stays is not among them."""
    free_bytes: int = 0
    """Room that making what is kept leaves for clips that are made shortly before they are read."""
    ways: Mapping[int, Way] = field(default_factory=dict)
    """What is kept of each video, by its number, soonest needed first."""
    chosen: Chosen | None = None


def decide(
    trace: Trace,
    works: Sequence[tuple[Section, int]],
    made: NDArray[np.bool_],
    before: Mapping[int, Kept],
    settings: KeepSettings,
    cost: CostModel,
) -> Decision:
    """Decide what is kept of one generation, as `Keeper` does.

    Args:
        trace: of all uses.
        works: that generation of each task, with how many uses of it have been read.
        made: (clips,) whether a clip is in the store or on its way there.
        before: bases that were chosen before, by the number of the video.
        settings: of the cache, with the budget in question.
        cost: seconds of each kind of work.
    """
    sections = [section for section, _ in works]
    plans = []
    for section, read in works:
        rows, ready = np.zeros(len(section.plan), bool), np.zeros(len(section.plan), bool)
        rows[section.rows[read:]] = True
        ready[section.rows] = made[trace.clips_of(section)]
        plans.append(ToCome(section.plan, section.index_of, rows, ready))
    if not any(each.rows.any() for each in plans):
        return Decision((None,) * len(works))
    free = free_bytes_for([each.plan for each in plans], settings.local_bytes())
    known = {trace.videos.keys[video]: each for video, each in before.items()}
    chosen = choose(plans, cost, settings, free, known)
    if chosen is None:
        windows = (_window(free, works, section.plan.bound) for section in sections)
        pairs = zip(sections, windows, strict=True)
        return Decision(tuple(SectionKeeping(b"\1" * len(each), window) for each, window in pairs), (), free)
    weighed, option = chosen.weighed, chosen.choice.option
    numbers = [trace.videos.numbers[key] for key in weighed.videos]
    ways = {video: weighed.ways[k] for video, k in zip(numbers, option.tolist(), strict=True)}
    kept: list[SectionKeeping | None] = [None] * len(works)
    for kind_number, kind in enumerate(weighed.kinds):
        for k in kind.plans:
            videos = sections[k].plan.videos.keys
            leaf = np.array([_keeps(ways.get(trace.videos.numbers.get(key, -1)), kind_number) for key in videos])
            mine = leaf[sections[k].plan.video[sections[k].rows]]
            kept[k] = SectionKeeping(mine.tobytes(), _window(free, works, kind.bound))
    bases = []
    for place, video in enumerate(numbers):
        way, was = ways[video], before.get(video)
        if way.base != "nothing" and (was is None or was.way != way):
            raw = int(weighed.once.base_bytes[place, option[place]])
            frames = int(weighed.once.frames[place])
            bases.append(BaseNeeds(video, way, clip_bound(raw, frames), raw))
    return Decision(tuple(kept), tuple(bases), free, ways, chosen)


def _window(free: int, works: Sequence[object], bound: int) -> int:
    return max(1, free // len(works) // bound)


def _keeps(way: Way | None, kind: int) -> bool:
    return way is not None and kind < way.kept
