"""Make a block of several images and packs of pictures to be kept, each image as a job of its own would.

An image of which pictures are kept is not opened, unless these turn out to be damaged.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from viewcache.catalog.kinds import ObjectKind
from viewcache.errors import BadVideo, Broken, ViewcacheError
from viewcache.materializer.clock import UNKNOWN, Span
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.source import is_local, local_path
from viewcache.materializer.planning.recipe import Intermediate, Part, Recipe
from viewcache.materializer.workers.ahead import Extent, announce
from viewcache.materializer.workers.frame import PhaseClock
from viewcache.materializer.workers.image import Image, Keep, PictureMaker
from viewcache.materializer.workers.job import Begun, Job, Made, Report, Target
from viewcache.materializer.workers.make import make
from viewcache.materializer.workers.memory import OwnersMemory
from viewcache.materializer.workers.sampling import codec_for
from viewcache.store import ArrayMeta, Stored, Written, physical_of
from viewcache.store.codec_trial import Trial
from viewcache.store.tier import MEMORY

__all__ = ["make_job"]


def make_job(job: Job, pause: Callable[[], bool]) -> Iterator[Begun | Made | Report]:
    """Make a job's objects, whether they are of a video or of several images; see `make`.

    One of several images says which one it begins, if that is asked of it.
    """
    return _of_images(job, pause) if job.is_of_images else make(job, pause)


def _of_images(job: Job, pause: Callable[[], bool]) -> Iterator[Begun | Made | Report]:
    try:
        images = _Images(job)
    except MemoryError as full:
        yield Report(error=f"{job.name}: no memory for a block ({full})", error_kind=Broken.kind)
        return
    except Exception:  # a worker outlives a job that fails, and says what it was
        yield Report(error=f"{job.name}: {traceback.format_exc(limit=-3)}", error_kind=Broken.kind)
        return
    yield from images.run(pause)


class _Filling:
    """A pack whose pictures are made one after the other."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._layout = recipe.layout
        self._out = np.empty(self._layout.bytes, np.uint8)
        self._parts: list[dict[str, object] | None] = [None] * len(recipe.parts)

    def put(self, place: int, picture: np.ndarray, attributes: Mapping[str, object]) -> None:
        """A picture, and what it says of itself."""
        first, end = (*self._layout.firsts, len(self._out))[place : place + 2]
        self._out[first : first + picture.size] = picture.reshape(-1)
        self._out[first + picture.size : end] = 0
        about = {"key": self.recipe.parts[place].recipe.key, "offset": first, "shape": list(picture.shape[1:])}
        self._parts[place] = {**attributes, **about}

    @property
    def is_whole(self) -> bool:
        return None not in self._parts

    def write(self, target: Target, clock: PhaseClock, trials: list[Trial]) -> Written:
        """Publish it; each picture is found by its ``offset`` and ``shape`` in the attributes.

        ``clock`` and ``trials`` are those of `codec_for`.
        """
        attributes = {"kind": str(self.recipe.kind), "parts": self._parts}
        codec = codec_for(self.recipe, self._out, clock, trials)
        meta = ArrayMeta(self.recipe.shape, self.recipe.chunk_shape, codec, attributes)
        return target.write(self.recipe.key, self._out, meta)


class _PartTarget:
    """Takes the pictures that are made of an image into the block, and into packs."""

    def __init__(self, target: Target, places: Mapping[str, Sequence[np.ndarray]], keep: Keep) -> None:
        """Take where pictures go.

        Args:
            target: where intermediates are read.
            places: content key of a picture of the block → its places there.
            keep: takes pictures to be kept.
        """
        self._target, self._places, self._keep = target, places, keep
        self.memory = target.memory

    def write(self, key: str, array: np.ndarray | Iterable[np.ndarray], meta: ArrayMeta) -> Written:
        """Take a picture."""
        assert isinstance(array, np.ndarray)  # a picture is no stream of chunks
        for out in self._places.get(key, ()):
            out[...] = array
        if key not in self._places:
            self._keep(key, array, meta.attributes)
        return Written(key, physical_of(key), 0, array.nbytes, "raw", array.shape, array.shape[0], b"", 0, 0.0, False)

    def room(self, recipe: Recipe) -> None:
        """None: a picture may go to several places."""

    def read_into(self, stored: Stored, out: np.ndarray, chunks: Sequence[int]) -> None:
        """Read what is kept."""
        self._target.read_into(stored, out, chunks)

    def extent_of(self, stored: Stored) -> Extent:
        """Of what is kept."""
        return self._target.extent_of(stored)


