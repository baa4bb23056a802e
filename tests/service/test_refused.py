"""A service that refuses whom it was started for does not stand in the way of the corrected configuration."""

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import viewcache
from tests.scheduling.harness import until
from tests.service.served import Opener, described, start, told
from viewcache.api.service import answers, asks, files
from viewcache.api.service.client import Client, end_if_idle
from viewcache.errors import BudgetTooSmall, CatalogBusy
from viewcache.testing.leaks import settle


def test_a_corrected_configuration_counts_at_once(attach: Opener, store: Path, videos: Path) -> None:
    """The service that was started for a refused configuration has ended when the refusal is told."""
    with pytest.raises(BudgetTooSmall):
        attach(cache={"budget": "10kB"})
    assert files.connect(store, 1.0) is None
    cache = attach(cache={"seed": 8})
    assert cache.warnings == ()
    assert cache.read("train", 0, 0).video.shape[0] == 4


def test_a_refused_service_serves_who_came_meanwhile(
    attach: Opener, store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who uses it when the refusal is told keeps it."""
    others: list[Client] = []

    def late(root: Path) -> None:
        others.append(Client(root, (), may_start=False))
        end_if_idle(root)

    monkeypatch.setattr("viewcache.api.service.client.end_if_idle", late)
    with pytest.raises(BudgetTooSmall):
        viewcache.open(described(store, videos, cache={"budget": "10kB"}), service="auto")
    (other,) = others
    session = other.connected()
    assert other.connected() is session
    line = files.connect(store, 1.0)
    assert line is not None
    line.close()
    other.close()


def test_what_was_foreseen_is_one_line_of_the_log(attach: Opener, store: Path) -> None:
    """A catalog that another process has, or that does not answer, does not look like a crash of the service."""
    with pytest.raises(CatalogBusy, match="no PostgreSQL server answers") as refused:
        attach(cache={"catalog": "postgresql://127.0.0.1:1/none"})
    (line,) = (store / files.LOG).read_text().splitlines()
    assert line.endswith(f" ERROR viewcache.service the cache could not be opened: {refused.value}")


def test_an_embedded_cache_has_no_warnings(store: Path, videos: Path) -> None:
    """A program may ask for warnings whoever owns the store."""
    with viewcache.open(described(store, videos), service="off") as cache:
        assert cache.warnings == ()


STARTS = """
import os, signal
from viewcache.api.service import client
client.end_if_idle = lambda root: os.kill(os.getpid(), signal.SIGKILL)
viewcache.open(given, service="auto")
"""


def test_a_service_whose_starter_is_killed_before_it_came_ends(store: Path, videos: Path) -> None:
    """It was refused, and killed before it could end the service: nobody waits half a minute for a client to come."""
    starter = start(STARTS, described(store, videos, cache={"budget": "10kB", "service_idle": 600}))
    assert starter.wait(60) == -signal.SIGKILL
    starter.communicate()
    facts = files.read_facts(store)
    assert facts is not None
    assert not settle(lambda: [facts.pid] if files.is_there(facts) else [], limit_s=15)
    assert "who it was started for has ended, and nobody else has come" in (store / files.LOG).read_text()


def test_a_service_whose_starter_is_killed_serves_who_came_meanwhile(store: Path, videos: Path) -> None:
    """Another process uses it: it goes on, and its idle end is that of any service."""
    given = described(store, videos, cache={"budget": "10kB", "service_idle": 600})
    body = STARTS.replace("os.kill(os.getpid(), signal.SIGKILL)", "(print(1, flush=True), sys.stdin.readline())")
    starter = start(body, given)
    told(starter)
    other = Client(store, (), may_start=False)
    starter.kill()
    starter.communicate()
    session = other.connected()
    assert len(other.ask(answers.StatsOf, asks.Stats()).clients) == 1
    assert other.connected() is session
    other.close()


def test_all_who_come_while_the_last_one_leaves_get_theirs(
    attach: Opener, store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them ends the service of other settings and begins another; the rest wait for that."""
    last = attach(cache={"service_idle": 60})
    connect, looks = files.connect, list[int]()

    def counted(root: Path, silent_s: float) -> socket.socket | None:
        looks.append(0)
        return connect(root, silent_s)

    def come() -> int:
        with viewcache.open(described(store, videos, on_changed_video="warn"), service="auto") as cache:
            return len(cache.read("train", 0, 0).videos)

    monkeypatch.setattr("viewcache.api.service.client.LEAVING_S", 30.0)
    monkeypatch.setattr(files, "connect", counted)
    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(come) for _ in range(3)]
        # Each has been refused, and those who are not ending the service have looked again.
        until(lambda: len(looks) >= 12 or any(each.done() for each in found), "they wait", lambda: len(looks))
        last.close()
        assert [each.result() for each in found] == [4, 4, 4]
