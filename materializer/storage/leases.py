"""Leases: objects that somebody outside a read keeps from leaving, until a given time.

A reader of this process holds what it reads by count and lets go by itself. A lease is for whoever may vanish without
letting go; it ends by the clock. Time is monotonic, so that setting the machine's clock neither ends nor prolongs it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = ["Leases"]


@dataclass(slots=True)
class _Lease:
    until: float
    """By the clock."""
    ids: dict[str, int] = field(default_factory=dict)
    """Key → object id."""


class Leases:
    """One lease for each holder; not thread-safe, the ledger's lock guards it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with none.

        Args:
            clock: seconds that only grow.
        """
        self._clock = clock
        self._leases: dict[str, _Lease] = {}

    def take(self, holder: str, ids: Iterable[tuple[str, int]], seconds: float) -> None:
        """Keep objects, (key, id), beside what the holder has already; all of it for so many seconds from now."""
        lease = self._leases.setdefault(holder, _Lease(0.0))
        lease.until = self._clock() + seconds
        lease.ids.update(ids)

    def renew(self, holder: str, seconds: float) -> tuple[int, ...] | None:
        """Keep a holder's objects for so many seconds from now; their ids, or None if its lease is over."""
        lease = self._leases.get(holder)
        if lease is None or lease.until <= self._clock():
            return None
        lease.until = self._clock() + seconds
        return tuple(lease.ids.values())

    def end(self, holder: str) -> tuple[int, ...]:
        """Let go of all that a holder has; the objects' ids."""
        lease = self._leases.pop(holder, None)
        return tuple(lease.ids.values()) if lease is not None else ()

    def expire(self) -> dict[str, tuple[int, ...]]:
        """End the leases whose time is over; the objects' ids by holder."""
        now = self._clock()
        over = [holder for holder, lease in self._leases.items() if lease.until <= now]
        return {holder: self.end(holder) for holder in over}

    def keys(self) -> set[str]:
        """What is leased now."""
        now = self._clock()
        return {key for lease in self._leases.values() if lease.until > now for key in lease.ids}
