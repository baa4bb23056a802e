"""``cache.show``: a batch or a video as a picture, whoever owns the cache."""

from typing import TYPE_CHECKING

from viewcache.errors import BadInput

if TYPE_CHECKING:
    from viewcache.api.pictures.picture import Picture
    from viewcache.api.port import TaskHandle

__all__ = ["COLUMNS", "HEIGHT", "show"]

COLUMNS = 8
"""Frames in a row, if nothing else is asked for."""
HEIGHT = 128
"""Most pixels of a frame's height, if nothing else is asked for."""
MOST_COLUMNS, LEAST_HEIGHT, MOST_HEIGHT = 64, 16, 1080


def show(
    task: "TaskHandle", epoch: int, iteration: int | None, video: str | None, columns: int, height: int
) -> "Picture":
    """Draw a batch of a task, or one of its videos; see `Cache.show`."""
    if video is not None and iteration is not None:
        raise BadInput(
            f"show(iteration={iteration}, video={video!r}): a batch or a video, not both; a video's clips are those of "
            "an epoch"
        )
    if not (1 <= columns <= MOST_COLUMNS and LEAST_HEIGHT <= height <= MOST_HEIGHT):
        raise BadInput(
            f"show(columns={columns}, height={height}): columns are 1 to {MOST_COLUMNS} frames, a frame's height is "
            f"{LEAST_HEIGHT} to {MOST_HEIGHT} pixels"
        )
    # Loaded when it is asked for: a client of a service stays small.
    if video is not None:
        from viewcache.api.pictures.video import video_picture

        return video_picture(task, video, epoch, columns, height)
    from viewcache.api.pictures.batch import batch_picture

    return batch_picture(task, epoch, iteration or 0, columns, height)
