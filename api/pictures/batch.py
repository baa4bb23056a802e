"""A batch as a picture: a row for each clip with what was decided for it; or all clips beside one another, moving.

Shown is what is stored, before the operations that run at reading: these give numbers that are no colours.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.api.pictures.canvas import MARGIN, PAPER, Pixels, Row, fitted, lined, sheet
from viewcache.api.pictures.picture import Film, Picture
from viewcache.api.pictures.waveform import loudness, marked, peak, waveform
from viewcache.api.pictures.words import said
from viewcache.api.port import TaskHandle
from viewcache.api.sheet import spaced
from viewcache.materializer.choices import Layout, Media
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.values import ClipRecipe

__all__ = ["batch_picture", "class_of", "recipe_line", "title_of"]

NARROWEST = 160
"""Width of a moving clip's place, pixels: its words need so much."""
MOST_LINES = 4
"""Of words under a moving clip."""
MOST_FPS = 60.0


def batch_picture(task: TaskHandle, epoch: int, iteration: int, columns: int, height: int) -> Picture:
    """Draw a batch; it does not count as read.

    Args:
        task: whose.
        epoch: of the batch.
        iteration: of the batch.
        columns: most frames of a clip on the sheet, evenly chosen; of images, most in a row.
        height: most pixels of a frame's height; a larger one is made smaller.

    Raises:
        ViewNotFound: no such epoch or iteration.
        BadVideo: a video cannot be decoded and the policy is ``raise``.
    """
    count = task.shape(epoch, iteration)[0]
    # Made first: what stands in for a video that turns out bad then stands in for it below, too.
    pixels = task.clips(epoch, iteration, range(count))
    heard = None if task.audio_shape is None else task.audio(epoch, iteration, range(count))
    batch, recipes = task.describe(epoch, iteration), task.recipes(epoch, iteration)
    captions = [_caption(task, batch, k, recipe) for k, recipe in enumerate(recipes)]
    if heard is not None:
        for caption, samples in zip(captions, heard, strict=True):
            caption.append(loudness(samples))
    title = title_of(task, f"epoch {epoch}", f"iteration {iteration}")
    facts = {
        "task": task.name,
        "epoch": epoch,
        "iteration": iteration,
        "seed": task.seed,
        "clips": [
            _facts(task, batch, k, recipe) | ({} if heard is None else {"audio_peak": peak(heard[k])})
            for k, recipe in enumerate(recipes)
        ],
    }

    is_still = pixels.shape[-4] == 1  # of images: what moves has one picture

    def frames() -> Iterator[Pixels]:
        square = math.ceil(math.sqrt(len(pixels)))
        across = min(columns, square) if is_still else square
        return _film(title, captions, pixels, heard, height, across, None if is_still else MOST_LINES)

    film = Film(_fps(batch.time_s), pixels.shape[-4], frames)
    if is_still:
        return Picture(next(frames()), film, facts)
    return Picture(sheet([title], list(_rows(captions, pixels, heard, columns, height))), film, facts)


def title_of(task: TaskHandle, *parts: str) -> str:
    """The line above a picture."""
    return " · ".join([task.name, *parts, f"seed {task.seed}"])


def class_of(task: TaskHandle, label: int | Sequence[int]) -> str:
    """A label, or several, in words: the name of each class, where it has one, and its number."""
    labels = [label] if isinstance(label, int) else label
    classes = task.classes
    words = [f"{classes[each]} ({each})" if each < len(classes) else f"label {each}" for each in labels if each >= 0]
    return ", ".join(words) or "no label"


def _label_at(batch: Batch, k: int) -> int | list[int]:
    """The label of a clip, or the numbers of all where there may be several."""
    return int(batch.label[k]) if batch.label.ndim == 1 else np.flatnonzero(batch.label[k]).tolist()


def recipe_line(recipe: ClipRecipe) -> str:
    """What the steps do with a clip, in words."""
    return " · ".join(said(recipe.steps)) or "as decoded"


