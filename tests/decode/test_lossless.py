"""Pictures packed in groups come back bit by bit, in every format that a decoder gives, or are not taken at all."""

from typing import Any

import av
import numpy as np
import pytest

from viewcache.errors import Broken, ChunkDamaged
from viewcache.materializer.media import h264, lossless
from viewcache.materializer.media.lossless import DELTAS, H264, RGB, Pictures, decoder, encoder, takes
from viewcache.materializer.media.planes import plane_shapes

CODECS = [*DELTAS, H264]
DELTA = next(iter(DELTAS))

SIZES = [(64, 48), (63, 47), (17, 16), (3, 5), (2, 2), (1, 1)]

EIGHT_BITS = ["yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p", "gray", "gbrp"]
TEN_BITS = ["yuv420p10le", "yuv422p10le", "yuv444p10le", "gray10le"]
BY_DIFFERENCES_ONLY = ["nv12", "yuva420p", "yuv420p12le", "yuv444p12le", "gbrp10le", "yuyv422", "yuv410p", "rgb24"]
"""Alpha, twelve bits, packed and interleaved planes: no encoder here takes them as they are."""


def pictures_of(pictures: Pictures, count: int, seed: int = 0) -> Any:
    """Pictures that differ a little from one to the next, in places by everything."""
    size = sum(rows * row for rows, row in pictures.planes or ())
    rng = np.random.default_rng(seed)
    run = np.repeat(rng.integers(0, 256, (1, size), np.uint8), count, 0)
    run += rng.integers(0, 3, run.shape, np.uint8)
    run[count // 2 :, : size // 2] = rng.integers(0, 256, (count - count // 2, size // 2), np.uint8)
    if "10" in pictures.pix_fmt:
        run[:, 1::2] &= 3
    return run


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pix_fmt", [RGB, *EIGHT_BITS, *TEN_BITS, *BY_DIFFERENCES_ONLY])
def test_what_is_taken_comes_back(pix_fmt: str, size: tuple[int, int]) -> None:
    """By every way that takes the format: odd sizes, a group of one picture, groups unpacked in another order."""
    pictures = Pictures(pix_fmt, *size)
    run = pictures_of(pictures, 8)
    ways = [codec for codec in CODECS if takes(codec, pictures)]
    assert set(DELTAS) <= set(ways)
    assert (H264 in ways) == (pix_fmt not in BY_DIFFERENCES_ONLY)
    for codec in ways:
        packer = encoder(codec, pictures)
        parts = [run[:4], run[4:7], run[7:]]
        groups = [packer.group(part) for part in parts]
        unpacker = decoder(codec, pictures)
        for number in (2, 0, 1):
            got = [picture.copy() for picture in unpacker.group(groups[number])]
            assert np.array_equal(got, parts[number])


@pytest.mark.parametrize("codec", CODECS)
def test_a_group_may_be_left_in_the_middle(codec: str) -> None:
    """Who needs the first pictures of a group only, then another one, gets what was packed."""
    pictures = Pictures(RGB, 40, 30)
    run = pictures_of(pictures, 8)
    packer, unpacker = encoder(codec, pictures), decoder(codec, pictures)
    first, second = packer.group(run[:4]), packer.group(run[4:])
    assert np.array_equal(next(iter(unpacker.group(first))), run[0])
    assert np.array_equal([each.copy() for each in unpacker.group(second)], run[4:])


@pytest.mark.parametrize("codec", CODECS)
def test_packing_is_deterministic(codec: str) -> None:
    """The same pictures give the same bytes."""
    pictures = Pictures("yuv420p", 50, 34)
    run = pictures_of(pictures, 6)
    assert encoder(codec, pictures).group(run) == encoder(codec, pictures).group(run)


def test_full_range_and_8k() -> None:
    """All values from 0 to 255 are kept, and pictures of 7680 x 4320."""
    pictures = Pictures("yuvj420p", 7680, 4320)
    run = np.zeros((2, 7680 * 4320 * 3 // 2), np.uint8)
    run[:, : 1 << 16] = np.tile(np.arange(256, dtype=np.uint8), 256)
    run[1, 5::7] += 255
    for codec in CODECS:
        unpacked = decoder(codec, pictures).group(encoder(codec, pictures).group(run))
        assert all(np.array_equal(mine, given) for mine, given in zip(unpacked, run, strict=True))


def test_h264_packets_play_anywhere() -> None:
    """The packets of a group, one behind another, are a stream that any decoder of H.264 takes."""
    pictures = Pictures("yuv420p", 64, 48)
    run = pictures_of(pictures, 5)
    stream = b"".join(encoder(H264, pictures).group(run))
    context = av.CodecContext.create("h264", "r")
    frames = [frame for packet in [*context.parse(stream), *context.parse(b"")] for frame in context.decode(packet)]
    frames += context.decode(None)
    shapes = plane_shapes("yuv420p", 64, 48) or ()
    assert [frame.to_ndarray().reshape(-1)[: 64 * 48].tolist() for frame in frames] == [
        each[: shapes[0][0] * shapes[0][1]].tolist() for each in run
    ]


def test_the_encoder_and_its_version_are_told() -> None:
    """Who reads a store without us learns what made it."""
    pictures = Pictures(RGB, 40, 30)
    packer = encoder(H264, pictures)
    packer.group(pictures_of(pictures, 2))
    assert str(packer.about["encoder"]).startswith("libx264 core ")
    assert "qp=0" in str(packer.about["options"])


@pytest.mark.parametrize("pix_fmt", ["pal8", "monob", "no such format"])
def test_what_has_no_planes_is_not_taken(pix_fmt: str) -> None:
    """Palettes and bit streams are kept in no such way."""
    pictures = Pictures(pix_fmt, 40, 30)
    assert not takes(DELTA, pictures)
    assert not takes(H264, pictures)
    with pytest.raises(Broken):
        encoder(DELTA, pictures)
    with pytest.raises(ChunkDamaged):
        decoder(DELTA, pictures)


def test_without_the_encoder_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """An FFmpeg without libx264 takes no format; differences need none."""
    monkeypatch.setattr(h264, "ENCODER", "no_such_encoder")
    lossless.available.cache_clear()
    try:
        assert not lossless.available()
        assert not takes(H264, Pictures(RGB, 40, 30))
        assert takes(DELTA, Pictures(RGB, 40, 30))
    finally:
        monkeypatch.undo()
        lossless.available.cache_clear()
    assert takes(H264, Pictures(RGB, 40, 30))


@pytest.mark.parametrize("codec", CODECS)
def test_packets_of_other_pictures_are_damage(codec: str) -> None:
    """Of another size, or nonsense: ChunkDamaged, never other pixels."""
    other = encoder(codec, Pictures("yuv420p", 32, 32)).group(pictures_of(Pictures("yuv420p", 32, 32), 2))
    for packets in (other, [b""], [b"nonsense"], [bytes(100)]):
        with pytest.raises(ChunkDamaged):
            list(decoder(codec, Pictures("yuv420p", 64, 48)).group(packets))
