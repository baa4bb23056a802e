"""A disk that is full while several tasks draw together: readers are told, nothing that was drawn is lost."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import viewcache
from tests.faults.caches import config, digest_of
from viewcache.api.session.cache import Cache
from viewcache.errors import Full

Taken = dict[tuple[str, int, int], tuple[tuple[str, ...], str]]
"""Place of a batch → its videos and a digest of its pixels."""


def two(store: Path, videos: Path) -> dict[str, Any]:
    """Two tasks over four videos, of other strides."""
    wide = config(store, videos, epochs=3, draw_ahead=1)
    narrow = config(store, videos, epochs=3, frame_stride=3)
    tasks = [wide["dataset"] | {"tag": "wide"}, narrow["dataset"] | {"tag": "narrow"}]
    return {"cache": wide["cache"], "dataset": tasks}


def refuse_half(cache: Cache, random: Random, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let half of all commits of draws fail as on a full disk; counts what became of them."""
    real: Callable[..., None] = cache.catalog.settle_draws
    became: Counter[str] = Counter()

    def sometimes(*tables: object) -> None:
        if random.random() < 0.5:
            became["refused"] += 1
            raise Full("catalog: no space left on device; free disk space")
        real(*tables)
        became["done"] += 1

    monkeypatch.setattr(cache.catalog, "settle_draws", sometimes)
    return became


def read(cache: Cache, task: str, epoch: int, iteration: int) -> tuple[tuple[str, ...], str]:
    """A batch's videos and a digest of its pixels."""
    batch = cache.read(task, epoch, iteration)
    return tuple(batch.videos), digest_of(batch)


def assert_whole(taken: Taken) -> None:
    """Every video twice in each epoch of each task: two samples."""
    seen: dict[tuple[str, int], Counter[str]] = {}
    for (task, epoch, _), (names, _) in taken.items():
        seen.setdefault((task, epoch), Counter()).update(names)
    assert seen.keys() == {(task, epoch) for task in ("wide", "narrow") for epoch in range(3)}
    assert all(counts == dict.fromkeys((f"v{k}" for k in range(4)), 2) for counts in seen.values())


@pytest.mark.parametrize("seed", range(4))
def test_epochs_are_whole_on_a_disk_that_is_sometimes_full(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A read whose draw could not be recorded gets Full and may be tried again; what it gets then stays for ever."""
    random, taken = Random(seed), Taken()
    with viewcache.open(two(tmp_path / "store", videos)) as cache:
        tasks = {name: cache.task(name).task for name in cache.tasks}
        left = {name: [(e, i) for e in range(3) for i in range(task.iterations(e))] for name, task in tasks.items()}
        became, told = refuse_half(cache, random, monkeypatch), 0
        while any(left.values()):
            name = random.choice([each for each in left if left[each]])
            try:
                taken[name, *left[name][0]] = read(cache, name, *left[name][0])
            except Full:
                told += 1
                continue
            left[name].pop(0)
        assert told
        assert became["refused"] >= told
        assert became["done"]
        monkeypatch.undo()
        assert all(read(cache, *place) == what for place, what in taken.items())
    assert_whole(taken)
    with viewcache.open(two(tmp_path / "store", videos)) as cache:
        assert {place: read(cache, *place) for place in reversed(list(taken))} == taken


def test_what_was_drawn_waits_until_there_is_room(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While every commit fails nothing new can be read, however often it is tried; then it is what was drawn first."""
    with viewcache.open(two(tmp_path / "store", videos)) as cache:
        first = read(cache, "wide", 0, 0)
        refused = refuse_half(cache, _Always(), monkeypatch)
        task = cache.task("wide").task
        active, drawn = task.generation(0), list[list[int]]()
        for _ in range(3):
            with pytest.raises(Full, match="free disk space"):
                cache.read("wide", 2, 1)
            active = task.generation(task.generation_of(2))
            drawn.append(active.order.ids[active.order.planned_indexes(0, active.order.ids.size)].tolist())
            assert active.settled(2) == 0
        assert refused["refused"] >= 3
        assert drawn[0] == drawn[1] == drawn[2], "nothing is drawn anew"
        assert read(cache, "wide", 0, 0) == first, "what is recorded is read as before"
        monkeypatch.undo()
        last = read(cache, "wide", 2, 1)
        names = [active.plan.videos.names[active.plan.videos.row_of[video]] for video in drawn[0]]
        assert list(dict.fromkeys(last[0])) == names[-2:]


class _Always(Random):
    """Every commit is among those that fail."""

    def random(self) -> float:
        return 0.0
