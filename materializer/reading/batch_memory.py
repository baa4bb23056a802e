"""Memory of batches that loaders keep from one pass to the next: fresh memory costs more than reading into it.

It is given back with the loader, after the last pass that is expected, or when the cache is closed.
"""

from collections.abc import Callable
from weakref import WeakSet

from viewcache.materializer.reading.batch import Buffers

__all__ = ["BatchMemory", "IdleBuffers"]


class IdleBuffers:
    """Of one loader. Thread-safe: of two passes at once each has buffers of its own."""

    def __init__(self, make: Callable[[], Buffers], most: int) -> None:
        """Start without any; made by `BatchMemory.of` only."""
        self._make, self._most = make, most
        self._idle: list[Buffers] = []
        self._closed = False

    def take(self) -> Buffers:
        """Buffers that no other pass has."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def over(self, buffers: Buffers, *, is_last: bool) -> None:
        """A pass has ended: keep its memory until the next one begins, unless it was the last that is expected."""
        buffers.shrink(self._most)  # its loop may have held all of its batches
        self._idle[:] = [] if is_last else [buffers]
        if self._closed:  # looked at behind that: whichever of this and closing comes later clears
            self._idle.clear()

    def close(self) -> None:
        """Keep nothing any more."""
        self._closed = True
        self._idle.clear()


class BatchMemory:
    """Of all loaders of a cache."""

    def __init__(self) -> None:
        """Start with no loader."""
        self._loaders: WeakSet[IdleBuffers] = WeakSet()

    def of(self, make: Callable[[], Buffers], most: int) -> IdleBuffers:
        """For one more loader: ``make`` gives it new buffers, and ``most`` batches are under way in a pass."""
        idle = IdleBuffers(make, most)
        self._loaders.add(idle)
        return idle

    def close(self) -> None:
        """Give all of it back: the cache is closed."""
        for idle in list(self._loaders):
            idle.close()
