"""The audio of planned clips: an object beside each clip, so that tasks with and without audio share pixels.

Rows of objects count the clips of a plan first, n of them, and then the audio of each: row n + k is that of clip k.
"""

import json
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.dataset.texts import Keys
from viewcache.materializer.keys import digests, hash_of
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.spec import AudioSpec

__all__ = ["audio_bound", "audio_cost_s", "audio_keys", "audio_recipe", "stored_shape"]

SAMPLE_BYTES = 4
"""Of a float32."""


AUDIO_S_PER_S = 0.002
"""Core seconds that decoding and resampling a second of audio takes, about."""


def audio_cost_s(audio: AudioSpec) -> float:
    """Core seconds that the audio of one clip takes to make, about."""
    return audio.samples / audio.rate * AUDIO_S_PER_S


def stored_shape(audio: AudioSpec) -> tuple[int, int]:
    """Shape of the audio of one clip as the store counts it: (C, bytes of n samples)."""
    return audio.channels, audio.samples * SAMPLE_BYTES


def audio_bound(audio: AudioSpec) -> int:
    """Most bytes that the audio of one clip takes on disk."""
    return clip_bound(audio.channels * audio.samples * SAMPLE_BYTES, audio.channels)


def audio_keys(
    audio: AudioSpec,
    of_videos: Keys,
    video: NDArray[np.int64],
    frames: Callable[[NDArray[np.int64]], NDArray[np.int32]],
) -> NDArray[np.void]:
    """H(video's key, what audio, first frame) of each clip: (n,) of 16 bytes.

    Args:
        audio: what is wanted.
        of_videos: content keys of the videos.
        video: (n,) the number of each clip's video among them.
        frames: source frames of some clips, by their numbers.
    """
    out = np.empty(len(video), "V16")
    head = np.frombuffer(json.dumps(asdict(audio), sort_keys=True).encode(), np.uint8)
    video_keys = of_videos.packed
    for some in np.split(np.arange(len(video)), range(_BLOCK, len(video), _BLOCK)):
        parts = [
            video_keys[video[some]],
            np.broadcast_to(head, (len(some), len(head))),
            np.ascontiguousarray(frames(some)[:, :1].astype("<i4")).view(np.uint8),
        ]
        packed = np.concatenate(parts, axis=1)
        found = digests(hash_of("audio1"), memoryview(packed.tobytes()), packed.shape[1])
        out[some] = np.frombuffer(b"".join(found), "V16")
    return out


_BLOCK = 1 << 16
"""Clips whose keys are computed at once."""


def audio_recipe(audio: AudioSpec, key: str, first_frame: int, due: int) -> Recipe:
    """All that a worker needs to make the audio of one clip, but the video."""
    nothing, frames = np.zeros(0, np.int32), np.array([first_frame], np.int32)
    shape, bound = stored_shape(audio), audio_bound(audio)
    return Recipe(key, Program(()), nothing, frames, shape, due, bound, ObjectKind.AUDIO, audio=audio)
