"""A worker's view of intermediates: what need not be decoded, read frame by frame (SAND §5.3).

Pictures that were packed in groups are unpacked forward, each group once where frames are asked for in `order`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.media.lossless import Decoder, decoder
from viewcache.materializer.media.lossy import LossyDecoder, Unconverted
from viewcache.materializer.planning.program import FrameStep, Program, grow
from viewcache.materializer.planning.recipe import Intermediate
from viewcache.materializer.workers.encoding import pictures_of
from viewcache.materializer.workers.job import Target
from viewcache.materializer.workers.lossy import lossy_step
from viewcache.materializer.workers.memory import OwnersMemory
from viewcache.store import Stored, aligned_empty, read_group, split_packets
from viewcache.store.codec import ENCODED
from viewcache.store.tier import MEMORY

__all__ = ["IntermediateReader", "operation_of", "root_of"]

Bytes = NDArray[np.uint8]
ReadInto = Callable[[Stored, Bytes, Sequence[int]], None]
"""Reads chunks of an object in the tier where it lies."""

_FIRST = np.zeros(1, np.int32)


def root_of(node: FrameStep | None) -> FrameStep | None:
    """What of a node's way may be kept: the first operation, with the loss behind it; None = the frame as decoded."""
    lossy = lossy_step(node)
    if lossy is not None:
        return lossy
    while node is not None and node.parent is not None:
        node = node.parent
    return node


class _Pixels:
    """One intermediate, a picture to a chunk."""

    def __init__(self, read_into: ReadInto, stored: Stored) -> None:
        self._read_into, self._stored = read_into, stored
        self._buffer = aligned_empty((1, *stored.shape[1:]))

    def read(self, row: int) -> Bytes:
        """A picture by its place in the object, valid until the next call."""
        self._read_into(self._stored, self._buffer, [row])
        picture: Bytes = self._buffer[0]
        return picture


class _OfPack:
    """One intermediate, a picture that lies with others in a pack."""

    def __init__(self, read_into: ReadInto, intermediate: Intermediate) -> None:
        self._read_into, self._stored, self._shape = read_into, intermediate.stored, intermediate.picture
        self._size = math.prod(self._shape)

    def read(self, row: int) -> Bytes:
        """The picture."""
        assert row == 0  # there is one
        if self._stored.shape[0] < self._size:
            raise ChunkDamaged(f"{self._stored.physical}: {self._stored.shape[0]} bytes are no {self._shape}")
        buffer = aligned_empty(self._stored.shape)
        self._read_into(self._stored, buffer, range(len(self._stored.table.offsets)))
        picture: Bytes = buffer[: self._size].reshape(self._shape)
        return picture


