"""The page's server: nothing without its key or from elsewhere, nothing that holds it up, and the right pictures."""

import http.client
import json
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import viewcache
from tests.page.conftest import BUDGET, HOSTILE, Used, cookie, described, served, token
from viewcache.api.cli.main import main
from viewcache.api.config.find import locate
from viewcache.api.page import server as serving
from viewcache.api.page.server import PageServer
from viewcache.api.page.stored_clips import phrases_of
from viewcache.api.service.attached import AttachedCache
from viewcache.api.sheet import contact_sheet
from viewcache.errors import BadInput, NotFound
from viewcache.testing.leaks import settle

PLACES = ("/", "/style.css", "/page.js", "/icon.svg", "/overview.json", "/batch.json", "/clip.jpg", "/video.jpg", "/no")


def get(
    page: PageServer, target: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Status, body and headers of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    try:
        connection.request(method, target, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def error_of(page: PageServer, target: str) -> tuple[int, str]:
    """Status and message of a request that is refused."""
    status, body, _ = get(page, target, cookie(page))
    return status, json.loads(body)["error"]["message"]


def test_nothing_without_the_key(page: PageServer) -> None:
    """Every place says 403, and not even whether it is there; so with a wrong token or another page's cookie."""
    wrong = token(page)[:-1] + "~"
    for target in PLACES:
        assert get(page, target)[0] == 403
        assert get(page, f"{target}?token={wrong}")[0] == 403
        assert get(page, target, {"Cookie": f"viewcache_page_{page.port}={wrong}"})[0] == 403
        assert get(page, target, {"Cookie": f"viewcache_page_{page.port + 1}={token(page)}"})[0] == 403
        assert get(page, target, {"Cookie": '\x01";;=,viewcache'})[0] == 403
    assert get(page, f"/overview.json?token={token(page)}")[0] == 403  # the key in an address opens the page alone


def test_the_key_opens_the_page(page: PageServer) -> None:
    """The printed address gives the page, and a cookie that no script sees and no other site sends."""
    parts = urlsplit(page.url)
    status, body, headers = get(page, f"{parts.path}?{parts.query}")
    assert status == 200
    assert b"<title>viewcache</title>" in body
    assert headers["Set-Cookie"] == f"{cookie(page)['Cookie']}; HttpOnly; SameSite=Strict; Path=/"
    assert [get(page, target, cookie(page))[0] for target in PLACES] == [200] * 5 + [400] * 3 + [404]


def test_nothing_from_elsewhere(page: PageServer) -> None:
    """A name that leads here by DNS, or a page of another site or port, gets nothing, with the cookie too."""
    for host in ("evil.example", "127.0.0.1.evil.example", f"evil@127.0.0.1:{page.port}", "", "127.0.0.1:x"):
        assert get(page, "/overview.json", {**cookie(page), "Host": host})[0] == 403
        assert get(page, f"/?token={token(page)}", {"Host": host})[0] == 403
    for site in ("cross-site", "same-site", "nonsense"):
        assert get(page, "/overview.json", {**cookie(page), "Sec-Fetch-Site": site})[0] == 403
    for host in (f"127.0.0.1:{page.port}", "localhost:9000", "LOCALHOST"):
        assert get(page, "/overview.json", {**cookie(page), "Host": host})[0] == 200
    assert get(page, "/overview.json", {**cookie(page), "Sec-Fetch-Site": "same-origin"})[0] == 200


def test_every_answer_is_guarded(page: PageServer) -> None:
    """No inline script, no frame, no other type, no other origin: also of refusals. Nothing is kept by the browser."""
    for headers in (cookie(page), {}):
        for target in PLACES:
            _, _, given = get(page, target, headers)
            assert given["Content-Security-Policy"].startswith("default-src 'self';")
            assert "unsafe" not in given["Content-Security-Policy"]
            assert given["X-Content-Type-Options"] == "nosniff"
            assert given["X-Frame-Options"] == "DENY"
            assert "Access-Control-Allow-Origin" not in given
            assert "Python" not in given["Server"]
    assert get(page, "/overview.json", cookie(page))[2]["Cache-Control"] == "no-store"


def test_it_only_reads(page: PageServer) -> None:
    """There is no other method than GET."""
    for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
        assert get(page, "/overview.json", cookie(page), method)[0] == 501


def test_only_this_machine_is_served(page: PageServer) -> None:
    """It listens on 127.0.0.1 and on no other address of this machine."""
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", page.port), timeout=5):  # noqa: PT011 - any kind
        pass


def test_what_has_not_changed_costs_nothing(page: PageServer) -> None:
    """A page that has the overview gets 304 and no body; another run of the server has other tags."""
    status, body, headers = get(page, "/overview.json", cookie(page))
    assert (status, json.loads(body)["overview"]["tasks"][0]["task"]) == (200, "train")
    status, body, _ = get(page, "/overview.json", {**cookie(page), "If-None-Match": headers["ETag"]})
    assert (status, body) == (304, b"")


def test_answers_hold_no_secret(page: PageServer) -> None:
    """The key is in no answer's body."""
    for target in PLACES:
        assert token(page).encode() not in get(page, target, cookie(page))[1]


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/batch.json", 400, "task: the name of a task"),
        ("/batch.json?task=train&epoch=-1&iteration=0", 400, "epoch='-1'"),
        ("/batch.json?task=train&epoch=0&iteration=1e3", 400, "iteration='1e3'"),
        ("/batch.json?task=train&epoch=0&iteration=" + "9" * 10, 400, "at most nine digits"),
        ("/batch.json?task=train&epoch=0&iteration=%D9%A1", 400, "a whole number"),
        ("/batch.json?task=train&epoch=0&iteration=999999999", 404, "no batch train/0/999999999"),
        (f"/batch.json?task={quote(chr(39) + ' or 1=1 --')}&epoch=0&iteration=0", 404, "no batch ' or 1=1 --"),
        ("/batch.json?task=" + "x" * 300 + "&epoch=0&iteration=0", 400, "300 characters"),
        ("/clip.jpg?task=train&epoch=0&iteration=0", 400, "clip=''"),
        ("/clip.jpg?task=train&epoch=0&iteration=0&clip=99", 404, "not 99"),
        ("/video.jpg?id=999999", 404, "no video 999999"),
        ("/video.jpg?id=../../etc/passwd", 400, "a whole number"),
    ],
)
def test_bad_input_is_told(page: PageServer, target: str, status: int, words: str) -> None:
    """What was wrong, the value, and what is allowed; a text is a value and never SQL or a path."""
    found, message = error_of(page, target)
    assert found == status
    assert words in message


