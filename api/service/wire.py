"""How questions and answers travel: framed msgpack over a Unix socket.

A frame is the length of its body, four bytes little-endian, and then the body: one struct, tagged by its kind. A client
asks on a line and waits for the answer, before which notes may come that say that the work goes on; `Done` and `Bye`
have no answer. Nothing is pickled, nothing names code, and whoever sends anything else is cut off.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from viewcache import errors
from viewcache.api.service import answers, asks
from viewcache.api.service.answers import Answer, Failed
from viewcache.api.service.asks import Ask
from viewcache.errors import (
    Broken,
    BudgetTooSmall,
    CatalogBusy,
    ConfigCode,
    ConfigError,
    ViewcacheError,
)

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
]

PROTOCOL: Final = 1
"""Its version: another one is another protocol."""

ASK_BYTES: Final = 1 << 20
"""Most bytes of a frame to the service."""

ANSWER_BYTES: Final = 16 << 20
"""Most bytes of a frame from the service."""

_LENGTH = struct.Struct("<I")

MOST_DESCRIPTORS: Final = 8
"""Of one frame."""


_encoder = msgspec.msgpack.Encoder()
_ask_decoder: "msgspec.msgpack.Decoder[Ask]" = msgspec.msgpack.Decoder(cast(Any, asks.ALL))
_answer_decoder: "msgspec.msgpack.Decoder[Answer]" = msgspec.msgpack.Decoder(cast(Any, answers.ALL))

# Frames ---------------------------------------------------------------------------------------------------------------


def encode(message: Struct) -> bytes:
    """The body of a frame."""
    return _encoder.encode(message)


def decode_ask(body: bytes) -> Ask:
    """What a client asks.

    Raises:
        Broken: the body is nothing that the protocol knows.
    """
    return _decoded(_ask_decoder, body)


def decode_answer(body: bytes) -> Answer:
    """What the service says.

    Raises:
        Broken: the body is nothing that the protocol knows.
    """
    return _decoded(_answer_decoder, body)


T = TypeVar("T")


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"a frame of {len(body)} bytes is not of protocol {PROTOCOL}: {error}") from error


def send(line: socket.socket, message: Struct, descriptors: Sequence[int] = ()) -> None:
    """Send one frame, and descriptors with it.

    Raises:
        OSError: the other side is gone, or does not take it within the line's time.
    """
    send_body(line, encode(message), descriptors)


def send_body(line: socket.socket, body: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send one frame whose body is packed already; see `send`."""
    data = memoryview(_LENGTH.pack(len(body)) + body)
    if descriptors:
        data = data[socket.send_fds(line, [data], list(descriptors)) :]
    line.sendall(data)


def receive(line: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """The body of the next frame, and the descriptors that came with it.

    Raises:
        EOFError: the other side is gone.
        Broken: the frame is longer than ``most`` bytes.
        OSError: nothing comes within the line's time.
    """
    head, descriptors, _, _ = socket.recv_fds(line, _LENGTH.size, MOST_DESCRIPTORS)
    data = bytearray(head)
    while 0 < len(data) < _LENGTH.size:
        part = line.recv(_LENGTH.size - len(data))
        if not part:
            break
        data += part
    if len(data) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(data)
    if length > most:
        raise Broken(f"a frame of {length} bytes; at most {most} may be sent")
    body = bytearray(length)
    view = memoryview(body)
    while view:
        count = line.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return bytes(body), descriptors


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
        return Failed(error.kind, str(error), number=error.pid)
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
        return CatalogBusy(failed.message, failed.number)
    return kind(failed.message)


_KINDS: dict[str, type[ViewcacheError]] = {
    each.kind: each
    for each in map(vars(errors).get, errors.__all__)
    if isinstance(each, type) and issubclass(each, ViewcacheError)
}
