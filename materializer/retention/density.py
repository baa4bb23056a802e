"""How many bytes the packed pictures of one video take, beside what the ladder says of all videos of a cache.

A cartoon packs into a third of what grass and water take. What a video's own pictures took when some of them were
packed, for whatever object, says more of the others than any mean: a choice by the mean alone promises some videos too
little, so that what was encoded for them has no room, and values others wrongly.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.planning.ladder import Ladder, Rung
from viewcache.store.codec import ENCODED
from viewcache.store.codec_trial import Trial

__all__ = ["Densities", "Density", "DensityOf"]

SPREAD = 1.15
"""The next object may take so many times what the largest one took."""

ENOUGH_BYTES = 128 << 20
"""Raw bytes of a video that were packed before less is promised to the rest of it than to any video: it has still
scenes and busy ones, and a first object of the former says little of the latter."""


@dataclass(frozen=True, slots=True)
class Density:
    """Of one video's pictures, relative to what a rung says."""

    mean: float = 1.0
    """Bytes of all pictures that were packed."""
    most: float = 1.0
    """Of the object whose pictures took the most."""
    is_sure: bool = True
    """Whether so much was packed that the rest may be promised less than is usual."""

    def of(self, rung: Rung) -> Rung:
        """The same rung for pictures of this video; only groups of pictures are packed by what is in them."""
        if not rung.lead:
            return rung
        packed, margin = min(1.0, rung.packed * self.mean), max(rung.margin, SPREAD * self.most / self.mean)
        if not self.is_sure:
            margin = max(margin, rung.margin * rung.packed / packed)
        return replace(rung, packed=packed, margin=margin)


DensityOf = Callable[[str, str, int], Density]
"""Tells it by the content key of the video, the codec, and the bytes of a picture."""

USUAL = Density()
"""Of a video of which nothing is known."""


@dataclass(slots=True)
class _Packed:
    """Pictures of one size of a video, as one codec packed them."""

    raw_bytes: int = 0
    packed_bytes: int = 0
    most: float = 0.0
    """Packed bytes of one raw byte, of the object that took the most."""


class Densities:
    """What was seen of each video since the cache was opened. Thread-safe."""

    def __init__(self) -> None:
        """Nothing was packed yet."""
        self._lock = threading.Lock()
        self._packed: defaultdict[str, dict[tuple[str, int], _Packed]] = defaultdict(dict)
        self._failures: Counter[str] = Counter()

    def note(self, video: str, trials: Iterable[Trial]) -> None:
        """Take in what packing some of a video's pictures took; ``video`` is its content key."""
        sizes: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for each in trials:
            if each.codec in ENCODED and each.raw_bytes:
                sizes[each.codec, each.chunk_bytes].append((each.raw_bytes, each.packed_bytes))
        with self._lock:
            for (codec, picture_bytes), objects in sizes.items():
                if codec == LOSSY:  # of these each group is told
                    objects = [(sum(raw for raw, _ in objects), sum(packed for _, packed in objects))]
                known = self._packed[video].setdefault((codec, picture_bytes), _Packed())
                for raw, packed in objects:
                    known.raw_bytes += raw
                    known.packed_bytes += packed
                    known.most = max(known.most, packed / raw)

    def failed(self, videos: Iterable[str]) -> None:
        """Take note that something of some videos could not be made."""
        with self._lock:
            self._failures.update(videos)

    def failures(self, video: str) -> int:
        """How often that was so."""
        with self._lock:
            return self._failures[video]

    def forget(self, videos: Iterable[str]) -> None:
        """Videos are gone."""
        with self._lock:
            for video in videos:
                self._packed.pop(video, None)
                self._failures.pop(video, None)

    def known(self, videos: Sequence[str]) -> list[tuple[int, str]]:
        """Those videos, with their places among some, of which something was packed."""
        with self._lock:
            return [(place, video) for place, video in enumerate(videos) if video in self._packed]

    def of(self, ladder: Ladder, video: str, codec: str, picture_bytes: int) -> Density:
        """How densely a codec packs a video's pictures of a size.

        Where it has packed none of these, other codecs count, and where nothing has, pictures of other sizes do.
        """
        with self._lock:
            if video not in self._packed:
                return USUAL
            packed = self._packed[video].items()
            known = {at: each for at, each in packed if (at[0] == LOSSY) == (codec == LOSSY)}
            alike = {at: each for at, each in known.items() if at[1] == picture_bytes} or known
            mine = {at: each for at, each in alike.items() if at[0] == codec} or alike
            seen = [(each, ladder.rung(name, size).packed) for (name, size), each in mine.items()]
            expected = sum(each.raw_bytes * usual for each, usual in seen)
            if not expected:
                return USUAL
            mean = sum(each.packed_bytes for each, _ in seen) / expected
            is_sure = sum(each.raw_bytes for each, _ in seen) >= ENOUGH_BYTES
            return Density(mean, max(each.most / usual for each, usual in seen), is_sure)
