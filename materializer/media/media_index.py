"""What planning knows of a source, whatever its bytes are: its frames, and what getting some of them takes.

A video has packets and groups of pictures; a folder of pictures or a lossless copy would have one packet a frame. Who
plans, weighs and simulates goes by this alone, so that another kind of source is one class and no change to the plan.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["DecodeCost", "MediaIndex"]


class DecodeCost(NamedTuple):
    """What some frames take to decode."""

    packets: int
    """The fewest that a decoder must be fed."""
    pixels: int
    """Of all the pictures in those packets, wanted or not."""


class MediaIndex(Protocol):
    """The frames of one source, and in which of its packets they are.

    A packet is the smallest piece of a source that is read and decoded as one. Packets are numbered in decode order.
    """

    @property
    def frames(self) -> int:
        """How many frames it has."""
        ...

    @property
    def shown_size(self) -> tuple[int, int]:
        """(height, width) in pixels, as shown."""
        ...

    @property
    def frame_pixels(self) -> int:
        """Pixels of one decoded picture."""
        ...

    @property
    def native_bytes(self) -> int | None:
        """Bytes of one frame in the decoder's own planes; None if these are not kept."""
        ...

    @property
    def packet_bytes(self) -> NDArray[np.int32]:
        """(packets,) the size of each packet."""
        ...

    @property
    def starts(self) -> NDArray[np.int32]:
        """(frames,) the packet at which decoding must start to get a frame."""
        ...

    @property
    def ends(self) -> NDArray[np.int32]:
        """(frames,) the last packet that is needed for a frame: the one that holds it."""
        ...

    def cost(self, frames: np.ndarray) -> DecodeCost:
        """What some frames (numbers, sorted and unique) take when they are decoded together."""
        ...

    def span_packets(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Packets from where decoding starts for each ``first`` frame to its ``last``: an estimate without the gaps."""
        ...
