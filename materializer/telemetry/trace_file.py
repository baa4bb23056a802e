"""A file of Chrome trace events, which ui.perfetto.dev opens, written behind by a thread in bounded memory.

The format is the array form of https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: its
closing bracket may be missing, so a file is of use whenever its process ends. The trade-off: where events come faster
than they can be written they are dropped, and the file says how many, rather than hold up training.
"""

import json
import logging
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from viewcache.errors import BadInput, is_unforeseen
from viewcache.materializer.clock import Lap

__all__ = ["MOST_BYTES", "TraceFile", "older"]

MOST_BYTES = 256 << 20
"""Of one file on disk; then it is closed, renamed (`older`) and a new one begun, so there are never more than two."""

MOST_WAITING = 1 << 16
"""Events that wait to be written; some 30 MB."""

FLUSH_S = 0.2
"""How often is written, and how often counters are looked at."""

_HEAD_BYTES = 4096
_OURS = b'"args":{"name":"viewcache"}'
"""In the first event of every trace."""

Args = Mapping[str, object]
Counters = Mapping[str, Mapping[str, float]]
"""Name of a counter track → its values by name."""

_log = logging.getLogger("viewcache.trace")


def older(path: str) -> str:
    """Where the file goes when it is full: ``trace.json`` becomes ``trace.older.json``."""
    stem, dot, suffix = path.rpartition(".json")
    return f"{stem}.older{dot}{suffix}"


