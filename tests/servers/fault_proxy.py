"""A proxy between an HTTP client and a server that does on purpose what networks and servers do by accident.

It speaks just enough HTTP/1.1 for S3 clients. Draws are seeded; every fault that really struck is counted, so that a
test can refuse to pass where none did. It runs on a thread of its own, or as a process (``python -m``) for timings.
"""

import argparse
import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

__all__ = ["FAULTS", "REFUSALS", "FaultProxy", "Request", "proxied"]

FAULTS = ("503", "500", "reset", "truncate", "lost", "flip", "hang")
"""
- ``503``, ``500``: an error is answered, nothing is forwarded
- ``reset``: the connection is reset, nothing is forwarded
- ``truncate``: a part of the answer's body comes, then the connection ends
- ``lost``: the request is carried out, its answer never comes
- ``flip``: one bit of an object's bytes is another one (text of the service itself is left alone: nothing but TLS
  protects it)
- ``hang``: nothing is forwarded and nothing comes
"""

REFUSALS = ("403", "507")
"""Answered instead of being forwarded, too, but for good: access denied, and no room."""

_BLOCK = 1 << 18
_CODES = {
    "503": b"Service Unavailable",
    "500": b"Internal Server Error",
    "403": b"Forbidden",
    "507": b"Insufficient Storage",
}
_NAMES = {"503": b"SlowDown", "500": b"InternalError", "403": b"AccessDenied", "507": b"InsufficientStorage"}
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends RST


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    """Of the URL, decoded, without query."""
    range: str
    """The header; empty where the whole was asked for."""
    query: str


@dataclass(frozen=True, slots=True)
class _Head:
    lines: bytes
    """The head as sent, its empty line included."""
    first: bytes
    fields: Mapping[bytes, bytes]
    """Names in lower case."""

    @property
    def length(self) -> int | None:
        text = self.fields.get(b"content-length")
        return None if text is None else int(text)


