"""Laws 3 and 4 behind a web server that gives no ETag: the other headers that it has tell one version from the next."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import viewcache
from tests.images.small import config as of_images
from tests.servers.web import WebServer, web_server
from tests.tiny import SIZE, config, encode_folder, pixels, same, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, SourceUnreachable

MARKS = {
    "Last-Modified": ("Tue, 14 Nov 2023 22:13:20 GMT", "Thu, 09 Oct 2025 08:53:20 GMT"),
    "Content-MD5": ("Q2hlY2sgSW50ZWdyaXR5IQ==", "Q2hlY2sgSW50ZWdyaXRZIQ=="),
    "Digest": (
        "SHA-256=X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=",
        "SHA-256=4REjxQ4yrqUVicfSKYNO/cF9zNj5ANbzgDZt3/h3Qxo=",
    ),
}
"""Header → what it says of one version, and of the next."""
HEADERS = pytest.mark.parametrize("header", MARKS)
FIRST, NEXT = 0, 1


def save(folder: Path, shades: dict[str, int]) -> Path:
    """Images of one shade: every one has the same size in bytes."""
    folder.mkdir(exist_ok=True)
    for name, shade in shades.items():
        Image.fromarray(np.full((*SIZE[::-1], 3), shade, np.uint8)).save(folder / name)
    return folder


class Site:
    """A web server, and a list file of what is on it."""

    def __init__(self, server: WebServer, folder: Path) -> None:
        self.server = server
        self.list_file = folder / "list.txt"

    def put(self, folder: Path) -> None:
        """Have the files of a folder, and no others."""
        self.server.files = {f"/{each.name}": each.read_bytes() for each in folder.iterdir()}
        urls = (f"http://127.0.0.1:{self.server.server_port}{name}\n" for name in sorted(self.server.files))
        self.list_file.write_text("".join(urls))

    def folder(self, folder: Path, pattern: str = "") -> Any:
        """The URL of a page that lists the files of a folder, or of some of them."""
        files = (each for each in folder.rglob("*") if each.is_file())
        self.server.files = {f"/data/{each.relative_to(folder)}": each.read_bytes() for each in files}
        return f"http://127.0.0.1:{self.server.server_port}/data/{pattern}"

    def mark(self, header: str, version: int) -> None:
        """Give this header, and no other mark of a version."""
        self.server.marks = {header: MARKS[header][version]}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A server without marks."""
    with web_server() as server:
        server.marks = {}
        yield Site(server, tmp_path)


def images(site: Site, tmp_path: Path, **dataset: Any) -> Cache:
    """A cache of the site's images."""
    return viewcache.open(of_images(tmp_path / "s", site.list_file, epochs=2, **dataset))


def videos(site: Site, tmp_path: Path, **dataset: Any) -> Cache:
    """A cache of the site's videos."""
    return viewcache.open(config(tmp_path / "s", site.list_file, epochs=2, **dataset))


@HEADERS
def test_an_image_that_is_replaced_is_told(site: Site, tmp_path: Path, header: str) -> None:
    """Of the same size, but the server says that it is another one: as a local file it is refused, or a new video."""
    site.put(save(tmp_path / "data", {f"{k}.bmp": 40 for k in range(4)}))
    site.mark(header, FIRST)
    with images(site, tmp_path) as cache:
        cache.read("train", 0, 0)
        assert not cache.changes("train")
    site.put(save(tmp_path / "data", {f"{k}.bmp": 200 for k in range(4)}))
    site.mark(header, NEXT)
    with pytest.raises(BadInput, match="has another size or time than when task 'train' drew it"):
        images(site, tmp_path)
    with images(site, tmp_path, on_changed_video="version") as cache:
        (change,) = cache.changes("train")
        assert "4 files were replaced" in str(change)
        shown = cache.read("train", 0, 0)  # nothing is stored of what was drawn, so others stand in, under their names
        assert all(each.endswith(".v2") for each in shown.videos)
        assert shown.video.min() > 190


