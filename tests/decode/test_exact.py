"""Frames are those of a full sequential decode, however few are asked for and whichever way they are reached."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.clips import FAMILIES, digest, encode, real_clips, sequential
from viewcache.errors import BadVideo, ViewNotFound
from viewcache.materializer.media.decode import DecodeStats, decode
from viewcache.materializer.media.index import REFERENCE
from viewcache.materializer.media.probe import probe

MODES = {"packets": ("packets", "container", "counted"), "container": ("container", "counted"), "counted": ("counted",)}
"""Mode that the probe chose → modes that must be exact as well."""

PIXELS = {"mjpeg": "yuvj420p"}
"""Format of an encoder that does not take yuv420p."""

RANGED = {"h264", "hevc", "vp8", "vp9", "av1"}


def clip_names() -> list[object]:
    """Every encoded family and every real clip."""
    real = [pytest.param(path, id=f"real-{path.name}") for path in real_clips("train", "edge")]
    missing = pytest.param(
        None, id="real", marks=pytest.mark.skip(reason="no real clips; set VIEWCACHE_TEST_VIDEOS to their folder")
    )
    return [*FAMILIES, *(real or [missing])]


def choices(count: int, mode: str, rng: np.random.Generator) -> list[np.ndarray]:
    """A strided clip, scattered frames, the first, the last and all; fewer for the slower modes."""
    start = int(rng.integers(0, max(1, count - 31)))
    scattered = [np.sort(rng.choice(count, min(count, size), replace=False)) for size in (1, 5, 17)]
    clip = np.arange(start, min(count, start + 32), 2)
    if mode == "counted":
        return [np.arange(min(count, 60))]
    few = [clip, *scattered, np.array([0]), np.array([count - 1])]
    return few if mode == "container" and count > 100 else [*few, np.arange(count)]


@pytest.mark.parametrize("clip", clip_names())
def test_frames_equal_a_sequential_decode(clip: str | Path, family: Callable[[str], Path]) -> None:
    """Every frame has the pixels, colours and number of a full decode, in each mode, for the fewest packets."""
    path = family(clip) if isinstance(clip, str) else clip
    reference, index = sequential(path), probe(str(path))
    assert index.frames == len(reference)
    if index.codec in RANGED and path.suffix != ".ts" and "alpha" not in path.name and not index.damage:
        assert index.mode == "packets"
    rng = np.random.default_rng(3)
    for mode in MODES[index.mode]:
        for trial, wanted in enumerate(choices(index.frames, mode, rng)):
            stats = DecodeStats()
            threads = 2 if trial == 3 else 1
            for number, frame in decode(str(path), replace(index, mode=mode), wanted, threads=threads, stats=stats):
                got = (digest(frame), int(frame.colorspace), int(frame.color_range))
                assert got == reference[number], f"{mode}: frame {number}"
                assert frame.pts == index.frame_pts[number]
            assert stats.wanted + len(stats.failed) == len(wanted)
            assert index.damage or not stats.failed
            assert mode == "counted" or stats.packets == stats.floor == index.floor_packets(wanted)
            assert stats.decoded <= stats.packets


def test_unneeded_frames_are_skipped(family: Callable[[str], Path]) -> None:
    """B-frames that nobody wants and nothing refers to are fed but not decoded."""
    path = family("h264_bframes.mp4")
    index, stats = probe(str(path)), DecodeStats()
    unreferenced = np.flatnonzero(index.flags[index.order] & REFERENCE == 0)
    wanted = np.setdiff1d(np.arange(index.frames), unreferenced)
    list(decode(str(path), index, wanted, stats=stats))
    assert len(unreferenced) > 5
    assert stats.decoded < stats.packets
    assert stats.decoded >= len(wanted)


def test_only_the_needed_bytes_are_read(family: Callable[[str], Path]) -> None:
    """One frame near the end costs its group of pictures, not the file."""
    path = family("h264_bframes.mp4")
    index, stats = probe(str(path)), DecodeStats()
    last = np.array([index.frames - 1])
    list(decode(str(path), index, last, stats=stats))
    (gop,) = index.gops_for(last)
    payload = int(index.size[gop.start : gop.stop].sum())
    assert payload <= stats.bytes_read < payload + 4096


def test_urgent_groups_come_first(family: Callable[[str], Path]) -> None:
    """Groups of pictures are decoded in the order of their most urgent frame."""
    path = family("h264_bframes.mp4")
    index = probe(str(path))
    wanted = np.array([1, 14, 15, 40])
    got = [number for number, _ in decode(str(path), index, wanted, order=np.array([7, 9, 3, 5]))]
    assert got == [14, 15, 40, 1]


def test_stop_ends_between_groups(family: Callable[[str], Path]) -> None:
    """A decode that is asked to stop finishes the group that it is in, so each call gets somewhere."""
    path = family("h264_bframes.mp4")
    index = probe(str(path))
    got = [number for number, _ in decode(str(path), index, np.array([0, 3, 14, 40]), stop=lambda: True)]
    assert got == [0, 3]


def test_a_reader_may_leave_early(family: Callable[[str], Path]) -> None:
    """Closing the generator half-way leaves nothing open and nothing wrong for the next one."""
    path = family("h264_stream.ts")
    index = probe(str(path))
    for _ in decode(str(path), index, np.arange(index.frames)):
        break
    assert len(list(decode(str(path), index, np.arange(index.frames)))) == index.frames


def test_a_changed_file_is_noticed(family: Callable[[str], Path], tmp_path: Path) -> None:
    """An index is of one version of a file; another one is never decoded by it."""
    path = tmp_path / "clip.mp4"
    path.write_bytes(family("h264_bframes.mp4").read_bytes())
    index = probe(str(path))
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(BadVideo, match=r"clip\.mp4: the file has changed since it was scanned"):
        list(decode(str(path), index, np.array([0])))


def test_frames_that_are_not_there(family: Callable[[str], Path]) -> None:
    """A frame number out of range is refused with the range."""
    path = family("h264_bframes.mp4")
    with pytest.raises(ViewNotFound, match="has frames 0 to 59"):
        list(decode(str(path), probe(str(path)), np.array([3, 60])))


def test_other_bytes_under_the_same_stamp_are_noticed(family: Callable[[str], Path], tmp_path: Path) -> None:
    """One flipped bit, with size and time as before, is an error: most such damage decodes to wrong pixels."""
    for name in ("h264_bframes.mp4", "vp9_hidden.webm", "h264_stream.ts"):
        path = tmp_path / name
        path.write_bytes(family(name).read_bytes())
        index, stamp = probe(str(path)), path.stat()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        with pytest.raises(BadVideo, match=f"{name}.*changed or damaged after it was scanned"):
            list(decode(str(path), index, np.arange(index.frames)))


def damaged_copy(good: Path, packet: int, to: Path) -> Path:
    """A copy of a clip in which a packet is noise behind the header of its picture."""
    index, data = probe(str(good)), bytearray(good.read_bytes())
    at, size = int(index.pos[packet]), int(index.size[packet])
    data[at + 40 : at + size] = np.random.default_rng(1).integers(1, 255, size - 40, dtype=np.uint8).tobytes()
    to.write_bytes(data)
    return to


def test_what_depends_on_damage_is_not_given(family: Callable[[str], Path], tmp_path: Path) -> None:
    """A damaged reference fails the frames predicted from it, the same ones whatever is asked for, and no others."""
    good = family("h264_bframes.mp4")
    bad = damaged_copy(good, 40, tmp_path / "bad.mp4")
    reference, index, together = sequential(good), probe(str(bad)), DecodeStats()
    given = {
        number: digest(frame) for number, frame in decode(str(bad), index, np.arange(index.frames), stats=together)
    }
    assert all(reference[number][0] == pixels for number, pixels in given.items())
    gop = np.flatnonzero(index.starts == index.starts[40])
    assert together.failed
    assert set(together.failed) <= set(gop.tolist())
    came = {number for number in gop.tolist() if list(decode(str(bad), index, np.array([number]), stats=DecodeStats()))}
    assert came == given.keys() & set(gop.tolist())


def test_damage_is_an_error_for_who_does_not_look(family: Callable[[str], Path], tmp_path: Path) -> None:
    """Without `stats`, good frames come first and then BadVideo names the file, a frame and the reason."""
    bad = damaged_copy(family("h264_bframes.mp4"), 40, tmp_path / "bad.mp4")
    given: list[int] = []
    with pytest.raises(BadVideo, match=r"bad\.mp4: frame \d+: .* frames cannot be given"):
        given.extend(number for number, _ in decode(str(bad), probe(str(bad)), np.arange(60)))
    assert given


@pytest.mark.parametrize("codec", ["mpeg4", "flv", "msmpeg4", "mpeg2video", "mjpeg"])
@pytest.mark.parametrize("size", [(160, 120), (160, 90), (320, 16), (1920, 16), (32, 32)])
def test_small_frames_are_within_the_decoders_limit(codec: str, size: tuple[int, int], tmp_path: Path) -> None:
    """A limit on pixels that guards against bombs leaves decoders the scratch memory that small frames need too."""
    path = encode(
        tmp_path / ("small.flv" if codec == "flv" else "small.mkv"),
        codec,
        frames=6,
        size=size,
        ticks=25,
        pix_fmt=PIXELS.get(codec, "yuv420p"),
    )
    reference, index = sequential(path), probe(str(path), max_pixels=size[0] * size[1])
    frames = dict(decode(str(path), index, np.arange(index.frames)))
    assert [digest(frames[number]) for number in range(index.frames)] == [each[0] for each in reference]
