"""Runs of pictures packed without loss, a group of a few at a time, each group whole in itself.

``delta-lz4`` and ``delta-zstd1`` store what changed since the picture before, and need no encoder; ``h264`` is lossless
H.264 by the encoder that FFmpeg was built with: a quarter fewer bytes, four times as long to read. Both cost a picture
all those before it in its group. What comes out is compared with what went in by who keeps it: no encoder is trusted.
docs/design/0044 has the measurements.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken, ChunkDamaged
from viewcache.materializer.media.h264 import (
    ENCODER,
    decode_h264,
    h264_encoder_formats,
    open_h264_decoder,
    open_h264_encoder,
    version_of,
)
from viewcache.materializer.media.planes import plane_shapes
from viewcache.store import CODECS

if TYPE_CHECKING:
    from av import VideoFrame
    from av.video.plane import VideoPlane

__all__ = [
    "DELTAS",
    "H264",
    "RGB",
    "Decoder",
    "DeltaDecoder",
    "DeltaEncoder",
    "Encoder",
    "H264Decoder",
    "H264Encoder",
    "Pictures",
    "available",
    "decoder",
    "encoder",
    "takes",
]

Bytes = NDArray[np.uint8]
Packet = bytes | memoryview

DELTAS = {"delta-lz4": "lz4", "delta-zstd1": "zstd1"}
"""Names of `viewcache.store.ENCODED`, and the codec that packs the differences."""
H264 = "h264"
"""Another of them."""
RGB = "rgb"
"""The format of resized pictures, planes of R, G and B; the others are FFmpeg's names."""

_OPTIONS = {"qp": "0", "preset": "ultrafast", "tune": "zerolatency", "forced-idr": "1"}
"""Lossless, a packet at once for each picture, no picture shown before an earlier one."""
_H264_FORMATS = {
    RGB: "yuv444p",
    "gbrp": "yuv444p",  # decorrelated: three planes are three planes
    **{name: name for name in ("yuv420p", "yuv422p", "yuv444p", "gray", "gray10le")},
    **{f"yuvj{each}p": f"yuv{each}p" for each in (420, 422, 444)},  # the range is the video's business
    **{f"yuv{each}p10le": f"yuv{each}p10le" for each in (420, 422, 444)},
}
"""Format of the pictures → what the encoder is told."""
_CHANNELS = {RGB: (1, 2, 0), "gbrp": (0, 1, 2)}
"""Where G, B and R lie among the planes."""
_GREY = 128
"""Added to differences of colours for an encoder that takes them for colours: no difference is grey."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """What all pictures of one object are."""

    pix_fmt: str
    """FFmpeg's name for the planes of decoded frames, `RGB` for resized pictures."""
    width: int
    height: int

    @property
    def planes(self) -> tuple[tuple[int, int], ...] | None:
        """Rows and bytes per row of each plane; None for formats that are not kept as planes."""
        if self.pix_fmt == RGB:
            return ((self.height, self.width),) * 3
        return plane_shapes(self.pix_fmt, self.width, self.height)


class Encoder(Protocol):
    """Packs groups of pictures of one object. Not thread-safe."""

    @property
    def about(self) -> dict[str, object]:
        """What the object's attributes say of how it was packed, for those who read it without us."""
        ...

    def group(self, pictures: Bytes) -> list[bytes]:
        """A packet for each picture (n, bytes) of a group.

        Raises:
            Broken: it could not be done, and why.
        """
        ...


class Decoder(Protocol):
    """Unpacks groups of pictures of one object. Not thread-safe."""

    def group(self, packets: Sequence[Packet]) -> Iterator[Bytes]:
        """The pictures of a group, uint8 (bytes,), one after another; each is valid until the next is asked for.

        Who begins another group leaves the rest of this one.

        Raises:
            ChunkDamaged: a packet does not give a picture.
        """
        ...


def takes(codec: str, pictures: Pictures) -> bool:
    """Whether pictures can be packed so here; what comes out must still be compared."""
    if pictures.planes is None:
        return False
    return codec in DELTAS or (codec == H264 and pictures.pix_fmt in available())


@cache
def available() -> frozenset[str]:
    """Formats of pictures that the H.264 encoder of this FFmpeg takes; empty where there is none. Asked once."""
    try:
        formats = h264_encoder_formats()
    except Broken:
        return frozenset()
    return frozenset(name for name, told in _H264_FORMATS.items() if told in formats)


