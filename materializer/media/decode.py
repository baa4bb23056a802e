"""Decode exactly the wanted frames of a video, with the fewest packets, in the order in which their groups are due.

Packets go to the decoder as byte ranges named by the index, or through the container where the index says so; unneeded
frames that nothing refers to are skipped. What might differ from a full sequential decode is reported, never given.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from viewcache.errors import BadVideo, ViewNotFound
from viewcache.materializer.media.demux import DAMAGE, ContainerFeed, Feed, RangeFeed
from viewcache.materializer.media.index import HIDDEN, KEY, REFERENCE, Gop, VideoIndex
from viewcache.materializer.media.picture_feed import PictureFeed
from viewcache.materializer.media.pixels import is_recolored, matched, plain
from viewcache.materializer.media.reaching import CHANGED, blame_the_process
from viewcache.materializer.media.source import Source, open_source, shown

if TYPE_CHECKING:
    from av import VideoFrame

__all__ = ["DecodeStats", "decode", "decode_from", "decode_picture"]

SKIPPABLE = frozenset({"h264", "hevc"})
"""Codecs whose decoders skip a non-reference frame without a trace. dav1d loses wanted frames."""
DEEPEST = 64
"""Packets after which a frame has come out of any decoder, or never will: reordering goes 16 deep, threads add more."""


@dataclass(slots=True)
class DecodeStats:
    """What a decode has cost so far."""

    packets: int = 0
    """Fed to the decoder."""
    floor: int = 0
    """The fewest packets that the groups of pictures allow for what was asked."""
    decoded: int = 0
    """Frames that came out of the decoder; skipped ones do not."""
    wanted: int = 0
    """Frames given."""
    bytes_read: int = 0
    """Fetched as ranges from the file; 0 where the container is read by FFmpeg itself."""
    failed: dict[int, str] = field(default_factory=dict)
    """Wanted frame → why it cannot be given."""


def decode(
    uri: str,
    index: VideoIndex,
    wanted: np.ndarray,
    *,
    order: np.ndarray | None = None,
    threads: int = 1,
    stats: DecodeStats | None = None,
    stop: Callable[[], bool] | None = None,
) -> "Iterator[tuple[int, VideoFrame]]":
    """Decode frames of a video.

    Args:
        uri: a local path or any fsspec URL.
        index: of this version of the file.
        wanted: sorted unique frame numbers.
        order: a priority for each of ``wanted``, lower first; groups of pictures are decoded in the order of their most
            urgent frame. None = from the first to the last.
        threads: of the decoder. 2 cut the latency by a third and cost up to a third more CPU: for what is nearly late.
        stats: filled as the decode goes on.
        stop: asked after each group of pictures; True ends the decode.

    Yields:
        (frame number, frame): each wanted frame once, in presentation order within a group. Frames have the index's
        size, pixel format and colours, and their own presentation time.

    Raises:
        BadVideo: the file cannot be read or is not the one that was scanned; or, after all good frames and only when no
            ``stats`` was given, frames are damaged (with ``stats``, see ``stats.failed``).
        Full: it cannot be told whether frames are damaged, since this process has too little memory.
        ViewNotFound: a frame number is not of this video.
    """
    with open_source(uri) as source:
        yield from decode_from(source, index, wanted, order=order, threads=threads, stats=stats, stop=stop)


def decode_from(
    source: Source,
    index: VideoIndex,
    wanted: np.ndarray,
    *,
    order: np.ndarray | None = None,
    threads: int = 1,
    stats: DecodeStats | None = None,
    stop: Callable[[], bool] | None = None,
) -> "Iterator[tuple[int, VideoFrame]]":
    """`decode` on an open source, which stays open."""
    wanted = np.asarray(wanted, np.int64)
    if not len(wanted):
        return
    if wanted[0] < 0 or wanted[-1] >= index.frames or (np.diff(wanted) <= 0).any():
        raise ViewNotFound(
            f"{shown(source.uri)} has frames 0 to {index.frames - 1}; asked for {wanted[0]} to {wanted[-1]}, sorted"
        )
    if not source.stamp.same(index.stamp):
        raise BadVideo(f"{shown(source.uri)}: {CHANGED}")
    wants_stats, stats = stats is not None, stats or DecodeStats()
    before, failed = source.bytes_read, len(stats.failed)
    decoder = _Decoder(source, index, threads, stats)
    try:
        for number, gop in enumerate(_by_urgency(index, wanted, order)):
            if number and stop is not None and stop():
                return
            yield from decoder.group(gop)
            stats.bytes_read += source.bytes_read - before
            before = source.bytes_read
        if len(stats.failed) == failed:
            decoder.keep()
    except MemoryError as bad:  # of a packet, say, and not of what the decoder makes of it
        decoder.blame(bad)
        raise
    finally:
        stats.bytes_read += source.bytes_read - before
        decoder.close()
    if stats.failed and not wants_stats:
        frame, why = next(iter(stats.failed.items()))
        raise BadVideo(
            f"{shown(source.uri)}: frame {frame}: {why} ({len(stats.failed)} of {len(wanted)} frames cannot be given)"
        )


def decode_picture(source: Source, index: VideoIndex) -> "VideoFrame | None":
    """Decode a picture file as `decode_from` does, for who takes one picture after the other.

    Args:
        source: the opened file.
        index: of this version of it.

    Returns:
        The picture, without a time of its own; None where that function has more to do, or to say.
    """
    feed = PictureFeed(source, index)
    try:
        (packet,) = feed.packets(0, 1)
        frames = [*feed.context.decode(packet), *feed.context.decode(None)]
    except (BadVideo, *DAMAGE):
        return None
    if len(frames) != 1 or frames[0].is_corrupt or feed.doubt:
        return None
    (frame,) = frames
    if (frame.width, frame.height, frame.format.name) != (index.width, index.height, index.pix_fmt):
        return None
    feed.context.flush_buffers()
    feed.keep()
    return plain(frame, index)


def _by_urgency(index: VideoIndex, wanted: np.ndarray, order: np.ndarray | None) -> list[Gop]:
    gops = index.gops_for(wanted)
    if order is None:
        return gops
    urgency = [int(order[np.searchsorted(wanted, gop.frames)].min()) for gop in gops]
    return [gops[k] for k in np.argsort(urgency, kind="stable")]


class _Decoder:
    """The feeds of one decode, opened when first needed."""

    def __init__(self, source: Source, index: VideoIndex, threads: int, stats: DecodeStats) -> None:
        self._source = source
        self._index = index
        self._threads = threads
        self._stats = stats
        self._ranges: RangeFeed | PictureFeed | None = None
        self._container: ContainerFeed | None = None
        self._rank = np.full(len(index.flags), -1, np.int64)
        if index.mode != "counted":
            self._rank[index.order] = np.arange(index.frames)

    def keep(self) -> None:
        """Leave a picture's decoder to the next picture."""
        if isinstance(self._ranges, PictureFeed):
            self._ranges.keep()

    def close(self) -> None:
        """Close the container, if one was opened."""
        if self._container is not None:
            self._container.close()

    def group(self, gop: Gop) -> "Iterator[tuple[int, VideoFrame]]":
        """The wanted frames of one group; what cannot be given goes to ``stats.failed``."""
        self._stats.floor += self._index.floor_packets(gop.frames)
        if self._index.mode == "counted":
            yield from self._count(gop)
            return
        missing = set(gop.frames.tolist())
        for feed, start in self._attempts(gop):
            for number, frame in self._run(feed, start, gop.stop, missing):
                missing.discard(number)
                yield number, frame
            missing -= self._stats.failed.keys()
            if not missing:
                return
        self.blame(None)
        self._stats.failed.update(dict.fromkeys(sorted(missing), "the decoder gives no frame for it"))

    def _attempts(self, gop: Gop) -> Iterator[tuple[Feed, int]]:
        """Ways to decode a group, the cheapest first; the later ones are for key frames that promise too much."""
        if self._index.mode == "packets":
            if self._ranges is None:
                self._ranges = (
                    PictureFeed(self._source, self._index)
                    if self._index.is_picture
                    else RangeFeed(self._source, self._index, self._threads)
                )
            yield self._ranges, gop.start
        else:
            yield self._opened(), gop.start
        keys = np.flatnonzero(self._index.flags[: gop.start] & KEY)
        if len(keys):
            yield self._opened(), int(keys[-1])
        if gop.start:
            yield self._opened(), 0

    def _opened(self) -> "ContainerFeed":
        if self._container is None:
            self._container = ContainerFeed(self._source, self._index, self._threads)
        return self._container

    def _renew(self) -> None:
        """Have the next group decoded by a decoder that has seen nothing."""
        self.close()
        self._ranges = self._container = None

    def _run(self, feed: Feed, start: int, stop: int, wanted: set[int]) -> "Iterator[tuple[int, VideoFrame]]":
        """Feed packets start…stop-1 and give the wanted frames that are surely exact.

        A frame is held back until every reference packet before it (in decode order) has come out whole: only then is
        it known that what it was predicted from is right.
        """
        index, stats = self._index, self._stats
        packets = feed.packets(start, stop)
        context = feed.context  # after the packets: looking for them may reopen the container
        flags, rank = index.flags[start:stop].tolist(), self._rank[start:stop].tolist()
        skips = index.codec in SKIPPABLE
        pending: dict[int, None] = {}  # reference packets fed and not yet seen, in decode order
        held: list[tuple[int, VideoFrame]] = []
        damage = dict.fromkeys(range(start, stop), feed.doubt) if feed.doubt else {}
        skipping = recolored = False

        def release(everything: bool) -> "Iterator[tuple[int, VideoFrame]]":
            oldest = next(iter(pending), stop)
            ready = [each for each in held if everything or each[0] <= oldest]
            held[:] = [each for each in held if not (everything or each[0] <= oldest)]
            for packet, frame in ready:
                number = rank[packet - start]
                why = self._doubt(packet, number, damage)
                if why:
                    stats.failed[number] = why
                else:
                    stats.wanted += 1
                    yield number, self._finished(frame, number)

        def take(frames: "list[VideoFrame]") -> None:
            nonlocal recolored
            for frame in frames:
                stats.decoded += 1
                recolored = recolored or is_recolored(frame, index)
                packet = frame.pts
                if packet is None or not start <= packet < stop:
                    continue
                pending.pop(packet, None)
                if frame.is_corrupt:
                    self.blame(None)
                    damage[packet] = "damaged (the decoder concealed errors)"
                if rank[packet - start] in wanted:
                    held.append((packet, frame))

        try:
            for number, fed in enumerate(packets, start):
                flag = flags[number - start]
                skip = skips and not flag & REFERENCE and rank[number - start] not in wanted
                if skip != skipping:
                    context.skip_frame = "NONREF" if skip else "DEFAULT"
                    skipping = skip
                if flag & REFERENCE and not flag & HIDDEN and rank[number - start] >= rank[0]:
                    pending[number] = None
                    if next(iter(pending)) < number - DEEPEST:
                        del pending[next(iter(pending))]  # it is not coming any more
                fed.pts = fed.dts = number  # comes back as the frame's pts: which packet a frame is of
                stats.packets += 1
                try:
                    take(context.decode(fed))
                except DAMAGE as bad:
                    self.blame(bad)
                    damage[number] = f"undecodable ({_reason(bad)})"
                    pending.pop(number, None)
                if held:
                    yield from release(False)
            try:
                take(context.decode(None))
            except DAMAGE as bad:
                self.blame(bad)
                damage[stop - 1] = f"undecodable ({_reason(bad)})"
            yield from release(True)
        finally:
            context.flush_buffers()
            if skipping:
                context.skip_frame = "DEFAULT"
            if recolored:
                # A decoder gives frames that state no colours those of the frames that it had before, whichever.
                self._renew()
        for packet in range(start, stop):
            number = rank[packet - start]
            if number in wanted and number not in stats.failed and packet in damage:
                stats.failed[number] = damage[packet]

    def blame(self, failed: Exception | None) -> None:
        """Damage counts only where there is memory for a few frames more; see `blame_the_process`."""
        blame_the_process(shown(self._source.uri), failed, self._index.width * self._index.height)

    def _doubt(self, packet: int, number: int, damage: dict[int, str]) -> str:
        """Why a frame that came out may not be what a sequential decode gives; empty if it surely is."""
        if not damage:
            return ""
        if packet in damage:
            return damage[packet]
        first = int(self._index.starts[number])
        for other, why in damage.items():
            if first <= other < packet and self._index.flags[other] & REFERENCE:
                return f"predicted from packet {other}, which is {why}"
        return ""

    def _finished(self, frame: "VideoFrame", number: int) -> "VideoFrame":
        """Give a frame its time and the video's size, format and colours: a bare decoder knows no container's."""
        index = self._index
        frame = plain(matched(frame, index), index)
        frame.pts, frame.time_base = int(index.frame_pts[number]), Fraction(*index.time_base)
        return frame

    def _count(self, gop: Gop) -> "Iterator[tuple[int, VideoFrame]]":
        """Decode from the start and number the frames as they come."""
        wanted, last, number, damage = set(gop.frames.tolist()), int(gop.frames[-1]), 0, ""
        for frame in _sequential(self._opened(), self._stats):
            if isinstance(frame, str):
                self.blame(None)
                damage = damage or frame
                continue
            if frame.is_corrupt:
                self.blame(None)
                damage = damage or "damaged (the decoder concealed errors)"
            if number in wanted:
                wanted.discard(number)
                if damage:
                    self._stats.failed[number] = f"{damage}, at or before this frame"
                else:
                    self._stats.wanted += 1
                    yield number, self._finished(frame, number)
            if number >= last:
                break
            number += 1
        self._stats.failed.update(dict.fromkeys(sorted(wanted), damage or "the decoder gives no frame for it"))


def _sequential(feed: "ContainerFeed", stats: DecodeStats) -> "Iterator[VideoFrame | str]":
    """All frames from the start, and after the first key frame also the reasons why a packet gave none."""
    started = False
    for packet in feed.all_packets():
        stats.packets += 1
        started |= packet.is_keyframe
        try:
            frames = feed.context.decode(packet)
        except DAMAGE as bad:
            if started:
                yield f"undecodable ({_reason(bad)})"
            continue
        stats.decoded += len(frames)
        yield from frames
    try:
        frames = feed.context.decode(None)
    except DAMAGE as bad:
        yield f"undecodable ({_reason(bad)})"
        return
    stats.decoded += len(frames)
    yield from frames


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
