"""The encoded file of a video that lies far away, kept near: what it is, and what that saves beside each way.

Whoever decodes such a video fetches its bytes, and each generation that decodes it fetches them again. Keeping the
file takes its bytes once, for all epochs that are left. So every way to keep a video's clips is there twice, without
the file and with it, and the rule that chooses among ways chooses among these (docs/design/0049).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.media.kept import CHUNK_BYTES, kept_key
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.retention.needs import Floats
from viewcache.materializer.retention.options import Weighed
from viewcache.materializer.retention.ways import ToCome
from viewcache.store.tier import LOCAL

__all__ = ["FarFile", "far_files", "file_recipe", "with_files"]

FETCH_S = 0.05
"""Seconds until the first byte of a file comes: it is found out whether it is still the same, and then asked for."""

WASTED = 0.5
"""Of what a decode fetches, what is fetched again on the whole: jobs are interrupted for readers who wait, and others
of the same video run beside them. Measured on 8 clips in 33 epochs: 0.6."""


@dataclass(frozen=True, slots=True)
class FarFile:
    """The file of a video that lies far away."""

    video_id: int
    stamp: Stamp
    """Of the version that the plan is of."""
    recipe: Recipe
    """Of its copy."""
    plan: int
    """The number of a plan that has the video."""
    row: int
    """Of a clip of it there."""


def file_recipe(video: str, stamp: Stamp) -> Recipe:
    """The copy of a video's file, by its content key and the version of the file."""
    nothing, chunks = np.zeros(0, np.int32), -(-stamp.size // CHUNK_BYTES)
    # The last chunk is filled up, a file of one chunk excepted.
    bound = clip_bound(stamp.size if chunks == 1 else chunks * CHUNK_BYTES, chunks)
    return Recipe(
        key=kept_key(video, stamp),
        program=Program(()),
        row=nothing,
        frames=nothing,
        shape=(stamp.size,),
        due=0,
        bound=bound,
        kind=ObjectKind.SOURCE,
        codec_is_chosen=True,
    )


def far_files(plans: Sequence[ToCome]) -> dict[str, FarFile]:
    """Those of the videos of which clips are to come, by content key."""
    found: dict[str, FarFile] = {}
    asked: set[str] = set()
    for number, each in enumerate(plans):
        if each.far is None or each.plan.blocks is not None:  # images are fetched with their blocks
            continue
        videos = each.plan.videos
        rows = np.flatnonzero(each.rows)
        present, first = np.unique(each.plan.video[rows], return_index=True)
        for video, row in zip(present.tolist(), rows[first].tolist(), strict=True):
            key = videos.keys[video]
            stamp = None if key in asked else each.far(video)
            asked.add(key)
            if stamp is not None:
                found[key] = FarFile(int(videos.ids[video]), stamp, file_recipe(key, stamp), number, row)
    return found


def with_files(
    weighed: Weighed,
    plans: Sequence[ToCome],
    later: float,
    cost: CostModel,
    files: Mapping[str, FarFile],
    has: Callable[[str], bool],
) -> Weighed:
    """The same with what fetching costs, and with each way once more, as it is with the file kept.

    Args:
        weighed: all ways.
        plans: that were weighed.
        later: generations like these that come behind.
        cost: seconds of each kind of work.
        files: those that lie far away, by the content key of the video.
        has: whether an object lies in the store, by its content key.
    """
    mine = [files.get(key) for key in weighed.videos]
    size = np.array([0 if each is None else each.stamp.size for each in mine], np.float64)
    bound = np.array([0 if each is None else each.recipe.bound for each in mine], np.int64)
    there = np.array([each is not None and has(each.recipe.key) for each in mine], np.bool_)
    fetches = _Fetches(weighed, plans)
    now, behind = fetches.now(), fetches.later()
    fetch_s, load_s = (size * per_byte for per_byte in (cost.fetch_s_per_byte, cost.load_s_per_byte))
    again = [each.seconds(fetch_s, FETCH_S) * (size > 0)[:, None] for each in (now, behind)]
    loaded = [each.seconds(load_s, 0.0) for each in (now, behind)]
    without, kept = again[0] + later * again[1], loaded[0] + later * loaded[1]
    kept += np.where(size > 0, np.where(there, 0.0, fetch_s + FETCH_S), np.inf)[:, None]
    parts = size[:, None] * (now.parts + later * behind.parts)
    read = cost.devices.seconds({LOCAL: parts})
    options, once = weighed.options, weighed.once
    return replace(
        weighed,
        options=replace(
            options,
            bytes=np.concatenate([options.bytes, options.bytes + bound[:, None]], axis=1),
            cost_s=np.concatenate([options.cost_s + without, options.cost_s + kept], axis=1),
            work_s=np.concatenate([options.work_s + without, options.work_s + kept], axis=1),
            device_s={
                name: np.concatenate([each, each + read.get(name, 0)], axis=1)
                for name, each in options.device_s.items()
            },
        ),
        ways=(*weighed.ways, *weighed.ways),
        once=replace(once, intermediate_bytes=np.tile(once.intermediate_bytes, 2)),
        again_s=None
        if weighed.again_s is None
        else np.concatenate([weighed.again_s + again[1], weighed.again_s + loaded[1]], axis=1),
        plain=len(weighed.ways),
    )


@dataclass(frozen=True, slots=True)
class _Times:
    """How often each file is fetched, (V, ways)."""

    decodes: Floats
    """Jobs that decode the video."""
    parts: Floats
    """Of the file that these need together: 1 is all of it once."""

    def seconds(self, whole_s: Floats, each_s: float) -> Floats:
        """What it takes, where all of a file takes so long, and each job so long before anything comes."""
        return self.parts * whole_s[:, None] + self.decodes * each_s


class _Fetches:
    """How often the bytes of each file are fetched, by what is kept."""

    def __init__(self, weighed: Weighed, plans: Sequence[ToCome]) -> None:
        self._weighed = weighed
        self._kinds = weighed.kinds
        where, count = weighed.where, len(weighed.videos)
        first = min((int(each.plan.epoch.min(initial=0)) + each.plan.context.joined for each in plans), default=0)
        of_plans = [*zip(plans, where.places, strict=True)]
        self._visits = [_visits(each, places, count, first) for each, places in of_plans]
        self._anew = [_visits(each.anew(), places, count, first) for each, places in of_plans]
        self._part = np.zeros(count)
        """Of a file that one epoch of all tasks needs: the groups of pictures that its clips are in, at most all."""
        for each, at in of_plans:
            videos = each.plan.videos
            group = videos.frames / videos.keyframes
            part = each.plan.task.sampling.samples_per_video * (_span(each.plan) + group) / np.maximum(1, videos.frames)
            np.add.at(self._part, at[at >= 0], part[at >= 0])
        self._part = np.minimum(1.0, self._part)

    def now(self) -> _Times:
        """In what is left of this generation."""
        once, found = self._weighed.once, []
        lies = np.array([bool(self._weighed.lying.get(key)) for key in self._weighed.videos], np.bool_)
        for column, way in enumerate(self._weighed.ways):
            to_make = once.missing[:, : way.kept].sum(axis=1) > 0
            if way.intermediate is not None:
                to_make = once.intermediate_bytes[:, column] > 0
            found.append(self._times(self._visits, column, np.where(to_make, 1 + WASTED, 0.0)))
        # What lies there is what clips are made from.
        return self._stacked([(np.where(lies, 0.0, decodes), np.where(lies, 0.0, parts)) for decodes, parts in found])

    def later(self) -> _Times:
        """In one generation like this one behind it."""
        once = np.where(self._needed(self._anew, 0) > 0, 1 + WASTED, 0.0)
        return self._stacked(
            [
                (np.zeros(len(once)), np.zeros(len(once))) if way.lasts else self._times(self._anew, column, once)
                for column, way in enumerate(self._weighed.ways)
            ]
        )

    def _times(self, visits: Sequence[NDArray[np.bool_]], column: int, once: Floats) -> tuple[Floats, Floats]:
        """Decodes and parts of a way; what is kept is made by so many decodes."""
        way = self._weighed.ways[column]
        whole = np.ones(len(once)) if way.lasts else np.minimum(1.0, self._needed(visits, 0) * self._part)
        if way.intermediate is not None or way.kept == len(self._kinds):
            return once, once * whole
        left = self._needed(visits, way.kept)
        return np.maximum(left, once), np.maximum(left * self._part, once * whole)

    def _needed(self, visits: Sequence[NDArray[np.bool_]], kept: int) -> Floats:
        """(V,) in how many epochs a video is needed for clips of the kinds from one on."""
        mine = [visits[k] for kind in self._kinds[kept:] for k in kind.plans]
        found = np.zeros((len(self._part), max((each.shape[1] for each in mine), default=0)), np.bool_)
        for each in mine:
            found[:, : each.shape[1]] |= each
        return np.asarray(found.sum(axis=1), np.float64)

    @staticmethod
    def _stacked(columns: Sequence[tuple[Floats, Floats]]) -> _Times:
        decodes, parts = zip(*columns, strict=True)
        return _Times(np.stack(decodes, axis=1), np.stack(parts, axis=1))


def _span(plan: GenerationPlan) -> float:
    """Frames from the first to the last of a clip, of an example: clips of a task have about the same."""
    if not len(plan):
        return 0.0
    frames = plan.frames(np.zeros(1, np.int64))
    return float(frames.max() - frames.min() + 1)


def _visits(each: ToCome, places: NDArray[np.int64], count: int, first: int) -> NDArray[np.bool_]:
    """(V, epochs) whether a video is needed in an epoch of the group, from the ``first`` on."""
    plan = each.plan
    rows = np.flatnonzero(each.rows)
    video = places[plan.video[rows]]
    epoch = plan.epoch[rows] + plan.context.joined - first
    found = np.zeros((count, int(epoch.max(initial=0)) + 1), np.bool_)
    found[video[video >= 0], epoch[video >= 0]] = True
    return found
