"""Hostile, broken and odd files: each is named with its reason, or indexed right; none is trusted."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from tests.clips import digest, encode, real_clip, sequential
from viewcache.errors import BadVideo
from viewcache.materializer.media.decode import decode
from viewcache.materializer.media.index import HIDDEN
from viewcache.materializer.media.probe import probe


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A port and the list of what was sent to it."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        done = threading.Event()

        def listen() -> None:
            while not done.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                heard.append(connection.recv(100))
                connection.close()

        thread = threading.Thread(target=listen)
        thread.start()
        yield server.getsockname()[1], heard
        done.set()
        thread.join()


def test_playlists_open_nothing(
    family: Callable[[str], Path], tmp_path: Path, listener: tuple[int, list[bytes]]
) -> None:
    """A playlist, concat script or SDP that poses as a video is refused; no other file and no address is touched."""
    port, heard = listener
    other = family("h264_bframes.mp4")
    texts = {
        "hls_file.mp4": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile://{other}\n#EXT-X-ENDLIST\n",
        "hls_net.mp4": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:{port}/a.ts\n#EXT-X-ENDLIST\n",
        "concat.mp4": f"ffconcat version 1.0\nfile '{other}'\n",
        "dash.mkv": f'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>http://127.0.0.1:{port}/</BaseURL></MPD>',
        "sdp.mp4": f"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video {port} RTP/AVP 96\n",
        "plain.avi": "hello\n" * 100,
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(BadVideo, match=f"{name}: not a video that can be opened"):
            probe(str(path))
    assert heard == []


@pytest.mark.parametrize("name", ["concat:a|b.mp4", "subfile,,start,0,end,9,,:x.mp4", "http:x.mp4", "a%20b #?.mp4"])
def test_a_path_is_a_path(name: str, family: Callable[[str], Path], tmp_path: Path) -> None:
    """A file whose name looks like one of FFmpeg's protocols, or like a URL's parts, is just that file."""
    path = tmp_path / name
    path.write_bytes(family("h264_bframes.mp4").read_bytes())
    assert probe(str(path)).frames == 60


def test_what_is_no_file(tmp_path: Path) -> None:
    """A missing file, an empty one, a folder and a pipe are refused at once, by name."""
    os.mkfifo(tmp_path / "pipe.mp4")
    (tmp_path / "empty.mp4").touch()
    refused = {
        "pipe.mp4": "not a regular file",
        "gone.mp4": "no such file",
        ".": "not a regular file",
        "empty.mp4": r"empty\.mp4: an empty file; copy it again",
    }
    for name, reason in refused.items():
        with pytest.raises(BadVideo, match=reason):
            probe(str(tmp_path / name))


def test_frames_too_large_are_not_decoded(tmp_path: Path) -> None:
    """A 12000x12000 frame is refused by its header, with the size."""
    path = tmp_path / "huge.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("png", rate=25)
        stream.width, stream.height, stream.pix_fmt = 12000, 12000, "monob"
        container.mux(stream.encode(av.VideoFrame(12000, 12000, "monob")))
        container.mux(stream.encode(None))
    with pytest.raises(BadVideo, match=r"huge\.avi: frames of 12000x12000 have more pixels than max_pixels allows"):
        probe(str(path))


def test_a_header_that_lies_about_size(tmp_path: Path) -> None:
    """The stream's own size counts, whatever the container says."""
    path = encode(tmp_path / "liar.avi", "mjpeg", pix_fmt="yuvj420p", frames=5, size=(640, 480))
    data = path.read_bytes().replace((640).to_bytes(4, "little") + (480).to_bytes(4, "little"), b"\x40\0\0\0\x30\0\0\0")
    path.write_bytes(data)
    with pytest.raises(BadVideo, match=r"liar\.avi: "):
        probe(str(path), max_pixels=64 * 48)


def test_no_video_stream(tmp_path: Path) -> None:
    """A sound file is refused with what it holds."""
    path = tmp_path / "song.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=48000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 48000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(BadVideo, match=r"song\.mp4: no video stream \(the file holds audio\)"):
        probe(str(path))


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_truncated_file_says_so(share: float, family: Callable[[str], Path], tmp_path: Path) -> None:
    """What is missing is named, and what is left is numbered and decoded as in a full sequential decode."""
    whole = encode(tmp_path / "whole.mp4", muxer={"movflags": "faststart"}, frames=80)
    path = tmp_path / "cut.mp4"
    data = whole.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    index = probe(str(path))
    assert index.damage.startswith("truncated: its header lists 80 packets")
    reference = sequential(whole)
    given = dict(decode(str(path), index, np.arange(index.frames - 3)))
    assert all(digest(frame) == reference[number][0] for number, frame in given.items())


