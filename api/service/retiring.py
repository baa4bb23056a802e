"""Jobs whose processes have all ended: their tasks are closed, so that a search of hundreds of trials fills nothing.

A process that says goodbye has ended its job; one that was killed may be started again and finds its clips for a while.
"""

import threading
import time
from collections.abc import Callable, Iterable
from math import inf

from viewcache.api.service.sessions import Session

__all__ = ["GRACE_S", "Retiring"]

GRACE_S = 600.0
"""How long a job whose processes were killed is waited for."""


class Retiring:
    """Which processes each job's tasks have. Thread-safe."""

    def __init__(self, retire: Callable[[str], bool]) -> None:
        """Nobody has a job yet.

        Args:
            retire: closes a task; False if that cannot be done just now.
        """
        self._retire = retire
        self._lock = threading.Lock()
        self._users: dict[str, set[Session]] = {}
        """Task of a job → its processes."""
        self._over_at: dict[str, float] = {}
        """Task of a job that has none left → when it is closed, of the monotonic clock."""

    def begin(self, session: Session, tasks: Iterable[str]) -> None:
        """A process names tasks of its job."""
        with self._lock:
            for task in tasks:
                self._users.setdefault(task, set()).add(session)
                self._over_at.pop(task, None)

    def end(self, session: Session, *, at_once: bool) -> None:
        """A process has ended; ``at_once`` if it will not come back."""
        over_at = -inf if at_once else time.monotonic() + GRACE_S
        with self._lock:
            for task in [task for task, users in self._users.items() if session in users]:
                self._users[task].discard(session)
                if not self._users[task]:
                    del self._users[task]
                    self._over_at[task] = over_at
        self.look()

    def look(self, now: float | None = None) -> bool:
        """Close what is over by now, at the end of the service all that nobody has; False if some of it cannot be."""
        now = time.monotonic() if now is None else now
        if not self._over_at:
            return True
        with self._lock:
            over = [task for task, over_at in self._over_at.items() if over_at <= now]
            for task in over:
                if self._retire(task):
                    del self._over_at[task]
            return self._over_at.keys().isdisjoint(over)
