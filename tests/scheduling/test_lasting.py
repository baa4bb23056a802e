"""Pictures that last behind their generation: found again by each later one, the same bytes, nothing decoded again."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pytest

import viewcache
from tests.scheduling.harness import WAIT_S, until
from tests.tiny import config, encode_folder, pixels, places, same, sql
from viewcache.api.config.load import load
from viewcache.api.preview.plan import previews
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.records import IoSampleRow
from viewcache.errors import Full
from viewcache.materializer.planning.cost import BATCH_S, BEGIN_S, CostModel
from viewcache.materializer.planning.devices import FREE, Devices, host_of, record_devices
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import IntermediateObject, Recipe
from viewcache.materializer.retention.decided import Decided, lying_of, merged
from viewcache.materializer.retention.told import Told, kept_tables
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.trim import Trim
from viewcache.materializer.tasks.planner import Planner

EPOCHS, SAMPLES = 12, 2
DECODE_S, CONVERT_S = 1e-5, 1e-6
"""Core seconds a pixel."""


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    return encode_folder(tmp_path_factory.mktemp("lasting"), {f"v{k}.mp4": 40 + k for k in range(4)})


@pytest.fixture(autouse=True)
def decoding_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small videos decide by their metadata otherwise."""

    def measured(kind: type[CostModel], samples: object, codec: str = "auto", devices: Devices = FREE) -> CostModel:
        return kind(decode_s_per_pixel=DECODE_S, convert_s_per_pixel=CONVERT_S, devices=devices)

    monkeypatch.setattr(CostModel, "measured", classmethod(measured))


def opened(store: Path, videos: Path, epochs: int = EPOCHS, budget: int = 3_000_000, **cache: Any) -> Cache:
    """A task of many epochs, of which two are planned at once."""
    settings = {"budget": budget, "epochs_per_generation": 2, **cache}
    sampling = {"samples_per_video": SAMPLES}
    return viewcache.open(config(store, videos, cache=settings, sampling=sampling, epochs=epochs))


def read_epochs(cache: Cache, epochs: range) -> dict[tuple[int, int], Any]:
    """Every batch of some epochs, each made ahead as far as there is room."""
    found = {}
    for epoch in epochs:
        for iteration in range(cache.task("train").iterations(epoch)):
            found[epoch, iteration] = cache.read("train", epoch, iteration)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
        assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
    return found


def packets(cache: Cache) -> int:
    """Fed to decoders so far."""
    assert cache.owner.dispatcher is not None
    return cache.owner.dispatcher.tally.frames["packets"]


