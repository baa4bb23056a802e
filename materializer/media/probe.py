"""Index a video, and find out by trying which way of decoding it gives the frames of a full sequential decode.

One pass over the packets, without decoding more than the first 32 frames, where the headers tell all (H.264, HEVC,
VP8, VP9, AV1); a full decode where they do not. Cheap enough to run over a dataset, and nothing about a file is
believed that was not seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from av.packet import Packet
from av.video.stream import VideoStream

from viewcache.errors import BadVideo, Full, SourceUnreachable
from viewcache.materializer.media.bitstream import INTRA_ONLY, READABLE, Headers
from viewcache.materializer.media.decode import DecodeStats, decode_from
from viewcache.materializer.media.demux import DAMAGE, configure, demux, is_cover, only, pixel_limit, video_stream
from viewcache.materializer.media.index import HIDDEN, KEY, NO_TIME, REFERENCE, VideoIndex, too_large
from viewcache.materializer.media.pixels import display_turn, planes_of, to_rgb
from viewcache.materializer.media.planes import plane_shapes
from viewcache.materializer.media.reaching import blame_the_process
from viewcache.materializer.media.source import Source, open_container, open_source, shown
from viewcache.store.checksum import crc32c

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.packet import PktSideDataT
    from av.video.codeccontext import VideoCodecContext

__all__ = ["DEFAULT_MAX_PIXELS", "probe", "probe_source"]

DEFAULT_MAX_PIXELS = 8192 * 4320
ORDER_CHECKED = 32
"""Frames at the start whose order of output is compared with the index."""
PIXELS_CHECKED = 8
"""Frames at the start whose bytes are compared between the container's decoder and the bare one."""
AFTER_KEY = 8
"""Packets after a doubtful key frame whose frames are compared with a sequential decode."""
DRAINED = 64
"""Packets to feed after one so that its frame, and all that is shown before it, has come out as in a full decode."""
PROGRESSIVE = (0, 1)
"""AVFieldOrder: unknown, progressive."""
STATEFUL_SIDE_DATA: "tuple[PktSideDataT, ...]" = ("new_extradata", "param_change", "palette")
"""Side data that changes the decoder for all that follows, so that decoding cannot start just anywhere."""
PAYLOAD_OFFSETS = range(33)
"""Where a payload may begin after `packet.pos`, in bytes: 0 in mp4 and avi, 4 in most Matroska blocks, more with
lacing."""


def probe(uri: str, max_pixels: int = DEFAULT_MAX_PIXELS) -> VideoIndex:
    """Index one video.

    Args:
        uri: a local path or any fsspec URL.
        max_pixels: a frame with more is refused before it is decoded.

    Returns:
        The index. ``damage`` says what is wrong with a file that still gives frames (truncated, undecodable packets).

    Raises:
        BadVideo: the file gives no frames, or is not a video, or too large a one; the message names it and the reason.
        Full: this process has too many files open or too little memory, which says nothing about the file.
    """
    with open_source(uri) as source:
        return probe_source(source, max_pixels)


def probe_source(source: Source, max_pixels: int) -> VideoIndex:
    """`probe` of an open source, which stays open."""
    try:
        return _Probe(source, max_pixels).run()
    except (BadVideo, Full, SourceUnreachable):
        raise
    except Exception as bad:  # hostile files raise nearly anything out of the bindings
        blame_the_process(shown(source.uri), bad)
        raise BadVideo(f"{shown(source.uri)}: cannot be read as a video ({type(bad).__name__}: {bad})") from bad


@dataclass(slots=True)
class _Packets:
    """What one pass over the packets finds."""

    pos: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    crc: list[int] = field(default_factory=list)
    pts: list[int] = field(default_factory=list)
    dts: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    temporal: list[int] = field(default_factory=list)
    """Temporal sub-layer of each packet."""
    doubtful: list[int] = field(default_factory=list)
    """Keys that are no clean start by their headers."""
    simple: bool = True
    """Every packet holds one whole picture, as far as its headers say."""
    bare: bool = True
    """Nothing but payload and extradata is needed to decode."""
    stateful: bool = False
    """The decoder is reconfigured on the way."""


