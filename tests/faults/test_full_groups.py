"""A disk that is full while several tasks draw together: readers are told, nothing that was drawn is lost."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import viewcache
from tests.faults.caches import config, digest_of, encode_videos
from viewcache.api.session.cache import Cache
from viewcache.errors import Full
from viewcache.materializer.planning.order import Order

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


MANY = 9
"""Videos of the tasks that are left."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More videos, so that hardly one stands where it is drawn to by chance."""
    return encode_videos(tmp_path_factory.mktemp("many"), MANY)


def two_of_many(store: Path, videos: Path) -> dict[str, Any]:
    """Two tasks that are alike, one video in a batch."""
    whole = config(store, videos, draw_ahead=2, seed=1, videos_per_batch=1, samples_per_video=1)
    return whole | {"dataset": [whole["dataset"] | {"tag": tag} for tag in "ab"]}


def read_through(
    whole: dict[str, Any],
    iterations: int,
    fail: Callable[[Cache], None],
    error: type[Exception],
    then: Callable[[Cache], None],
) -> None:
    """Read so much of an epoch of both tasks side by side; let a draw fail meanwhile, and read that batch again.

    Each video then comes once an epoch, in this run and in the next, and what was read stays where it was.
    """
    seen: dict[str, list[str]] = {"a": [], "b": []}
    with viewcache.open(whole) as cache:
        told = 0
        for iteration in range(iterations):
            if iteration == 3:
                fail(cache)
            for task in seen:
                try:
                    batch = cache.read(task, 0, iteration)
                except error:
                    told += 1
                    then(cache)
                    batch = cache.read(task, 0, iteration)
                seen[task] += batch.videos
        assert told == 1
        for task in seen:
            recorded = cache.catalog.load_draws(cache.task(task).task.task_id, 0, 0)["video_id"].to_pylist()
            assert len(set(recorded)) == len(recorded) == MANY
    with viewcache.open(whole) as cache:
        for task, before in seen.items():
            now = [name for iteration in range(MANY) for name in cache.read(task, 0, iteration).videos]
            assert now[: len(before)] == before
            assert sorted(now) == [f"v{k}" for k in range(MANY)]


def leave_both(cache: Cache) -> None:
    """What the service does when the last reader of a task ends, as it may by the very error that it was told."""
    for task in cache.tasks:
        cache.owner.suspend(task)


@pytest.mark.parametrize("step", ["draws", "commit", "policies"])
def test_tasks_may_be_left_when_draws_could_not_be_recorded(
    tmp_path: Path, many: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Read again, they go on in the very orders that were drawn, wherever recording these failed.

    That is before the commit, behind it (the connection was lost then), or at the policies that follow.
    """

    def fail(cache: Cache) -> None:
        name = "add_substitutions" if step == "policies" else "settle_draws"
        real: Callable[..., None] = getattr(cache.catalog, name)

        def once(*given: object) -> None:
            monkeypatch.setattr(cache.catalog, name, real)
            if step == "commit":
                real(*given)
            raise Full("catalog: no space left on device; free disk space")

        monkeypatch.setattr(cache.catalog, name, once)

    read_through(two_of_many(tmp_path / "store", many), 6, fail, Full, leave_both)


@pytest.mark.parametrize("place", range(3))
def test_a_round_that_fails_half_way(tmp_path: Path, many: Path, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Where a video was drawn and could not be put in its place, for want of memory, it is drawn again."""

    def fail(cache: Cache) -> None:
        real, counted = Order.place, iter(range(place))

        def sometimes(order: Order, epoch: int, position: int, video_id: int) -> tuple[int, int]:
            if next(counted, None) is None:
                monkeypatch.setattr(Order, "place", real)
                raise MemoryError
            return real(order, epoch, position, video_id)

        monkeypatch.setattr(Order, "place", sometimes)

    read_through(two_of_many(tmp_path / "store", many), MANY, fail, MemoryError, lambda cache: None)
