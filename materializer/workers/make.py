"""Make the objects of one job: decode once, give every frame to all that need it, store each object when it is whole.

A frame lives from its decoding to its last consumer and no longer (SAND §5.4). Groups of pictures are decoded in the
order in which the clips that need them are due: the most urgent clip is out first, the rest of the video follows.
"""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from viewcache.errors import BadVideo, Broken, OpFailed, OpWorkerFailed, ViewcacheError
from viewcache.materializer.media.decode import DecodeStats, decode_from
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.media.lossy import Unconverted
from viewcache.materializer.media.pixels import frame_from_planes
from viewcache.materializer.ops.failures import SAY_SIZE
from viewcache.materializer.planning.program import FrameStep, FrameTree, finish, grow
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.workers.audio import AudioMaker
from viewcache.materializer.workers.encoding import Encoding, pictures_of, try_pictures
from viewcache.materializer.workers.frame import Frame, PhaseClock, copy_picture
from viewcache.materializer.workers.intermediates import IntermediateReader, root_of
from viewcache.materializer.workers.job import Job, Made, Report
from viewcache.materializer.workers.looking import look, unfit
from viewcache.materializer.workers.lossy import LossyEncoding, LossySteps, lossy_step
from viewcache.materializer.workers.near import JobSource
from viewcache.materializer.workers.remote_steps import RemoteSteps
from viewcache.materializer.workers.sampling import codec_for
from viewcache.store import ENCODED, ArrayMeta
from viewcache.store.codec_trial import Trial, try_codecs
from viewcache.store.passing import Room

__all__ = ["make"]

LOOK_S = 0.005
"""How long clips are made of kept pictures between two looks at what came meanwhile; a picture takes 0.1 ms."""


@dataclass(slots=True)
class _Leaf:
    """A frame-by-frame stream of a clip, being filled."""

    tree: FrameTree
    positions: dict[int, list[tuple[int, FrameStep | None]]]
    """Source frame → where it goes and by which chain."""
    array: np.ndarray | None = None
    """uint8 (T,C,H,W), once the first frame says how large; (T, bytes) for native planes."""

    def steps(self) -> Iterator[tuple[int, FrameStep | None]]:
        """Each frame and what is made of it."""
        return ((frame, node) for frame, places in self.positions.items() for _, node in places)


@dataclass(slots=True)
class _Clip:
    recipe: Recipe
    tree: FrameTree
    leaves: list[_Leaf]
    missing: set[int]
    """Source frames still to come."""
    waiting: int
    """How many of them have not been decoded; counted where op workers are to have several at a time."""
    encoding: Encoding | LossyEncoding | None = None
    """Where its pictures go at once, if they are packed in groups."""
    room: Room | None = None
    """Where it is made, if that is where it goes."""


