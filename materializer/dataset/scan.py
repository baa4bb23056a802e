"""Scan a dataset: list its files, index the new and changed ones in limited processes, and give one record a video.

A hostile file can cost its process and a minute, never the scan; files that are as they were are not opened.
"""

import contextlib
import hashlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

from viewcache.catalog.records import VideoStatus
from viewcache.errors import BadVideo, CatalogDamaged, Full
from viewcache.materializer.child import start_child
from viewcache.materializer.dataset.discover import Found, discover
from viewcache.materializer.dataset.labels import Value, labels_for
from viewcache.materializer.dataset.names import names_for
from viewcache.materializer.media.index import TOO_LARGE, VideoIndex, too_large
from viewcache.materializer.media.source import Stamp, shown
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Known", "Scanned", "scan", "video_key"]

LIMIT_S = 60.0
"""Seconds for one file, and one more for each `BYTES_PER_S` of it."""
BYTES_PER_S = 5_000_000
"""A slow network; only a hung probe should meet the limit."""
MEMORY_BYTES = 2 << 30
"""Private memory of one scanning process: an 8K HEVC decoder's needs, twice."""


@dataclass(frozen=True, slots=True)
class Known:
    """What an earlier scan found about a file."""

    stamp: Stamp
    index: bytes
    """`VideoIndex.to_bytes()`, empty for a bad video."""
    error: str = ""
    """Why it was bad; a bad file that has not changed is not tried again."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """One video of the dataset."""

    name: str
    """In paths; see `names`."""
    uri: str
    """Absolute path or URL."""
    path: str
    """Under the dataset."""
    stamp: Stamp
    key: str
    """32 hex digits: this version of this file."""
    status: VideoStatus
    """The policy ``on_bad_video`` decides about bad ones."""
    index: VideoIndex | None = None
    """None if nothing can be decoded; a damaged file may be bad and have one."""
    error: str = ""
    """Why it is bad, with the file's name."""
    label: Value = None
    columns: dict[str, Value] = field(default_factory=dict)
    """Further columns of the label table."""
    reused: bool = False
    """The file is as it was, so it was not opened."""

    @property
    def error_kind(self) -> str:
        """The stable kind of the error; empty for a good video."""
        return BadVideo.kind if self.status == VideoStatus.BAD else ""


def video_key(uri: str, stamp: Stamp) -> str:
    """The content key of one version of a file: 32 hex digits of BLAKE2b over its URI and etag, or size and time."""
    version = f"etag:{stamp.etag}" if stamp.etag else f"size:{stamp.size} mtime:{stamp.mtime_ns}"
    text = f"video\0{uri}\0{version}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def scan(
    spec: DatasetSpec,
    known: Mapping[str, Known] | None = None,
    *,
    given: Mapping[str, str] | None = None,
    workers: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    limit_s: float = LIMIT_S,
) -> Iterator[Scanned]:
    """Scan a dataset.

    Args:
        spec: where it is, its labels, and the largest frame allowed. ``where`` is applied later, to the records.
        known: URI → what the last scan found; files whose size and time (or etag) are the same are not opened.
        given: URI → the name that a file was given when it was first seen, also of files that are gone.
        workers: processes; 0 = one per core.
        progress: called with (files done, files in all, name of the last one).
        memory_bytes: private memory of each process.
        limit_s: seconds for a file, plus one for every 5 MB.

    Yields:
        One record a video, in no particular order: those that did not change first, the others as they are ready.

    Raises:
        DatasetNotFound: no folder, no videos, or no label table.
        BadInput: labels that cannot be read or do not fit.
        Full: a scanning process may open no more files; no video is called bad for that.
    """
    found = discover(spec.uri)
    paths = [each.path for each in found]
    uris, given = [each.uri for each in found], given or {}
    here = {path: given[uri] for path, uri in zip(paths, uris, strict=True) if uri in given}
    named = names_for(paths, here, [given[uri] for uri in given.keys() - set(uris)])
    labels = labels_for(paths, spec.labels, spec.label_video_column, spec.label_column, named)
    names = dict(zip(uris, zip(named, labels, strict=True), strict=True))
    done = 0

    def record(file: Found, blob: bytes, error: str, reused: bool) -> Scanned:
        nonlocal done
        done += 1
        name, labelled = names[file.uri]
        if progress is not None:
            progress(done, len(found), name)
        index = VideoIndex.from_bytes(blob) if blob else None
        if not error and index is not None and index.damage:
            error = f"{shown(file.uri)}: {index.damage}"
        if not error and index is not None and index.width * index.height > spec.max_pixels:
            # Another task, or this one with another limit, had it indexed.
            error = f"{shown(file.uri)}: {too_large(index.width, index.height, spec.max_pixels)}"
        # The stamp of the bytes that were read: a file may be replaced between the listing and the probe.
        stamp = index.stamp if index is not None else file.stamp
        return Scanned(
            name,
            file.uri,
            file.path,
            stamp,
            video_key(file.uri, stamp),
            VideoStatus.BAD if error or index is None else VideoStatus.OK,
            index,
            error,
            labelled.label,
            labelled.columns,
            reused,
        )

    todo: deque[Found] = deque()
    for file in found:
        old = (known or {}).get(file.uri)
        if file.problem:
            yield record(file, b"", f"{file.uri}: {file.problem}", False)
        elif old is not None and old.stamp.same(file.stamp) and _holds(old, spec.max_pixels):
            yield record(file, old.index, old.error, True)
        else:
            todo.append(file)
    if todo:
        with contextlib.closing(
            _Probes(todo, spec.max_pixels, workers or os.cpu_count() or 1, memory_bytes, limit_s)
        ) as probes:
            for file, blob, error in probes.run():
                yield record(file, blob, error, False)


