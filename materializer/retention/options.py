"""What each way of keeping a video's clips takes and costs, for all tasks of one generation of a group (SAND §5.3).

A way keeps the clips of some tasks, the small ones first, and for the others nothing, the frames as decoded, or the
frames after their resize, from which those clips are made shortly before they are read. Numbers are arrays over videos.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.records import ObjectKind
from viewcache.materializer.arrays import distinct
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.media.sketch import Sketches
from viewcache.materializer.ops import NativeOp, get
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import Instruction, InstructionKind
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.retention.choice import Options
from viewcache.materializer.retention.sources import Indexes, Sources, sketches_of

__all__ = ["INTERMEDIATES", "ClipKind", "Kept", "Once", "ToCome", "Way", "Weighed", "kinds_of", "weigh"]

INTERMEDIATES = (None, ObjectKind.FRAMES, ObjectKind.AUG)
"""What may be kept for clips that are not: nothing, decoded frames, resized frames."""

MOST_KINDS = 4
"""With more kinds of clips than this either all are kept or none."""

MOST_INDEXES = 2000
"""Videos whose packet indexes are looked at. Of more, key frames are taken to be evenly spaced: reading so many indexes
would take longer than it can save."""

BLOCK = 1024
"""Videos that are looked at together: their frames are some million numbers."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Way:
    """A column of `Options`."""

    kept: int
    """The clips of so many kinds are kept, the small ones first."""
    intermediate: ObjectKind | None
    """One of `INTERMEDIATES`: what is kept for the others; None is nothing."""


@dataclass(frozen=True, slots=True)
class ClipKind:
    """Clips that are made alike: of one task, or of several with the same steps."""

    plans: tuple[int, ...]
    """Which of the plans."""
    clip_bytes: int
    """Raw."""
    bound: int
    """Most bytes that one takes on disk, with its audio."""
    resize: Instruction | None
    """The resize that every clip begins with."""


@dataclass(frozen=True, slots=True)
class ToCome:
    """A plan, and how far its clips are."""

    plan: GenerationPlan
    index_of: Callable[[int], MediaIndex]
    """The packet index of a row of the plan's videos."""
    rows: NDArray[np.bool_]
    """(n,) clips that are still to be read."""
    ready: NDArray[np.bool_]
    """(n,) clips that are in the store."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What was chosen for a video before: it need not be made again."""

    way: Way
    bytes: int
    """Of its intermediate."""
    made: bool
    """Whether the intermediate is in the store."""


@dataclass(frozen=True, slots=True)
class Once:
    """What decoding each of V videos once, for all clips to come, takes."""

    packets: Floats
    """(V,) that a decoder must be fed."""
    frames: Floats
    """(V,) that are converted."""
    pixels: Floats
    """(V,) of one frame."""
    missing: Floats
    """(V, kinds) clips that are not in the store."""
    intermediate_bytes: Floats
    """(V, ways) raw bytes of what is kept to make clips from, where it is not in the store."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Options for V videos."""

    options: Options
    ways: tuple[Way, ...]
    """Its columns."""
    kinds: tuple[ClipKind, ...]
    videos: tuple[str, ...]
    """Content keys, in the order in which they are needed."""
    once: "Once"
    """What making everything takes of each video."""


def kinds_of(plans: Sequence[GenerationPlan]) -> tuple[ClipKind, ...]:
    """Which plans make the same clips, the kinds with small clips first."""
    members: dict[tuple[object, ...], list[int]] = {}
    for number, plan in enumerate(plans):
        sampling = plan.task.sampling
        steps = tuple(sorted({program.signature for program in plan.resolved.programs}))
        alike = (
            steps,
            sampling.frames_per_video,
            sampling.pitch,
            sampling.by_time,
            plan.shape,
            _resize(plan),
            plan.room,
        )
        members.setdefault(alike, []).append(number)
    found = [
        ClipKind(tuple(each), plans[each[0]].clip_bytes, plans[each[0]].room, _resize(plans[each[0]]))
        for each in members.values()
    ]
    return tuple(sorted(found, key=lambda kind: kind.clip_bytes))


def _resize(plan: GenerationPlan) -> Instruction | None:
    """The first operation, if it is the same resize in all programs; its numbers are then the row's first."""
    first = {program.instructions[:1] for program in plan.resolved.programs}
    if len(first) == 1:
        for instruction in next(iter(first)):
            if instruction.kind == InstructionKind.OP and isinstance(get(instruction.name), NativeOp):
                return instruction
    return None


