"""Picture files for the tests, made on the spot by Pillow and OpenCV, or byte by byte where these make none."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from viewcache.materializer.media.decode import decode
from viewcache.materializer.media.picture_head import picture_index
from viewcache.materializer.media.pixels import to_rgb
from viewcache.materializer.media.source import open_source

__all__ = [
    "KINDS",
    "bmp_of",
    "chunk",
    "encoded",
    "index_of",
    "inks",
    "jpeg_segments",
    "painting",
    "pillow_rgb",
    "png_of",
    "rgb_of",
    "sampled",
    "saved",
]


SIZE = (101, 67)
"""Width and height: odd, not square."""


@cache
def painting(mode: str = "RGB") -> Image.Image:
    """A smooth picture of all colours, in a mode of Pillow's; `I;16` is grey in 16 bits, RGBA has much alpha."""
    noise = np.random.default_rng(7).integers(0, 256, (SIZE[1], SIZE[0], 4), dtype=np.uint8)
    smooth = np.asarray(cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 3.0), np.empty(0), 0, 255, cv2.NORM_MINMAX))
    if mode == "I;16":
        return Image.fromarray(smooth[:, :, 0].astype(np.uint16) * 257)
    rgba = Image.fromarray(np.ascontiguousarray(smooth, np.uint8))
    return rgba.convert(mode) if mode in ("RGBA", "LA") else rgba.convert("RGB").convert(mode)


def encoded(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    """The painting as a file of a format of Pillow's."""
    return saved(painting(mode), kind, **options)


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """A picture as a file of a format of Pillow's."""
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def png_of(kind: int, bits: int, *, key: bytes | None = None, before: bytes = b"", after: bytes = b"") -> bytes:
    """A PNG file of 5x4 pixels of any colour type, with a transparent colour and with chunks around the pixels."""
    row = (5 * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind] * bits + 7) // 8
    lines = b"".join(b"\0" + bytes((37 * x + y) & 255 for x in range(row)) for y in range(4))
    palette = chunk(b"PLTE", bytes(index % 256 for index in range(3 << bits))) if kind == 3 else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 4, bits, kind, 0, 0, 0))
        + before
        + palette
        + (b"" if key is None else chunk(b"tRNS", key))
        + chunk(b"IDAT", zlib.compress(lines))
        + after
        + chunk(b"IEND", b"")
    )


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def bmp_of(
    bits: int,
    compression: int = 0,
    *,
    masks: tuple[int, ...] = (),
    header: int = 40,
    height: int = 4,
    body: bytes = b"",
) -> bytes:
    """A BMP file of 5x4 pixels in any of its layouts; a negative height is stored from the top down."""
    row = (5 * bits + 31) // 32 * 4
    body = body or bytes(37 * at & 255 for at in range(row * abs(height)))
    colours = 1 << bits if bits <= 8 else 0
    if header == 12:
        info = struct.pack("<IHHHH", 12, 5, height, 1, bits)
        palette = b"".join(bytes((c & 255, 3 * c & 255, 7 * c & 255)) for c in range(colours))
    else:
        info = struct.pack("<IiiHHIIiiII", header, 5, height, 1, bits, compression, len(body), 0, 0, colours, 0)
        listed = struct.pack(f"<{len(masks)}I", *masks)
        info += listed.ljust(header - 40, b"\0") if header > 40 else listed
        palette = b"".join(bytes((c & 255, 3 * c & 255, 7 * c & 255, 0)) for c in range(colours))
    begin = 14 + len(info) + len(palette)
    return struct.pack("<2sIII", b"BM", begin + len(body), 0, begin) + info + palette + body


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Code, begin and end (of code and payload) of each segment of a JPEG file up to its scan."""
    at = 2
    while True:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        yield data[at + 1], at, end
        if data[at + 1] == 0xDA:
            return
        at = end


def inks(adobe: int | None, sampling: bytes = b"\x11\x11\x11\x11") -> bytes:
    """A CMYK or YCCK picture as editors write it: numbered components, and Adobe's mark if there is one."""
    data = bytearray(encoded("JPEG", "CMYK", quality=95))
    for code, begin, end in list(jpeg_segments(bytes(data))):
        if code == 0xC0:
            data[begin + 10 : end : 3] = bytes(range(1, 5))
            data[begin + 11 : end : 3] = sampling
        if code == 0xDA:
            data[begin + 5 : begin + 13 : 2] = bytes(range(1, 5))
    at = data.index(b"Adobe")
    if adobe is None:
        data[at] = ord("N")
    else:
        data[at + 11] = adobe
    return bytes(data)


