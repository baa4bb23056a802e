"""A picture that is attached to a file, as the cover of a song is, is no video of one frame, and hides none."""

import io
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest
from av.video.stream import VideoStream
from PIL import Image

from tests.clips import pictures
from viewcache.errors import BadVideo
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.scan_worker import look
from viewcache.materializer.media.probe import probe

MOST = 1 << 30
ATTACHED = 0x400
"""AV_DISPOSITION_ATTACHED_PIC."""
SIZE = (64, 48)


def cover() -> bytes:
    """A JPEG file, larger than a frame of the videos here."""
    data = io.BytesIO()
    Image.fromarray(next(pictures(1, 320, 320))).save(data, "jpeg")
    return data.getvalue()


def song(path: Path, *, codec: str | None = None, frames: int = 0) -> Path:
    """A second of sound with a cover, in MP4 or Matroska as players write it; with a video where a codec is named."""
    with av.open(str(path), "w") as container:
        video = None
        if codec is not None:
            video = cast(VideoStream, container.add_stream(codec, rate=25, options={"threads": "1"}))
            video.width, video.height = SIZE
            video.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        sound = container.add_stream("aac", rate=16_000, layout="mono")
        packet = None
        if path.suffix == ".mkv":
            container.add_attachment("cover.jpg", "image/jpeg", cover())
        else:
            picture = container.add_stream("mjpeg", rate=25)
            picture.width = picture.height = 320
            picture.pix_fmt = "yuvj420p"
            picture.disposition = av.stream.Disposition.attached_pic
            packet = av.Packet(cover())
            packet.stream, packet.pts, packet.dts, packet.time_base = picture, 0, 0, Fraction(1, 25)
            packet.is_keyframe = True
        container.start_encoding()
        if packet is not None:
            container.mux(packet)
        for number, each in enumerate(pictures(frames, *SIZE)):
            assert video is not None
            frame = av.VideoFrame.from_ndarray(each, format="rgb24")
            frame.pts = number
            container.mux(video.encode(frame))
        if video is not None:
            container.mux(video.encode(None))
        tone = np.sin(np.arange(16_000) / 9).astype(np.float32)[None]
        for at in range(0, 15_360, 1024):
            samples = av.AudioFrame.from_ndarray(np.ascontiguousarray(tone[:, at : at + 1024]), "fltp", "mono")
            samples.sample_rate, samples.pts = 16_000, at
            container.mux(sound.encode(samples))
        container.mux(sound.encode(None))
    with av.open(str(path)) as container:
        assert [each.type for each in container.streams if int(each.disposition) & ATTACHED] == ["video"]
    return path


@pytest.mark.parametrize("name", ["song.mp4", "song.mkv"])
def test_a_song_with_a_cover_is_no_video(tmp_path: Path, name: str) -> None:
    """It is a bad video, by its header as by its packets, and the reason says what the file holds."""
    path = song(tmp_path / name)
    why = f"{path}: no video stream (the file holds a cover picture, audio)"
    with pytest.raises(BadVideo) as bad:
        probe(str(path))
    assert str(bad.value) == why
    for how in ProbeMode:
        found = look(str(path), MOST, how)
        assert (found.facts, found.error, found.lasting) == (None, why, True)


@pytest.mark.parametrize("frames", [1, 20])
@pytest.mark.parametrize("codec", ["libx264", "mpeg4", "mjpeg"])
@pytest.mark.parametrize("kind", ["mp4", "mkv"])
def test_a_video_with_a_cover_is_its_video(tmp_path: Path, kind: str, codec: str, frames: int) -> None:
    """Also where the cover is larger, and the video as short: by its header and by its packets."""
    path = song(tmp_path / f"clip.{kind}", codec=codec, frames=frames)
    for how in ProbeMode:
        found = look(str(path), MOST, how)
        assert found.error == ""
        assert found.facts is not None
        assert (found.facts.frames, found.facts.shown_size) == (frames, SIZE[::-1])