def weigh(
    plans: Sequence[ToCome], cost: CostModel, *, most_bytes: int, before: Mapping[str, Kept] = MappingProxyType({})
) -> Weighed:
    """Work out bytes and seconds of every way for every video.

    Args:
        plans: one generation of each task.
        cost: seconds of each kind of work.
        most_bytes: raw bytes of the largest object that a worker can hold in memory.
        before: intermediates that were chosen before, by the content key of the video.
    """
    kinds = kinds_of([each.plan for each in plans])
    counts = range(len(kinds) + 1) if len(kinds) <= MOST_KINDS else (0, len(kinds))
    ways = tuple(Way(kept, each) for kept in counts for each in INTERMEDIATES if kept < len(kinds) or each is None)
    videos: dict[str, tuple[int, int]] = {}  # in the order of need; where its index is found
    for number, each in enumerate(plans):
        rows, first = np.unique(each.plan.video[each.rows], return_index=True)
        for row in rows[np.argsort(first)].tolist():
            videos.setdefault(each.plan.videos.keys[row], (number, row))
    names = tuple(videos)
    place = {name: k for k, name in enumerate(names)}
    uses = [_Uses(each, place) for each in plans]
    sketched = _sketched(plans, list(videos.values())) if len(names) > MOST_INDEXES else None
    found, once = [], []
    for start in range(0, len(names), BLOCK):
        block = names[start : start + BLOCK]
        sources = sketched[start : start + BLOCK] if sketched else _indexes(plans, map(videos.__getitem__, block))
        rows_of = [[uses[k].rows(start, start + len(block)) for k in kind.plans] for kind in kinds]
        weighing = _Block(kinds, rows_of, sources, cost, most_bytes)
        found.append(weighing.columns(ways, [before.get(name) for name in block]))
        once.append(weighing.once)
    size, cost_s, work_s = (np.concatenate(each) for each in zip(*found, strict=True))
    options = Options(size, cost_s, work_s, ways.index(Way(len(kinds), None)), ways.index(Way(0, None)))
    columns = Once.__slots__
    whole = Once(*(np.concatenate([getattr(each, name) for each in once]) for name in columns))
    return Weighed(options, ways, kinds, names, whole)


def _indexes(plans: Sequence[ToCome], places: Iterable[tuple[int, int]]) -> Indexes:
    """Videos by (number of the plan, row of its videos)."""
    return Indexes([plans[number].index_of(row) for number, row in places])


def _sketched(plans: Sequence[ToCome], places: Sequence[tuple[int, int]]) -> Sketches:
    number, row = np.array(places, np.int64).T
    parts = [sketches_of(each.plan, row[number == k]) for k, each in enumerate(plans)]
    order = np.argsort(np.argsort(number, kind="stable"))  # the parts stand one behind the other
    columns = zip(*((each.frames, each.group, each.pixels, each.native_bytes) for each in parts), strict=True)
    return Sketches(*(np.concatenate(column)[order] for column in columns))


Rows = tuple[GenerationPlan, Ints, Ints, NDArray[np.bool_]]
"""Some clips of a plan: their rows, which video of a block each is of, and whether it is in the store."""


class _Uses:
    """The clips to come of one plan by video."""

    def __init__(self, each: ToCome, place: Mapping[str, int]) -> None:
        self._plan, self._ready = each.plan, each.ready
        rows = np.flatnonzero(each.rows)
        video = np.array([place.get(key, -1) for key in each.plan.videos.keys])[each.plan.video[rows]]
        order = np.argsort(video, kind="stable")
        self._rows, self._video = rows[order], video[order]

    def rows(self, start: int, stop: int) -> Rows:
        """The rows of videos start…stop."""
        first, last = np.searchsorted(self._video, (start, stop))
        rows = self._rows[first:last]
        return self._plan, rows, self._video[first:last] - start, self._ready[rows]


