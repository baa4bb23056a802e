"""Blocks: consecutive pictures of one batch that are made, stored and read as one object.

A picture is small and there are many: an object for each would cost more than decoding it does. So the clips of images
are parts of blocks, each with its own checksum, and readers that want some of a block read these parts alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.keys import digests, hash_of

__all__ = ["Blocks", "block_keys", "blocks_of", "pictures_in_block"]

MOST_BYTES = 16 << 20
"""Of a block's pixels."""
MOST_PICTURES = 64


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which block each row of a plan is in."""

    number: NDArray[np.int64]
    """(n,) from 0 on."""
    part: NDArray[np.int64]
    """(n,) place of the row in its block."""
    first: NDArray[np.int64]
    """(blocks + 1,) the row that each block begins with, and the number of rows."""

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.first) - 1

    @property
    def most(self) -> int:
        """Most rows of a block."""
        return int(np.diff(self.first).max())

    def rows(self, row: int) -> range:
        """All rows of the block that a row is in."""
        number = int(self.number[row])
        return range(int(self.first[number]), int(self.first[number + 1]))

    def whole(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of all blocks that some rows are in, sorted."""
        numbers = np.unique(self.number[rows])
        return np.flatnonzero(np.isin(self.number, numbers))


def pictures_in_block(pictures: int, picture_bytes: int) -> int:
    """How many pictures a block has: a batch has a whole number of blocks.

    Args:
        pictures: of a batch.
        picture_bytes: of one picture.
    """
    most = max(1, min(MOST_PICTURES, MOST_BYTES // picture_bytes))
    return max(each for each in range(1, most + 1) if pictures % each == 0)


def blocks_of(batch: NDArray[np.int64], pictures: int) -> Blocks:
    """Part the rows of a plan into blocks; the last one of a short batch may be shorter.

    Args:
        batch: (n,) of each row; rows of one batch follow one another.
        pictures: of a block.
    """
    rows = np.arange(len(batch))
    begins = np.concatenate([[True], batch[1:] != batch[:-1]])
    place = rows - np.maximum.accumulate(np.where(begins, rows, 0))
    part = place % pictures
    first = np.flatnonzero(part == 0)
    return Blocks(np.cumsum(part == 0) - 1, part, np.append(first, len(batch)))


def block_keys(parts: NDArray[np.void], blocks: Blocks) -> NDArray[np.void]:
    """Content keys of the blocks that rows are in, (n,) of 16 bytes, from those of the rows' own pictures."""
    of_blocks = np.empty(len(blocks), "V16")
    lengths = np.diff(blocks.first)
    for length in np.unique(lengths).tolist():
        numbers = np.flatnonzero(lengths == length)
        rows = blocks.first[numbers][:, None] + np.arange(length)
        data = memoryview(parts[rows].tobytes())
        of_blocks[numbers] = np.frombuffer(b"".join(digests(hash_of("block1"), data, 16 * length)), "V16")
    return of_blocks[blocks.number]
