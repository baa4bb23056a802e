"""A moment without a free descriptor: what is asked then fails with an error of ours, and afterwards all goes on."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tiny import encode_folder, open_cache
from viewcache.catalog import statements
from viewcache.errors import ViewcacheError

pytestmark = pytest.mark.usefixtures("spawned")  # the tests' own way to wait for a process takes a descriptor


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    return encode_folder(tmp_path_factory.mktemp("descriptors"), {f"v{k}.mp4": 40 + k for k in range(4)})


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Nothing more can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
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


def test_statements_are_read_before_they_are_needed() -> None:
    """Once one statement was read, the others need no descriptor."""
    statements.load.cache_clear()
    statements.load("read_draws", "duckdb")
    with no_descriptors():
        assert statements.load("read_settled", "duckdb").text
