"""Make the objects of one job: decode once, give every frame to all that need it, store each object when it is whole.

A frame lives from its decoding to its last consumer and no longer (SAND §5.4); groups of pictures are decoded in the order
in which the clips that need them are due, so the most urgent clip is out first although the rest of the video follows.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from viewcache.errors import Broken, ChunkDamaged, ViewcacheError
from viewcache.materializer.decode import DecodeStats, decode
from viewcache.materializer.job import FrameSet, Job, KeptFrames, Made, Recipe, Report
from viewcache.materializer.ops import get
from viewcache.materializer.pixels import frame_from_planes, planes_of, to_rgb
from viewcache.materializer.program import Node, Tree, finish, grow
from viewcache.materializer.video import VideoIndex
from viewcache.store import ArrayMeta, read_into, write_object

__all__ = ["make"]


@dataclass(slots=True)
class _Leaf:
    """A frame-by-frame stream of a clip, being filled."""

    tree: Tree
    positions: dict[int, list[tuple[int, Node | None]]]
    """Source frame → where it goes and by which chain."""
    array: np.ndarray | None = None
    """uint8 (T,C,H,W), once the first frame says how large."""


@dataclass(slots=True)
class _Clip:
    recipe: Recipe
    tree: Tree
    leaves: list[_Leaf]
    missing: set[int]
    """Source frames still to come."""


@dataclass(slots=True)
class _Set:
    wanted: FrameSet
    rows: dict[int, np.ndarray] = field(default_factory=dict)
    layout: dict[str, object] = field(default_factory=dict)


class _Clock:
    """Busy seconds by stage."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Charge the time since the last lap to a stage."""
        now = time.perf_counter()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def take(self) -> dict[str, float]:
        """What was charged since the last call."""
        seconds, self._seconds = self._seconds, {}
        return seconds


class _Frame:
    """One decoded frame and what has been made of it: each operation runs once, however many clips share it."""

    def __init__(self, source: object, index: VideoIndex, clock: _Clock, ready: dict[Node, np.ndarray] | None = None):
        self._source = source
        self._index = index
        self._clock = clock
        self._made: dict[Node | None, np.ndarray] = dict(ready or {})

    def at(self, node: Node | None) -> np.ndarray:
        """uint8 (3,H,W) after the chain that ends in ``node``."""
        array = self._made.get(node)
        if array is None:
            array = self._made[node] = self._apply(node)
        return array

    def _apply(self, node: Node | None) -> np.ndarray:
        rotation = self._index.rotation
        if node is None:
            array = to_rgb(self._source, rotation=rotation)
            self._clock.lap("convert")
            return array
        op, row = get(node.name), np.array(node.row, np.int32)
        if node.parent is None and op.native and None not in self._made:
            height, width, interpolation = op.target(node.params, row)
            array = to_rgb(self._source, height, width, interpolation, rotation)
            self._clock.lap("convert")
            return array
        array = op.apply(node.params, row, self.at(node.parent))
        self._clock.lap("augment")
        return array


