"""When the frames of videos are shown, in ticks from the first one, and which frame is shown nearest to a time.

Videos of even frames, which most are, need two numbers for that. Of the others the index has each frame's time.
"""

from fractions import Fraction
from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.media.facts import FrameTimes
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.sampling import TICKS_PER_S

__all__ = ["even_pace", "frames_before_even", "last_tick", "nearest", "nearest_even", "ticks_of"]

_LARGEST = 1 << 31
"""Of either number of a pace, so that products with a time stay whole numbers of 64 bits."""


@lru_cache(maxsize=256)  # the files of a dataset have few different ones
def even_pace(times: FrameTimes) -> tuple[int, int]:
    """Ticks from a frame to the next, as a fraction; zeros if frames have no time, or the fraction is out of bounds."""
    pace = TICKS_PER_S * times.period if times.denominator > 0 else Fraction(0)
    usable = pace > 0 and max(pace.numerator, pace.denominator) < _LARGEST
    return (pace.numerator, pace.denominator) if usable else (0, 0)


def last_tick(frames: NDArray[np.int64], pace: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) when the last of so many frames is shown.

    Args:
        frames: (n,) of each video, at least 1.
        pace: (n, 2) of `even_pace`, none of them zeros.
    """
    return np.asarray((frames - 1) * pace[:, 0] // pace[:, 1])


def ticks_of(index: VideoIndex) -> NDArray[np.int64]:
    """(frames,) when each frame is shown, from the first one; never falling."""
    numerator, denominator = index.time_base
    common = gcd(numerator * TICKS_PER_S, denominator)
    times = index.frame_pts - index.frame_pts[0]
    return np.asarray(times * (numerator * TICKS_PER_S // common) // (denominator // common), np.int64)


def nearest_even(ticks: NDArray[np.int64], frames: NDArray[np.int64], pace: NDArray[np.int64]) -> NDArray[np.int64]:
    """The frame that is shown nearest to each time; of two equally near ones the earlier.

    Args:
        ticks: (n, F), at least 0.
        frames: (n,) of each video.
        pace: (n, 2) of `even_pace`, none of them zeros.

    Returns:
        (n, F); the last frame for times behind it.
    """
    over, under = pace[:, :1], pace[:, 1:]
    found = -((over - 2 * ticks * under) // (2 * over))
    return np.minimum(found, frames[:, None] - 1)


def nearest(ticks: NDArray[np.int64], shown: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same for one video whose frames are shown at these times, (frames,), never falling."""
    after = np.minimum(np.searchsorted(shown, ticks), len(shown) - 1)
    before = np.maximum(after - 1, 0)
    return np.where(ticks - shown[before] <= np.abs(shown[after] - ticks), before, after)


def frames_before_even(
    seconds: NDArray[np.float64], frames: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many frames of videos have a presentation time, to the bit that of `FrameTimes.times_s`, below another.

    Args:
        seconds: (n,) finite.
        frames: (n,) of each video, at least 1.
        times: (n, 4) first, step, numerator and denominator of `FrameTimes`.

    Returns:
        (n,) from 0 to ``frames``.
    """
    first, step, numerator, denominator = times.T
    unit = numerator / denominator

    def shown(number: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray((first + step * number) * unit, np.float64)

    about = np.ceil((seconds / unit - first) / np.maximum(step, 1))
    found = np.clip(about, 0, frames).astype(np.int64)
    while (over := (found > 0) & (shown(found - 1) >= seconds)).any():  # a quotient is right to a frame
        found -= over
    while (under := (found < frames) & (shown(found) < seconds)).any():
        found += under
    return np.asarray(found)
