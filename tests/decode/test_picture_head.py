"""What is read from the header of a picture file: right for every kind that is decoded, an error for all else."""

import itertools
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest
from av.codec import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from PIL import Image

from tests.clips import encode
from tests.stills import KINDS, bmp_of, chunk, encoded, index_of, inks, jpeg_segments, png_of, saved
from viewcache.errors import BadVideo, ViewcacheError
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.scan_worker import look
from viewcache.materializer.media.facts import Claims, VideoFacts
from viewcache.materializer.media.index import PICTURE_CODECS, TOO_LARGE, VideoIndex
from viewcache.materializer.media.picture_head import DECODERS, PICTURE_SUFFIXES, is_picture, read_picture
from viewcache.materializer.media.source import open_source

MOST = 1 << 20
"""Pixels that are allowed here."""


def written(folder: Path, data: bytes, name: str = "a.jpg") -> Path:
    """A file of some content; its name says nothing."""
    (folder / name).write_bytes(data)
    return folder / name


def facts_of(path: Path, max_pixels: int = MOST) -> VideoFacts:
    """What the header says."""
    with open_source(str(path)) as source:
        return read_picture(source, max_pixels)


def decoder_says(decoder: str, data: bytes) -> tuple[str, int, int] | None:
    """Pixel format, width and height of what FFmpeg's decoder gives; None if it gives nothing."""
    context = cast(VideoCodecContext, CodecContext.create(decoder, "r"))
    context.thread_type = "NONE"
    packet = Packet(len(data))
    packet.update(data)
    try:
        frames = [*context.decode(packet), *context.decode(None)]
    except av.error.FFmpegError:
        return None
    return (frames[0].format.name, frames[0].width, frames[0].height) if frames else None


def with_orientation(data: bytes, value: int) -> bytes:
    """A JPEG file with EXIF data that say so."""
    exif = Image.Exif()
    exif[0x0112] = value
    content = exif.tobytes()
    return data[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(content)) + content + data[2:]


@pytest.mark.parametrize("kind", KINDS)
def test_the_header_tells_what_the_decoder_gives(kind: str, tmp_path: Path) -> None:
    """Size and pixel format are those of the decoder, of every kind; the index says the same, and so does the scan."""
    make, pix_fmt, _, _ = KINDS[kind]
    path = written(tmp_path, make())
    facts, index = facts_of(path), index_of(path)
    assert decoder_says(index.decoder, make()) == (facts.pix_fmt, facts.width, facts.height)
    assert facts.pix_fmt == pix_fmt
    assert facts == VideoFacts.of(index)
    assert facts.codec in PICTURE_CODECS
    assert index.is_picture
    assert (facts.frames, facts.keyframes, facts.gop_max, facts.fps, facts.duration_s) == (1, 1, 1, 0.0, 0.0)
    claims = Claims(facts.stamp, 1, *facts.shown_size, facts.pix_fmt, MOST, times=facts.times)
    assert not claims.contradicted(VideoFacts.of(index))
    assert look(str(path), MOST, ProbeMode.LAZY).facts == look(str(path), MOST, ProbeMode.FULL).facts == facts


def test_every_sampling_of_a_jpeg(tmp_path: Path) -> None:
    """Of all 4,096 sampling factors of three components each is either named as the decoder has it, or refused."""
    data = bytearray(encoded("JPEG", subsampling=0, quality=20))
    begin = next(begin for code, begin, _ in jpeg_segments(bytes(data)) if code == 0xC0)
    accepted = 0
    for factors in itertools.product(range(1, 5), repeat=6):
        data[begin + 11 : begin + 18 : 3] = bytes(
            across << 4 | down for across, down in zip(factors[::2], factors[1::2], strict=True)
        )
        try:
            said = facts_of(written(tmp_path, bytes(data))).pix_fmt
        except BadVideo:
            said = ""
        if said or set(factors) <= {1, 2}:  # the decoder is slow to refuse
            there = decoder_says("mjpeg", bytes(data))
            assert said == (there[0] if there else ""), factors
            accepted += bool(said)
    assert accepted == 37


