"""What each way of keeping a video's clips takes and costs, for all tasks of one generation of a group (SAND §5.3).

A way keeps the clips of some tasks, the small ones first, and for the others nothing, the frames as decoded, or the
frames after their resize, from which those clips are made shortly before they are read. The frames are those of one
generation, or all that clips can ever have: these pay over all epochs to come. Numbers are arrays over videos.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.records import ObjectKind
from viewcache.materializer.arrays import distinct
from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.media.sketch import Sketches
from viewcache.materializer.ops import NativeOp, get
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.retention.choice import Options
from viewcache.materializer.retention.density import Densities, DensityOf
from viewcache.materializer.retention.horizon import generations_later, may_last
from viewcache.materializer.retention.lasting import LEAST_PICTURES, Lasting, part_of, part_pictures
from viewcache.materializer.retention.needs import ClipCounts, Decode, Floats, NeededFrames, Rows, VideoRows
from viewcache.materializer.retention.sources import Indexes, Sources, sketches_of
from viewcache.materializer.retention.ways import ClipKind, Kept, ToCome, Way, kinds_of, ways_of

__all__ = ["Once", "Weighed", "weigh"]

MOST_INDEXES = 2000
"""Videos whose packet indexes are looked at. Of more, key frames are taken to be evenly spaced: reading so many indexes
would take longer than it can save."""

BLOCK = 1024
"""Videos that are looked at together: their frames are some million numbers."""

Ints = NDArray[np.int64]


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
class Limits:
    """What one object, or one video, may take."""

    most_bytes: int
    part_bytes: int
    whole_bytes: int
    """As for `weigh`."""
    density: DensityOf
    packed_before: Sequence[tuple[int, str]]
    """Places and content keys of the videos of which it is known."""


@dataclass(frozen=True, slots=True)
class Built:
    """How far what lasts of each of V videos is made, in one way of writing it down."""

    pictures_s: Floats
    """(V,) seconds to have all pictures: by decoding, or from what lies there in whichever way."""
    share: Floats
    """(V,) part of them that is in the store in this way."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Options for V videos."""

    options: Options
    ways: tuple[Way, ...]
    """Its columns."""
    kinds: tuple[ClipKind, ...]
    videos: tuple[str, ...]
    """Content keys, in the order in which they are needed."""
    once: Once
    """What making everything takes of each video."""
    lasting: Lasting | None = None
    """What may last behind the generation; None where nothing does."""
    lying: Mapping[str, Sequence[Kept]] = field(default_factory=dict)
    """What of it lies in the store, by the content key of the video."""
    again_s: Floats | None = None
    """(V, ways) of the seconds those of one generation like this behind it; None where there is none."""
    plain: int = 0
    """From this column on the ways come once more, with the encoded file kept besides; 0 = they do not."""