class _Block:
    """Some videos. An *epoch use* is what an epoch of the group needs of one video, at about one time."""

    def __init__(
        self,
        kinds: Sequence[ClipKind],
        rows: list[list[Rows]],
        sources: Sources,
        cost: CostModel,
        most_bytes: int,
    ) -> None:
        """Take the rows of the plans of each kind."""
        self._kinds, self._rows, self._sources = kinds, rows, sources
        self._cost, self._most_bytes, self._count = cost, most_bytes, len(sources.frames)
        self._most_frames = int(sources.frames.max()) + 1
        epochs = [self._epoch(plan, mine).max(initial=0) for kind in rows for plan, mine, *_ in kind]
        self._epochs = int(max(epochs)) + 1
        self._pixels = sources.pixels.astype(np.float64)
        self._native = np.where(sources.native_bytes < 0, np.inf, sources.native_bytes)

    @staticmethod
    def _epoch(plan: GenerationPlan, rows: Ints) -> Ints:
        return plan.epoch[rows] + plan.context.joined

    def columns(self, ways: Sequence[Way], before: Sequence[Kept | None]) -> tuple[Ints, Floats, Floats]:
        """Bytes, seconds and the paper's edge weights of each way: (videos of the block, ways) each."""
        codes, after = [np.zeros(0, np.int64)], np.zeros(0, np.int64)
        for number in reversed(range(len(self._kinds))):
            after = distinct(np.concatenate([after, self._visits(number)]))
            codes.append(after)
        codes.reverse()  # codes[k]: what the kinds from k on need, by epoch use
        needed = [_Needed(each, self._epochs, self._most_frames, self._count) for each in codes]
        seen, cost = needed[0], self._cost
        packets = seen.packets(self._sources)
        once = self._pixels * (packets * cost.decode_s_per_pixel + seen.frames * cost.convert_s_per_pixel)
        once[[each is not None and each.made for each in before]] = 0  # all can be made from what is there
        share = packets / np.maximum(1, seen.span_packets(self._sources, by_visit=False))
        clips = [self._clips(number) for number in range(len(self._kinds))]
        missing = np.stack([each.missing for each in clips], axis=1)
        found = []
        for way in ways:
            was = [each if each is not None and each.way == way else None for each in before]
            intermediate = np.array([np.nan if each is None else each.bytes for each in was])
            made = np.array([each is not None and each.made for each in was])
            found.append(self._way(way, needed[way.kept], clips, _Decode(once, share), intermediate, made))
        size, cost_s, work_s, intermediates = (np.stack(each, axis=1) for each in zip(*found, strict=True))
        self.once = Once(packets, seen.frames, self._pixels, missing, intermediates)
        return np.ceil(size).astype(np.int64), cost_s, work_s

    def _visits(self, number: int) -> Ints:
        """What a kind needs: (video, epoch, frame) as one number each, sorted."""
        found = [np.zeros(0, np.int64)]
        for plan, rows, video, _ in self._rows[number]:
            epoch_use = video * self._epochs + self._epoch(plan, rows)
            found.append((epoch_use[:, None] * self._most_frames + plan.frames(rows)).reshape(-1))
        return distinct(np.concatenate(found))

    def _clips(self, number: int) -> "_Clips":
        parts = [
            (plan.keys[rows], video, self._epoch(plan, rows), ready) for plan, rows, video, ready in self._rows[number]
        ]
        keys, video, epoch, ready = (np.concatenate(each) for each in zip(*parts, strict=True))
        clip = np.unique(keys, return_inverse=True)[1].reshape(-1)
        first = np.unique(clip, return_index=True)[1]
        soonest = np.full(self._count, np.iinfo(np.int64).max)
        np.minimum.at(soonest, video, epoch)
        later = np.flatnonzero(epoch > soonest[video])
        stays = later[np.unique(clip[later], return_index=True)[1]]
        visits = np.unique(clip * self._epochs + epoch, return_index=True)[1]

        def count(which: Ints) -> Floats:
            return np.bincount(video[which], minlength=self._count).astype(np.float64)

        return _Clips(count(stays), count(first[~ready[first]]), count(visits), count(np.arange(len(video))))

    def _resized(self, number: int) -> Floats:
        """Bytes of a frame after a kind's resize; 0 without clips, infinite if a video's clips have different sizes."""
        resize, found = self._kinds[number].resize, np.zeros(self._count)
        width = 0 if resize is None else resize.width
        drawn = [(plan.resolved.rows[rows, :width], video) for plan, rows, video, _ in self._rows[number]]
        row, video = (np.concatenate(each) for each in zip(*drawn, strict=True))
        found[video] = np.inf
        if resize is None:
            return found
        op = get(resize.name)
        assert isinstance(op, NativeOp)
        which, first = np.unique(video, return_index=True)
        example = np.zeros((self._count, resize.width), np.int32)
        example[which] = row[first]
        odd = np.bincount(video, weights=(row != example[video]).any(axis=1), minlength=self._count)
        even = which[odd[which] == 0]
        kinds, kind = np.unique(example[even], axis=0, return_inverse=True)
        sizes = [op.target(resize.params, each)[:2] for each in kinds]
        found[even] = np.array([3.0 * height * width for height, width in sizes])[kind.reshape(-1)]
        return found

    def _way(
        self,
        way: Way,
        needed: "_Needed",
        clips: "Sequence[_Clips]",
        decode: "_Decode",
        intermediate: Floats,
        made: NDArray[np.bool_],
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """One column, and the raw bytes of its intermediate.

        ``intermediate`` has the bytes of that of before, or nan; ``made`` says whether it is there.
        """
        cost = self._cost
        size, cost_s, work_s = np.zeros(self._count), np.zeros(self._count), np.zeros(self._count)
        missing = np.zeros(self._count)
        for number, (kind, of) in enumerate(zip(self._kinds, clips, strict=True)):
            if number < way.kept:
                size += of.stays * kind.bound
                missing += of.missing
                cost_s += of.missing * kind.clip_bytes * cost.make_s_per_byte
            else:
                cost_s += of.made * kind.clip_bytes * cost.make_s_per_byte
                work_s += of.made * kind.clip_bytes * cost.augment_s_per_byte
            cost_s += of.uses * kind.clip_bytes * cost.load_s_per_byte
        if way.intermediate is None:
            packets = needed.span_packets(self._sources, by_visit=True) * decode.share
            again = self._pixels * (packets * cost.decode_s_per_pixel + needed.visited * cost.convert_s_per_pixel)
            # The first epoch use's frames come with the decode for the clips that are kept.
            cost_s += np.where(missing > 0, decode.once_s, 0)
            again *= np.where(missing > 0, 1 - 1 / np.maximum(1, needed.visits), 1)
            return size, cost_s + again, work_s + again, np.zeros(self._count)
        if way.intermediate == ObjectKind.FRAMES:
            each, again = self._native, self._pixels * needed.visited * cost.convert_s_per_pixel
        else:
            each, again = self._resized_by_all(way.kept), np.zeros(self._count)
        raw = each * needed.frames
        with np.errstate(invalid="ignore"):  # no frames of an infinite size are none to be had
            cost_s += decode.once_s + np.where(made, 0, raw * cost.store_s_per_byte)
            cost_s += again + each * needed.visited * cost.load_s_per_byte
            size += np.where(np.isnan(intermediate), clip_bound(raw, needed.frames), intermediate)
        there = (raw <= self._most_bytes) & (needed.frames > 0)
        cost_s, work_s = (np.where(there, each, np.inf) for each in (cost_s, work_s + again))
        return np.where(there, size, 0), cost_s, work_s, np.where(there & ~made, raw, 0)

    def _resized_by_all(self, kept: int) -> Floats:
        """Bytes of a frame after the resizes of the kinds that are not kept: each different one is an object."""
        found: dict[tuple[object, ...], Floats] = {}
        for number in range(kept, len(self._kinds)):
            resize = self._kinds[number].resize
            size = self._resized(number)
            alike = (None,) if resize is None else (resize.name, resize.params)
            found[alike] = np.maximum(size, found.get(alike, np.zeros(self._count)))
        return np.asarray(np.sum(list(found.values()), axis=0))


@dataclass(frozen=True, slots=True)
class _Decode:
    """Of each video."""

    once_s: Floats
    """Seconds for all that is needed of it."""
    share: Floats
    """Part of the packets between the first and the last needed frame that must be decoded."""


@dataclass(frozen=True, slots=True)
class _Clips:
    """Of one kind, for each video."""

    stays: Floats
    """Distinct ones that are needed after the next epoch use: what that one reads gives its room to others."""
    missing: Floats
    """Distinct ones that are not in the store."""
    made: Floats
    """Distinct ones of each epoch use, added up: how many are made if none is kept."""
    uses: Floats


class _Needed:
    """Source frames that some kinds need of the videos of a block."""

    def __init__(self, codes: Ints, epochs: int, most_frames: int, videos: int) -> None:
        epoch_use, frame = np.divmod(codes, most_frames)
        video = epoch_use // epochs
        frames = distinct(video * most_frames + frame)
        starts = np.flatnonzero(np.diff(epoch_use, prepend=-1))
        ends = np.append(starts[1:], len(epoch_use)) - 1 if len(starts) else starts
        self._spans = video[starts], frame[starts].astype(np.int32), frame[ends].astype(np.int32)
        self._bounds = np.searchsorted(frames, np.arange(videos + 1) * most_frames)
        self._of_video = (frames % most_frames).astype(np.int32)
        self.frames = np.diff(self._bounds).astype(np.float64)
        """Distinct ones, for each video."""
        self.visited = np.bincount(video, minlength=videos).astype(np.float64)
        """Distinct ones of each epoch use, added up."""
        self.visits = np.bincount(self._spans[0], minlength=videos).astype(np.float64)

    def packets(self, sources: Sources) -> Floats:
        """Fewest that a decoder must be fed for all of them."""
        return sources.packets(self._of_video, self._bounds)

    def span_packets(self, sources: Sources, *, by_visit: bool) -> Floats:
        """Packets from the key frame before the first needed frame to the last, of all visits or of all at once."""
        if by_visit:
            return sources.span_packets(*self._spans)
        video = np.flatnonzero(self.frames)
        ends = self._bounds[video], self._bounds[video + 1] - 1
        first, last = (self._of_video[at] for at in ends)
        return sources.span_packets(video, first, last)
