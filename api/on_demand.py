"""The same clips without a cache: a plain PyAV loop, as training scripts have it, for comparison.

Honest means: same frames, same pixels, all cores, one seek per clip. It opens the file, seeks to the key frame before the
clip, decodes forward, and converts, crops and flips only what the clip shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import av
import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken
from viewcache.materializer.pixels import to_rgb

__all__ = ["PlainClip", "decode_plainly"]


@dataclass(frozen=True, slots=True)
class PlainClip:
    """One clip of the main job (resize, crop, flip) with its random choices made."""

    path: str
    rotation: int
    """Degrees counter-clockwise by which the decoded picture is turned to be shown."""
    times_s: Sequence[float]
    """Presentation times of its frames, in order; a frame may come twice."""
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
    y, x, height, width = clip.crop
    wanted = {round(time_s, 4): [] for time_s in clip.times_s}  # type: dict[float, list[int]]
    for position, time_s in enumerate(clip.times_s):
        wanted[round(time_s, 4)].append(position)
    out = np.empty((len(clip.times_s), 3, height, width), np.uint8)
    left = set(wanted)
    with av.open(clip.path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "SLICE"  # clips are decoded side by side, one core each
        first = min(clip.times_s)
        container.seek(max(0, int((first - 0.001) / stream.time_base)), stream=stream)
        for frame in container.decode(stream):
            time = round(float(frame.time), 4)
            if time in left:
                left.discard(time)
                rgb = to_rgb(frame, *clip.size, rotation=clip.rotation)[:, y : y + height, x : x + width]
                out[wanted[time]] = rgb[:, :, ::-1] if clip.flip else rgb
                if not left:
                    break
    if left:
        raise Broken(f"{clip.path}: a plain decode did not give the frames at {sorted(left)[:4]} s")
    return out