class _Groups:
    """One intermediate, a group of encoded pictures to a chunk. Those with a loss are not converted yet."""

    def __init__(self, read_into: ReadInto, stored: Stored, index: VideoIndex) -> None:
        self._read_into, self._stored = read_into, stored
        self._decoder: Decoder | LossyDecoder
        if stored.codec == LOSSY:
            self._decoder = LossyDecoder(stored.shape[-1], stored.shape[-2])
        else:
            native = len(stored.shape) == 2
            self._decoder = decoder(stored.codec, pictures_of(stored.shape, index, native=native))
        self._pictures: Iterator[Bytes | Unconverted] = iter(())
        self._row, self._end = -1, -1
        """The row that was read last, and where its group ends."""
        self._last: Bytes | Unconverted = np.empty(0, np.uint8)

    def read(self, row: int) -> Bytes | Unconverted:
        """A picture by its place in the object, valid until the next call."""
        rows = self._stored.chunk_rows
        if not self._row <= row < self._end:
            first = row // rows * rows
            self._row, self._end = -1, -1  # until all goes well
            packets = split_packets(read_group(self._read, self._stored, row // rows))
            end = min(first + rows, self._stored.shape[0])
            if len(packets) != end - first:
                raise ChunkDamaged(f"{self._stored.physical}: a group has {len(packets)} pictures, not {end - first}")
            self._pictures, self._row, self._end = self._decoder.group(packets), first - 1, end
        while self._row < row:
            self._last = next(self._pictures)
            self._row += 1
        last = self._last
        return last if isinstance(last, Unconverted) else last.reshape(self._stored.shape[1:])

    def _read(self, stored: Stored, out: Bytes) -> None:
        self._read_into(stored, out, [0])


class _Source:
    """One intermediate and where its frames are."""

    def __init__(self, intermediate: Intermediate, read_into: ReadInto, index: VideoIndex) -> None:
        self.intermediate = intermediate
        self._read_into, self._index = read_into, index
        frames = intermediate.frames
        self._order = _FIRST if len(frames) == 1 else np.argsort(frames, kind="stable")
        self._frames = frames[self._order]
        self._rows: dict[int, int] = {int(frames[0]): 0} if len(frames) == 1 else {}
        """Frames that were looked for, and are there."""
        self._reader: _Pixels | _OfPack | _Groups | None = None

    @property
    def is_encoded(self) -> bool:
        return self.intermediate.stored.codec in ENCODED

    def find(self, numbers: NDArray[np.int64]) -> None:
        """Look for frames, all at once: one by one it takes as long as reading a small picture."""
        if len(self._frames) <= 1:
            return
        at = np.minimum(self._frames.searchsorted(numbers), len(self._frames) - 1)
        there = self._frames[at] == numbers
        self._rows = dict(zip(numbers[there].tolist(), self._order[at[there]].tolist(), strict=True))

    def row(self, number: int) -> int | None:
        """Where a frame is that was looked for; None if it is not there."""
        return self._rows.get(number)

    def read(self, row: int) -> Bytes | Unconverted:
        if self._reader is None:
            stored = self.intermediate.stored
            if self.intermediate.picture:
                self._reader = _OfPack(self._read_into, self.intermediate)
            elif self.is_encoded:
                self._reader = _Groups(self._read_into, stored, self._index)
            else:
                self._reader = _Pixels(self._read_into, stored)
        return self._reader.read(row)


class IntermediateReader:
    """The intermediates of one job."""

    def __init__(
        self, target: Target, memory: OwnersMemory, intermediates: Iterable[Intermediate], index: VideoIndex
    ) -> None:
        """Read from where they lie; nothing is read yet.

        Args:
            target: has those of the local tier.
            memory: has the others.
            intermediates: of two copies of one object the first is read, and the other if that is damaged.
            index: of the video.
        """
        self._memory, self._memory_s = memory, memory.seconds
        self._sources: dict[FrameStep | None, list[_Source]] = {}
        for each in intermediates:
            read_into = memory.read_into if each.tier == MEMORY else target.read_into
            self._sources.setdefault(operation_of(each.program, each.row.tobytes()), []).append(
                _Source(each, read_into, index)
            )
        self.damaged: list[str] = []
        """Keys of intermediates whose copy in the local tier is damaged."""
        self.damaged_in_memory: list[str] = []
        """The same of copies in memory."""
        self._loaded: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """What was read, as `Report.frames` has it."""
        return {**self._loaded, "resident_us": round((self._memory.seconds - self._memory_s) * 1e6)}

    def order(self, due: Mapping[int, int]) -> list[int]:
        """Frames in the order in which to read them: soonest due first, and all of one group at once, forward.

        Args:
            due: each frame that is wanted, and its priority: lower first.
        """
        # All is made from decoded pictures where they are. Those of several operations are mostly kept alike.
        numbers = np.fromiter(due, np.int64, len(due))
        for source in (each for sources in self._sources.values() for each in sources):
            source.find(numbers)
        sources = self._sources.get(None) or next(iter(self._sources.values()), [])
        places: dict[int, tuple[int, int, int]] = {}
        for number in due:
            for place, source in enumerate(sources):
                row = source.row(number) if source.is_encoded else None
                if row is not None:
                    places[number] = place, row // source.intermediate.stored.chunk_rows, row
                    break
        first: dict[tuple[int, int], int] = {}
        for number, (place, which, _) in places.items():
            first[place, which] = min(due[number], first.get((place, which), due[number]))

        def urgency(number: int) -> tuple[int, int, int, int]:
            if number not in places:
                return due[number], -1, -1, number
            place, which, row = places[number]
            return first[place, which], place, which, row

        return sorted(due, key=urgency)

    def read(self, number: int, wanted: set[FrameStep | None]) -> dict[FrameStep | None, Bytes | Unconverted]:
        """One frame out of the intermediates; empty if it must be decoded.

        Args:
            number: of the source frame, one of those that were put in order.
            wanted: first operations on the ways of all that is made of it.

        Returns:
            Pictures by the operation that made them: uint8 (bytes,), the decoder's planes, under None, from which all
            can be made that has no loss; else (3,H,W) for each of ``wanted``. They are valid until the next call, but
            for what is still to be converted.
        """
        if self._sources.get(None):  # from which all can be made that has no loss
            wanted = {node if lossy_step(node) is not None else None for node in wanted}
        found: dict[FrameStep | None, Bytes | Unconverted] = {}
        for node in wanted:
            picture = self._one(number, node)
            if picture is None:
                return {}
            found[node] = picture
        return found

    def _one(self, number: int, node: FrameStep | None) -> Bytes | Unconverted | None:
        for source in self._sources.get(node, ()):
            row = source.row(number)
            if row is None:
                continue
            try:
                picture = source.read(row)
            except ChunkDamaged:
                if source.intermediate.tier != MEMORY:
                    self.damaged.append(source.intermediate.key)
                elif not self._memory.is_refused:
                    self.damaged_in_memory.append(source.intermediate.key)
                self._sources[node] = [each for each in self._sources[node] if each is not source]
                continue
            for what in ("loaded", "resident") if source.intermediate.tier == MEMORY else ("loaded",):
                self._loaded[what] += 1
                self._loaded[f"{what}_bytes"] += picture.size
            return picture
        return None


@lru_cache
def operation_of(program: Program, row: bytes) -> FrameStep | None:
    """What was done to pictures that are kept; those of all images of a block have been through the same.

    Args:
        program: of one operation at the most.
        row: int32, its numbers.
    """
    return grow(program, _FIRST, np.frombuffer(row, np.int32)).nodes[0]
