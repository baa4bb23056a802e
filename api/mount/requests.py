"""Work that a reader waits for, in threads of its own, so that the reader can be let go at any moment.

The kernel frees a process that was killed only when its request is answered. So the thread that answers never waits for
the work itself, but looks whether the reader is still there; work that nobody waits for any more ends by itself.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

from viewcache.errors import Closed
from viewcache.materializer.gate import Cancelled

__all__ = ["MOST", "Interrupted", "Requests"]

MOST = 512
"""Requests that are worked at side by side; further ones wait."""

LOOK_S = 0.05
"""How soon a reader that was interrupted is let go."""

T = TypeVar("T")


class Interrupted(Exception):
    """The reader was interrupted, or killed."""


class Requests:
    """What readers wait for. Thread-safe."""

    def __init__(self, interrupted: Callable[[], bool]) -> None:
        """Begin.

        Args:
            interrupted: whether the reader whom the calling thread answers was interrupted.
        """
        self._interrupted = interrupted
        self._pool = ThreadPoolExecutor(MOST, "viewcache-mount")
        self._ending = threading.Event()

    def do(self, work: Callable[[Cancelled], T]) -> T:
        """Do some work and wait for it as long as the reader does.

        Args:
            work: is given what says that nobody waits for it any more.

        Raises:
            Interrupted: the reader was.
            Closed: the mount ends.
        """
        given_up = threading.Event()
        try:
            future = self._pool.submit(work, given_up)
        except RuntimeError:  # the pool is shut down
            raise Closed("the mount has ended") from None
        while not wait((future,), LOOK_S).done:
            if self._ending.is_set():
                given_up.set()
                raise Closed("the mount has ended")
            if self._interrupted():
                given_up.set()
                raise Interrupted
        return future.result()

    def later(self, work: Callable[[], object]) -> None:
        """Do some work that nobody waits for; nothing once the mount ends."""
        with suppress(RuntimeError):  # the pool is shut down
            self._pool.submit(work)

    def end(self) -> None:
        """Let all readers go."""
        self._ending.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