class _Maker:
    """The state of one job."""

    def __init__(self, job: Job, index: VideoIndex, source: JobSource) -> None:
        self.job = job
        self.source = source
        source.waited_s()  # what looking at the packets took is not decoding
        self.clock = PhaseClock(laps=job.laps)
        self.index = index
        self.stats = DecodeStats()
        self.trials: list[Trial] = []
        self.tried = not job.trial
        self.unpacked: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.failed_by_ops: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        self.returned: list[str] = []
        self.users: dict[int, list[_Clip]] = {}
        self.due: dict[int, int] = {}
        self.roots: dict[int, set[FrameStep | None]] = {}
        """Source frame → first operations on the ways of all that is made of it."""
        self.open: dict[str, _Clip] = {}
        self.kept = IntermediateReader(job.target, source.memory, job.intermediates, index)
        self.remote = RemoteSteps(self.open.__contains__, self._drop)
        self.lossy = LossySteps(index.frames, self._lose, self._break, self.clock.lap)
        self.audio = AudioMaker(job.uri, index, source.opened)
        self.unheard: dict[str, Recipe] = {}
        """What audio is still to be made."""
        self.ended = False
        """Whether the rest was given up in the middle of the audio."""
        for recipe in job.pictures:
            if why := unfit(recipe, index, self.lossy):
                self.failed[recipe.key] = f"{job.file}: {why}"
            elif recipe.audio is None:
                self._want(recipe)
            else:
                self.unheard[recipe.key] = recipe

    def _want(self, recipe: Recipe) -> None:
        tree = grow(recipe.program, recipe.frames, recipe.row)
        leaves: list[_Leaf] = []
        for leaf in tree.leaves():
            positions: dict[int, list[tuple[int, FrameStep | None]]] = {}
            for t, (frame, node) in enumerate(zip(leaf.frames.tolist(), leaf.nodes, strict=True)):
                positions.setdefault(frame, []).append((t, node))
            leaves.append(_Leaf(leaf, positions))
        missing = {frame for leaf in leaves for frame in leaf.positions}
        encoding: Encoding | LossyEncoding | None = None
        if recipe.codec == LOSSY:
            encoding = LossyEncoding(recipe, self.lossy)
        elif recipe.codec in ENCODED:
            encoding = Encoding(recipe, self.index)
        clip = _Clip(recipe, tree, leaves, missing, len(missing), encoding)
        self.open[recipe.key] = clip
        for frame in missing:
            self.users.setdefault(frame, []).append(clip)
            self.due[frame] = min(recipe.due, self.due.get(frame, recipe.due))
        for made in leaves:
            for frame, node in made.steps():
                self.roots.setdefault(frame, set()).add(root_of(node))
                self.lossy.want(frame, node)
        if recipe.program.is_remote:
            for made in leaves:
                for frame, node in made.steps():
                    self.remote.want(recipe.key, frame, node)

    def _drop(self, key: str, failed: OpWorkerFailed) -> None:
        """An op worker failed on a clip: give that up."""
        if self.open.pop(key, None):
            self.failed_by_ops[key] = f"{self.job.file}: {failed}"

    def _lose(self, step: FrameStep, numbers: list[int], why: str) -> None:
        """Some frames cannot be encoded with the loss of a step: give up the clips that need them."""
        self.failed |= dict.fromkeys(self._given_up(step, numbers), f"{self.job.file}: {why}")

    def _break(self, step: FrameStep, numbers: list[int], why: str) -> None:
        """The same where the encoder failed: who reads the clips is told, and no policy is asked."""
        self.broken |= dict.fromkeys(self._given_up(step, numbers), f"{self.job.file}: {why}")

    def _given_up(self, step: FrameStep, numbers: list[int]) -> Iterator[str]:
        for number in numbers:
            for clip in self.users.get(number, ()):
                needs = {lossy_step(node) for leaf in clip.leaves for _, node in leaf.positions.get(number, ())}
                if step in needs and self.open.pop(clip.recipe.key, None) is not None:
                    yield clip.recipe.key

    def _completes(self, number: int) -> bool:
        """Note that a frame was decoded; whether it was the last one of a clip."""
        clips = self.users.get(number, ())
        for clip in clips:
            clip.waiting -= 1
        return any(not clip.waiting for clip in clips)

    def run(self, pause: Callable[[], bool]) -> Iterator[Made]:
        """Decode, and yield each object when it is in its place."""

        def stop() -> bool:
            self._decoded()
            try:
                return pause()
            finally:
                self.clock.skip()

        for made in self._heard(stop):
            yield made
            self.ended = self.ended or pause()
            self.clock.skip()
        if self.ended:
            self.returned = self.left()
            return
        frames = self._frames(stop)
        if self.lossy:
            frames = self.lossy.frames(frames, self.stats.failed, self.roots)
        for window in self.remote.windows(frames, self.index.width * self.index.height, self._completes):
            if self.remote:
                self.remote.run(window)
                self.clock.lap("augment")
            for number, frame in window:
                for made in self._take(number, frame):
                    yield made
                    if pause():
                        self.returned = self.left()
                        return
                    self.clock.skip()
        for number, why in self.stats.failed.items():
            for clip in self.users.get(number, ()):
                if self.open.pop(clip.recipe.key, None):
                    self.failed[clip.recipe.key] = f"{self.job.file}: frame {number}: {why}"
        self.returned = self.left()

    def _decoded(self) -> None:
        """Charge the time to decoding, but for what was spent waiting for a network."""
        self.clock.lap("decode")
        self.clock.move(self.source.waited_s(), "decode", "fetch")

    def left(self) -> list[str]:
        """Keys of what is not made and has not failed."""
        return [*self.open, *(key for key in self.unheard if key not in self.failed)]

    def _heard(self, stop: Callable[[], bool]) -> Iterator[Made]:
        """The audio of all clips: it is decoded in a small part of the time that pictures take, so it comes first."""
        if not self.unheard:
            return

        def stop_here() -> bool:
            self.clock.lap("audio")
            self.ended = self.ended or stop()
            return self.ended

        for recipe, samples, attributes in self.audio.make(list(self.unheard.values()), stop_here):
            self.clock.lap("audio")
            del self.unheard[recipe.key]
            assert recipe.audio is not None
            packed = replace(recipe, codec=self.audio.codec(recipe, samples))
            about = {"video": self.job.name, "video_key": self.job.video_key, "kind": str(recipe.kind), **attributes}
            yield self._store(packed, samples, about, "float32")
            if self.ended:
                break
        self.clock.lap("audio")
        self.clock.move(self.source.waited_s(), "audio", "fetch")
        self.failed |= self.audio.failed

    def _frames(self, stop: Callable[[], bool]) -> Iterator[tuple[int, Frame]]:
        """Every wanted frame: what is kept first, the rest decoded."""
        unkept, looked = [], self.clock.lapped_at
        for number in self.kept.order(self.due):
            made = {} if self.lossy.must_encode(number) else self.kept.read(number, self.roots[number])
            self.clock.lap("load" if made else "decode")
            if not made:
                unkept.append(number)
                continue
            if self.remote:  # a window holds several, and these are valid until the next one is read
                made = {node: picture.copy() for node, picture in made.items()}
            planes = made.pop(None, None)
            assert not isinstance(planes, Unconverted)  # a loss is behind some operation
            picture = None if planes is None else frame_from_planes(planes, self.index)
            yield number, Frame(picture, self.index, self.clock, made)
            if self.clock.lapped_at - looked > LOOK_S:
                if stop():
                    return
                looked = self.clock.lapped_at
        if not unkept:
            return  # the video is not even opened
        due = self.lossy.whole({number: self.due[number] for number in unkept})
        numbers = np.array(sorted(due), np.int64)
        order = np.array([due[number] for number in numbers.tolist()], np.int64)
        file = self.source.opened()
        for number, picture in decode_from(file, self.index, numbers, order=order, stats=self.stats, stop=stop):
            self._decoded()
            yield number, Frame(picture, self.index, self.clock)
        self._decoded()

    def _take(self, number: int, frame: Frame) -> Iterator[Made]:
        for clip in self.users.pop(number, ()):
            if clip.recipe.key not in self.open:
                continue
            try:
                self._fill(clip, number, frame)
                array = None if clip.missing or clip.encoding is not None else self._finished(clip)
            except OpWorkerFailed as failed:
                if not failed.of_clip:
                    raise
                self._drop(clip.recipe.key, failed)
                continue
            if not clip.missing:
                del self.open[clip.recipe.key]
                made = self._store_clip(clip, array)
                if made is not None:
                    yield made

    def _fill(self, clip: _Clip, number: int, frame: Frame) -> None:
        for leaf in clip.leaves:
            for t, node in leaf.positions.get(number, ()):
                picture = frame.planes() if clip.recipe.native else frame.at(node)
                if clip.encoding is not None:
                    self.clock.settle()
                    clip.encoding.put(t, picture)
                    continue
                if leaf.array is None:
                    leaf.array = self._empty(clip, leaf, (len(leaf.tree.frames), *picture.shape))
                if picture.shape != leaf.array.shape[1:]:
                    raise self._misshapen(clip, f"frames of {leaf.array.shape[1:]} and {picture.shape} in one clip")
                copy_picture(leaf.array[t], picture)
        self.clock.lap("augment" if clip.encoding is None else "pack")
        clip.missing.discard(number)

    def _empty(self, clip: _Clip, leaf: _Leaf, shape: tuple[int, ...]) -> np.ndarray:
        if leaf.tree is clip.tree and shape == clip.recipe.chunk_shape:  # it becomes the clip as it is
            clip.room = self.job.target.room(clip.recipe)
        return np.empty(shape, np.uint8) if clip.room is None else clip.room.chunks[0]

    def _finished(self, clip: _Clip) -> np.ndarray:
        arrays: dict[int, np.ndarray] = {}
        for leaf in clip.leaves:
            assert leaf.array is not None  # nothing is missing
            if id(leaf.tree) in arrays:  # two ways begin with it: neither may write to it
                leaf.array.flags.writeable = False
            arrays[id(leaf.tree)] = leaf.array
        array = finish(clip.tree, arrays)
        for leaf in clip.leaves:
            leaf.array = None
        if array.shape != clip.recipe.shape:
            raise self._misshapen(clip, f"a clip of shape {array.shape}, planned {clip.recipe.shape}")
        return array

    def _misshapen(self, clip: _Clip, made: str) -> Broken:
        """What an operation gave is not what it said when the clip was planned."""
        if clip.recipe.program.is_remote:
            return OpWorkerFailed(f"{self.job.name}: an op worker made {made}", of_clip=True)
        if own := clip.recipe.program.own_ops:
            return OpFailed(f"made {made}, by {', '.join(map(repr, own))}; {SAY_SIZE}")
        return Broken(f"made {made}")

    def _store_clip(self, clip: _Clip, array: np.ndarray | None) -> Made | None:
        self.clock.lap("augment")
        recipe = clip.recipe
        attributes = recipe.about(self.job.name, self.job.video_key)
        if recipe.native:
            index = self.index
            attributes |= {"pix_fmt": index.pix_fmt, "width": index.width, "height": index.height}
            attributes |= {"color_space": index.color_space_name, "color_range": index.color_range_name}
        psnr_db = self.lossy.psnr_db((frame, node) for leaf in clip.leaves for frame, node in leaf.steps())
        if psnr_db is not None:
            attributes["psnr_db"] = round(psnr_db, 2)
        if clip.encoding is not None:
            return self._store_packed(clip.encoding, recipe.key, attributes)
        assert array is not None  # of all others it is made
        return self._store(recipe, array, attributes, room=clip.room)

    def _store_packed(self, encoding: Encoding | LossyEncoding, key: str, attributes: dict[str, object]) -> Made | None:
        packed = encoding.finished(attributes)
        if encoding.failure:
            self.unpacked[key] = encoding.failure
        self.trials += encoding.measured()
        if packed is None:
            self.failed[key] = f"{self.job.file}: its pictures take more room than was promised to them"
            return None
        written = self.job.target.write(key, packed.parts, packed.meta(attributes))
        self.clock.lap("store")
        return Made(key, written, *self.clock.take())

    def _store(
        self,
        recipe: Recipe,
        array: np.ndarray,
        attributes: dict[str, object],
        element: str = "uint8",
        room: Room | None = None,
    ) -> Made:
        array = np.ascontiguousarray(array)
        codec = codec_for(recipe, array, self.clock, self.trials)
        meta = ArrayMeta(array.shape, recipe.chunk_shape, codec, attributes, element)
        written = self.job.target.write(recipe.key, array, meta) if room is None else room.seal(meta)
        self.clock.lap("store")
        if not self.tried and recipe.audio is None:
            self.tried = True
            self.trials += try_codecs(array[: recipe.chunk_shape[0]])
            if (recipe.native or array.ndim == 4) and not self.index.is_picture:
                pictures = pictures_of(array.shape, self.index, native=recipe.native)
                self.trials += try_pictures(pictures, array)
            self.clock.lap("trial")
        return Made(recipe.key, written, *self.clock.take())


