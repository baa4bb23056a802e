"""What the ways of keeping some videos' clips take: bytes, core seconds, and bytes of devices, as arrays of (V, ways).

See `options` for what a way is. The trade-off: each kind of work is worked out for a block of videos at once, which is
what makes weighing many of them quick.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.arrays import distinct
from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.ops import NativeOp, get
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.retention.density import DensityOf
from viewcache.materializer.retention.lasting import LEAST_PICTURES, part_of, part_pictures
from viewcache.materializer.retention.needs import ClipCounts, Decode, Floats, NeededFrames, Rows
from viewcache.materializer.retention.sources import Sources
from viewcache.materializer.retention.ways import ClipKind, Kept, Way
from viewcache.store.codec import ENCODED

__all__ = ["Block", "Columns", "Limits", "Once"]

Ints = NDArray[np.int64]


class Columns(NamedTuple):
    """What ways take of V videos; arrays are (V, ways)."""

    size: Ints
    """Bytes that are kept."""
    cost_s: Floats
    """Core seconds of all uses."""
    work_s: Floats
    """Of these, the paper's edge weights: making again what is not kept."""
    source_bytes: Floats
    """That are read of the files."""
    kept_bytes: Floats
    """That are read of what is kept. What is made shortly before it is read is still in memory."""


class _Column(NamedTuple):
    """The same of one way; arrays are (V,)."""

    size: Floats
    cost_s: Floats
    work_s: Floats
    packets: Floats
    """That are read of the files."""
    kept_bytes: Floats
    raw: Floats
    """Raw bytes of its intermediate, where that is to be made."""


class _Loading(NamedTuple):
    """What lasts of V videos and is there; arrays are (V,)."""

    picture_s: Floats
    """To read one picture; 0 where nothing lasts that is there."""
    picture_bytes: Floats
    resized: NDArray[np.bool_]
    """Whether pictures behind a resize are among it."""


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
    packets: Floats
    """(V,) that a decoder is fed for that."""
    share: Floats
    """(V,) part of them that is in the store in this way."""


