"""Reading objects by descriptors that the owner of a store has handed over: of its folder and of its memories.

No path is needed, so this works where the folder is not mounted; and an open descriptor keeps what it leads to.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged, Closed
from viewcache.store.arena import MemoryReader
from viewcache.store.reader import read_slots
from viewcache.store.shard_reader import Stored
from viewcache.store.tier import LOCAL

__all__ = ["ClientTiers", "Placed", "Slots", "TierRead"]

Slots = NDArray[np.uint8] | Sequence[NDArray[np.uint8]]
"""One buffer with a slot for each object, or a buffer each."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An object and the tier that it is read from."""

    tier: str
    stored: Stored


@dataclass(frozen=True, slots=True)
class TierRead:
    """What reading some objects of one tier took."""

    tier: str
    codec: str
    sizes: tuple[int, ...]
    """Raw bytes of each."""
    seconds: float


class ClientTiers:
    """The tiers of a store that this process reads itself. Thread-safe."""

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        """Take descriptors over.

        Args:
            descriptors: tier → of the store's folder, or of a memory.
        """
        self._folder = descriptors.get(LOCAL, -1)
        self._memories = {name: MemoryReader(fd, "rb") for name, fd in descriptors.items() if name != LOCAL}

    def read_slots(self, placed: Sequence[Placed], out: Slots) -> tuple[list[int], list[TierRead]]:
        """Read objects into consecutive slots of one buffer, or a buffer each.

        Returns:
            Positions of those that were not as promised, and what reading took.
        """
        damaged: list[int] = []
        took: list[TierRead] = []
        groups: dict[tuple[str, str, bool], list[int]] = {}
        for position, each in enumerate(placed):
            if each.stored.shape == out[position].shape:
                groups.setdefault((each.tier, each.stored.codec, each.stored.is_blank), []).append(position)
            else:
                damaged.append(position)
        for (tier, codec, blank), positions in groups.items():
            begun = time.thread_time()  # all of them are memory or a local file
            slots = out if len(positions) == len(out) else [out[position] for position in positions]
            wrong = self._read(tier, [placed[position].stored for position in positions], slots)
            seconds = time.thread_time() - begun
            if not blank:
                took.append(TierRead(tier, codec, tuple(out[position].nbytes for position in positions), seconds))
            damaged += [positions[k] for k in wrong]
        return sorted(damaged), took

    def _read(self, tier: str, objects: Sequence[Stored], slots: Slots) -> dict[int, ChunkDamaged]:
        if tier == LOCAL:
            return read_slots(self._folder, objects, slots)
        try:
            return self._memories[tier].read_slots(objects, slots)
        except Closed:  # another thread has noticed that the session is over: it is asked for again, as of a folder
            return {k: ChunkDamaged(f"the memory of {tier!r} was closed") for k in range(len(objects))}

    def close(self) -> None:
        """Close the descriptors; harmless when it was done."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1
        for memory in self._memories.values():
            memory.close()
