"""What an error of a remote store means, and how long to wait before asking again.

Every fsspec file system has errors of its own, and none is imported here: they are judged by HTTP status, errno and
class name. The trade-off: what is not known to be passing is taken as final, so that a mistake in the set-up shows at
once and not after a minute.
"""

import errno
import random
import re
from collections.abc import Iterator
from enum import Enum

__all__ = ["RetryVerdict", "judge", "pause_s", "said"]


class RetryVerdict(Enum):
    """What to make of an error."""

    MISSING = "nothing is there"
    EXISTS = "something is there already, and was to be made"
    SHORT = "it ends before the range that was asked for"
    RETRY = "asking again may help"
    FULL = "no room"
    FINAL = "asking again does not help"


_CODES = {
    "NoSuchBucket": RetryVerdict.FINAL,  # else it would look as if every object were lost
    "ContainerNotFound": RetryVerdict.FINAL,
    "NoSuchUpload": RetryVerdict.RETRY,
    "RequestTimeout": RetryVerdict.RETRY,
    "IncompleteBody": RetryVerdict.RETRY,
    "BadDigest": RetryVerdict.RETRY,
    "XAmzContentSHA256Mismatch": RetryVerdict.RETRY,
    "SlowDown": RetryVerdict.RETRY,
    "QuotaExceeded": RetryVerdict.FULL,
}
_STATUSES = {
    404: RetryVerdict.MISSING,
    408: RetryVerdict.RETRY,
    409: RetryVerdict.RETRY,
    412: RetryVerdict.EXISTS,
    416: RetryVerdict.SHORT,
    425: RetryVerdict.RETRY,
    429: RetryVerdict.RETRY,
    501: RetryVerdict.FINAL,
    505: RetryVerdict.FINAL,
    507: RetryVerdict.FULL,
}
_ERRNOS = {
    errno.EBUSY: RetryVerdict.RETRY,
    errno.EIO: RetryVerdict.RETRY,
    errno.EREMOTEIO: RetryVerdict.RETRY,
    errno.EAGAIN: RetryVerdict.RETRY,
    errno.EHOSTUNREACH: RetryVerdict.RETRY,
    errno.ENETUNREACH: RetryVerdict.RETRY,
    errno.ENOSPC: RetryVerdict.FULL,
    errno.EDQUOT: RetryVerdict.FULL,
}
_PASSING = frozenset(
    {
        "ChecksumError",  # gcsfs
        "ClientError",  # aiohttp's; botocore's of that name always has a status
        "ConnectionError",  # botocore's, which is not Python's
        "FlexibleChecksumError",  # aiobotocore: the body is not what its checksum says
        "HTTPClientError",  # botocore: connections and time limits
        "IncompleteReadError",  # asyncio, botocore, azure
        "ResponseParserError",  # botocore: the answer was cut or changed
        "ResponseStreamingError",
        "ServiceRequestError",  # azure: not sent
        "ServiceResponseError",  # azure: sent, and the answer was lost
        "TransportError",  # google.auth
    }
)
_BASE_S, _CAP_S = 0.1, 5.0
_SECRETS = re.compile(
    r"(?i)([\w-]*(?:sig|secret|token|password|credential|key|authorization)[\w-]*[\"']?\s*[=:]\s*)[^&;,]+"
)


def judge(error: BaseException) -> RetryVerdict:
    """What an error of a file system, or of the library below it, means."""
    chain = list(_causes(error))
    for each in chain:
        if (code := _code(each)) in _CODES:
            return _CODES[code]
    if any(_STATUSES.get(_status(each)) is RetryVerdict.FULL for each in chain):  # s3fs makes EIO of it
        return RetryVerdict.FULL
    for each in chain:
        if (verdict := _alone(each)) is not None:
            return verdict
    return RetryVerdict.FINAL


def _alone(error: BaseException) -> RetryVerdict | None:
    """What one error of a chain means; None where it does not say."""
    if isinstance(error, FileExistsError):
        return RetryVerdict.EXISTS
    if isinstance(error, FileNotFoundError):
        return RetryVerdict.MISSING
    if isinstance(error, TimeoutError | ConnectionError | EOFError):
        return RetryVerdict.RETRY
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return _ERRNOS[error.errno]
    if status := _status(error):
        return _STATUSES.get(status, RetryVerdict.RETRY if status >= 500 else RetryVerdict.FINAL)
    names = {kind.__name__ for kind in type(error).__mro__}
    return RetryVerdict.RETRY if names & _PASSING else None


def pause_s(attempt: int, rng: random.Random) -> float:
    """Seconds to wait after the attempt of that number (from 0): exponential, with full jitter."""
    return rng.uniform(0.0, min(_CAP_S, _BASE_S * 2**attempt))


def said(error: BaseException) -> str:
    """An error in one line for a message, without what may be a secret."""
    lines = str(error).splitlines() or [""]
    words = _SECRETS.sub(r"\1…", lines[0][:500])[:300]  # cut first: the pattern takes the square of the length
    return f"{type(error).__name__}: {words}".removesuffix(": ")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    at: BaseException | None = error
    while at is not None:
        yield at
        at = at.__cause__


def _code(error: BaseException) -> str:
    """The service's own word for it."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    return str(getattr(error, "error_code", ""))


def _status(error: BaseException) -> int:
    """The HTTP status behind it, 0 where there is none."""
    response = getattr(error, "response", None)
    metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
    found = [
        metadata.get("HTTPStatusCode"),
        *(getattr(error, name, None) for name in ("status_code", "status", "code")),
    ]
    return next((each for each in found if isinstance(each, int) and 300 <= each < 600), 0)