@pytest.mark.parametrize("sampling", ["11111111", "22111122", "22111111", "22222222"])
@pytest.mark.parametrize("adobe", [0, 2])
def test_samplings_of_inks(adobe: int, sampling: str, tmp_path: Path) -> None:
    """CMYK and YCCK pictures, with all samples or fewer of colour, are named as the decoder has them."""
    data = inks(adobe, bytes.fromhex(sampling))
    there = decoder_says("mjpeg", data)
    assert there is not None
    assert facts_of(written(tmp_path, data)).pix_fmt == there[0]


PNG_KINDS = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8)]


@pytest.mark.parametrize(("kind", "bits"), [*PNG_KINDS, (4, 8), (4, 16), (6, 8), (6, 16)])
def test_every_colour_type_of_a_png(kind: int, bits: int, tmp_path: Path) -> None:
    """All colour types and depths of the standard, with and without a transparent colour."""
    for key in (None, bytes({0: 2, 2: 6, 3: 2}[kind])) if (kind, bits) in PNG_KINDS else (None,):
        data = png_of(kind, bits, key=key)
        assert (facts_of(written(tmp_path, data)).pix_fmt, 5, 4) == decoder_says("png", data)


BMPS = [
    *(bmp_of(bits) for bits in (1, 2, 4, 8, 16, 24, 32)),
    *(bmp_of(bits, header=12) for bits in (1, 4, 8, 24)),
    *(bmp_of(32, header=header) for header in (52, 56, 64, 108, 124)),
    bmp_of(16, 3, masks=(0xF00, 0xF0, 0xF)),
    bmp_of(16, 3, masks=(0xF000, 0xF0, 0xF)),
    bmp_of(32, 3, masks=(0xFF << 24, 0xFF << 16, 0xFF << 8)),
    bmp_of(32, 3, masks=(0xFF << 24, 0xFF << 16, 0xFF << 8, 0xFF), header=124),
    bmp_of(32, 3, masks=(0xFF << 8, 0xFF << 16, 0xFF << 24), header=56),
    bmp_of(32, 3, masks=(0xFF << 16, 0xFF << 8, 0xFF, 0xFF << 24), header=56),
    bmp_of(24, 3, masks=(0xFF << 16, 0xFF << 8, 0xFF)),
    bmp_of(24, 1),
    bmp_of(8, 2),
    bmp_of(24, 4),
]
"""All depths, headers, masks and compressions that there are, and some that there are not."""


@pytest.mark.parametrize("number", range(len(BMPS)))
def test_every_layout_of_a_bmp(number: int, tmp_path: Path) -> None:
    """What the decoder gives is named, and nothing is taken that it refuses."""
    data = BMPS[number]
    there = decoder_says("bmp", data)
    try:
        facts = facts_of(written(tmp_path, data))
    except BadVideo:
        assert there is None or data[30] in (1, 2)  # run lengths of another depth, which no one writes
        return
    assert (facts.pix_fmt, facts.width, facts.height) == there


def _replaced(data: bytes, marker: int, byte: int, value: int) -> bytes:
    begin = next(begin for code, begin, _ in jpeg_segments(data) if code == marker)
    return data[: begin + byte] + bytes((value,)) + data[begin + byte + 1 :]


