"""The dispatcher goes by plans in memory, people ask the catalog: both know one need, in the same seconds."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

import viewcache
from tests.catalog.samples import select
from tests.tiny import config, encode_folder, single
from viewcache.api.session.cache import Cache
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.scheduling.generation import ActiveGeneration

SMALL = [single({"resize": {"short_side": 36}}, {"random_crop": {"shape": [16, 16]}})]


def three(tmp_path: Path, where: str) -> dict[str, Any]:
    """Two equal tasks, whose objects are the same, and one of other clips that drops its last batch."""
    videos = encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 + 3 * k for k in range(7)})
    catalog = where.replace(":@", "@") if where.startswith("postgresql") else "duckdb"
    whole = config(tmp_path / "store", videos, cache={"draw_ahead": 2, "catalog": catalog})
    other = {"videos_per_batch": 3, "frame_stride": 4, "samples_per_video": 1}
    tasks: list[dict[str, Any]] = [
        {"tag": "slow"},
        {"tag": "fast"},
        {"tag": "other", "sampling": other, "drop_last": True, "augmentation": SMALL},
    ]
    return {"cache": whole["cache"], "dataset": [config(tmp_path, videos, **task)["dataset"] for task in tasks]}


def announced(cache: Cache) -> list[ActiveGeneration]:
    """What the dispatcher works on ahead, once all that was asked for is planned."""
    cache.owner.look_ahead.wait_idle()
    cache.catalog.flush()
    assert cache.owner.dispatcher is not None
    found = [each for each in cache.owner.dispatcher.state.ahead if isinstance(each, ActiveGeneration)]
    assert len(found) == len(cache.owner.dispatcher.state.ahead)
    return found


def needs(cache: Cache, active: ActiveGeneration) -> list[tuple[int, float, float]]:
    """(object, seconds by the plan, seconds by the catalog) of each use that is to come."""
    plan = active.plan
    of = f"task = '{plan.task.name}' and epoch between {plan.first_epoch} and {plan.last_epoch}"
    columns = "epoch, iteration, position, sample, object_id, need_s"
    uses: list[Any] = select(cache.catalog, f"select {columns} from deadlines where {of}")
    found = []
    for epoch, iteration, position, sample, object_id, need_s in uses:
        row = active.rows(epoch, iteration)[position % active.batch * active.samples + sample]
        assert active.object_ids[row] == object_id
        found.append((object_id, active.due_in_s(row), need_s))
    return found


def read_some(cache: Cache) -> None:
    """Three tasks at three paces, one of them not measured yet."""
    for task, batches in (("slow", 2), ("fast", 3), ("other", 1)):
        for iteration in range(batches):
            cache.read(task, 0, iteration)


def test_plans_and_catalog_say_the_same_need(tmp_path: Path, where: str) -> None:
    """Each use to come is as many seconds away by its plan as by `deadlines`; each object by `object_demand`, whoever
    needs it first.
    """
    with viewcache.open(three(tmp_path, where)) as cache:
        read_some(cache)
        actives = announced(cache)
        for task in cache.tasks:  # a reader's place is known to all that was announced before
            cache.read(task, 0, 0)
        cache.catalog.flush()
        assert len(set(select(cache.catalog, "select seconds_per_iteration from positions"))) == 3
        soonest: dict[int, float] = {}
        for active in actives:
            for object_id, planned_s, recorded_s in needs(cache, active):
                assert planned_s == pytest.approx(recorded_s)
                soonest[object_id] = min(soonest.get(object_id, planned_s), planned_s)
        clips = "object_demand join objects using (object_id) where kind = 'clip'"
        wanted: list[Any] = select(cache.catalog, f"select object_id, next_need_s from {clips}")
    assert len(soonest) > 20
    assert dict(wanted) == pytest.approx(soonest)


def test_what_is_announced_late_is_not_needed_at_once(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning took until its reader was two batches on: what it needs next is due next, not what it has passed by."""
    planned, decide = Event(), Keeper.decide

    def slowly(*arguments: Any) -> None:
        planned.wait(60)
        decide(*arguments)

    monkeypatch.setattr(Keeper, "decide", slowly)
    with viewcache.open(three(tmp_path, where)) as cache:
        read_some(cache)
        planned.set()
        for active in announced(cache):
            for _, planned_s, recorded_s in needs(cache, active):
                assert planned_s == pytest.approx(recorded_s)
