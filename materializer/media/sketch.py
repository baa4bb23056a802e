"""What planning makes of a video whose packets nobody has looked at yet: groups of pictures of one size.

Estimates of bytes and packets decide what is kept and what is made first, never what a view shows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.media.media_index import DecodeCost
from viewcache.materializer.media.planes import frame_bytes

__all__ = ["SketchedIndex", "Sketches"]


@dataclass(frozen=True, slots=True)
class Sketches:
    """Many videos as columns, each with evenly spaced key frames: V of them."""

    frames: NDArray[np.int64]
    """(V,)"""
    group: NDArray[np.int64]
    """(V,) packets from one key frame to the next."""
    pixels: NDArray[np.int64]
    """(V,) of one decoded picture."""
    native_bytes: NDArray[np.int64]
    """(V,) of one frame in the decoder's own planes; -1 if these are not kept."""
    packet_bytes: NDArray[np.float64]
    """(V,) mean size of a packet."""

    def __getitem__(self, part: slice) -> "Sketches":
        """Some of the videos."""
        return Sketches(
            self.frames[part], self.group[part], self.pixels[part], self.native_bytes[part], self.packet_bytes[part]
        )

    def packets(self, frames: NDArray[np.int32], bounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """(V,) fewest packets for the distinct, sorted frames ``bounds[v]`` to ``bounds[v + 1]`` of each video v."""
        video = np.repeat(np.arange(len(self.group)), np.diff(bounds))
        size = self.group[video]
        number = frames // size
        last = np.ones(len(frames), bool)  # of each group of pictures
        last[:-1] = (number[1:] != number[:-1]) | (video[1:] != video[:-1])
        fed = (frames - number * size + 1)[last]
        return np.asarray(np.bincount(video[last], fed, len(self.group)), np.float64)

    def span_packets(
        self, video: NDArray[np.int64], first: NDArray[np.int32], last: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """(V,) packets of all spans of each video, from where decoding starts for ``first`` to ``last``."""
        size = self.group[video]
        return np.asarray(np.bincount(video, last - first // size * size + 1, len(self.group)), np.float64)


@dataclass(frozen=True, slots=True)
class SketchedIndex:
    """A `MediaIndex` by what a header says."""

    frames: int
    shown_size: tuple[int, int]
    """(height, width) in pixels, rotation applied."""
    coded_size: tuple[int, int]
    """(height, width) in pixels."""
    pix_fmt: str
    keyframes: int
    """At least 1; they are taken to be evenly spaced."""
    file_bytes: int

    @property
    def frame_pixels(self) -> int:
        """Pixels of one decoded picture."""
        return self.shown_size[0] * self.shown_size[1]

    @property
    def native_bytes(self) -> int | None:
        """Bytes of one frame in the decoder's own planes; None if these are not kept."""
        return frame_bytes(self.pix_fmt, self.coded_size[1], self.coded_size[0])

    @property
    def packet_bytes(self) -> NDArray[np.int32]:
        """(packets,) the size of each packet."""
        return np.full(self.frames, self.file_bytes // max(1, self.frames), np.int32)

    @property
    def group(self) -> int:
        """Packets from one key frame to the next."""
        return -(-self.frames // self.keyframes)

    @property
    def starts(self) -> NDArray[np.int32]:
        """(frames,) the packet at which decoding must start to get a frame."""
        return np.arange(self.frames, dtype=np.int32) // self.group * self.group

    @property
    def ends(self) -> NDArray[np.int32]:
        """(frames,) the last packet that is needed for a frame."""
        return np.arange(self.frames, dtype=np.int32)

    def cost(self, frames: np.ndarray) -> DecodeCost:
        """What some frames (numbers, sorted and unique) take when they are decoded together."""
        if not len(frames):
            return DecodeCost(0, 0)
        group = frames // self.group
        last = np.append(group[1:] != group[:-1], True)  # of each group of pictures
        packets = int((frames[last] - group[last] * self.group).sum() + last.sum())
        return DecodeCost(packets, packets * self.frame_pixels)

    def span_packets(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Packets from where decoding starts for each ``first`` frame to its ``last``."""
        return np.asarray(last - first // self.group * self.group + 1)
