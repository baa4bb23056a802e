"""How well objects pack, as far as samples have told, and when another sample may be taken.

A sample costs as much as storing some objects raw, so not each object can have one: of what is stored one byte in some
hundred is sampled. Of a video nothing is known of, the first object is; what lies in between takes the ratio of the
video's others. The trade-off: a video that begins otherwise than it goes on is seen late.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from viewcache.store.codec_trial import LEAST_SAMPLE, SHARE, Trial, sample_bytes

__all__ = ["Ratios"]

LEAST_RATIO = 0.2
"""So much a codec is taken to leave of an object at least, until enough were seen."""

ENOUGH = 16
"""Objects."""

AT_FIRST = 8 * LEAST_SAMPLE
"""Bytes that may be sampled before anything was stored: about a millisecond of a core. No more is ever saved up."""

VIDEOS = 1 << 16
"""Of so many it is remembered."""

Place = tuple[str, str, int]
"""Content key of a video, codec, and the logarithm to base 2 of a chunk's bytes, rounded down."""


class Ratios:
    """Of one tier. Thread-safe."""

    def __init__(self) -> None:
        """Nothing was seen, and the first objects may be sampled."""
        self._lock = threading.Lock()
        self._purse = float(AT_FIRST)
        self._of: OrderedDict[Place, float] = OrderedDict()
        self._awaited: set[tuple[str, int]] = set()
        """Videos of which an object with such chunks is being sampled for the first time."""
        self._least: dict[tuple[str, int], tuple[int, float]] = {}
        """How many objects were seen, and the smallest part that was left of one."""

    def note(self, video: str, trials: Iterable[Trial]) -> None:
        """Take in what packing some of a video has told.

        Args:
            video: its content key; empty for what has no others like it.
            trials: of codecs of pixels.
        """
        with self._lock:
            for each in trials:
                place = video, each.codec, each.chunk_bytes.bit_length() - 1
                ratio = each.packed_bytes / each.raw_bytes
                if video:
                    self._awaited.discard((video, place[2]))
                    known = self._of.pop(place, ratio)
                    self._of[place] = (known + ratio) / 2  # the newest counts as much as all before
                count, least = self._least.get(place[1:], (0, ratio))
                self._least[place[1:]] = count + 1, min(least, ratio)
            while len(self._of) > VIDEOS:
                self._of.popitem(last=False)

    def least(self, codec: str, bucket: int) -> float:
        """The smallest part of an object that a codec has left, or may leave as long as few were seen."""
        with self._lock:
            count, least = self._least.get((codec, bucket), (0, LEAST_RATIO))
            return least if count >= ENOUGH else min(least, LEAST_RATIO)

    def find(self, video: str, codec: str, bucket: int) -> float | None:
        """The part that a codec leaves of objects of a video; None if none was seen."""
        with self._lock:
            return self._of.get((video, codec, bucket))

    def wait_for(self, video: str, bucket: int) -> None:
        """An object of a video will be sampled, and `note` will be told; of what has no others nobody waits for it."""
        with self._lock:
            if video and len(self._awaited) < VIDEOS:
                self._awaited.add((video, bucket))

    def is_awaited(self, video: str, bucket: int) -> bool:
        """Whether an object of a video was to be sampled, and nothing was told of that yet."""
        with self._lock:
            return (video, bucket) in self._awaited

    def stores(self, size: int) -> None:
        """An object of so many raw bytes is stored: that allows for a part of a sample."""
        with self._lock:
            self._purse = min(AT_FIRST, self._purse + size / SHARE)

    def may_sample(self, size: int, *, seen: bool) -> bool:
        """Whether an object of so many raw bytes may be sampled; if so, that is counted.

        ``seen``: others of its video were. Then it may only if much is left for those of which nothing is known.
        """
        need = sample_bytes(size)
        with self._lock:
            if self._purse < need + (AT_FIRST * 3 // 4 if seen else 0):
                return False
            self._purse -= need
            return True
