"""What travels between client and service: every error by its class, and nothing that is not of the protocol."""

import os
import random
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.house.tree import ROOT
from tests.service.served import Opener
from viewcache import errors
from viewcache.api.service import answers, asks, described, files, wire
from viewcache.errors import BadInput, Broken, BudgetTooSmall, CatalogBusy, ConfigCode, ConfigError, ViewcacheError
from viewcache.testing.leaks import settle

CLASSES = [each for each in map(vars(errors).get, errors.__all__) if isinstance(each, type)]


def made(kind: type[ViewcacheError]) -> ViewcacheError:
    """An error of a class."""
    if kind is ConfigError:
        return ConfigError(ConfigCode.STORE, "what is wrong", "train.yaml", 3, 7)
    if kind is BudgetTooSmall:
        return BudgetTooSmall("too small", 1234)
    if kind is CatalogBusy:
        return CatalogBusy("busy", 77)
    return kind("what is wrong")


@pytest.mark.parametrize("kind", [each for each in CLASSES if issubclass(each, ViewcacheError)])
def test_an_error_arrives_as_it_was(kind: type[ViewcacheError]) -> None:
    """Of its own class, with its words, its place and its number."""
    error = made(kind)
    failed = wire.decode_answer(wire.encode(wire.failed_of(error)))
    assert isinstance(failed, answers.Failed)
    found = wire.error_of(failed)
    assert type(found) is kind
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_an_error_that_is_not_ours_is_broken() -> None:
    """A defect of the service is told with its words; a kind of a later release is a ViewcacheError."""
    found = wire.error_of(wire.failed_of(KeyError("x")))
    assert type(found) is Broken
    assert "KeyError: 'x'" in str(found)
    assert type(wire.error_of(answers.Failed("of_tomorrow", "what"))) is ViewcacheError


@given(body=st.binary(max_size=200))
def test_nonsense_is_refused(body: bytes) -> None:
    """Whatever bytes come, they are a question of the protocol or the one error."""
    for decode in (wire.decode_ask, wire.decode_answer):
        with suppress(Broken, BadInput):
            assert isinstance(decode(body), asks.Ask | answers.Answer)


def test_deep_nesting_and_bad_text_are_nonsense() -> None:
    """What a decoder answers otherwise than by its own error."""
    fetch = wire.encode(asks.Fetch(1, 2, 3))
    for body in (b"\x91" * 100_000, fetch.replace(b"fetch", b"\xff\xfe\xff\xfe\xff"), fetch[:-1], fetch + b"\x00"):
        with pytest.raises(Broken):
            wire.decode_ask(body)
    with pytest.raises(Broken, match="unknown field"):
        wire.decode_ask(msgspec.msgpack.encode({"type": "rise", "seat": 1, "more": 2}))


@pytest.mark.parametrize("wrong", [{"epoch": "0"}, {"epoch": 1.5}, {"more": 2}, {"seat": None}])
def test_a_question_with_a_wrong_value_can_be_answered(wrong: dict[str, object]) -> None:
    """It is told what is wrong with it; what has no answer, or is no question, ends the connection."""
    fetch = {"type": "fetch", "seat": 1, "epoch": 2, "iteration": 3}
    with pytest.raises(BadInput, match=r"'fetch' was asked .*(Expected|unknown field)"):
        wire.decode_ask(msgspec.msgpack.encode(fetch | wrong))
    for kind in ("rise", "done", "bye", "fetched", "", 7):
        with pytest.raises(Broken):
            wire.decode_ask(msgspec.msgpack.encode(fetch | wrong | {"type": kind}))


def test_a_frame_that_is_too_long_is_not_read() -> None:
    """Its length alone is enough; half a frame is the end of a connection."""
    one, other = socket.socketpair()
    with one, other:
        one.sendall(struct.pack("<I", wire.ASK_BYTES + 1))
        with pytest.raises(Broken, match=f"a frame of {wire.ASK_BYTES + 1} bytes"):
            wire.receive(other, wire.ASK_BYTES)
        one.sendall(struct.pack("<I", 100) + b"half")
        one.close()
        with pytest.raises(EOFError):
            wire.receive(other, wire.ASK_BYTES)


def test_who_has_all_of_an_answer_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes with a descriptor is sent at once, and then the other side may hang up."""
    one, other = socket.socketpair()
    send = socket.send_fds

    def send_and_lose(line: socket.socket, *what: Any) -> int:
        sent = send(line, *what)
        other.close()
        return sent

    monkeypatch.setattr(socket, "send_fds", send_and_lose)
    with one, other, open(os.devnull) as file:
        wire.send(one, answers.Ok(), [file.fileno()])


@pytest.mark.parametrize("name", described.PAGES)
def test_the_page_has_every_message(name: str) -> None:
    """The pages are written from the structs: ``python -m viewcache.api.service.described docs``."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert described.tables(name) in page
    for each, _ in described.PAGES[name]:
        for name in each.__all__:
            found = getattr(each, name)
            info = msgspec.inspect.type_info(found) if isinstance(found, type) else None
            if isinstance(info, msgspec.inspect.StructType) and info.tag is not None:
                assert f"### `{info.tag}`" in page


