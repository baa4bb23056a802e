"""From decoded frames to planar RGB, in the one swscale step that defines the data, and to native planes and back.

One step to ``gbrp`` (planar, channels first) is three times cheaper than ``rgb24`` and closer to an exact resize;
rounding is exact and independent of the CPU's vector units, so that machines agree on the bytes
(law 3).
"""

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, cast

import av
import numpy as np
from av.filter import Graph
from av.video.format import VideoFormat
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter
from numpy.typing import NDArray

from viewcache.errors import BadInput, BadVideo
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.planes import plane_shapes
from viewcache.materializer.media.reaching import blame_the_process

if TYPE_CHECKING:
    from av import VideoFrame
    from av.sidedata.sidedata import SideData
    from av.video.plane import VideoPlane

__all__ = [
    "INTERPOLATIONS",
    "display_turn",
    "frame_from_planes",
    "is_recolored",
    "matched",
    "plain",
    "planes_of",
    "resize_rgb",
    "rgb_of",
    "to_rgb",
    "yuv_of",
]

_EXACT = Interpolation.ACCURATE_RND | Interpolation.BITEXACT
INTERPOLATIONS = {
    "bilinear": int(Interpolation.BILINEAR | _EXACT),
    "bicubic": int(Interpolation.BICUBIC | _EXACT),
    "area": int(Interpolation.AREA | _EXACT),
    "lanczos": int(Interpolation.LANCZOS | _EXACT),
    "nearest": int(Interpolation.POINT | _EXACT),
}
"""Name → swscale flags. All but ``nearest`` widen their support when they shrink (they antialias)."""
ROTATIONS = (0, 90, 180, 270)
_RGB_PLANES = (2, 0, 1)
"""Where R, G and B lie among the planes of gbrp."""
_FULL = {"src_color_range": ColorRange.JPEG, "dst_color_range": ColorRange.JPEG, "threads": 1}
_MATRICES = {
    1: Colorspace.ITU709,
    2: Colorspace.ITU601,  # unspecified
    3: Colorspace.ITU601,  # reserved
    4: Colorspace.FCC,
    5: Colorspace.ITU601,
    6: Colorspace.ITU601,
    7: Colorspace.SMPTE240M,
    9: Colorspace.BT2020,
}
"""AVColorSpace → swscale's number of the same matrix, for those that it converts by."""
_UNSPECIFIED = (2, 3)
GRAPHS = 16
"""Kinds of frames (size, format, siting) that a thread keeps a filter for."""
_local = threading.local()


def _reformatter() -> VideoReformatter:
    """One per thread: its context is rebuilt only when sizes change, and it is not safe to share."""
    kept: VideoReformatter | None = getattr(_local, "reformatter", None)
    if kept is None:
        kept = _local.reformatter = VideoReformatter()
    return kept


