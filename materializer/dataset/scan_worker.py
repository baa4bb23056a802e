"""The body of a scanning process: take some files, look into them, say what was found, wait for the next.

Run as `python -m viewcache.materializer.dataset.scan_worker FD MEMORY_BYTES` by the scan; it ends when the other side
of FD closes.
"""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

from viewcache.errors import Full, SourceUnreachable, ViewcacheError
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.scan_request import Request
from viewcache.materializer.limits import is_limited_from_outside, limit_worker
from viewcache.materializer.media.facts import Scanned, VideoFacts
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.picture_head import is_picture, picture_index, read_picture
from viewcache.materializer.media.reaching import OutOfReach, TooLittleMemory
from viewcache.materializer.media.source import (
    SMALL_BLOCK,
    BlockSource,
    Source,
    is_local,
    open_source,
    shown,
    stamp_now,
)

__all__ = ["main"]

REMOTE_AT_ONCE = 8
"""Remote files whose headers a process reads at the same time: each is a few round trips of waiting."""

MOST_CONTENT = 64 << 20
"""Bytes of files that an answer brings at most: they are in the memory of both processes."""


def serve(connection: Connection) -> None:
    """Take a `Request`, answer with a list of `Scanned`, until the connection closes."""
    with ThreadPoolExecutor(REMOTE_AT_ONCE) as threads:
        while True:
            try:
                request: Request = connection.recv()
            except (EOFError, OSError):
                return
            baggage = _Baggage(MOST_CONTENT if request.brings else 0)
            look_into = partial(
                look, max_pixels=request.max_pixels, how=request.probe, baggage=baggage, as_stored=request.as_stored
            )
            several = len(request.uris) > 1 and not is_local(request.uris[0])
            connection.send(list((threads.map if several else map)(look_into, request.uris)))


class _Baggage:
    """How many bytes of files an answer may still bring."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = threading.Lock()

    def content(self, source: Source) -> bytes:
        """A file that was read whole, in one version, if there is room for it in the answer."""
        size = source.stamp.size
        with self._lock:
            if size > self._left or not isinstance(source, BlockSource):
                return b""
            self._left -= size
        now = stamp_now(source.uri)
        return source.held() if now is not None and now.same(source.stamp) else b""


Reading = Callable[[Source, int], VideoFacts | None]
"""Reads the header of an opened file with frames of at most so many pixels; None where that does not say enough."""
Indexing = Callable[[Source, int], VideoIndex]
"""Looks at every packet."""


def _of_pictures(*, as_stored: bool) -> tuple[Reading, Indexing]:
    return partial(read_picture, as_stored=as_stored), partial(picture_index, as_stored=as_stored)


def _of_videos() -> tuple[Reading, Indexing]:
    # PyAV takes as long to import as the headers of a thousand pictures to read, which need none of it.
    from viewcache.materializer.media.header import read_header
    from viewcache.materializer.media.probe import probe_source

    return read_header, probe_source


def look(
    uri: str, max_pixels: int, how: ProbeMode, baggage: _Baggage | None = None, *, as_stored: bool = False
) -> Scanned:
    """What is found of one file; ``as_stored`` is for images, see `read_picture`."""
    reading, indexing = _of_pictures(as_stored=as_stored) if is_picture(uri) else _of_videos()
    try:
        if how != ProbeMode.FULL:
            with open_source(uri, SMALL_BLOCK) as source:
                facts = reading(source, max_pixels)
            if facts is not None and (facts.times is not None or how == ProbeMode.LAZY):
                return Scanned(facts)
        with open_source(uri) as source:
            found = Scanned.of(uri, indexing(source, max_pixels))
            return found if baggage is None else replace(found, content=baggage.content(source))
    except TooLittleMemory as short:
        if is_limited_from_outside():  # another shell may allow more
            return Scanned(error=str(short), of_video=False)
        # Unlike a worker's, this limit is the same for everybody: who needs more is bad wherever it is looked at.
        return Scanned(error=f"{shown(uri)}: looking at it takes more memory than a scanning process may have")
    except Full as full:
        return Scanned(error=str(full), of_video=False)
    except SourceUnreachable as unreachable:
        return Scanned(error=str(unreachable), of_video=False, lasting=False)
    except ViewcacheError as bad:
        return Scanned(error=str(bad), lasting=not isinstance(bad, OutOfReach))


def main() -> None:
    """Set the limits, then serve."""
    fd, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    limit_worker(memory_bytes, writes=False)
    serve(Connection(fd))


if __name__ == "__main__":
    main()