@pytest.fixture(scope="module")
def plenty(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Any:
    """Every batch of a task whose generation is all there is: nothing lasts, nothing is left out."""
    whole = {"budget": 10**8, "epochs_per_generation": 2, "keep": "leaves"}
    folder = tmp_path_factory.mktemp("plenty")
    sampling = {"samples_per_video": SAMPLES}
    with viewcache.open(config(folder, videos, cache=whole, sampling=sampling, epochs=EPOCHS)) as cache:
        return pixels(cache)


def test_later_generations_decode_nothing(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Law 3 over all epochs; what was made in the first generations is what all others make their clips from."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(4))
        fed = packets(cache)
        lasting = sql(cache, "select o.object_id from objects o join copies using (object_id) where o.kind <> 'clip'")
        assert len(lasting) == 4, "one of each video"
        got |= read_epochs(cache, range(4, EPOCHS))
        assert packets(cache) == fed, "nothing is decoded any more"
        assert same(got, plenty)


def test_what_epochs_are_expected_to_cost_is_what_is_worked(tmp_path: Path, videos: Path) -> None:
    """What `plan` says beforehand is the work that a run counts, by the same rates, and what is beside of its own."""
    sampling = {"samples_per_video": SAMPLES}
    settings = {"budget": 3_000_000, "epochs_per_generation": 2}
    one = config(tmp_path, videos, cache=settings, sampling=sampling, epochs=EPOCHS)
    (keep,) = previews(load(one), [0]).keeps
    beside, cost = dict(keep.horizon.beside_s), dict(keep.horizon.epoch_s)
    assert list(cost) == list(beside) == [1, 10]
    batches = 2  # in an epoch; a generation has fewer than a beginning
    assert beside == pytest.approx({1: BEGIN_S / 2, 10: batches * BATCH_S})
    with opened(tmp_path, videos) as cache:
        read_epochs(cache, range(4))
        assert cache.owner.dispatcher is not None
        frames = cache.owner.dispatcher.tally.frames
        ((pixels_of_one,),) = sql(cache, "select distinct width * height from videos")
        worked_s = int(str(pixels_of_one)) * (frames["packets"] * DECODE_S + frames["converted"] * CONVERT_S)
    first_s, later_s = (cost[epoch] - beside[epoch] for epoch in cost)
    assert 0.6 * worked_s < 2 * first_s < 1.1 * worked_s, "a video may be decoded for its first clips alone, and again"
    assert later_s < 0.05 * first_s


def test_a_late_generation_asks_once_which_objects_are_known(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clips are new; what they are made from was found before and keeps its number."""
    with opened(tmp_path, videos) as cache:
        read_epochs(cache, range(4))
        asked = list[str]()

        def noted(verb: str) -> Callable[[Any], Any]:
            do = getattr(cache.catalog, verb)

            def noting(given: Any) -> Any:
                asked.append(verb)
                return do(given)

            return noting

        for verb in ("objects_by_key", "record_plan"):
            monkeypatch.setattr(cache.catalog, verb, noted(verb))
        read_epochs(cache, range(4, EPOCHS))
        assert asked == ["objects_by_key", "record_plan"] * 3, "the one of epochs 4 and 5 was planned before"


def test_who_reads_as_fast_as_he_can_decodes_nothing(
    tmp_path: Path, videos: Path, plenty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He comes to a generation before it is decided what its clips are made from, again and again, and waits for it."""
    monkeypatch.setattr("viewcache.materializer.tasks.look_ahead.DECIDE_S", 60.0)
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(4))
        fed = packets(cache)
        decide, deciding = cache.owner.keeper.decide, threading.Event()

        def slowly(*given: Any) -> Any:
            deciding.wait(0.05)  # a planner that is behind
            return decide(*given)

        monkeypatch.setattr(cache.owner.keeper, "decide", slowly)
        for epoch in range(4, EPOCHS):
            for iteration in range(cache.task("train").iterations(epoch)):
                got[epoch, iteration] = cache.read("train", epoch, iteration)
        assert packets(cache) == fed
        assert same(got, plenty)


class Waited(threading.Event):
    """Counts how often it was waited for, and gives up at once."""

    count = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Look whether it is set."""
        type(self).count += 1
        return super().wait(0)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> type[Waited]:
    """How often readers have waited for a decision."""

    class Mine(Waited):
        pass

    instead = SimpleNamespace(**{**vars(threading), "Event": Mine})
    monkeypatch.setattr("viewcache.materializer.tasks.look_ahead.threading", instead)
    return Mine


@contextmanager
def stuck_planner(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is decided meanwhile."""
    decide, go_on = cache.owner.keeper.decide, threading.Event()

    def late(*given: Any) -> Any:
        assert go_on.wait(60)
        return decide(*given)

    monkeypatch.setattr(cache.owner.keeper, "decide", late)
    try:
        yield
    finally:
        go_on.set()


def test_who_goes_to_and_fro_waits_once_for_what_is_not_decided(
    tmp_path: Path, videos: Path, plenty: Any, monkeypatch: pytest.MonkeyPatch, waits: type[Waited]
) -> None:
    """A planner that takes longer than readers wait delays each generation once, not each jump; the bytes are the same.

    When nobody has read the task for a while, it is worth a try again.
    """
    places = [(0, 0), (8, 0)]
    with opened(tmp_path, videos) as cache:
        got = {place: cache.read("train", *place) for place in places}  # both are planned now
        cache.owner.look_ahead.wait_idle()
        cache.owner.suspend("train")
        cache.owner.look_ahead.wait_idle()
        with stuck_planner(cache, monkeypatch):
            waits.count = 0
            for place in places * 4:
                got[place] = cache.read("train", *place)
            assert waits.count == 2
            cache.owner.suspend("train")
            for place in places * 4:
                got[place] = cache.read("train", *place)
            assert waits.count == 4
        assert same(got, {place: plenty[place] for place in places})


def test_the_catalog_is_told_once(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decided again after each epoch is recorded where it differs, and is there as if it had been each time."""
    keep, keep_all, recorded = Told.keep, Told.keep_all, Catalog.record_keeping
    flags: dict[int, bool] = {}
    edges, given_up = set[tuple[int, int]](), set[int]()
    asked: list[Any] = []
    told: list[object] = []

    def keeps(mine: Told, number: int, chosen: Any, works: Any, objects: Any, stale: Any) -> None:
        kept, made_of = kept_tables(works, objects, stale)
        flags.update(zip(*(kept[name].to_pylist() for name in ("object_id", "keep")), strict=True))
        gone = {each.object_id for each in stale}
        edges.difference_update({edge for edge in edges if edge[0] in gone})
        given_up.update(gone)
        edges.update(zip(*(made_of[name].to_pylist() for name in ("parent_id", "child_id")), strict=True))
        asked[:] = [mine, number, chosen, works, objects, ()]
        keep(mine, number, chosen, works, objects, stale)

    def records(*given: Any) -> None:
        told.append(given)
        recorded(*given)

    def keeps_all(mine: Told, number: int, work: Any) -> None:
        flags.update(dict.fromkeys(work.object_ids.tolist(), True))
        keep_all(mine, number, work)

    monkeypatch.setattr(Told, "keep", keeps)
    monkeypatch.setattr(Told, "keep_all", keeps_all)
    monkeypatch.setattr(Catalog, "record_keeping", records)
    with opened(tmp_path, videos) as cache:
        read_epochs(cache, range(EPOCHS))
        rows = {row[0]: row[1] for row in sql(cache, "select object_id, keep from objects")}
        assert {object_id: rows[object_id] for object_id in flags} == flags
        there = set(sql(cache, "select parent_id, child_id from edge"))
        assert edges <= there, "beside those of the plans"
        assert given_up.isdisjoint(parent for parent, _ in there - edges)
        counts = []
        for _ in range(3):  # another generation may have said otherwise in between, once
            keep(*asked)
            counts.append(len(told))
    assert 0 < counts[0] == counts[1] == counts[2]


def test_what_cannot_change_is_not_decided_again(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all that is kept lasts and lies there, a generation is decided once, when it is planned."""
    keep, decided = Told.keep, list[int]()

    def keeps(mine: Told, number: int, *given: Any) -> None:
        decided.append(number)
        keep(mine, number, *given)

    monkeypatch.setattr(Told, "keep", keeps)
    with opened(tmp_path, videos, epochs=24, epochs_per_generation=4) as cache:
        read_epochs(cache, range(7))
        assert decided.count(0) > 1, "while it is being made it is decided again"
        decided.clear()
        read_epochs(cache, range(7, 16))
        assert 3 in decided
        assert max(map(decided.count, decided)) == 1


def test_a_decision_rests_on_what_lies_there() -> None:
    """It holds for more epochs of the same plans, until something has left; one that rests on nothing never does."""
    work: Any = object()
    decided = Decided({1: (work, 7, 0)}, CostModel(), rests_on=("a", "b"))
    later, replanned = {1: (work, 7, 1)}, {1: (work, 8, 1)}
    assert decided.holds(later, {"a", "b", "c"}.__contains__)
    assert not decided.holds(later, {"a", "c"}.__contains__)
    assert not decided.holds(replanned, {"a", "b", "c"}.__contains__)
    assert not decided.holds({**later, 2: (work, 9, 0)}, {"a", "b", "c"}.__contains__)
    assert not Decided({1: (work, 7, 0)}, CostModel()).holds(later, {"a", "b", "c"}.__contains__)


def test_what_lies_there_and_what_is_chosen_are_one_object_each() -> None:
    """They are told apart by their keys, also where equal ones were worked out anew: they have arrays."""
    first, again, other = (object_of(key) for key in ("aa", "aa", "bb"))
    assert merged((first,), (again,)) == (again,)
    assert merged((first,), (other, again)) == (again, other)
    assert merged((), (first,)) == merged((first,), ()) == (first,)
    both = first, other
    assert merged(both, both) is both
    assert lying_of(both, {first.key, other.key}.__contains__) is both
    assert lying_of(both, {other.key}.__contains__) == (other,)


def object_of(key: str) -> IntermediateObject:
    """Two pictures of a video."""
    row, frames = np.arange(2, dtype=np.int32), np.arange(2, dtype=np.int32)
    return IntermediateObject(1, "cc" * 16, Recipe(key * 16, Program(()), row, frames, (2, 3, 8, 8), 0, 1000))


def test_it_is_not_asked_what_is_over_where_all_lasts(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog's answer is known while nothing lies in the store but what it expects to be of use."""
    outlived, asked = Catalog.outlived, list[object]()

    def asks(*given: Any) -> Any:
        asked.append(given)
        return outlived(*given)

    with opened(tmp_path, videos, eviction={"trim": False}) as cache:
        read_epochs(cache, range(4))
        owner, ledger = cache.owner, cache.owner.ledger
        assert owner.dispatcher is not None
        lying = {copy.object_id for copy in ledger.copies().values()}
        monkeypatch.setattr(Catalog, "outlived", asks)
        parts = ledger, owner.dispatcher.evictor, owner.catalog, lambda: owner.look_ahead.going(owner.opened)
        for expected, times in ((lying, 0), (lying | {0}, 0), (lying - {min(lying)} | {0}, 1)):
            trim = Trim(*parts, lambda: True, owner.keeper.lying.may_last, partial(set, expected))
            trim.some()
            assert len(asked) == times


def test_a_restart_finds_what_lasts(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """In the middle of a training the cache is closed and opened: nothing is decoded again."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(5))
    with opened(tmp_path, videos) as cache:
        got |= read_epochs(cache, range(5, EPOCHS))
        assert packets(cache) == 0
        assert same(got, plenty)


@pytest.mark.parametrize(("bytes_per_s", "kept"), [(10**9, 4), (100, 0)])
def test_a_disk_that_was_profiled_changes_no_byte(
    tmp_path: Path, videos: Path, plenty: Any, bytes_per_s: int, kept: int
) -> None:
    """Law 3: on one that is fast as much lasts as ever; on one that is of no help even beside decoding nothing does."""
    with Catalog.open(tmp_path) as catalog:
        rows = [IoSampleRow("read", 20, "", "local", 100, 1e8 / bytes_per_s, 10**8)]
        record_devices(catalog, rows, host_of(tmp_path), 1.0)
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(4))
        lasting = sql(cache, "select o.object_id from objects o join copies using (object_id) where o.kind <> 'clip'")
        assert len(lasting) == kept
        assert same(got | read_epochs(cache, range(4, EPOCHS)), plenty)


@pytest.mark.parametrize("mix", [0.0, 0.5])
def test_a_stated_share_changes_no_byte(tmp_path: Path, videos: Path, plenty: Any, mix: float) -> None:
    """Of that share of the videos something lasts, of the same ones after a restart; the others are decoded again."""
    query = "select distinct o.video_id from objects o join copies using (object_id) where o.kind <> 'clip' order by 1"
    with opened(tmp_path, videos, mix=mix) as cache:
        got = read_epochs(cache, range(4))
        lasting = sql(cache, query)
        assert len(lasting) == 4 * mix
    with opened(tmp_path, videos, mix=mix) as cache:
        got |= read_epochs(cache, range(4, 8))
        assert sql(cache, query) == lasting
        assert packets(cache) > 0
        assert same(got | read_epochs(cache, range(8, EPOCHS)), plenty)


def test_pictures_are_of_their_video_whatever_stands_in(tmp_path: Path, videos: Path) -> None:
    """A clip of a video cannot be made and another video gives it: what is kept is still made of the one it is of."""
    settings, sampling = {"budget": 3_000_000, "epochs_per_generation": 2}, {"samples_per_video": SAMPLES}
    replacing = {"on_bad_video": "replace", "epochs": EPOCHS}
    with viewcache.open(config(tmp_path, videos, cache=settings, sampling=sampling, **replacing)) as cache:
        cache.read("train", 0, 0)
        cache.owner.look_ahead.wait_idle()
        task = cache.task("train").task
        keys = [str(key) for (key,) in sql(cache, "select key from objects where kind in ('aug', 'frames')")]
        kept = [(work, row) for work in cache.owner.keeper.intermediates() for key in keys for row in work.rows_of(key)]
        assert len(kept) >= 4
        active = task.generation(0)
        broken = sorted({str(work.video(row)) for work, row in kept})[:2]  # the others can still stand in for them
        assert broken
        for video in broken:
            first = int(active.rows_of_video(video)[0])
            assert task.substitute(active, [first], "it is broken there", gone=False) is None
            assert active.source(first).key != video
        assert all(work.source(row).key == work.video(row) for work, row in kept)


def test_a_task_that_is_over_expects_nothing(tmp_path: Path, videos: Path) -> None:
    """What lasted for it is wanted by nobody any more, in the eyes of policies."""
    wanted = (
        "select count(*) from object_demand d join objects o using (object_id) where o.kind <> 'clip' and d.refs > 0"
    )
    with opened(tmp_path, videos) as cache:
        read_epochs(cache, range(2))
        task_id = cache.task("train").task.task_id
        assert cache.owner.keeper.has_weighed(task_id)
        assert sql(cache, wanted) != [(0,)]
        assert len(cache.owner.keeper.settled) == 4
        assert cache.owner.retire("train")
        assert not len(cache.owner.keeper.settled)
        assert not cache.owner.keeper.has_weighed(task_id)
        assert sql(cache, wanted) == [(0,)]


def test_a_task_that_is_being_planned_is_closed_afterwards(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that ends while its next generation is planned needs nothing any more when that is done."""
    began, go_on, plan = threading.Event(), threading.Event(), Planner.plan

    def planned(self: Planner, *given: Any, **named: Any) -> ActiveGeneration:
        if threading.current_thread().name.startswith("viewcache-planner"):
            began.set()
            assert go_on.wait(WAIT_S)
        return plan(self, *given, **named)

    monkeypatch.setattr(Planner, "plan", planned)
    with opened(tmp_path, videos) as cache:
        for epoch in range(2):
            for iteration in range(cache.task("train").iterations(epoch)):
                cache.read("train", epoch, iteration)
        assert began.wait(WAIT_S)
        assert not cache.owner.retire("train")
        go_on.set()
        until(lambda: cache.owner.retire("train"), "it is closed")
        cache.owner.look_ahead.wait_idle()
        assert sql(cache, "select count(*) from uses") == [(0,)]


@pytest.mark.logs_a_traceback
def test_what_goes_wrong_ahead_is_logged(
    tmp_path: Path, videos: Path, plenty: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake of ours in the planner's thread costs no batch, and does not go unheard."""
    with opened(tmp_path, videos) as cache:

        def wrong(*_: object) -> None:
            raise LookupError("a mistake of ours")

        monkeypatch.setattr(cache.owner.keeper, "decide", wrong)
        got = {(0, 0): cache.read("train", 0, 0)}
        cache.owner.look_ahead.wait_idle()
        assert same(got, {(0, 0): plenty[0, 0]})
    assert "a mistake of ours" in caplog.text


def test_what_was_decided_for_one_task_goes_with_it(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Nothing is made for it or weighed by what it was worth; read again, it is decided anew, to the same bytes."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(2))
        keeper = cache.owner.keeper
        assert keeper.intermediates()
        keeper.forget(cache.task("train").task.task_id)
        assert keeper.intermediates() == []
        assert keeper.prices() == Prices()
        got |= read_epochs(cache, range(2, 4))
        assert keeper.intermediates()
        assert same(got, {place: batch for place, batch in plenty.items() if place[0] < 4})


def unlike(store: Path, videos: Path, **cache: Any) -> dict[str, Any]:
    """Two tasks over the same videos, of strides 2 and 4."""
    one: dict[str, Any] = config(store, videos, cache=cache, sampling={"samples_per_video": SAMPLES}, epochs=EPOCHS)
    other = {**one["dataset"], "tag": "other", "sampling": {**one["dataset"]["sampling"], "frame_stride": 4}}
    return {**one, "dataset": [one["dataset"], other]}


@pytest.mark.parametrize("lags", ["train", "other"])
def test_a_task_that_lags_uses_what_all_have_made(tmp_path: Path, videos: Path, lags: str) -> None:
    """When others have read a generation, it is decided for one task alone: that makes no second set of pictures."""
    first, second = sorted(("train", "other"), key=lambda name: name == lags)
    with viewcache.open(unlike(tmp_path, videos, budget=5_000_000)) as cache:
        got: dict[str, dict[tuple[int, int], Any]] = {first: {}, second: {}}
        for epoch in range(-3, EPOCHS):
            for task, now in (first, epoch + 3), (second, epoch):
                for iteration in range(cache.task(task).iterations(now)) if 0 <= now < EPOCHS else ():
                    got[task][now, iteration] = cache.read(task, now, iteration)
                cache.owner.look_ahead.wait_idle()
                assert cache.owner.dispatcher is not None
                assert cache.owner.dispatcher.wait_idle(60)
        pictures = "select video, count(*) from objects where kind = 'aug' and state = 'ready' group by video"
        assert sorted(sql(cache, pictures)) == [(f"v{k}", 1) for k in range(4)]
    shutil.rmtree(tmp_path / "objects")
    with viewcache.open(unlike(tmp_path, videos, budget=10**8, keep="leaves")) as cache:
        assert all(same(got[task], pixels(cache, task)) for task in got)


@pytest.mark.parametrize("ends", ["through", "leaves"])
def test_a_task_that_is_over_widens_nothing(tmp_path: Path, videos: Path, ends: str) -> None:
    """Of a training over segments pictures of these last, whatever has looked at whole videos once."""
    labels = tmp_path / "segments.csv"
    labels.write_text("video,start_s,end_s\n" + "".join(f"v{k}.mp4,0.0,0.4\n" for k in range(4)))
    given = unlike(tmp_path / "store", videos, budget=600_000)
    train, other = given["dataset"]
    given["dataset"] = [{**train, "labels": str(labels)}, {**other, "epochs": 1}]
    with viewcache.open(given) as cache:
        for epoch in range(EPOCHS):
            for task, until in ("train", EPOCHS), ("other", 1):
                for iteration in range(cache.task(task).iterations(epoch)) if epoch < until else ():
                    cache.read(task, epoch, iteration)
            if epoch == 1 and ends == "leaves":
                cache.leave("other")
            cache.owner.look_ahead.wait_idle()
            assert cache.owner.dispatcher is not None
            assert cache.owner.dispatcher.wait_idle(60)
            if epoch == 5:
                fed = packets(cache)
        assert packets(cache) == fed, "nothing is decoded any more"
        lasting = "select video from objects where kind = 'aug' and state = 'ready' and frames < 20"
        assert sorted(sql(cache, lasting)) == [(f"v{k}",) for k in range(4)]


def test_more_epochs_go_on_with_what_lasts(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Epochs are raised in the middle: what was made is of use to those that came."""
    with opened(tmp_path, videos, epochs=6) as cache:
        got = read_epochs(cache, range(6))
    with opened(tmp_path, videos) as cache:
        got |= read_epochs(cache, range(6, EPOCHS))
        assert packets(cache) == 0
        assert same(got, plenty)


def test_a_smaller_budget_in_the_middle(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Cut to a tenth, what lasts leaves as far as it must; the bytes are the same and the budget holds."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(5))
    with opened(tmp_path, videos, budget=400_000) as cache:
        got |= read_epochs(cache, range(5, EPOCHS))
        assert same(got, plenty)


def test_damage_is_noticed_and_made_again(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Each lasting object is cut short between two generations; clips are decoded instead (law 5)."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(4))
        fed = packets(cache)
        found = sql(cache, "select physical from copies join objects using (object_id) where objects.kind <> 'clip'")
        for (physical,) in found:
            (shard,) = Path(tmp_path, str(physical)).glob("c*")
            os.truncate(shard, shard.stat().st_size // 2)
        got |= read_epochs(cache, range(4, EPOCHS))
        assert packets(cache) > fed
        assert same(got, plenty)


def test_policies_know_of_epochs_that_nobody_has_planned(tmp_path: Path, videos: Path) -> None:
    """What lasts is wanted as long as epochs come behind; in the last generation only by its own clips."""
    wanted = (
        "select count(*) from object_demand d join objects o using (object_id) "
        "where o.kind <> 'clip' and o.state = 'ready' and d.refs > 0"
    )
    with opened(tmp_path, videos) as cache:
        for epoch in range(EPOCHS):
            read_epochs(cache, range(epoch, epoch + 1))
            cache.catalog.flush()
            if 4 <= epoch < EPOCHS - 3:
                assert sql(cache, wanted) == [(4,)], epoch
        assert sql(cache, wanted) == [(0,)], "the training is over"


def test_a_reader_that_pauses_loses_nothing(tmp_path: Path, videos: Path) -> None:
    """Nobody reads for a while: what lasts is still wanted, since the task has epochs left."""
    wanted = (
        "select count(*) from object_demand d join objects o using (object_id) where o.kind <> 'clip' and d.refs > 0"
    )
    with opened(tmp_path, videos) as cache:
        read_epochs(cache, range(4))
        cache.owner.look_ahead.forget(cache.task("train").task)
        cache.owner.look_ahead.wait_idle()
        cache.catalog.flush()
        assert sql(cache, wanted) >= [(4,)]


def expected(store: Path) -> int:
    """Of how many objects a closed cache's catalog expects uses that nobody has planned."""
    with duckdb.connect(str(CatalogFiles(store).database)) as connection:
        return int(connection.sql("select count(*) from expected_use").fetchall()[0][0])


def test_what_an_earlier_run_expected_ends_with_the_first_decision(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened again with no epochs behind, nothing is expected any more; until that is decided nothing is forgotten."""
    with opened(tmp_path, videos) as cache:
        read_epochs(cache, range(3))
    assert expected(tmp_path) == 4
    opened(tmp_path, videos, epochs=4).close()
    assert expected(tmp_path) == 4, "nobody has read"

    def full(*_: object) -> None:
        raise Full("no space left on the catalog's disk")

    with opened(tmp_path, videos, epochs=4) as cache, monkeypatch.context() as patch:
        patch.setattr(Catalog, "record_keeping", full)
        cache.read("train", 3, 0)
        cache.owner.look_ahead.wait_idle()
        patch.undo()
    assert expected(tmp_path) == 4, "it could not be decided"
    with opened(tmp_path, videos, epochs=4) as cache:
        read_epochs(cache, range(3, 4))
    assert expected(tmp_path) == 0


def test_places_are_the_same(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """The reference has all batches that the tests read."""
    with opened(tmp_path, videos) as cache:
        assert set(places(cache)) == set(plenty)
