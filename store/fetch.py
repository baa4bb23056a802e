"""What a remote store sent, checked: wrong on the way, or wrong where it lies?

Both look alike, so what fails a check is asked for again. The trade-off: real damage costs a second request, and in
return a network that changes bytes never makes a good object look damaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged, StoreUnreachable
from viewcache.store.checksum import crc32c
from viewcache.store.shard_reader import Stored, read_chunks
from viewcache.store.spans import fill_from

__all__ = ["Wanted", "came_again"]

Bytes = NDArray[np.uint8]

_FETCHES = 8  # of bytes that came wrong in another way each time


@dataclass(slots=True)
class Wanted:
    """One object that is being read."""

    position: int
    stored: Stored
    picks: Sequence[int]
    flat: Bytes
    spans: list[tuple[int, int]]
    seen: set[tuple[int, ...]] = field(default_factory=set)
    """Checksums of what came and was wrong."""

    def take(self, path: str, parts: Sequence[bytes | None]) -> bool:
        """Check what came into its place; False where it is wrong in a new way, so that it is to be brought again.

        Raises:
            ChunkDamaged: a range is missing, or the same wrong bytes came before.
            StoreUnreachable: what comes is wrong in a new way each time.
        """
        held = [part for part in parts if part is not None]
        if len(held) < len(parts):
            raise ChunkDamaged(f"{path} is missing")
        starts = [start for start, _ in self.spans]
        try:
            read_chunks(fill_from(path, list(zip(starts, held, strict=True))), path, self.stored, self.picks, self.flat)
        except ChunkDamaged:
            if came_again(path, tuple(map(crc32c, held)), self.seen):
                raise
            return False
        return True


def came_again(path: str, came: tuple[int, ...], seen: set[tuple[int, ...]]) -> bool:
    """Whether these wrong bytes came before, which makes them damage; else they are noted, as the network's doing.

    Raises:
        StoreUnreachable: too much came wrong, each in its own way.
    """
    if came in seen:
        return True
    seen.add(came)
    if len(seen) > _FETCHES:
        raise StoreUnreachable(
            f"{path} came {len(seen)} times and was wrong in a new way each time; something between this machine and "
            f"the service changes bytes: use https, and check the network"
        )
    return False
