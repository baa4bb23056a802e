"""Make what is wanted of several images, each as a job of its own would: pictures to be kept, and those of a block.

An image of which pictures are kept is not opened, unless these turn out to be damaged.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from viewcache.errors import BadVideo
from viewcache.materializer.clock import UNKNOWN, Span
from viewcache.materializer.media.facts import Claims, Scanned
from viewcache.materializer.media.index import KEY, REFERENCE, VideoIndex
from viewcache.materializer.planning.recipe import Recipe, VideoSource
from viewcache.materializer.workers.job import Job, Made, Report, Target
from viewcache.materializer.workers.make import make
from viewcache.store import ArrayMeta, Stored, Written, physical_of
from viewcache.store.codec_trial import Trial

__all__ = ["make_job"]


def make_job(job: Job, pause: Callable[[], bool]) -> Iterator[Made | Report]:
    """Make a job's objects, whether they are of a video or of several images; see `make`."""
    return _Images(job).run(pause) if job.images else make(job, pause)


class _PartTarget:
    """Takes the pictures of a block into its array; all else goes where the job's objects go."""

    def __init__(self, target: Target, key: str, out: np.ndarray) -> None:
        self._target, self._key, self._out = target, key, out

    def write(self, key: str, array: np.ndarray | Iterable[np.ndarray], meta: ArrayMeta) -> Written:
        """Keep the picture, or publish an object."""
        if key != self._key:
            return self._target.write(key, array, meta)
        assert isinstance(array, np.ndarray)  # a clip is no stream of chunks
        self._out[...] = array
        return Written(key, physical_of(key), 0, array.nbytes, "raw", array.shape, array.shape[0], b"", 0, 0.0, False)

    def read_into(self, stored: Stored, out: np.ndarray, chunks: Sequence[int]) -> None:
        """Read what is kept."""
        self._target.read_into(stored, out, chunks)


@dataclass(slots=True)
class _Said:
    """What the jobs of the parts said, put together."""

    seconds: dict[str, float] = field(default_factory=dict)
    frames: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    failed_by_ops: dict[str, str] = field(default_factory=dict)
    unpacked: dict[str, str] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    def took(self, seconds: Mapping[str, float]) -> None:
        """Add busy seconds by stage."""
        for stage, each in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + each

    def add(self, report: Report) -> None:
        """Take in what a part's job said at its end."""
        self.took(report.seconds)
        self.frames.update({name: count for name, count in report.frames.items() if name != "frame_bytes"})
        self.frames["frame_bytes"] = max(self.frames["frame_bytes"], report.frames.get("frame_bytes", 0))
        self.failed |= report.failed
        self.failed_by_ops |= report.failed_by_ops
        self.unpacked |= report.unpacked
        self.damaged += report.damaged
        self.trials += report.trials


@dataclass(slots=True)
class _Image:
    """What is made of one image."""

    source: VideoSource
    beside: list[Recipe] = field(default_factory=list)
    """What is to be kept of it."""
    place: int = 0
    """In the block, of the picture that is made of it."""
    part: Recipe | None = None
    """That picture; None if it is not in the block."""

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """All that is made of it."""
        return (*(() if self.part is None else (self.part,)), *self.beside)


