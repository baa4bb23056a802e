"""Which video stands in for one that is bad or gone: drawn by the place of the clip, not by when it was found out."""

from collections.abc import Container

from viewcache.materializer.randomness import address_word, permutation

__all__ = ["draw_substitute", "stand_in_for", "substitute_place"]


def substitute_place(position: int, video_id: int, *, by_video: bool) -> int:
    """Return the address for `draw_substitute`: the position, or the video where positions may still change."""
    return (1 << 40) + video_id if by_video else position


def draw_substitute(seed: int, task: str, epoch: int, position: int, sample: int, attempt: int, videos: int) -> int:
    """Return which of ``videos`` good videos stands in for a bad one.

    Args:
        seed: of the task.
        task: its name.
        epoch: of the place to fill.
        position: likewise, in the order of the epoch.
        sample: likewise; -1 = all clips of the video.
        attempt: 0 for the first choice, 1 for the next, …; the choices of one place are all different.
        videos: how many there are.
    """
    return int(permutation(seed, "substitute", videos, address_word(task), epoch, position, sample)[attempt])


def stand_in_for(
    seed: int, task: str, epoch: int, place: int, sample: int, videos: int, tried: Container[int]
) -> int | None:
    """The first of the videos that are drawn for a clip's place that has not been tried there; None if all have.

    Args:
        seed: of the task.
        task: its name.
        epoch: of the clip.
        place: its address, see `substitute_place`.
        sample: which clip of its video.
        videos: how many there are; the answer is the row of one.
        tried: rows of videos that could not give the clip.
    """
    for attempt in range(videos):
        video = draw_substitute(seed, task, epoch, place, sample, attempt, videos)
        if video not in tried:
            return video
    return None