def _animated(kind: str) -> bytes:
    return saved(Image.new("RGB", (5, 4)), kind, save_all=True, append_images=[Image.new("RGB", (5, 4), "red")])


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "an empty file"),
    "html": (lambda: b"<!DOCTYPE html><html>404</html>", "not a picture"),
    "gif": (lambda: encoded("GIF", "P"), "not a picture"),
    "two letters": (lambda: b"BM and other words", "not a picture"),
    "lossless": (lambda: _replaced(encoded("JPEG"), 0xC0, 1, 0xC3), "kind lossless"),
    "arithmetic": (lambda: _replaced(encoded("JPEG"), 0xC0, 1, 0xC9), "kind arithmetic-coded"),
    "jpeg-ls": (lambda: _replaced(encoded("JPEG"), 0xC0, 1, 0xF7), "JPEG-LS"),
    "12 bits": (lambda: _replaced(encoded("JPEG"), 0xC0, 4, 12), "12-bit JPEG"),
    "no height": (lambda: _replaced(_replaced(encoded("JPEG"), 0xC0, 6, 0), 0xC0, 5, 0), "101x0 pixels"),
    "no frame": (lambda: _replaced(encoded("JPEG"), 0xC0, 1, 0xFE), "without a frame header"),
    "unmarked inks": (lambda: inks(None), "CMYK or YCCK"),
    "rgb with shared chroma": (lambda: _replaced(encoded("JPEG", keep_rgb=True), 0xC0, 11, 0x22), "RGB JPEG"),
    "rgb and not": (lambda: _jfif(encoded("JPEG", keep_rgb=True)), "both RGB and YCbCr"),
    "cut in the header": (lambda: encoded("JPEG")[:100], "truncated"),
    "long header": (lambda: b"\xff\xd8" + (b"\xff\xe2\xff\xff" + bytes(65533)) * 17, "in its first"),
    "many segments": (lambda: b"\xff\xd8" + b"\xff\xe2\0\2" * 5000, "without a frame header"),
    "png header": (lambda: encoded("PNG").replace(b"IHDR\0\0\0\x65", b"IHDR\0\0\1\x65"), "damaged header"),
    "png without pixels": (lambda: encoded("PNG")[:33] + chunk(b"IEND", b""), "without pixels"),
    "animated webp": (lambda: _animated("WEBP"), "animated"),
    "cut webp": (lambda: encoded("WEBP")[:-9], "truncated"),
    "webp key": (lambda: encoded("WEBP").replace(b"\x9d\x01\x2a", b"\x9d\x01\x2b"), "damaged header"),
    "cut bmp": (lambda: encoded("BMP")[:-1], "truncated"),
    "cut bmp of runs": (lambda: bmp_of(8, 1, body=bytes(40))[:-1], "truncated"),
    "bmp with jpeg": (lambda: bmp_of(24, 4), "compression 4"),
    "bmp of no width": (lambda: encoded("BMP")[:18] + bytes(4) + encoded("BMP")[22:], "0x67 pixels"),
}


def _jfif(data: bytes) -> bytes:
    return data[:2] + b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0" + data[2:]


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_said(what: str, tmp_path: Path) -> None:
    """Each file that is not decoded is a BadVideo that names the file and the reason, by header and by index."""
    make, message = BAD[what]
    path = written(tmp_path, make())
    for reading in (facts_of, index_of):
        with pytest.raises(BadVideo, match=f"{path}: .*({message})"):
            reading(path)


def test_too_many_pixels(tmp_path: Path) -> None:
    """`max_pixels` is compared with the header, and the message is the one by which a scan looks again."""
    path = written(tmp_path, encoded("PNG"))
    assert facts_of(path, 101 * 67).width == 101
    with pytest.raises(BadVideo, match=TOO_LARGE):
        facts_of(path, 101 * 67 - 1)


def test_names_say_nothing(tmp_path: Path) -> None:
    """A PNG named .jpg is a PNG, for the scan too; an HTML page named .jpg is bad."""
    scanned = look(str(written(tmp_path, encoded("PNG"), "a.jpg")), MOST, ProbeMode.LAZY)
    assert not scanned.error
    assert scanned.facts is not None
    assert scanned.facts.codec == "png"
    assert look(str(written(tmp_path, b"<html>404</html>", "b.jpg")), MOST, ProbeMode.LAZY).error
    assert set(DECODERS) == PICTURE_CODECS
    assert all(each.startswith(".") for each in PICTURE_SUFFIXES)


def test_videos_are_no_pictures(tmp_path: Path) -> None:
    """A video of Motion JPEG or PNG frames is none by its facts; named as a picture it is a bad one."""
    path = tmp_path / "a.avi"
    encode(path, codec="mjpeg", pix_fmt="yuvj420p")
    named = Path(shutil.copyfile(path, tmp_path / "a.JPG"))
    assert is_picture(str(named))
    assert "not a picture" in look(str(named), MOST, ProbeMode.LAZY).error
    scanned = look(str(path), MOST, ProbeMode.LAZY)
    assert scanned.facts is not None
    assert scanned.facts.codec not in PICTURE_CODECS


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_long_metadata(kind: str, tmp_path: Path) -> None:
    """Profiles of hundreds of kilobytes before the pixels hide neither size nor orientation."""
    exif = Image.Exif()
    exif[0x0112] = 6
    profile = np.random.default_rng(1).bytes(300_000)
    facts = facts_of(written(tmp_path, encoded(kind, icc_profile=profile, exif=exif)))
    assert (facts.width, facts.height, facts.rotation) == (101, 67, 270)


