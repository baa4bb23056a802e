"""Streams that change their colours or their size on the way: every frame is given as it states itself."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream

from tests.clips import encode
from viewcache.materializer.media.decode import decode
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.pixels import INTERPOLATIONS, frame_from_planes, matched, planes_of, to_rgb
from viewcache.materializer.media.probe import probe

LENGTH = 24
"""Frames of each half."""
X264 = {"x264-params": "bframes=0:repeat-headers=1", "preset": "ultrafast", "crf": "1"}
VP9 = {"crf": "2", "b": "0", "cpu-used": "8"}
Kind = tuple[str, int, int]
"""Pixel format, AVColorSpace, AVColorRange."""

CHANGES: dict[str, tuple[str, Kind, Kind]] = {
    "matrix.mkv": ("libx264", ("yuv420p", 1, 1), ("yuv420p", 6, 1)),
    "matrix.ts": ("libx264", ("yuv420p", 6, 1), ("yuv420p", 1, 1)),
    "range.mkv": ("libx264", ("yuv420p", 1, 1), ("yuvj420p", 1, 2)),
    "unstated.ts": ("libx264", ("yuv420p", 2, 0), ("yuvj420p", 2, 2)),
    "matrix.webm": ("libvpx-vp9", ("yuv420p", 1, 1), ("yuv420p", 5, 1)),
    "both.webm": ("libvpx-vp9", ("yuv420p", 6, 2), ("yuv420p", 9, 1)),
}


def blends(width: int, height: int) -> Iterator[np.ndarray]:
    """Strong colours that pass into each other: what a conversion loses at sharp edges of colour is not looked at."""
    y, x = np.mgrid[:height, :width]
    for k in range(LENGTH):
        red, green, blue = (
            60 + x * 120 // width + k % 20,
            200 - y * 120 // height,
            80 + (x + y) * 80 // (width + height),
        )
        yield np.stack([red, green, blue], axis=-1).astype(np.uint8)


def changing(path: Path, codec: str, *halves: tuple[Kind, tuple[int, int]]) -> Path:
    """Encode halves of one stream, each by an encoder of its own, of a kind and of (width, height)."""
    options = X264 if codec == "libx264" else VP9
    with av.open(str(path), "w") as container:
        stream = cast(VideoStream, container.add_stream(codec, rate=25, options=options))
        time = 0
        for kind, size in halves:
            pix_fmt, space, color_range = kind
            encoder = cast(VideoCodecContext, av.CodecContext.create(codec, "w")) if time else stream.codec_context
            if time:
                encoder.options, encoder.framerate = dict(options), Fraction(25)
            encoder.width, encoder.height, encoder.pix_fmt = *size, pix_fmt
            encoder.time_base, encoder.gop_size = Fraction(1, 25), 8
            encoder.colorspace, encoder.color_range = space, color_range
            for picture in (*blends(*size), None):
                frame = None
                if picture is not None:
                    matrix = {2: 5, 6: 5}.get(space, space)  # as swscale calls it
                    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(
                        format=pix_fmt, dst_colorspace=matrix, dst_color_range=color_range
                    )
                    frame.colorspace, frame.color_range = space, color_range
                    frame.pts, frame.time_base = time, Fraction(1, 25)
                    time += 1
                for packet in encoder.encode(frame):
                    packet.stream = stream
                    packet.time_base = packet.time_base or Fraction(1, 25)
                    container.mux(packet)
    return path


def native(path: Path) -> list[av.VideoFrame]:
    """A full decode by one thread, each frame with its own marks."""
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "NONE"
        return [*container.decode(video=0)]


def given(path: Path, index: VideoIndex) -> dict[int, av.VideoFrame]:
    """All frames, decoded in one go."""
    return dict(decode(str(path), index, np.arange(index.frames)))


@pytest.mark.parametrize("name", CHANGES)
def test_colours_are_those_of_the_frame(tmp_path: Path, name: str) -> None:
    """A frame of another matrix or range is within rounding of its own conversion, however it is reached or kept."""
    codec, *kinds = CHANGES[name]
    path = changing(tmp_path / name, codec, *((kind, (128, 96)) for kind in kinds))
    index, frames = probe(str(path)), native(path)
    assert index.mode == ("container" if path.suffix == ".ts" else "packets")
    assert index.frames == len(frames) == 2 * LENGTH
    assert [(int(f.colorspace), int(f.color_range)) for f in (frames[0], frames[-1])] == [kind[1:] for kind in kinds]
    ours = given(path, index)
    for number, frame in enumerate(frames):
        apart = np.abs(to_rgb(frame).astype(int) - to_rgb(ours[number]))
        assert apart.max() <= (0 if number < LENGTH else 6), number
        assert apart.mean() < 2.5
    for number in (0, LENGTH - 1, LENGTH, LENGTH + 5, 2 * LENGTH - 1):
        (_, alone), *_ = decode(str(path), index, np.array([number]))
        assert np.array_equal(planes_of(alone), planes_of(ours[number]))
        kept = frame_from_planes(planes_of(alone), index)
        assert np.array_equal(to_rgb(kept, 40, 50), to_rgb(ours[number], 40, 50))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["between.ts", "between.mkv"])
def test_what_a_decoder_has_seen_decides_nothing(tmp_path: Path, name: str, threads: int) -> None:
    """Colours that only some of the frames state are not taken for those of others that are decoded after them."""
    silent, stating = ("yuv420p", 2, 0), ("yuv420p", 1, 1)
    path = changing(tmp_path / name, "libx264", *((kind, (128, 96)) for kind in (silent, stating, silent)))
    index = probe(str(path))
    assert (index.mode != "counted", index.color_space, index.color_range) == (True, 2, 0)
    together = dict(decode(str(path), index, np.arange(index.frames), threads=threads))
    for number in range(0, index.frames, 5):
        (_, alone), *_ = decode(str(path), index, np.array([number]))
        assert np.array_equal(planes_of(alone), planes_of(together[number])), number


def test_what_is_not_stated_is_no_change(tmp_path: Path) -> None:
    """A frame without marks is the video's: a decoder that is fed without the container knows none of its marks."""
    path = encode(tmp_path / "clip.mp4", frames=3, colors=(1, 2), pix_fmt="yuvj420p")
    index = probe(str(path))
    frame = native(path)[0]
    assert matched(frame, index) is frame
    frame.colorspace, frame.color_range = 2, 0
    assert matched(frame, index) is frame


@pytest.mark.parametrize("name", ["small.mkv", "small.ts"])
def test_sizes_are_changed_by_the_exact_flags(tmp_path: Path, name: str) -> None:
    """A frame of another size is scaled with exact rounding, whatever the processor has (law 3)."""
    kind: Kind = ("yuv420p", 1, 1)
    path = changing(tmp_path / name, "libx264", (kind, (128, 96)), (kind, (80, 64)))
    index = probe(str(path))
    ours = given(path, index)
    for number, frame in enumerate(native(path)[LENGTH:], LENGTH):
        wanted = VideoReformatter().reformat(frame, 128, 96, "yuv420p", interpolation=INTERPOLATIONS["bicubic"])
        assert np.array_equal(planes_of(wanted), planes_of(ours[number]))
        (_, alone), *_ = decode(str(path), index, np.array([number]))
        assert np.array_equal(planes_of(alone), planes_of(ours[number]))
