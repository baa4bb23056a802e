"""Frames and words on one picture: rows of frames with a caption under each, and a title above all.

OpenCV draws; where it has fonts (5.0 and later) words may be of any language, else they are ASCII.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import cv2

__all__ = ["COLOURS", "LEAST_WIDTH", "MARGIN", "PAPER", "Pixels", "Row", "fitted", "lined", "outlined", "sheet"]

Pixels = NDArray[np.uint8]
"""(height, width, 3), RGB."""

MARGIN = 4
"""Pixels between frames, and around all."""
LINE = 17
"""Pixels of a line of words."""
LETTERS = 13
"""Height of letters, pixels."""
LEAST_WIDTH = 320
"""Of a sheet: narrower ones would have one word in a line."""
INK, PAPER = (225, 225, 225), 24
COLOURS = ((255, 210, 0), (0, 220, 255), (255, 90, 200), (120, 255, 90), (255, 140, 60), (150, 160, 255))
"""Of the windows of a video's clips, one after the other."""
DOT = 4
"""Radius of the dot at a window's first corner, pixels."""


@dataclass(frozen=True, slots=True)
class Row:
    """Frames beside one another."""

    frames: Sequence[Pixels]
    caption: Sequence[str] = ()
    """Lines under them."""


def fitted(frame: Pixels, height: int) -> Pixels:
    """A frame that is at most so high: smaller ones stay as they are."""
    import cv2

    if frame.shape[0] <= height:
        return frame
    width = max(1, round(frame.shape[1] * height / frame.shape[0]))
    return np.asarray(cv2.resize(np.ascontiguousarray(frame), (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def outlined(frame: Pixels, corners: NDArray[np.float64], colour: tuple[int, int, int]) -> Pixels:
    """A copy with a window drawn into it, given by its corners as fractions of width and height.

    A dot is at the first corner: it shows how the window's content is flipped or turned.
    """
    import cv2

    out = np.ascontiguousarray(frame).copy()
    height, width = out.shape[:2]
    points = np.rint(corners * (width - 1, height - 1)).astype(np.int32)
    thick = 2 if height >= 96 else 1
    cv2.polylines(out, [points.reshape(-1, 1, 2)], True, colour, thick, cv2.LINE_AA)
    cv2.circle(out, (int(points[0, 0]), int(points[0, 1])), DOT if thick > 1 else DOT // 2, colour, -1, cv2.LINE_AA)
    return out


def sheet(title: Sequence[str], rows: Sequence[Row], least_width: int = LEAST_WIDTH) -> Pixels:
    """Put rows under one another.

    Args:
        title: lines above all.
        rows: frames with their captions.
        least_width: of the picture.
    """
    width = max([least_width, *(_width(row) for row in rows)])
    head = lined(title, width)
    captions = [lined(row.caption, width) for row in rows]
    heights = [
        (max(frame.shape[0] for frame in row.frames) + MARGIN if row.frames else 0) + _text_height(caption)
        for row, caption in zip(rows, captions, strict=True)
    ]
    out = np.full((MARGIN + _text_height(head) + sum(heights), width, 3), PAPER, np.uint8)
    _write(out, head, MARGIN)
    top = MARGIN + _text_height(head)
    for row, caption, height in zip(rows, captions, heights, strict=True):
        left = MARGIN
        for frame in row.frames:
            out[top : top + frame.shape[0], left : left + frame.shape[1]] = frame
            left += frame.shape[1] + MARGIN
        _write(out, caption, top + height - _text_height(caption))
        top += height
    return out


def lined(lines: Sequence[str], width: int) -> list[str]:
    """The same words in lines that fit a picture's width; a word that is wider has a line of its own."""
    out, has_fonts = [], _font() is not None
    for line in lines:
        now = ""
        for word in line.split():
            longer = f"{now} {word}" if now else word
            if now and _text_width(longer, has_fonts=has_fonts) > width - 2 * MARGIN:
                out.append(now)
                now = word
            else:
                now = longer
        out.append(now)
    return out


def _text_height(lines: Sequence[str]) -> int:
    return len(lines) * LINE + (MARGIN if lines else 0)


def _width(row: Row) -> int:
    widths: list[int] = [frame.shape[1] for frame in row.frames]
    return MARGIN + sum(width + MARGIN for width in widths)


def _write(out: Pixels, lines: Sequence[str], top: int) -> None:
    import cv2

    font = _font()
    for number, line in enumerate(lines):
        place = (MARGIN, top + number * LINE + LETTERS)
        if font is None:
            cv2.putText(out, _plain(line), place, cv2.FONT_HERSHEY_SIMPLEX, 0.42, INK, 1, cv2.LINE_AA)
        else:
            cv2.putText(out, line, place, INK, font, LETTERS, 400)


@lru_cache(maxsize=4096)
def _text_width(text: str, *, has_fonts: bool) -> int:
    """Pixels of a line; it takes a quarter of a millisecond, and films say the same words again and again."""
    import cv2

    font = _font() if has_fonts else None
    if font is None:
        return int(cv2.getTextSize(_plain(text), cv2.FONT_HERSHEY_SIMPLEX, 0.42, 1)[0][0])
    size: Sequence[int] = cv2.getTextSize((1 << 15, LINE), text, (0, 0), font, LETTERS, 400)
    return size[2]


def _font() -> "cv2.FontFace | None":
    """A font of OpenCV's own, for one thread; None of a release that has none."""
    import cv2

    return cv2.FontFace("sans") if hasattr(cv2, "FontFace") else None


def _plain(text: str) -> str:
    return text.encode("ascii", "replace").decode()
