"""How questions and answers travel: frames (`viewcache.framing`), each with one struct of asks or answers.

A client asks on a line and waits for the answer, before which notes may come that say that the work goes on; `Done` and
`Bye` have no answer. A question whose fields hold what they cannot is answered with an error; whoever sends anything
else is cut off.
"""

from typing import Any, Final, cast, get_args

import msgspec

from viewcache import errors
from viewcache.api.service import answers, asks
from viewcache.api.service.answers import Answer, Failed
from viewcache.api.service.asks import Ask
from viewcache.errors import (
    BadInput,
    Broken,
    BudgetTooSmall,
    CatalogBusy,
    ConfigCode,
    ConfigError,
    ViewcacheError,
)
from viewcache.framing import decode, encode, receive, send, send_body, send_now

__all__ = [
    "ANSWER_BYTES",
    "ASK_BYTES",
    "PROTOCOL",
    "decode_answer",
    "decode_ask",
    "encode",
    "error_of",
    "failed_of",
    "receive",
    "send",
    "send_body",
    "send_now",
]

PROTOCOL: Final = 1
"""Its version: another one is another protocol."""

_SPOKEN = f"protocol {PROTOCOL}"

ASK_BYTES: Final = 1 << 20
"""Most bytes of a frame to the service."""

ANSWER_BYTES: Final = 16 << 20
"""Most bytes of a frame from the service."""

_ask_decoder: "msgspec.msgpack.Decoder[Ask]" = msgspec.msgpack.Decoder(cast(Any, asks.ALL))
_answer_decoder: "msgspec.msgpack.Decoder[Answer]" = msgspec.msgpack.Decoder(cast(Any, answers.ALL))


class _Verb(msgspec.Struct):
    """Of a question only what is asked."""

    type: str


_verb_decoder = msgspec.msgpack.Decoder(_Verb)
_ANSWERED = {asks.verb_of(each) for each in get_args(asks.ALL)} - {asks.verb_of(each) for each in asks.UNANSWERED}

# Frames ---------------------------------------------------------------------------------------------------------------


def decode_ask(body: bytes) -> Ask:
    """What a client asks.

    Raises:
        BadInput: it is a question that has an answer, with something in it that cannot be; the answer says so.
        Broken: the body is nothing that the protocol knows.
    """
    try:
        return decode(_ask_decoder, body, _SPOKEN)
    except Broken as error:
        wrong = error.__cause__
        if isinstance(wrong, msgspec.ValidationError) and (verb := _verb_in(body)) in _ANSWERED:
            raise BadInput(f"{verb!r} was asked of the service with something else than it takes: {wrong}") from wrong
        raise


def _verb_in(body: bytes) -> str:
    """What a body that is otherwise wrong says that it asks; empty if it says nothing."""
    try:
        return _verb_decoder.decode(body).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def decode_answer(body: bytes) -> Answer:
    """What the service says.

    Raises:
        Broken: the body is nothing that the protocol knows.
    """
    return decode(_answer_decoder, body, _SPOKEN)


# Errors ---------------------------------------------------------------------------------------------------------------


def failed_of(error: BaseException) -> Failed:
    """An error as it travels; one that is not ours keeps its words alone."""
    if isinstance(error, ConfigError):
        return Failed(
            error.kind, error.reason, code=str(error.code), file=error.file, line=error.line, column=error.column
        )
    if isinstance(error, BudgetTooSmall):
        return Failed(error.kind, str(error), number=error.minimum)
    if isinstance(error, CatalogBusy):
        return Failed(error.kind, str(error), file=error.folder, number=error.pid)
    if isinstance(error, ViewcacheError):
        return Failed(error.kind, str(error))
    return Failed(Broken.kind, f"the service failed: {type(error).__name__}: {error}; its log says more")


def error_of(failed: Failed) -> ViewcacheError:
    """The error that was sent, of its own class."""
    kind = _KINDS.get(failed.kind, ViewcacheError)
    if kind is ConfigError:
        known = {str(code): code for code in ConfigCode}
        code = known.get(failed.code, ConfigCode.OTHER_CACHE)
        return ConfigError(code, failed.message, failed.file, failed.line, failed.column)
    if kind is BudgetTooSmall:
        return BudgetTooSmall(failed.message, failed.number)
    if kind is CatalogBusy:
        return CatalogBusy(failed.message, failed.number, failed.file)
    return kind(failed.message)


_KINDS: dict[str, type[ViewcacheError]] = {
    each.kind: each
    for each in map(vars(errors).get, errors.__all__)
    if isinstance(each, type) and issubclass(each, ViewcacheError)
}
