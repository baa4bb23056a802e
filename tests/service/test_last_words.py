"""What clients say last, or never come to say: it is heard, and nothing is held for those who will not read it.

The services run in processes of their own as elsewhere, but that some steps in them take as long as the test says.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.service.served import Opener, described, ended, go_on, start, told
from viewcache.api.config.documents import texts_of
from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.asking import ask_on
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.client import Client
from viewcache.api.service.transit import TRANSIT, Transit
from viewcache.materializer.reading.batch import Buffers
from viewcache.store import Stored
from viewcache.store.client_tiers import ClientTiers, Placed, Slots
from viewcache.testing.leaks import settle

SERVICE = """
import threading, time
from dataclasses import replace
from pathlib import Path
from viewcache.api.config.load import load
from viewcache.api.service import files
from viewcache.api.service.server import Server
from viewcache.api.service.verbs import Verbs
from viewcache.api.session.cache import Cache
def delayed(name, wait):
    whole = getattr(Verbs, name)
    def late(*given):
        wait()
        return whole(*given)
    setattr(Verbs, name, late)
{delays}
config = load(given)
cache = Cache(replace(config, tasks=()), serves=True)
root = Path(config.cache.local.url)
server = Server(Verbs(cache, "test"), files.bind(root), root, 60.0)
print("0", flush=True)
server.run()
cache.close()
"""

SLOW_TO_HEAR = "delayed('done', lambda: time.sleep(0.3))"
"""What is said on one connection is heard a while after what is said on another."""

SLOW_TO_END = """
told, stuck = threading.Event(), threading.Event()
def wait():
    stuck.set()
    told.wait(60)
delayed(sys.argv[2], wait)
def listen():
    stuck.wait(60)
    print("0", flush=True)
    sys.stdin.readline()
    told.set()
    print("1", flush=True)
threading.Thread(target=listen, daemon=True).start()
"""
"""What ends takes as long as the test likes, as where a decision is waited for; it is told when that begins."""

READ_AND_END = """
with viewcache.open(given, service="attach") as cache:
    seat = cache.task("train").sit()
    for iteration in range(3):
        seat.read(0, iteration)
print("0")
"""

READ_AND_WAIT = """
import ctypes, time
with viewcache.open(given, service="attach") as cache:
    cache.read("train", 0, 0)
    child = ctypes.PyDLL(None).fork()  # as a library does: what the child has open lives on, and Python closes nothing
    if child:
        print(child, flush=True)
    time.sleep(60)
"""

ONE_BATCH = {"budget": 250_000, "epochs_per_generation": 1}
"""The budget holds a batch, and a quarter of it none: a process that holds one waits for that before its next."""

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(store: Path, videos: Path) -> Iterator[Serve]:
    """Starts a service with some delays, and ends it behind the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(delays: str, *arguments: str) -> "subprocess.Popen[str]":
        started.append(start(SERVICE.replace("{delays}", delays), described(store, videos), *arguments))
        told(started[-1])
        return started[-1]

    yield begin
    for each in started:
        each.send_signal(signal.SIGTERM)
        each.communicate(timeout=60)


def attach(store: Path, videos: Path) -> AttachedCache:
    """A client of the service that runs."""
    cache: object = viewcache.open(described(store, videos), service="attach")
    assert isinstance(cache, AttachedCache)
    return cache


@pytest.mark.parametrize("ends", [False, True], ids=["goes-on", "ends"])
def test_the_last_batch_counts(serve: Serve, store: Path, videos: Path, ends: bool) -> None:
    """Whether its process goes on or ends at once: a training that says goodbye has read all that it says it has."""
    serve(SLOW_TO_HEAR)
    if ends:
        ended(start(READ_AND_END, described(store, videos)))
    else:
        with attach(store, videos) as cache:
            seat = cache.task("train").sit()
            for iteration in range(3):
                seat.read(0, iteration)
    with attach(store, videos) as cache:
        settle(lambda: [each for each in cache.stats().clients if each.pid != cache.stats().pid][1:])
        assert cache.sql("select epoch, iteration from progress").to_pylist() == [{"epoch": 0, "iteration": 3}]


@pytest.mark.parametrize("what", ["end", "expire"])
def test_others_come_and_go_while_something_ends(serve: Serve, store: Path, videos: Path, what: str) -> None:
    """However long that takes, a process attaches and reads."""
    service = serve(SLOW_TO_END, what)
    other = start(READ_AND_WAIT, described(store, videos))
    child = told(other)
    assert isinstance(child, int)
    if what == "end":
        other.kill()
    try:
        told(service)
        with attach(store, videos) as cache:
            assert cache.read("train", 0, 1).video.size
            go_on(service)
            assert told(service) == 1
    finally:
        other.kill()
        os.kill(child, signal.SIGKILL)
        other.communicate()


