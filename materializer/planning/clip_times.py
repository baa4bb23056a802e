"""Which frames of a video make a clip that is sampled by time: those that are shown nearest to each of its times.

Clips are placed as `clip_starts` places them, in ticks instead of frames, so that tasks of rates that go into each
other ask for the same times, and so for the same frames (docs/design/0036).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.arrays import distinct
from viewcache.materializer.choices import OnShortVideo
from viewcache.materializer.dataset.clock import nearest, nearest_even
from viewcache.materializer.dataset.segments import Items

__all__ = ["MOST_STARTS", "Ticks", "timed_frames"]

Ticks = Callable[[int], NDArray[np.int64]]
"""``video_id`` → (frames,) when each frame is shown, in ticks from the first."""

MOST_STARTS = 1 << 31
"""Of one video: what lies behind the first twenty hours of it begins no clip."""


def timed_frames(
    start: NDArray[np.int64],
    offsets: tuple[int, ...],
    item: NDArray[np.int64],
    items: Items,
    ticks_of: Ticks,
    on_short: str,
) -> NDArray[np.int32]:
    """List the frame numbers of clips.

    Args:
        start: (n,) ticks from the first frame of the video.
        offsets: (F,) ticks from the start.
        item: (n,) rows of ``items``.
        items: of the clips.
        ticks_of: asked for videos whose frames are not evenly spaced.
        on_short: what happens past the end of a short item, as for `clip_frames`.

    Returns:
        int32 (n, F), each number within its item, never falling but where a short one starts again.

    Raises:
        BadInput: a short item was not left out under ``skip``.
    """
    first, last = items.first[item, None], items.length[item, None] - 1
    times = (start[:, None] - first) + np.array(offsets, np.int64)
    if on_short == OnShortVideo.LOOP:
        frames = items.frames[item, None]
        period = last + np.maximum(last // np.maximum(frames - 1, 1), 1)
        times = np.where(times > last, times % period, times)
    elif on_short == OnShortVideo.SKIP and np.any(times > last):
        raise BadInput(f"clip of {len(offsets)} frames: a video is shorter; leave such videos out")
    times += first
    videos, video = items.videos, items.video[item]
    even = videos.pace[video, 0] > 0
    out = np.zeros(times.shape, np.int64)
    out[even] = nearest_even(times[even], videos.frames[video[even]], videos.pace[video[even]])
    uneven = np.flatnonzero(~even)
    for row in distinct(video[uneven]).tolist():
        mine = uneven[video[uneven] == row]
        out[mine] = nearest(times[mine], ticks_of(int(videos.ids[row])))
    begin = items.begin[item, None]
    return np.clip(out, begin, begin + items.frames[item, None] - 1).astype(np.int32)
