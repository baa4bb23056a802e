"""The plan of a further equal task is the first one's in another order; laws 2 to 4 hold all the same."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.tiny import AUGMENTATION, config, encode_folder, places, sql
from viewcache.materializer.planning.plan_generation import plan_generation
from viewcache.materializer.planning.twins import asks_for, is_twin
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.tasks.group import Group

VIDEOS = 9
BY_EPOCH = [
    {
        "branch_type": "conditional",
        "inputs": ["frame"],
        "outputs": ["a"],
        "branches": [
            {"condition": "epoch < 1", "config": [{"resize": {"shape": [32, 32]}}]},
            {"condition": "else", "config": [{"resize": {"shape": [32, 32]}}, {"flip": {"flip_prob": 1.0}}]},
        ],
    }
]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine videos of different lengths, one of them shorter than a clip."""
    lengths = {f"v{k}.mp4": 40 + 3 * k for k in range(VIDEOS - 1)} | {"short.mp4": 5}
    return encode_folder(tmp_path_factory.mktemp("twins"), lengths)


def trials(store: Path, videos: Path, count: int, **dataset: Any) -> dict[str, Any]:
    """A configuration of equal tasks t0, t1, …"""
    one = {"epochs": 4, "augmentation": AUGMENTATION, "on_short_video": "loop", **dataset}
    whole = config(store, videos, cache={"draw_ahead": 2})
    return {
        "cache": whole["cache"],
        "dataset": [config(store, videos, **{**one, "tag": f"t{number}"})["dataset"] for number in range(count)],
    }


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tasks whose plans are made from their draws, in order."""
    names: list[str] = []

    def noted(task: Any, *given: Any, **more: Any) -> Any:
        names.append(task.name)
        return plan_generation(task, *given, **more)

    monkeypatch.setattr("viewcache.materializer.tasks.planner.plan_generation", noted)
    return names


def shown(active: ActiveGeneration) -> dict[str, list[Any]]:
    """All of a plan."""
    plan, rows = active.plan, np.arange(len(active.plan))
    return {
        "keys": plan.hex_keys,
        "objects": active.object_ids.tolist(),
        "seq": plan.seq.tolist(),
        "epoch": plan.epoch.tolist(),
        "iteration": plan.iteration.tolist(),
        "position": plan.position.tolist(),
        "sample": plan.sample.tolist(),
        "names": [plan.videos.names[k] for k in plan.video.tolist()],
        "frames": plan.frames(rows).tolist(),
        "recipes": [(each.program, each.row.tolist(), each.due) for each in plan.recipes(rows.tolist())],
        "order": active.order.ids.tolist(),
    }


def by_place(active: ActiveGeneration) -> dict[tuple[int, int, int], str]:
    """Content keys of the clips by epoch, position and sample, as drawn."""
    return {active.place(row): active.key(row) for row in range(len(active.plan))}


USES = "select task, epoch, iteration, position, sample, object_id from uses order by all"


@pytest.mark.parametrize("steps", [AUGMENTATION, BY_EPOCH], ids=["keyed", "by-epoch"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_plan_in_another_order_is_the_plan(
    tmp_path: Path, videos: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch, steps: Any, drop_last: bool
) -> None:
    """Only the first of equal tasks is planned from its draws; each plan is what its own draws give, to the record."""
    given = trials(tmp_path / "store", videos, 3, augmentation=steps, drop_last=drop_last)
    with viewcache.open(given) as cache:
        found = {(name, n): shown(cache.task(name).task.generation(n)) for name in cache.tasks for n in range(2)}
        uses = sql(cache, USES)
    assert planned == ["t0", "t0"]
    monkeypatch.setattr(Group, "twins", lambda *_: [])
    with viewcache.open(given) as cache:
        for (name, number), plan in found.items():
            assert shown(cache.task(name).task.generation(number)) == plan
        assert sql(cache, USES) == uses
    assert sorted(planned[2:]) == ["t0", "t0", "t1", "t1", "t2", "t2"]


def test_trials_that_come_late_and_go(tmp_path: Path, videos: Path, planned: list[str]) -> None:
    """One that joins in the middle of the others' epochs has part of their plan; every task sees each video once."""
    given = trials(tmp_path / "store", videos, 2)
    random = Random(0)
    with viewcache.open(given) as cache:
        for epoch, iteration in list(places(cache, "t0"))[:6]:
            cache.read("t0", epoch, iteration)
        late = trials(tmp_path / "store", videos, 4)
        late["dataset"] = late["dataset"][2:]
        cache.join(late)
        left = {name: list(places(cache, name)) for name in ("t1", "t2", "t3")}
        seen: dict[str, list[tuple[int, str]]] = {name: [] for name in left}
        while any(left.values()):
            name = random.choice([name for name, rest in left.items() if rest])
            epoch, iteration = left[name].pop(0)
            seen[name] += [(epoch, video) for video in cache.read(name, epoch, iteration).videos]
        assert cache.task("t2").task.joined > 0
        assert planned == ["t0", "t0", "t2"], "only what is behind the others' last epoch is planned anew"
        for name, had in seen.items():
            for epoch in range(4):
                of_epoch = [video for at, video in had if at == epoch]
                assert sorted(of_epoch) == sorted(2 * [*(f"v{k}" for k in range(VIDEOS - 1)), "short"]), name


