"""Read what a file says of itself, without decoding, where the container has a table of its packets.

That is the ``moov`` box of MP4 and QuickTime: of a common file we read it ourselves, of others FFmpeg does. What it
claims is believed until the video is decoded first, and compared then. Other containers, and tables that do not say all
that a plan needs, are left to the exact scan (`probe`).
"""

from fractions import Fraction

from av.video.stream import VideoStream

from viewcache.errors import BadVideo, Full, SourceUnreachable
from viewcache.materializer.media.boxes import children, movie_box
from viewcache.materializer.media.demux import is_cover, video_stream
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.media.index import color_range_name, color_space_name, too_large
from viewcache.materializer.media.moov import read_moov, rotation
from viewcache.materializer.media.source import Source, open_container, shown

__all__ = ["read_header", "read_with_ffmpeg"]

EXACT = frozenset({"h264", "hevc", "av1", "mjpeg", "prores"})
"""Codecs of which one packet in an MP4 is one frame."""
PROGRESSIVE = (0, 1)
"""AVFieldOrder: unknown, progressive."""
FEW = {"probesize": "32768"}
"""FFmpeg's options: look at few packets, since the boxes say what is in the streams."""


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
    for reading in (read_moov, read_with_ffmpeg):
        try:
            facts = reading(source, max_pixels)
        except (BadVideo, Full, SourceUnreachable):
            raise
        except Exception:  # hostile files raise nearly anything; the exact scan says what is wrong
            continue
        if facts is not None:
            return facts
    return None


def read_with_ffmpeg(source: Source, max_pixels: int) -> VideoFacts | None:
    """As `read_header`, for whatever file of tables there is.

    Raises:
        Exception: the file is damaged, or hostile.
    """
    with open_container(source, FEW) as container:
        if "mp4" not in container.format.name:
            return None
        stream = video_stream(container)
        if not isinstance(stream, VideoStream) or stream.codec_context is None:
            return None  # the exact scan says what is wrong
        if any(map(is_cover, container.streams)):
            return None  # it is no track, so that streams have other numbers than tracks
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
    """Degrees counter-clockwise; None if the boxes say more than that."""
    content = movie_box(source)
    movie = {} if content is None else children(content)
    tracks = movie.get(b"trak", [])
    return rotation(movie, children(tracks[track])) if track < len(tracks) else None
