"""Frames of clips beside one another, without words, and pictures as the bytes of files.

The page shows clips so; `api/pictures` draws whole batches and videos, with what was decided for them.
"""

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, Broken

__all__ = ["contact_sheet", "jpeg", "png", "spaced"]

MARGIN = 4
"""Pixels between tiles."""


def contact_sheet(video: NDArray[np.uint8], *, columns: int = 8, tile: int = 112) -> NDArray[np.uint8]:
    """Draw clips: a row for each, frames in order of time.

    Args:
        video: uint8 (b,T,C,H,W) or (b,V,T,C,H,W); of several views the first is shown.
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
    picks = spaced(frames, columns)
    across = max(1, round(width * tile / height))
    row = tile + MARGIN
    sheet = np.full((clips * row + MARGIN, len(picks) * (across + MARGIN) + MARGIN, 3), 24, np.uint8)
    for clip in range(clips):
        top = MARGIN + clip * row
        for column, pick in enumerate(picks):
            left = MARGIN + column * (across + MARGIN)
            picture = np.ascontiguousarray(video[clip, pick].transpose(1, 2, 0))
            sheet[top : top + tile, left : left + across] = cv2.resize(
                picture, (across, tile), interpolation=cv2.INTER_AREA
            )
    return sheet


def spaced(count: int, most: int) -> list[int]:
    """At most so many of the numbers below ``count``, evenly chosen, the first and the last among them."""
    picked: list[int] = np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)).tolist()
    return picked


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


def png(picture: NDArray[np.uint8]) -> bytes:
    """A picture, uint8 (height, width, 3) in RGB, as a PNG.

    Raises:
        Broken: it cannot be encoded.
    """
    import cv2

    # OpenCV's own default is the fastest, and a third larger.
    done, data = cv2.imencode(".png", picture[:, :, ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 6])
    if not done:
        raise Broken(f"a picture of {picture.shape} cannot be encoded as PNG")
    return data.tobytes()
