"""One client that behaves badly costs the others nothing."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.service.served import Opener, described
from viewcache.api.config.load import load
from viewcache.api.service import answers, asks, handing, sessions, wire
from viewcache.api.service.server import NOTE_S, SEND_S, Connection, tell_waiting
from viewcache.api.service.sessions import Session
from viewcache.api.service.verbs import Verbs
from viewcache.api.session.cache import Cache
from viewcache.errors import Busy, Closed

BATCHES = [(epoch, iteration) for epoch in range(3) for iteration in range(5)]
"""Of the task, in order."""


@pytest.fixture
def verbs(store: Path, videos: Path) -> Iterator[Verbs]:
    """The verbs over a cache of this process that has room for a few batches, without clients."""
    made = Verbs(Cache(load(described(store, videos, cache={"budget": "1MB"})), serves=True), "test")
    yield made
    made.close()
    made.cache.close()


@pytest.fixture
def lines() -> Iterator[tuple[Connection, socket.socket, Connection, socket.socket]]:
    """Two connections whose questions have taken long, each before its client's end; nothing is read at the first."""
    with ExitStack() as open_ones:
        both: list[tuple[Connection, socket.socket]] = []
        for _ in range(2):
            ours, theirs = map(open_ones.enter_context, socket.socketpair())
            ours.settimeout(SEND_S)
            theirs.settimeout(SEND_S)
            waits = Connection(ours, 1)
            waits.asked_at = waits.noted_at = time.monotonic() - NOTE_S - 1
            both.append((waits, theirs))
        (deaf, unread), (good, read) = both
        yield deaf, unread, good, read


def fill(line: socket.socket) -> bytes:
    """Send notes until no more is taken; all that was sent."""
    sent = bytearray()
    body = wire.encode(answers.Note(1.0))
    line.setblocking(False)
    try:
        while True:
            sent += body[: line.send(body)]
    except BlockingIOError:
        line.settimeout(SEND_S)
        return bytes(sent)


def test_who_reads_nothing_holds_up_nobody(lines: tuple[Connection, socket.socket, Connection, socket.socket]) -> None:
    """Notes are sent by the thread that lets clients in: a line that is full is given up at once, others get theirs."""
    deaf, unread, good, read = lines
    full = fill(deaf.socket)
    began = time.monotonic()
    tell_waiting([deaf, good])
    assert time.monotonic() - began < SEND_S / 2
    assert deaf.is_set(), "nobody waits for its answer any more"
    assert not good.is_set()
    body, _ = wire.receive(read, wire.ANSWER_BYTES)
    assert isinstance(wire.decode_answer(body), answers.Note)
    got = bytearray()
    while part := unread.recv(1 << 16):
        got += part
    assert bytes(got) == full, "no part of a frame, and then the end"


def test_who_is_told_of_files_holds_up_nobody(
    lines: tuple[Connection, socket.socket, Connection, socket.socket],
) -> None:
    """A dataset that joins is looked at while others wait to join: who reads nothing of it is given up, too."""
    deaf, _, good, read = lines
    fill(deaf.socket)
    began = time.monotonic()
    for each in (deaf, good):
        each.looked(3, 10, "a.mp4")
    assert time.monotonic() - began < SEND_S / 2
    assert (deaf.is_set(), good.is_set()) == (True, False)
    body, _ = wire.receive(read, wire.ANSWER_BYTES)
    assert isinstance(found := wire.decode_answer(body), answers.Note)
    assert (found.done, found.total) == (3, 10)


def test_a_line_that_is_closed_is_given_up(
    lines: tuple[Connection, socket.socket, Connection, socket.socket],
) -> None:
    """On either side: the note that comes too late is no error."""
    ours, _, other, theirs = lines
    ours.socket.close()
    theirs.close()
    for each in (ours, other):
        each.note(answers.Note(1.0))
        assert each.is_set()


class Asking:
    """Who waits for an answer, until he gives up."""

    def __init__(self) -> None:
        """He has not yet."""
        self.asked = threading.Event()
        self.given_up = threading.Event()

    def is_set(self) -> bool:
        """Whether he has; a wait asks this first."""
        self.asked.set()
        return self.given_up.is_set()

    def looked(self, done: int, total: int, name: str) -> None:
        """Of no interest."""


def hello(verbs: Verbs) -> Session:
    """A client process."""
    return verbs.hello(asks.Hello(wire.PROTOCOL, "", "test", (), ""), 0)[0]