def _rows(plane: "VideoPlane") -> NDArray[np.uint8]:
    """A plane's memory, padding included, as rows of bytes."""
    memory: NDArray[np.uint8] = np.frombuffer(plane, np.uint8)  # type: ignore[call-overload]  # a plane is a buffer
    return memory[: len(memory) // plane.line_size * plane.line_size].reshape(-1, plane.line_size)


def _flags(interpolation: str) -> int:
    try:
        return INTERPOLATIONS[interpolation]
    except KeyError:
        raise BadInput(f"interpolation {interpolation!r} is not one of {', '.join(INTERPOLATIONS)}") from None


def plain(frame: "VideoFrame", index: VideoIndex) -> "VideoFrame":
    """The same picture, marked as the video's index says: progressive, its colours, its chroma location.

    Decoders mark frames with more than planes can carry (interlaced, chroma siting), and swscale heeds it. Every
    frame passes through here, decoded or loaded, so that both convert to the same bytes. Costs 5 µs, copies nothing.

    Pictures come in so many sizes that a filter for each would cost a quarter of a millisecond. They are progressive,
    and centred chroma, theirs, is what swscale takes where none is stated; so only their colours are marked.
    """
    out = (
        frame
        if index.is_picture
        else _marker(frame.format.name, frame.width, frame.height, index.chroma_location)(frame)
    )
    out.colorspace, out.color_range = index.color_space, index.color_range
    return out


def _marker(pix_fmt: str, width: int, height: int, chroma: str) -> "Callable[[VideoFrame], VideoFrame]":
    kept: OrderedDict[tuple[str, int, int, str], Graph] = _local.__dict__.setdefault("graphs", OrderedDict())
    key = (pix_fmt, width, height, chroma)
    graph = kept.pop(key, None)
    if graph is None:
        graph = Graph()
        graph.link_nodes(
            graph.add_buffer(width=width, height=height, format=VideoFormat(pix_fmt), time_base=Fraction(1, 1000)),
            graph.add("setparams", f"field_mode=prog:chroma_location={chroma}"),
            graph.add("buffersink"),
        ).configure()
    kept[key] = graph
    if len(kept) > GRAPHS:
        kept.popitem(last=False)

    def mark(frame: "VideoFrame") -> "VideoFrame":
        graph.vpush(frame)
        return graph.vpull()

    return mark


def matched(frame: "VideoFrame", index: VideoIndex) -> "VideoFrame":
    """The picture in its video's size, pixel format, matrix and range, where a stream changes them on the way.

    What a frame does not state is the video's: a decoder without a container does not know what that states.

    Raises:
        BadVideo: swscale cannot convert the frame.
    """
    target = VideoFormat(index.pix_fmt)
    is_alike = (frame.width, frame.height, frame.format.name) == (index.width, index.height, target.name)
    if is_alike and (target.is_rgb or not is_recolored(frame, index)):
        return frame
    (source, source_range), (matrix, full) = _stated(frame, index), _stated(None, index)
    if source is None or matrix is None:
        source = matrix = None
    colors = {"src_colorspace": source, "dst_colorspace": matrix}
    ranges = {"src_color_range": source_range, "dst_color_range": full}
    return _reformatted(frame, index.width, index.height, target.name, _flags("bicubic"), **colors, **ranges)


def is_recolored(frame: "VideoFrame", index: VideoIndex) -> bool:
    """Whether a frame states another matrix or range than its video; a picture's are those of its header."""
    return not index.is_picture and _stated(frame, index) != _stated(None, index)


def _stated(frame: "VideoFrame | None", index: VideoIndex) -> tuple[Colorspace | None, ColorRange]:
    """By which matrix, None if unknown, and in which range a frame of a video, or the first one, is converted."""
    space, color_range, pix_fmt = index.color_space, index.color_range, index.pix_fmt
    if frame is not None:
        space = space if frame.colorspace in _UNSPECIFIED else frame.colorspace
        color_range, pix_fmt = frame.color_range or color_range, frame.format.name
    full = pix_fmt.startswith("yuvj") or color_range == ColorRange.JPEG
    return _MATRICES.get(space), ColorRange.JPEG if full else ColorRange.MPEG


def display_turn(frame: "VideoFrame") -> tuple[int, bool]:
    """How a decoded frame is turned for display, as its display matrix says: what players do.

    Returns:
        Degrees counter-clockwise, the nearest quarter turn from 0 to 270, and whether the frame is mirrored left to
        right after that, as `to_rgb` takes them. A matrix that maps a frame to a line is none.
    """
    try:
        told = cast("Iterable[SideData]", frame.side_data)  # a mapping that iterates over its values
        found = [bytes(each) for each in told if each.type.name == "DISPLAYMATRIX"]
    except ValueError:  # PyAV knows no name of some kinds (EXIF data in Motion JPEG); then the angle is all it tells
        return ROTATIONS[round(frame.rotation / 90) % 4], False
    if not found:
        return 0, False
    a, b, _, c, d, *_ = struct.unpack("=9i", found[0])
    area = a * d - b * c
    if not area:
        return 0, False
    # The first row alone tells the angle, and mirroring left to right negates its first number.
    quarters = round(frame.rotation / 90)
    return ROTATIONS[(quarters if area > 0 else 2 - quarters) % 4], area < 0


def to_rgb(
    frame: "VideoFrame",
    height: int | None = None,
    width: int | None = None,
    interpolation: str = "bilinear",
    rotation: int = 0,
    mirrored: bool = False,
) -> NDArray[np.uint8]:
    """Convert a decoded frame to RGB and resize it, in one step.

    Args:
        frame: of any pixel format that swscale takes; 10-bit is rounded, alpha is dropped.
        height: pixels of the result, after rotation; None = the frame's own.
        width: pixels of the result, after rotation; None = the frame's own.
        interpolation: a name of `INTERPOLATIONS`.
        rotation: degrees counter-clockwise: 0, 90, 180 or 270.
        mirrored: mirror left to right, after the rotation.

    Returns:
        A new C-contiguous uint8 array (3, height, width), full range.

    Raises:
        BadInput: unknown interpolation or rotation.
        BadVideo: swscale cannot convert the frame.
    """
    if rotation not in ROTATIONS:
        raise BadInput(f"rotation {rotation!r} is not one of {ROTATIONS}")
    across = rotation in (90, 270)
    own = (frame.width, frame.height) if across else (frame.height, frame.width)
    height, width = own[0] if height is None else height, own[1] if width is None else width
    size = (width, height) if across else (height, width)
    planes = _convert(frame, *size, _flags(interpolation))
    if rotation:
        planes = np.rot90(planes, rotation // 90, axes=(1, 2))
    if mirrored:
        planes = planes[:, :, ::-1]
    return np.ascontiguousarray(planes)


def resize_rgb(rgb: NDArray[np.uint8], height: int, width: int, interpolation: str = "bilinear") -> NDArray[np.uint8]:
    """Resize an RGB frame by the same swscale step.

    Args:
        rgb: uint8 (3, H, W).
        height: pixels of the result.
        width: pixels of the result.
        interpolation: a name of `INTERPOLATIONS`.

    Returns:
        A new C-contiguous uint8 array (3, height, width).

    Raises:
        BadInput: unknown interpolation.
    """
    return _convert(_planar(rgb), height, width, _flags(interpolation))


def yuv_of(rgb: NDArray[np.uint8], pix_fmt: str) -> "VideoFrame":
    """An RGB picture as YUV of BT.709, full range; each sample is rounded.

    Args:
        rgb: uint8 (3, H, W).
        pix_fmt: FFmpeg's name of the result's format.
    """
    return _reformatter().reformat(
        _planar(rgb), None, None, pix_fmt, interpolation=_flags("bilinear"), dst_colorspace=Colorspace.ITU709, **_FULL
    )


def rgb_of(frame: "VideoFrame", out: NDArray[np.uint8], top: int = 0, left: int = 0) -> None:
    """A picture that `yuv_of` made, or a lossy copy of it, as RGB; a part of it has the pixels that the whole has.

    Args:
        frame: three planes of its own size.
        out: uint8 (3, h, w).
        top: first row of the part that is wanted.
        left: first column.
    """
    if out.shape[1:] != (frame.height, frame.width):
        part = av.VideoFrame(out.shape[2], out.shape[1], frame.format.name)
        for whole, plane in zip(frame.planes, part.planes, strict=True):
            rows = _rows(whole)[top : top + out.shape[1], left : left + out.shape[2]]
            _rows(plane)[: out.shape[1], : out.shape[2]] = rows
        frame = part
    made = _reformatter().reformat(
        frame, None, None, "gbrp", interpolation=_flags("bilinear"), src_colorspace=Colorspace.ITU709, **_FULL
    )
    _copy_rgb(made, out)


def _planar(rgb: NDArray[np.uint8]) -> "VideoFrame":
    frame = av.VideoFrame(rgb.shape[2], rgb.shape[1], "gbrp")
    for channel, number in enumerate(_RGB_PLANES):
        _rows(frame.planes[number])[: rgb.shape[1], : rgb.shape[2]] = rgb[channel]
    frame.color_range = ColorRange.JPEG
    return frame


def _convert(frame: "VideoFrame", height: int, width: int, flags: int) -> NDArray[np.uint8]:
    made = _reformatted(frame, width, height, "gbrp", flags)
    out = np.empty((3, height, width), np.uint8)
    _copy_rgb(made, out)
    return out


def _reformatted(
    frame: "VideoFrame", width: int, height: int, pix_fmt: str, flags: int, **colors: int | None
) -> "VideoFrame":
    try:
        return _reformatter().reformat(frame, width, height, pix_fmt, interpolation=flags, threads=1, **colors)
    except (av.error.FFmpegError, ValueError) as bad:
        what = f"a {frame.width}x{frame.height} {frame.format.name} frame"
        blame_the_process(what, bad, frame.width * frame.height)
        raise BadVideo(f"{what} cannot be converted ({bad})") from bad


def _copy_rgb(frame: "VideoFrame", out: NDArray[np.uint8]) -> None:
    """The planes of a gbrp frame into (3, H, W)."""
    for channel, number in enumerate(_RGB_PLANES):
        out[channel] = _rows(frame.planes[number])[: out.shape[1], : out.shape[2]]


def planes_of(frame: "VideoFrame") -> NDArray[np.uint8]:
    """A frame's native planes, one after another, without padding.

    Returns:
        uint8 (n,): a new array.

    Raises:
        BadInput: a pixel format that is not kept as planes (`plane_shapes` gives None).
    """
    shapes = _shapes(frame.format.name, frame.width, frame.height)
    out = np.empty(sum(rows * row for rows, row in shapes), np.uint8)
    at = 0
    for plane, (rows, row) in zip(frame.planes, shapes, strict=True):
        out[at : at + rows * row].reshape(rows, row)[:] = _rows(plane)[:rows, :row]
        at += rows * row
    return out


def frame_from_planes(planes: NDArray[np.uint8], index: VideoIndex) -> "VideoFrame":
    """A frame that converts to the same bytes as the decoded one that `planes_of` was given.

    Args:
        planes: uint8 (n,), from `planes_of` of a frame of this video.
        index: of the video; gives format, size and colours.

    Raises:
        BadInput: the number of bytes is not that of a frame of this video.
    """
    shapes = _shapes(index.pix_fmt, index.width, index.height)
    total = sum(rows * row for rows, row in shapes)
    if planes.size != total:
        raise BadInput(
            f"{planes.size} bytes of planes; a {index.width}x{index.height} {index.pix_fmt} frame has {total}"
        )
    frame = av.VideoFrame(index.width, index.height, index.pix_fmt)
    at = 0
    for plane, (rows, row) in zip(frame.planes, shapes, strict=True):
        _rows(plane)[:rows, :row] = planes[at : at + rows * row].reshape(rows, row)
        at += rows * row
    return plain(frame, index)


def _shapes(pix_fmt: str, width: int, height: int) -> tuple[tuple[int, int], ...]:
    shapes = plane_shapes(pix_fmt, width, height)
    if shapes is None:
        raise BadInput(f"pixel format {pix_fmt} is not kept as planes; keep RGB")
    return shapes
