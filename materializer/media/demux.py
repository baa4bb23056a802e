"""Where a decoder's packets come from: byte ranges of the file, or FFmpeg's demuxer with every packet checked.

Ranges read only what is needed and open nothing; the demuxer is for containers that scatter a packet's bytes (MPEG-TS)
and for streams that need more than payload and extradata.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, cast

import av
from av.codec import CodecContext
from av.packet import Packet
from av.stream import Discard, Disposition

from viewcache.errors import BadVideo
from viewcache.materializer.media.index import NO_TIME, VideoIndex
from viewcache.materializer.media.reaching import blame_the_process
from viewcache.materializer.media.source import RemoteSource, Source, open_container, shown
from viewcache.store.checksum import crc32c

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.stream import Stream
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    VideoPacket = Packet[VideoStream]

__all__ = [
    "DAMAGE",
    "ContainerFeed",
    "Feed",
    "RangeFeed",
    "configure",
    "demux",
    "is_cover",
    "most_pixels",
    "only",
    "pixel_limit",
    "video_stream",
]

DAMAGE = (av.error.FFmpegError, ValueError, MemoryError, UnicodeDecodeError, IndexError)
"""What the bindings raise on damaged input."""
LOCAL_GAP, REMOTE_GAP = 16 << 10, 256 << 10
"""Bytes between two packets that are read along rather than asked for separately."""
ANOTHER = "the file was changed or damaged after it was scanned"
BATCH = 8 << 20
"""Bytes of packets that are fetched before they are fed."""


def is_cover(stream: "Stream") -> bool:
    """Whether a stream is a picture that is attached to the file, as the cover of a song is, and no video."""
    return bool(stream.disposition & Disposition.attached_pic)


def video_stream(container: "InputContainer") -> "Stream | None":
    """The stream that is the video: FFmpeg's choice, unless that is a cover, else the first one; None without any."""
    best = container.streams.best("video")
    if best is None or not is_cover(best):
        return best
    return next((each for each in container.streams.video if not is_cover(each)), None)


class Feed(Protocol):
    """Packets of one video, and the decoder that they fit."""

    context: "VideoCodecContext"
    doubt: str
    """Why no frame of the packets may be believed, whatever the decoder gives; empty if they may."""

    def packets(self, start: int, stop: int) -> "Iterator[VideoPacket]":
        """The packets start…stop-1 in decode order. It may replace the attributes, so look at them afterwards."""


def configure(context: "VideoCodecContext", codec: str, max_pixels: int, threads: int) -> None:
    """Set a decoder's limits and threads, before it is opened."""
    context.options = {"max_pixels": str(max_pixels)}
    if codec == "h264":
        # A stream that does not state its reorder depth may lose frames after a seek: the decoder guesses low first.
        context.options |= {"strict": "1"}
    context.thread_type = "FRAME" if threads > 1 else "NONE"
    context.thread_count = threads


class RangeFeed:
    """Packets as byte ranges of the file; the container is never opened."""

    doubt = ""

    def __init__(self, source: Source, index: VideoIndex, threads: int) -> None:
        self._source = source
        self._index = index
        self._gap = REMOTE_GAP if isinstance(source, RemoteSource) else LOCAL_GAP
        self.context = cast("VideoCodecContext", CodecContext.create(index.decoder, "r"))
        self.context.extradata = index.extradata or None
        configure(self.context, index.codec, most_pixels(index), threads)

    def packets(self, start: int, stop: int) -> "Iterator[VideoPacket]":
        """The packets start…stop-1."""
        index = self._index
        pos, size, crcs = (array[start:stop].tolist() for array in (index.pos, index.size, index.crc))
        at = 0
        while at < len(pos):
            end, ranges = self._batch(pos, size, at)
            data = [memoryview(part) for part in self._source.read_many(ranges)]
            piece = 0
            for offset, length, crc in zip(pos[at:end], size[at:end], crcs[at:end], strict=True):
                while not ranges[piece][0] <= offset <= sum(ranges[piece]) - length:
                    piece = (piece + 1) % len(ranges)
                inner = offset - ranges[piece][0]
                payload = data[piece][inner : inner + length]
                if len(payload) != length:
                    raise BadVideo(f"{shown(self._source.uri)}: ends before byte {offset + length}; {ANOTHER}")
                # Allocated by FFmpeg: decoders read a little past a packet's end, where a view of ours has no room.
                packet = cast("VideoPacket", Packet(length))
                packet.update(payload)  # type: ignore[arg-type]  # takes any buffer
                if crc32c(payload) != crc:
                    raise BadVideo(f"{shown(self._source.uri)}: other bytes at {offset} than before; {ANOTHER}")
                yield packet
            at = end

    def _batch(self, pos: list[int], size: list[int], at: int) -> tuple[int, list[tuple[int, int]]]:
        """The next packets to fetch together, and the merged ranges that hold them."""
        end, total = at, 0
        while end < len(pos) and (total < BATCH or end == at):
            total += size[end]
            end += 1
        merged: list[list[int]] = []
        for offset, length in sorted(zip(pos[at:end], size[at:end], strict=True)):
            if merged and offset <= merged[-1][1] + self._gap:
                merged[-1][1] = max(merged[-1][1], offset + length)
            else:
                merged.append([offset, offset + length])
        return end, [(first, last - first) for first, last in merged]


