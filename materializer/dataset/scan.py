"""Look into a dataset's files in limited processes: their headers, or every packet of them.

A hostile file can cost its process and a minute, never the scan. Which files are looked into, and what is recorded of
them, is decided in `listing`.
"""

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait

from viewcache.errors import Full, SourceUnreachable
from viewcache.materializer.child import start_child
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.scan_request import Request
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.picture_head import is_picture
from viewcache.materializer.media.source import shown

__all__ = ["AT_ONCE", "Keep", "ScanProcess", "look_at", "scan", "scan_queue"]

LIMIT_S = 60.0
"""Seconds for one file, and one more for each `BYTES_PER_S` of it."""
BYTES_PER_S = 5_000_000
"""A slow network; only a hung probe should meet the limit."""
MEMORY_BYTES = 2 << 30
"""Private memory of one scanning process: an 8K HEVC decoder's needs, twice."""
AT_ONCE = 64
"""Files that a process is given at once when only headers are read, or pictures: that takes a millisecond or a round
trip each."""

POLL_S = 0.2
"""How soon a scan of a queue notices that it is over."""

HEADERS_OF_A_PROCESS, PICTURES_OF_A_PROCESS = 128, 2048
"""Headers that are worth a process of their own: its start takes as long as reading some two hundred headers of local
videos, or as many thousand of pictures."""


Keep = Callable[[Found, Scanned], None]
"""Given a file that lies far away and was read whole, with its ``content``."""


