"""A socket with messages on it: what a worker process and its owner say to each other, pickled one after the other.

The owner hears dozens of workers with one thread, so all that has come is read with one call and nothing waits for the
rest of a message. The trade-off to `multiprocessing.Connection`: framing of our own, and values are pickled by their
fields, in C, where Python 3.11 pickles a slotted dataclass by asking for its list of fields each time.
"""

import copyreg
import io
import pickle
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

from viewcache.materializer.clock import Span
from viewcache.materializer.media.facts import Claims, ManyClaims
from viewcache.materializer.planning.columns import BlockParts, ClipRecipes, VideoSources
from viewcache.materializer.planning.program import Instruction, Program
from viewcache.materializer.planning.recipe import Intermediate, Part, Recipe, VideoSource
from viewcache.materializer.workers.job import Begun, FolderTarget, Job, Made, Near, PassingTarget, Report
from viewcache.store import MemoryHandle, Stored, Written
from viewcache.store.format import ChunkTable
from viewcache.store.passing import Place

__all__ = ["VALUES", "Post"]

_LENGTH = struct.Struct("!I")
_AT_ONCE = 1 << 18
"""Bytes that are read with one call: a few hundred messages."""

VALUES = (
    Begun,
    BlockParts,
    ChunkTable,
    Claims,
    ClipRecipes,
    FolderTarget,
    Instruction,
    Intermediate,
    Job,
    Made,
    ManyClaims,
    MemoryHandle,
    Near,
    Part,
    PassingTarget,
    Place,
    Program,
    Recipe,
    Report,
    Span,
    Stored,
    VideoSource,
    VideoSources,
    Written,
)
"""What is pickled by its fields: all that is said of each job and each object."""


def _by_fields(kind: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
    names = [each.name for each in fields(kind)]
    if len(names) == 1:
        return lambda value: (kind, (getattr(value, names[0]),))
    of = attrgetter(*names)
    return lambda value: (kind, of(value))


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table | {kind: _by_fields(kind) for kind in VALUES}


class Post:
    """One end of a socket pair. Not thread-safe."""

    def __init__(self, end: socket.socket) -> None:
        """Take over the socket."""
        self._socket = end
        self._heard = bytearray()
        """What has come of messages that nobody has taken yet."""
        self._ended = False
        """The other end is closed, and all that it said has come."""

    def fileno(self) -> int:
        """The descriptor, to wait on; -1 when it is closed."""
        return self._socket.fileno()

    def send(self, obj: object) -> None:
        """Say something; waits while the other end has no room for it, as long as the socket's own limit allows.

        Raises:
            BlockingIOError: the other end does not listen.
            OSError: nobody is there any more.
        """
        written = io.BytesIO(bytes(_LENGTH.size))
        written.seek(_LENGTH.size)
        _Pickler(written, pickle.HIGHEST_PROTOCOL).dump(obj)
        message = written.getbuffer()
        _LENGTH.pack_into(message, 0, len(message) - _LENGTH.size)
        self._socket.sendall(message)

    def poll(self) -> bool:
        """Whether `recv` would return, or raise, without waiting."""
        if not self._is_whole():
            self._listen()
        return self._ended or self._is_whole()

    def recv(self) -> Any:
        """The next message; waits for it.

        Raises:
            EOFError: the other end is closed, and said nothing more.
            OSError: it was reset.
        """
        while not self._is_whole():
            if self._ended:
                raise EOFError
            self._hear(self._socket.recv(_AT_ONCE))
        return self._take()

    def receive(self) -> Iterator[Any]:
        """All messages that are here whole; does not wait.

        Raises:
            EOFError: the other end is closed; what it said before was given first.
        """
        self._listen()
        while self._is_whole():
            yield self._take()
        if self._ended:
            raise EOFError

    def close(self) -> None:
        """Let go of the socket; harmless when it was done."""
        self._socket.close()

    def _listen(self) -> None:
        """Hear what is there now."""
        more = not self._ended
        while more:
            try:
                heard = self._socket.recv(_AT_ONCE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:  # it was reset
                heard = b""
            self._hear(heard)
            more = len(heard) == _AT_ONCE

    def _hear(self, heard: bytes) -> None:
        self._heard += heard
        self._ended = not heard

    def _is_whole(self) -> bool:
        heard = self._heard
        return len(heard) >= _LENGTH.size and len(heard) >= _LENGTH.size + _LENGTH.unpack_from(heard)[0]

    def _take(self) -> Any:
        end = _LENGTH.size + _LENGTH.unpack_from(self._heard)[0]
        with memoryview(self._heard) as heard:
            message = pickle.loads(heard[_LENGTH.size : end])
        del self._heard[:end]
        return message