class TraceFile:
    """Slices, instants and counters on named tracks. Thread-safe; nothing raises or waits for the disk."""

    def __init__(self, path: str, counters: Callable[[], Counters], *, most_bytes: int = MOST_BYTES) -> None:
        """Begin the file, in place of an earlier one.

        Args:
            path: ends in ``.json``, or ``.json.gz`` to be compressed.
            counters: asked every `FLUSH_S` seconds; a change becomes an event. Must not raise.
            most_bytes: see `MOST_BYTES`.

        Raises:
            BadInput: the file cannot be written.
        """
        self.path = path
        self.dropped = 0
        """Events that did not get into the file."""
        self.failure = ""
        """Why nothing is written any more; empty while all is well."""
        self._counters, self._most_bytes = counters, most_bytes
        self._origin = time.monotonic()
        self._pid = os.getpid()
        self._tracks: dict[str, int] = {}
        self._heads: list[str] = []
        """The names of tracks as events, which every file begins with."""
        self._queue: list[Callable[[], Iterable[str]]] = []
        self._waiting = self._lost = 0
        self._last: dict[str, dict[str, float]] = {}
        self._news = threading.Condition()
        self._closing = False
        try:
            self._open()
        except OSError as error:
            raise BadInput(f"cache.trace: cannot write {path}: {error.strerror}; name a file in a folder") from error
        self._thread = threading.Thread(target=self._run, name="viewcache-trace", daemon=True)
        self._thread.start()

    # What is told --------------------------------------------------------------------------------------------------

    def track(self, name: str, order: int) -> int:
        """The number of a track; a new one is shown at ``order`` among the others."""
        number = self._tracks.get(name)
        if number is None:
            with self._news:
                number = self._tracks.setdefault(name, len(self._tracks) + 1)
            about = ("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": order})
            self._put(2, lambda: self._named(number, about))
        return number

    def slice(self, track: int, name: str, begun: float, ended: float, args: Args) -> None:
        """Something took from ``begun`` to ``ended``, of `time.monotonic`."""
        self._put(1, lambda: [self._slice(track, name, begun, ended, args)])

    def laps(self, track: int, laps: Sequence[Lap]) -> None:
        """The stages of some work."""
        if laps:
            self._put(len(laps), lambda: [self._slice(track, *lap, {}) for lap in laps])

    def instant(self, track: int, name: str, args: Args) -> None:
        """Something happened now."""
        at = time.monotonic()
        self._put(1, lambda: [self._instant(track, name, at, args)])

    def close(self) -> None:
        """Write what waits, and end the file."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join()

    def _put(self, events: int, make: Callable[[], Iterable[str]]) -> None:
        with self._news:
            if self.failure or self._closing:
                return
            if self._waiting + events > MOST_WAITING:
                self._lost += events
                return
            self._waiting += events
            self._queue.append(make)

    # What is written -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            closing = False
            while not closing:
                with self._news:
                    if not self._closing:
                        self._news.wait(FLUSH_S)
                    closing, queue, self._queue, self._waiting = self._closing, self._queue, [], 0
                    lost, self._lost = self._lost, 0
                lines = [line for make in queue for line in make()]
                if lost:
                    self.dropped += lost
                    lines.append(self._instant(0, "events dropped", time.monotonic(), {"events": lost}))
                self._write([*lines, *self._changed()])
            self._end()
        except Exception as error:  # a full disk, say: the trace ends, the training goes on
            with self._news:
                self.failure = f"{type(error).__name__}: {error}"
                self._queue = []
            unforeseen = is_unforeseen(error)
            text = "the trace %s ends here: %s"
            _log.warning(text, self.path, error, exc_info=unforeseen, extra={"action": "trace_failed"})
            os.close(self._file)

    def _open(self) -> None:
        self._file = _begun(self.path)
        # Header and trailer of gzip around the stream.
        self._zip = zlib.compressobj(6, zlib.DEFLATED, 31) if self.path.endswith(".gz") else None
        self._bytes = 0
        about: dict[str, object] = {"name": "viewcache"}
        begun = {"utc_s": round(time.time() - (time.monotonic() - self._origin), 3)}
        first = [
            self._line({"ph": "M", "name": "process_name", "pid": self._pid, "tid": 0, "args": about}),
            self._instant(0, "trace begun", self._origin, begun),
        ]
        self._out("[\n" + ",\n".join([*first, *self._heads]))

    def _write(self, lines: Sequence[str]) -> None:
        if not lines:
            return
        self._out("".join(f",\n{line}" for line in lines))
        if self._bytes > self._most_bytes:
            self._end()
            os.replace(self.path, older(self.path))
            self._last = {}
            self._open()

    def _end(self) -> None:
        self._out("\n]\n", last=True)
        os.close(self._file)

    def _out(self, text: str, *, last: bool = False) -> None:
        data = text.encode()
        if self._zip is not None:
            # What was flushed can be unpacked though the stream has no end.
            data = self._zip.compress(data) + self._zip.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
        self._bytes += len(data)
        while data:
            data = data[os.write(self._file, data) :]

    def _changed(self) -> list[str]:
        now, lines = time.monotonic(), []
        for name, values in self._counters().items():
            if self._last.get(name) != values:
                self._last[name] = dict(values)
                lines.append(self._line({"ph": "C", "name": name, **self._at(0, now), "args": dict(values)}))
        return lines

    def _named(self, track: int, about: Iterable[tuple[str, Args]]) -> list[str]:
        lines = [
            self._line({"ph": "M", "name": name, "pid": self._pid, "tid": track, "args": args}) for name, args in about
        ]
        self._heads += lines
        return lines

    def _slice(self, track: int, name: str, begun: float, ended: float, args: Args) -> str:
        event = {"ph": "X", "name": name, **self._at(track, begun)}
        event["dur"] = (_ns(ended - self._origin) - _ns(begun - self._origin)) / 1000
        return self._line(event | ({"args": args} if args else {}))

    def _instant(self, track: int, name: str, at: float, args: Args) -> str:
        return self._line({"ph": "i", "s": "t", "name": name, **self._at(track, at), "args": args})

    def _at(self, track: int, at: float) -> dict[str, Any]:
        return {"pid": self._pid, "tid": track, "ts": _ns(at - self._origin) / 1000}

    def _line(self, event: Mapping[str, object]) -> str:
        return json.dumps(event, separators=(",", ":"), allow_nan=False)


def _begun(path: str) -> int:
    """Descriptor of an empty file in place of an earlier trace.

    Raises:
        BadInput: something else lies there, or where the file goes when it is full.
        OSError: the file cannot be made.
    """
    if os.path.lexists(older(path)):
        os.close(_trace(older(path), 0))
    file = _trace(path, os.O_CREAT)
    os.ftruncate(file, 0)
    os.fchmod(file, 0o600)  # it has paths and names of videos
    return file


def _trace(path: str, flags: int) -> int:
    """Descriptor of a trace, which may be overwritten, or of an empty file; no link is followed, no pipe waited for."""
    file = os.open(path, os.O_RDWR | flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise BadInput(f"cache.trace: {path} is no file; name another place")
        head = os.pread(file, _HEAD_BYTES, 0)
        if path.endswith(".gz"):
            with suppress(zlib.error):  # then it is no trace, which is told below
                head = zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
        if head and not (head.startswith(b"[\n") and _OURS in head):
            raise BadInput(
                f"cache.trace: {path} is there and is no trace of viewcache; name another file, or remove it"
            )
    except BaseException:
        os.close(file)
        raise
    return file


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
