"""Residents: a fixed part of what is read in every epoch, that stays in memory for as long as its generation (0054).

Which objects these are is decided by their keys, which are hashes, so they lie evenly over every epoch whatever its
order: each batch finds about as many. The trade-off: what would be needed next (Belady's rule) has more hits, but in
runs, and a device that has nothing to do in one part of an epoch is late in the other (Liquid §4.2).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from heapq import heapify, heappop, heappush
from itertools import islice

__all__ = ["WINDOW_BATCHES", "Residents", "room_for"]

WINDOW_BATCHES = 8
"""So many batches that come next have a place beside residents, where nobody says how much these may have."""


def room_for(given: int | None, memory_bytes: int, batch_bytes: int) -> int:
    """Bytes for residents.

    Args:
        given: as configured; None = what the window on what comes next does not need, at least half.
        memory_bytes: of the tier, that may be filled.
        batch_bytes: most bytes of one batch.
    """
    if given is not None:
        return min(given, memory_bytes)
    return memory_bytes - min(WINDOW_BATCHES * batch_bytes, memory_bytes // 2)


class Residents:
    """Which objects they are. Of one thread; others may look into `keys`.

    Each has a place from when it is chosen, so what is there and what is still to come never take more than the room.
    """

    def __init__(self, size_of: Callable[[str], int | None]) -> None:
        """None yet; ``size_of`` says what an object takes in memory, None where it is not there."""
        self._size_of = size_of
        self._sizes: dict[str, int] = {}
        """Of those that were chosen, bytes in memory, or most bytes as long as they are not there."""
        self.bytes = 0
        """Of all of these."""
        self._room = 0
        self._waiting: dict[int, deque[tuple[int, str, int]]] = {}
        """Bits of a size → those of about that size that are still to be chosen, the next one first: place in the
        order of choosing, key, most bytes."""
        self._absent: dict[str, None] = {}
        """Those of the chosen ones that have not been in memory yet, the one that is looked for next first."""

    @property
    def keys(self) -> Set[str]:
        """Of those that were chosen; it changes with them."""
        return self._sizes.keys()

    def choose(self, wanted: Sequence[Iterable[tuple[str, int]]], room: int) -> list[str]:
        """Choose anew. Those that are still read again stay, as far as there is room, and others join them.

        Args:
            wanted: objects that are read in each epoch, key and most bytes, of each generation; those that are
                wanted first come first.
            room: bytes for all of them.

        Returns:
            The keys of those that are none any more.
        """
        order: dict[str, int] = {}
        for objects in wanted if room else ():
            for key, most in sorted(objects):
                order.setdefault(key, most)
        stays_first = sorted(order.items(), key=lambda each: each[0] not in self._sizes)
        self._waiting, self._room, self.bytes = {}, room, 0
        for place, (key, most) in enumerate(stays_first):
            self._waiting.setdefault(most.bit_length(), deque()).append((place, key, most))
        self._absent.clear()
        before = set(self._sizes)
        before.difference_update(self._fill())
        for key in before:
            del self._sizes[key]
        return sorted(before)

    def arrived(self, key: str, size: int) -> None:
        """One is in memory now and takes so many bytes there: what it leaves of its place is for others."""
        self.bytes += size - self._sizes[key]
        self._sizes[key] = size
        self._absent.pop(key, None)
        self._fill()

    def absent(self, count: int) -> Iterator[str]:
        """Up to ``count`` of those that have not been in memory yet, each time the next ones."""
        for key in list(islice(self._absent, count)):
            if key in self._absent:
                self._absent[key] = self._absent.pop(key)
                yield key

    def _fill(self) -> list[str]:
        """Choose as many as have room; one that would not have any alone is passed over.

        One that has none just now waits, and lets only those of about its size wait behind it (less than twice as
        large, or as small): else one large object would leave room empty that many small ones could have.
        """
        chosen = []
        heads = [(waiting[0][0], bits) for bits, waiting in self._waiting.items()]
        heapify(heads)
        while heads:
            _, bits = heappop(heads)
            waiting = self._waiting[bits]
            _, key, most = waiting[0]
            there = self._size_of(key)
            size = most if there is None else there
            if self.bytes + size > self._room >= size:
                continue
            waiting.popleft()
            if waiting:
                heappush(heads, (waiting[0][0], bits))
            else:
                del self._waiting[bits]
            if size <= self._room:
                self._sizes[key] = size
                self.bytes += size
                chosen.append(key)
                if there is None:
                    self._absent[key] = None
        return chosen
