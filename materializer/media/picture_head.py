"""Pictures as videos of one frame: what the header of a JPEG, PNG, WebP or BMP file says, and its index of one packet.

The format is told by the first bytes, never by the name. Parsing is ours, bounded, and decodes nothing, so that a
million files are looked at in a minute and hostile ones meet no C code before their size is known.
"""

import struct
import zlib
from collections.abc import Callable

import numpy as np

from viewcache.errors import BadVideo
from viewcache.materializer.media.exif import TURNS, UPRIGHT, orientation
from viewcache.materializer.media.facts import FrameTimes, VideoFacts
from viewcache.materializer.media.head import Head, Seen
from viewcache.materializer.media.index import (
    KEY,
    PICTURE_CODECS,
    REFERENCE,
    VideoIndex,
    color_range_name,
    color_space_name,
    too_large,
)
from viewcache.materializer.media.jpeg import BT601, FULL, read_jpeg
from viewcache.materializer.media.source import Source, Stamp, shown
from viewcache.store.checksum import crc32c

__all__ = ["PICTURE_CODECS", "PICTURE_SUFFIXES", "is_picture", "packet_index", "picture_index", "read_picture"]

PICTURE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
"""How the names of picture files end, in lower case."""
SNIFFED = 16
"""Bytes that tell the format."""
DECODERS = {"jpeg": "mjpeg", "png": "png", "webp": "webp", "bmp": "bmp"}
"""Codec → FFmpeg's decoder."""
MOST_BYTES = 1 << 30
"""Of a picture file: it is read whole."""
MOST_EXIF = 64 << 10
"""Bytes of EXIF data that are looked at: the orientation stands at their beginning."""
CHUNKS = 1 << 12
"""PNG and WebP chunks that are looked at: in larger files the orientation behind the pixels is not found."""
LIMITED, UNSTATED = 1, 2
"""AVColorRange of video, and AVColorSpace that is not stated."""
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_FORMATS = {
    (0, 1): "monob",
    **{(0, bits): "gray" for bits in (2, 4, 8)},
    (0, 16): "gray16be",
    (2, 8): "rgb24",
    (2, 16): "rgb48be",
    **{(3, bits): "pal8" for bits in (1, 2, 4, 8)},
    (4, 8): "ya8",
    (4, 16): "ya16be",
    (6, 8): "rgba",
    (6, 16): "rgba64be",
}
"""(colour type, bits of a sample) → pixel format (PNG §11.2.1)."""
_WITH_KEY = {"gray": "ya8", "gray16be": "ya16be", "rgb24": "rgba", "rgb48be": "rgba64be"}
"""The same where a colour is named transparent."""
_BMP_HEADS = frozenset({12, 40, 56, 64, 108, 124})
"""Bytes of the headers that FFmpeg's decoder knows."""
_BMP_PLAIN = {1: "pal8", 4: "pal8", 8: "pal8", 16: "rgb555le", 24: "bgr24", 32: "bgra"}
_BMP_MASKS = {
    (16, 0xF800, 0x07E0, 0x001F): ("rgb565le", "rgb565le"),
    (16, 0x7C00, 0x03E0, 0x001F): ("rgb555le", "rgb555le"),
    (16, 0x0F00, 0x00F0, 0x000F): ("rgb444le", "rgb444le"),
    (32, 0xFF000000, 0x00FF0000, 0x0000FF00): ("0bgr", "abgr"),
    (32, 0x00FF0000, 0x0000FF00, 0x000000FF): ("bgr0", "bgra"),
    (32, 0x0000FF00, 0x00FF0000, 0xFF000000): ("0rgb", "argb"),
    (32, 0x000000FF, 0x0000FF00, 0x00FF0000): ("rgb0", "rgba"),
}
"""Bits of a pixel, masks of red, green and blue → pixel format without and with alpha."""
_RGB, _RLE8, _RLE4, _MASKS = 0, 1, 2, 3


def is_picture(uri: str) -> bool:
    """Whether a file is looked into as a picture: by its name, as it was listed; what it is, its first bytes tell."""
    return uri.lower().endswith(PICTURE_SUFFIXES)


def read_picture(source: Source, max_pixels: int, *, as_stored: bool = False) -> VideoFacts:
    """What the header of a picture file says: of a video of one frame, without a rate, at time 0.

    An orientation behind the pixels of a PNG file is not seen here; `picture_index` has it.

    Args:
        source: the opened file; some kilobytes of its beginning are read.
        max_pixels: a picture with more is refused.
        as_stored: whether it is taken as it is stored, whatever orientation it tells.

    Raises:
        BadVideo: not a picture, damaged before its pixels, of a kind that is not decoded, or too large.
    """
    head = Head(shown(source.uri), source.stamp.size, source.read_near)
    seen = _seen(head, max_pixels, is_whole=False, as_stored=as_stored)
    return VideoFacts(
        stamp=source.stamp,
        frames=1,
        width=seen.width,
        height=seen.height,
        rotation=TURNS[seen.orientation][0],
        fps=0.0,
        duration_s=0.0,
        codec=seen.codec,
        pix_fmt=seen.pix_fmt,
        color_space=color_space_name(seen.color_space),
        color_range=color_range_name(seen.color_range),
        keyframes=1,
        gop_max=1,
        times=FrameTimes(0, 0, 1, 1),
    )