@dataclass(slots=True)
class _Said:
    """What the jobs of the parts said, put together."""

    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    frames: Counter[str] = field(default_factory=Counter)
    picture_bytes: int = 0
    """Of all that was decoded: images differ in size."""
    failed: dict[str, str] = field(default_factory=dict)
    failed_by_ops: dict[str, str] = field(default_factory=dict)
    unpacked: dict[str, str] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    damaged_in_memory: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    def took(self, seconds: Mapping[str, float], cpu_s: Mapping[str, float]) -> None:
        """Add busy seconds and core seconds by stage."""
        for total, more in ((self.seconds, seconds), (self.cpu_s, cpu_s)):
            for stage, each in more.items():
                total[stage] = total.get(stage, 0.0) + each

    def add(self, report: Report) -> None:
        """Take in what a part's job said at its end."""
        self.took(report.seconds, report.span.cpu_s)
        self.frames.update({name: count for name, count in report.frames.items() if name != "frame_bytes"})
        self.picture_bytes += report.frames.get("packets", 0) * report.frames.get("frame_bytes", 0)
        self.failed |= report.failed
        self.failed_by_ops |= report.failed_by_ops
        self.unpacked |= report.unpacked
        self.damaged += report.damaged
        self.damaged_in_memory += report.damaged_in_memory
        self.trials += report.trials


