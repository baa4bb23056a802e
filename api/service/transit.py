"""Where the service puts what a client cannot read itself: clips of a bucket, and single frames, in shared memory.

Each stays until the client says that it has read it. The trade-off: these bytes are copied once more than those of the
local tier, which are read by who needs them.
"""

import threading
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Busy
from viewcache.store import ArrayMeta, ChunkTable, Stored
from viewcache.store.budget import Reservation
from viewcache.store.memory import MemoryTier
from viewcache.store.shard_writer import bound_bytes

__all__ = ["TRANSIT", "Transit"]

TRANSIT = "transit"
"""The name of the memory among the tiers that a client reads."""

_BOUNDLESS = 1 << 62

WAIT_S = 30.0
"""How long there is no room before the client is told so."""


class Transit:
    """Memory for objects on their way to clients. Thread-safe.

    What goes to a client at once is more than the budget only while nothing else is there, so that all of it can be
    read, and nobody who has a part of it waits for the rest.
    """

    def __init__(self, budget_bytes: int) -> None:
        """Make it, empty."""
        self._budget = budget_bytes
        self._tier = MemoryTier(budget_bytes, TRANSIT)
        self._tier.resize(_BOUNDLESS)
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
        metas = [ArrayMeta(each.shape, each.shape, "raw") for each in arrays]
        done: list[Stored] = []
        try:
            with ExitStack() as unused:
                keys, promised = self._promised(metas)
                for each in promised:
                    unused.enter_context(each)
                for array, meta, key, mine in zip(arrays, metas, keys, promised, strict=True):
                    written = self._tier.write(key, np.ascontiguousarray(array), meta)
                    mine.commit(written.bytes)
                    table = ChunkTable.from_bytes(written.table)
                    done.append(Stored(written.physical, meta.shape, meta.chunk[0], meta.codec, table))
        except BaseException:
            self.remove(done)
            raise
        return done

    def _promised(self, metas: Sequence[ArrayMeta]) -> tuple[list[str], list[Reservation]]:
        """Room for all of them, and a key for each."""
        with self._changed:
            keys = [f"{self._count + number:032x}" for number in range(1, len(metas) + 1)]
            self._count += len(metas)
            sizes = [bound_bytes(meta, key) for meta, key in zip(metas, keys, strict=True)]
            while (held := self._tier.counted_bytes) and held + sum(sizes) > self._budget:
                if not self._changed.wait(WAIT_S):
                    raise Busy(
                        f"no room for {sum(sizes)} bytes on their way to a client: others hold {held} bytes; let go of "
                        "batches that were read"
                    )
            promised = [self._tier.reserve(size) for size in sizes]
            return keys, [each for each in promised if each is not None]  # none is: it has no bound of its own

    def remove(self, objects: Sequence[Stored]) -> None:
        """The client has read them, or will not."""
        for each in objects:
            self._tier.delete(each.physical)
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Give all memory back."""
        self._tier.close()
