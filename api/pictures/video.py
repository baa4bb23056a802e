"""A video as a picture: its frames over time, and below them each clip that an epoch has of it, with its window.

Frames are those of the source. A window is drawn where the steps tell which part of the frame the clip shows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.api.pictures.batch import class_of, recipe_line, title_of
from viewcache.api.pictures.canvas import COLOURS, LEAST_WIDTH, Pixels, Row, fitted, lined, outlined, sheet
from viewcache.api.pictures.picture import Film, Picture
from viewcache.api.pictures.windows import window
from viewcache.api.port import TaskHandle
from viewcache.api.sheet import spaced
from viewcache.errors import BadVideo
from viewcache.materializer.dataset.names import escape, stem
from viewcache.materializer.reading.values import ClipRecipe, FrameRequest, VideoInfo

__all__ = ["video_picture"]

AT_ONCE = 16
"""Frames that are asked for together: whole ones take much memory."""
MOST_PICTURES = 600
"""Of a film; of a longer video they are evenly chosen."""


@dataclass(frozen=True, slots=True)
class _Clip:
    """A clip of the video."""

    recipe: ClipRecipe
    corners: NDArray[np.float64] | None
    """(4,2) of its window, as fractions of the frame's width and height; None where the steps do not tell."""
    colour: tuple[int, int, int]

    def is_at(self, frame: int) -> bool:
        """Whether the clip is under way when a frame is shown."""
        return min(self.recipe.frames) <= frame <= max(self.recipe.frames)

    def drawn_into(self, picture: Pixels) -> Pixels:
        """The picture with the window."""
        return picture if self.corners is None else outlined(picture, self.corners, self.colour)


def video_picture(task: TaskHandle, name: str, epoch: int, columns: int, height: int) -> Picture:
    """Draw a video, with the clips that an epoch has of it.

    Args:
        task: over whose dataset.
        name: of the video, or its path below the dataset's folder.
        epoch: whose clips.
        columns: most frames in a row, evenly chosen.
        height: most pixels of a frame's height; a larger one is made smaller.

    Raises:
        ViewNotFound: no such video or epoch.
        BadVideo: it cannot be decoded.
    """
    task.generation_of(epoch)  # refused before anything is decoded
    video = _found(task, name)
    name = video.name
    if not video.frames:
        raise BadVideo(f"video {name!r} cannot be shown: {video.error}")
    clips = [_clip(video, recipe, number) for number, recipe in enumerate(task.recipes_of(name, epoch))]
    video = task.video(name)  # as its packets say
    picks = spaced(video.frames, columns)
    rows = [Row(list(_drawn(task, name, picks, clips, height)), [_about(task, video)])]
    for clip in clips:
        frames = list(dict.fromkeys(clip.recipe.frames))  # each once, also of several views
        shown = [frames[k] for k in spaced(len(frames), columns)]
        rows.append(Row(list(_drawn(task, name, shown, [clip], height)), _caption(task, clip, name)))
    if not clips:
        rows.append(Row([], [f"epoch {epoch} has no clip of it"]))
    title = title_of(task, name, f"epoch {epoch}")
    facts = {
        "task": task.name,
        "video": name,
        "epoch": epoch,
        "seed": task.seed,
        "label": video.label if isinstance(video.label, int) else list(video.label),
        "frames": video.frames,
        "clips": [_facts(clip, video) for clip in clips],
    }
    return Picture(sheet([title], rows), _film(task, video, title, clips, height), facts)


def _found(task: TaskHandle, name: str) -> VideoInfo:
    """The video of a name, or else of a path."""
    for each in (name, escape(stem(name)), escape(name)):
        if (found := task.find_video(each)) is not None:
            return found
    return task.video(name)  # which says what there is


def _clip(video: VideoInfo, recipe: ClipRecipe, number: int) -> _Clip:
    corners = window(recipe.steps, (video.height, video.width))
    share = None if corners is None else corners / (video.width, video.height)
    return _Clip(recipe, share, COLOURS[number % len(COLOURS)])


def _drawn(task: TaskHandle, name: str, frames: Sequence[int], clips: Sequence[_Clip], height: int) -> Iterator[Pixels]:
    """Frames of the video, with the windows of the clips that are under way."""
    for first in range(0, len(frames), AT_ONCE):
        numbers = frames[first : first + AT_ONCE]
        found = task.frames([FrameRequest(name, number) for number in numbers])
        for number, pixels in zip(numbers, found, strict=True):
            picture = fitted(np.moveaxis(pixels, 0, -1), height)
            for clip in clips:
                if clip.is_at(number):
                    picture = clip.drawn_into(picture)
            yield picture


def _about(task: TaskHandle, video: VideoInfo) -> str:
    parts = [class_of(task, video.label), f"{video.width}x{video.height}", f"{video.frames} frames"]
    if video.duration_s:
        parts.append(f"{video.duration_s:.2f} s")
    if video.fps:
        parts.append(f"{video.fps:.4g} frames a second")
    return " · ".join(parts)


def _caption(task: TaskHandle, clip: _Clip, name: str) -> list[str]:
    ends = min(clip.recipe.frames), max(clip.recipe.frames)
    times = [task.describe_frame(FrameRequest(name, frame)).time_s for frame in ends]
    first = [
        *([clip.recipe.segment] if clip.recipe.segment else []),
        f"sample {clip.recipe.sample}",
        f"{times[0]:.2f} s to {times[1]:.2f} s",
        f"frames {ends[0]} to {ends[1]}",
    ]
    if clip.corners is None:
        first.append("its window is not known: a step of it may move pixels in any way")
    return [" · ".join(first), recipe_line(clip.recipe)]


def _facts(clip: _Clip, video: VideoInfo) -> dict[str, object]:
    corners = None if clip.corners is None else (clip.corners * (video.width, video.height)).round(3).tolist()
    return {
        "sample": clip.recipe.sample,
        "item": clip.recipe.item,
        "start_s": clip.recipe.start_s,
        "end_s": clip.recipe.end_s,
        "frames": list(clip.recipe.frames),
        "window": corners,
        "recipe": list(clip.recipe.steps),
    }


def _film(task: TaskHandle, video: VideoInfo, title: str, clips: Sequence[_Clip], height: int) -> Film:
    picks, fps = spaced(video.frames, MOST_PICTURES), video.fps or 25.0

    def words(number: int) -> list[str]:
        now = ", ".join(
            " ".join(filter(None, (clip.recipe.segment, f"sample {clip.recipe.sample}")))
            for clip in clips
            if clip.is_at(number)
        )
        return lined([f"frame {number} · about {number / fps:.2f} s" + (f" · {now}" if now else "")], LEAST_WIDTH)

    def pictures() -> Iterator[Pixels]:
        most = max(len(words(number)) for number in picks)  # all pictures have one size
        for number, picture in zip(picks, _drawn(task, video.name, picks, clips, height), strict=True):
            caption = words(number)
            yield sheet([title], [Row([picture], [*caption, *[""] * (most - len(caption))])])

    return Film(fps * len(picks) / video.frames, len(picks), pictures)
