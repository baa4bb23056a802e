"""The memory tier as a worker sees it: attached when the first picture is read there, and let go with the job.

The owner holds what it told a job to read, so nothing moves meanwhile. The trade-off: each job attaches anew, which
takes as long as reading half a picture, and leaves nothing open in a worker that waits.
"""

import time
from collections.abc import Sequence

import numpy as np

from viewcache.errors import Broken, ChunkDamaged
from viewcache.store import MemoryHandle, Stored
from viewcache.store.arena import MemoryReader

__all__ = ["OwnersMemory"]


class OwnersMemory:
    """Reads out of the memory tier of the process that owns the cache. Of one thread."""

    def __init__(self, handle: MemoryHandle | None) -> None:
        """Attach to nothing yet.

        Args:
            handle: of the memory; None where the cache has no such tier.
        """
        self._handle = handle
        self._reader: MemoryReader | None = None
        self._refused = ""
        self.seconds = 0.0
        """Of a core, that reading took."""

    def read_into(self, stored: Stored, out: np.ndarray, chunks: Sequence[int]) -> None:
        """Read chunks of an object that lies there; see `viewcache.store.read_into`.

        Raises:
            ChunkDamaged: it is not there as it was, or the memory cannot be read: the picture is to be had elsewhere.
        """
        begun = time.thread_time()
        try:
            self._attached(stored).read(stored, out, chunks)
        finally:
            self.seconds += time.thread_time() - begun

    @property
    def is_refused(self) -> bool:
        """Whether the memory itself cannot be read here: then what lies there may be whole."""
        return bool(self._refused)

    def _attached(self, stored: Stored) -> MemoryReader:
        if self._reader is None and not self._refused:
            try:
                self._reader = None if self._handle is None else self._handle.attach()
            except Broken as error:
                self._refused = str(error)
        if self._reader is None:
            raise ChunkDamaged(f"memory://{stored.physical}: {self._refused or 'the cache has no memory tier'}")
        return self._reader

    def close(self) -> None:
        """Let go of the memory; harmless when it was done."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