def weigh(
    plans: Sequence[ToCome],
    cost: CostModel,
    *,
    most_bytes: int,
    before: Mapping[str, Sequence[Kept]] = MappingProxyType({}),
    lying: Callable[[Lasting], Mapping[str, Sequence[Kept]]] | None = None,
    part_bytes: int = 0,
    whole_bytes: int = 1 << 62,
    densities: Densities | None = None,
    average: Callable[[tuple[str, ...], tuple[Way, ...], Floats], Floats] = lambda *given: given[-1],
) -> Weighed:
    """Work out bytes and seconds of every way for every video, over all epochs that its tasks have left.

    Args:
        plans: one generation of each task.
        cost: seconds of each kind of work.
        most_bytes: raw bytes of the largest object that a worker can hold in memory.
        before: intermediates that were chosen before, by the content key of the video.
        lying: tells which of what lasts lies in the store already, in the same way.
        part_bytes: most bytes that are promised to an object of what lasts behind its generation; 0 = nothing does.
        whole_bytes: the same for all of it of one video.
        densities: what packed pictures of each video took; None = of none is anything known.
        average: gives the mean of the seconds that a generation costs, (V, ways), and those before it.
    """
    kinds = kinds_of([each.plan for each in plans])
    lasts = part_bytes > 0 and may_last([each.plan for each in plans])
    later = generations_later([each.plan for each in plans]) if lasts else 0.0
    ways = ways_of(kinds, cost.ladder.offered if lasts else ())
    videos: dict[str, tuple[int, int]] = {}  # in the order of need; where its index is found
    for number, each in enumerate(plans):
        rows, first = np.unique(each.plan.video[each.rows], return_index=True)
        for row in rows[np.argsort(first)].tolist():
            videos.setdefault(each.plan.videos.keys[row], (number, row))
    names = tuple(videos)
    place = {name: k for k, name in enumerate(names)}
    uses = [VideoRows(each, place) for each in plans]
    fresh = [VideoRows(each.anew(), place) for each in plans] if later else []
    densities = densities or Densities()
    density: DensityOf = cache(partial(densities.of, cost.ladder))
    lasting = Lasting(plans, kinds, ways, videos, part_bytes, cost.ladder, density) if lasts else None
    there = lying(lasting) if lying is not None and lasting is not None else {}
    sketched = _sketched(plans, list(videos.values())) if len(names) > MOST_INDEXES else None
    found, once, later_s, later_work_s = [], [], [], []
    for start in range(0, len(names), BLOCK):
        block = names[start : start + BLOCK]
        sources = sketched[start : start + BLOCK] if sketched else _indexes(plans, map(videos.__getitem__, block))
        end = start + len(block)
        rows_of = [[uses[k].rows(start, end) for k in kind.plans] for kind in kinds]
        reached = None if lasting is None else lasting.reach.counts[start:end]
        limits = Limits(most_bytes, part_bytes, whole_bytes, density, densities.known(block))
        weighing = _Block(kinds, rows_of, sources, cost, limits, reached)
        columns = weighing.columns(ways, [(*before.get(name, ()), *there.get(name, ())) for name in block])
        once.append(weighing.once)
        if later:
            again = [[fresh[k].rows(start, end) for k in kind.plans] for kind in kinds]
            _, seconds, work = _Block(kinds, again, sources, cost, limits, reached).columns(ways)
            later_s.append(seconds)
            later_work_s.append(work)
        found.append(columns)
    size, cost_s, work_s = (np.concatenate(each) for each in zip(*found, strict=True))
    again_s = average(names, ways, np.concatenate(later_s)) if later_s else None
    if again_s is not None:
        cost_s, work_s = cost_s + later * again_s, work_s + later * np.concatenate(later_work_s)
    options = Options(size, cost_s, work_s, ways.index(Way(len(kinds), None)), ways.index(Way(0, None)))
    whole = Once(*(np.concatenate([getattr(each, name) for each in once]) for name in Once.__slots__))
    return Weighed(options, ways, kinds, names, whole, lasting, there, again_s)


def _indexes(plans: Sequence[ToCome], places: Iterable[tuple[int, int]]) -> Indexes:
    """Videos by (number of the plan, row of its videos)."""
    return Indexes([plans[number].index_of(row) for number, row in places])


def _sketched(plans: Sequence[ToCome], places: Sequence[tuple[int, int]]) -> Sketches:
    number, row = np.array(places, np.int64).T
    parts = [sketches_of(each.plan, row[number == k]) for k, each in enumerate(plans)]
    order = np.argsort(np.argsort(number, kind="stable"))  # the parts stand one behind the other
    columns = zip(*((each.frames, each.group, each.pixels, each.native_bytes) for each in parts), strict=True)
    return Sketches(*(np.concatenate(column)[order] for column in columns))


