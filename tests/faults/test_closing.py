"""Closing a cache under the threads that use it: they get `Closed`, and nothing that was started goes on."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import fsspec
import pytest

import viewcache
from tests.laws.test_groups import SMALL, several
from tests.tiny import encode_folder
from viewcache.api.session.cache import Cache
from viewcache.errors import Closed

VIDEOS, EPOCHS = 4, 40
SAMPLING = {"videos_per_batch": 1, "frames_per_video": 2, "samples_per_video": 1}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short videos."""
    return encode_folder(tmp_path_factory.mktemp("closing"), {f"v{k}.mp4": 20 + k for k in range(VIDEOS)})


def together(store: Path, videos: Path, **cache: Any) -> dict[str, Any]:
    """Two tasks that are drawn together."""
    tasks = [{"tag": tag, "epochs": EPOCHS, "augmentation": SMALL, "sampling": SAMPLING} for tag in ("a", "b")]
    return several(store, videos, *tasks, **cache)


def outcome(call: Callable[[], object]) -> str:
    """What a call ended with: the kind of error, or nothing."""
    try:
        call()
    except Closed:
        return "closed"
    except Exception as error:
        return repr(error)
    return ""


@pytest.mark.parametrize(
    ("workers", "times"), [("threads", 10), ("processes", 3), pytest.param("threads", 200, marks=pytest.mark.long)]
)
def test_closing_beside_the_first_read(tmp_path: Path, videos: Path, workers: str, times: int, no_leaks: None) -> None:
    """The reader has its batch or gets `Closed`; no thread and no worker is started after the close, or left."""
    whole = together(tmp_path / "s", videos, worker_kind=workers)
    random = Random(0)
    for _ in range(times):
        cache, begun = viewcache.open(whole), threading.Event()

        def read(cache: Cache = cache, begun: threading.Event = begun) -> None:
            begun.set()
            cache.read("a", 0, 0)

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(outcome, read)
            begun.wait()
            sum(range(random.randrange(1_000_000)))  # up to some 10 ms, in which the reader gets further
            cache.close()
            assert reading.result() in ("", "closed")


VERBS: dict[str, Callable[[Cache, Random], object]] = {
    "read": lambda cache, random: cache.read("a", random.randrange(EPOCHS), random.randrange(VIDEOS)),
    "in order": lambda cache, random: [cache.read("b", 0, i) for i in range(VIDEOS)],
    "frame": lambda cache, random: cache.frame("a", f"v{random.randrange(VIDEOS)}", random.randrange(20)),
    "aug": lambda cache, random: cache.aug("b", f"v{random.randrange(VIDEOS)}", random.randrange(20), 1),
    "video": lambda cache, random: cache.video("a", "v0"),
    "iterations": lambda cache, random: cache.task("b").iterations(random.randrange(EPOCHS)),
    "describe": lambda cache, random: cache.task("a").describe(random.randrange(EPOCHS), 0),
    "clips": lambda cache, random: cache.task("b").clips(random.randrange(EPOCHS), 0, range(1)),
    "materialize": lambda cache, random: list(cache.materialize(random.randrange(1, 4))),
    "loader": lambda cache, random: next(iter(cache.loader("a"))),
    "leave": lambda cache, random: cache.leave("b"),
}


@pytest.mark.parametrize("turn", [0, 1, pytest.param(2, marks=pytest.mark.long)])
def test_others_get_closed_from_every_verb(tmp_path: Path, videos: Path, turn: int, no_leaks: None) -> None:
    """Threads that call the public verbs again and again end with `Closed`, soon, and with nothing else."""
    cache = viewcache.open(together(tmp_path / "s", videos, worker_kind="threads"))
    begun = threading.Barrier(len(VERBS) + 1)

    def again(verb: Callable[[Cache, Random], object]) -> str:
        random = Random(turn)
        begun.wait()
        while not (ended := outcome(lambda: verb(cache, random))):
            pass
        return ended

    with ThreadPoolExecutor(len(VERBS)) as pool:
        ends: dict[str, Future[str]] = {name: pool.submit(again, verb) for name, verb in VERBS.items()}
        begun.wait()
        for i in range(turn * VIDEOS):
            cache.read("b", 1, i % VIDEOS)
        cache.close()
        assert {name: end.result() for name, end in ends.items()} == dict.fromkeys(VERBS, "closed")


def test_a_file_of_a_closed_cache(tmp_path: Path, videos: Path) -> None:
    """A file that was opened before the close is closed to its reader too."""
    with viewcache.open(together(tmp_path / "s", videos, worker_kind="threads")) as cache:
        file = fsspec.filesystem("view", skip_instance_cache=True).open("a/0/0/view")
        assert cache.tasks == ("a", "b")
    with pytest.raises(Closed):
        file.read()
