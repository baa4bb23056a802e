"""Errors of remote stores are understood by what they say, whichever library raises them."""

import errno
import random

import pytest

from viewcache.store.retry import RetryVerdict, judge, pause_s, said


class _Service(Exception):
    """An error with whatever a library puts on it."""

    def __init__(self, **values: object) -> None:
        super().__init__("no")
        for name, value in values.items():
            setattr(self, name, value)


def _boto(status: int, code: str = "") -> Exception:
    return _Service(response={"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}})


def _from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


class FlexibleChecksumError(Exception):
    """As aiobotocore's: neither an OSError nor with a status."""


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (FileNotFoundError("x"), RetryVerdict.MISSING),
        (_from(FileNotFoundError("x"), _boto(404, "NoSuchKey")), RetryVerdict.MISSING),
        (_from(FileNotFoundError("x"), _boto(404, "NoSuchBucket")), RetryVerdict.FINAL),
        (_from(FileNotFoundError("x"), _Service(error_code="ContainerNotFound", status_code=404)), RetryVerdict.FINAL),
        (FileExistsError("x"), RetryVerdict.EXISTS),
        (_from(OSError(errno.EINVAL, "x"), _boto(412, "PreconditionFailed")), RetryVerdict.EXISTS),
        (_Service(code=412), RetryVerdict.EXISTS),
        (_from(FileExistsError("x"), _Service(status_code=409)), RetryVerdict.EXISTS),
        (_from(OSError(errno.EINVAL, "x"), _boto(416, "InvalidRange")), RetryVerdict.SHORT),
        (_from(OSError(errno.EBUSY, "x"), _boto(503, "SlowDown")), RetryVerdict.RETRY),
        (_from(OSError(errno.EBUSY, "x"), _boto(409, "ConditionalRequestConflict")), RetryVerdict.RETRY),
        (_from(OSError(errno.EINVAL, "x"), _boto(400, "BadDigest")), RetryVerdict.RETRY),
        (_boto(500), RetryVerdict.RETRY),
        (_Service(status=429), RetryVerdict.RETRY),
        (_Service(code=503), RetryVerdict.RETRY),
        (_from(RuntimeError("x"), FlexibleChecksumError("x")), RetryVerdict.RETRY),
        (FlexibleChecksumError("x"), RetryVerdict.RETRY),
        (_from(FlexibleChecksumError("x"), _Service(code=400)), RetryVerdict.RETRY),  # as aiohttp's ClientPayloadError
        (TimeoutError(), RetryVerdict.RETRY),
        (ConnectionResetError(), RetryVerdict.RETRY),
        (EOFError(), RetryVerdict.RETRY),
        (OSError(errno.EIO, "x"), RetryVerdict.RETRY),
        (OSError(errno.ENOSPC, "x"), RetryVerdict.FULL),
        (_boto(507), RetryVerdict.FULL),
        (_from(OSError(errno.EIO, "x"), _boto(507, "InsufficientStorage")), RetryVerdict.FULL),
        (_from(PermissionError("x"), _boto(403, "AccessDenied")), RetryVerdict.FINAL),
        (_boto(301, "PermanentRedirect"), RetryVerdict.FINAL),
        (_boto(501), RetryVerdict.FINAL),
        (ValueError("x"), RetryVerdict.FINAL),
        (PermissionError("x"), RetryVerdict.FINAL),
    ],
)
def test_errors_are_judged(error: Exception, verdict: RetryVerdict) -> None:
    """What may pass is asked again; an answer that is an error too is an answer; the rest ends at once."""
    assert judge(error) is verdict


def test_pauses_grow_with_full_jitter() -> None:
    """Every pause lies between zero and a bound that doubles up to five seconds, and they spread over it."""
    rng = random.Random(3)
    for attempt, bound in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0)):
        pauses = [pause_s(attempt, rng) for _ in range(500)]
        assert 0 <= min(pauses) < 0.1 * bound < 0.9 * bound < max(pauses) <= bound


@pytest.mark.parametrize(
    "text",
    [
        "https://account/x?sv=1&sig=hunter2&se=3",
        "aws_secret_access_key = hunter2",
        '{"token": "hunter2"}',
        "AccountKey=hunter2;EndpointSuffix=x",
        "Authorization: hunter2",
    ],
)
def test_messages_have_no_secrets(text: str) -> None:
    """What looks like a credential in a library's message is not repeated."""
    shown = said(OSError(text))
    assert "hunter2" not in shown
    assert shown.startswith("OSError: ")


def test_messages_are_one_short_line() -> None:
    """A page of HTML from a gateway does not become the message."""
    assert said(OSError("first\n" + "x" * 10_000)) == "OSError: first"
    assert len(said(OSError("x" * 10_000))) < 400
    assert said(TimeoutError()) == "TimeoutError"
