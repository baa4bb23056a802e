"""Read what a file says of itself: some ten kilobytes and no decoding, where the container has a table of its packets.

That is the ``moov`` box of MP4 and QuickTime. What it claims is believed until the video is decoded first, and compared
then. Other containers, and tables that do not say all that a plan needs, are left to the exact scan (`probe`).
"""

import struct
from collections.abc import Iterator
from fractions import Fraction

from av.video.stream import VideoStream

from viewcache.errors import BadVideo, Full
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.media.index import color_range_name, color_space_name, too_large
from viewcache.materializer.media.source import Source, open_container, shown

__all__ = ["read_header"]

EXACT = frozenset({"h264", "hevc", "av1", "mjpeg", "prores"})
"""Codecs of which one packet in an MP4 is one frame."""
PROGRESSIVE = (0, 1)
"""AVFieldOrder: unknown, progressive."""
FEW = {"probesize": "32768"}
"""FFmpeg's options: look at few packets, since the boxes say what is in the streams."""
MOST_BOXES = 1000
"""Of one level; a box may be of 8 bytes, and a file of nothing else."""
IDENTITY = (1, 0, 0, 1)
ROTATIONS: dict[tuple[int, ...], int] = {(1, 0, 0, 1): 0, (0, -1, 1, 0): 90, (-1, 0, 0, -1): 180, (0, 1, -1, 0): 270}
"""The signs of a display matrix → degrees counter-clockwise."""


def read_header(source: Source, max_pixels: int) -> VideoFacts | None:
    """What the header of a file claims.

    Args:
        source: the opened file.
        max_pixels: a frame with more is refused.

    Returns:
        The facts, without times; None if only the packets can tell.

    Raises:
        BadVideo: not a video, or one that is too large.
        Full: this process has too many files open.
    """
    try:
        return _read(source, max_pixels)
    except (BadVideo, Full):
        raise
    except Exception:  # hostile files raise nearly anything out of the bindings; the exact scan says what is wrong
        return None


def _read(source: Source, max_pixels: int) -> VideoFacts | None:
    with open_container(source, FEW) as container:
        if "mp4" not in container.format.name:
            return None
        stream = container.streams.best("video")
        if not isinstance(stream, VideoStream) or stream.codec_context is None:
            return None  # the exact scan says what is wrong
        context = stream.codec_context
        if context.width * context.height > max_pixels:
            raise BadVideo(f"{shown(source.uri)}: {too_large(context.width, context.height, max_pixels)}")
        if context.codec.canonical_name not in EXACT or context.field_order not in PROGRESSIVE:
            return None
        return _facts(source, stream)


def _facts(source: Source, stream: VideoStream) -> VideoFacts | None:
    entries, context, end = list(stream.index_entries), stream.codec_context, source.stamp.size
    shown_ones = sum(not each.is_discard for each in entries)
    keys = [k for k, each in enumerate(entries) if each.is_keyframe]
    # A fragmented file counts no samples in its header; a truncated one lists packets that are not there.
    if not shown_ones or stream.frames != len(entries) or any(each.pos + each.size > end for each in entries):
        return None
    rotation = _rotation(source, stream.index)
    if context.pix_fmt is None or rotation is None or not stream.average_rate or not keys:
        return None
    rate = Fraction(stream.average_rate)
    ends = [*keys[1:], len(entries)]
    return VideoFacts(
        stamp=source.stamp,
        frames=shown_ones,
        width=context.width,
        height=context.height,
        rotation=rotation,
        fps=float(rate),
        duration_s=float(shown_ones / rate),
        codec=context.codec.canonical_name,
        pix_fmt=context.pix_fmt,
        color_space=color_space_name(int(context.colorspace)),
        color_range=color_range_name(int(context.color_range)),
        keyframes=len(keys),
        gop_max=max(after - key for key, after in zip(keys, ends, strict=True)),
    )


def _rotation(source: Source, track: int) -> int | None:
    """Degrees counter-clockwise, as the boxes of the movie and of one of its tracks say; None if they say more."""
    for kind, start, end in _boxes(source, 0, source.stamp.size):
        if kind == b"moov":
            inner = list(_boxes(source, start, end))
            movie = next((each for each in inner if each[0] == b"mvhd"), None)
            tracks = [each for each in inner if each[0] == b"trak"]
            if movie is None or track >= len(tracks) or _signs(source, movie[1], 36) != IDENTITY:
                return None
            for name, at, _ in _boxes(source, *tracks[track][1:]):
                if name == b"tkhd":
                    return ROTATIONS.get(_signs(source, at, 40))
    return None


def _boxes(source: Source, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Kind, begin of the content and end of each box in a part of the file (ISO/IEC 14496-12 §4.2)."""
    for _ in range(MOST_BOXES):
        head = source.read(start, 16)
        if start + 8 > end or len(head) < 8:
            return
        size, content = int.from_bytes(head[:4], "big"), start + 8
        if size == 1:
            size, content = int.from_bytes(head[8:], "big"), start + 16
        stop = end if size == 0 else start + size
        if not content <= stop <= end:
            return
        yield head[4:8], content, stop
        start = stop


def _signs(source: Source, start: int, offset: int) -> tuple[int, ...]:
    """The signs of a, b, c and d of the matrix in a header box; later versions have wider times before it."""
    version = source.read(start, 1)
    data = source.read(start + offset + (12 if version == b"\x01" else 0), 20)
    if len(data) < 20:
        return ()
    a, b, _, c, d = struct.unpack(">5i", data)
    return tuple((value > 0) - (value < 0) for value in (a, b, c, d))