@pytest.mark.parametrize("order", ["little", "big"])
def test_orientation_in_both_byte_orders(order: str, tmp_path: Path) -> None:
    """EXIF data of either byte order are read; a value that there is not, or of another type, turns nothing."""
    mark, little = (b"II*\0", "<") if order == "little" else (b"MM\0*", ">")
    for value, type_, rotation in ((8, 3, 90), (9, 3, 0), (0, 3, 0), (8, 2, 0)):
        entries = struct.pack(f"{little}IHHHIHHHHIHH", 8, 2, 0x0100, 3, 1, 5, 0, 0x0112, type_, 1, value, 0)
        data = png_of(2, 8, before=chunk(b"eXIf", mark + entries))
        assert facts_of(written(tmp_path, data)).rotation == rotation


def test_damaged_exif_is_passed_over(tmp_path: Path) -> None:
    """However EXIF data are cut or changed, the picture is read, with some orientation."""
    data = with_orientation(encoded("JPEG"), 6)
    assert facts_of(written(tmp_path, data)).rotation == 270
    _, begin, end = next(jpeg_segments(data))
    for at in range(begin + 10, end):
        for value in (0, 1, 255):
            damaged = data[:at] + bytes((value,)) + data[at + 1 :]
            assert facts_of(written(tmp_path, damaged)).rotation in (0, 90, 180, 270)


def test_orientation_behind_the_pixels(tmp_path: Path) -> None:
    """EXIF data at the end of a WebP file are found by the header; of a PNG file by the index, which has it whole."""
    exif = Image.Exif()
    exif[0x0112] = 5
    webp = written(tmp_path, encoded("WEBP", exif=exif), "a.webp")
    assert webp.read_bytes().index(b"EXIF") > webp.read_bytes().index(b"VP8 ")
    assert (facts_of(webp).rotation, index_of(webp).rotation, index_of(webp).mirrored) == (270, 270, True)
    png = written(tmp_path, png_of(2, 8, after=chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))), "a.png")
    assert (facts_of(png).rotation, index_of(png).rotation, index_of(png).mirrored) == (0, 270, True)


def test_an_index_with_a_mirror_is_read_back(tmp_path: Path) -> None:
    """`mirrored` is kept in the blob; a blob without it is of a picture, or a video, that is not."""
    path = written(tmp_path, with_orientation(encoded("JPEG"), 2))
    index = index_of(path)
    assert index.mirrored
    assert VideoIndex.from_bytes(index.to_bytes()).mirrored
    plain = index_of(written(tmp_path, encoded("JPEG")))
    assert b"mirrored" not in plain.to_bytes()
    assert not VideoIndex.from_bytes(plain.to_bytes()).mirrored


def test_garbage_between_segments_is_passed_over(tmp_path: Path) -> None:
    """Fill bytes and stray bytes before a marker, as some cameras write them, do not hide the frame header."""
    data = encoded("JPEG")
    begin = next(begin for code, begin, _ in jpeg_segments(data) if code == 0xDB)
    for stray in (b"\xff\xff\xff", b"\0\0\0", b"\xff\0\xff\x01"):
        assert facts_of(written(tmp_path, data[:begin] + stray + data[begin:])).width == 101


@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_of_a_header_is_an_error(kind: str, tmp_path: Path) -> None:
    """A file that ends within its header is a BadVideo at every length, never another exception."""
    data = KINDS[kind][0]()
    lengths = [*range(min(len(data), 700)), *range(700, len(data), 997)]
    for length in lengths:
        try:
            facts_of(written(tmp_path, data[:length]))
        except ViewcacheError as bad:
            assert isinstance(bad, BadVideo)  # noqa: PT017 - a longer cut may be whole enough
