"""Laws 1 and 4 for tasks that are drawn together, with many threads over more generations than stay in memory."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

import viewcache
from tests.laws.test_groups import SMALL, several
from tests.tiny import encode_folder
from viewcache.api.session.cache import Cache

VIDEOS, EPOCHS = 6, 16
TASKS = {
    "two": {"videos_per_batch": 2, "frames_per_video": 2, "samples_per_video": 1},
    "three": {"videos_per_batch": 3, "frames_per_video": 2, "samples_per_video": 1},
}


def together(folder: Path) -> dict[str, Any]:
    """Two tasks whose orders are drawn together, every epoch a generation of its own."""
    videos = encode_folder(folder / "v", {f"v{k}.mp4": 20 + k for k in range(VIDEOS)})
    tasks = [{"tag": tag, "epochs": EPOCHS, "augmentation": SMALL, "sampling": each} for tag, each in TASKS.items()]
    return several(folder / "s", videos, *tasks, worker_kind="threads", epochs_per_generation=1)


def far_epochs(cache: Cache, random: Random) -> None:
    """Plan an epoch somewhere, so that the plans of those that are read are the oldest in memory."""
    cache.task(random.choice(list(TASKS))).iterations(random.randrange(EPOCHS))


def everything_ahead(cache: Cache, random: Random) -> None:
    """Plan and make all epochs of both tasks."""
    for _ in cache.materialize():
        pass


@pytest.mark.parametrize("beside", [far_epochs, pytest.param(everything_ahead, marks=pytest.mark.long)])
def test_readers_go_on_while_others_plan_other_epochs(tmp_path: Path, beside: Callable[[Cache, Random], None]) -> None:
    """Two loops of tasks that are drawn together end, each video once an epoch, whatever is planned beside them."""
    read = threading.Event()

    def loop(cache: Cache, tag: str) -> dict[int, Counter[str]]:
        found: dict[int, Counter[str]] = {}
        for epoch in range(EPOCHS):
            for iteration in range(VIDEOS // TASKS[tag]["videos_per_batch"]):
                found.setdefault(epoch, Counter()).update(cache.read(tag, epoch, iteration).videos)
        return found

    def go_on(cache: Cache) -> None:
        random = Random(1)
        while not read.is_set():
            beside(cache, random)

    with viewcache.open(together(tmp_path)) as cache, ThreadPoolExecutor() as pool:
        other = pool.submit(go_on, cache)
        try:
            readers = [pool.submit(loop, cache, tag) for tag in TASKS]
            found = [reader.result() for reader in readers]
        finally:
            read.set()
        other.result()
    each_once = dict.fromkeys((f"v{k}" for k in range(VIDEOS)), 1)
    assert found == [dict.fromkeys(range(EPOCHS), each_once)] * 2


def test_a_plan_that_is_in_use_stays_the_only_one(tmp_path: Path) -> None:
    """While anybody has a generation in hand, asking for it gives that one, however many others are planned."""
    with viewcache.open(together(tmp_path)) as cache:
        task = cache.task("two").task
        active = task.settled(0, 0)
        for epoch in range(EPOCHS):
            task.iterations(epoch)
        assert task.generation(0) is active
        assert task.settled(0, 1) is active
