"""A worker's view of intermediates: what need not be decoded, read frame by frame (SAND §5.3)."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged
from viewcache.materializer.planning.program import FrameStep, grow
from viewcache.materializer.planning.recipe import Intermediate
from viewcache.materializer.workers.job import Target
from viewcache.store import aligned_empty

__all__ = ["IntermediateReader", "root_of"]


def root_of(node: FrameStep | None) -> FrameStep | None:
    """The first operation on the way to a node; None = the frame as decoded."""
    while node is not None and node.parent is not None:
        node = node.parent
    return node


class IntermediateReader:
    """The intermediates of one job."""

    def __init__(self, target: Target, intermediates: Iterable[Intermediate]) -> None:
        """Read from where they lie; nothing is read yet."""
        self._target = target
        self._intermediates = {_operation(intermediate): intermediate for intermediate in intermediates}
        self.damaged: list[str] = []
        """Keys of intermediates that could not be read."""
        self.loaded = 0
        """Frames."""
        self.loaded_bytes = 0
        self._buffers: dict[FrameStep | None, NDArray[np.uint8]] = {}

    def read(self, number: int, wanted: set[FrameStep | None]) -> dict[FrameStep | None, NDArray[np.uint8]]:
        """One frame out of the intermediates; empty if it must be decoded.

        Args:
            number: of the source frame.
            wanted: first operations on the ways of all that is made of it.

        Returns:
            Pictures by the operation that made them: uint8 (bytes,), the decoder's planes, under None, from which all
            can be made; else (3,H,W) for each of ``wanted``. They are valid until the next call.
        """
        if None in self._intermediates:
            wanted = {None}
        found: dict[FrameStep | None, NDArray[np.uint8]] = {}
        for node in wanted:
            picture = self._one(number, node)
            if picture is None:
                return {}
            found[node] = picture
        return found

    def _one(self, number: int, node: FrameStep | None) -> NDArray[np.uint8] | None:
        intermediate = self._intermediates.get(node)
        if intermediate is None:
            return None
        row = int(np.searchsorted(intermediate.frames, number))
        if row == len(intermediate.frames) or intermediate.frames[row] != number:
            return None
        shape = (1, *intermediate.stored.shape[1:])
        buffer = self._buffers.get(node)
        if buffer is None:
            buffer = self._buffers[node] = aligned_empty(shape)
        try:
            self._target.read_into(intermediate.stored, buffer, [row])
        except ChunkDamaged:
            self.damaged.append(intermediate.key)
            del self._intermediates[node]
            return None
        self.loaded += 1
        self.loaded_bytes += buffer.size
        picture: NDArray[np.uint8] = buffer[0]
        return picture


def _operation(intermediate: Intermediate) -> FrameStep | None:
    """What was done to its frames."""
    return grow(intermediate.program, intermediate.frames[:1], intermediate.row).nodes[0]
