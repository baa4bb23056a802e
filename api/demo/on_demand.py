"""The same clips without a cache: a plain PyAV loop, as training scripts have it, for comparison.

Honest means: same frames, same pixels, all cores, one seek per clip. It opens the file, seeks to the key frame before
the clip, decodes forward, and converts, crops and flips only what the clip shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import av
import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken
from viewcache.materializer.media.pixels import display_turn, to_rgb

__all__ = ["PlainClip", "decode_plainly"]


@dataclass(frozen=True, slots=True)
class PlainClip:
    """One clip of the main job (resize, crop, flip) with its random choices made."""

    path: str
    frames: Sequence[int]
    """Its source frames in clip order; one may come twice."""
    times_s: Sequence[float]
    """Their presentation times."""
    size: tuple[int, int]
    """Height and width after the resize."""
    crop: tuple[int, int, int, int]
    """y, x, height and width."""
    flip: bool


def decode_plainly(clip: PlainClip) -> NDArray[np.uint8]:
    """Decode one clip.

    Returns:
        uint8 (T,3,h,w).

    Raises:
        Broken: a frame of the clip does not come out of the decoder.
    """
    left: dict[int, list[int]] = {}
    _, _, height, width = clip.crop
    out = np.empty((len(clip.frames), 3, height, width), np.uint8)
    with av.open(clip.path) as container:
        stream = container.streams.video[0]
        for position, time_s in enumerate(clip.times_s):
            left.setdefault(round(time_s / (stream.time_base or 1)), []).append(position)
        stream.thread_type = "SLICE"  # clips are decoded side by side, one core each
        container.seek(min(left), stream=stream)
        last = -(1 << 63)
        for frame in container.decode(stream):
            pts = int(frame.pts or 0)
            if pts <= last:
                break  # decoders give pictures in the order of presentation: these timestamps are not theirs
            last = pts
            for position in left.pop(pts, ()):
                out[position] = _picture(frame, clip)
            if not left:
                return out
    return _counting(clip, out)


def _counting(clip: PlainClip, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """From the start of the file, where a seek lands behind the clip or timestamps are not the pictures' own."""
    left: dict[int, list[int]] = {}
    for position, number in enumerate(clip.frames):
        left.setdefault(int(number), []).append(position)
    with av.open(clip.path) as container:
        for number, frame in enumerate(container.decode(video=0)):
            for position in left.pop(number, ()):
                out[position] = _picture(frame, clip)
            if not left:
                return out
    raise Broken(f"{clip.path}: a plain decode does not give the frames {sorted(left)[:4]}")


def _picture(frame: av.VideoFrame, clip: PlainClip) -> NDArray[np.uint8]:
    y, x, height, width = clip.crop
    rotation, mirrored = display_turn(frame)
    rgb = to_rgb(frame, *clip.size, rotation=rotation, mirrored=mirrored)[:, y : y + height, x : x + width]
    return rgb[:, :, ::-1] if clip.flip else rgb