def test_a_video_that_is_replaced_is_told(site: Site, tmp_path: Path) -> None:
    """Its packets tell so anyway when it is decoded; that the opening tells lets ``on_changed_video`` decide."""
    data = encode_folder(tmp_path / "data", {f"{k}.mp4": 40 for k in range(4)})
    most = max(each.stat().st_size for each in data.iterdir()) + 64
    padded(data, most)
    site.put(data)
    site.mark("Last-Modified", FIRST)
    with videos(site, tmp_path) as cache:
        cache.read("train", 0, 0)
    padded(encode_folder(data, {f"{k}.mp4": 36 for k in range(4)}), most)
    site.put(data)
    site.mark("Last-Modified", NEXT)
    with pytest.raises(BadInput, match="has other content than when task 'train' drew it"):
        videos(site, tmp_path)


def padded(folder: Path, size: int) -> Path:
    """Let all files of a folder have one size: a box that is free is no part of a video."""
    for each in folder.iterdir():
        left = size - each.stat().st_size
        each.write_bytes(each.read_bytes() + left.to_bytes(4, "big") + b"free" + bytes(left - 8))
    return folder


@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost catalog"])
@pytest.mark.parametrize("kind", [images, videos])
def test_a_server_that_begins_to_tell_replaces_nothing(
    site: Site, tmp_path: Path, kind: Callable[..., Cache], lost: bool
) -> None:
    """What was recorded without a mark, as by older releases, is as it was: nothing is told, and keys stay."""
    if kind is images:
        site.put(save(tmp_path / "data", {f"{k}.bmp": 40 + k for k in range(4)}))
    else:
        site.put(encode_folder(tmp_path / "data", {f"{k}.mp4": 40 + k for k in range(4)}))
    with kind(site, tmp_path) as cache:
        before, keys = pixels(cache), sql(cache, "select video, key from videos order by video")
    for _ in range(2):
        if lost:
            for each in (tmp_path / "s").glob("catalog.duckdb*"):
                each.unlink()
        site.mark("Last-Modified", FIRST)
        with kind(site, tmp_path, probe="full") as cache:
            assert not cache.changes("train")
            assert not cache.warnings
            assert same(pixels(cache), before)
            assert sql(cache, "select video, key from videos order by video") == keys


def test_what_a_server_began_to_tell_counts_from_then_on(site: Site, tmp_path: Path) -> None:
    """The opening that sees a mark for the first time has it recorded, so the next replacement is told."""
    site.put(save(tmp_path / "data", {f"{k}.bmp": 40 for k in range(4)}))
    with images(site, tmp_path) as cache:
        cache.read("train", 0, 0)
    site.mark("Last-Modified", FIRST)
    images(site, tmp_path).close()
    site.put(save(tmp_path / "data", {f"{k}.bmp": 200 for k in range(4)}))
    site.mark("Last-Modified", NEXT)
    with pytest.raises(BadInput, match="has another size or time"):
        images(site, tmp_path)


def test_a_server_that_tells_otherwise_replaces_nothing(site: Site, tmp_path: Path) -> None:
    """Another kind of mark than before says nothing about the file; from then on that kind tells."""
    site.put(save(tmp_path / "data", {f"{k}.bmp": 40 + k for k in range(4)}))
    site.mark("Last-Modified", FIRST)
    with images(site, tmp_path) as cache:
        before = pixels(cache)
    for marks in ({"ETag": '"one"'}, {"Digest": MARKS["Digest"][FIRST]}, {}, {"ETag": '"one"'}):
        site.server.marks = marks
        with images(site, tmp_path, probe="full") as cache:
            assert not cache.changes("train")
            assert same(pixels(cache), before)
    site.put(save(tmp_path / "data", {f"{k}.bmp": 200 for k in range(4)}))
    site.server.marks = {"ETag": '"two"'}
    with pytest.raises(BadInput, match="has another size or time"):
        images(site, tmp_path)


def test_a_bad_image_that_is_mended_comes_in(site: Site, tmp_path: Path) -> None:
    """Though it has the size that it had when it was bad, and the server told no version then."""
    data = save(tmp_path / "data", {f"{k}.bmp": 40 + k for k in range(4)})
    whole = (data / "0.bmp").read_bytes()
    (data / "0.bmp").write_bytes(bytes(len(whole)))
    site.put(data)
    with images(site, tmp_path, on_bad_image="replace") as cache:
        assert sql(cache, "select count(*) from videos where status = 'bad'") == [(1,)]
    (data / "0.bmp").write_bytes(whole)
    site.put(data)
    site.mark("Last-Modified", FIRST)
    with images(site, tmp_path) as cache:
        assert sql(cache, "select count(*) from videos where status = 'bad'") == [(0,)]
        pixels(cache)


