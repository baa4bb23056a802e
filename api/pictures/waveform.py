"""What is heard of a clip, as a picture: a strip whose height at each place is how loud it is there.

It is scaled to the clip's loudest sample, so that quiet audio is seen; the caption says how loud that is.
"""

import numpy as np
from numpy.typing import NDArray

from viewcache.api.pictures.canvas import Pixels

__all__ = ["loudness", "marked", "peak", "waveform"]

HEIGHT = 28
"""Of a strip, pixels."""
GROUND, WAVE, NOW = (38, 38, 42), (90, 190, 240), (255, 210, 0)


def waveform(samples: NDArray[np.float32], width: int) -> Pixels:
    """Draw the audio of a clip, (C,n), its first sample on the left."""
    out = np.full((HEIGHT, width, 3), GROUND, np.uint8)
    loudest = peak(samples)
    # Of each column the lowest and the highest sample; where samples are wider than columns, the one that is there.
    edges = np.arange(width) * samples.shape[1] // width
    low = np.minimum.reduceat(samples.min(axis=0), edges)
    high = np.maximum.reduceat(samples.max(axis=0), edges)
    middle = (HEIGHT - 1) / 2
    scale = middle / loudest if loudest else 0.0
    rows = np.arange(HEIGHT)[:, None]
    out[(rows >= np.floor(middle - high * scale)) & (rows <= np.ceil(middle - low * scale))] = WAVE
    return out


def marked(strip: Pixels, part: float) -> Pixels:
    """A copy of a strip with a line where so large a part of its time, below 1, has passed."""
    out = strip.copy()
    out[:, int(part * strip.shape[1])] = NOW
    return out


def peak(samples: NDArray[np.float32]) -> float:
    """The size of the loudest sample; 1 is full scale."""
    return float(np.abs(samples).max())


def loudness(samples: NDArray[np.float32]) -> str:
    """The same in words."""
    loudest = peak(samples)
    return f"audio: loudest {loudest:.2g} of full scale" if loudest else "audio: silent"