def test_a_header_at_the_end_that_is_cut_off(family: Callable[[str], Path], tmp_path: Path) -> None:
    """An MP4 without its index is no video."""
    path = tmp_path / "cut.mp4"
    data = family("h264_bframes.mp4").read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BadVideo, match=r"cut\.mp4: not a video that can be opened"):
        probe(str(path))


def test_real_damage_is_found() -> None:
    """The corrupt and the truncated real clip are known to be damaged before anything is planned on them."""
    assert probe(str(real_clip("edge/corrupt_720p_h264.mp4"))).damage == (
        "packet 30 cannot be decoded (Invalid data found when processing input)"
    )
    assert probe(str(real_clip("edge/truncated_1080p_h264.mp4"))).damage == (
        "truncated: its header lists 745 packets, 6 are in the file"
    )


def copied(source: Path, to: Path, skip: int) -> Path:
    """A copy of a clip without its first packets."""
    with av.open(str(source)) as container, av.open(str(to), "w") as out:
        stream = container.streams.video[0]
        target = out.add_stream_from_template(stream)
        for number, packet in enumerate(container.demux(stream)):
            if number >= skip and packet.dts is not None:
                packet.stream = target
                out.mux(packet)
    return to


@pytest.mark.parametrize(
    ("name", "suffix"), [("h264_stream.ts", "ts"), ("hevc_open_gop.mp4", "ts"), ("vp8_hidden.webm", "webm")]
)
@pytest.mark.parametrize("skip", [1, 3, 14])
def test_a_stream_that_starts_in_the_middle(
    name: str, suffix: str, skip: int, family: Callable[[str], Path], tmp_path: Path
) -> None:
    """Packets before the first key frame give no frames, or what a sequential decode makes of them; numbers agree."""
    path = copied(family(name), tmp_path / f"cut.{suffix}", skip)
    reference, index = sequential(path), probe(str(path))
    assert index.frames == len(reference)
    stats_free = dict(decode(str(path), index, np.arange(20, index.frames)))
    assert all(digest(frame) == reference[number][0] for number, frame in stats_free.items())


def test_hidden_packets_are_not_frames(tmp_path: Path) -> None:
    """An edit list that cuts off the first packets leaves them to be fed, and frame 0 is the first one shown."""
    path = encode(tmp_path / "edit.mp4", options={"bf": "2"}, frames=40)
    data = bytearray(path.read_bytes())
    at = data.index(b"elst") + 16  # media time of the first edit: start a fifth of a second later
    later = int.from_bytes(data[at : at + 4], "big") + 5 * 512
    data[at : at + 4] = later.to_bytes(4, "big")
    path.write_bytes(data)
    reference, index = sequential(path), probe(str(path))
    assert index.frames == len(reference) < 40
    assert np.count_nonzero(index.flags & HIDDEN) == 40 - index.frames
    frames = dict(decode(str(path), index, np.arange(index.frames)))
    assert [digest(frames[number]) for number in range(index.frames)] == [each[0] for each in reference]


def test_a_change_of_size_in_mid_stream(tmp_path: Path) -> None:
    """Frames of another size are brought to the video's first size, so that every frame of a video is alike."""
    parts = [encode(tmp_path / f"{width}.ts", size=(width, 96), frames=24) for width in (128, 192)]
    path = tmp_path / "both.ts"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    index = probe(str(path))
    sizes = {(frame.width, frame.height) for _, frame in decode(str(path), index, np.arange(index.frames))}
    assert sizes == {(128, 96)}


@pytest.mark.parametrize(
    "name", ["h264_bframes.mp4", "vp9_hidden.webm", "mpeg4_bframes.avi", "h264_stream.ts", "hevc_open_gop.mp4"]
)
def test_mutated_files_raise_nothing_else(name: str, family: Callable[[str], Path], tmp_path: Path) -> None:
    """Flipped, cut, doubled and zeroed bytes give an index or BadVideo naming the file, never another exception."""
    good, rng = family(name).read_bytes(), np.random.default_rng(11)
    path = tmp_path / f"mutant{family(name).suffix}"
    for trial in range(25):
        data = bytearray(good)
        at = int(rng.integers(0, len(data) if trial % 2 else min(len(data), 2000)))
        match trial % 5:
            case 0:
                data[at] ^= 1 << int(rng.integers(0, 8))
            case 1:
                data[at : at + 64] = rng.integers(0, 256, 64, dtype=np.uint8).tobytes()
            case 2:
                del data[at : at + int(rng.integers(1, 400))]
            case 3:
                data[at:at] = data[at : at + 300]
            case _:
                data[at : at + 200] = bytes(200)
        path.write_bytes(data)
        try:
            index = probe(str(path))
            list(decode(str(path), index, np.arange(index.frames)))
        except BadVideo as bad:
            assert "mutant" in str(bad)  # noqa: PT017  -- a mutant may also be whole