class ContainerFeed:
    """Packets through FFmpeg's demuxer, each checked against the index."""

    doubt = ""

    def __init__(self, source: Source, index: VideoIndex, threads: int) -> None:
        self._source = source
        self._index = index
        self._threads = threads
        self._opened: InputContainer | None = None
        self._fresh = False
        self._open()

    def _open(self) -> None:
        self.close()
        self._manager = open_container(self._source)
        self._opened = self._manager.__enter__()
        self._stream = cast("VideoStream", self._opened.streams[self._index.stream])
        only(self._opened, self._index.stream)
        self.context = self._stream.codec_context
        configure(self.context, self._index.codec, most_pixels(self._index), self._threads)
        self._demuxed = demux(self._opened, self._index.stream)
        self._fresh = True

    def close(self) -> None:
        """Close the container."""
        if self._opened is not None:
            self._opened = None
            self._manager.__exit__(None, None, None)

    def all_packets(self) -> "Iterator[VideoPacket]":
        """Every packet from the start."""
        self._rewind()
        return self._demuxed

    def _rewind(self) -> None:
        if not self._fresh:
            self._open()
        self._fresh = False

    def packets(self, start: int, stop: int) -> "Iterator[VideoPacket]":
        """The packets start…stop-1, complete and checked before the first is given."""
        found: list[VideoPacket] | None = None
        for seek in self._seeks(start):
            assert self._opened is not None
            self._fresh = False
            try:
                self._opened.seek(seek, stream=self._stream, backward=True)
            except DAMAGE:
                continue
            self._demuxed = demux(self._opened, self._index.stream)
            found = self._read(start, stop, whole=False)
            if found is not None:
                break
        if found is None:
            self._rewind()
            found = self._read(start, stop, whole=True)
        if found is None:
            raise BadVideo(f"{shown(self._source.uri)}: holds other packets than before; {ANOTHER}")
        return iter(found)

    def _seeks(self, start: int) -> Iterator[int]:
        """Where to seek for a packet: by presentation time, then by decode time; the first is found by reopening."""
        if start == 0:
            return
        for time in (self._index.pts[start], self._index.dts[start]):
            if time != NO_TIME:
                yield int(time)

    def _read(self, start: int, stop: int, *, whole: bool) -> "list[VideoPacket] | None":
        """Read on to the wanted packets; None if they do not come as the index says, or not soon after a seek."""
        index = self._index
        found: list[VideoPacket] = []
        try:
            for count, packet in enumerate(self._demuxed):
                if whole and count < start:
                    continue
                if _same(packet, index, start + len(found)):
                    found.append(packet)
                    if start + len(found) == stop:
                        return found
                elif whole or found or (packet.dts or NO_TIME) > index.dts[start]:
                    return None
        except DAMAGE as bad:
            blame_the_process(shown(self._source.uri), bad, index.width * index.height)
            return None
        return None


def _same(packet: "VideoPacket", index: VideoIndex, at: int) -> bool:
    times = (NO_TIME if packet.pts is None else packet.pts, NO_TIME if packet.dts is None else packet.dts)
    if packet.size != index.size[at] or times != (index.pts[at], index.dts[at]):
        return False
    return bool(crc32c(memoryview(packet)) == index.crc[at])


def most_pixels(index: VideoIndex) -> int:
    """Frames may change size within a stream, within reason."""
    return pixel_limit(4 * index.width * index.height, index.width)


def pixel_limit(pixels: int, width: int) -> int:
    """What to tell FFmpeg as ``max_pixels``, so that frames of so many pixels pass.

    It measures padded frames and its own scratch memory by the same limit: 280 lines as wide as the frame with its
    borders in the decoders of the MPEG-4 family, which is more than a small frame has.
    """
    return max(pixels, 512 * (width + 512))


def only(container: "InputContainer", stream: int) -> None:
    """Let the demuxer pass over all streams but one."""
    for each in container.streams:
        if each.index != stream:
            each.discard = Discard.all


def demux(container: "InputContainer", stream: int) -> "Iterator[VideoPacket]":
    """The packets of one stream, without the empty one that ends it."""
    for packet in container.demux(cast("VideoStream", container.streams[stream])):
        if packet.size:
            yield packet
