"""Frames become RGB by one defined step: right colours, the same bytes from kept planes as from the decoder."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import av
import numpy as np
import pytest
from av.video.reformatter import VideoReformatter

from tests.clips import FAMILIES, encode, real_clips, rotate_mp4
from viewcache.errors import BadInput
from viewcache.materializer.media.decode import decode
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.pixels import (
    INTERPOLATIONS,
    frame_from_planes,
    plain,
    planes_of,
    resize_rgb,
    to_rgb,
)
from viewcache.materializer.media.planes import plane_shapes
from viewcache.materializer.media.probe import probe

BT601, BT709, BT2020 = (0.299, 0.114), (0.2126, 0.0722), (0.2627, 0.0593)
# fmt: off
FORMATS = [
    "yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuv410p", "yuv411p", "yuv440p", "yuva420p", "yuva444p",
    "nv12", "nv21", "nv16", "nv24", "p010le", "p016le", "p210le", "yuyv422", "uyvy422", "yvyu422", "yuv420p10le",
    "yuv420p10be", "yuv422p10le", "yuv444p12le", "yuv420p9le", "yuv420p16le", "yuva444p10le", "gray", "gray10le",
    "gray16be", "rgb24", "bgr24", "rgba", "argb", "rgb0", "bgr0", "rgb565le", "bgr555le", "rgb444le", "rgb48le",
    "rgba64be", "gbrp", "gbrap", "gbrp10le", "gbrp16le", "gbrpf32le", "grayf32le", "xyz12le", "y210le", "x2rgb10le",
    "ya8", "ya16le", "rgb8", "bgr8", "vuya", "vuyx", "xv30le", "xv36le",
]
# fmt: on
"""Of real decoders, and some that only converters make: planar, half-planar, packed, 8 to 32 bits, alpha."""


def noise(width: int, height: int, pix_fmt: str) -> av.VideoFrame:
    """A frame of noise, converted from full-range 4:4:4."""
    frame = av.VideoFrame(width, height, "yuv444p")
    for number, plane in enumerate(frame.planes):
        values = np.random.default_rng(number).integers(0, 256, plane.buffer_size, dtype=np.uint8)
        plane.update(values.tobytes())
    frame.colorspace, frame.color_range = 1, 1
    return VideoReformatter().reformat(frame, width, height, pix_fmt)


def index_like(frame: av.VideoFrame) -> VideoIndex:
    """As much of an index as frames need."""
    return cast(
        VideoIndex,
        SimpleNamespace(
            pix_fmt=frame.format.name,
            width=frame.width,
            height=frame.height,
            color_space=int(frame.colorspace),
            color_range=int(frame.color_range),
            chroma_location="left",
            is_picture=False,
        ),
    )


def exact(weights: tuple[float, float], full: bool, y: int, u: int, v: int) -> np.ndarray:
    """RGB of one colour by the standard's own formulas (ITU-T H.273 §8.3), in floating point."""
    red, blue = weights
    luma, cb, cr = float(y), u - 128.0, v - 128.0
    if not full:
        luma, cb, cr = (luma - 16) * 255 / 219, cb * 255 / 224, cr * 255 / 224
    r, b = luma + 2 * (1 - red) * cr, luma + 2 * (1 - blue) * cb
    return np.clip([r, (luma - red * r - blue * b) / (1 - red - blue), b], 0, 255)


@pytest.mark.parametrize(("space", "weights"), [(1, BT709), (2, BT601), (5, BT601), (6, BT601), (9, BT2020)])
@pytest.mark.parametrize("color_range", [0, 1, 2])
def test_colours_follow_the_standard(space: int, weights: tuple[float, float], color_range: int) -> None:
    """Flat colours come out as the standard computes them, within one level: BT.601, 709, 2020, limited and full."""
    for y, u, v in [(16, 128, 128), (235, 128, 128), (81, 90, 240), (145, 54, 34), (41, 240, 110), (120, 140, 100)]:
        frame = av.VideoFrame(64, 48, "yuv420p")
        for plane, value in zip(frame.planes, (y, u, v), strict=True):
            plane.update(bytes([value]) * plane.buffer_size)
        frame.colorspace, frame.color_range = space, color_range
        for size in ((48, 64), (24, 32), (31, 45)):
            rgb = to_rgb(frame, *size)
            assert np.abs(rgb - exact(weights, color_range == 2, y, u, v)[:, None, None]).max() <= 1.0


