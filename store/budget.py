"""The law that every tier keeps: used plus reserved bytes never exceed its budget.

Bytes are counted, not asked of a file system or a service. The trade-off: a decision costs nothing and foreign bytes
do not matter, but the owner must tell of every write and deletion; `settle` corrects the count at start.
"""

import os
import threading
from types import TracebackType
from typing import Self

from viewcache.errors import Broken, Misuse, WrongProcess

__all__ = ["Budget", "Reservation"]


class Budget:
    """The count of one tier. Thread-safe; refuses to work in a forked child, whose count would drift."""

    def __init__(self, url: str, budget_bytes: int, unit: int = 1):
        """Start with nothing used.

        Args:
            url: of the tier, as configured; for messages.
            budget_bytes: for objects and unfinished ones together.
            unit: bytes in which the tier gives out room (a page, where objects lie in pages): what is reserved is
                rounded up to it.
        """
        self.url = url
        self.budget_bytes = budget_bytes
        self._unit = unit
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._used = 0
        self._reserved = 0
        self._counting = False
        self._failure: Exception | None = None

    @property
    def used_bytes(self) -> int:
        """Bytes of the objects that lie here, as counted."""
        return self._used

    @property
    def reserved_bytes(self) -> int:
        """Bytes promised to writes in progress."""
        return self._reserved

    @property
    def counted_bytes(self) -> int:
        """Bytes of objects and promised ones together, of one moment."""
        with self._lock:
            return self._used + self._reserved

    @property
    def free_bytes(self) -> int:
        """What `reserve` would still grant."""
        return 0 if self._counting else self._asked(max(0, self.budget_bytes - self.counted_bytes))

    def resize(self, budget_bytes: int) -> None:
        """Set the bytes for objects and unfinished ones together; what is over them stays until it is evicted."""
        self.budget_bytes = budget_bytes

    def reserve(self, size: int) -> "Reservation | None":
        """Promise ``size`` bytes (see `bound_bytes`), or None where the budget has no room: then evict, or wait.

        Nothing is promised while it is not known how much lies here.
        """
        self._check_process()
        if size < 1:
            raise Misuse(f"a reservation of {size} bytes makes no sense; reserve what bound_bytes says")
        size = self._rounded(size)
        with self._lock:
            if self._counting or self._used + self._reserved + size > self.budget_bytes:
                return None
            self._reserved += size
        return Reservation(self, size)

    def settle(self, used_bytes: int) -> None:
        """Set the count to what was measured (by `Tier.measure`, or by the catalog after a clean end)."""
        self._check_process()
        with self._lock:
            self._used = used_bytes

    def begin_count(self) -> None:
        """What lies here is being counted, and may be more than `used_bytes` until that is over."""
        self._counting = True

    def add_found(self, size: int) -> None:
        """Count bytes of objects that were found; less than 0 of those that were counted and are not there."""
        with self._lock:
            self._used = max(0, self._used + size)

    def end_count(self, failure: Exception | None = None) -> None:
        """All that lies here is counted, or it never will be because of ``failure``."""
        self._failure = failure
        self._counting = failure is not None

    def is_counted(self) -> bool:
        """Whether all that lies here is counted.

        Raises:
            Broken: it cannot be.
        """
        if self._failure is not None:
            raise Broken(f"cannot count what lies in {self.url}: {self._failure}; open the cache again")
        return not self._counting

    def _give_back(self, size: int) -> None:
        """Bytes of a deleted object."""
        with self._lock:
            self._used = max(0, self._used - size)

    def _rounded(self, size: int) -> int:
        """What is promised to who asks for so many bytes."""
        return -(-size // self._unit) * self._unit

    def _asked(self, free: int) -> int:
        """The most that can be asked for of so many free bytes."""
        return free - free % self._unit

    def _end(self, reservation: "Reservation", written: int) -> None:
        self._check_process()
        with self._lock:
            reserved, reservation.bytes = reservation.bytes, 0
            self._reserved -= reserved
            self._used += written
        if written > reserved:
            raise Misuse(f"{written} bytes were written under a reservation of {reserved}; reserve bound_bytes(meta)")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise WrongProcess(f"the store {self.url} was opened in process {self._pid}; open it in this one")


class Reservation:
    """Bytes promised to one write; leaving the ``with`` block without `commit` gives them back."""

    def __init__(self, budget: Budget, reserved: int):
        """Made by `Budget.reserve` only."""
        self._budget, self.bytes = budget, reserved

    def __enter__(self) -> Self:
        """The reservation itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what was not committed."""
        self.release()

    def commit(self, written: int) -> None:
        """Turn the promise into ``written`` used bytes (0 where the object was there before) and end it.

        Raises:
            Misuse: more was written than reserved (it is counted nevertheless), or the reservation has ended.
        """
        self._budget._end(self, written)

    def release(self) -> None:
        """End the promise with nothing written; harmless when it has ended."""
        if self.bytes:
            self._budget._end(self, 0)