class _Interrupted(Buffers):
    """Memory that is asked for at the moment of a Ctrl-C."""

    def take(self, shape: Sequence[int]) -> Any:
        """None is given."""
        raise KeyboardInterrupt


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _interrupt_the_copy(cache: AttachedCache, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ClientTiers, "read_slots", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.read("train", 0, 0)


def _interrupt_the_buffers(cache: AttachedCache, _patch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        cache.task("train").read(0, 0, buffers=_Interrupted())


def _interrupt_frames(cache: AttachedCache, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ClientTiers, "read_slots", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.frame("train", "cats.-v1", 3)


@pytest.mark.parametrize("how", [_interrupt_the_copy, _interrupt_the_buffers, _interrupt_frames])
def test_what_is_not_read_is_not_held(
    attach: Opener, monkeypatch: pytest.MonkeyPatch, how: Callable[[AttachedCache, pytest.MonkeyPatch], None]
) -> None:
    """The next batch of the same process is there soon, not after a minute."""
    cache = attach(cache=ONE_BATCH)
    how(cache, monkeypatch)
    began = time.monotonic()
    assert cache.read("train", 0, 1).video.size
    assert time.monotonic() - began < 10
    assert not settle(lambda: [each.held for each in cache.stats().clients if each.held])


def test_an_answer_that_nobody_took_is_not_held(store: Path, videos: Path) -> None:
    """As of a question that is cancelled: its line ends when the answer is on its way."""
    given = described(store, videos, cache=ONE_BATCH)
    client = Client(store, texts_of(given), may_start=True)

    def held() -> list[int]:
        return [each.held for each in client.ask(answers.StatsOf, asks.Stats()).clients if each.held]

    try:
        welcome = client.connected().welcome
        with files.connect(store, 30.0) as line:  # type: ignore[union-attr]  # the service runs
            ask_on(line, asks.Line(welcome.session, welcome.token), None)
            wire.send(line, asks.Look("train", 0, 0, 0, 1))
            assert not settle(lambda: [] if held() else [0])
        began = time.monotonic()
        fetched = client.ask(answers.Fetched, asks.Look("train", 0, 1, 0, 1))
        assert time.monotonic() - began < 10
        client.tell(client.connected(), asks.Drop(fetched.lease))
        assert not settle(held)
    finally:
        client.close()


def test_a_session_that_ends_under_a_copy_is_begun_anew(attach: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread finds the service dead, and closes the memory that both read from: who is copying asks again."""
    cache = attach()
    inside, go = threading.Event(), threading.Event()
    whole = ClientTiers.read_slots

    def slowly(self: ClientTiers, placed: Sequence[Placed], out: Slots) -> Any:
        if threading.current_thread().name == "slow" and not inside.is_set():
            assert {each.tier for each in placed} == {TRANSIT}
            inside.set()
            go.wait(60)
        return whole(self, placed, out)

    monkeypatch.setattr(ClientTiers, "read_slots", slowly)
    truth, found = cache.frame("train", "cats.-v1", 3), list[Any]()
    thread = threading.Thread(target=lambda: found.append(cache.frame("train", "cats.-v1", 3)), name="slow")
    thread.start()
    assert inside.wait(60)
    os.kill(cache.stats().pid, signal.SIGKILL)
    assert cache.read("train", 0, 1).video.size
    go.set()
    thread.join(60)
    assert len(found) == 1
    assert np.array_equal(found[0], truth)


def test_threads_that_share_a_seat_take_it_once(attach: Opener) -> None:
    """Also when the service was started anew under both of them, as under a mount's."""
    cache = attach(cache={"epochs_per_generation": 1})
    seat = cache.task("train").sit()
    seat.read(0, 0)
    os.kill(cache.stats().pid, signal.SIGKILL)
    threads = [threading.Thread(target=seat.read, args=(0, iteration)) for iteration in range(1, 5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [len(each.seats) for each in cache.stats().clients] == [1]


def test_what_goes_together_may_be_more_than_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no room even where nothing else is goes alone, and others wait until it has been read."""
    transit = Transit(1 << 16)
    large, small = np.arange(1 << 18, dtype=np.uint8).reshape(4, -1), np.ones(100, np.uint8)
    try:
        first = transit.put([*large])
        put: list[list[Stored]] = []
        thread = threading.Thread(target=lambda: put.append(transit.put([small, small])))
        thread.start()
        assert not put
        transit.remove(first)
        thread.join(60)
        assert len(put[0]) == 2
        monkeypatch.setattr("viewcache.api.service.transit.WAIT_S", 0.01)
        with pytest.raises(viewcache.errors.Busy, match="no room for"):
            transit.put([*large])
        transit.remove(put[0])
    finally:
        transit.close()