class _Images:
    """The state of one job: a block, packs of pictures to be kept, or both."""

    def __init__(self, job: Job) -> None:
        self._job, self._block = job, job.block
        self._said = _Said()
        self._bad: dict[int, str] = {}
        self._contradicted: list[tuple[str, Scanned]] = []
        self._clock = PhaseClock(laps=job.laps)
        """Of what has no job of its own."""
        self._memory = OwnersMemory(job.target.memory)
        self._error = self._kind = ""
        self._made: set[str] = set()
        self._packs = [_Filling(clip) for clip in job.clips if clip.kind == ObjectKind.PACK]
        self._kept: dict[str, list[tuple[_Filling, int]]] = {}
        """Content key of a picture to be kept → the packs that it belongs in, and its place in each."""
        self._intermediates: dict[str, list[Intermediate]] = {}
        """By the content key of the image."""
        for each in job.intermediates:
            self._intermediates.setdefault(each.video, []).append(each)
        images: dict[str, Image] = {}
        """By content key: each is decoded once, however often it comes."""
        self._parts: tuple[Part, ...] = () if self._block is None else tuple(self._block.parts)
        """Of the block."""
        self._out = self._pictures = np.empty(0, np.uint8)
        """Of the block: as it is stored, and its pictures one by one."""
        self._room = None if self._block is None else job.target.room(self._block)
        """Where the block is made, if that is where it goes."""
        if self._block is not None:
            if self._room is None:
                self._out = np.empty(self._block.shape, np.uint8)
                self._pictures = self._out.reshape(len(self._parts), *self._block.chunk_shape)
            else:
                self._pictures = self._room.chunks
            for place, part in enumerate(self._parts):
                images.setdefault(part.source.key, Image(part.source)).parts[place] = part.recipe
        for pack in self._packs:
            for place, part in enumerate(pack.recipe.parts):
                image = images.setdefault(part.source.key, Image(part.source))
                if part.recipe.key not in self._kept:
                    image.beside.append(part.recipe)
                self._kept.setdefault(part.recipe.key, []).append((pack, place))
        self._images = list(images.values())
        self._maker = PictureMaker(job, self._memory, self._clock, self._pictures)

    def run(self, pause: Callable[[], bool]) -> Iterator[Begun | Made | Report]:
        """Make what is wanted of one image after the other, then the objects; the last value is the report."""
        try:
            yield from self._run(pause)
        except ViewcacheError as refused:
            self._error, self._kind = str(refused), refused.kind
        except Exception:  # a worker outlives a job that fails, and says what it was
            self._error, self._kind = f"{self._job.name}: {traceback.format_exc(limit=-3)}", Broken.kind
        finally:
            self._memory.close()
        yield self._report()

    def _announce(self) -> None:
        """Have the device read ahead: what pictures are kept of, and the files of the others."""
        target, kept = self._job.target, self._job.intermediates
        files = (image.source.uri for image in self._images if image.source.key not in self._intermediates)
        announce([Extent(local_path(uri)) for uri in files if is_local(uri)])
        in_memory = {each.key for each in kept if each.tier == MEMORY}  # of which the folder has a copy, too
        announce([target.extent_of(each.stored) for each in kept if each.key not in in_memory])
        self._clock.lap("load" if kept else "decode")

    def _run(self, pause: Callable[[], bool]) -> Iterator[Begun | Made]:
        span = UNKNOWN
        self._announce()
        for image in self._images:
            if self._job.names_images:
                yield Begun(image.source.key)
            if self._made_here(image):
                if pause():
                    return
                self._clock.skip()
                if not image.recipes:
                    continue
            report: Report | None = None
            for said in self._make(image, pause):
                if isinstance(said, Report):
                    report = said
                else:
                    self._said.took(said.seconds, said.span.cpu_s)
                    span = _joined(span, said.span)
            assert report is not None  # each job ends with one
            self._said.add(report)
            self._clock.skip()
            if report.broken or (report.error and report.error_kind != BadVideo.kind):
                self._error, self._kind = report.error, report.error_kind
                if not report.error:
                    self._error, self._kind = min(report.broken.values()), Broken.kind
                return
            if report.scanned is not None and report.returned:  # its clips are planned again
                self._contradicted.append((image.source.key, report.scanned))
            elif report.error:
                self._lose(image, report.error)
            elif report.returned:
                return
            else:
                self._lose_failed(image)
        if self._job.names_images:
            yield Begun("")  # whatever happens now is no image's fault
        if self._block is not None:
            yield from self._finished(self._block, span)
        for pack in self._packs:
            if pack.is_whole:
                yield self._made_of(pack.recipe, pack.write(self._job.target, self._clock, self._said.trials))
                if pause():
                    return
                self._clock.skip()

    def _made_here(self, image: Image) -> bool:
        """Make what needs no job of its own, and leave the rest to one; whether anything was made."""
        kept = self._intermediates.get(image.source.key, ())
        if kept:
            done = self._maker.from_kept(image, kept)
            image.parts = {place: part for place, part in image.parts.items() if place not in done}
            return bool(done)
        is_tried = self._job.trial and image is self._images[0]
        if is_tried or not self._maker.decoded(image, self._keep):
            return False
        image.parts, image.beside = {}, []
        return True

    def _keep(self, key: str, picture: np.ndarray, attributes: Mapping[str, object]) -> None:
        """A picture to be kept goes into all packs that it belongs in."""
        for pack, place in self._kept[key]:
            pack.put(place, picture, attributes)

    def _lose(self, image: Image, why: str) -> None:
        """An image can give nothing."""
        self._bad |= dict.fromkeys(image.parts, why)
        for picture in image.beside:
            self._lose_packs(picture, why)

    def _lose_failed(self, image: Image) -> None:
        """An image may have failed to give some of what was wanted of it."""
        failed = self._said.failed
        self._bad |= {place: failed[part.key] for place, part in image.parts.items() if part.key in failed}
        for part in image.parts.values():
            failed.pop(part.key, None)
        for picture in image.beside:
            if why := failed.pop(picture.key, ""):
                self._lose_packs(picture, why)

    def _lose_packs(self, picture: Recipe, why: str) -> None:
        """A picture to be kept cannot be made, so none of its packs can."""
        self._said.failed |= {pack.recipe.key: why for pack, _ in self._kept[picture.key]}

    def _finished(self, block: Recipe, span: Span) -> Iterator[Made]:
        """The block, if all of its pictures could be made."""
        failed = self._said.failed_by_ops
        bad = {place: failed[part.recipe.key] for place, part in enumerate(self._parts) if part.recipe.key in failed}
        for place, why in bad.items():
            failed.pop(self._parts[place].recipe.key, None)
            self._bad[place] = failed[block.key] = why
        if not self._contradicted and not self._bad:
            attributes = {"kind": str(block.kind), "clips": [part.recipe.key for part in self._parts]}
            codec = codec_for(block, self._out, self._clock, self._said.trials)
            meta, room = ArrayMeta(block.shape, block.chunk_shape, codec, attributes), self._room
            written = self._job.target.write(block.key, self._out, meta) if room is None else room.seal(meta)
            yield self._made_of(block, written, span)

    def _make(self, image: Image, pause: Callable[[], bool]) -> Iterator[Made | Report]:
        """What the job of one image says."""
        job, source = self._job, image.source
        places: dict[str, list[np.ndarray]] = {}
        for place, part in image.parts.items():
            places.setdefault(part.key, []).append(self._pictures[place])
        own = Job(
            number=job.number,
            uri=source.uri,
            name=source.name,
            video_key=source.key,
            index=source.index,
            clips=image.recipes,
            target=_PartTarget(job.target, places, self._keep),
            estimate_s=job.estimate_s,
            intermediates=tuple(self._intermediates.get(source.key, ())),
            laps=job.laps,
            trial=job.trial and image is self._images[0],
            claims=source.claims,
        )
        yield from make(own, pause)

    def _made_of(self, recipe: Recipe, written: Written, before: Span = UNKNOWN) -> Made:
        """An object is in its place; what was made until now has gone into it, the first part of it ``before``."""
        self._made.add(recipe.key)
        self._clock.lap("store")
        span = _joined(before, self._take())
        seconds, self._said.seconds = self._said.seconds, {}
        cpu_s, self._said.cpu_s = self._said.cpu_s, {}
        return Made(recipe.key, written, seconds, replace(span, cpu_s=cpu_s))

    def _take(self) -> Span:
        """Add what had no job of its own to what the others said."""
        seconds, span = self._clock.take()
        self._said.took(seconds, span.cpu_s)
        return span

    def _report(self) -> Report:
        self._take()
        said, block, maker = self._said, self._block, self._maker
        frames, picture_bytes = said.frames + maker.frames, said.picture_bytes + maker.picture_bytes
        done = {*self._made, *said.failed, *said.failed_by_ops}
        return Report(
            seconds=dict(said.seconds),
            frames={**frames, "frame_bytes": picture_bytes // max(1, frames["packets"])},
            failed=said.failed,
            returned=tuple(key for key in self._job.keys if key not in done),
            damaged=(*said.damaged, *maker.damaged),
            trials=tuple(said.trials),
            error=self._error,
            error_kind=self._kind,
            span=Span(cpu_s=dict(said.cpu_s)),
            failed_by_ops=said.failed_by_ops,
            unpacked=said.unpacked,
            bad_parts={} if block is None or not self._bad or self._contradicted else {block.key: self._bad},
            contradicted=tuple(self._contradicted),
            damaged_in_memory=(*said.damaged_in_memory, *maker.damaged_in_memory),
        )


def _joined(one: Span, other: Span) -> Span:
    """From where the first begins to where the second ends; what both took of a core is added up elsewhere."""
    if not one.ended:
        return other
    return Span(one.begun, other.ended, (*one.laps, *other.laps))