def picture_index(source: Source, max_pixels: int, *, as_stored: bool = False) -> VideoIndex:
    """The index of a picture file, which is read once, whole: it is one packet.

    Args:
        source: the opened file.
        max_pixels: a picture with more is refused.
        as_stored: as of `read_picture`.

    Raises:
        BadVideo: as `read_picture`; or a file of more than `MOST_BYTES`, or one that is shorter than it was.
    """
    name, size = shown(source.uri), source.stamp.size
    if size > MOST_BYTES:
        raise BadVideo(f"{name}: {size} bytes; a picture file may have {MOST_BYTES}")
    data = source.read(0, size)
    if len(data) != size:
        raise BadVideo(f"{name}: has {len(data)} bytes where it had {size}; open the cache again")
    head = Head(name, size, lambda start, count: data[start : start + count])
    seen = _seen(head, max_pixels, is_whole=True, as_stored=as_stored)
    return packet_index(seen, source.stamp, crc32c(data))


def packet_index(seen: Seen, stamp: Stamp, crc: int) -> VideoIndex:
    """The index of a picture file: one packet, which is the file.

    Args:
        seen: what its header says.
        stamp: of the file.
        crc: CRC-32C of its bytes.
    """
    rotation, mirrored = TURNS[seen.orientation]
    return VideoIndex(
        codec=seen.codec,
        decoder=DECODERS[seen.codec],
        extradata=b"",
        width=seen.width,
        height=seen.height,
        pix_fmt=seen.pix_fmt,
        color_space=seen.color_space,
        color_range=seen.color_range,
        rotation=rotation,
        time_base=(1, 1),
        fps=0.0,
        mode="packets",
        stream=0,
        file_size=stamp.size,
        mtime_ns=stamp.mtime_ns,
        etag=stamp.etag,
        damage="",
        pos=np.zeros(1, np.int64),
        size=np.array([stamp.size], np.int32),
        crc=np.array([crc], np.uint32),
        pts=np.zeros(1, np.int64),
        dts=np.zeros(1, np.int64),
        flags=np.array([KEY | REFERENCE], np.uint8),
        order=np.zeros(1, np.int32),
        frame_pts=np.zeros(1, np.int64),
        mirrored=mirrored,
    )


def _seen(head: Head, max_pixels: int, *, is_whole: bool, as_stored: bool) -> Seen:
    reader = _reader(head.data[:SNIFFED])
    if reader is None:
        raise head.bad(f"not a picture: it begins with {head.data[:8]!r}; JPEG, PNG, WebP and BMP files are read")
    seen = reader(head, is_whole)
    if seen.width < 1 or seen.height < 1:
        raise head.bad(f"a picture of {seen.width}x{seen.height} pixels; save the picture again")
    if seen.width * seen.height > max_pixels:
        raise head.bad(too_large(seen.width, seen.height, max_pixels))
    return seen._replace(orientation=UPRIGHT) if as_stored else seen


def _reader(start: bytes) -> "Callable[[Head, bool], Seen] | None":
    if start.startswith(b"\xff\xd8\xff"):
        return _jpeg
    if start.startswith(_PNG):
        return _png
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return _webp
    # Two letters alone would be too little.
    if start.startswith(b"BM") and int.from_bytes(start[14:16], "little") in _BMP_HEADS:
        return _bmp
    return None


def _jpeg(head: Head, is_whole: bool) -> Seen:
    return read_jpeg(head)


def _png(head: Head, is_whole: bool) -> Seen:
    """The chunks of a PNG file up to the pixels; of a file that is at hand as a whole, those behind them too."""
    begin = head.upto(33)[8:33]
    if begin[:8] != b"\0\0\0\rIHDR" or zlib.crc32(begin[4:21]) != int.from_bytes(begin[21:], "big"):
        raise head.bad("a PNG file with a damaged header; save the picture again")
    width, height, bits, kind, *_ = struct.unpack(">IIBB3B", begin[8:21])
    pix_fmt = _PNG_FORMATS.get((kind, bits))
    if pix_fmt is None:
        raise head.bad(f"a PNG picture of colour type {kind} with {bits} bits, which there is not; save it again")
    turned, at, has_pixels = 1, 33, False
    for _ in range(CHUNKS):
        if has_pixels and (not is_whole or at + 12 > head.size):
            break
        chunk = head.at(at, 8)
        length, name = int.from_bytes(chunk[:4], "big"), chunk[4:]
        if name == b"tRNS" and not has_pixels:
            pix_fmt = _WITH_KEY.get(pix_fmt, pix_fmt)
        elif name == b"eXIf":
            turned = orientation(head.at(at + 8, min(length, MOST_EXIF, head.size - at - 8)))
        elif name == b"IEND":
            break
        has_pixels |= name == b"IDAT"
        at += 12 + length
    if not has_pixels:
        raise head.bad("a PNG file without pixels; save the picture again")
    return Seen("png", width, height, pix_fmt, 0, FULL, turned)


