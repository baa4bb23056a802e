"""The one packet of a picture file, and a decoder for it: where that is sound, the one that the picture before had.

A new decoder costs a JPEG picture a tenth of its decoding. But decoders remember tables and marks of what they were
given, so one is used again for pictures alone of which `stands_alone` says that nothing of it matters.
"""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from av.codec import CodecContext
from av.packet import Packet

from viewcache.errors import BadVideo
from viewcache.materializer.media.demux import ANOTHER, configure, most_pixels
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.jpeg import has_end, stands_alone
from viewcache.materializer.media.source import Source, shown
from viewcache.store.checksum import crc32c

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream

    VideoPacket = Packet[VideoStream]

__all__ = ["KEPT", "PictureFeed"]

KEPT = threading.local()
"""Per thread, as ``decoder``: the decoder that the next JPEG picture may have."""


class PictureFeed:
    """A picture file as one packet."""

    context: "VideoCodecContext"
    """Set by `packets`."""
    doubt = ""

    def __init__(self, source: Source, index: VideoIndex) -> None:
        self._source = source
        self._index = index
        self._stands_alone = False

    def packets(self, start: int, stop: int) -> "Iterator[VideoPacket]":
        """The one packet, checked."""
        offset, length = int(self._index.pos[0]), int(self._index.size[0])
        payload = self._source.read(offset, length)
        if len(payload) != length:
            raise BadVideo(f"{shown(self._source.uri)}: ends before byte {offset + length}; {ANOTHER}")
        if crc32c(payload) != self._index.crc[0]:
            raise BadVideo(f"{shown(self._source.uri)}: other bytes at {offset} than before; {ANOTHER}")
        if self._index.codec == "jpeg":
            self._stands_alone = stands_alone(payload)
            if not self._stands_alone and not has_end(payload):
                self.doubt = "undecodable (a JPEG file without its end: it was cut short)"
        self.context = self._decoder()
        # Allocated by FFmpeg: decoders read a little past a packet's end, where a view of ours has no room.
        packet = cast("VideoPacket", Packet(length))
        packet.update(payload)
        return iter((packet,))

    def keep(self) -> None:
        """Leave the decoder to the next picture of this thread; called where this one was decoded without an error."""
        if self._stands_alone:
            KEPT.decoder = self.context

    def _decoder(self) -> "VideoCodecContext":
        # Taken out: two decodes that take turns in one thread must not share it, and a failed one must not leave it.
        kept: VideoCodecContext | None = KEPT.__dict__.pop("decoder", None) if self._stands_alone else None
        if kept is not None:
            return kept
        context = cast("VideoCodecContext", CodecContext.create(self._index.decoder, "r"))
        configure(context, self._index.codec, most_pixels(self._index), 1)
        if self._stands_alone:
            # The next ones may be larger. Their one frame header is that of their index, so each is of an allowed size.
            context.options = {}
        # Without it a JPEG that is cut off gives a picture that ends in grey, and no error.
        context.options |= {"err_detect": "explode"}
        return context
