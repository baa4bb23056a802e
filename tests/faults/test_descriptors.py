"""A moment without a free descriptor: what is asked then fails with an error of ours, and afterwards all goes on."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.tiny import config, encode_folder, open_cache
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.catalog import statements
from viewcache.errors import Full, ViewcacheError

pytestmark = pytest.mark.usefixtures("spawned")  # the tests' own way to wait for a process takes a descriptor


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    return encode_folder(tmp_path_factory.mktemp("descriptors"), {f"v{k}.mp4": 40 + k for k in range(4)})


@contextmanager
def no_descriptors(but: int = 0) -> Iterator[None]:
    """Nothing more can be opened, or so much."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(but + 1)]  # the lowest that there are
    for each in free:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_the_first_read_fails_and_the_next_does_not(tmp_path: Path, videos: Path, kind: str, no_leaks: None) -> None:
    """Neither a worker nor the dispatcher can be started at first; nothing is lost by that."""
    with open_cache(tmp_path / "s", videos, cache={"worker_kind": kind}) as cache:
        with no_descriptors(), pytest.raises(ViewcacheError):
            cache.read("train", 0, 0)
        assert cache.read("train", 0, 0).video.any()


def test_a_worker_that_cannot_be_replaced_now_is_replaced_later(tmp_path: Path, videos: Path, no_leaks: None) -> None:
    """A worker dies in such a moment: its reader is told why, and the dispatcher goes on when there are descriptors."""
    with open_cache(tmp_path / "s", videos, epochs=20) as cache:
        cache.read("train", 0, 0)
        with no_descriptors():
            for pid in cache.owner.dispatcher_now().pool.pids():
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(ViewcacheError):
                cache.read("train", 12, 0)
        assert cache.read("train", 12, 0).video.any()


QUESTIONS: dict[str, Callable[[Any], object]] = {
    "sql": lambda cache: cache.sql("select count(*) from objects"),
    "loader": lambda cache: next(iter(cache.loader("train", framework="numpy"))),
    "frame": lambda cache: cache.frame("train", "v0", 3),
    "read": lambda cache: cache.read("train", 1, 0),
}


NEEDS_NONE = {"off": {"read"}, "auto": {"read", "frame"}}
"""Questions that take no descriptor once others were asked."""


@pytest.mark.parametrize("service", ["off", "auto"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_whatever_is_asked_then_says_what_is_full(tmp_path: Path, videos: Path, service: str, question: str) -> None:
    """With a few descriptors, one more each time, in a process that had no need of more before: never a raw error."""
    ask, said = QUESTIONS[question], set[str]()
    store = tmp_path / "s"
    with viewcache.open(config(store, videos), service=service) as cache:
        assert isinstance(cache, AttachedCache) == (service == "auto")
        cache.read("train", 0, 0)
        cache.sql("select 1")  # what is imported late takes a descriptor, too
        for free in range(6):
            with no_descriptors(but=free):
                try:
                    ask(cache)
                except Full as error:
                    said.add(str(error))
            assert ask(cache) is not None
    if service == "auto":
        stop(store, now=True)
    assert all("ulimit -n" in each for each in said), said
    assert said or question in NEEDS_NONE[service], "it was never full: so this shows nothing"


def test_statements_are_read_before_they_are_needed() -> None:
    """Once one statement was read, the others need no descriptor."""
    statements.load.cache_clear()
    statements.load("read_draws", "duckdb")
    with no_descriptors():
        assert statements.load("read_settled", "duckdb").text