def _caption(task: TaskHandle, batch: Batch, k: int, recipe: ClipRecipe) -> list[str]:
    times, frames = batch.time_s[k], batch.frame[k]
    first = [
        batch.videos[k],
        class_of(task, _label_at(batch, k)),
        *([recipe.segment] if recipe.segment else []),
        f"sample {recipe.sample}",
    ]
    if Layout(task.layout).media == Media.VIDEO:
        first.append(f"{times.min():.2f} s to {times.max():.2f} s")
        first.append(f"frames {frames.min()} to {frames.max()}")
    return [" · ".join(first), recipe_line(recipe)]


def _facts(task: TaskHandle, batch: Batch, k: int, recipe: ClipRecipe) -> dict[str, object]:
    label, classes = _label_at(batch, k), task.classes
    names = [classes[each] if 0 <= each < len(classes) else None for each in np.atleast_1d(label).astype(int).tolist()]
    return {
        "video": batch.videos[k],
        "label": label,
        "class": names[0] if isinstance(label, int) else names,
        "sample": recipe.sample,
        "item": recipe.item,
        "start_s": recipe.start_s,
        "end_s": recipe.end_s,
        "frames": batch.frame[k].tolist(),
        "time_s": batch.time_s[k].tolist(),
        "recipe": list(recipe.steps),
    }


def _views(clip: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A clip as (V,T,H,W,C), of one view or more."""
    return np.moveaxis(clip if clip.ndim == 5 else clip[None], 2, -1)


def _rows(
    captions: Sequence[Sequence[str]],
    pixels: NDArray[np.uint8],
    heard: NDArray[np.float32] | None,
    columns: int,
    height: int,
) -> Iterator[Row]:
    """A row for each view of each clip, and one for its audio; the last one of a clip has its words."""
    picks = spaced(pixels.shape[-4], columns)
    for number, (caption, clip) in enumerate(zip(captions, pixels, strict=True)):
        rows = [[fitted(view[pick], height) for pick in picks] for view in _views(clip)]
        if heard is not None:
            width = sum(frame.shape[1] + MARGIN for frame in rows[-1]) - MARGIN
            rows.append([waveform(heard[number], width)])
        for row in rows[:-1]:
            yield Row(row)
        yield Row(rows[-1], caption)


def _film(
    title: str,
    captions: Sequence[Sequence[str]],
    pixels: NDArray[np.uint8],
    heard: NDArray[np.float32] | None,
    height: int,
    across: int,
    most_lines: int | None,
) -> Iterator[Pixels]:
    """All clips, so many in a row, at each of their times; a line goes over their audio."""
    clips = [_views(clip) for clip in pixels]
    width = max(NARROWEST, fitted(clips[0][0, 0], height).shape[1])
    words = [lined(caption, width)[:most_lines] for caption in captions]
    most = max(map(len, words))
    cells: list[list[str]] = [[*each, *[""] * (most - len(each))] for each in words]
    count = clips[0].shape[1]
    strips = [] if heard is None else [waveform(samples, width) for samples in heard]
    for at in range(count):
        drawn = [_cell([fitted(view[at], height) for view in clip], width) for clip in clips]
        if strips:
            now = [marked(strip, at / count) for strip in strips]
            drawn = [np.concatenate(each) for each in zip(drawn, now, strict=True)]
        shown = [sheet([], [Row([cell], caption)], width) for cell, caption in zip(drawn, cells, strict=True)]
        rows = [Row(shown[first : first + across]) for first in range(0, len(shown), across)]
        yield sheet([title], rows)


def _cell(views: Sequence[Pixels], width: int) -> Pixels:
    """The views of a clip under one another, as wide as its words need."""
    out = np.full((sum(view.shape[0] for view in views), width, 3), PAPER, np.uint8)
    top = 0
    for view in views:
        out[top : top + view.shape[0], : view.shape[1]] = view
        top += view.shape[0]
    return out


def _fps(time_s: NDArray[np.float64]) -> float:
    """Pictures a second at which the clips play as they were taken."""
    steps = np.abs(np.diff(time_s, axis=-1))
    steps = steps[steps > 0]
    return float(np.clip(1 / np.median(steps), 1.0, MOST_FPS)) if steps.size else 10.0
