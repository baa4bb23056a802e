"""Content keys of clips: equal exactly when the pixels are made alike."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.dataset.texts import Keys
from viewcache.materializer.keys import digests, hash_of
from viewcache.materializer.planning.resolve import Resolved

__all__ = ["clip_keys"]

_BLOCK = 1 << 16
"""Clips whose keys are computed at once: the bytes that are hashed take ten times the room of the plan itself."""


def clip_keys(
    of_videos: Keys,
    video: NDArray[np.int64],
    resolved: Resolved,
    frames: Callable[[NDArray[np.int64]], NDArray[np.int32]],
) -> NDArray[np.void]:
    """H(video's key, program, frames, what was drawn) of each clip: (n,) of 16 bytes.

    Args:
        of_videos: content keys of the videos.
        video: (n,) the number of each clip's video among them.
        resolved: what each clip chose and drew.
        frames: source frames of some clips, by their numbers.
    """
    video_keys = of_videos.packed
    out = np.empty(len(video), "V16")
    for number, program in enumerate(resolved.programs):
        members = np.flatnonzero(resolved.program == number)
        head = np.frombuffer(program.signature, np.uint8)
        for rows in np.split(members, range(_BLOCK, len(members), _BLOCK)):
            parts = [
                video_keys[video[rows]],
                np.broadcast_to(head, (len(rows), len(head))),
                np.ascontiguousarray(frames(rows).astype("<i4")).view(np.uint8),
                np.ascontiguousarray(resolved.rows[rows, : program.columns].astype("<i4")).view(np.uint8),
            ]
            packed = np.concatenate(parts, axis=1)
            width, data = packed.shape[1], memoryview(packed.tobytes())
            out[rows] = np.frombuffer(b"".join(digests(hash_of("clip-1"), data, width)), "V16")
    return out
