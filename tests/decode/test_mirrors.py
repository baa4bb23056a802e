"""Videos whose display matrix mirrors them are shown as players show them, by every path to a frame."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.clips import display_mp4, encode
from tests.tiny import SIZE, open_cache, pixels, same, single, sql
from viewcache.materializer.media.decode import decode
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.media.header import read_header, read_with_ffmpeg
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.pixels import display_turn, frame_from_planes, planes_of, to_rgb
from viewcache.materializer.media.probe import probe
from viewcache.materializer.media.source import open_source
from viewcache.materializer.planning.cost import CostModel

Pixels = NDArray[np.uint8]

MIRRORS: dict[str, tuple[tuple[int, int, int, int], Callable[[Pixels], Pixels]]] = {
    "hflip": ((-1, 0, 0, 1), lambda stored: stored[..., ::-1]),
    "vflip": ((1, 0, 0, -1), lambda stored: stored[..., ::-1, :]),
    "transpose": ((0, 1, 1, 0), lambda stored: stored.swapaxes(-1, -2)),
    "transverse": ((0, -1, -1, 0), lambda stored: stored[..., ::-1, ::-1].swapaxes(-1, -2)),
}
"""FFmpeg's filter or EXIF's word → a, b, c and d, and what becomes of the stored picture."""
CROP = [single({"center_crop": {"shape": [32, 32]}})]
"""An even margin on all sides, so that the crop of a mirrored picture is the mirrored crop."""


def stored_frames(path: Path) -> Pixels:
    """All frames of a video as they are stored, (n,3,H,W)."""
    with av.open(str(path)) as container:
        return np.stack([to_rgb(frame) for frame in container.decode(video=0)])


@pytest.mark.parametrize("name", MIRRORS)
def test_mirrors_are_applied(tmp_path: Path, name: str) -> None:
    """A decoded frame is mirrored as FFmpeg's autorotation and browsers do, and its size is the shown one."""
    matrix, mirror = MIRRORS[name]
    path = encode(tmp_path / "clip.mp4", frames=5)
    stored = stored_frames(path)[0]
    index = probe(str(display_mp4(path, matrix)))
    (_, frame), *_ = decode(str(path), index, np.array([0]))
    for each in (frame, frame_from_planes(planes_of(frame), index)):
        shown = to_rgb(each, rotation=index.rotation, mirrored=index.mirrored)
        assert np.array_equal(shown, mirror(stored))
    assert index.shown_size == shown.shape[1:]
    assert VideoIndex.from_bytes(index.to_bytes()).mirrored


@pytest.mark.parametrize("name", MIRRORS)
def test_a_header_says_what_the_packets_give(tmp_path: Path, name: str) -> None:
    """Both readers of headers have the facts of the index, so that nothing is planned again."""
    path = display_mp4(encode(tmp_path / "clip.mp4", frames=5), MIRRORS[name][0])
    facts = VideoFacts.of(probe(str(path)))
    with open_source(str(path)) as source:
        assert read_header(source, 1 << 30) == facts
        assert read_with_ffmpeg(source, 1 << 30) == facts._replace(times=None)


def test_a_matrix_of_no_area_is_none(tmp_path: Path) -> None:
    """A frame that is mapped to nothing is shown as it is stored."""
    index = probe(str(display_mp4(encode(tmp_path / "clip.mp4", frames=5), (0, 0, 0, 0))))
    assert (index.rotation, index.mirrored) == (0, False)


def test_a_frame_without_a_matrix(tmp_path: Path) -> None:
    """Nothing is said, and nothing done."""
    with av.open(str(encode(tmp_path / "clip.mkv", frames=5))) as container:
        assert display_turn(next(container.decode(video=0))) == (0, False)


def test_every_path_to_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames by number, clips, clips of kept pictures and those after a restart are the stored video's, mirrored."""
    cost = CostModel(decode_s_per_pixel=1e-5, convert_s_per_pixel=1e-12)
    monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))
    folder = tmp_path / "in"
    folder.mkdir()
    encode(folder / "plain.mp4", frames=40, size=SIZE, gop=8)
    stored = stored_frames(folder / "plain.mp4")
    for name, (matrix, _) in MIRRORS.items():
        copy = folder / f"{name}.mp4"
        copy.write_bytes((folder / "plain.mp4").read_bytes())
        display_mp4(copy, matrix)
    sampling = {"videos_per_batch": 5, "frames_per_video": 8, "samples_per_video": 4}
    told: dict[str, Any] = {"augmentation": CROP, "epochs": 4, "sampling": sampling}
    told["cache"] = {"budget": 1_500_000, "epochs_per_generation": 4}
    with open_cache(tmp_path / "store", folder, **told) as cache:
        first = pixels(cache)
        assert sql(cache, "select count(*) from objects where kind = 'frames' and state = 'ready'") != [(0,)]
        top, left = (SIZE[1] - 32) // 2, (SIZE[0] - 32) // 2
        for batch in first.values():
            for video, frames, clip in zip(batch.videos, batch.frame, batch.video, strict=True):
                crop = stored[frames, :, top : top + 32, left : left + 32]
                assert np.array_equal(clip, crop if video == "plain" else MIRRORS[video][1](crop)), video
        for name, (_, mirror) in MIRRORS.items():
            third, last = cache.frames("train", name, [3, 39])
            assert np.array_equal([third, last], mirror(stored[[3, 39]])), name
        rotations = sql(cache, "select video, rotation from videos order by video")
        assert rotations == [("hflip", 0), ("plain", 0), ("transpose", 270), ("transverse", 90), ("vflip", 180)]
    with open_cache(tmp_path / "store", folder, **told) as cache:
        assert same(pixels(cache), first)
