"""Videos behind URLs: read in ranges, the same frames, and errors that name the file and no secret."""

from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tests.clips import digest, encode, sequential
from tests.servers.web import WebServer, web_server
from viewcache.errors import BadVideo, SourceUnreachable
from viewcache.materializer.media import reaching
from viewcache.materializer.media.decode import DecodeStats, decode
from viewcache.materializer.media.header import read_header
from viewcache.materializer.media.probe import probe
from viewcache.materializer.media.source import SMALL_BLOCK, Stamp, open_source, shown


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A server that is up."""
    with web_server() as server:
        yield server


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """An empty memory:// file system."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


@pytest.mark.parametrize(
    "name", ["h264_bframes.mp4", "h264_stream.ts", "vp9_hidden.webm", "mpeg4_bframes.avi", "av1.mp4"]
)
def test_remote_frames_are_the_same(
    name: str, family: Callable[[str], Path], memory: fsspec.AbstractFileSystem
) -> None:
    """A URL gives the frames of the local file, in the same mode."""
    path = family(name)
    memory.pipe_file(f"/clips/{name}", path.read_bytes())
    url = f"memory://clips/{name}"
    index, reference = probe(url), sequential(path)
    assert index.mode == probe(str(path)).mode
    wanted = np.array([0, 5, 17, 18, 44])
    got = {number: digest(frame) for number, frame in decode(url, index, wanted)}
    assert got == {number: reference[number][0] for number in wanted.tolist()}


@pytest.mark.parametrize("behind", [False, True])
def test_a_remote_header_costs_a_few_blocks(
    family: Callable[[str], Path], server: WebServer, tmp_path: Path, behind: bool
) -> None:
    """Of a file of two megabytes, its table in front of the pictures or behind them, a few small ranges travel."""
    path, padding = tmp_path / "clip.mp4", (2 << 20).to_bytes(4, "big") + b"free" + bytes((2 << 20) - 8)
    if behind:  # the table stands at the end; what is free lies between
        data = family("h264_bframes.mp4").read_bytes()
        at = data.index(b"moov") - 4
        path.write_bytes(data[:at] + padding + data[at:])
    else:
        path.write_bytes(encode(tmp_path / "front.mp4", muxer={"movflags": "faststart"}).read_bytes() + padding)
    server.files["/clip.mp4"] = path.read_bytes()
    with open_source(str(path)) as local:
        expected = read_header(local, 1 << 30)
    assert expected is not None
    with open_source(f"http://127.0.0.1:{server.server_port}/clip.mp4", SMALL_BLOCK) as remote:
        found = read_header(remote, 1 << 30)
    assert found is not None
    assert found._replace(stamp=expected.stamp) == expected
    assert server.sent <= 5 * SMALL_BLOCK


def test_only_ranges_travel(family: Callable[[str], Path], server: WebServer) -> None:
    """A clip out of a long file costs its groups of pictures in bytes, not a download."""
    data = family("h264_bframes.mp4").read_bytes()
    server.files["/clip.mp4"] = data
    url = f"http://127.0.0.1:{server.server_port}/clip.mp4"
    index = probe(url)
    assert index.etag == "version-1"
    server.sent = 0
    stats = DecodeStats()
    list(decode(url, index, np.array([30]), stats=stats))
    assert stats.bytes_read == server.sent < len(data) / 3


@pytest.mark.parametrize("name", ["h264_bframes.mp4", "h264_stream.ts", "vp9_hidden.webm", "mpeg4_bframes.avi"])
def test_a_scan_fetches_a_file_once(name: str, family: Callable[[str], Path], server: WebServer) -> None:
    """What is looked at twice, to check the order of frames or to find payloads, travels once."""
    server.files[f"/{name}"] = family(name).read_bytes()
    probe(f"http://127.0.0.1:{server.server_port}/{name}")
    assert server.sent == len(server.files[f"/{name}"])


def test_a_server_without_ranges_gives_no_wrong_bytes(family: Callable[[str], Path], server: WebServer) -> None:
    """A server that answers every range with the whole file is understood."""
    path = family("h264_bframes.mp4")
    server.files["/clip.mp4"] = path.read_bytes()
    server.ranges = False
    url = f"http://127.0.0.1:{server.server_port}/clip.mp4"
    index, reference = probe(url), sequential(path)
    assert {n: digest(frame) for n, frame in decode(url, index, np.array([30]))} == {30: reference[30][0]}


def test_a_replaced_object_is_noticed(family: Callable[[str], Path], memory: fsspec.AbstractFileSystem) -> None:
    """Another version under the same URL is not decoded by the old index."""
    memory.pipe_file("/clip.mp4", family("h264_bframes.mp4").read_bytes())
    index = probe("memory://clip.mp4")
    memory.pipe_file("/clip.mp4", family("h264_fragmented.mp4").read_bytes())
    with pytest.raises(BadVideo, match=r"memory://clip\.mp4: the file has changed"):
        list(decode("memory://clip.mp4", index, np.array([0])))


def test_what_is_not_there(memory: fsspec.AbstractFileSystem, server: WebServer) -> None:
    """A missing object and an unknown scheme are bad videos, by name."""
    with pytest.raises(BadVideo, match=r"memory://nothing\.mp4: no such file"):
        probe("memory://nothing.mp4")
    with pytest.raises(BadVideo, match=r"gone\.mp4: no such file"):
        probe(f"http://127.0.0.1:{server.server_port}/gone.mp4")
    with pytest.raises(BadVideo, match=r"nosuch://x\.mp4: cannot be opened"):
        probe("nosuch://x.mp4")


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """User, password and a signed URL's query stay out of messages."""
    assert shown("https://u:secret@host/a.mp4?X-Amz-Signature=abc#f") == "https://host/a.mp4"
    assert shown("s3://key:secret@bucket/a#b.mp4") == "s3://bucket/a#b.mp4"
    monkeypatch.setattr(reaching, "PAUSES_S", ())
    with pytest.raises(SourceUnreachable) as caught:
        probe("http://user:hunter2@127.0.0.1:9/a.mp4?token=hunter2")
    assert "hunter2" not in str(caught.value)
    fails = "404, message='Not Found', url=URL('https://u:hunter2@host/a.mp4?token=hunter2')"

    class Failing:
        def info(self, _: str) -> None:
            raise OSError(fails)

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda *_, **__: (Failing(), "a.mp4"))
    with pytest.raises(SourceUnreachable, match=r"URL\('https://host/a\.mp4'\)") as caught:
        probe("https://u:hunter2@host/a.mp4?token=hunter2")
    assert "hunter2" not in str(caught.value)


def test_versions() -> None:
    """An etag decides where both sides have one; else size and time."""
    assert Stamp(5, 7, "a").same(Stamp(5, 9, "a"))
    assert not Stamp(5, 7, "a").same(Stamp(5, 7, "b"))
    assert Stamp(5, 7).same(Stamp(5, 7, "b"))
    assert not Stamp(5, 7).same(Stamp(5, 8))


def test_a_source_closes_once(family: Callable[[str], Path]) -> None:
    """Closing twice is harmless, and reads past the end are short."""
    path = family("h264_bframes.mp4")
    with open_source(str(path)) as source:
        assert source.read(source.stamp.size - 3, 10) == path.read_bytes()[-3:]
        source.close()
    source.close()