def test_odd_requests_are_refused(page: PageServer) -> None:
    """Paths that lead up, long ones, too many parameters."""
    assert get(page, "/../page.js", cookie(page))[0] == 404
    assert get(page, "/%2e%2e/server.py", cookie(page))[0] == 404
    assert get(page, "/overview.json?" + "x" * 3000, cookie(page))[0] == 414
    assert get(page, "/overview.json?" + "a=1&" * 20, cookie(page))[0] == 400


def silent(page: PageServer, count: int) -> list[socket.socket]:
    """Connections that say nothing."""
    return [socket.create_connection(("127.0.0.1", page.port), timeout=60) for _ in range(count)]


def test_who_says_nothing_holds_nobody_up(page: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """More connections than threads: the next is told to come again; the silent ones are cut off, and all is well."""
    monkeypatch.setattr(serving, "HEAD_S", 0.5)
    lines = silent(page, serving.THREADS)
    try:
        (extra,) = silent(page, 1)
        assert extra.recv(100).startswith(b"HTTP/1.0 503 ")
        extra.close()
        assert all(line.recv(100) == b"" for line in lines)
    finally:
        for line in lines:
            line.close()
    assert not settle(lambda: [status for status in [get(page, "/overview.json", cookie(page))[0]] if status != 200])


def test_garbage_ends_the_connection_alone(page: PageServer) -> None:
    """Bytes that are no request, a protocol of the future, a path or a head without an end, one that breaks off."""
    for data, status in (
        (b"\x00\xff\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.0\r\n\r\n", b"414"),
    ):
        (line,) = silent(page, 1)
        with line:
            line.sendall(data)
            assert status in line.recv(2000)
    (line,) = silent(page, 1)
    with line:
        line.sendall(b"GET /overview.json HTTP/1.0\r\n" + b"X: y\r\n" * 200 + b"\r\n")
        assert b" 431 " in line.recv(2000)
    silent(page, 1)[0].close()
    assert get(page, "/overview.json", cookie(page))[0] == 200


def test_a_port_that_is_taken_is_told(page: PageServer, used: Used) -> None:
    """With the number, and what to do; so are numbers that are no ports."""
    for port in (page.port, -1, 70000):
        with pytest.raises(BadInput, match=str(port)):
            PageServer(locate(str(used.store)), port)


def test_no_catalog_no_page(tmp_path: Path) -> None:
    """A cache that was never made is not made by looking."""
    config = tmp_path / "train.yaml"
    config.write_text("cache: {store: ./never}\n")
    with pytest.raises(NotFound, match="no catalog"):
        PageServer(locate(str(config)), 0)
    assert not (tmp_path / "never").exists()


# Pictures -------------------------------------------------------------------------------------------------------------


def picture(page: PageServer, target: str) -> NDArray[np.uint8]:
    """A picture, uint8 (height, width, 3) in RGB."""
    status, body, headers = get(page, target, cookie(page))
    assert (status, headers["Content-Type"]) == (200, "image/jpeg"), body
    decoded = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    return np.asarray(decoded, np.uint8)[:, :, ::-1]


def alike(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> bool:
    """Whether they differ by no more than a JPEG of a test pattern does; two clips differ by 25 and more."""
    return one.shape == other.shape and float(np.abs(one.astype(int) - other.astype(int)).mean()) < 8


def where(place: tuple[int, int, int]) -> str:
    """A clip, as the page asks for it."""
    return "/clip.jpg?task=train&epoch={}&iteration={}&clip={}".format(*place)


def test_a_batch_is_described(page: PageServer, used: Used) -> None:
    """Each clip with its video, label, frames, shape and whether it is stored; in the batch's own order."""
    epoch, iteration, clip = used.stored
    _, body, _ = get(page, f"/batch.json?task=train&epoch={epoch}&iteration={iteration}", cookie(page))
    clips = json.loads(body)["clips"]
    assert clips[clip]["is_stored"]
    assert clips[clip]["state"] == "ready"
    for each in clips:
        assert each["shape"] == [8, 3, 32, 32]
        assert len(each["frames"]) == 8
        assert set(np.diff(each["frames"])) == {2}
        assert each["label"] in ("cats", "dogs")
        assert each["video"].startswith(each["label"])
        assert bool(each["recipe"]) == each["is_stored"]
    assert [phrase.split()[0] for phrase in clips[clip]["recipe"]][:2] == ["resize", "random"]


def test_stored_clips_are_shown_as_they_lie(page: PageServer, used: Used, videos: Path, tmp_path: Path) -> None:
    """The picture is that of the very clip that training reads at this place, without an owner."""
    epoch, iteration, clip = used.stored
    shown = picture(page, where(used.stored))
    copy = Path(shutil.copytree(used.store, tmp_path / "copy"))
    with viewcache.open(described(copy, videos, budget="50MB"), service="off") as cache:
        batch = cache.read("train", epoch, iteration)
    expected = [contact_sheet(batch.video[k : k + 1], columns=8, tile=112) for k in range(len(batch.video))]
    assert [k for k, each in enumerate(expected) if alike(shown, each)] == [clip]


def test_a_look_makes_nothing(page: PageServer, used: Used) -> None:
    """A clip that is not stored is said to be so."""
    status, message = error_of(page, where(used.gone))
    assert status == 404
    assert "evicted" in message


def test_a_damaged_clip_is_told(used: Used, tmp_path: Path) -> None:
    """No picture is made of bytes that fail their checksum; a cache is looked at where it lies, also a copy of it."""
    store = Path(shutil.copytree(used.store, tmp_path / "copy"))
    with served(locate(str(store))) as page:
        assert picture(page, where(used.stored)).size
        for shard in (store / "objects").rglob("c.*"):
            data = bytearray(shard.read_bytes())
            data[:2000] = bytes(byte ^ 0x55 for byte in data[:2000])
            shard.write_bytes(data)
        status, message = error_of(page, where(used.stored))
        assert status == 502
        assert "chunk" in message


def test_a_clip_that_has_left_meanwhile_is_told(used: Used, tmp_path: Path) -> None:
    """Between the look at the batch and the look at the clip: what it is now is said, and not that it is damaged."""
    store = Path(shutil.copytree(used.store, tmp_path / "copy"))
    with served(locate(str(store))) as page:
        assert picture(page, where(used.stored)).size
        assert main(["evict", str(store), "--need", str(BUDGET)]) == 0
        status, message = error_of(page, where(used.stored))
    assert status == 404
    assert "evicted: no copy lies in the folder" in message


def test_a_missing_clip_is_made_when_asked(attach: Callable[..., AttachedCache], tmp_path: Path) -> None:
    """By the service, as a reader would get it; nobody's place moves, and nothing is made without the word."""
    cache = attach(budget="50MB")
    seat = cache.task("train").sit()
    seat.read(0, 0)
    before = cache.sql("select epoch, iteration from progress").to_pylist()
    last = cache.task("train").iterations(1) - 1
    expected = contact_sheet(cache.task("train").clips(1, last, range(1)), columns=8, tile=112)
    with served(locate(str(tmp_path / "store"))) as page:
        assert alike(picture(page, where((1, last, 0)) + "&make=1"), expected)
        assert cache.sql("select epoch, iteration from progress").to_pylist() == before
        assert len(cache.stats().clients) == 1


def test_without_a_service_nothing_is_made(page: PageServer, used: Used) -> None:
    """Of a folder alone no service is started: the error says how one is."""
    status, message = error_of(page, where(used.gone) + "&make=1")
    assert status == 503
    assert "viewcache serve" in message


def videos_of(page: PageServer) -> dict[str, int]:
    """Message of each failed video → its number."""
    found = json.loads(get(page, "/overview.json", cookie(page))[1])["overview"]["videos"]
    return {each["message"]: each["video_id"] for each in found}


def test_a_failed_video_has_a_picture(page: PageServer) -> None:
    """Its first frame that can be decoded; of what is no video it is said that there is none. Both are remembered."""
    for message, number in videos_of(page).items():
        for _ in range(2):
            if HOSTILE in message:
                status, body, _ = get(page, f"/video.jpg?id={number}", cookie(page))
                assert status == 422
                assert "not a video" in json.loads(body)["error"]["message"]
            else:
                assert picture(page, f"/video.jpg?id={number}").shape == (48, 64, 3)


@contextmanager
def no_time() -> Iterator[None]:
    """Processes that make pictures have no time to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("viewcache.api.page.first_frame.LIMIT_S", 0.0)
        yield


def test_a_picture_that_takes_too_long_is_given_up(page: PageServer) -> None:
    """It is an error of that picture, and tried again the next time."""
    number = next(number for message, number in videos_of(page).items() if HOSTILE not in message)
    with no_time():
        status, message = error_of(page, f"/video.jpg?id={number}")
        assert status == 502
        assert "within" in message
    assert picture(page, f"/video.jpg?id={number}").shape == (48, 64, 3)


NO_RECIPES = [None, "resize", [None], [{"op": "flip"}], [{"op": "resize", "drawn": {"h": "tall"}}]]


@pytest.mark.parametrize("recipe", NO_RECIPES)
def test_a_recipe_that_is_none_is_not_told(recipe: object) -> None:
    """What stands in the place of a recipe in a store from anywhere breaks no look."""
    assert phrases_of(recipe) is None
