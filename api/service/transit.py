"""Where the service puts what a client cannot read itself: clips of a bucket, and single frames, in shared memory.

Each stays until the client says that it has read it. The trade-off: these bytes are copied once more than those of the
local tier, which are read by who needs them.
"""

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Busy
from viewcache.store import ArrayMeta, ChunkTable, Stored
from viewcache.store.memory import MemoryTier
from viewcache.store.shard_writer import bound_bytes

__all__ = ["TRANSIT", "Transit"]

TRANSIT = "transit"
"""The name of the memory among the tiers that a client reads."""

WAIT_S = 30.0
"""How long there is no room before the client is told so."""


class Transit:
    """Memory for objects on their way to clients. Thread-safe."""

    def __init__(self, budget_bytes: int) -> None:
        """Make it, empty."""
        self._tier = MemoryTier(budget_bytes, TRANSIT)
        self._changed = threading.Condition()
        self._count = 0

    def descriptor(self) -> int:
        """A new descriptor that can only read; the caller closes it."""
        return self._tier.descriptor()

    def put(self, arrays: Sequence[NDArray[np.uint8]]) -> list[Stored]:
        """Put arrays there, each an object with a place of its own.

        Raises:
            Busy: other clients hold all the room for too long.
            Full: the machine has no such memory left.
        """
        done: list[Stored] = []
        try:
            done.extend(map(self._one, arrays))
        except BaseException:
            self.remove(done)
            raise
        return done

    def _one(self, array: NDArray[np.uint8]) -> Stored:
        meta = ArrayMeta(array.shape, array.shape, "raw")
        with self._changed:
            self._count += 1
            key = f"{self._count:032x}"
            reserved = self._tier.reserve(bound_bytes(meta, key))
            while reserved is None:
                if not self._changed.wait(WAIT_S):
                    raise Busy(
                        f"no room for {array.nbytes} bytes on their way to a client: others hold "
                        f"{self._tier.used_bytes} bytes; let go of batches that were read"
                    )
                reserved = self._tier.reserve(bound_bytes(meta, key))
        with reserved:
            written = self._tier.write(key, np.ascontiguousarray(array), meta)
            reserved.commit(written.bytes)
        return Stored(written.physical, meta.shape, meta.chunk[0], meta.codec, ChunkTable.from_bytes(written.table))

    def remove(self, objects: Sequence[Stored]) -> None:
        """The client has read them, or will not."""
        for each in objects:
            self._tier.delete(each.physical)
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Give all memory back."""
        self._tier.close()
