"""How much diversity sharing costs: distinct frames, and frames that come again and again (SAND Fig. 19).

Counted from the recorded clips, with the same clips drawn independently beside them, by the code that draws them for a
task with ``coordination: independent``. The figures are of videos, so some thousand of them stand for all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.api.audit.recorded import Drawn, Footage, RecordedClips, are_whole, load_clips
from viewcache.catalog import Catalog
from viewcache.catalog.records import TaskRow
from viewcache.materializer.planning.clip_starts import clip_starts
from viewcache.materializer.randomness import address_word, permutation
from viewcache.materializer.sampling import clip_span

__all__ = ["OFTEN", "Counts", "Diversity", "compare", "diversity"]

OFTEN = 4
"""Selected so many times or more is often: the bound of SAND's figure 19."""

MOST_EPOCHS = 10
"""Epochs that are looked at, as in that figure."""

MOST_VIDEOS = 2000
"""A frame is a number in memory for each time it is selected; beyond so many videos some stand for all."""

_REPEATS = 4
"""Times that independent draws are made; a few videos alone would give a rough mean."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Frames that some clips selected; a frame is counted once for a clip that repeats it."""

    per_epoch: float
    """Distinct frames in one epoch, on average."""
    ever: float
    """Distinct frames over all epochs."""
    times: tuple[float, ...]
    """How many frames were selected 1, 2, 3, … times."""

    @property
    def often(self) -> float:
        """Share of the frames that were selected at all that were selected `OFTEN` times or more; 0 to 1."""
        return sum(self.times[OFTEN - 1 :]) / self.ever if self.ever else 0.0


@dataclass(frozen=True, slots=True)
class Diversity:
    """The frames of one task, or of several over one dataset, in the first epochs that are planned."""

    tasks: tuple[str, ...]
    epochs: int
    """Consecutive epochs, at most ten."""
    videos: int
    clips: int
    recorded: Counts
    independent: Counts
    """The same when each clip starts anywhere by itself; the mean of a few draws."""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        plain: dict[str, object] = {
            "tasks": list(self.tasks),
            "epochs": self.epochs,
            "videos": self.videos,
            "clips": self.clips,
        }
        for name, counts in (("recorded", self.recorded), ("independent", self.independent)):
            plain[name] = {
                "frames_per_epoch": counts.per_epoch,
                "frames": counts.ever,
                f"selected_{OFTEN}_times_or_more": counts.often,
                "frames_by_times_selected": list(counts.times),
            }
        return plain


@dataclass(frozen=True, slots=True)
class _Planned:
    """Which epochs of a task have clips."""

    task: TaskRow
    ahead: int
    """What to add to an epoch of the task for the group's."""
    epochs: frozenset[int]
    """Of the group."""


def diversity(catalog: Catalog, tasks: Sequence[TaskRow], footage: Mapping[int, Footage]) -> list[Diversity]:
    """Count the frames of each task, and of all tasks over one dataset together where they have epochs in common.

    A task of images has no clips to count.

    Args:
        catalog: of the cache.
        tasks: of it.
        footage: dataset id → its videos.
    """
    drawn = (task for task in tasks if Drawn.of(task).starts and are_whole(catalog, task, footage[task.dataset_id]))
    planned = [each for each in (_planned(catalog, task) for task in drawn) if each.epochs]
    circles: list[list[_Planned]] = [[each] for each in planned]
    for group in dict.fromkeys(each.task.group_id for each in planned):
        members = [each for each in planned if each.task.group_id == group]
        if len(members) > 1:
            circles.append(members)
    out = []
    for members in circles:
        run = _first_run(frozenset.intersection(*(each.epochs for each in members)))
        if run:
            videos = footage[members[0].task.dataset_id]
            ahead = [each.ahead for each in members]
            clips = [
                load_clips(catalog, each.task, videos, run.start - each.ahead, run.stop - 1 - each.ahead)
                for each in members
            ]
            if any(map(len, clips)):
                out.append(compare(clips, ahead, videos, len(run)))
    return out