@dataclass(slots=True)
class _Output:
    """What a sequential decode gives."""

    name: str
    """Of the file, in messages."""
    packets: list[int] = field(default_factory=list)
    """Per frame: the packet that it is of; -1 = the decoder does not say."""
    digests: dict[int, int] = field(default_factory=dict)
    """Packet → digest of its frame, for some."""
    first: "VideoFrame | None" = None
    started: bool = False
    """A key frame was fed; what cannot be decoded before it is cut off, not damaged."""
    damage: str = ""

    def feed(
        self,
        context: "VideoCodecContext",
        packet: "Packet[VideoStream] | None",
        number: int,
        digested: Callable[[int], bool],
    ) -> None:
        """Decode one packet, or drain the decoder, and note the frames that come out."""
        if packet is not None:
            packet.pts = packet.dts = number  # comes back as the frame's pts
            self.started |= packet.is_keyframe
        try:
            frames = context.decode(packet)
        except DAMAGE as bad:
            blame_the_process(self.name, bad, context.width * context.height)
            what = "the last frames" if packet is None else f"packet {number}"
            if self.started:
                self.damage = self.damage or f"{what} cannot be decoded ({getattr(bad, 'strerror', None) or bad})"
            return
        for frame in frames:
            at = -1 if frame.pts is None else frame.pts
            self.first = self.first or frame
            if frame.is_corrupt:
                blame_the_process(self.name, None, context.width * context.height)
                self.damage = self.damage or f"frame {len(self.packets)} is damaged (the decoder concealed errors)"
            elif digested(at):
                self.digests[at] = _digest(frame)
            self.packets.append(at)


