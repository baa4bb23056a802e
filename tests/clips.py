"""Videos for the tests: the real clips that lie beside the repository, and clips encoded on the spot.

Every family of test runs on encoded clips, so that the suite is whole without the real ones; those add what no encoder
here makes.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest
from av.video.stream import VideoStream

__all__ = [
    "FAMILIES",
    "display_mp4",
    "encode",
    "encode_family",
    "pictures",
    "real_clip",
    "real_clips",
    "rotate_mp4",
    "sequential",
]

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "videos"


def _real_folder() -> Path:
    return Path(os.environ.get("VIEWCACHE_TEST_VIDEOS") or _BESIDE)


def real_clips(*folders: str) -> list[Path]:
    """The real clips of some folders (``train``, ``edge``), sorted; empty where there are none."""
    found = [path for folder in folders for path in (_real_folder() / folder).glob("*") if path.suffix in SUFFIXES]
    return sorted(found)


def real_clip(name: str) -> Path:
    """One real clip, e.g. ``train/dog_720p_h264_aac.mp4``; skips the test where it is not there."""
    path = _real_folder() / name
    if not path.is_file():
        pytest.skip(f"{name} is not there; set VIEWCACHE_TEST_VIDEOS to the folder of real clips")
    return path


SUFFIXES = (".mp4", ".mkv", ".webm", ".avi", ".ts")

FAMILIES: dict[str, dict[str, object]] = {
    "h264_bframes.mp4": {"codec": "libx264", "options": {"bf": "3"}},
    "h264_fragmented.mp4": {"codec": "libx264", "muxer": {"movflags": "frag_keyframe+empty_moov"}},
    "h264_open_gop.mkv": {"codec": "libx264", "options": {"bf": "3", "x264-params": "open-gop=1:scenecut=0:bframes=3"}},
    "h264_intra_refresh.mkv": {"codec": "libx264", "options": {"x264-params": "intra-refresh=1:bframes=0"}},
    "h264_interlaced.mp4": {"codec": "libx264", "options": {"flags": "+ilme+ildct", "x264-params": "tff=1"}},
    "h264_444_odd.mp4": {"codec": "libx264", "pix_fmt": "yuv444p", "size": (101, 67)},
    "h264_10bit.mp4": {"codec": "libx264", "pix_fmt": "yuv420p10le"},
    "h264_stream.ts": {"codec": "libx264", "options": {"bf": "2"}},
    "h264_vfr.mkv": {"codec": "libx264", "irregular": True},
    "h264.flv": {"codec": "libx264"},
    "h264_bframes.avi": {"codec": "libx264", "options": {"bf": "2"}},
    "hevc_open_gop.mp4": {"codec": "libx265", "options": {"x265-params": "open-gop=1:bframes=4:log-level=none"}},
    "hevc_temporal.mp4": {"codec": "libx265", "options": {"x265-params": "temporal-layers=3:bframes=4:log-level=none"}},
    "hevc_10bit.mkv": {"codec": "libx265", "pix_fmt": "yuv420p10le", "options": {"x265-params": "log-level=none"}},
    "vp8_hidden.webm": {"codec": "libvpx", "options": {"auto-alt-ref": "1", "lag-in-frames": "16"}},
    "vp9_hidden.webm": {
        "codec": "libvpx-vp9",
        "options": {"auto-alt-ref": "1", "lag-in-frames": "16"},
        "size": (101, 67),
    },
    "vp9_alpha.webm": {"codec": "libvpx-vp9", "pix_fmt": "yuva420p"},
    "av1.mp4": {"codec": "libsvtav1", "options": {"preset": "10", "svtav1-params": "hierarchical-levels=3"}},
    "av1.webm": {"codec": "libsvtav1", "options": {"preset": "10"}, "pix_fmt": "yuv420p10le"},
    "mpeg4_bframes.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "mpeg4.mp4": {"codec": "mpeg4", "options": {"bf": "2"}},
    "mpeg2_open_gop.ts": {"codec": "mpeg2video", "options": {"bf": "2"}, "ticks": 25},
    "mpeg2.mpg": {"codec": "mpeg2video", "options": {"bf": "2"}, "ticks": 25},
    "mjpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj422p"},
    "prores.mov": {"codec": "prores_ks", "pix_fmt": "yuv422p10le"},
    "ffv1.mkv": {"codec": "ffv1", "pix_fmt": "gray10le"},
    "rgb.mkv": {"codec": "ffv1", "pix_fmt": "bgr0"},
}
"""File name → how to encode it: every way in which packets and frames are known to disagree, and the pixel formats."""


def pictures(count: int, width: int, height: int) -> Iterator[np.ndarray]:
    """Moving texture, uint8 (H,W,3): no two frames are alike, and every pixel moves."""
    noise = np.random.default_rng(7).integers(0, 256, (height + 64, width + 64, 3), dtype=np.uint8)
    for number in range(count):
        y, x = int(32 + 30 * np.sin(number / 9)), int(32 + 30 * np.cos(number / 7))
        picture = noise[y : y + height, x : x + width].copy()
        picture[:, : 1 + number % width] //= 2
        yield picture


def encode(
    path: Path,
    codec: str = "libx264",
    *,
    frames: int = 60,
    size: tuple[int, int] = (128, 96),
    pix_fmt: str = "yuv420p",
    gop: int = 12,
    options: dict[str, str] | None = None,
    muxer: dict[str, str] | None = None,
    irregular: bool = False,
    ticks: int = 1000,
    step: int | None = None,
    colors: tuple[int, int] | None = None,
    source: Sequence[np.ndarray] | None = None,
) -> Path:
    """Encode a clip.

    Args:
        path: where to; the extension chooses the container.
        codec: FFmpeg's name of the encoder.
        frames: how many.
        size: width and height in pixels.
        pix_fmt: of the encoder.
        gop: frames from key to key.
        options: of the encoder.
        muxer: options of the container.
        irregular: give frames uneven durations.
        ticks: units of the encoder's clock in a second.
        step: units from frame to frame; None = 25 frames a second.
        colors: AVColorSpace and AVColorRange to convert to and to tag.
        source: RGB frames to encode, instead of moving texture.
    """
    space, range_ = colors or (None, None)
    with av.open(str(path), "w", options=muxer or {}) as container:
        stream = cast(VideoStream, container.add_stream(codec, rate=25, options={"threads": "1", **(options or {})}))
        stream.width, stream.height, stream.pix_fmt = *size, pix_fmt
        stream.codec_context.gop_size = gop
        stream.codec_context.time_base = Fraction(1, ticks)
        if colors is not None:
            stream.codec_context.colorspace, stream.codec_context.color_range = colors
        time = 0
        for number, picture in enumerate(source if source is not None else pictures(frames, *size)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(
                format=pix_fmt, dst_colorspace=space, dst_color_range=range_
            )
            if colors is not None:
                frame.colorspace, frame.color_range = colors
            frame.pts, frame.time_base, frame.pict_type = time, Fraction(1, ticks), 0
            time += 20 + 13 * (number % 5) if irregular else step or ticks // 25
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def encode_family(folder: Path, name: str) -> Path:
    """Encode one of `FAMILIES` into a folder; skips the test where this FFmpeg lacks the encoder."""
    how = dict(FAMILIES[name])
    codec = str(how["codec"])
    if codec not in av.codecs_available:
        pytest.skip(f"this FFmpeg has no encoder {codec}")
    # SVT-AV1 makes the thread that calls it a real-time one where it may, and that is then handed on to every process
    # that the thread starts: servers with threads that spin have stood still for it.
    with ThreadPoolExecutor(1) as alone:
        return alone.submit(encode, folder / name, **how).result()  # type: ignore[arg-type]  # they fit the parameters


def sequential(path: Path) -> list[tuple[int, int, int]]:
    """A full sequential decode by one thread: (digest of the visible planes, colour space, colour range) per frame.

    Packets that the decoder refuses are passed over, one by one.
    """
    found: list[tuple[int, int, int]] = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_type, stream.codec_context.thread_count = "NONE", 1
        for packet in container.demux(stream):
            try:
                frames = stream.codec_context.decode(packet if packet.size else None)
            except av.error.FFmpegError:
                continue
            found += [(digest(frame), int(frame.colorspace), int(frame.color_range)) for frame in frames]
    return found


def digest(frame: av.VideoFrame) -> int:
    """CRC-32 of a frame's visible pixels, plane by plane."""
    crc, layout = 0, frame.format
    for number, plane in enumerate(frame.planes):
        parts = [part for part in layout.components if part.plane == number]
        row = plane.width * sum(-(-part.bits // 8) for part in parts)
        if not layout.is_planar:
            row = plane.width * layout.padded_bits_per_pixel // 8
        memory = np.frombuffer(plane, np.uint8)  # type: ignore[call-overload]  # a plane is a buffer
        view = memory.reshape(-1, plane.line_size)[: plane.height, :row]
        crc = zlib.crc32(view.tobytes(), crc)
    return crc


def fill_last_packet(path: Path, packets: int = 1) -> Path:
    """Put filler where an MP4 has its last HEVC packets: the header goes on counting frames that are not there."""
    with av.open(str(path)) as container:
        entries = [(each.pos, each.size) for each in container.streams.video[0].index_entries]
    data = bytearray(path.read_bytes())
    for position, size in entries[-packets:]:
        filler = (size - 4).to_bytes(4, "big") + b"\x4c\x01" + b"\xff" * (size - 7) + b"\x80"
        data[position : position + size] = filler
    path.write_bytes(data)
    return path


def rotate_mp4(path: Path, degrees: int) -> Path:
    """Write the display matrix that phones write, for a clockwise turn, into an MP4's track header."""
    return display_mp4(path, {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}[degrees])


def display_mp4(path: Path, matrix: tuple[int, int, int, int]) -> Path:
    """Write a, b, c and d of a display matrix into an MP4's track header."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40
    for k, value in zip((0, 1, 3, 4), matrix, strict=True):
        data[at + 4 * k : at + 4 * k + 4] = (value << 16).to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    return path
