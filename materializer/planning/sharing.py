"""What tasks of one generation save by sharing, counted before anything runs (SAND §5.2, Fig. 16).

Nodes merge exactly where content keys agree; this module only counts them, in three ways: each clip made alone, each
task merged by itself, all tasks merged. Beyond some hundred videos a sample of them stands for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import FrameStep, grow
from viewcache.materializer.randomness import permutation

__all__ = ["Saving", "count_savings", "sample_of_videos"]

MOST_VIDEOS = 200
"""Counting looks at each frame of each clip, in Python; so many videos take about a second."""


@dataclass(frozen=True, slots=True)
class Saving:
    """One kind of work."""

    what: str
    """``frames decoded``, ``packets decoded``, the name of a frame operation, ``clips``, ``bytes of clips``, or
    ``core seconds``."""
    alone: float
    """When each clip is made by itself."""
    by_task: float
    """When each task merges its own."""
    together: float
    """When all tasks merge theirs."""


class _Counts:
    """What one way of merging makes."""

    def __init__(self) -> None:
        self.frames: dict[str, set[int]] = {}
        self.nodes: dict[str, set[tuple[str, int, FrameStep]]] = {}
        self.clips: set[str] = set()

    def add(self, video: str, key: str, uses: list[tuple[int, FrameStep | None]]) -> None:
        """One clip: its video's key, its own, and what it needs of each frame."""
        self.clips.add(key)
        self.frames.setdefault(video, set()).update(frame for frame, _ in uses)
        for frame, last in uses:
            node = last
            while node is not None:
                self.nodes.setdefault(node.name, set()).add((video, frame, node))
                node = node.parent


def count_savings(
    plans: Sequence[GenerationPlan], index_of: Sequence[Callable[[int], MediaIndex]], cost: CostModel
) -> list[Saving]:
    """Count the work of some plans.

    Args:
        plans: one generation of each task.
        index_of: for each plan, the packet index of a row of its videos.
        cost: for the seconds.
    """
    chosen, share = sample_of_videos(plans, MOST_VIDEOS, "merge")
    indexes: dict[str, MediaIndex] = {}
    total, tasks = _Counts(), [_Counts() for _ in plans]
    frames = packets = clips = size = 0
    seconds, operations = 0.0, dict[str, int]()
    for plan, index, mine in zip(plans, index_of, tasks, strict=True):
        wanted = np.array([key in chosen for key in plan.videos.keys])
        for row in np.flatnonzero(wanted[plan.video]).tolist():
            at = int(plan.video[row])
            video = plan.videos.keys[at]
            known = indexes.get(video) or indexes.setdefault(video, index(at))
            uses = _uses(plan, row)
            need = _Need.of({frame for frame, _ in uses}, known)
            making = plan.clip_bytes * cost.make_s_per_byte
            clips, size = clips + 1, size + plan.clip_bytes
            frames, packets = frames + need.frames, packets + need.packets
            seconds += need.decode_s(cost) + making
            one = _Counts()
            for each in (one, mine, total):
                each.add(video, plan.clip_keys[row].tobytes().hex(), uses)
            for name, nodes in one.nodes.items():
                operations[name] = operations.get(name, 0) + len(nodes)
    bytes_of = {key: plan.clip_bytes for plan in plans for key in plan.hex_keys}

    def work(counts: _Counts) -> tuple[int, int, float, int]:
        needs = [_Need.of(found, indexes[video]) for video, found in counts.frames.items()]
        made = sum(bytes_of[key] for key in counts.clips)
        return (
            sum(need.frames for need in needs),
            sum(need.packets for need in needs),
            sum(need.decode_s(cost) for need in needs) + made * cost.make_s_per_byte,
            made,
        )

    apart = [sum(each) for each in zip(*map(work, tasks), strict=True)]
    merged = work(total)
    rows = [("frames decoded", frames, apart[0], merged[0]), ("packets decoded", packets, apart[1], merged[1])]
    for name, count in operations.items():
        rows.append((name, count, sum(len(task.nodes.get(name, ())) for task in tasks), len(total.nodes[name])))
    rows.append(("clips", clips, sum(len(task.clips) for task in tasks), len(total.clips)))
    rows.append(("bytes of clips", size, apart[3], merged[3]))
    scaled = [Saving(what, *(round(each / share) for each in counts)) for what, *counts in rows]
    return [*scaled, Saving("core seconds", seconds / share, apart[2] / share, merged[2] / share)]


def sample_of_videos(plans: Sequence[GenerationPlan], most: int, what: str) -> tuple[frozenset[str], float]:
    """Keys of at most so many videos that stand for all of the plans, and which share of all videos they are."""
    keys = sorted({key for plan in plans for key in plan.videos.keys})
    if len(keys) <= most:
        return frozenset(keys), 1.0
    order = permutation(0, f"{what}/sample", len(keys))
    return frozenset(keys[k] for k in order[:most].tolist()), most / len(keys)


def _uses(plan: GenerationPlan, row: int) -> list[tuple[int, FrameStep | None]]:
    """Each source frame of a clip with the last frame operation on its way."""
    recipe = plan.recipe(row)
    tree = grow(recipe.program, recipe.frames, recipe.row)
    return [each for leaf in tree.leaves() for each in zip(leaf.frames.tolist(), leaf.nodes, strict=True)]


class _Need(NamedTuple):
    """What some frames of one video take."""

    frames: int
    packets: int
    pixels: int
    """Of one frame."""

    @classmethod
    def of(cls, frames: set[int], index: MediaIndex) -> "_Need":
        return cls(len(frames), index.cost(np.array(sorted(frames), np.int32)).packets, index.frame_pixels)

    def decode_s(self, cost: CostModel) -> float:
        return cost.decode_s(float(self.packets * self.pixels), float(self.frames * self.pixels))
