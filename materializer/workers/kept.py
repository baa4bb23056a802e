"""A worker's view of kept pictures: what need not be decoded, read frame by frame (SAND §5.3)."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged
from viewcache.materializer.planning.program import Node, grow
from viewcache.materializer.planning.recipe import Base
from viewcache.store import aligned_empty, read_into

__all__ = ["KeptPictures", "root_of"]


def root_of(node: Node | None) -> Node | None:
    """The first operation on the way to a node; None = the frame as decoded."""
    while node is not None and node.parent is not None:
        node = node.parent
    return node


class KeptPictures:
    """The bases of one job."""

    def __init__(self, root: str, bases: Iterable[Base]) -> None:
        """Read from the store at ``root``; nothing is read yet."""
        self._root = root
        self._bases = {_operation(base): base for base in bases}
        self.damaged: list[str] = []
        """Keys of bases that could not be read."""
        self.loaded = 0
        """Frames."""
        self.loaded_bytes = 0
        self._buffers: dict[Node | None, NDArray[np.uint8]] = {}

    def read(self, number: int, wanted: set[Node | None]) -> dict[Node | None, NDArray[np.uint8]]:
        """One frame out of the bases; empty if it must be decoded.

        Args:
            number: of the source frame.
            wanted: first operations on the ways of all that is made of it.

        Returns:
            Pictures by the operation that made them: uint8 (bytes,), the decoder's planes, under None, from which all
            can be made; else (3,H,W) for each of ``wanted``. They are valid until the next call.
        """
        if None in self._bases:
            wanted = {None}
        found: dict[Node | None, NDArray[np.uint8]] = {}
        for node in wanted:
            picture = self._one(number, node)
            if picture is None:
                return {}
            found[node] = picture
        return found

    def _one(self, number: int, node: Node | None) -> NDArray[np.uint8] | None:
        base = self._bases.get(node)
        if base is None:
            return None
        row = int(np.searchsorted(base.frames, number))
        if row == len(base.frames) or base.frames[row] != number:
            return None
        shape = (1, *base.stored.shape[1:])
        buffer = self._buffers.get(node)
        if buffer is None:
            buffer = self._buffers[node] = aligned_empty(shape)
        try:
            read_into(self._root, base.stored, buffer, [row])
        except ChunkDamaged:
            self.damaged.append(base.key)
            del self._bases[node]
            return None
        self.loaded += 1
        self.loaded_bytes += buffer.size
        picture: NDArray[np.uint8] = buffer[0]
        return picture


def _operation(base: Base) -> Node | None:
    """What was done to its frames."""
    return grow(base.program, base.frames[:1], base.row).nodes[0]