@pytest.mark.parametrize("more", ["", "*.bmp"], ids=["folder", "glob"])
def test_what_a_page_lists_by_name_is_known_as_well(site: Site, tmp_path: Path, more: str) -> None:
    """A page has no sizes: each file is asked for its own, so what is known is not read again, and changes are told."""
    url = site.folder(save(tmp_path / "data", {f"{k}.bmp": 40 for k in range(4)}), more)
    site.mark("Last-Modified", FIRST)
    with viewcache.open(of_images(tmp_path / "s", url, epochs=2)) as cache:
        cache.read("train", 0, 0)
    sent = site.server.sent
    with viewcache.open(of_images(tmp_path / "s", url, epochs=2)) as cache:
        assert not cache.changes("train")
    assert site.server.sent - sent < 4 * len(site.server.page("/data/"))
    site.folder(save(tmp_path / "data", {f"{k}.bmp": 200 for k in range(4)}))
    site.mark("Last-Modified", NEXT)
    with pytest.raises(BadInput, match="has another size or time"):
        viewcache.open(of_images(tmp_path / "s", url, epochs=2))


def test_a_page_may_list_more_as_a_dataset_grows(site: Site, tmp_path: Path) -> None:
    """What has joined stays, and what is new joins."""
    data = encode_folder(tmp_path / "data", {f"{k}.mp4": 40 + k for k in range(3)})
    url = site.folder(data)
    given = config(tmp_path / "s", url, epochs=6, input_source="streaming", settle=0, sampling={"videos_per_batch": 1})
    with viewcache.open(given) as cache:
        assert cache.task("train").iterations(0) == 3
        site.folder(encode_folder(data, {"3.mp4": 43}))
        counts = [cache.task("train").iterations(epoch) for epoch in range(6)]
        assert counts[:2] == [3, 3]
        assert counts[-1] == 4
        assert sql(cache, "select count(*) from videos where status = 'ok'") == [(4,)]


def test_a_file_that_goes_as_it_is_listed_is_not_there(site: Site, tmp_path: Path) -> None:
    """A page that names it still does not stop the others."""
    url = site.folder(save(tmp_path / "data", {f"{k}.bmp": 40 for k in range(4)}))
    page, files = site.server.page, site.server.files
    site.server.page = lambda folder: page(folder) + b'<a href="gone.bmp">gone.bmp</a>'  # type: ignore[method-assign]
    with viewcache.open(of_images(tmp_path / "s", url, epochs=2)) as cache:
        assert sql(cache, "select count(*) from videos") == [(len(files),)]


@pytest.mark.parametrize("pattern", ["", "**/*.bmp"], ids=["folder", "glob"])
def test_a_page_that_fails_is_no_empty_folder(site: Site, tmp_path: Path, pattern: str) -> None:
    """Its files are not gone; a folder that a page names and that is not there is left out."""
    data = save(tmp_path / "data", {f"{k}.bmp": 40 for k in range(4)})
    save(data / "more", {"4.bmp": 40})
    url = site.folder(data, pattern)
    of_it = "select count(*) from videos where status <> 'gone'"
    with viewcache.open(of_images(tmp_path / "s", url, epochs=2)) as cache:
        assert sql(cache, of_it) == [(5,)]
    site.server.statuses = {"/data/more/": 500}
    with pytest.raises(SourceUnreachable, match="cannot be listed just now"):
        viewcache.open(of_images(tmp_path / "s", url, epochs=2))
    site.server.statuses = {"/data/more/": 404}
    with viewcache.open(of_images(tmp_path / "s", url, epochs=2)) as cache:
        assert sql(cache, of_it) == [(4,)]
    site.server.statuses = {}
    with viewcache.open(of_images(tmp_path / "s", url, epochs=2)) as cache:
        assert sql(cache, of_it) == [(5,)]