class _Block:
    """Some videos. An *epoch use* is what an epoch of the group needs of one video, at about one time."""

    def __init__(
        self,
        kinds: Sequence[ClipKind],
        rows: list[list[Rows]],
        sources: Sources,
        cost: CostModel,
        limits: "Limits",
        reach: Floats | None = None,
    ) -> None:
        """Take the rows of the plans of each kind; ``reach`` has how many frames clips of each video can have."""
        self._reach, self._part_bytes, self._whole_bytes = reach, limits.part_bytes, limits.whole_bytes
        self._density, self._packed_before = limits.density, limits.packed_before
        self._most_bytes = limits.most_bytes
        self._resized_of: dict[int, Floats] = {}
        self._kinds, self._rows, self._sources = kinds, rows, sources
        self._cost, self._count = cost, len(sources.frames)
        self._most_frames = int(sources.frames.max()) + 1
        epochs = [self._epoch(plan, mine).max(initial=0) for kind in rows for plan, mine, *_ in kind]
        self._epochs = int(max(epochs)) + 1
        self._pixels = sources.pixels.astype(np.float64)
        self._native = np.where(sources.native_bytes < 0, np.inf, sources.native_bytes)

    @staticmethod
    def _epoch(plan: GenerationPlan, rows: Ints) -> Ints:
        return plan.epoch[rows] + plan.context.joined

    def columns(
        self, ways: Sequence[Way], before: Sequence[Sequence[Kept]] | None = None
    ) -> tuple[Ints, Floats, Floats]:
        """Bytes, seconds and the paper's edge weights of each way: (videos of the block, ways) each.

        Without ``before`` what lasts is there already, and nothing else is.
        """
        codes, after = [np.zeros(0, np.int64)], np.zeros(0, np.int64)
        for number in reversed(range(len(self._kinds))):
            after = distinct(np.concatenate([after, self._visits(number)]))
            codes.append(after)
        codes.reverse()  # codes[k]: what the kinds from k on need, by epoch use
        needed = [NeededFrames(each, self._epochs, self._most_frames, self._count) for each in codes]
        seen, cost = needed[0], self._cost
        packets, loss_s = seen.packets(self._sources), self._loss_s(0)
        once = self._pixels * (packets * cost.decode_s_per_pixel + seen.frames * cost.convert_s_per_pixel)
        once += seen.frames * loss_s
        whole = self._pixels * (np.inf if self._reach is None else self._reach)
        whole *= cost.decode_s_per_pixel + cost.convert_s_per_pixel
        lossless = whole  # what is written down as packets loses something in that
        if self._reach is not None:
            whole = whole + self._reach * loss_s
        for k, mine in enumerate(before or ()):
            if any(each.made for each in mine):  # all can be made from what is there
                there = [each for each in mine if each.made and each.way.lasts]
                once[k] = self._load_s(k, there, float(seen.frames[k]))
                if self._reach is not None and any(each.way.intermediate == ObjectKind.AUG for each in there):
                    whole[k] = self._load_s(k, there, float(self._reach[k]))
        share = packets / np.maximum(1, seen.span_packets(self._sources, by_visit=False))
        clips = [self._clips(number) for number in range(len(self._kinds))]
        missing = np.stack([each.missing for each in clips], axis=1)
        found = []
        for way in ways:
            was = [next((each for each in mine if each.way == way), None) for mine in before or ()]
            size = np.array([np.nan if each is None else each.bytes for each in was] or [np.nan])
            made = np.array([each is not None and each.made for each in was] or [way.lasts])
            needs = needed[way.kept]
            if way.lasts:
                done = np.array([0.0 if each is None else each.share for each in was] or [1.0])
                found.append(
                    self._lasting(way, needs, clips, size, Built(lossless if way.codec == LOSSY else whole, done))
                )
            else:
                found.append(self._way(way, needs, clips, Decode(once, share), size, made))
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

    def _clips(self, number: int) -> ClipCounts:
        parts = [
            (plan.clip_keys[rows], video, self._epoch(plan, rows), ready)
            for plan, rows, video, ready in self._rows[number]
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

        return ClipCounts(count(stays), count(first[~ready[first]]), count(visits), count(np.arange(len(video))))

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
        needed: NeededFrames,
        clips: Sequence[ClipCounts],
        decode: Decode,
        intermediate: Floats,
        made: NDArray[np.bool_],
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """One column, and the raw bytes of its intermediate.

        ``intermediate`` has the bytes of that of before, or nan; ``made`` says whether it is there.
        """
        cost = self._cost
        size, cost_s, work_s, missing = self._of_clips(way, clips)
        if way.intermediate is None:
            packets = needed.span_packets(self._sources, by_visit=True) * decode.share
            again = self._pixels * (packets * cost.decode_s_per_pixel + needed.visited * cost.convert_s_per_pixel)
            again += needed.visited * self._loss_s(way.kept)
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

    def _load_s(self, video: int, lasting: Sequence[Kept], frames: float) -> float:
        """Seconds to read so many pictures of what lasts and is there; nothing for what only this generation has."""
        if not lasting or self._reach is None:
            return 0.0
        seconds = []
        for each in lasting:
            native = each.way.intermediate == ObjectKind.FRAMES
            picture = float((self._native if native else self._resized_by_all(each.way.kept))[video])
            if np.isfinite(picture):
                unpack_s = picture * self._cost.ladder.rung(each.way.codec, int(picture)).unpack_s
                seconds.append(unpack_s + each.bytes / self._reach[video] * self._cost.load_s_per_byte)
        return float(frames * min(seconds, default=0.0))

    def _of_clips(self, way: Way, clips: Sequence[ClipCounts]) -> tuple[Floats, Floats, Floats, Floats]:
        """What clips take and cost, kept or not, without their pictures; and how many that are kept are missing."""
        cost = self._cost
        size, cost_s, work_s, missing = (np.zeros(self._count) for _ in range(4))
        for number, (kind, of) in enumerate(zip(self._kinds, clips, strict=True)):
            if number < way.kept:
                size += of.stays * kind.bound
                missing += of.missing
                cost_s += of.missing * kind.clip_bytes * cost.make_s_per_byte
                cost_s += of.uses * kind.clip_bytes * cost.load_s_per_byte
            else:
                stored = of.made * cost.store_s_per_byte + of.uses * cost.load_s_per_byte
                if way.intermediate is not None:  # made when they are read, they pass through memory (0045)
                    stored = np.minimum(stored, of.uses * cost.pass_s_per_byte)
                cost_s += kind.clip_bytes * (of.made * cost.augment_s_per_byte + stored)
                work_s += of.made * kind.clip_bytes * cost.augment_s_per_byte
        return size, cost_s, work_s, missing

    def _lasting(
        self,
        way: Way,
        needed: NeededFrames,
        clips: Sequence[ClipCounts],
        intermediate: Floats,
        built: "Built",
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """The same of pictures of all frames that clips can have."""
        assert self._reach is not None  # ways that last are weighed with it only
        cost, pixels, reach = self._cost, self._pixels, self._reach
        native = way.intermediate == ObjectKind.FRAMES
        each = self._native if native else self._resized_by_all(way.kept)
        if not native and any(kind.draws_its_size for kind in self._kinds[way.kept :]):
            each = np.full(self._count, np.inf)  # pictures of one size are of no use to clips of another one
        offered = np.isfinite(each) & (each > 0) & (each * LEAST_PICTURES <= self._most_bytes) & (needed.frames > 0)
        picture = np.where(offered, each, 0)
        known = {size: cost.ladder.rung(way.codec, int(size)) for size in np.unique(picture).tolist()}
        rungs = [known[size] for size in picture.tolist()]
        for place, video in self._packed_before:
            rungs[place] = self._density(video, way.codec, int(picture[place])).of(rungs[place])
        promised = np.array([rung.promised for rung in rungs])
        offered &= picture * reach * promised <= self._whole_bytes  # else it is decoded for each few objects again
        pack_s, unpack_s, packed, lead = (
            np.array([getattr(rung, name) for rung in rungs]) for name in ("pack_s", "unpack_s", "packed", "lead")
        )
        size, cost_s, work_s, missing = self._of_clips(way, clips)
        decode_s = pixels * reach * cost.decode_s_per_pixel if native else built.pictures_s
        build_s = decode_s + picture * reach * (pack_s + packed * cost.store_s_per_byte)
        to_do = 1 - built.share
        read = needed.visited + lead * needed.visits + missing * needed.visited / np.maximum(1, needed.visits)
        again = picture * read * (unpack_s + packed * cost.load_s_per_byte)
        again += native * pixels * needed.visited * cost.convert_s_per_pixel
        part = part_of(way.codec, self._part_bytes)
        each_object = np.array([part_pictures(int(size), part) for size in picture.tolist()])
        objects = np.ceil(reach / each_object)
        raw = picture * packed * reach + (objects - 1) * clip_bound(0, 0)
        size += np.where(np.isnan(intermediate), clip_bound(raw, reach), intermediate)
        cost_s += np.where(to_do > 0, to_do * build_s, 0) + again
        cost_s, work_s = (np.where(offered, seconds, np.inf) for seconds in (cost_s, work_s + again))
        return np.where(offered, size, 0), cost_s, work_s, np.where(offered, to_do * picture * reach, 0)

    def _loss_s(self, kept: int) -> Floats:
        """Seconds to encode a wanted frame of clips that are not kept with the loss of their tasks, and decode it."""
        found = np.zeros(self._count)
        for number in range(kept, len(self._kinds)):
            kind = self._kinds[number]
            if kind.loss is not None:
                size = self._resized(number)
                size = np.where(np.isfinite(size), size, 0)
                pack_s = [self._cost.ladder.rung(LOSSY, int(each)).pack_s for each in size.tolist()]
                found = np.maximum(found, size * np.array(pack_s))
        return found

    def _resized_by_all(self, kept: int) -> Floats:
        """Bytes of a frame after the resizes of the kinds that are not kept: each different one is an object."""
        if kept in self._resized_of:
            return self._resized_of[kept]
        found: dict[tuple[object, ...], Floats] = {}
        for number in range(kept, len(self._kinds)):
            resize = self._kinds[number].resize
            size = self._resized(number)
            alike = (None,) if resize is None else (resize.name, resize.params, self._kinds[number].loss)
            found[alike] = np.maximum(size, found.get(alike, np.zeros(self._count)))
        self._resized_of[kept] = np.asarray(np.sum(list(found.values()), axis=0))
        return self._resized_of[kept]
