"""The doors to FFmpeg's encoder and decoder of H.264, for pictures that are kept: one packet a picture, one thread.

libx264 is part of PyAV's own wheels; another FFmpeg may lack it, and whoever asks is told so.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from viewcache.errors import Broken, ChunkDamaged

if TYPE_CHECKING:
    from av import VideoFrame
    from av.video.codeccontext import VideoCodecContext

__all__ = [
    "DECODER",
    "ENCODER",
    "decode_h264",
    "h264_encoder_formats",
    "open_h264_decoder",
    "open_h264_encoder",
    "version_of",
]

ENCODER, DECODER = "libx264", "h264"
"""FFmpeg's names."""
_NEVER = 1 << 20
"""Pictures between two key frames that the encoder sets by itself: each group begins with one that we ask for."""
_VERSION = re.compile(rb"x264 - (core \d+(?: r\d+)?)")


def h264_encoder_formats() -> frozenset[str]:
    """What the encoder says that it takes.

    Raises:
        Broken: there is none.
    """
    import av

    try:
        found = av.Codec(ENCODER, "w").video_formats
        av.Codec(DECODER, "r")
    except (ValueError, av.error.FFmpegError) as missing:
        raise Broken(f"FFmpeg was built without {ENCODER} ({missing}); pictures are kept in other ways") from None
    return frozenset(each.name for each in found or ())


def open_h264_encoder(told: str, width: int, height: int, options: Mapping[str, str]) -> "VideoCodecContext":
    """The one door to the encoder. One thread: workers are one to a core.

    Args:
        told: format of the pictures.
        width: of them in pixels.
        height: likewise.
        options: of the encoder.

    Raises:
        Broken: it cannot be opened.
    """
    import av
    from av.video.codeccontext import VideoCodecContext

    try:
        context = av.CodecContext.create(ENCODER, "w")
        assert isinstance(context, VideoCodecContext)
        context.width, context.height, context.pix_fmt = width, height, told
        context.time_base, context.thread_count = Fraction(1, 1000), 1
        context.gop_size, context.max_b_frames, context.options = _NEVER, 0, dict(options)
        context.open()
    except (av.error.FFmpegError, ValueError) as failed:
        raise Broken(f"{ENCODER} does not take {width}x{height} {told}: {failed}") from failed
    return context


def open_h264_decoder() -> "VideoCodecContext":
    """A decoder that gives each picture as soon as it has its packet; one thread.

    Raises:
        ChunkDamaged: there is none.
    """
    import av
    from av.video.codeccontext import VideoCodecContext

    try:
        context = av.CodecContext.create(DECODER, "r")
        assert isinstance(context, VideoCodecContext)
        context.thread_count = 1
        context.flags |= int(av.codec.context.Flags.low_delay)  # no picture is held back for one that comes later
    except (av.error.FFmpegError, ValueError) as missing:
        raise ChunkDamaged(f"FFmpeg was built without a decoder of H.264 ({missing})") from missing
    return context


def decode_h264(
    context: "VideoCodecContext", packet: bytes | memoryview, expected: tuple[str, int, int]
) -> "VideoFrame":
    """The picture of one packet.

    Args:
        context: from `open_h264_decoder`.
        packet: of one picture.
        expected: its format, width and height.

    Raises:
        ChunkDamaged: there is none, or another one.
    """
    import av

    try:
        frames = context.decode(av.Packet(bytes(packet)))
    except (av.error.FFmpegError, ValueError) as failed:
        raise ChunkDamaged(f"a packet of {len(packet)} bytes does not give a picture: {failed}") from failed
    if len(frames) != 1:
        raise ChunkDamaged(f"a packet of {len(packet)} bytes gives {len(frames)} pictures")
    (frame,) = frames
    if (frame.format.name, frame.width, frame.height) != expected or frame.is_corrupt:
        raise ChunkDamaged(f"a packet gives a picture of {frame.width}x{frame.height} {frame.format.name}")
    return frame


def version_of(packet: bytes) -> str:
    """The encoder's name and version, which it writes into its first packet."""
    found = _VERSION.search(packet)
    return f"{ENCODER} {found[1].decode()}" if found else ENCODER
