"""The page's HTTP server: on this machine only, read-only, for who has its key, with bounded threads, sizes and times.

Everything is a GET of one of eight places. One request a connection, so that a thread is never held by a browser that
says nothing; what a request may ask for is numbers and the name of a task, and never SQL.
"""

import logging
import re
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from viewcache import __version__
from viewcache.api.config.find import Located
from viewcache.api.page.access import Key, is_own_host, is_own_page
from viewcache.api.page.first_frame import Pictures
from viewcache.api.page.stored_clips import Batches
from viewcache.api.page.watcher import Watcher
from viewcache.errors import BadInput, BadVideo, Busy, NotFound, ViewcacheError
from viewcache.materializer.telemetry.stalls import CAUSES

__all__ = ["PORT", "PageServer", "Reply"]

_log = logging.getLogger("viewcache.page")

PORT = 8686
"""Where the page is unless another port is asked for."""
HERE = "127.0.0.1"
THREADS = 16
"""Requests that are answered at a time; more are turned away."""
HEAD_S = 10.0
"""How long a request may take to say what it wants, and a client to take a part of the answer."""
TARGET_BYTES = 2048
"""Longest path with its query."""
END_S = 5.0
"""How long what is under way may take when the page ends."""

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
"""Path → file, and its type."""

SAFE = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every answer: nothing from elsewhere, nothing inline, in nobody's frame."""

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)