def test_drawing_waits_for_nobody_who_is_about_to_join(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is decided when a further job joins, the others draw on: who plans it wants the lock that they hold."""
    deciding, go_on = Event(), Event()
    with viewcache.open(trials(tmp_path / "store", videos, 2)) as cache, ThreadPoolExecutor(2) as pool:
        for place in list(places(cache, "t0"))[:2]:
            cache.read("t0", *place)
        further = trials(tmp_path / "store", videos, 3)
        further["dataset"] = further["dataset"][2:]
        cache.join(further)
        late, first = (cache.task(name).task for name in ("t2", "t0"))
        load = cache.catalog.load_generations

        def slowly(task_id: int) -> Any:
            if task_id == late.task_id and not deciding.is_set():
                deciding.set()
                assert go_on.wait(60)
            return load(task_id)

        monkeypatch.setattr(cache.catalog, "load_generations", slowly)
        joining = pool.submit(cache.read, "t2", 0, 0)
        try:
            assert deciding.wait(60)
            assert first.group is not None
            drawing = pool.submit(first.group.reached, first, 1, 2)  # an epoch that is not open yet
            drawing.result(20)
        finally:
            go_on.set()
        assert len(joining.result(60).videos) == 4
        assert [cache.read("t0", *place).epoch for place in list(places(cache, "t0"))[2:5]]


def test_the_next_generation_of_a_twin_is_planned_when_it_is_near(tmp_path: Path, videos: Path) -> None:
    """A trial that ends early has recorded nothing of it; the first task's is planned at once, for all of them."""
    with viewcache.open(trials(tmp_path / "store", videos, 1)) as cache:
        cache.read("t0", 0, 0)
        cache.owner.look_ahead.wait_idle(30)
        further = trials(tmp_path / "store", videos, 2)
        further["dataset"] = further["dataset"][1:]
        cache.join(further)
        planned = []
        for epoch in range(2):
            cache.read("t1", epoch, 0)
            cache.owner.look_ahead.wait_idle(30)
            planned.append([[cache.task(name).task.planned(n) is not None for n in range(2)] for name in ("t0", "t1")])
        assert planned == [[[True, True], [True, False]], [[True, True], [True, True]]]


def test_pixels_are_those_of_a_task_alone(tmp_path: Path, videos: Path, planned: list[str]) -> None:
    """Clips of a twin are made from its own recipe, and are what a cache gives in which nobody has a plan to share."""
    given = trials(tmp_path / "store", videos, 2)
    with viewcache.open(given) as cache:
        batches = [cache.read("t1", *place) for place in list(places(cache, "t1"))[:8]]
    given["cache"]["store"] = str(tmp_path / "other")
    with viewcache.open(given) as cache, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Group, "twins", lambda *_: [])
        for batch, place in zip(batches, places(cache, "t1"), strict=False):
            again = cache.read("t1", *place)
            order = np.argsort(np.array(again.keys))
            assert sorted(batch.keys) == sorted(again.keys)
            assert np.array_equal(batch.video[np.argsort(np.array(batch.keys))], again.video[order])


def test_a_bad_video_has_the_same_stand_in(tmp_path: Path, videos: Path, planned: list[str]) -> None:
    """A file that cannot be decoded is replaced by video, so that twins agree; what one clip alone lost is planned."""
    folder = encode_folder(tmp_path / "some", {f"v{k}.mp4": 40 for k in range(6)})
    (folder / "v9.mp4").write_bytes((folder / "v0.mp4").read_bytes()[:900])
    given = trials(tmp_path / "store", folder, 2, on_bad_video="replace")
    with viewcache.open(given) as cache:
        for name in cache.tasks:
            for place in places(cache, name):
                cache.read(name, *place)
        found = {name: by_place(cache.task(name).task.generation(1)) for name in cache.tasks}
    assert planned == ["t0", "t0"]
    with viewcache.open(given) as cache, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Group, "twins", lambda *_: [])
        assert {name: by_place(cache.task(name).task.generation(1)) for name in cache.tasks} == found


def test_what_is_a_twin(tmp_path: Path, videos: Path) -> None:
    """Name and number of epochs are its own; anything else makes another definition."""
    with viewcache.open(trials(tmp_path / "store", videos, 2)) as cache:
        one, other = (cache.task(name).task.spec for name in cache.tasks)
    assert is_twin(one, other)
    with viewcache.open(trials(tmp_path / "more", videos, 1, epochs=3, augmentation=BY_EPOCH)) as cache:
        third = cache.task("t0").task.spec
    assert not is_twin(one, third)
    assert asks_for(third, "epoch")
    assert not asks_for(third, "iteration")
    assert not asks_for(one, "epoch")
