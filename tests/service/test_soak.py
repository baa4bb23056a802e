"""Kills in the midst of everything: every sequence of batches goes on unchanged, and nothing is held for the dead."""

import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.service.served import Opener, described, digest, start
from viewcache.api.service import answers, asks, files
from viewcache.api.service.sessions import HELD_S, MOST_LEASES, Session
from viewcache.api.service.verbs import Verbs
from viewcache.api.session.cache import Cache
from viewcache.errors import Busy
from viewcache.testing.leaks import settle

READ_ALL = """
read = []
with viewcache.open(given, service="auto", job=sys.argv[2]) as cache:
    task = cache.task("train")
    seat = task.sit()
    for epoch in range(task.epochs):
        for iteration in range(task.iterations(epoch)):
            read.append(digest(seat.read(epoch, iteration)))
    again = [digest(cache.read("train", *divmod(number, 5))) for number in range(15)]
print(json.dumps([read, again]))
"""


@pytest.mark.parametrize(
    ("readers", "kills", "epochs"),
    [(2, 3, 3), pytest.param(8, 50, 60, marks=[pytest.mark.long, pytest.mark.timeout(1800)])],
)
def test_the_service_is_killed_again_and_again(
    store: Path, videos: Path, readers: int, kills: int, epochs: int
) -> None:
    """Under several readers: each reads what it reads again at the end, whichever question was under way."""
    given, dice = described(store, videos, epochs=epochs), random.Random(kills)
    processes = [start(READ_ALL, given, f"job{number}") for number in range(readers)]
    done = threading.Event()

    def kill() -> None:
        killed: set[int] = set()
        while len(killed) < kills and not done.is_set():
            facts = files.read_facts(store)
            if facts is not None and facts.pid not in killed and (store / files.SOCKET).exists():
                done.wait(dice.uniform(0.2, 2.0))
                killed.add(facts.pid)
                try:
                    os.kill(facts.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            done.wait(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for process in processes:
            out, errors = process.communicate(timeout=1700)
            assert process.returncode == 0, errors
            read, again = json.loads(out)
            assert len(read) == 5 * epochs
            assert read[:15] == again
    finally:
        done.set()
        killer.join()


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_clients_are_killed_anywhere(attach: Opener, store: Path, videos: Path, kills: int) -> None:
    """Waiting, holding or reading: what they held is back at once, and the service goes on."""
    cache, dice = attach(), random.Random(kills)
    given = described(store, videos)
    body = """
cache = viewcache.open(given, service="auto")
seat = cache.task("train").sit()
print("1", flush=True)
number = 0
while True:
    seat.read(*divmod(number % 15, 5))
    number += 1
"""
    before = digest(cache.read("train", 0, 0))
    for _ in range(kills):
        process = start(body, given)
        assert process.stdout is not None
        process.stdout.readline()
        threading.Event().wait(dice.uniform(0, 0.05))
        process.kill()
        process.communicate()
        assert not settle(lambda: [each for each in cache.stats().clients if each.pid != os.getpid()])
    (me,) = cache.stats().clients
    assert me.held == 0
    assert digest(cache.read("train", 0, 0)) == before


class Nobody:
    """Who never gives up, and is told of files in vain."""

    def is_set(self) -> bool:
        """No."""
        return False

    def looked(self, done: int, total: int, name: str) -> None:
        """Of no interest."""


NOBODY = Nobody()


@pytest.fixture
def verbs(store: Path, videos: Path) -> Verbs:
    """The verbs over a cache of this process, without a socket."""
    from viewcache.api.config.load import load

    return Verbs(Cache(load(described(store, videos)), serves=True), "test")


def look(verbs: Verbs, session: Session, iteration: int = 0) -> answers.Fetched:
    """A batch that is held."""
    found = verbs.answer(session, asks.Look("train", 0, iteration, 0, 1), NOBODY)
    assert isinstance(found, answers.Fetched)
    return found


def test_who_holds_too_much_or_too_long_loses_it(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that says nothing of what it has read gets an error; one that is stopped loses its holds."""
    held = verbs.cache.owner.ledger
    session, _ = verbs.hello(asks.Hello(1, "", "test", (), ""), 0)
    try:
        for _ in range(MOST_LEASES):
            look(verbs, session)
        with pytest.raises(Busy, match=f"holds {MOST_LEASES} batches that it has not said to have read"):
            look(verbs, session)
        assert held.held
        verbs.expire()
        assert held.held, "not for so long"
        now = time.monotonic()
        monkeypatch.setattr("viewcache.api.service.verbs.time.monotonic", lambda: now + HELD_S + 1)
        verbs.expire()
        assert not held.held
        late = look(verbs, session)
        verbs.done(session, asks.Done(late.lease, (), (), 0.0))
        verbs.done(session, asks.Done(late.lease, (), (), 0.0))
        verbs.done(session, asks.Done(12345, (7,), (), 0.0))
        assert not held.held
    finally:
        verbs.close()
        verbs.cache.close()


def test_the_end_of_a_session_gives_everything_back(verbs: Verbs) -> None:
    """Holds, seats and what is in transit; what it asks afterwards is refused."""
    session, _ = verbs.hello(asks.Hello(1, "", "test", (), ""), 0)
    other, _ = verbs.hello(asks.Hello(1, "", "test", (), ""), 0)
    try:
        look(verbs, other)
        verbs.end(other)
        assert verbs.cache.task("train").task.seats.positions() == (), "who read by path has gone"
        seated = verbs.answer(session, asks.Sit("train", 0, 1, 0, 1, 0, 0), NOBODY)
        assert isinstance(seated, answers.Seated)
        verbs.answer(session, asks.Fetch(seated.seat, 0, 0), NOBODY)
        frame = asks.FrameAsked(verbs.cache.task("train").video("cats.-v1").name, 0, None, None, 0, None, None, None)
        verbs.answer(session, asks.Frames("train", (frame,)), NOBODY)
        verbs.end(session)
        assert not verbs.cache.owner.ledger.held
        assert verbs.cache.task("train").task.seats.positions() == ()
        assert not session.sittings()
        verbs.end(session)
    finally:
        verbs.close()
        verbs.cache.close()
