"""Make a block: the pictures of several images, each as a job of its own would make it, in one object.

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
from viewcache.materializer.planning.recipe import Part, Recipe
from viewcache.materializer.workers.job import Job, Made, Report, Target
from viewcache.materializer.workers.make import make
from viewcache.store import ArrayMeta, Stored, Written, physical_of
from viewcache.store.codec_trial import Trial

__all__ = ["make_job"]


def make_job(job: Job, pause: Callable[[], bool]) -> Iterator[Made | Report]:
    """Make a job's objects, whether they are of a video or of a block of images; see `make`."""
    block = job.block
    return make(job, pause) if block is None else _Block(job, block).run(pause)


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


class _Block:
    """The state of one job."""

    def __init__(self, job: Job, recipe: Recipe) -> None:
        self._job, self._recipe = job, recipe
        self._out = np.empty(recipe.shape, np.uint8)
        self._pictures = self._out.reshape(len(recipe.parts), *recipe.chunk_shape)
        self._said = _Said()
        self._bad: dict[int, str] = {}
        self._contradicted: list[tuple[str, Scanned]] = []
        self._beside: dict[str, list[Recipe]] = {}
        """Content key of an image → what else is made of it, until it has been."""
        for clip in job.clips:
            if clip is not recipe:
                self._beside.setdefault(job.images[clip.key], []).append(clip)

    def run(self, pause: Callable[[], bool]) -> Iterator[Made | Report]:
        """Make one part after the other, then the block; the last value is the report."""
        block, span = self._recipe, UNKNOWN
        for place, part in enumerate(block.parts):
            beside = self._beside.pop(part.source.key, [])
            report: Report | None = None
            for said in self._make(place, part, beside, pause):
                if isinstance(said, Report):
                    report = said
                elif said.key == part.recipe.key:
                    self._said.took(said.seconds)
                    span = _joined(span, said.span)
                else:
                    yield said
            assert report is not None  # each job ends with one
            self._said.add(report)
            if report.error and report.error_kind != BadVideo.kind:
                yield self._report(error=report.error, kind=report.error_kind)
                return
            if report.scanned is not None and report.returned:  # its clips are planned again
                self._contradicted.append((part.source.key, report.scanned))
            elif why := self._said.failed.pop(part.recipe.key, "") or report.error:
                self._bad[place] = why
            elif report.returned:
                left = [clip.key for clips in self._beside.values() for clip in clips]
                yield self._report(returned=(block.key, *report.returned, *left))
                return
        failed_by_ops = [key for part in block.parts if (key := part.recipe.key) in self._said.failed_by_ops]
        if failed_by_ops:
            why = self._said.failed_by_ops[failed_by_ops[0]]
            self._said.failed_by_ops = {block.key: why}
        if self._contradicted:
            yield self._report(returned=(block.key,))
        elif self._bad or failed_by_ops:
            yield self._report()
        else:
            yield self._stored(span)
            yield self._report()

    def _make(
        self, place: int, part: Part, beside: Sequence[Recipe], pause: Callable[[], bool]
    ) -> Iterator[Made | Report]:
        """What the job of one part says, of its pictures and of what is to be kept of its image."""
        job, source = self._job, part.source
        own = Job(
            number=job.number,
            uri=source.uri,
            name=source.name,
            video_key=source.key,
            index=source.index,
            clips=(part.recipe, *beside),
            target=_PartTarget(job.target, part.recipe.key, self._pictures[place]),
            estimate_s=job.estimate_s,
            intermediates=tuple(each for each in job.intermediates if each.video == source.key),
            laps=job.laps,
            trial=job.trial and place == 0,
            claims=source.claims,
        )
        # Pictures behind the first operation need nothing of the file: neither its orientation nor its colours.
        is_kept = own.intermediates and all(each.program.instructions for each in own.intermediates)
        if is_kept and not beside and source.claims is not None and not source.claims.error:
            said = list(make(replace(own, uri=_NO_FILE), pause, _claimed(source.claims)))
            report = said[-1]
            assert isinstance(report, Report)  # each job ends with one
            if not (report.error or report.failed):
                yield from said
                return
            self._said.damaged += report.damaged
        yield from make(own, pause)

    def _stored(self, span: Span) -> Made:
        job, block = self._job, self._recipe
        attributes = {"kind": str(block.kind), "clips": [part.recipe.key for part in block.parts]}
        meta = ArrayMeta(block.shape, block.chunk_shape, block.codec, attributes)
        written = job.target.write(block.key, self._out, meta)
        self._said.took({"store": written.seconds})
        seconds, self._said.seconds = self._said.seconds, {}
        return Made(block.key, written, seconds, span)

    def _report(self, returned: tuple[str, ...] = (), error: str = "", kind: str = "") -> Report:
        said = self._said
        return Report(
            seconds=dict(said.seconds),
            frames=dict(said.frames),
            failed=said.failed,
            returned=returned,
            damaged=tuple(said.damaged),
            trials=tuple(said.trials),
            error=error,
            error_kind=kind,
            failed_by_ops=said.failed_by_ops,
            unpacked=said.unpacked,
            bad_parts={self._recipe.key: self._bad} if self._bad and not self._contradicted else {},
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