@pytest.mark.parametrize("space", [1, 6])
@pytest.mark.parametrize("color_range", [1, 2])
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_colours_survive_a_video(space: int, color_range: int, suffix: str, tmp_path: Path) -> None:
    """A picture that is encoded with a colour tag comes back in its colours, without its container."""
    bars = np.repeat(np.repeat(np.random.default_rng(2).integers(0, 256, (4, 6, 3), dtype=np.uint8), 32, 0), 32, 1)
    path = encode(
        tmp_path / f"bars.{suffix}",
        size=(192, 128),
        colors=(space, color_range),
        options={"crf": "1"},
        source=[bars] * 3,
    )
    index = probe(str(path))
    assert (index.mode, index.color_space, index.color_range) == ("packets", space, color_range)
    (_, frame), *_ = decode(str(path), index, np.array([1]))
    middle = to_rgb(frame)[:, 16::32, 16::32].transpose(1, 2, 0)
    assert np.abs(middle.astype(int) - bars[16::32, 16::32]).max() <= 4


def test_bt601_and_bt709_differ() -> None:
    """The test of colours can fail: the same bytes under another tag are another colour."""
    assert np.abs(exact(BT601, False, 81, 90, 240) - exact(BT709, False, 81, 90, 240)).max() > 10


@pytest.mark.parametrize("pix_fmt", FORMATS)
def test_planes_give_the_same_bytes(pix_fmt: str) -> None:
    """RGB from kept planes is bit for bit RGB from the decoder's frame, at odd sizes too (law 3)."""
    for width, height in ((64, 48), (37, 29)):
        frame = noise(width, height, pix_fmt)
        index = index_like(frame)
        frame = plain(frame, index)
        assert plane_shapes(pix_fmt, width, height)
        again = frame_from_planes(planes_of(frame), index)
        for size in ((height, width), (20, 22), (50, 71)):
            for interpolation in ("bilinear", "bicubic"):
                assert np.array_equal(to_rgb(frame, *size, interpolation), to_rgb(again, *size, interpolation))


@pytest.mark.parametrize("pix_fmt", ["monow", "monob", "pal8", "uyyvyy411", "bgr4", "no_such_format"])
def test_what_cannot_be_kept_says_so(pix_fmt: str) -> None:
    """Palettes, bit streams and packed 4:1:1 are refused before anything is stored."""
    index = cast(VideoIndex, SimpleNamespace(pix_fmt=pix_fmt, width=8, height=8, color_space=2, color_range=1))
    assert plane_shapes(pix_fmt, 8, 8) is None
    with pytest.raises(BadInput, match=f"{pix_fmt} is not kept as planes"):
        frame_from_planes(np.zeros(64, np.uint8), index)


def test_wrong_number_of_plane_bytes() -> None:
    """Bytes that are not a frame of this video are refused with both numbers."""
    index = index_like(noise(64, 48, "yuv420p"))
    with pytest.raises(BadInput, match="4607 bytes of planes; a 64x48 yuv420p frame has 4608"):
        frame_from_planes(np.zeros(4607, np.uint8), index)


def test_planes_are_half_the_bytes_of_rgb() -> None:
    """A 4:2:0 frame keeps no padding: one and a half bytes a pixel, odd sides rounded up."""
    assert plane_shapes("yuv420p", 37, 29) == ((29, 37), (15, 19), (15, 19))
    assert plane_shapes("nv12", 64, 48) == ((48, 64), (24, 64))
    assert plane_shapes("yuv420p10le", 64, 48) == ((48, 128), (24, 64), (24, 64))


@pytest.mark.parametrize("interpolation", sorted(INTERPOLATIONS))
def test_results_do_not_depend_on_history(interpolation: str) -> None:
    """A converter that has done other sizes gives the same bytes as a fresh one."""
    frame = noise(128, 96, "yuv420p")
    first = to_rgb(frame, 48, 60, interpolation)
    to_rgb(noise(40, 30, "yuv444p"), 31, 33, "area")
    assert np.array_equal(first, to_rgb(frame, 48, 60, interpolation))
    assert first.flags.c_contiguous
    assert first.shape == (3, 48, 60)


def test_shrinking_antialiases() -> None:
    """Fine stripes become grey, not other stripes; only `nearest` keeps single pixels."""
    stripes = np.zeros((3, 128, 128), np.uint8)
    stripes[:, :, ::2] = 255
    for interpolation in set(INTERPOLATIONS) - {"nearest"}:
        small = resize_rgb(stripes, 32, 32, interpolation)[:, 4:-4, 4:-4].astype(int)
        assert np.abs(small - 127).max() <= 12, interpolation
    assert set(np.unique(resize_rgb(stripes, 32, 32, "nearest"))) <= {0, 255}