def hello(**changed: object) -> bytes:
    """The first frame of a client."""
    given = {"type": "hello", "protocol": 1, "version": "0", "program": "test", "documents": [], "job": ""} | changed
    return msgspec.msgpack.encode(given)


def said(store: Path, body: bytes, count: int = 1) -> list[answers.Answer]:
    """What the service answers to one frame, as far as it answers."""
    line = files.connect(store, 10.0)
    assert line is not None
    found = []
    with line:
        line.sendall(struct.pack("<I", len(body)) + body)
        for _ in range(count):
            answer, descriptors = wire.receive(line, wire.ANSWER_BYTES)
            for each in descriptors:
                os.close(each)
            found.append(wire.decode_answer(answer))
    return found


def test_another_protocol_is_told_the_cure(attach: Opener, store: Path) -> None:
    """Older and newer clients learn which version runs, and how it ends."""
    attach()
    for protocol in (0, 2):
        (answer,) = said(store, hello(protocol=protocol, version="9.9"))
        assert isinstance(answer, answers.Failed)
        assert answer.kind == "service_version"
        for part in (viewcache.__version__, "9.9", f"speaks {protocol}", "viewcache stop"):
            assert part in answer.message


@pytest.mark.parametrize(
    "ask", [asks.Parts("train"), asks.Fetch(1, 0, 0), asks.Line(1, "0" * 32), asks.Line(99, ""), asks.Stop()]
)
def test_who_says_no_hello_gets_nothing(attach: Opener, store: Path, ask: asks.Ask) -> None:
    """No session, no answer but that; a token that is wrong or made up opens none. Who is there may be asked."""
    attach()
    assert isinstance(said(store, wire.encode(asks.Stats()))[0], answers.StatsOf)
    (answer,) = said(store, wire.encode(ask))
    assert isinstance(answer, answers.Failed)
    assert answer.kind == "misuse"


def test_a_wrong_value_is_answered_to_whoever_says_it(attach: Opener, store: Path) -> None:
    """Also before a hello, after which the connection ends: nobody takes that for the end of the service."""
    cache = attach()
    (answer,) = said(store, hello(protocol="1"))
    assert isinstance(answer, answers.Failed)
    assert (answer.kind, "$.protocol" in answer.message) == ("bad_input", True)
    with pytest.raises(EOFError):
        said(store, hello(protocol="1"), count=2)
    assert cache.stats().clients


def open_files(pid: int) -> int:
    """Descriptors of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_a_thousand_bad_frames(attach: Opener, store: Path) -> None:
    """Cut, mutated, oversized and empty ones, of clients that hang up anywhere: the same service serves on."""
    cache = attach()
    before = cache.stats()
    cache.read("train", 0, 0)
    count, dice = open_files(before.pid), random.Random(7)
    good = [hello(), wire.encode(asks.Stats()), wire.encode(asks.Fetch(1, 0, 0)), wire.encode(asks.Bye())]
    for _ in range(1000):
        body = bytearray(dice.choice(good))
        for _ in range(dice.randrange(4)):
            body[dice.randrange(len(body))] = dice.randrange(256)
        length = dice.choice([len(body), len(body), len(body) + 5, 0, 1 << 31, len(body) - 1])
        line = files.connect(store, 10.0)
        assert line is not None
        with line:
            line.sendall((struct.pack("<I", length) + body)[: dice.randrange(1, len(body) + 5)])
    assert cache.read("train", 0, 1).video.shape == (4, 4, 3, 32, 32)
    after = cache.stats()
    assert (after.pid, len(after.clients)) == (before.pid, 1)
    assert not settle(lambda: list(range(max(0, open_files(before.pid) - count - 1))))


def test_descriptors_that_are_sent_are_closed(attach: Opener, store: Path) -> None:
    """The service takes none; who sends some must not fill it."""
    cache = attach()
    pid = cache.stats().pid
    before = open_files(pid)
    body = hello()
    with open(os.devnull, "rb") as file:
        for _ in range(20):
            line = files.connect(store, 10.0)
            assert line is not None
            with line:
                socket.send_fds(line, [struct.pack("<I", len(body)) + body], [file.fileno()] * 4)
                _, descriptors = wire.receive(line, wire.ANSWER_BYTES)
                for each in descriptors:
                    os.close(each)
    cache.stats()
    assert not settle(lambda: [*range(before + 4, open_files(pid))]), "a session ends a little after its connection"