def scan(
    files: Sequence[Found],
    max_pixels: int,
    *,
    probe: ProbeMode,
    workers: int = 0,
    memory_bytes: int = MEMORY_BYTES,
    limit_s: float = LIMIT_S,
    keep: Keep | None = None,
) -> Generator[tuple[Found, Scanned]]:
    """Look into some files.

    Args:
        files: which, soonest first.
        max_pixels: a frame with more makes a video bad.
        probe: how thoroughly.
        workers: processes; 0 = one per core.
        memory_bytes: private memory of each process.
        limit_s: seconds for a file, plus one for every 5 MB.
        keep: given the files that lie far away and were read whole.

    Yields:
        Each file as it is ready.

    Raises:
        Full: a scanning process may open no more files; no video is called bad for that.
        SourceUnreachable: a network or a disk did not give a file; nor for that.
    """
    if files:
        pictures = is_picture(files[0].uri)
        alone = probe == ProbeMode.FULL and not pictures  # all of a picture is read as fast as a video's header
        at_least = PICTURES_OF_A_PROCESS if pictures else HEADERS_OF_A_PROCESS
        worth_it = len(files) if alone else -(-len(files) // at_least)
        processes = min(workers or os.cpu_count() or 1, worth_it)
        size = 1 if alone else max(1, min(AT_ONCE, len(files) // processes))
        parts = deque(list(files[k : k + size]) for k in range(0, len(files), size))

        def take() -> list[Found]:
            return parts.popleft() if parts else []

        with contextlib.closing(
            _Scan(take, max_pixels, probe, processes, memory_bytes, limit_s, None, keep)
        ) as running:
            for answer in running.run():
                yield from answer


def scan_queue(
    take: Callable[[], list[Found]],
    max_pixels: int,
    *,
    probe: ProbeMode,
    workers: int,
    over: Callable[[], bool],
    keep: Keep | None = None,
) -> Generator[list[tuple[Found, Scanned]]]:
    """Read the headers of files whose order may still change.

    Args:
        take: gives the files that a process gets next, `AT_ONCE` at the most; none if there are no more.
        max_pixels: a frame with more makes a video bad.
        probe: how thoroughly.
        workers: processes; 0 = one per core.
        over: whether to stop, though there are more.
        keep: given the files that lie far away and were read whole.

    Yields:
        What a process found of some files, as it is ready.

    Raises:
        Full: a scanning process may open no more files; no video is called bad for that.
        SourceUnreachable: a network or a disk did not give a file; nor for that.
    """
    processes = workers or os.cpu_count() or 1
    with contextlib.closing(_Scan(take, max_pixels, probe, processes, MEMORY_BYTES, LIMIT_S, over, keep)) as running:
        yield from running.run()


def look_at(files: Sequence[Found], max_pixels: int) -> Generator[tuple[Found, Scanned]]:
    """What every packet of some files tells, read now by one limited process for all of them.

    Yields:
        Each file as it is ready.

    Raises:
        Full: that process may open no more files.
        SourceUnreachable: a network or a disk did not give one.
    """
    return scan(files, max_pixels, probe=ProbeMode.FULL, workers=1)


class ScanProcess:
    """One scanning process and the files it is on."""

    def __init__(self, memory_bytes: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = start_child("viewcache.materializer.dataset.scan_worker", theirs.fileno(), str(memory_bytes))
        self.connection = Connection(ours.detach())
        self.files: list[Found] = []
        self.until = 0.0

    def give(
        self, files: list[Found], max_pixels: int, limit_s: float, probe: ProbeMode, *, brings: bool = False
    ) -> None:
        """Start on some files. A process that has died breaks the pipe here; its end is read as an answer later."""
        self.files = files
        self.until = time.monotonic() + limit_s + sum(file.stamp.size for file in files) / BYTES_PER_S
        with contextlib.suppress(OSError):
            uris, as_stored = tuple(file.uri for file in files), any(file.as_stored for file in files)
            self.connection.send(Request(uris, max_pixels, probe, brings, as_stored))

    def kill(self) -> str:
        """End the process for certain and say how it ended."""
        if self.process.poll() is None and self.files:
            self.process.kill()
        self.connection.close()  # an idle one ends by itself when its connection closes
        status = self.process.wait()
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}"


class _Scan:
    """Processes that work through a queue of files."""

    def __init__(
        self,
        take: Callable[[], list[Found]],
        max_pixels: int,
        probe: ProbeMode,
        processes: int,
        memory_bytes: int,
        limit_s: float,
        over: Callable[[], bool] | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._take = take
        self._keep = keep
        self._again: deque[list[Found]] = deque()
        """Files of which one has ended its process."""
        self._max_pixels = max_pixels
        self._probe = probe
        self._memory_bytes = memory_bytes
        self._limit_s = limit_s
        self._over = over
        self._size = processes
        self._workers: list[ScanProcess] = []

    def run(self) -> Iterator[list[tuple[Found, Scanned]]]:
        """Files as they come."""
        while self._over is None or not self._over():
            self._hand_out()
            busy = {worker.connection: worker for worker in self._workers if worker.files}
            if not busy:
                return
            patience = max(min(worker.until for worker in busy.values()) - time.monotonic(), 0.0)
            for connection in wait(list(busy), timeout=patience if self._over is None else min(patience, POLL_S)):
                assert isinstance(connection, Connection)
                yield self._answer(busy[connection])
            for worker in list(self._workers):
                if worker.files and time.monotonic() > worker.until:
                    yield self._give_up(worker, self._too_slow)

    def _too_slow(self, _: str) -> str:
        return f"could not be indexed in {self._limit_s:g} s and more; given up"

    def _hand_out(self) -> None:
        while True:
            idle = next((worker for worker in self._workers if not worker.files), None)
            if idle is None and len(self._workers) >= self._size:
                return
            files = self._again.popleft() if self._again else self._take()
            if not files:
                return
            if idle is None:
                idle = ScanProcess(self._memory_bytes)
                self._workers.append(idle)
            idle.give(files, self._max_pixels, self._limit_s, self._probe, brings=self._keep is not None)

    def _answer(self, worker: ScanProcess) -> list[tuple[Found, Scanned]]:
        files = worker.files
        try:
            answers: list[Scanned] = worker.connection.recv()
        except (EOFError, OSError):
            return self._give_up(worker, lambda ended: f"the process that indexed it {ended}")
        worker.files = []
        for answer in answers:
            if not answer.of_video:
                raise Full(answer.error) if answer.lasting else SourceUnreachable(answer.error)
        return [(file, self._without_content(file, answer)) for file, answer in zip(files, answers, strict=True)]

    def _without_content(self, file: Found, answer: Scanned) -> Scanned:
        if not answer.content:
            return answer
        if self._keep is not None:
            self._keep(file, answer)
        return replace(answer, content=b"")

    def _give_up(self, worker: ScanProcess, why: Callable[[str], str]) -> list[tuple[Found, Scanned]]:
        """End a process. Of several files it is not known which one it was, so each gets a process to itself."""
        files = worker.files
        self._workers.remove(worker)
        ended = worker.kill()
        if len(files) > 1:
            self._again.extend([file] for file in files)
            return []
        return [(files[0], Scanned(error=f"{shown(files[0].uri)}: {why(ended)}"))]

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
