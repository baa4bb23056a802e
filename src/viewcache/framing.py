"""Frames of typed msgpack over a Unix socket: how processes that do not trust each other's words talk.

A frame is the length of its body, four bytes little-endian, and then the body: one struct, tagged by its kind. Nothing
is pickled and nothing names code; pixels are not in frames, but in files and memory whose descriptors come beside them.
"""

import os
import select
import socket
import struct
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from viewcache.errors import Broken

__all__ = ["Inbox", "decode", "encode", "receive", "send", "send_body", "send_now"]

_LENGTH = struct.Struct("<I")

MOST_DESCRIPTORS: Final = 8
"""Of one frame."""

_encoder = msgspec.msgpack.Encoder()

T = TypeVar("T")


def encode(message: Struct) -> bytes:
    """The body of a frame."""
    return _encoder.encode(message)


def decode(decoder: "msgspec.msgpack.Decoder[T]", body: bytes, protocol: str) -> T:
    """What a body says.

    Args:
        decoder: of all that may be said.
        body: of a frame.
        protocol: what is spoken, for messages.

    Raises:
        Broken: the body is nothing that the protocol knows.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"a frame of {len(body)} bytes is not of {protocol}: {error}") from error


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
    if data:  # who has all of it may have gone by now, and sending nothing would fail
        line.sendall(data)


def send_now(line: socket.socket, message: Struct) -> bool:
    """Send one small frame if there is room for it at once, whatever the line's time is.

    Nobody else sends on the line meanwhile. A stream has room when three quarters of its buffer are free, so that a
    frame of a few kilobytes is taken whole.

    Returns:
        Whether it was sent. If not, nothing of it was, and other frames may follow.

    Raises:
        OSError: the other side is gone, or took a part of it, so that nothing can follow.
    """
    data = _LENGTH.pack(len(body := encode(message))) + body
    if not _has_room(line):  # asked first: what waits for room otherwise is the line's time, not the system's answer
        return False
    taken = line.send(data, socket.MSG_DONTWAIT)
    if taken < len(data):
        raise OSError(f"{taken} of {len(data)} bytes of a frame were taken")
    return True


def _has_room(line: socket.socket) -> bool:
    found = select.poll()
    try:
        found.register(line, select.POLLOUT)
    except ValueError as error:
        raise OSError("the line is closed") from error
    return bool(found.poll(0))


def receive(line: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """The body of the next frame, and the descriptors that came with it, which the caller closes.

    Raises:
        EOFError: the other side is gone.
        Broken: the frame is longer than ``most`` bytes.
        OSError: nothing comes within the line's time.
    """
    head, descriptors, _, _ = socket.recv_fds(line, _LENGTH.size, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    try:
        return _body(line, bytearray(head), most), descriptors
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _body(line: socket.socket, head: bytearray, most: int) -> bytes:
    while 0 < len(head) < _LENGTH.size:
        part = line.recv(_LENGTH.size - len(head))
        if not part:
            break
        head += part
    if len(head) < _LENGTH.size:
        raise EOFError
    body = bytearray(_length(head, most))
    view = memoryview(body)
    while view:
        count = line.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return bytes(body)


def _length(head: bytearray, most: int) -> int:
    (length,) = _LENGTH.unpack_from(head)
    if length > most:
        raise Broken(f"a frame of {length} bytes; at most {most} may be sent")
    return int(length)


class Inbox:
    """Frames that come in pieces, for who waits for more than one thing at a time."""

    def __init__(self, most: int) -> None:
        """Nothing has come; ``most`` bytes may be in a frame."""
        self._most = most
        self._come = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take what came.

        Raises:
            Broken: it begins a frame that is too long.
        """
        self._come += piece
        if len(self._come) >= _LENGTH.size:
            _length(self._come, self._most)

    def take(self) -> bytes | None:
        """The body of the first frame that is here whole, if one is."""
        if len(self._come) < _LENGTH.size:
            return None
        end = _LENGTH.size + _length(self._come, self._most)
        if len(self._come) < end:
            return None
        body = bytes(self._come[_LENGTH.size : end])
        del self._come[:end]
        return body

    @property
    def is_empty(self) -> bool:
        """Whether nothing is here that nobody took."""
        return not self._come