class _Maker:
    """The state of one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.index = VideoIndex.from_bytes(job.index)
        self.clock = _Clock()
        self.stats = DecodeStats()
        self.failed: dict[str, str] = {}
        self.damaged: dict[str, str] = {}
        self.returned: list[str] = []
        self.users: dict[int, list[_Clip]] = {}
        self.due: dict[int, int] = {}
        self.open: dict[str, _Clip] = {}
        for recipe in job.clips:
            self._want(recipe)
        self.sets = [_Set(each) for each in job.frame_sets]
        self.set_users: dict[int, list[_Set]] = {}
        for kept in self.sets:
            for frame in kept.wanted.frames.tolist():
                self.set_users.setdefault(frame, []).append(kept)

    def _want(self, recipe: Recipe) -> None:
        tree = grow(recipe.program, recipe.frames, recipe.row)
        leaves: list[_Leaf] = []
        for leaf in tree.leaves():
            positions: dict[int, list[tuple[int, Node | None]]] = {}
            for t, (frame, node) in enumerate(zip(leaf.frames.tolist(), leaf.nodes, strict=True)):
                positions.setdefault(frame, []).append((t, node))
            leaves.append(_Leaf(leaf, positions))
        missing = {frame for leaf in leaves for frame in leaf.positions}
        clip = _Clip(recipe, tree, leaves, missing)
        self.open[recipe.key] = clip
        for frame in missing:
            self.users.setdefault(frame, []).append(clip)
            self.due[frame] = min(recipe.due, self.due.get(frame, recipe.due))

    def run(self, must_yield: Callable[[], bool]) -> Iterator[Made]:
        """Load what is stored, decode the rest, yield each object when it is in its place."""
        later = max(self.due.values(), default=0) + 1
        wanted = {frame: self.due.get(frame, later) for frame in (*self.due, *self.set_users)}
        for number, frame in self._loaded(set(wanted)):
            wanted.pop(number, None)
            yield from self._take(number, frame)
        numbers = np.array(sorted(wanted), np.int64)
        order = np.array([wanted[n] for n in numbers.tolist()], np.int64)
        if len(numbers):
            frames = decode(self.job.uri, self.index, numbers, order=order, stats=self.stats, stop=must_yield)
            for number, picture in frames:
                self.clock.lap("decode")
                yield from self._take(number, _Frame(picture, self.index, self.clock))
        self.clock.lap("decode")
        for number, why in self.stats.failed.items():
            for clip in self.users.get(number, ()):
                if self.open.pop(clip.recipe.key, None):
                    self.failed[clip.recipe.key] = f"frame {number}: {why}"
        self.returned = list(self.open)
        for kept in self.sets:
            if len(kept.rows) == len(kept.wanted.frames):
                yield self._store_set(kept)

    def _loaded(self, wanted: set[int]) -> Iterator[tuple[int, _Frame]]:
        for kept in self.job.kept:
            numbers = kept.wanted.frames.tolist()
            picks = [k for k, number in enumerate(numbers) if number in wanted]
            wanted -= {numbers[k] for k in picks}
            try:
                rows = _load(self.job.place.root, kept, picks)
            except ChunkDamaged as damage:
                self.damaged[kept.wanted.key] = str(damage)  # decoded below instead
                continue
            self.clock.lap("load")
            for k, row in zip(picks, rows, strict=True):
                if kept.wanted.node is None:
                    yield numbers[k], _Frame(frame_from_planes(row, self.index), self.index, self.clock)
                else:
                    yield numbers[k], _Frame(None, self.index, self.clock, {kept.wanted.node: row})

    def _take(self, number: int, frame: _Frame) -> Iterator[Made]:
        for kept in self.set_users.get(number, ()):
            node = kept.wanted.node
            kept.rows[number] = planes_of(frame._source) if node is None else frame.at(node).copy()
        for clip in self.users.pop(number, ()):
            for leaf in clip.leaves:
                for t, node in leaf.positions.get(number, ()):
                    picture = frame.at(node)
                    if leaf.array is None:
                        leaf.array = np.empty((len(leaf.tree.frames), *picture.shape), np.uint8)
                    leaf.array[t] = picture
            self.clock.lap("augment")
            clip.missing.discard(number)
            if not clip.missing:
                del self.open[clip.recipe.key]
                yield self._store_clip(clip)

    def _store_clip(self, clip: _Clip) -> Made:
        recipe = clip.recipe
        array = finish(clip.tree, {id(leaf.tree): leaf.array for leaf in clip.leaves if leaf.array is not None})
        for leaf in clip.leaves:
            leaf.array = None
        if array.shape != recipe.shape:
            raise Broken(f"{self.job.name}: made a clip of shape {array.shape}, planned {recipe.shape}")
        self.clock.lap("augment")
        attributes = {"kind": "clip", "frames": recipe.frames.tolist(), "recipe": recipe.program.describe(recipe.row)}
        return self._store(recipe.key, array, array.shape[0], attributes)

    def _store_set(self, kept: _Set) -> Made:
        wanted = kept.wanted
        array = np.stack([kept.rows.pop(number) for number in wanted.frames.tolist()])
        attributes: dict[str, object] = {"kind": wanted.kind, "frames": wanted.frames.tolist()}
        if wanted.node is None:
            attributes |= {"pix_fmt": self.index.pix_fmt, "width": self.index.width, "height": self.index.height}
        else:
            attributes |= {"recipe": [{"op": wanted.node.name, "drawn": list(wanted.node.row)}]}
        return self._store(wanted.key, array, 1, attributes)

    def _store(self, key: str, array: np.ndarray, chunk_rows: int, attributes: dict[str, object]) -> Made:
        attributes = {"video": self.job.name, "video_key": self.job.video_key, **attributes}
        meta = ArrayMeta(array.shape, (chunk_rows, *array.shape[1:]), self.job.place.codec, attributes)
        written = write_object(self.job.place.root, key, np.ascontiguousarray(array), meta, durable=self.job.place.durable)
        self.clock.lap("store")
        return Made(key, str(attributes["kind"]), written, self.clock.take())


def _load(root: str, kept: KeptFrames, picks: list[int]) -> np.ndarray:
    out = np.empty((len(picks), *kept.stored.shape[1:]), np.uint8)
    read_into(root, kept.stored, out, picks)
    return out


def make(job: Job, must_yield: Callable[[], bool]) -> Iterator[Made | Report]:
    """Make a job's objects, in the order in which they are due; the last value is the report.

    Args:
        job: what to make.
        must_yield: asked between groups of pictures; True ends the job early, with the rest in ``Report.returned``.
    """
    error = kind = ""
    maker = None
    try:
        maker = _Maker(job)
        yield from maker.run(must_yield)
    except ViewcacheError as known:
        error, kind = str(known), known.kind
    except Exception:  # noqa: BLE001 - a worker outlives a job that fails, and says what it was
        error, kind = f"{job.name}: {traceback.format_exc(limit=-3)}", Broken.kind
    if maker is None:
        yield Report(error=error, error_kind=kind)
        return
    stats = maker.stats
    counts = {"packets": stats.packets, "decoded": stats.decoded, "wanted": stats.wanted, "bytes_read": stats.bytes_read}
    if error:
        maker.returned = [key for key in maker.open if key not in maker.failed]
    yield Report(maker.clock.take(), counts, maker.failed, maker.damaged, tuple(maker.returned), error, kind)