class _Images:
    """The state of one job: a block, pictures to be kept, or both."""

    def __init__(self, job: Job) -> None:
        self._job, self._block = job, job.block
        self._said = _Said()
        self._bad: dict[int, str] = {}
        self._contradicted: list[tuple[str, Scanned]] = []
        self._made: set[str] = set()
        beside: dict[str, list[Recipe]] = {}
        for clip in job.clips:
            if clip is not self._block:
                beside.setdefault(job.images[clip.key], []).append(clip)
        self._images: list[_Image] = []
        if self._block is not None:
            self._out = np.empty(self._block.shape, np.uint8)
            self._pictures = self._out.reshape(len(self._block.parts), *self._block.chunk_shape)
            for place, part in enumerate(self._block.parts):
                mine = beside.pop(part.source.key, [])
                self._images.append(_Image(part.source, mine, place, part.recipe))
        self._images += [_Image(job.sources[image], mine) for image, mine in beside.items()]

    def run(self, pause: Callable[[], bool]) -> Iterator[Made | Report]:
        """Make what is wanted of one image after the other, then the block; the last value is the report."""
        span = UNKNOWN
        for image in self._images:
            report: Report | None = None
            for said in self._make(image, pause):
                if isinstance(said, Report):
                    report = said
                elif image.part is not None and said.key == image.part.key:
                    self._said.took(said.seconds)
                    span = _joined(span, said.span)
                else:
                    self._made.add(said.key)
                    yield said
            assert report is not None  # each job ends with one
            self._said.add(report)
            if report.error and report.error_kind != BadVideo.kind:
                yield self._report(error=report.error, kind=report.error_kind)
                return
            if report.scanned is not None and report.returned:  # its clips are planned again
                self._contradicted.append((image.source.key, report.scanned))
            elif report.error:
                self._lose(image, report.error)
            elif image.part is not None and (why := self._said.failed.pop(image.part.key, "")):
                self._bad[image.place] = why
            elif report.returned:
                yield self._report()
                return
        if self._block is not None:
            yield from self._finished(self._block, span)
        yield self._report()

    def _lose(self, image: _Image, why: str) -> None:
        """An image can give nothing."""
        if image.part is not None:
            self._bad[image.place] = why
        self._said.failed |= {clip.key: why for clip in image.beside if clip.key not in self._made}

    def _finished(self, block: Recipe, span: Span) -> Iterator[Made]:
        """The block, if all of its pictures could be made."""
        by_ops = [why for part in block.parts if (why := self._said.failed_by_ops.pop(part.recipe.key, ""))]
        if by_ops:
            self._said.failed_by_ops[block.key] = by_ops[0]
        elif not self._contradicted and not self._bad:
            self._made.add(block.key)
            yield self._stored(block, span)

    def _make(self, image: _Image, pause: Callable[[], bool]) -> Iterator[Made | Report]:
        """What the job of one image says."""
        job, source, part = self._job, image.source, image.part
        target = job.target
        if part is not None:
            target = _PartTarget(target, part.key, self._pictures[image.place])
        own = Job(
            number=job.number,
            uri=source.uri,
            name=source.name,
            video_key=source.key,
            index=source.index,
            clips=image.recipes,
            target=target,
            estimate_s=job.estimate_s,
            intermediates=tuple(each for each in job.intermediates if each.video == source.key),
            laps=job.laps,
            trial=job.trial and image is self._images[0],
            claims=source.claims,
        )
        # Pictures behind the first operation need nothing of the file: neither its orientation nor its colours.
        is_kept = own.intermediates and all(each.program.instructions for each in own.intermediates)
        if is_kept and not image.beside and source.claims is not None and not source.claims.error:
            said = list(make(replace(own, uri=_NO_FILE), pause, _claimed(source.claims)))
            report = said[-1]
            assert isinstance(report, Report)  # each job ends with one
            if not (report.error or report.failed):
                yield from said
                return
            self._said.damaged += report.damaged
        yield from make(own, pause)

    def _stored(self, block: Recipe, span: Span) -> Made:
        job = self._job
        attributes = {"kind": str(block.kind), "clips": [part.recipe.key for part in block.parts]}
        meta = ArrayMeta(block.shape, block.chunk_shape, block.codec, attributes)
        written = job.target.write(block.key, self._out, meta)
        self._said.took({"store": written.seconds})
        seconds, self._said.seconds = self._said.seconds, {}
        return Made(block.key, written, seconds, span)

    def _report(self, error: str = "", kind: str = "") -> Report:
        said, block = self._said, self._block
        done = {*self._made, *said.failed, *said.failed_by_ops}
        return Report(
            seconds=dict(said.seconds),
            frames=dict(said.frames),
            failed=said.failed,
            returned=tuple(key for key in self._job.keys if key not in done),
            damaged=tuple(said.damaged),
            trials=tuple(said.trials),
            error=error,
            error_kind=kind,
            failed_by_ops=said.failed_by_ops,
            unpacked=said.unpacked,
            bad_parts={} if block is None or not self._bad or self._contradicted else {block.key: self._bad},
            contradicted=tuple(self._contradicted),
        )


_NO_FILE = "/dev/null/no file is opened"
"""Where nothing can be: opening it fails."""


def _claimed(claims: Claims) -> VideoIndex:
    """An index of an image that nobody opens, by what its header said."""
    nothing = np.zeros(1, np.int64)
    return VideoIndex(
        codec="jpeg",
        decoder="mjpeg",
        extradata=b"",
        width=claims.width,
        height=claims.height,
        pix_fmt=claims.pix_fmt,
        color_space=2,
        color_range=0,
        rotation=0,
        time_base=(1, 1),
        fps=0.0,
        mode="packets",
        stream=0,
        file_size=claims.stamp.size,
        mtime_ns=claims.stamp.mtime_ns,
        etag=claims.stamp.etag,
        damage="",
        pos=nothing,
        size=np.zeros(1, np.int32),
        crc=np.zeros(1, np.uint32),
        pts=nothing,
        dts=nothing,
        flags=np.array([KEY | REFERENCE], np.uint8),
        order=np.zeros(1, np.int32),
        frame_pts=nothing,
    )


def _joined(one: Span, other: Span) -> Span:
    """From where the first begins to where the second ends."""
    if not one.ended:
        return other
    return Span(one.begun, other.ended, (*one.laps, *other.laps))