def sampled(factors: bytes) -> bytes:
    """A picture of three components, numbered 1 to 3, whose frame header states any sampling factors.

    Its blocks were written one of each component in turn, and all by the same tables, so that decoders find some
    picture in them by whatever factors.
    """
    data = bytearray(encoded("JPEG", keep_rgb=True, quality=90))
    data[data.index(b"Adobe")] = ord("N")
    for code, begin, end in list(jpeg_segments(bytes(data))):
        if code == 0xC0:
            data[begin + 10 : end : 3] = bytes((1, 2, 3))
            data[begin + 11 : end : 3] = factors
        if code == 0xDA:
            data[begin + 5 : begin + 11 : 2] = bytes((1, 2, 3))
    return bytes(data)


def opencv_jpeg(sampling: int) -> bytes:
    """The painting as JPEG by OpenCV, with the sampling factors of a constant of its."""
    pixels = np.asarray(painting())[:, :, ::-1]
    return bytes(cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling])[1])


def opencv_png(channels: int) -> bytes:
    """Noise of 16 bits a sample, in 3 or 4 channels."""
    noise = np.random.default_rng(3).integers(0, 1 << 16, (SIZE[1], SIZE[0], channels), dtype=np.uint16)
    return bytes(cv2.imencode(".png", noise)[1])


