"""A contact sheet: one batch as a picture, a row for each clip, frames in order of time.

For people who want to see what training sees: crops, flips and the spacing of frames show at once.
"""

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, Broken

__all__ = ["contact_sheet", "jpeg", "write_sheet"]

MARGIN = 4
"""Pixels between tiles."""
CAPTION = 18
"""Pixels above a row for its words."""


def contact_sheet(
    video: NDArray[np.uint8], captions: Sequence[str] = (), *, columns: int = 8, tile: int = 112
) -> NDArray[np.uint8]:
    """Draw a batch.

    Args:
        video: uint8 (b,T,C,H,W) or (b,V,T,C,H,W); of several views the first is shown.
        captions: (b) words for each row, ASCII; none draws none.
        columns: most frames of a clip to show, evenly spaced.
        tile: height of a frame, pixels.

    Returns:
        uint8 (height, width, 3), RGB.

    Raises:
        BadInput: not such an array, or empty.
    """
    import cv2

    if video.ndim == 6:
        video = video[:, 0]
    if video.ndim != 5 or video.shape[2] != 3 or not video.size or video.dtype != np.uint8:
        raise BadInput(f"a contact sheet is drawn of uint8 (b,T,3,H,W), got {video.dtype} of {video.shape}")
    clips, frames, _, height, width = video.shape
    picks = np.unique(np.linspace(0, frames - 1, min(columns, frames)).round().astype(int))
    across = max(1, round(width * tile / height))
    row = tile + MARGIN + (CAPTION if captions else 0)
    sheet = np.full((clips * row + MARGIN, len(picks) * (across + MARGIN) + MARGIN, 3), 24, np.uint8)
    for clip in range(clips):
        top = MARGIN + clip * row
        if captions:
            place = (MARGIN, top + CAPTION - 5)
            words = captions[clip].encode("ascii", "replace").decode()
            cv2.putText(sheet, words, place, cv2.FONT_HERSHEY_SIMPLEX, 0.42, (220, 220, 220), 1, cv2.LINE_AA)
            top += CAPTION
        for column, pick in enumerate(picks.tolist()):
            left = MARGIN + column * (across + MARGIN)
            picture = np.ascontiguousarray(video[clip, pick].transpose(1, 2, 0))
            sheet[top : top + tile, left : left + across] = cv2.resize(
                picture, (across, tile), interpolation=cv2.INTER_AREA
            )
    return sheet


def jpeg(picture: NDArray[np.uint8]) -> bytes:
    """A picture, uint8 (height, width, 3) in RGB, as a JPEG.

    Raises:
        Broken: it cannot be encoded.
    """
    import cv2

    done, data = cv2.imencode(".jpg", picture[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
    if not done:
        raise Broken(f"a picture of {picture.shape} cannot be encoded as JPEG")
    return data.tobytes()


def write_sheet(path: str | os.PathLike[str], sheet: NDArray[np.uint8]) -> None:
    """Write a sheet as a PNG.

    Raises:
        Broken: it cannot be encoded or written.
    """
    import cv2

    done, png = cv2.imencode(".png", sheet[:, :, ::-1])
    if not done:
        raise Broken(f"a sheet of {sheet.shape} cannot be encoded as PNG")
    try:
        with open(path, "wb") as file:
            file.write(png.tobytes())
    except OSError as error:
        raise Broken(f"cannot write {os.fspath(path)}: {error.strerror}; check the folder") from error