class FaultProxy:
    """Forward to one server; `rates` and `latency_s` may change while it runs."""

    def __init__(self, host: str, port: int, seed: int = 0):
        """Prepare; `proxied` starts it."""
        self.rates: dict[str, float] = {}
        """Chance of each fault, out of every request."""
        self.only: frozenset[str] = frozenset({"GET", "PUT", "DELETE", "HEAD", "POST"})
        """Methods that faults may strike."""
        self.where: Callable[[Request], bool] = lambda _: True
        """Which of these requests."""
        self.latency_s = 0.0
        """Waited before the first byte of each answer."""
        self.struck: Counter[str] = Counter()
        """Faults that really happened, by name."""
        self.requests: list[Request] = []
        """All that came in, in order."""
        self.object_bytes = 0
        """Of the bodies of objects that went out."""
        self.port = 0
        self._host, self._target = host, port
        self._rng = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        """Its URL for clients."""
        return f"http://127.0.0.1:{self.port}"

    def count(self, method: str) -> int:
        """Requests of this method so far."""
        return sum(request.method == method for request in self.requests)

    async def serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        """Run until ``end``."""
        server = await asyncio.start_server(self._client, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await end.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while (head := await _read_head(reader)) is not None:
                if head.fields.get(b"expect", b"").lower() == b"100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(head.length or 0)
                fault = self._draw(head)
                if fault in _CODES:
                    self._refuse(writer, fault)
                    continue
                if fault == "reset":
                    self._reset(writer)
                    return
                if fault == "hang":
                    self.struck["hang"] += 1
                    await reader.read(1)  # until the client has had enough
                    return
                if upstream is None:
                    upstream = await asyncio.open_connection(self._host, self._target)
                upstream[1].write(_without_expect(head) + body)
                if not await self._answer(head.first.startswith(b"HEAD "), upstream[0], writer, fault):
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # either side went away, or the proxy ends
        finally:
            self._tasks.discard(task)
            writer.close()
            if upstream is not None:
                upstream[1].close()

    def _draw(self, head: _Head) -> str:
        method, target, _ = head.first.decode("latin-1").split(" ", 2)
        path, _, query = target.partition("?")
        request = Request(method, unquote(path), head.fields.get(b"range", b"").decode(), query)
        self.requests.append(request)
        at = self._rng.random()  # drawn for every request, so that a seed means the same whatever `only` says
        if method not in self.only or not self.where(request):
            return ""
        for fault, rate in self.rates.items():
            if at < rate:
                return fault
            at -= rate
        return ""

    def _refuse(self, writer: asyncio.StreamWriter, fault: str) -> None:
        self.struck[fault] += 1
        body = b"<?xml version='1.0'?><Error><Code>" + _NAMES[fault] + b"</Code><Message>no</Message></Error>"
        writer.write(
            b"HTTP/1.1 " + fault.encode() + b" " + _CODES[fault] + b"\r\nContent-Type: application/xml\r\n"
            b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
        )

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self.struck["reset"] += 1
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()

    async def _answer(
        self, without_body: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: str
    ) -> bool:
        """Hand one answer on; False where the connection is to end."""
        head = await _read_head(reader)
        if head is None:
            return False
        if fault == "lost":
            self.struck["lost"] += 1
            await _drain(reader, head, without_body)
            return False
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        length = 0 if without_body or head.first.split()[1] in {b"204", b"304"} else head.length
        writer.write(head.lines)
        if length is None:
            async for part in _chunks(reader):
                writer.write(part)
            await writer.drain()
            return True
        cut = self._rng.randrange(length) if fault == "truncate" and length else length
        is_object = head.first.split()[1] in {b"200", b"206"} and b"xml" not in head.fields.get(b"content-type", b"")
        flip = self._rng.randrange(length) if fault == "flip" and length and is_object else -1
        if cut < length:
            self.struck["truncate"] += 1
        sent = 0
        while sent < cut:
            part = await reader.read(min(_BLOCK, cut - sent))
            if not part:
                return False
            if sent <= flip < sent + len(part):
                self.struck["flip"] += 1
                changed = bytearray(part)
                changed[flip - sent] ^= 1 << self._rng.randrange(8)
                part = bytes(changed)
            writer.write(part)
            await writer.drain()
            sent += len(part)
            self.object_bytes += len(part) * is_object
        return cut == length and head.fields.get(b"connection", b"").lower() != b"close"


async def _read_head(reader: asyncio.StreamReader) -> _Head | None:
    try:
        lines = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rest = lines[:-4].split(b"\r\n")
    fields = (line.partition(b":") for line in rest)
    return _Head(lines, first, {name.lower().strip(): value.strip() for name, _, value in fields})


def _without_expect(head: _Head) -> bytes:
    lines = head.lines.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """A body in chunked encoding, as it is."""
    size = -1
    while size:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        yield line + await reader.readexactly(size + 2)


async def _drain(reader: asyncio.StreamReader, head: _Head, without_body: bool) -> None:
    if without_body:
        return
    if head.length is not None:
        await reader.readexactly(head.length)
    else:
        async for _ in _chunks(reader):
            pass


@contextmanager
def proxied(host: str, port: int, seed: int = 0) -> Iterator[FaultProxy]:
    """A proxy in front of a server, on a thread of its own and a free port."""
    proxy = FaultProxy(host, port, seed)
    ready, loop, end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(proxy.serve(ready, end),), name="fault-proxy")
    thread.start()
    try:
        assert ready.wait(10)
        yield proxy
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def main() -> None:
    """Run as a process that only adds latency, and say its port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="of the server")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="before the first byte of each answer")
    args = parser.parse_args()
    with proxied("127.0.0.1", args.port) as proxy:
        proxy.latency_s = args.latency_ms / 1e3
        print(proxy.port, flush=True)
        input()  # until the parent closes the pipe


if __name__ == "__main__":
    main()
