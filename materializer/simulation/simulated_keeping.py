"""What would be kept while reading is simulated: the decisions of `keeper.choose`, on what is made by then.

The keeper itself decides for a catalog and a running dispatcher; here are only its inputs and what follows from a
choice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.ladder import GUESSED, Rung
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.retention.chosen import Chosen, KeepSettings, choose, free_bytes_for, keepings
from viewcache.materializer.retention.settled import Settled
from viewcache.materializer.retention.ways import Kept, ToCome, Way
from viewcache.materializer.scheduling.keeping import Keeping
from viewcache.materializer.simulation.simulated_uses import GenerationUses, UseTrace

__all__ = ["Decision", "IntermediateNeeds", "decide"]

AS_THEY_ARE = GUESSED["raw"]
"""What is kept of one generation counts as it is, whatever codec it gets."""


@dataclass(frozen=True, slots=True)
class IntermediateNeeds:
    """Pictures of one video that are to be kept, so that clips can be made from them."""

    video: int
    way: Way
    bound: int
    """Most bytes on disk."""
    raw: int
    """Bytes of its pixels."""
    frames: int
    """Pictures."""
    rung: Rung
    """What the way in which they are written does to them."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is kept of one generation of all tasks; without ``chosen`` every clip is."""

    sections: tuple[Keeping | None, ...]
    """What is kept of each task's clips, by rank; None = there is nothing left to decide."""
    intermediates: tuple[IntermediateNeeds, ...] = ()
    """What must be made; an intermediate that was chosen before and stays is not among them."""
    free_bytes: int = 0
    """Room that making what is kept leaves for clips that are made shortly before they are read."""
    ways: Mapping[int, Way] = field(default_factory=dict)
    """What is kept of each video, by its number, soonest needed first."""
    chosen: Chosen | None = None


def decide(
    trace: UseTrace,
    works: Sequence[tuple[GenerationUses, int]],
    made: NDArray[np.bool_],
    before: Mapping[int, Kept],
    lasting: Iterable[IntermediateNeeds],
    settings: KeepSettings,
    cost: CostModel,
    settled: Settled,
) -> Decision:
    """Decide what is kept of one generation, as `Keeper` does.

    Args:
        trace: of all uses.
        works: that generation of each task, with how many uses of it have been read.
        made: (clips,) whether a clip is in the store or on its way there.
        before: intermediates that were chosen before, by the number of the video.
        lasting: what lies in the store and lasts behind its generation.
        settings: of the cache, with the budget in question.
        cost: seconds of each kind of work.
        settled: what was chosen for other generations.
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
    free = free_bytes_for([each.plan for each in plans], settings)
    known = {trace.videos.keys[video]: (each,) for video, each in before.items()}
    there: dict[str, list[Kept]] = {}
    for each in lasting:
        there.setdefault(trace.videos.keys[each.video], []).append(Kept(each.way, each.bound, made=True))
    chosen = choose(plans, cost, settings, free, known, lying=lambda _: there, settled=settled)
    found = keepings([each.plan for each in plans], chosen, free)
    kept = tuple(replace(each, clips=each.clips[section.rows]) for each, section in zip(found, sections, strict=True))
    if chosen is None:
        return Decision(kept, (), free)
    ways = {trace.videos.numbers[key]: way for key, way in chosen.way_of().items()}
    option, once, intermediates = chosen.choice.option, chosen.weighed.once, []
    for place, (video, way) in enumerate(ways.items()):
        was = before.get(video)
        raw = int(once.intermediate_bytes[place, option[place]])
        if way.lasts and raw:
            assert chosen.weighed.lasting is not None
            frames = int(chosen.weighed.lasting.reach.counts[place])
            rung = cost.ladder.rung(way.codec, raw // frames)
            bound = clip_bound(int(raw * rung.packed), frames)
            intermediates.append(IntermediateNeeds(video, way, bound, raw, frames, rung))
        elif way.intermediate is not None and not way.lasts and (was is None or was.way != way):
            frames = int(once.frames[place])
            intermediates.append(IntermediateNeeds(video, way, clip_bound(raw, frames), raw, frames, AS_THEY_ARE))
    return Decision(kept, tuple(intermediates), free, ways, chosen)
