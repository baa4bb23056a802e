"""A web server on this machine: with or without ranges, and down for as long as a test says."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["WebServer", "web_server"]


class _Handler(BaseHTTPRequestHandler):
    """Serves the files of a server's ``files``, with or without ranges."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """The headers of `do_GET`."""
        self.do_GET(body=False)

    def do_GET(self, body: bool = True) -> None:
        """The file, or a range of it."""
        server = self.server
        assert isinstance(server, WebServer)
        if status := server.status or server.statuses.get(self.path):
            self.send_error(status)
            return
        data = server.page(self.path) if self.path.endswith("/") else server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, end = (int(asked[1]), int(asked[2]) + 1) if asked and server.ranges else (0, len(data))
        part = data[start:end]
        self.send_response(206 if asked and server.ranges else 200)
        self.send_header("Content-Length", str(len(part)))
        for header, mark in server.marks.items():
            self.send_header(header, mark)
        if server.ranges:
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.end_headers()
        if body:
            server.sent += len(part)
            self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


class WebServer(ThreadingHTTPServer):
    """A small HTTP server on this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.marks = {"ETag": '"version-1"'}
        """Headers that tell the version of every file."""
        self.status = 0
        """Of HTTP, with which it answers whatever is asked; 0 = the files are there."""
        self.statuses: dict[str, int] = {}
        """The same by path."""
        self.sent = 0

    def page(self, folder: str) -> bytes:
        """What lists the files and folders of a folder, by their names alone."""
        below = (name.removeprefix(folder) for name in sorted(self.files) if name.startswith(folder))
        names = dict.fromkeys(name.partition("/")[0] + ("/" if "/" in name else "") for name in below)
        return "".join(f'<a href="{name}">{name}</a>\n' for name in names).encode()


@contextmanager
def web_server() -> Iterator[WebServer]:
    """A server that is up."""
    with WebServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