class _Probe:
    """One file under examination."""

    def __init__(self, source: Source, max_pixels: int) -> None:
        self._source = source
        self._max_pixels = max_pixels
        self._name = shown(source.uri)

    def run(self) -> VideoIndex:
        """Index, check, and step down to a slower mode where a check fails."""
        with open_container(self._source) as container:
            stream = self._choose(container)
            packets, output = self._read(container, stream)
            if output.first is None:
                raise BadVideo(f"{self._name}: no frame can be decoded ({output.damage or 'the stream is empty'})")
            index = self._index(stream, packets, output)
        known = packets.simple and not packets.stateful and self._codec in READABLE | INTRA_ONLY
        in_order = output.packets == index.order[: len(output.packets)].tolist()
        if not known or not in_order or index.damage:
            return self._counted(index, packets.stateful)
        if packets.doubtful:
            return self._without_doubtful_keys(index, packets.doubtful)
        return self._stepped_down(index, output.digests)

    def _choose(self, container: "InputContainer") -> VideoStream:
        stream = video_stream(container)
        if not isinstance(stream, VideoStream):
            kinds = sorted({"a cover picture" if is_cover(each) else each.type for each in container.streams})
            raise BadVideo(f"{self._name}: no video stream (the file holds {', '.join(kinds) or 'nothing'})")
        context: VideoCodecContext | None = stream.codec_context
        if context is None:
            raise BadVideo(f"{self._name}: this FFmpeg has no decoder for the video stream")
        if context.width * context.height > self._max_pixels:
            raise BadVideo(f"{self._name}: {too_large(context.width, context.height, self._max_pixels)}")
        self._codec = context.codec.canonical_name
        only(container, stream.index)
        configure(context, self._codec, pixel_limit(self._max_pixels, context.width), 1)
        return stream

    def _read(self, container: "InputContainer", stream: VideoStream) -> tuple[_Packets, _Output]:
        """Demux all packets; decode until enough frames are out to check their order."""
        context = stream.codec_context
        headers = Headers(self._codec, context.extradata or b"")
        found, output = _Packets(), _Output(self._name)
        payloads = _Payloads(self._source)
        # Fields may come in packets of their own, two to a frame.
        found.simple = self._codec != "h264" or context.field_order in PROGRESSIVE

        def few(_: int) -> bool:
            return len(output.digests) < PIXELS_CHECKED

        try:
            for number, packet in enumerate(demux(container, stream.index)):
                self._note(found, packet, payloads, headers)
                if len(output.packets) < ORDER_CHECKED and not output.damage:
                    output.feed(context, packet, number, few)
        except DAMAGE as bad:
            blame_the_process(self._name, bad, context.width * context.height)
            # Packets after this point are lost, as they are for any reader; what came before is as good as it was.
            output.damage = output.damage or f"unreadable after {len(found.size)} packets ({bad})"
        if len(output.packets) < ORDER_CHECKED and not output.damage:
            output.feed(context, None, 0, few)
        listed, end = stream.index_entries, self._source.stamp.size
        if any(each.pos + each.size > end for each in listed):
            output.damage = f"truncated: its header lists {len(listed)} packets, {len(found.size)} are in the file"
        return found, output

    def _note(self, found: _Packets, packet: "Packet[VideoStream]", payloads: "_Payloads", headers: Headers) -> None:
        data = bytes(packet)
        header = headers.read(data)
        found.crc.append(crc32c(data))
        found.simple &= header.simple
        found.temporal.append(header.temporal)
        if packet.is_keyframe and not header.clean:
            found.doubtful.append(len(found.size))
        hidden = packet.is_discard or not header.shown
        found.flags.append(KEY * packet.is_keyframe | HIDDEN * hidden | REFERENCE * header.reference)
        found.size.append(packet.size)
        found.pts.append(NO_TIME if packet.pts is None else packet.pts)
        found.dts.append(NO_TIME if packet.dts is None else packet.dts)
        found.pos.append(payloads.find(packet, data))
        found.stateful |= any(packet.has_sidedata(kind) for kind in STATEFUL_SIDE_DATA)
        found.bare &= not packet.has_sidedata("matroska_block_additional")

    def _index(self, stream: VideoStream, found: _Packets, output: _Output) -> VideoIndex:
        """The index as the packets' timestamps and headers have it."""
        first, context = output.first, stream.codec_context
        assert first is not None
        pts, flags = np.array(found.pts, np.int64), np.array(found.flags, np.uint8)
        flags[np.array(found.temporal) < max(found.temporal)] |= REFERENCE
        visible = np.flatnonzero(flags & HIDDEN == 0)
        order = visible[np.argsort(pts[visible], kind="stable")]
        times = np.sort(pts[visible])
        if (times == NO_TIME).any() or (np.diff(times) == 0).any():
            found.simple = False
        pos = np.array(found.pos, np.int64)
        ranged = self._codec in READABLE and found.bare and not found.stateful and bool((pos >= 0).all())
        base = Fraction(stream.time_base or Fraction(1, 1000))
        rotation, mirrored = display_turn(first)
        return VideoIndex(
            codec=self._codec,
            decoder=context.codec.name,
            extradata=context.extradata or b"",
            width=first.width,
            height=first.height,
            pix_fmt=first.format.name,
            color_space=int(first.colorspace),
            color_range=int(first.color_range),
            rotation=rotation,
            time_base=(base.numerator, base.denominator),
            fps=_fps(stream, times, base),
            mode="packets" if ranged else "container",
            stream=stream.index,
            file_size=self._source.stamp.size,
            mtime_ns=self._source.stamp.mtime_ns,
            etag=self._source.stamp.etag,
            damage=output.damage,
            pos=pos,
            size=np.array(found.size, np.int32),
            crc=np.array(found.crc, np.uint32),
            pts=pts,
            dts=np.array(found.dts, np.int64),
            flags=flags,
            order=order.astype(np.int32),
            frame_pts=times,
            mirrored=mirrored,
        )

    def _stepped_down(self, index: VideoIndex, digests: dict[int, int]) -> VideoIndex:
        """The index in the fastest mode that gives the frames that a sequential decode gave."""
        for mode in ("packets", "container")[index.mode == "container" :]:
            trial = replace(index, mode=mode)
            if self._agrees(trial, digests):
                return trial
        return replace(index, mode="counted")

    def _agrees(self, index: VideoIndex, digests: dict[int, int]) -> bool:
        """Whether random access gives the frames of the given packets as the sequential decode did."""
        frames = np.flatnonzero(np.isin(index.order, list(digests)))
        expected = {frame: digests[int(index.order[frame])] for frame in frames.tolist()}
        got: dict[int, int] = {}
        stats = DecodeStats()
        for start in np.unique(index.starts[frames]):
            # Each start on its own: what an earlier one has left in the decoder must not help.
            decoded = decode_from(self._source, index, frames[index.starts[frames] == start], stats=stats)
            try:
                got |= {frame: _digest(picture) for frame, picture in decoded}
            except BadVideo:  # packets do not come back as they came before
                return False
        return got == expected and stats.packets == stats.floor

    def _without_doubtful_keys(self, index: VideoIndex, doubtful: list[int]) -> VideoIndex:
        """Try the first doubtful key as a start; if frames then differ, start at none of them.

        H.264 recovery points and key frames without their parameter sets are exact only if the encoder took care.
        """
        later = [key for key in doubtful if key > 0]
        digested = set(range(PIXELS_CHECKED)).union(*(range(key, key + AFTER_KEY) for key in later[:1]))
        output = self._sequential(digested, stop=max(digested) + DRAINED)
        if self._agrees(index, output.digests):
            return index
        flags = index.flags.copy()
        flags[later] &= ~np.uint8(KEY)
        return self._stepped_down(replace(index, flags=flags), output.digests)

    def _counted(self, index: VideoIndex, stateful: bool) -> VideoIndex:
        """Number the frames by decoding all of them once, then try how to reach them."""
        keys = np.flatnonzero(index.flags & KEY)
        tried = {int(keys[at]) for at in (0, len(keys) // 2, -1)} if len(keys) else set[int]()
        output = self._sequential(set(range(PIXELS_CHECKED)).union(*(range(key, key + AFTER_KEY) for key in tried)))
        packets = np.array(output.packets, np.int64)
        index = replace(index, damage=index.damage or output.damage)
        is_permutation = bool(len(packets)) and packets.min() >= 0 and len(np.unique(packets)) == len(packets)
        if not is_permutation or stateful or output.damage:
            times = index.pts[packets] if is_permutation else np.resize(index.frame_pts, len(packets))
            order = np.full(len(packets), -1, np.int32)
            return replace(index, mode="counted", order=order, frame_pts=_filled(times, index))
        flags = index.flags | np.uint8(HIDDEN)
        flags[packets] &= ~np.uint8(HIDDEN)
        times = _filled(index.pts[packets], index)
        return self._stepped_down(
            replace(index, flags=flags, order=packets.astype(np.int32), frame_pts=times), output.digests
        )

    def _sequential(self, digested: set[int], stop: int | None = None) -> _Output:
        """Decode from the start, all or up to a packet, and digest the frames of some packets."""
        output = _Output(self._name)
        with open_container(self._source) as container:
            stream = self._choose(container)
            context = stream.codec_context
            for number, packet in enumerate(demux(container, stream.index)):
                if number == stop:
                    break
                output.feed(context, packet, number, digested.__contains__)
            output.feed(context, None, 0, digested.__contains__)
        return output


class _Payloads:
    """Finds where a packet's payload lies in the file, contiguous and unchanged."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._missed = False

    def find(self, packet: "Packet[VideoStream]", data: bytes) -> int:
        """Offset in bytes, or -1; after the first miss the rest is not looked for, since one miss decides."""
        if self._missed or packet.pos is None:
            self._missed = True
            return -1
        around = memoryview(self._source.read(packet.pos, packet.size + PAYLOAD_OFFSETS[-1]))
        for offset in PAYLOAD_OFFSETS:
            if around[offset : offset + packet.size] == data:
                return packet.pos + offset
        self._missed = True
        return -1


def _digest(frame: "VideoFrame") -> int:
    kept = plane_shapes(frame.format.name, frame.width, frame.height) is not None
    return crc32c(planes_of(frame) if kept else to_rgb(frame).reshape(-1))


def _fps(stream: VideoStream, times: np.ndarray, base: Fraction) -> float:
    if stream.average_rate:
        return float(stream.average_rate)
    span = float(times[-1] - times[0]) * float(base) if len(times) > 1 else 0.0
    return (len(times) - 1) / span if span > 0 else 0.0


def _filled(times: np.ndarray, index: VideoIndex) -> np.ndarray:
    """Presentation times that never fall, evenly spaced where the container gives none."""
    if (times == NO_TIME).any():
        step = index.time_base[1] / index.time_base[0] / (index.fps or 25.0)
        times = np.rint(np.arange(len(times)) * step)
    return np.sort(times.astype(np.int64))
