"""Files that cannot be reached just now, as behind a network that is down: asked for again, and never called bad.

What a policy decides about a bad video is on record for ever, so it must not depend on the weather.
"""

import errno
import math
import time
from collections.abc import Callable
from typing import TypeVar

from viewcache.errors import BadVideo, Full, SourceUnreachable, ViewcacheError
from viewcache.materializer.limits import left_bytes

__all__ = [
    "CHANGED",
    "OutOfReach",
    "TooLittleMemory",
    "blame_the_process",
    "cure",
    "failure_of",
    "is_absent",
    "is_passing",
    "is_refused",
    "reach",
]

CHANGED = "the file has changed since it was scanned; open the cache again, after `viewcache stop` where a service runs"
"""What a message says of a file that is not as it was."""

_SCARCE_BYTES, _SCARCE_FRAMES = 64 << 20, 2
"""A process that may take no more than this, and so many frames as RGB, fails on good files too: one frame of 16 bits a
sample is as large as two. More must not be asked for, or damage of large frames would never be told from it."""

_ARRAY_BYTES = 1 << 29
"""NumPy's arrays of pictures are no larger; those that a damaged header asks for mostly are."""

PAUSES_S = (0.2, 1.0, 3.0)
"""Before each further try."""

_PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,  # s3fs: the server asks to be asked more slowly
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EIO,  # a network file system that has given up, or a disk that fails
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOTCONN,  # FUSE: the process behind it has ended
        errno.EPIPE,
        errno.EREMOTEIO,
        errno.ESTALE,  # NFS: the server was started again
        errno.ETIMEDOUT,
    }
)
_PASSING_STATUS = frozenset({408, 425, 429})
"""Of HTTP, besides those of the server's own failures, from 500 on."""
_REFUSED_STATUS = frozenset({401, 403, 407})
_REFUSED_NAMES = ("credential", "authentication", "signatureerror", "refresherror", "tokenretrieval")
"""Parts of the names of errors about credentials, as botocore's, Google's and Azure's."""

_PASSING_NAMES = frozenset(
    {
        "ClientConnectionError",  # aiohttp
        "ClientPayloadError",
        "HTTPClientError",  # botocore
        "ServiceRequestError",  # azure
        "ServiceResponseError",
    }
)
"""Classes of what fsspec's file systems raise; their packages are not imported for this."""

T = TypeVar("T")


class OutOfReach(BadVideo):
    """A file that could not be read, which may be otherwise the next time; nothing is said about its content."""


class TooLittleMemory(Full):
    """This process may take no more memory, so that nothing can be said about a file that it fails on."""


def is_passing(failed: BaseException) -> bool:
    """Whether a failure may be over in a while, and says nothing about the file."""
    if isinstance(failed, FileNotFoundError):
        return failed.__cause__ is not None and is_passing(failed.__cause__)
    if isinstance(failed, OSError) and failed.errno is not None:
        return failed.errno in _PASSING or failed.errno < 0  # of a name that could not be resolved
    status = _status_of(failed)
    if status is not None:
        return status in _PASSING_STATUS or status >= 500
    return isinstance(failed, ConnectionError | TimeoutError) or any(
        each.__name__ in _PASSING_NAMES for each in type(failed).__mro__
    )


def is_absent(failed: Exception) -> bool:
    """Whether a file is not there: fsspec's HTTP says so of every URL that it does not get, for whatever reason."""
    if not isinstance(failed, FileNotFoundError):
        return False
    why = failed.__cause__
    return why is None or (_status_of(why) in (None, 404, 410) and not is_passing(why))


def is_refused(failed: BaseException) -> bool:
    """Whether a server does not let this process have a file, for example since its credentials are out of date."""
    if isinstance(failed, PermissionError) or _status_of(failed) in _REFUSED_STATUS:
        return True
    names = [each.__name__.lower() for each in type(failed).__mro__]
    return any(part in name for name in names for part in _REFUSED_NAMES) or (
        failed.__cause__ is not None and is_refused(failed.__cause__)
    )


def cure(failed: BaseException) -> str:
    """What to check of a dataset, its list or its labels, behind an error's text about a URL; empty if none refused."""
    if not is_refused(failed):
        return ""
    return "; check its name, and the credentials and permissions of this process (environment or profile)"


def _status_of(failed: BaseException) -> int | None:
    """The HTTP status that a failure has, under one of its usual names."""
    found = (getattr(failed, name, None) for name in ("status", "status_code", "code"))
    return next((each for each in found if isinstance(each, int)), None)


def reach(read: Callable[[], T]) -> T:
    """Do what needs a file; after a failure that may pass again, after pauses of four seconds in all.

    Raises:
        Exception: of the last try.
    """
    for pause_s in PAUSES_S:
        try:
            return read()
        except Exception as failed:  # fsspec's file systems raise nearly anything
            if not is_passing(failed):
                raise
        time.sleep(pause_s)
    return read()


def failure_of(where: str, what: str, failed: Exception, said: str, *, is_far: bool) -> ViewcacheError:
    """The error for a file that could not be reached.

    Args:
        where: its URI, as it may be shown.
        what: was to be done with it: opened, or read.
        failed: why.
        said: the same in words.
        is_far: whether it is behind a URL, where no failure but its absence says anything about it.

    Raises:
        Full: this process has too many files open.
    """
    if is_absent(failed):
        return OutOfReach(f"{where}: no such file")
    blame_the_process(where, failed)
    if is_passing(failed):
        return SourceUnreachable(f"{where}: cannot be {what} just now ({said})")
    if is_far and not isinstance(failed, ValueError | ImportError):  # else it is no URL that anybody knows
        todo = "; check the credentials of this process" if is_refused(failed) else ""
        return SourceUnreachable(f"{where}: cannot be {what} ({said}){todo}")
    return OutOfReach(f"{where}: cannot be {what} ({said})")


def blame_the_process(where: str, failed: Exception | None, pixels: int = 0) -> None:
    """A limit that this process has hit says nothing about the video: no policy may put another one in its place.

    What a decoder says when it gets no memory is often the same as of damaged data, so it is looked what is left.

    Args:
        where: the file's URI, as it may be shown.
        failed: what was raised, if something was.
        pixels: of a frame of it, as far as is known.

    Raises:
        Full: it has too many files open.
        TooLittleMemory: it may not take enough memory.
    """
    if getattr(failed, "errno", None) in (errno.EMFILE, errno.ENFILE):
        raise Full(f"{where}: too many open files; raise the limits of this process (ulimit -n)") from failed
    left, array = left_bytes(), _array_bytes(failed)
    if array <= _ARRAY_BYTES or left < _SCARCE_BYTES + _SCARCE_FRAMES * 3 * pixels:
        # By now the pictures that took the rest may be freed.
        kept = f"{max(left, 0) / 1e6:,.0f} MB are left of this process's limit"
        found = kept if math.isinf(array) else f"there were no {array / 1e6:,.0f} MB for one of its pictures"
        raise TooLittleMemory(
            f"{where}: too little memory to decode it, {found}; "
            "raise cache.memory, take fewer workers (cache.workers), or raise ulimit -v and -d"
        ) from failed


def _array_bytes(failed: Exception | None) -> float:
    """Of the array that NumPy had no memory for; infinite if that is not what failed."""
    shape, dtype = getattr(failed, "shape", None), getattr(failed, "dtype", None)
    if not isinstance(failed, MemoryError) or shape is None or dtype is None:
        return math.inf
    return float(math.prod(shape) * dtype.itemsize)
