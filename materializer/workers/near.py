"""The file of one job, opened once for all that the job does with it: out of its copy in the local tier, or itself.

A job that decodes a file which lies far away, and is to keep it, fetches it whole first, in a few large pieces, into
the store; all else is read from there. So each byte crosses the network once. The trade-off: the first clip waits for
the whole file, and not for its own part of it.
"""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadVideo, ViewcacheError
from viewcache.failpoints import failpoint
from viewcache.materializer.media.kept import CHUNK_BYTES, KeptSource, about, kept_key
from viewcache.materializer.media.picture_head import is_picture
from viewcache.materializer.media.reaching import CHANGED
from viewcache.materializer.media.source import Source, open_source, shown, stamp_now
from viewcache.materializer.media.whole import WholeSource
from viewcache.materializer.workers.frame import PhaseClock
from viewcache.materializer.workers.job import Job, Made, Near
from viewcache.materializer.workers.memory import OwnersMemory
from viewcache.store import ArrayMeta

__all__ = ["PIECE_BYTES", "JobSource"]

PIECE_BYTES = 8 << 20
"""Of a file that is fetched with one request while it is kept: a worker holds so many."""


class _GivenUp(Exception):
    """The job shall end."""


class JobSource:
    """Opened when it is first needed; closed with the job."""

    def __init__(self, job: Job) -> None:
        """Open nothing yet."""
        self._job = job
        self._near = job.near
        self._opened: Source | None = None
        self._whole: WholeSource | None = None
        """The same of a picture, whose index and pixels are made of bytes that are read once."""
        self._fetched: list[Source] = []
        """What was read while the file was kept, and is closed by now."""
        self._charged_s = self._keeping_s = 0.0
        self._clock = PhaseClock(laps=job.laps)
        self.ended = False
        """Whether the job was to end while the file was fetched."""
        self.memory = OwnersMemory(job.target.memory)
        """Where pictures lie for which no file is needed."""

    def __enter__(self) -> Self:
        """The source itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.memory.close()
        if self._opened is not None:
            (self._whole or self._opened).close()

    def opened(self) -> Source:
        """The file, open.

        Raises:
            BadVideo: it cannot be opened, or is not a regular file.
        """
        if self._opened is None:
            self._opened = open_source(self._job.uri) if self._near is None else self._kept(self._near)
            if is_picture(self._job.uri):
                self._whole = WholeSource(self._opened)
        return self._whole or self._opened

    def _kept(self, near: Near) -> KeptSource:
        def instead() -> Source:
            file = open_source(self._job.uri)
            if not file.stamp.same(near.stamp):
                file.close()
                raise BadVideo(f"{shown(self._job.uri)}: {CHANGED}")
            return file

        return KeptSource(self._job.uri, near.stamp, near.stored, self._job.target.read_into, instead)

    def keep(self, pause: Callable[[], bool]) -> Iterator[Made]:
        """Make the copy of the file that the job is to make, and read from that; without one, or room, do nothing."""
        recipe = self._job.to_keep
        if recipe is None:
            return
        try:
            with open_source(self._job.uri) as file:
                self._fetched.append(file)
                if kept_key(self._job.video_key, file.stamp) != recipe.key or file.stamp.size != recipe.shape[0]:
                    return  # another version: who decodes it says so
                attributes = about(self._job.name, self._job.video_key, file.stamp)
                meta = ArrayMeta(recipe.shape, recipe.chunk_shape, recipe.codec, attributes)
                pieces = self._pieces(file, pause)
                written = self._job.target.write(recipe.key, pieces, meta)
        except _GivenUp:
            self.ended = True
            return
        except (ViewcacheError, OSError):
            return  # the file is read where it lies; what is wrong with that is said then
        finally:
            self._keeping_s += self._clock.lap("fetch")
        made = Made(recipe.key, written, *self._clock.take())
        self._near = Near(recipe.key, file.stamp, made.stored)
        yield made
        self.ended = pause()

    def _pieces(self, file: Source, pause: Callable[[], bool]) -> Iterator[NDArray[np.uint8]]:
        """The file's bytes, a chunk at a time.

        Raises:
            BadVideo: the file was replaced meanwhile, so that what has come may be of both.
            _GivenUp: the job shall end.
        """
        for start in range(0, file.stamp.size, PIECE_BYTES):
            piece = np.frombuffer(file.read(start, PIECE_BYTES), np.uint8)
            if len(piece) != min(PIECE_BYTES, file.stamp.size - start):
                raise BadVideo(f"{shown(file.uri)}: ends at byte {start + len(piece)}")
            for at in range(0, len(piece), CHUNK_BYTES):
                yield piece[at : at + CHUNK_BYTES]
            failpoint("worker.source-piece")
            self._keeping_s += self._clock.lap("fetch")
            if pause():
                raise _GivenUp
            self._clock.skip()
        now = stamp_now(file.uri)
        if now is None or not now.same(file.stamp):
            raise BadVideo(f"{shown(file.uri)}: {CHANGED}")

    # What it took --------------------------------------------------------------------------------------------------

    def waited_s(self) -> float:
        """Seconds that a network was waited for since the last call, while what is open now was read."""
        total = 0.0 if self._opened is None else self._opened.waited_s
        waited, self._charged_s = total - self._charged_s, total
        return waited

    def counts(self) -> dict[str, int]:
        """Bytes that came from far away, and for how long that was waited, as a report has it."""
        size, seconds = sum(each.bytes_read for each in self._fetched), self._keeping_s
        if self._opened is not None and self._opened.waited_s > 0:
            size, seconds = size + self._opened.bytes_read, seconds + self._opened.waited_s
        return {"fetched_bytes": size, "fetched_us": round(seconds * 1e6)}

    def damaged(self) -> tuple[str, ...]:
        """The key of the copy of the file, if it was not as it was written."""
        opened, near = self._opened, self._near
        return (near.key,) if near is not None and isinstance(opened, KeptSource) and opened.is_damaged else ()
