"""What is made ahead of a generation, told before it is made: what is worth making, and what the same decodes give.

It follows `rules.next_ahead` and `rules.worth_making` for all rows at once. The trade-off: it knows nothing of room, of
workers and of what fails, so that less is made where objects do not fit.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.audio import stored_shape
from viewcache.materializer.scheduling.generation import ActiveGeneration, AudioSchedule
from viewcache.materializer.scheduling.intermediate_work import IntermediateWork

__all__ = ["Ahead", "ahead_of"]

_NO_KEYS = np.zeros(0, "V16")

_Ints = NDArray[np.int64]
_Work = ActiveGeneration | AudioSchedule | IntermediateWork
_Rows = tuple[_Work, _Ints]
"""Some rows of some work."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Objects that are made ahead of one generation of a group."""

    objects: int = 0
    raw_bytes: int = 0
    """Of them, before they are packed."""
    clip_bytes: int = 0
    """Of these, those of clips."""
    clips: Sequence[NDArray[np.bool_]] = ()
    """Of each plan (n,) clips that are made, and of no kept picture."""
    pictures: Mapping[str, float] = field(default_factory=dict)
    """Content key of a video or an image → which part of its kept pictures is made."""
    keys: NDArray[np.void] = field(default_factory=lambda: _NO_KEYS)
    """Content keys of them, and of what is made ahead of generations before."""


def ahead_of(
    works: Sequence[ActiveGeneration], intermediates: Iterable[IntermediateWork], before: NDArray[np.void] = _NO_KEYS
) -> Ahead:
    """What is made ahead of one generation; the lock that guards the works is held.

    Args:
        works: of the tasks.
        intermediates: what is kept of it to make clips from.
        before: content keys of what generations before it have made by then.
    """
    heard = [each.audio for each in works if each.audio is not None]
    all_work: list[_Work] = [*intermediates, *works, *heard]
    first: list[_Rows] = [(work, np.asarray(work.rows_ahead(), np.int64)) for work in all_work]
    if len(before):  # what is made by then needs no decode
        first, _ = _distinct(first, before)
    # Of each video one row: there may be a million.
    videos = list(dict.fromkeys(work.video(row) for work, rows in first for row in _one_of_each_video(work, rows)))
    both = [(w, np.union1d(rows, np.asarray(w.rows_beside(videos), np.int64))) for w, rows in first]
    made, keys = _distinct(both, before)
    sizes = [_raw_bytes(*each).sum() for each in made]
    clip_bytes = sum(size for (work, _), size in zip(made, sizes, strict=True) if isinstance(work, ActiveGeneration))
    return Ahead(
        objects=sum(len(rows) for _, rows in made),
        raw_bytes=int(sum(sizes)),
        clip_bytes=int(clip_bytes),
        clips=[_of_file(work, rows) for work, rows in made if isinstance(work, ActiveGeneration)],
        pictures={
            key: part
            for work, rows in made
            if isinstance(work, IntermediateWork)
            for key, part in work.parts(rows.tolist()).items()
        },
        keys=keys,
    )


def _distinct(rows: Sequence[_Rows], before: NDArray[np.void]) -> tuple[list[_Rows], NDArray[np.void]]:
    """One row of each object that is not among those before; and the keys of all."""
    rows = [(work, _one_of_each_block(work, mine)) for work, mine in rows]
    keys = np.concatenate([before, *(_keys(*each) for each in rows)])
    found, index = np.unique(keys, return_index=True)
    ends = np.cumsum([len(before), *(len(mine) for _, mine in rows)])
    fresh = np.sort(index)
    parts = [fresh[(fresh >= start) & (fresh < end)] - start for start, end in pairwise(ends.tolist())]
    return [(work, mine[part]) for (work, mine), part in zip(rows, parts, strict=True)], found


def _one_of_each_block(work: _Work, rows: _Ints) -> _Ints:
    """Of images one row of each block: there may be millions."""
    if not isinstance(work, ActiveGeneration) or work.plan.blocks is None:
        return rows
    return np.asarray(rows[np.unique(work.video_of(rows), return_index=True)[1]])


def _keys(work: _Work, rows: _Ints) -> NDArray[np.void]:
    if isinstance(work, ActiveGeneration):
        return np.asarray(work.plan.keys[rows])
    if isinstance(work, AudioSchedule):
        return np.asarray(work.clips.plan.audio_keys[rows])
    return np.frombuffer(bytes.fromhex("".join(work.keys(rows.tolist()))), "V16")


def _one_of_each_video(work: _Work, rows: _Ints) -> list[int]:
    if not isinstance(work, IntermediateWork):
        rows = rows[np.unique(work.video_of(rows), return_index=True)[1]]
    found: list[int] = rows.tolist()
    return found


def _raw_bytes(work: _Work, rows: _Ints) -> _Ints:
    """Of each row's object."""
    if isinstance(work, ActiveGeneration):
        plan, clips = work.plan, np.ones(len(rows), np.int64)
        if plan.blocks is not None:
            clips = np.diff(plan.blocks.first)[plan.blocks.number[rows]]
        return np.asarray(plan.clip_bytes * clips)
    if isinstance(work, AudioSchedule):
        audio = work.clips.plan.audio
        return np.full(len(rows), 0 if audio is None else math.prod(stored_shape(audio)))
    return np.array([work.raw_bytes(row) for row in rows.tolist()], np.int64)


def _of_file(work: ActiveGeneration, rows: _Ints) -> NDArray[np.bool_]:
    """(n,) which clips of these rows' objects are made of their file: of no picture that is kept, or will be."""
    mine = np.zeros(len(work.plan), np.bool_)
    mine[work.plan.whole(rows)] = True
    if work.keeping is not None and work.keeping.intermediates:
        kept = set(work.keeping.intermediates)
        mine &= ~np.fromiter((key in kept for key in work.plan.videos.keys), np.bool_)[work.plan.video]
    return mine
