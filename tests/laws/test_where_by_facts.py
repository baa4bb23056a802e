"""A predicate over rates and lengths selects the same videos however files are looked into, and ever after (laws 3, 4).

What a header claims of these, and what the packets give when a video is decoded first, may differ in a bit, or by much.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode, fill_last_packet
from tests.faults.caches import config, encode_one, encode_videos, read_all
from viewcache.materializer.media.header import read_header
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.probe import probe
from viewcache.materializer.media.source import open_source

FRAMES = 48
QUIET = {"x265-params": "log-level=none", "preset": "ultrafast"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds each at 24 frames a second, and uneven frames: of codecs and containers that tell more and less."""
    videos = tmp_path_factory.mktemp("rates")
    for name in ("even", "same"):
        encode(videos / f"{name}.mp4", frames=FRAMES, size=(64, 48), ticks=24, step=1)
    encode(videos / "uneven.mp4", frames=FRAMES, size=(64, 48), irregular=True)
    encode(videos / "matroska.mkv", frames=FRAMES, size=(64, 48), irregular=True)
    encode(videos / "hevc_even.mp4", "libx265", frames=FRAMES, size=(96, 64), options=QUIET, ticks=24, step=1)
    encode(videos / "hevc_uneven.mp4", "libx265", frames=FRAMES, size=(96, 64), options=QUIET, irregular=True)
    return videos


def claimed_s(path: Path) -> float:
    """Seconds of a file by its header."""
    with open_source(str(path)) as source:
        header = read_header(source, 1 << 30)
    assert header is not None
    return header.duration_s


def wheres(folder: Path) -> dict[str, set[str]]:
    """Predicates → the videos that the packets say they select."""
    found: dict[str, VideoIndex] = {path.stem: probe(str(path)) for path in folder.iterdir()}
    claimed, true = claimed_s(folder / "hevc_uneven.mp4"), found["hevc_uneven"].duration_s
    assert claimed != true
    between = (claimed + true) / 2
    chosen: dict[str, Callable[[VideoIndex], bool]] = {
        "duration_s >= 2": lambda index: index.duration_s >= 2,
        "duration_s = 2": lambda index: index.duration_s == 2,
        f"DURATION_S < {between!r}": lambda index: index.duration_s < between,
        f"duration_s > {between!r}": lambda index: index.duration_s > between,
        "fps > 23": lambda index: index.fps > 23,
    }
    return {where: {name for name, index in found.items() if of(index)} for where, of in chosen.items()}


@pytest.mark.parametrize("number", range(5))
def test_the_same_videos_in_every_way(tmp_path: Path, folder: Path, number: int) -> None:
    """By headers or by every packet, opened once or several times: what a predicate selects of the packets' facts."""
    where, expected = list(wheres(folder).items())[number]
    got = list[Any]()
    for probing in ("lazy", "full"):
        whole = config(tmp_path / probing, folder, probe=probing)
        whole["dataset"]["where"] = where
        for _ in range(2):
            with viewcache.open(whole) as cache:
                got.append(dict(read_all(cache)))
                named = {name for i in range(cache.task("t").iterations(0)) for name in cache.read("t", 0, i).videos}
                assert named == expected
    assert got == [got[0]] * 4


@pytest.fixture
def liars(tmp_path: Path) -> Path:
    """Four truthful clips, one whose header counts a frame too many, and one that has a header and no pictures."""
    videos = encode_videos(tmp_path / "liars", 4)
    encode(videos / "liar.mp4", "libx265", frames=30, gop=10, options=QUIET)
    fill_last_packet(videos / "liar.mp4")
    spoil(videos / "spoiled.mp4", encode_one(videos / "spoiled.mp4", 9).read_bytes())
    return videos


def spoil(path: Path, data: bytes) -> None:
    """Leave the header, and put noise where the pictures were."""
    at = data.index(b"mdat") + 4
    end = at - 8 + int.from_bytes(data[at - 8 : at - 4], "big")
    noise = np.random.default_rng(1).bytes(end - at)
    path.write_bytes(data[:at] + noise + data[end:])


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("where", ["frames = 30", "duration_s < 5 and codec in ('h264', 'hevc')"])
def test_a_header_that_lies_selects_for_ever(tmp_path: Path, liars: Path, where: str, policy: str) -> None:
    """A file that is the same has the same part in every epoch, whatever was found when it was decoded first."""
    whole = config(tmp_path / "one", liars, on_bad_video=policy, epochs=4)
    whole["dataset"]["where"] = where
    with viewcache.open(whole) as cache:
        expected = dict(read_all(cache, 4))
        names = {name for i in range(cache.task("t").iterations(3)) for name in cache.read("t", 3, i).videos}
    assert names == {"v0", "v1", "v2", "v3", "liar"}
    whole["cache"]["store"][0]["url"] = str(tmp_path / "two")
    got = dict[tuple[int, int], str]()
    for epochs in (2, 4):
        with viewcache.open(whole) as cache:
            got = dict(read_all(cache, epochs))
    assert got == expected


def test_a_file_that_is_another_one_is_judged_anew(tmp_path: Path, liars: Path) -> None:
    """What is kept of a file that lied says nothing of the one in its place."""
    whole = config(tmp_path / "one", liars, on_changed_video="warn", on_bad_video="replace", epochs=4)
    whole["dataset"] |= {"where": "frames = 30"}
    with viewcache.open(whole) as cache:
        list(read_all(cache, 2))
    encode(liars / "liar.mp4", "libx265", frames=29, gop=10, options=QUIET)
    with viewcache.open(whole) as cache:
        names = {name for i in range(cache.task("t").iterations(3)) for name in cache.read("t", 3, i).videos}
    assert names == {"v0", "v1", "v2", "v3"}