def _webp(head: Head, is_whole: bool) -> Seen:
    """The chunks of a WebP file (RFC 9649); EXIF data lie behind the pixels."""
    claimed = int.from_bytes(head.upto(12)[4:8], "little") + 8
    if claimed > head.size:
        raise head.bad(f"truncated: {head.size} bytes of {claimed}; copy the file again")
    seen, turned, at, has_alpha, has_exif = None, 1, 12, False, False
    for _ in range(CHUNKS):
        if at + 8 > claimed or (seen is not None and not has_exif):
            break
        chunk = head.at(at, 8)
        name, length = chunk[:4], int.from_bytes(chunk[4:], "little")
        if name == b"VP8X":
            flags = head.at(at + 8, 1)[0]
            if flags & 2:
                raise head.bad("an animated WebP picture, which is not decoded; save its pictures as files")
            has_exif = bool(flags & 8)
        elif name == b"ALPH":
            has_alpha = True
        elif name == b"VP8 " and seen is None:
            seen = _vp8(head, head.at(at + 8, 10), has_alpha)
        elif name == b"VP8L" and seen is None:
            seen = _vp8l(head, head.at(at + 8, 5))
        elif name == b"EXIF":
            exif = head.at(at + 8, min(length, MOST_EXIF, claimed - at - 8))
            turned = orientation(exif.removeprefix(b"Exif\0\0"))
        at += 8 + length + length % 2
    if seen is None:
        raise head.bad("a WebP file without pixels; save the picture again")
    return seen._replace(orientation=turned)


def _vp8(head: Head, frame: bytes, has_alpha: bool) -> Seen:
    if frame[0] & 1 or frame[3:6] != b"\x9d\x01\x2a":
        raise head.bad("a WebP file with a damaged header of its pixels; save the picture again")
    width, height = (each & 0x3FFF for each in struct.unpack("<HH", frame[6:]))
    return Seen("webp", width, height, "yuva420p" if has_alpha else "yuv420p", BT601, LIMITED)


def _vp8l(head: Head, frame: bytes) -> Seen:
    bits = int.from_bytes(frame[1:], "little")
    if frame[0] != 0x2F or bits >> 29:
        raise head.bad("a WebP file with a damaged header of its pixels; save the picture again")
    return Seen("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, "argb", UNSTATED, 0)


def _bmp(head: Head, is_whole: bool) -> Seen:
    """The header of a BMP file, and whether its pixels are there: the decoder does not say if packed ones are not."""
    file = head.upto(26)
    first, size = struct.unpack_from("<II", file, 10)
    if size not in _BMP_HEADS:
        raise head.bad(f"a BMP file with a header of {size} bytes, which is not known; save it as PNG")
    file, compression, packed, masks = head.upto(14 + size), _RGB, 0, (0, 0, 0, 0)
    if size == 12:
        width, height, _, bits = struct.unpack_from("<HHHH", file, 18)
    else:
        width, height, _, bits, compression, packed = struct.unpack_from("<iiHHII", file, 18)
    if compression == _MASKS:
        masks = struct.unpack_from("<4I" if size > 40 else "<3I", head.upto(70 if size > 40 else 66), 54)
    height = abs(height)  # negative: from the top row to the bottom one
    pix_fmt = _bmp_format(bits, compression, masks)
    if pix_fmt is None:
        raise head.bad(f"a BMP picture of {bits} bits, compression {compression}, which is not decoded; save it as PNG")
    needed = packed if compression in (_RLE8, _RLE4) else (width * bits + 31) // 32 * 4 * height
    if width > 0 and first + needed > head.size:
        raise head.bad(f"truncated: {head.size} bytes of {first + needed}; copy the file again")
    return Seen("bmp", width, height, pix_fmt, UNSTATED, 0)


def _bmp_format(bits: int, compression: int, masks: tuple[int, ...]) -> str | None:
    if compression == _MASKS and bits in (16, 32):
        formats = _BMP_MASKS.get((bits, masks[0], masks[1], masks[2]))
        return formats and formats[any(masks[3:])]
    if compression in (_RGB, _MASKS) or (compression, bits) in ((_RLE8, 8), (_RLE4, 4)):
        return _BMP_PLAIN.get(bits)
    return None
