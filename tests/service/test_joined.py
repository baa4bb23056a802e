"""What joined an attached cache stays joined: with the next service, in a child, and in another process."""

import os
import pickle
import signal
from pathlib import Path

import viewcache
from tests.service.served import Opener, described, digest, in_child
from viewcache.api.service import answers, asks
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.client import Client
from viewcache.api.service.connected import Connected


def test_what_joined_outlives_the_service(store: Path, videos: Path) -> None:
    """A whole configuration may join, even twice; a killed service, a fork and a pickle change nothing of it."""
    more = described(store, videos, tag="val")
    opened: object = viewcache.open(described(store, videos), service="auto", job="lr1")
    assert isinstance(opened, AttachedCache)
    with opened as cache:
        assert cache.join(more) == cache.join(more) == ("val",)
        name, before = cache.task("val").name, digest(cache.read("val", 0, 0))
        os.kill(cache.stats().pid, signal.SIGKILL)
        assert digest(cache.read("val", 0, 0)) == before
        assert in_child(lambda: digest(cache.read("val", 0, 0))) == before
        with pickle.loads(pickle.dumps(cache)) as again:
            assert again.task("val").name == name != "val"


def test_a_child_closes_lines_in_use(attach: Opener, store: Path) -> None:
    """A connection that a question is asked on at a fork is closed in the child, and the question goes on here."""
    attach()
    client = Client(store, (), may_start=False)

    def forking(connected: Connected) -> tuple[type[answers.Ok], asks.Ask]:
        (line,) = connected.all_lines
        child = os.fork()
        if not child:
            os._exit(0 if line.fileno() == -1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert line.fileno() != -1
        return answers.Ok, asks.Publish()

    connected, answer = client.asking(forking)
    assert isinstance(answer, answers.Ok)
    assert connected is client.connected()
    client.close()