_STATUS: tuple[tuple[type[ViewcacheError], HTTPStatus], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (BadInput, HTTPStatus.BAD_REQUEST),
    (BadVideo, HTTPStatus.UNPROCESSABLE_ENTITY),
    (Busy, HTTPStatus.SERVICE_UNAVAILABLE),
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request is answered with."""

    status: HTTPStatus
    type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """Beside `SAFE`."""


class PageServer:
    """The page of one cache, from when it is made until it is closed."""

    def __init__(self, located: Located, port: int = PORT) -> None:
        """Look at the cache, and listen; requests are answered once `serve` runs.

        Args:
            located: the cache.
            port: 0 = any that is free.

        Raises:
            BadInput: the port cannot be had.
            NotFound: there is no catalog.
            CatalogVersion: it is of another release, and has not what is asked for.
            Timeout: another process owns it and did not publish a snapshot.
        """
        if not 0 <= port <= 65535:
            raise BadInput(f"port {port}: from 0, any that is free, to 65535")
        self._watcher = Watcher(located)
        self._batches, self._pictures = Batches(located), Pictures(located)
        folder = Path(__file__).resolve().parent / "files"
        self._files = {path: ((folder / name).read_bytes(), kind) for path, (name, kind) in FILES.items()}
        self._run = secrets.token_hex(4)
        self._asked: dict[str, Callable[[Mapping[str, str], str], Reply]] = {
            "/overview.json": self._overview,
            "/batch.json": self._batch,
            "/clip.jpg": self._clip,
            "/video.jpg": self._video,
        }
        try:
            self._http = _Http(port, self.answer)
        except OSError as error:
            raise BadInput(f"port {port} cannot be had: {error.strerror}; choose another, or 0 for any") from error
        self.port = int(self._http.server_address[1])
        self._key = Key(self.port)

    @property
    def url(self) -> str:
        """The address with the key: who has it sees the page."""
        return f"http://{HERE}:{self.port}/?token={self._key.token}"

    def serve(self, over: Callable[[], bool] = lambda: False) -> None:
        """Answer requests until ``over``, which is asked five times a second, or until another thread calls `close`."""
        self._http.over = over
        self._http.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop listening and let what is under way end. Of another thread than that of `serve`, or after it."""
        self._http.end()
        self._watcher.close()

    def answer(self, target: str, headers: Mapping[str, str]) -> Reply:
        """The answer to one GET.

        Args:
            target: path and query.
            headers: of the request, by name in lower case.
        """
        parts = urlsplit(target)
        try:
            asked = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=8))
        except ValueError:
            return _words(HTTPStatus.BAD_REQUEST, "too many parameters")
        if not is_own_host(headers.get("host") or ""):
            return _words(HTTPStatus.FORBIDDEN, f"this page is at http://{HERE}:{self.port}/ only")
        with_token = parts.path == "/" and self._key.is_token(asked.get("token", ""))
        own = is_own_page(headers.get("sec-fetch-site") or "") and self._key.is_in(headers.get("cookie") or "")
        if not with_token and not own:
            return _words(HTTPStatus.FORBIDDEN, "open the address that `viewcache page` printed: it has the key")
        if parts.path in self._files:
            body, kind = self._files[parts.path]
            given = {"Set-Cookie": self._key.cookie()} if with_token else {}
            return Reply(HTTPStatus.OK, kind, body, {"Cache-Control": "no-store", **given})
        answer = self._asked.get(parts.path)
        if answer is None:
            return _words(HTTPStatus.NOT_FOUND, "there is nothing here")
        try:
            return answer(asked, headers.get("if-none-match") or "")
        except ViewcacheError as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), None)
            return _json({"error": {"kind": error.kind, "message": str(error)}}, status or HTTPStatus.BAD_GATEWAY)
        except Exception as error:
            _log.exception("the page could not answer", extra={"action": "page_failed"})
            about = {"kind": "bug", "message": f"unexpected {type(error).__name__}; please report it"}
            return _json({"error": about}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _overview(self, _asked: Mapping[str, str], known: str) -> Reply:
        look = self._watcher.latest()
        tag = {"ETag": f'"{self._run}-{look.number}"', "Cache-Control": "no-store"}
        if known == tag["ETag"]:
            return Reply(HTTPStatus.NOT_MODIFIED, "application/json", b"", tag)
        value = {
            "overview": look.overview,
            "samples": look.samples,
            "problem": look.problem,
            "causes": CAUSES,
            "version": __version__,
        }
        return _json(value, HTTPStatus.OK, tag)

    def _batch(self, asked: Mapping[str, str], _known: str) -> Reply:
        return _json({"clips": self._batches.clips(*_place(asked))})

    def _clip(self, asked: Mapping[str, str], _known: str) -> Reply:
        look = self._batches.made if asked.get("make") == "1" else self._batches.stored
        return _picture(look(*_place(asked), _number(asked, "clip")), "no-store")

    def _video(self, asked: Mapping[str, str], _known: str) -> Reply:
        return _picture(self._pictures.of(_number(asked, "id")), "private, max-age=600")


def _place(asked: Mapping[str, str]) -> tuple[str, int, int]:
    task = asked.get("task", "")
    if not 0 < len(task) <= 200:
        raise BadInput(f"task: the name of a task, got {len(task)} characters")
    return task, _number(asked, "epoch"), _number(asked, "iteration")


def _number(asked: Mapping[str, str], name: str) -> int:
    text = asked.get(name, "")
    if not _NUMBER.fullmatch(text):
        raise BadInput(f"{name}={text[:20]!r}: a whole number of at most nine digits")
    return int(text)


def _words(status: HTTPStatus, words: str) -> Reply:
    return Reply(status, "text/plain; charset=utf-8", f"{words}\n".encode())


def _json(value: object, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Reply:
    given = headers or {"Cache-Control": "no-store"}
    return Reply(status, "application/json; charset=utf-8", msgspec.json.encode(value), given)


def _picture(data: bytes, kept: str) -> Reply:
    return Reply(HTTPStatus.OK, "image/jpeg", data, {"Cache-Control": kept})


class _Over(Exception):
    """Ends the loop of `_Http.serve_forever`."""


class _Http(socketserver.TCPServer):
    """Takes connections, each in a thread of its own, up to a number."""

    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, port: int, answer: Callable[[str, Mapping[str, str]], Reply]) -> None:
        """Listen on this machine."""
        self.respond = answer
        self.over: Callable[[], bool] = lambda: False
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._reading: dict[socket.socket, float] = {}
        """Connections that have not said what they want → since when."""
        self._serving = threading.Event()
        super().__init__((HERE, port), _Handler)

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """See `PageServer.serve`."""
        self._serving.set()
        try:
            super().serve_forever(poll_interval)
        except _Over:
            pass
        finally:
            self._serving.clear()

    def process_request(self, request: "socket.socket | tuple[bytes, socket.socket]", client_address: object) -> None:
        """Answer in a thread, if one is free."""
        assert isinstance(request, socket.socket)  # the other kind is of UDP
        thread = threading.Thread(
            target=self._answer, args=(request, client_address), name="viewcache-page", daemon=True
        )
        with self._lock:
            crowded = len(self._threads) >= THREADS
            if not crowded:
                self._threads.add(thread)
                self._reading[request] = time.monotonic()
        if crowded:
            request.settimeout(0.1)
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 2\r\n\r\n")
            self.shutdown_request(request)
            return
        try:
            thread.start()
        except RuntimeError:  # the system gives no more
            self._over(request, thread)
            raise

    def _answer(self, request: "socket.socket", client_address: object) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client has gone
        except Exception:
            _log.exception("a request could not be answered", extra={"action": "page_failed"})
        finally:
            self.shutdown_request(request)
            self._over(request, threading.current_thread())

    def _over(self, request: "socket.socket", thread: threading.Thread) -> None:
        self.understood(request)
        with self._lock:
            self._threads.discard(thread)

    def understood(self, request: "socket.socket") -> None:
        """A connection has said what it wants."""
        with self._lock:
            self._reading.pop(request, None)

    def service_actions(self) -> None:
        """Cut off who takes too long to say what it wants, a byte at a time; and end, if it is over."""
        if self.over():
            raise _Over
        now = time.monotonic()
        with self._lock:
            for request, since in self._reading.items():
                if now - since > HEAD_S:
                    try:
                        request.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        continue  # it has gone

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection could not be taken: the others go on."""
        _log.warning("a connection could not be taken", exc_info=True, extra={"action": "page_failed"})

    def end(self) -> None:
        """Stop, close, and wait a little for what is under way."""
        if self._serving.is_set():
            self.shutdown()
        self.server_close()
        until = time.monotonic() + END_S
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Http
    timeout = HEAD_S
    server_version = f"viewcache/{__version__}"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer it."""
        self.server.understood(self.connection)
        if len(self.path) > TARGET_BYTES:
            reply = _words(HTTPStatus.REQUEST_URI_TOO_LONG, f"more than {TARGET_BYTES} characters")
        else:
            reply = self.server.respond(self.path, {name.lower(): value for name, value in self.headers.items()})
        self.send_response(reply.status)
        for name, value in {**SAFE, **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", reply.type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, *_: object) -> None:
        """Say nothing: an address may have the key."""