def _planned(catalog: Catalog, task: TaskRow) -> _Planned:
    generations = catalog.load_generations(task.task_id)
    ahead = next((g.group_epoch - g.first_epoch for g in generations if g.group_epoch is not None), 0)
    epochs = frozenset(epoch + ahead for g in generations for epoch in range(g.first_epoch, g.last_epoch + 1))
    return _Planned(task, ahead, epochs)


def _first_run(epochs: frozenset[int]) -> range:
    """The first consecutive epochs, at most ten."""
    first = end = min(epochs, default=0)
    while end in epochs and end - first < MOST_EPOCHS:
        end += 1
    return range(first, end)


def compare(clips: Sequence[RecordedClips], ahead: Sequence[int], footage: Footage, epochs: int) -> Diversity:
    """Count what some tasks selected in the same epochs of their group, and what they would have independently.

    Args:
        clips: of each task.
        ahead: what to add to each task's epochs for the group's.
        footage: of their dataset.
        epochs: how many they are.
    """
    used = np.unique(np.concatenate([each.video for each in clips]))
    looked_at = used[permutation(0, "verify/videos", len(used))[:MOST_VIDEOS]]
    share = len(looked_at) / len(used) if len(used) else 1.0
    some = [each.subset(np.isin(each.video, looked_at)) for each in clips]
    when = [each.epoch + more for each, more in zip(some, ahead, strict=True)]
    recorded = _counts(some, [each.frames for each in some], when, epochs, share)
    # Seeds below zero are no cache's, so an independent task is compared with other draws than its own.
    again = [
        _counts(some, [_independent(each, footage, -1 - k) for each in some], when, epochs, share)
        for k in range(_REPEATS)
    ]
    return Diversity(
        tasks=tuple(each.task.name for each in clips),
        epochs=epochs,
        videos=len(used),
        clips=sum(map(len, clips)),
        recorded=recorded,
        independent=_mean(again),
    )


def _independent(clips: RecordedClips, footage: Footage, seed: int) -> NDArray[np.int64]:
    """The frames of the same clips if each started anywhere by itself; one that has no choice stays."""
    task = clips.task
    start = clip_starts(
        seed,
        footage.words[clips.video],
        0,
        clips.epoch,
        clips.sample,
        np.maximum(footage.frames[clips.video], 1),
        span=clip_span(task.frames_per_clip, task.frame_stride),
        grid=1,
        spread=1.0,
        independent=address_word(task.name),
    )
    moved = clips.frames + (start - clips.start)[:, None]
    return np.where((clips.start < 0)[:, None], clips.frames, moved)


def _counts(
    clips: Sequence[RecordedClips],
    frames: Sequence[NDArray[np.int64]],
    epochs: Sequence[NDArray[np.int64]],
    run: int,
    share: float,
) -> Counts:
    """Count (video, frame) over all clips.

    Args:
        clips: per task.
        frames: per task (n, F).
        epochs: per task (n,), of the group.
        run: how many epochs these are.
        share: of the videos that these are; counts are scaled to all.
    """
    most = max((int(each.max()) + 1 for each in frames if each.size), default=1)
    pictures, when = [], []
    for each, numbers, epoch in zip(clips, frames, epochs, strict=True):
        ordered = np.sort(numbers, axis=1)
        fresh = np.ones(ordered.shape, bool)
        fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        pictures.append((each.video[:, None] * most + ordered)[fresh])
        when.append(np.broadcast_to(epoch[:, None], ordered.shape)[fresh])
    picture, epoch = np.concatenate(pictures), np.concatenate(when)
    in_epochs = sum(len(np.unique(picture[epoch == each])) for each in np.unique(epoch).tolist())
    selected = np.unique(picture, return_counts=True)[1]
    times = np.bincount(selected)[1:] / share
    return Counts(in_epochs / run / share, len(selected) / share, tuple(times.tolist()))


def _mean(counts: Sequence[Counts]) -> Counts:
    longest = max(len(each.times) for each in counts)
    times = np.mean([np.pad(each.times, (0, longest - len(each.times))) for each in counts], axis=0)
    per_epoch, ever = np.mean([(each.per_epoch, each.ever) for each in counts], axis=0).tolist()
    return Counts(per_epoch, ever, tuple(times.tolist()))