def look(verbs: Verbs, session: Session, epoch: int, iteration: int, asking: Asking | None = None) -> int:
    """The lease of a batch that is held."""
    found = verbs.answer(session, asks.Look("train", epoch, iteration, 0, 1), asking or Asking())
    assert isinstance(found, answers.Fetched)
    return found.lease


def hog(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> tuple[Session, list[int]]:
    """A client that has taken as much as it was given, and its leases; nothing of it is read."""
    session, leases = hello(verbs), list[int]()

    def take_all() -> None:
        for place in BATCHES:
            leases.append(look(verbs, session, *place))  # it fails on the way

    with monkeypatch.context() as patch:
        patch.setattr(sessions, "ROOM_S", 0.0)
        with pytest.raises(Busy, match="say `done` as soon as a batch is copied out"):
            take_all()
    return session, leases


def test_who_holds_all_it_gets_leaves_room_for_others(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told to say what it has read; another client reads all batches meanwhile, none of which waits for it."""
    greedy, leases = hog(verbs, monkeypatch)
    budget = verbs.cache.owner.tier.budget_bytes
    assert budget / 4 <= greedy.held_bytes < budget / 2
    assert len(leases) > 1
    other, began = hello(verbs), time.monotonic()
    for place in BATCHES:
        verbs.done(other, asks.Done(look(verbs, other, *place), (), (), 0.0))
    assert time.monotonic() - began < sessions.ROOM_S, "not after the holds of the other have run out"
    verbs.done(greedy, asks.Done(leases[0], (), (), 0.0))
    look(verbs, greedy, 2, 4)


def test_threads_of_a_process_take_turns(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that has no room beside those that other threads copy out just now comes when one of them has."""
    session, leases = hog(verbs, monkeypatch)
    asking, found = Asking(), list[int]()
    thread = threading.Thread(target=lambda: found.append(look(verbs, session, 2, 4, asking)))
    thread.start()
    assert asking.asked.wait(SEND_S), "it waits"
    assert not found
    verbs.done(session, asks.Done(leases[0], (), (), 0.0))
    thread.join(SEND_S)
    assert found


def test_who_waits_for_room_may_give_up(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose connection is gone, or whose process has ended, waits no more."""
    session, _ = hog(verbs, monkeypatch)
    asking = Asking()
    asking.given_up.set()
    with pytest.raises(Closed, match="the client has ended"):
        look(verbs, session, 2, 4, asking)


def test_one_batch_is_always_given(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the store is: who says what it has read is refused nothing."""
    monkeypatch.setattr(handing, "HELD_SHARE", 1000)
    monkeypatch.setattr(sessions, "ROOM_S", 0.0)
    session = hello(verbs)
    for place in BATCHES:
        verbs.done(session, asks.Done(look(verbs, session, *place), (), (), 0.0))


WITHOUT_PROC = """
import json, sys
import viewcache
from pathlib import Path
from viewcache.api.service.stopping import stop
given = json.loads(sys.argv[1])
told = []
for use in (lambda: viewcache.open(given, service="auto"), lambda: stop(Path(given["cache"]["store"]), now=True)):
    try:
        use()
    except viewcache.ViewcacheError as error:
        told.append([error.kind, str(error)])
given["cache"]["store"] += "-of-its-own"
with viewcache.open(given, service="off") as cache:
    told.append(list(cache.read("train", 0, 0).video.shape))
print(json.dumps(told))
"""


def test_without_proc_a_service_is_refused_and_an_owner_works(attach: Opener, store: Path, videos: Path) -> None:
    """As in some sandboxes: the error says what is missing and the cure; a living service is not taken for dead."""
    if subprocess.run(["unshare", "-m", "umount", "-l", "/proc"], capture_output=True, check=False).returncode:
        pytest.skip("only root may take /proc away")
    serving = attach().stats().pid
    hidden = 'umount -l /proc && exec "$@"'
    given = json.dumps(described(store, videos))
    found = subprocess.run(
        ["unshare", "-m", "sh", "-c", hidden, "sh", sys.executable, "-c", WITHOUT_PROC, given],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    refused = ["service_down", "this system has no /proc, which a service needs: mount it, or set cache.service: off"]
    assert json.loads(found.stdout) == [refused, refused, [4, 4, 3, 32, 32]]
    assert attach().stats().pid == serving, "it lives on"
