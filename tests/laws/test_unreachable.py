"""Files that a network or a disk does not give just now: an error at most, and never another video on record.

Pauses between tries are left out in this process, also in workers that are threads of it.
"""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.servers.web import WebServer, web_server
from tests.tiny import encode_folder, open_cache, pixels, places, same, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import Full, SourceUnreachable
from viewcache.materializer.media import reaching
from viewcache.materializer.media.reaching import OutOfReach, failure_of, is_absent, is_passing, reach
from viewcache.materializer.media.source import LocalSource

POLICIES = [{"on_bad_video": "replace"}, {"on_bad_video": "raise", "on_missing_video": "raise"}]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "PAUSES_S", (0.0, 0.0, 0.0))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six videos."""
    return encode_folder(tmp_path_factory.mktemp("unreachable"), {f"v{k}.mp4": 40 + k for k in range(6)})


@pytest.fixture
def server(videos: Path) -> Iterator[WebServer]:
    """A web server that has them."""
    with web_server() as server:
        server.files = {f"/{each.name}": each.read_bytes() for each in videos.iterdir()}
        yield server


@pytest.fixture
def urls(server: WebServer, tmp_path: Path) -> Path:
    """A list file of their URLs."""
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"http://127.0.0.1:{server.server_port}{name}\n" for name in sorted(server.files)))
    return listed


def opened(store: Path, source: Path, *, workers: str = "processes", **dataset: Any) -> Cache:
    """A cache that plans an epoch at a time."""
    cache = {"epochs_per_generation": 1, "worker_kind": workers, "keep": "leaves"}
    return open_cache(store, source, cache=cache, **dataset)


@pytest.mark.parametrize(("status", "why"), [(503, "just now"), (403, "check the credentials")])
def test_a_server_that_is_down_is_an_error_and_no_more(
    tmp_path: Path, server: WebServer, urls: Path, status: int, why: str
) -> None:
    """Whoever reads meanwhile is told; afterwards all is as if it had been there all the time."""
    policy: dict[str, Any] = {"on_bad_video": "replace", "epochs": 2}
    with opened(tmp_path / "truth", urls, **policy) as cache:
        truth = pixels(cache)
    with opened(tmp_path / "s", urls, **policy) as cache:
        assert np.array_equal(cache.read("train", 0, 0).video, truth[0, 0].video)
        server.status = status
        with pytest.raises(SourceUnreachable, match=rf"{status}.*{why}|{why}.*{status}"):
            [cache.read("train", 1, iteration) for iteration in range(3)]
        server.status = 0
        assert same(pixels(cache), truth)
        assert not sql(cache, "select * from substitutions")
    with opened(tmp_path / "s", urls, **policy) as cache:
        assert same(pixels(cache), truth)


def test_a_server_that_is_down_opens_nothing(tmp_path: Path, server: WebServer, urls: Path) -> None:
    """Neither the first time nor later is its silence taken for files that are gone."""
    server.status = 503
    with pytest.raises(SourceUnreachable, match=r"cannot be listed just now.*503"):
        opened(tmp_path / "s", urls)
    server.status = 0
    with opened(tmp_path / "s", urls) as cache:
        truth = pixels(cache)
    server.status = 503
    with pytest.raises(SourceUnreachable, match=r"cannot be listed just now.*503"):
        opened(tmp_path / "s", urls)
    server.status = 0
    with opened(tmp_path / "s", urls) as cache:
        assert not cache.warnings
        assert same(pixels(cache), truth)


def test_a_file_that_is_gone_is_gone(tmp_path: Path, server: WebServer, urls: Path) -> None:
    """A server that says so itself is believed, as before."""
    with opened(tmp_path / "s", urls) as cache:
        cache.read("train", 0, 0)
        del server.files["/v3.mp4"]
        pixels(cache)
        assert {str(name).rpartition("-")[2] for (name,) in sql(cache, "select video from substitutions")} == {"v3"}


class _Hiccup:
    """Opening a file fails some times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
        self.left = 0
        begin = LocalSource.__init__

        def fail(source: LocalSource, uri: str) -> None:
            if self.left and name in uri:
                self.left -= 1
                raise OSError(number, os.strerror(number), uri)
            begin(source, uri)

        monkeypatch.setattr(LocalSource, "__init__", fail)


@pytest.mark.parametrize("policy", POLICIES, ids=["replace", "raise"])
@pytest.mark.parametrize("failures", [1, 3, 4])
def test_a_network_file_system_that_stumbles(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, failures: int, policy: dict[str, Any]
) -> None:
    """One failure is tried again, and nobody hears of it; of several whoever reads is told, and reads again."""
    with opened(tmp_path / "truth", videos, workers="threads", **policy) as cache:
        truth = pixels(cache)
    hiccup = _Hiccup(monkeypatch, "v3", errno.ESTALE)
    with opened(tmp_path / "s", videos, workers="threads", **policy) as cache:
        assert len(sql(cache, "select * from videos where status = 'ok'")) == 6
        hiccup.left, told = failures, []
        for place in places(cache):
            try:
                cache.read("train", *place)
            except SourceUnreachable as error:
                told.append(str(error))
        assert len(told) == (failures > len(reaching.PAUSES_S))
        assert all("v3.mp4: cannot be opened just now" in each for each in told)
        assert same(pixels(cache), truth)
        assert not sql(cache, "select * from substitutions")


def test_what_may_pass() -> None:
    """Failures of networks and disks do; those of a path, of rights and of a file that is not there do not."""

    class ClientResponseError(Exception):
        def __init__(self, status: int) -> None:
            self.status = status

    def not_found(why: BaseException) -> FileNotFoundError:
        missing = FileNotFoundError("https://host/v.mp4")
        missing.__cause__ = why
        return missing

    refused, busy, gone = (ClientResponseError(status) for status in (403, 503, 410))
    passing = [OSError(errno.EIO, ""), ConnectionResetError(), TimeoutError(), busy, not_found(busy)]
    passing.append(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    lasting = [PermissionError(errno.EACCES, ""), OSError(errno.ELOOP, ""), refused, not_found(refused), ValueError()]
    assert all(map(is_passing, passing))
    assert not any(map(is_passing, lasting))
    absent = [FileNotFoundError(errno.ENOENT, ""), not_found(gone), not_found(ClientResponseError(404))]
    assert all(map(is_absent, absent))
    assert not any(map(is_absent, [*passing, *lasting]))
    denied = PermissionError(errno.EACCES, "")
    for where, error, kind in [
        ("https://host/v.mp4", busy, SourceUnreachable),
        ("https://host/v.mp4", refused, SourceUnreachable),
        ("https://host/v.mp4", absent[1], OutOfReach),
        ("s3://bucket/v.mp4", denied, SourceUnreachable),
        ("https://host/v.mp4", OSError("certificate verify failed"), SourceUnreachable),
        ("/data/v.mp4", denied, OutOfReach),
    ]:
        assert type(failure_of(where, "opened", error, "", is_far="://" in where)) is kind
    with pytest.raises(Full, match="too many open files"):
        failure_of("v.mp4", "opened", OSError(errno.EMFILE, ""), "", is_far=False)


def test_it_is_tried_again() -> None:
    """As often as there are pauses and once more; at once if it will not pass."""
    tries = []

    def fail(error: Exception) -> None:
        tries.append(error)
        raise error

    for error, often in [(OSError(errno.EIO, ""), 4), (PermissionError(errno.EACCES, ""), 1)]:
        with pytest.raises(OSError, match="Errno"):
            reach(lambda error=error: fail(error))  # type: ignore[misc]
        assert len(tries) == often
        tries.clear()
