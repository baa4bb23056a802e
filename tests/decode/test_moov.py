"""Our reader of MP4 tables: what FFmpeg says of the same file, or nothing; and nothing that a hostile file can do."""

import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clips import encode, real_clips, rotate_mp4
from viewcache.errors import BadVideo
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.media.header import read_header, read_with_ffmpeg
from viewcache.materializer.media.moov import read_moov
from viewcache.materializer.media.probe import probe
from viewcache.materializer.media.source import open_source

MOST = 1 << 30

COMMON: dict[str, dict[str, Any]] = {
    "plain.mp4": {},
    "faststart.mp4": {"muxer": {"movflags": "faststart"}},
    "quicktime.mov": {"options": {"bf": "2"}},
    "bframes.mp4": {"options": {"bf": "3", "x264-params": "b-pyramid=normal:open-gop=1"}},
    "baseline.mp4": {"options": {"profile": "baseline"}},
    "cropped.mp4": {"size": (102, 66)},
    "intra.mp4": {"gop": 1},
    "uneven.mp4": {"irregular": True},
    "ten_bit.mp4": {"pix_fmt": "yuv420p10le"},
    "full_range.mp4": {"pix_fmt": "yuvj420p"},
    "bt709.mp4": {"colors": (1, 1)},
    "bt709_full.mp4": {"colors": (1, 2)},
    "bt601_untagged_box.mp4": {"colors": (6, 1), "muxer": {"movflags": "-write_colr"}},
    "wide_pixels.mp4": {"options": {"x264-params": "sar=255/254"}},
    "no_reorder_info.mp4": {"options": {"x264-params": "bframes=0:ref=4:keyint=7"}},
    "one_frame.mp4": {"frames": 1},
    "large_offsets.mp4": {"muxer": {"use_editlist": "0"}},
}
UNUSUAL = (
    "h264_interlaced.mp4",
    "h264_fragmented.mp4",
    "h264_444_odd.mp4",
    "h264_bframes.avi",
    "mpeg4.mp4",
    "hevc_open_gop.mp4",
    "av1.mp4",
)


def both(path: Path) -> tuple[VideoFacts | None, VideoFacts | None]:
    """What we read of a file, and what FFmpeg does."""
    with open_source(str(path)) as source:
        ours = read_moov(source, MOST)
        return ours, read_with_ffmpeg(source, MOST)


@pytest.mark.parametrize("name", sorted(COMMON))
def test_common_files(name: str, tmp_path: Path) -> None:
    """Ours is the same as FFmpeg's, to the last number; when frames are shown, only ours tells, as the packets do.

    So does how long all of them are, where they are not evenly spaced.
    """
    path = encode(tmp_path / name, **COMMON[name])
    ours, theirs = both(path)
    packets = VideoFacts.of(probe(str(path)))
    assert ours is not None
    assert theirs is not None
    assert ours._replace(times=None, duration_s=theirs.duration_s) == theirs
    assert (ours.times, ours.fps, ours.duration_s) == (packets.times, packets.fps, packets.duration_s)
    assert ours.times is None or ours.duration_s == theirs.duration_s


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_files(name: str, family: Callable[[str], Path]) -> None:
    """What is not known here is left to FFmpeg."""
    with open_source(str(family(name))) as source:
        assert read_moov(source, MOST) is None


@pytest.mark.parametrize("path", real_clips("train", "edge"), ids=lambda path: path.name)
def test_real_files(path: Path) -> None:
    """So it is of real ones, damaged ones among them."""
    with open_source(str(path)) as source:
        try:
            ours = read_moov(source, MOST)
        except Exception:
            ours = None
        if ours is not None:
            assert ours._replace(times=None) == read_with_ffmpeg(source, MOST)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_phones(degrees: int, tmp_path: Path) -> None:
    """How a phone was held."""
    ours, theirs = both(rotate_mp4(encode(tmp_path / "held.mp4", frames=5), degrees))
    assert ours is not None
    assert ours._replace(times=None) == theirs
    assert ours.rotation == -degrees % 360


def test_little_is_read(tmp_path: Path) -> None:
    """Of a file whose pictures stand before its tables, these and a few box heads: less than a hundredth."""
    path = encode(tmp_path / "clip.mp4", frames=250, size=(320, 240), options={"crf": "10"})
    with open_source(str(path)) as source:
        assert read_moov(source, MOST) is not None
        assert source.bytes_read < source.stamp.size / 100


def test_too_large(tmp_path: Path) -> None:
    """The limit of pixels holds."""
    more = "frames of 128x96 have more pixels than max_pixels allows"
    with open_source(str(encode(tmp_path / "clip.mp4", frames=2))) as source, pytest.raises(BadVideo, match=more):
        read_moov(source, 100)


def changed(path: Path, change: Callable[[bytearray], None]) -> Path:
    """A file with other bytes."""
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def put(kind: bytes, offset: int, value: int) -> Callable[[bytearray], None]:
    """Write a 32-bit number into the content of the first box of a kind."""

    def change(data: bytearray) -> None:
        at = data.index(kind) + 4 + offset
        data[at : at + 4] = value.to_bytes(4, "big")

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(put(b"stsz", 8, (1 << 31) - 1), id="two billion sizes"),
        pytest.param(put(b"stsz", 12, 0), id="a picture of no bytes"),
        pytest.param(put(b"stts", 8, (1 << 31) - 1), id="two billion durations"),
        pytest.param(put(b"stsc", 12, 1 << 30), id="chunks of a billion samples"),
        pytest.param(put(b"stco", 4, (1 << 32) - 1), id="four billion chunks"),
        pytest.param(put(b"stco", 8, (1 << 32) - 1), id="pictures behind the end"),
        pytest.param(put(b"stss", 8, 1 << 30), id="a key frame that is none"),
        pytest.param(put(b"elst", 8, 1), id="an edit that leaves out"),
        pytest.param(put(b"elst", 12, 1 << 20), id="an edit that begins late"),
        pytest.param(put(b"mdhd", 12, 0), id="no unit of time"),
    ],
)
def test_tables_that_lie(change: Callable[[bytearray], None], tmp_path: Path) -> None:
    """A number that the rest of the file contradicts is not believed, and costs no memory."""
    path = changed(encode(tmp_path / "clip.mp4", options={"bf": "2"}), change)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_source(str(path)) as source:
        try:
            found = read_moov(source, MOST)
        except (ValueError, IndexError, ZeroDivisionError, OverflowError):
            found = None
    assert found is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kilobytes


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    """Files whose tables are damaged anywhere are read, or refused with an error of ours."""
    path = encode(tmp_path / "clip.mp4", frames=30, options={"bf": "2"})
    data, chance = path.read_bytes(), random.Random(5)
    at = data.index(b"moov")
    for _ in range(300):
        hostile = bytearray(data)
        for _ in range(chance.choice([1, 2, 8])):
            hostile[chance.randrange(at, len(data))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        path.write_bytes(hostile[: chance.choice([len(data), len(data), chance.randrange(at, len(data))])])
        with open_source(str(path)) as source:
            try:
                found = read_header(source, MOST)
            except BadVideo:
                continue
            assert found is None or 0 < found.frames <= 1000