def _holds(old: Known, max_pixels: int) -> bool:
    """Whether what an earlier scan found holds here; if not, the file is simply scanned again.

    That scan may have been of a release whose index this one cannot read, or have allowed another number of pixels.
    """
    if not old.index:
        return bool(old.error) and (TOO_LARGE not in old.error or old.error.endswith(f"({max_pixels})"))
    try:
        return VideoIndex.from_bytes(old.index).frames >= 0
    except CatalogDamaged:
        return False


class ScanProcess:
    """One scanning process and the file it is on."""

    def __init__(self, memory_bytes: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = start_child("viewcache.materializer.dataset.scan_worker", theirs.fileno(), str(memory_bytes))
        self.connection = Connection(ours.detach())
        self.file: Found | None = None
        self.until = 0.0

    def give(self, file: Found, max_pixels: int, limit_s: float) -> None:
        """Start on a file. A process that has died breaks the pipe here, and its end is read as an answer later."""
        self.file = file
        self.until = time.monotonic() + limit_s + file.stamp.size / BYTES_PER_S
        with contextlib.suppress(OSError):
            self.connection.send((file.uri, max_pixels))

    def kill(self) -> str:
        """End the process for certain and say how it ended."""
        if self.process.poll() is None and self.file is not None:
            self.process.kill()
        self.connection.close()  # an idle one ends by itself when its connection closes
        status = self.process.wait()
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}"


class _Probes:
    """Processes that work through a list of files."""

    def __init__(self, todo: deque[Found], max_pixels: int, workers: int, memory_bytes: int, limit_s: float) -> None:
        self._todo = todo
        self._max_pixels = max_pixels
        self._memory_bytes = memory_bytes
        self._limit_s = limit_s
        self._size = min(workers, len(todo))
        self._workers: list[ScanProcess] = []

    def run(self) -> Iterator[tuple[Found, bytes, str]]:
        """(file, index bytes, error) as they come."""
        while self._todo or any(worker.file is not None for worker in self._workers):
            self._hand_out()
            busy = {worker.connection: worker for worker in self._workers if worker.file is not None}
            patience = min(worker.until for worker in busy.values()) - time.monotonic()
            for connection in wait(list(busy), timeout=max(patience, 0.0)):
                assert isinstance(connection, Connection)
                yield self._answer(busy[connection])
            for worker in list(self._workers):
                if worker.file is not None and time.monotonic() > worker.until:
                    file = worker.file
                    self._bury(worker)
                    yield (
                        file,
                        b"",
                        f"{shown(file.uri)}: could not be indexed in {self._limit_s:g} s and more; given up",
                    )

    def _hand_out(self) -> None:
        while self._todo:
            idle = next((worker for worker in self._workers if worker.file is None), None)
            if idle is None:
                if len(self._workers) >= self._size:
                    return
                idle = ScanProcess(self._memory_bytes)
                self._workers.append(idle)
            idle.give(self._todo.popleft(), self._max_pixels, self._limit_s)

    def _answer(self, worker: ScanProcess) -> tuple[Found, bytes, str]:
        file = worker.file
        assert file is not None
        try:
            blob, error, of_video = worker.connection.recv()
        except (EOFError, OSError):
            return file, b"", f"{shown(file.uri)}: the process that indexed it {self._bury(worker)}"
        worker.file = None
        if not of_video:
            raise Full(error)
        return file, blob, error

    def _bury(self, worker: ScanProcess) -> str:
        self._workers.remove(worker)
        return worker.kill()

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