def encoder(codec: str, pictures: Pictures) -> Encoder:
    """An encoder for pictures that it `takes`.

    Raises:
        Broken: it cannot be opened.
    """
    if not takes(codec, pictures):
        raise Broken(
            f"pictures are packed as {codec} by FFmpeg's encoder {ENCODER}, which is not there or does not take "
            f"format {pictures.pix_fmt}; PyAV's own wheels have it"
        )
    return DeltaEncoder(DELTAS[codec], pictures) if codec in DELTAS else H264Encoder(pictures)


def decoder(codec: str, pictures: Pictures) -> Decoder:
    """A decoder of what `encoder` made of such pictures.

    Raises:
        ChunkDamaged: there is no such codec here, or its pictures were never of this format.
    """
    known = codec in DELTAS or (codec == H264 and pictures.pix_fmt in _H264_FORMATS)
    if pictures.planes is None or not known:
        raise ChunkDamaged(f"pictures of format {pictures.pix_fmt} cannot have been packed as {codec}")
    return DeltaDecoder(DELTAS[codec], pictures) if codec in DELTAS else H264Decoder(pictures)


# Colours ------------------------------------------------------------------------------------------------------------


class _Colours:
    """Three planes of colours and back: G, B - G, R - G (modulo 256) are more alike from one pixel to the next."""

    def __init__(self, pictures: Pictures, offset: int) -> None:
        self._offset = np.uint8(offset)
        self._order = _CHANNELS.get(pictures.pix_fmt)
        self._shape = 3, pictures.height * pictures.width

    def apart(self, pictures: Bytes, out: Bytes) -> Bytes:
        """Pictures (..., bytes) decorrelated into ``out``, or as they are where they hold no RGB."""
        if self._order is None:
            return pictures
        green, blue, red = self._order
        shape = (*pictures.shape[:-1], *self._shape)
        given, made = pictures.reshape(shape), out.reshape(shape)
        made[..., 0, :] = given[..., green, :]
        for plane, channel in ((1, blue), (2, red)):
            np.subtract(given[..., channel, :], given[..., green, :], out=made[..., plane, :])
            if self._offset:
                made[..., plane, :] += self._offset
        return out

    def together(self, planes: Sequence[Bytes] | Bytes, out: Bytes) -> None:
        """One picture's planes (G, B - G, R - G), each of any shape, into ``out`` (bytes,)."""
        assert self._order is not None
        green, blue, red = self._order
        made = out.reshape(3, *planes[0].shape)
        made[green] = planes[0]
        for plane, channel in ((1, blue), (2, red)):
            np.add(planes[plane], planes[0], out=made[channel])
            if self._offset:
                made[channel] -= self._offset

    def __bool__(self) -> bool:
        return self._order is not None


# Differences --------------------------------------------------------------------------------------------------------


class DeltaEncoder:
    """Packs the differences between pictures."""

    def __init__(self, codec: str, pictures: Pictures) -> None:
        """Begin; ``codec`` packs the differences."""
        self._codec = codec
        self._colours = _Colours(pictures, 0)

    @property
    def about(self) -> dict[str, object]:
        """See `Encoder`."""
        colours = ["G, B - G, R - G"] * bool(self._colours)
        return {
            "encoder": "viewcache delta 1",
            "steps": [*colours, "differences to the picture before, modulo 256", *map(str, CODECS[self._codec].zarr)],
        }

    def group(self, pictures: Bytes) -> list[bytes]:
        """See `Encoder`."""
        planes = self._colours.apart(pictures, np.empty_like(pictures))
        pack, change, packets = CODECS[self._codec].encode, np.empty_like(planes[0]), []
        for number, each in enumerate(planes):
            raw = np.ascontiguousarray(each) if not number else np.subtract(each, planes[number - 1], out=change)
            packets.append(pack(raw).tobytes())
        return packets


class DeltaDecoder:
    """Unpacks the differences between pictures."""

    def __init__(self, codec: str, pictures: Pictures) -> None:
        """Begin; ``codec`` packs the differences."""
        self._codec = codec
        self._colours = _Colours(pictures, 0)
        size = sum(rows * row for rows, row in pictures.planes or ())
        self._planes, self._change, self._out = (np.empty(size, np.uint8) for _ in range(3))
        self._shown = self._planes.view()
        self._shown.flags.writeable = False  # the next picture is made from it

    def group(self, packets: Sequence[Packet]) -> Iterator[Bytes]:
        """See `Decoder`."""
        unpack = CODECS[self._codec].decode_into
        for number, packet in enumerate(packets):
            stored = np.frombuffer(packet, np.uint8)
            unpack(stored, self._change if number else self._planes)
            if number:
                self._planes += self._change
            if self._colours:
                self._colours.together(self._planes.reshape(3, -1), self._out)
                yield self._out
            else:
                yield self._shown


