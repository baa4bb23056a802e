"""Folders of videos for laws, which are never written (law 6 watches one); and what makes a few videos a large one."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clips import encode, fill_last_packet
from tests.faults.caches import FRAMES, encode_one, encode_videos
from tests.tiny import encode_folder
from viewcache.errors import Closed
from viewcache.materializer.dataset import headers, listing
from viewcache.materializer.tasks import early
from viewcache.materializer.tasks import task as tasks


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos: the last batch of two is short."""
    return encode_folder(tmp_path_factory.mktemp("laws"), {f"v{k}.mp4": 40 + 3 * k for k in range(5)})


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven clips: one whose header counts a frame too many, and one in a container without a table of packets."""
    folder = encode_videos(tmp_path_factory.mktemp("early"), 6)
    encode(folder / "v2.mp4", "libx265", frames=FRAMES, gop=10)
    fill_last_packet(folder / "v2.mp4")
    encode_one(folder / "v9.mkv", 9)
    return folder


@pytest.fixture
def broken(tmp_path: Path, folder: Path) -> Path:
    """The folder, and in it a file without a header and one with a header and no pictures."""
    mine = Path(shutil.copytree(folder, tmp_path / "broken"))
    (mine / "v1.mp4").write_bytes(b"\0" * 5_000)
    data = bytearray((mine / "v4.mp4").read_bytes())
    at = data.index(b"mdat") + 4
    end = at - 8 + int.from_bytes(data[at - 8 : at - 4], "big")
    data[at:end] = os.urandom(end - at)
    (mine / "v4.mp4").write_bytes(data)
    return mine


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dataset is a large one: one header is read at open, and no generation is planned at once."""
    monkeypatch.setattr(tasks, "PLANNED_AT_ONCE", 0)
    monkeypatch.setattr(listing, "READ_AT_OPEN", 0)
    monkeypatch.setattr(listing, "FIRST_READ", 1)


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch, large: None) -> Iterator[threading.Event]:
    """The same, nobody looks at more headers than he needs, and nothing is planned before the event is set.

    Closing sets it, since that waits for the planner, which plans nothing then.
    """
    monkeypatch.setattr(early, "LOOKED_AT", 1)
    over: list[headers.Headers] = []
    go, wait, close = threading.Event(), headers.Headers.wait, headers.Headers.close

    def held(mine: headers.Headers) -> None:
        assert go.wait(60)
        if mine in over:
            raise Closed("as if it had been killed")
        wait(mine)

    def closed(mine: headers.Headers) -> None:
        over.append(mine)
        close(mine)
        go.set()

    monkeypatch.setattr(headers.Headers, "wait", held)
    monkeypatch.setattr(headers.Headers, "close", closed)
    yield go
    go.set()