def make(job: Job, pause: Callable[[], bool]) -> Iterator[Made | Report]:
    """Make a job's objects, in the order in which they are due; the last value is the report.

    Args:
        job: what to make.
        pause: called between groups of pictures and after each object; it may do other work meanwhile. True ends the
            job early, with the rest in ``Report.returned``.
    """
    with JobSource(job) as source:
        yield from _make(job, source, pause)


def _make(job: Job, source: JobSource, pause: Callable[[], bool]) -> Iterator[Made | Report]:
    error = kind = ""
    maker = scanned = None
    try:
        yield from source.keep(pause)
        if source.ended:
            yield Report(returned=tuple(recipe.key for recipe in job.pictures), frames=source.counts())
            return
        if not job.index:
            scanned = look(job, source)
            if scanned.error:
                raise BadVideo(scanned.error)
            if job.claims is not None and scanned.facts is not None and job.claims.contradicted(scanned.facts):
                # Its clips are planned again.
                yield Report(returned=job.keys, scanned=scanned, frames=source.counts(), damaged=source.damaged())
                return
        index = VideoIndex.from_bytes(job.index if scanned is None else scanned.index)
        maker = _Maker(job, index, source)
        yield from maker.run(pause)
    except ViewcacheError as refused:
        of_video = f"{job.name}: " if refused.kind in (OpFailed.kind, Broken.kind) else ""
        error, kind = f"{of_video}{refused}", refused.kind
    except Exception:  # a worker outlives a job that fails, and says what it was
        error, kind = f"{job.name}: {traceback.format_exc(limit=-3)}", Broken.kind
    if maker is None:
        counts, damaged = source.counts(), source.damaged()
        yield Report(error=error, error_kind=kind, scanned=scanned, frames=counts, damaged=damaged)
        return
    stats = maker.stats
    counts = {
        "packets": stats.packets,
        "decoded": stats.decoded,
        "wanted": stats.wanted,
        "bytes_read": stats.bytes_read,
        "frame_bytes": maker.index.width * maker.index.height * 3 // 2,
        "converted": maker.clock.converted,
        **maker.kept.counts(),
        **source.counts(),
    }
    if error:
        maker.returned = [key for key in maker.left() if key not in maker.failed]
    damaged = (*maker.kept.damaged, *source.damaged())
    seconds, span = maker.clock.take()
    returned = tuple(maker.returned)
    yield Report(
        seconds,
        counts,
        maker.failed,
        returned,
        damaged,
        (*maker.trials, *maker.lossy.trials),
        error,
        kind,
        span,
        scanned,
        maker.failed_by_ops,
        maker.audio.silenced,
        maker.audio.untracked,
        maker.unpacked,
        broken=maker.broken,
        damaged_in_memory=tuple(maker.kept.damaged_in_memory),
    )