def even(kind: str, **options: Any) -> bytes:
    """The painting without its last column and row: samples that several pixels share lie where all agree then."""
    return saved(painting().crop((0, 0, SIZE[0] // 2 * 2, SIZE[1] // 2 * 2)), kind, **options)


RUNS = b"\x05\x01\x00\x00" * 4 + b"\x00\x01"
"""Four rows of five pixels, run-length encoded."""
KINDS: dict[str, tuple[Callable[[], bytes], str, float, int]] = {
    "jpeg_444": (lambda: encoded("JPEG", subsampling=0, quality=95), "yuvj444p", 0.1, 3),
    "jpeg_progressive": (lambda: encoded("JPEG", subsampling=0, quality=95, progressive=True), "yuvj444p", 0.1, 3),
    "jpeg_422": (lambda: encoded("JPEG", subsampling=1, quality=95), "yuvj422p", 4, 62),
    "jpeg_420": (lambda: encoded("JPEG", subsampling=2, quality=95), "yuvj420p", 5, 62),
    "jpeg_420_progressive": (lambda: encoded("JPEG", subsampling=2, progressive=True), "yuvj420p", 5, 62),
    "jpeg_422_even": (lambda: even("JPEG", subsampling=1, quality=95), "yuvj422p", 0.5, 4),
    "jpeg_420_even": (lambda: even("JPEG", subsampling=2, quality=95), "yuvj420p", 0.5, 4),
    "jpeg_440": (lambda: opencv_jpeg(cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440), "yuvj440p", 4, 62),
    "jpeg_411": (lambda: opencv_jpeg(cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411), "yuvj411p", 8, 90),
    "jpeg_grey": (lambda: encoded("JPEG", "L"), "gray", 0.05, 1),
    "jpeg_rgb": (lambda: encoded("JPEG", keep_rgb=True), "gbrp", 0.05, 1),
    "jpeg_cmyk": (lambda: encoded("JPEG", "CMYK", quality=95), "gbrap", 1.1, 2),
    "jpeg_cmyk_numbered": (lambda: inks(0), "gbrap", 1.1, 2),
    "jpeg_ycck": (lambda: inks(2), "yuva444p", 1.5, 6),
    "jpeg_restarts": (lambda: encoded("JPEG", subsampling=0, restart_marker_blocks=3), "yuvj444p", 0.1, 3),
    "png_rgb": (lambda: encoded("PNG"), "rgb24", 0, 0),
    "png_rgba": (lambda: encoded("PNG", "RGBA"), "rgba", 0, 0),
    "png_grey": (lambda: encoded("PNG", "L"), "gray", 0, 0),
    "png_grey_alpha": (lambda: encoded("PNG", "LA"), "ya8", 0, 0),
    "png_palette": (lambda: encoded("PNG", "P"), "pal8", 0, 0),
    "png_palette_2bit": (lambda: saved(painting().quantize(4), "PNG", bits=2), "pal8", 0, 0),
    "png_bits": (lambda: encoded("PNG", "1"), "monob", 0, 0),
    "png_grey_16bit": (lambda: encoded("PNG", "I;16"), "gray16be", 0.8, 1),
    "png_rgb_16bit": (lambda: opencv_png(3), "rgb48be", 0.6, 1),
    "png_rgba_16bit": (lambda: opencv_png(4), "rgba64be", 0.6, 1),
    "png_key": (lambda: encoded("PNG", transparency=(1, 2, 3)), "rgba", 0, 0),
    "webp_lossy": (lambda: encoded("WEBP", quality=95), "yuv420p", 5, 62),
    "webp_lossy_even": (lambda: even("WEBP", quality=95), "yuv420p", 0.5, 4),
    "webp_lossy_alpha": (lambda: encoded("WEBP", "RGBA", quality=95), "yuva420p", 5, 62),
    "webp_lossless": (lambda: encoded("WEBP", lossless=True), "argb", 0, 0),
    "webp_lossless_alpha": (lambda: encoded("WEBP", "RGBA", lossless=True, exact=True), "argb", 0, 0),
    "bmp_rgb": (lambda: encoded("BMP"), "bgr24", 0, 0),
    "bmp_rgba": (lambda: encoded("BMP", "RGBA"), "bgra", 0, 0),
    "bmp_grey": (lambda: encoded("BMP", "L"), "pal8", 0, 0),
    "bmp_palette": (lambda: encoded("BMP", "P"), "pal8", 0, 0),
    "bmp_bits": (lambda: encoded("BMP", "1"), "pal8", 0, 0),
    "bmp_from_the_top": (lambda: bmp_of(24, height=-4), "bgr24", 0, 0),
    "bmp_32": (lambda: bmp_of(32), "bgra", 0, 0),
    "bmp_16": (lambda: bmp_of(16), "rgb555le", 4, 7),
    "bmp_565": (lambda: bmp_of(16, 3, masks=(0xF800, 0x7E0, 0x1F)), "rgb565le", 4, 7),
    "bmp_masks": (lambda: bmp_of(32, 3, masks=(0xFF0000, 0xFF00, 0xFF)), "bgr0", 0, 0),
    "bmp_masks_reversed": (lambda: bmp_of(32, 3, masks=(0xFF, 0xFF00, 0xFF0000, 0xFF << 24), header=124), "rgba", 0, 0),
    "bmp_masks_opaque": (lambda: bmp_of(32, 3, masks=(0xFF0000, 0xFF00, 0xFF, 0), header=108), "bgr0", 0, 0),
    "bmp_runs": (lambda: bmp_of(8, 1, body=RUNS), "pal8", 0, 0),
    "bmp_runs_4bit": (lambda: bmp_of(4, 2, body=RUNS), "pal8", 0, 0),
}
"""Kind → (its file, pixel format, most that RGB may differ from Pillow's on average, and at most), in levels."""


def index_of(path: Path) -> Any:
    """The index of a picture file."""
    with open_source(str(path)) as source:
        return picture_index(source, 1 << 20)


def rgb_of(path: Path) -> np.ndarray:
    """A picture file as it is shown: uint8 (3, H, W), by the way that views take."""
    index = index_of(path)
    [(_, frame)] = decode(str(path), index, np.array([0]))
    return to_rgb(frame, rotation=index.rotation, mirrored=index.mirrored)


def pillow_rgb(data: bytes) -> np.ndarray:
    """The same by Pillow, without heed of the orientation: int (3, H, W)."""
    picture: Image.Image = Image.open(io.BytesIO(data))
    if picture.mode == "I;16":
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    return np.asarray(picture.convert("RGB"), np.int64).transpose(2, 0, 1)