def test_resize_of_rgb_keeps_channels_and_values() -> None:
    """Red stays red, a constant stays constant, and no size is too odd."""
    flat = np.empty((3, 41, 37), np.uint8)
    flat[0], flat[1], flat[2] = 200, 100, 3
    for size in ((41, 37), (20, 20), (97, 5), (1, 1)):
        small = resize_rgb(flat, *size)
        assert small.shape == (3, *size)
        assert [np.unique(channel).tolist() for channel in small] == [[200], [100], [3]]


def test_same_size_is_a_copy() -> None:
    """Resizing RGB to its own size changes nothing."""
    picture = np.random.default_rng(0).integers(0, 256, (3, 33, 47), dtype=np.uint8)
    assert np.array_equal(resize_rgb(picture, 33, 47), picture)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_rotation_is_applied(degrees: int, tmp_path: Path) -> None:
    """A video with a phone's display matrix is turned as a player turns it, and its size is the shown one."""
    corner = np.zeros((96, 128, 3), np.uint8)
    corner[:24, :32] = 255  # top left as stored
    path = rotate_mp4(encode(tmp_path / "phone.mp4", source=[corner] * 3), degrees)
    index = probe(str(path))
    height, width = (128, 96) if degrees in (90, 270) else (96, 128)
    assert index.shown_size == (height, width)
    (_, frame), *_ = decode(str(path), index, np.array([0]))
    rgb = to_rgb(frame, rotation=index.rotation)
    assert rgb.shape == (3, height, width)
    bright = [bool(rgb[1, y, x] > 128) for y, x in ((5, 5), (5, width - 6), (height - 6, width - 6), (height - 6, 5))]
    assert bright == [degrees == turn for turn in (0, 90, 180, 270)]  # clockwise from the top left
    assert to_rgb(frame, 40, 30, rotation=index.rotation).shape == (3, 40, 30)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_converts_alike(name: str, family: Callable[[str], Path]) -> None:
    """Any kind of video becomes RGB, the same from its kept planes as from the decoder's frames (law 3)."""
    path = family(name)
    index = probe(str(path))
    for _, frame in decode(str(path), index, np.array([0, 7, 30])):
        again = frame_from_planes(planes_of(frame), index)
        for size in ((40, 50), (96, 128), (67, 31)):
            rgb = to_rgb(frame, *size)
            assert rgb.std() > 10
            assert np.array_equal(rgb, to_rgb(again, *size))


@pytest.mark.parametrize("clip", real_clips("train", "edge"), ids=lambda path: path.name)
def test_real_clips_convert_alike(clip: Path) -> None:
    """Real clips too: whatever their decoder marks frames with, planes give the same bytes."""
    index = probe(str(clip))
    for _, frame in decode(str(clip), index, np.array([0, 3])):
        again = frame_from_planes(planes_of(frame), index)
        assert np.array_equal(to_rgb(frame, 90, 160), to_rgb(again, 90, 160))


@pytest.mark.parametrize("name", ["h264_bframes.mp4", "hevc_10bit.mkv", "vp9_hidden.webm", "mpeg4.mp4", "mjpeg.avi"])
def test_chroma_lies_where_the_codec_says(name: str, family: Callable[[str], Path]) -> None:
    """Marking a frame changes nothing where the stream states nothing unusual: it is the decoder's own picture."""
    path = family(name)
    index = probe(str(path))
    with av.open(str(path)) as container:
        native = next(container.decode(video=0))
        (_, ours), *_ = decode(str(path), index, np.array([0]))
        assert np.array_equal(to_rgb(native, 50, 60), to_rgb(ours, 50, 60))


def test_interlaced_frames_are_whole_pictures(family: Callable[[str], Path]) -> None:
    """Frames marked as interlaced are resized as pictures, not field by field."""
    path = family("h264_interlaced.mp4")
    (_, frame), *_ = decode(str(path), probe(str(path)), np.array([3]))
    assert not frame.interlaced_frame


def test_unknown_names_are_refused() -> None:
    """The message lists what is known."""
    frame = noise(16, 16, "yuv420p")
    with pytest.raises(BadInput, match="'cubic' is not one of bilinear, bicubic, area, lanczos, nearest"):
        to_rgb(frame, 8, 8, "cubic")
    with pytest.raises(BadInput, match="rotation 45"):
        to_rgb(frame, rotation=45)