class Block:
    """Some videos. An *epoch use* is what an epoch of the group needs of one video, at about one time."""

    def __init__(
        self,
        kinds: Sequence[ClipKind],
        rows: list[list[Rows]],
        sources: Sources,
        cost: CostModel,
        limits: Limits,
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

    def columns(self, ways: Sequence[Way], before: Sequence[Sequence[Kept]] | None = None) -> Columns:
        """What each way takes of the videos of the block.

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
        fed, lies, room = packets.copy(), np.zeros(self._count), np.zeros(self._count)
        fed_whole = np.zeros(self._count) if self._reach is None else self._reach.astype(np.float64)
        lossless = whole  # what is written down as packets loses something in that
        if self._reach is not None:
            whole = whole + self._reach * loss_s
        made = np.array([any(each.made for each in mine) for mine in before or ()], np.bool_)
        if made.any():  # all can be made from what is there
            loaded = self._loading(before or ())
            once[made], lies[made] = ((seen.frames * each)[made] for each in (loaded.picture_s, loaded.picture_bytes))
            fed[made] = 0
            if self._reach is not None:
                room[made] = (self._reach * loaded.picture_bytes)[made]
                whole[loaded.resized] = (self._reach * loaded.picture_s)[loaded.resized]
                fed_whole[loaded.resized] = 0
        share = packets / np.maximum(1, seen.span_packets(self._sources, by_visit=False))
        clips = [self._clips(number) for number in range(len(self._kinds))]
        missing = np.stack([each.missing for each in clips], axis=1)
        found = []
        was = _by_way(before or ())
        for way in ways:
            unless_known = np.nan, before is None and way.lasts, float(before is None)
            size, made, done = (np.full(self._count, each) for each in unless_known)
            if way in was:
                places, kept = [*was[way]], was[way].values()
                size[places], made[places], done[places] = zip(*((e.bytes, e.made, e.share) for e in kept), strict=True)
            needs = needed[way.kept]
            if way.lasts:
                built = Built(lossless if way.codec == LOSSY else whole, fed_whole, done)
                found.append(self._lasting(way, needs, clips, size, built))
            else:
                found.append(self._way(way, needs, clips, Decode(once, share, fed, lies, room), size, made))
        whole_columns = _Column(*(np.stack(each, axis=1) for each in zip(*found, strict=True)))
        self.once = Once(packets, seen.frames, self._pixels, missing, whole_columns.raw)
        return Columns(
            np.ceil(whole_columns.size).astype(np.int64),
            whole_columns.cost_s,
            whole_columns.work_s,
            whole_columns.packets * self._sources.packet_bytes[:, None],
            whole_columns.kept_bytes,
        )

    def _visits(self, number: int) -> Ints:
        """What a kind needs: (video, epoch, frame) as one number each, sorted."""
        found = [np.zeros(0, np.int64)]
        for plan, rows, video, _ in self._rows[number]:
            epoch_use, frames = video * self._epochs + self._epoch(plan, rows), plan.frames(rows)
            # By its header a video may have had more when a plan was drawn; such a clip is amended when it is made.
            there = frames < self._sources.frames[video][:, None]
            found.append((epoch_use[:, None] * self._most_frames + frames)[there])
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
    ) -> _Column:
        """One column.

        ``intermediate`` has the bytes of that of before, or nan; ``made`` says whether it is there.
        """
        cost = self._cost
        size, cost_s, work_s, missing, read = self._of_clips(way, clips)
        if way.intermediate is None:
            packets = needed.span_packets(self._sources, by_visit=True) * decode.share
            again = self._pixels * (packets * cost.decode_s_per_pixel + needed.visited * cost.convert_s_per_pixel)
            again += needed.visited * self._loss_s(way.kept)
            # The first epoch use's frames come with the decode for the clips that are kept.
            cost_s += np.where(missing > 0, decode.once_s, 0)
            others = np.where(missing > 0, 1 - 1 / np.maximum(1, needed.visits), 1)
            again, packets = again * others, packets * others + np.where(missing > 0, decode.packets, 0)
            read = read + np.where(missing > 0, decode.lies, 0)
            size = size + np.where(missing > 0, decode.room, 0)
            return _Column(size, cost_s + again, work_s + again, packets, read, np.zeros(self._count))
        if way.intermediate == ObjectKind.FRAMES:
            each, again = self._native, self._pixels * needed.visited * cost.convert_s_per_pixel
        else:
            each, again = self._resized_by_all(way.kept), np.zeros(self._count)
        with np.errstate(invalid="ignore"):  # no frames of an infinite size are none to be had
            raw = each * needed.frames
            load_bytes = each * needed.visited
            cost_s += decode.once_s + np.where(made, 0, raw * cost.make_s_per_byte)
            cost_s += again + load_bytes * cost.load_s_per_byte
            size += np.where(np.isnan(intermediate), clip_bound(raw, needed.frames), intermediate)
        there = (raw <= self._most_bytes) & (needed.frames > 0)
        cost_s, work_s = (np.where(there, each, np.inf) for each in (cost_s, work_s + again))
        packets, raw = np.where(there, decode.packets, 0), np.where(there, raw, 0)
        read = read + decode.lies + np.where(there, load_bytes, 0)
        return _Column(np.where(there, size, 0), cost_s, work_s, packets, read, np.where(made, 0, raw))

    def _loading(self, before: Sequence[Sequence[Kept]]) -> _Loading:
        """What it takes to read what lasts and is there."""
        picture_s, picture_bytes = np.zeros(self._count), np.zeros(self._count)
        resized = np.zeros(self._count, np.bool_)
        there: dict[Way, list[tuple[int, int]]] = {}
        for place, mine in enumerate(before if self._reach is not None else ()):
            for each in mine:
                if each.made and each.way.lasts:
                    there.setdefault(each.way, []).append((place, each.bytes))
        found = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
        for way, of_way in there.items():
            assert self._reach is not None
            video, stored = np.array(of_way, np.int64).T
            native = way.intermediate == ObjectKind.FRAMES
            resized[video] |= not native
            picture = (self._native if native else self._resized_by_all(way.kept))[video]
            finite = np.isfinite(picture)
            video, picture, size = video[finite], picture[finite], stored[finite] / self._reach[video[finite]]
            sizes, of_size = np.unique(picture, return_inverse=True)
            rates = [self._cost.ladder.rung(way.codec, int(each)).unpack_s for each in sizes.tolist()]
            unpack_s = picture * np.array(rates, np.float64)[of_size.reshape(-1)]
            found.append((video, unpack_s + size * self._cost.load_s_per_byte, size))
        video, seconds, size = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.lexsort((size, seconds, video))[::-1]  # what is read the soonest is written last
        picture_s[video[order]], picture_bytes[video[order]] = seconds[order], size[order]
        return _Loading(picture_s, picture_bytes, resized)

    def _of_clips(self, way: Way, clips: Sequence[ClipCounts]) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """What clips take and cost, kept or not, without their pictures.

        Also how many that are kept are missing, and the bytes that are read of these.
        """
        cost = self._cost
        size, cost_s, work_s, missing, read = (np.zeros(self._count) for _ in range(5))
        for number, (kind, of) in enumerate(zip(self._kinds, clips, strict=True)):
            if number < way.kept:
                size += of.stays * kind.bound
                missing += of.missing
                cost_s += of.missing * kind.clip_bytes * cost.make_s_per_byte
                cost_s += of.uses * kind.clip_bytes * cost.load_s_per_byte
                read += of.uses * kind.clip_bytes
            else:
                stored = of.made * cost.store_s_per_byte + of.uses * cost.load_s_per_byte
                if way.intermediate is not None:  # made when they are read, they pass through memory (0045)
                    stored = np.minimum(stored, of.uses * cost.pass_s_per_byte)
                cost_s += kind.clip_bytes * (of.made * cost.augment_s_per_byte + stored)
                work_s += of.made * kind.clip_bytes * cost.augment_s_per_byte
        return size, cost_s, work_s, missing, read

    def _lasting(
        self,
        way: Way,
        needed: NeededFrames,
        clips: Sequence[ClipCounts],
        intermediate: Floats,
        built: Built,
    ) -> _Column:
        """The same of pictures of all frames that clips can have."""
        assert self._reach is not None  # ways that last are weighed with it only
        cost, pixels, reach = self._cost, self._pixels, self._reach
        native = way.intermediate == ObjectKind.FRAMES
        each = self._native if native else self._resized_by_all(way.kept)
        if not native and any(kind.draws_its_size for kind in self._kinds[way.kept :]):
            each = np.full(self._count, np.inf)  # pictures of one size are of no use to clips of another one
        offered = np.isfinite(each) & (each > 0) & (each * LEAST_PICTURES <= self._most_bytes) & (needed.frames > 0)
        picture = np.where(offered, each, 0)
        sizes, of_size = np.unique(picture, return_inverse=True)
        rungs = [cost.ladder.rung(way.codec, int(size)) for size in sizes.tolist()]
        of_rung = of_size.copy()
        for place, video in self._packed_before:
            rung = rungs[of_size[place]]
            if (mine := self._density(video, way.codec, int(picture[place])).of(rung)) is not rung:
                of_rung[place] = len(rungs)
                rungs.append(mine)
        promised = np.array([rung.promised for rung in rungs])[of_rung]
        # What is to be made must find room at once, else it is decoded for each few objects again.
        to_do = 1 - built.share
        offered &= picture * reach * promised * to_do <= self._whole_bytes
        pack_s, unpack_s, packed, lead = (
            np.array([getattr(rung, name) for rung in rungs])[of_rung]
            for name in ("pack_s", "unpack_s", "packed", "lead")
        )
        size, cost_s, work_s, missing, kept_bytes = self._of_clips(way, clips)
        decode_s = pixels * reach * cost.decode_s_per_pixel if native else built.pictures_s
        # Groups are packed as their pictures come; others are laid side by side first, as a clip is.
        copy_s = 0.0 if way.codec in ENCODED else cost.augment_s_per_byte
        build_s = decode_s + picture * reach * (copy_s + pack_s + packed * cost.store_s_per_byte)
        read = needed.visited + lead * needed.visits + missing * needed.visited / np.maximum(1, needed.visits)
        again = picture * read * (unpack_s + packed * cost.load_s_per_byte)
        kept_bytes = kept_bytes + picture * read * packed
        again += native * pixels * needed.visited * cost.convert_s_per_pixel
        part = part_of(way.codec, self._part_bytes)
        each_object = np.array([part_pictures(int(size), part) for size in sizes.tolist()])[of_size]
        objects = np.ceil(reach / each_object)
        raw = picture * packed * reach + (objects - 1) * clip_bound(0, 0)
        size += np.where(np.isnan(intermediate), clip_bound(raw, reach), intermediate)
        cost_s += np.where(to_do > 0, to_do * build_s, 0) + again
        cost_s, work_s = (np.where(offered, seconds, np.inf) for seconds in (cost_s, work_s + again))
        packets = to_do * (reach if native else built.packets)
        size, raw = np.where(offered, size, 0), np.where(offered, to_do * picture * reach, 0)
        return _Column(size, cost_s, work_s, np.where(offered, packets, 0), np.where(offered, kept_bytes, 0), raw)

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


def _by_way(before: Sequence[Sequence[Kept]]) -> dict[Way, dict[int, Kept]]:
    """What was kept of each video in each way, by the video's place; the first where there are several."""
    found: dict[Way, dict[int, Kept]] = {}
    for video, mine in enumerate(before):
        for each in mine:
            found.setdefault(each.way, {}).setdefault(video, each)
    return found