# Lossless H.264 -----------------------------------------------------------------------------------------------------


def _coded(told: str, pictures: Pictures) -> tuple[int, int]:
    """Width and height that the encoder is told: its chroma planes hold whole pixels."""
    across, down = 2 - ("444" in told or "gray" in told), 2 if "420" in told else 1
    return -(-pictures.width // across) * across, -(-pictures.height // down) * down


class H264Encoder:
    """Packs lossless H.264."""

    def __init__(self, pictures: Pictures) -> None:
        """Open what FFmpeg has."""
        self._pictures = pictures
        self._shapes = pictures.planes or ()
        self._colours = _Colours(pictures, _GREY)
        self._told = _H264_FORMATS[pictures.pix_fmt]
        self._width, self._height = _coded(self._told, pictures)
        self._context = open_h264_encoder(self._told, self._width, self._height, _OPTIONS)
        self._number = 0
        self._version = ENCODER

    @property
    def about(self) -> dict[str, object]:
        """See `Encoder`."""
        planes = ["G, B - G + 128, R - G + 128"] * bool(self._colours)
        options = " ".join(f"{name}={value}" for name, value in _OPTIONS.items())
        coded = {"pix_fmt": self._told, "width": self._width, "height": self._height}
        return {"encoder": self._version, "options": options, "steps": planes, **coded}

    def group(self, pictures: Bytes) -> list[bytes]:
        """See `Encoder`."""
        import av
        from av.video.frame import PictureType

        planes = self._colours.apart(pictures, np.empty_like(pictures) if self._colours else pictures)
        packets: list[bytes] = []
        try:
            for number, each in enumerate(planes):
                frame = self._frame(each)
                frame.pts, self._number = self._number, self._number + 1
                frame.pict_type = PictureType.NONE if number else PictureType.I
                packets += map(bytes, self._context.encode(frame))
        except (av.error.FFmpegError, ValueError) as failed:
            raise Broken(f"{ENCODER} failed on {self._pictures}: {failed}") from failed
        if len(packets) != len(pictures):
            raise Broken(f"{ENCODER} gave {len(packets)} packets for {len(pictures)} pictures")
        if self._version == ENCODER:
            self._version = version_of(packets[0])
        return packets

    def _frame(self, picture: Bytes) -> "VideoFrame":
        from av import VideoFrame

        frame = VideoFrame(self._width, self._height, self._told)
        at, pixel = 0, 2 if "10" in self._told else 1
        for plane, (rows, row) in zip(frame.planes, self._shapes, strict=True):
            memory = _memory(plane)[:, : plane.width * pixel]
            memory[:rows, :row] = picture[at : at + rows * row].reshape(rows, row)
            # An odd width or height: the last pixels again, which are as cheap to encode as any.
            memory[:rows, row:] = memory[:rows, row - pixel : row][:, : memory.shape[1] - row]
            memory[rows:] = memory[rows - 1]
            at += rows * row
        return frame


class H264Decoder:
    """Unpacks lossless H.264."""

    def __init__(self, pictures: Pictures) -> None:
        """Open what FFmpeg has."""
        self._pictures = pictures
        self._shapes = pictures.planes or ()
        self._colours = _Colours(pictures, _GREY)
        told = _H264_FORMATS[pictures.pix_fmt]
        # The decoder shows grey pictures as 4:2:0 without colours.
        self._expected = ({"gray": "yuv420p", "gray10le": "yuv420p10le"}.get(told, told), *_coded(told, pictures))
        self._out = np.empty(sum(rows * row for rows, row in self._shapes), np.uint8)
        self._context = open_h264_decoder()

    def group(self, packets: Sequence[Packet]) -> Iterator[Bytes]:
        """See `Decoder`."""
        for packet in packets:
            yield self._picture(decode_h264(self._context, packet, self._expected))

    def _picture(self, frame: "VideoFrame") -> Bytes:
        planes = [_memory(frame.planes[k])[:rows, :row] for k, (rows, row) in enumerate(self._shapes)]
        if self._colours:
            self._colours.together(planes, self._out)
            return self._out
        at = 0
        for plane in planes:
            self._out[at : at + plane.size].reshape(plane.shape)[:] = plane
            at += plane.size
        return self._out


def _memory(plane: "VideoPlane") -> Bytes:
    """A plane's memory, padding included, as rows of bytes."""
    memory: Bytes = np.frombuffer(plane, np.uint8)  # type: ignore[call-overload]  # a plane is a buffer
    return memory[: plane.height * plane.line_size].reshape(plane.height, plane.line_size)
