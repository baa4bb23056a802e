"""What each error is to the operating system, which knows numbers only, and where its text is kept for people."""

import errno
import os
import threading
from collections import OrderedDict

from viewcache.errors import (
    BadInput,
    BadUrl,
    Busy,
    Closed,
    ConfigError,
    NotFound,
    ReadOnly,
    Timeout,
    ViewcacheError,
)

__all__ = ["ERRNOS", "Failures", "Refused", "errno_of"]

ERRNOS: tuple[tuple[type[ViewcacheError], int], ...] = (
    (BadUrl, errno.ENOENT),
    (NotFound, errno.ENOENT),
    (ReadOnly, errno.EROFS),
    (ConfigError, errno.EIO),
    (BadInput, errno.EINVAL),
    (Timeout, errno.ETIMEDOUT),
    (Busy, errno.EAGAIN),
    (Closed, errno.ENOTCONN),
)
"""The first that fits counts; everything else is EIO."""

MOST_FAILURES = 256
"""Paths whose last error is remembered."""


class Refused(OSError):
    """What a callback raises so that the reader gets an error number; it never leaves the mount's process."""

    def __init__(self, number: int) -> None:
        """Answer with a number of `errno`."""
        super().__init__(number, os.strerror(number))


def errno_of(error: BaseException) -> int:
    """The number that a reader gets for an error."""
    if isinstance(error, ViewcacheError):
        return next((number for kind, number in ERRNOS if isinstance(error, kind)), errno.EIO)
    if isinstance(error, OSError) and error.errno:
        return error.errno
    return errno.EIO


class Failures:
    """The text of the last error at each of many paths. Thread-safe."""

    def __init__(self) -> None:
        """Nothing has failed."""
        self._lock = threading.Lock()
        self._texts: OrderedDict[str, str] = OrderedDict()

    def note(self, path: str, text: str) -> None:
        """Something failed at a `view://` path."""
        with self._lock:
            self._texts[path] = text
            self._texts.move_to_end(path)
            while len(self._texts) > MOST_FAILURES:
                self._texts.popitem(last=False)

    def last(self, path: str) -> str | None:
        """The text of what failed last at a path or below it; None if nothing did."""
        with self._lock:
            for failed, text in reversed(self._texts.items()):
                if not path or failed == path or failed.startswith(path + "/"):
                    return text
        return None
