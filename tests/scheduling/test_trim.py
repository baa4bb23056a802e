"""What nothing wants any more leaves while training goes on: never what anybody wants, and batches stay the same."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests import forked
from tests.faults.caches import assert_at_rest
from tests.tiny import config, encode_folder, make_decoding_dear, pixels, same, single, sql
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.scheduling import trim as trim_module
from viewcache.materializer.scheduling.trim import REASON, Trim
from viewcache.materializer.tasks.look_ahead import TURNS

EPOCHS, K, SAMPLES = 8, 2, 2


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    return encode_folder(tmp_path_factory.mktemp("trim"), {f"v{k}.mp4": 40 + k for k in range(4)})


@pytest.fixture(autouse=True)
def decoding_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that clips are kept; one test says otherwise."""
    cost = CostModel(decode_s_per_pixel=1e-12, convert_s_per_pixel=1e-12)
    monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))


def given(store: Path, videos: Path, **changes: Any) -> dict[str, Any]:
    """A task of four generations; there is room for all of them."""
    usual = {"budget": 10**8, "epochs_per_generation": K, "eviction": {"trim": True}}
    settings = {**usual, **changes.pop("cache", {})}
    sampling = {"samples_per_video": SAMPLES}
    return config(store, videos, cache=settings, sampling=sampling, epochs=changes.pop("epochs", EPOCHS), **changes)


def rest(cache: Cache) -> None:
    """Wait until all is made ahead, and trimmed."""
    cache.owner.look_ahead.wait_idle()
    assert cache.owner.dispatcher is not None
    assert cache.owner.dispatcher.wait_idle(60)
    cache.catalog.flush()


def read(cache: Cache, epochs: range, task: str = "train") -> dict[tuple[int, int], Any]:
    """Every batch of some epochs, each with a rest after its first batch and at its end."""
    found = {}
    for epoch in epochs:
        for iteration in range(cache.task(task).iterations(epoch)):
            found[epoch, iteration] = cache.read(task, epoch, iteration)
            if iteration == 0:
                rest(cache)
        rest(cache)
        assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
    return found


def made(cache: Cache) -> int:
    """Objects that workers have made."""
    assert cache.owner.dispatcher is not None
    return cache.owner.dispatcher.tally.frames["objects"]


def lying(cache: Cache, task: str = "train") -> set[int]:
    """Epochs of a task whose clips lie in the store."""
    rows = sql(cache, f"select distinct u.epoch from uses u join copies c using (object_id) where u.task = '{task}'")
    return {int(str(epoch)) for (epoch,) in rows}


def trimmed(cache: Cache) -> int:
    """Copies that were."""
    ((count,),) = sql(cache, f"select count(*) from evictions where detail = '{REASON}'")
    return int(str(count))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Any:
    """Every batch of a cache that trims nothing."""
    with viewcache.open(given(tmp_path_factory.mktemp("whole"), videos, cache={"eviction": {"trim": False}})) as cache:
        found = pixels(cache)
        assert lying(cache) == set(range(EPOCHS))
        return found


def test_the_store_has_what_is_of_use(tmp_path: Path, videos: Path, whole: Any) -> None:
    """After each epoch only the generation that is read lies there, and the next one: as many bytes as these take."""
    got: dict[tuple[int, int], Any] = {}
    with viewcache.open(given(tmp_path, videos)) as cache:
        for epoch in range(EPOCHS):
            got |= read(cache, range(epoch, epoch + 1))
            first = epoch - epoch % K
            assert lying(cache) <= set(range(first, first + 2 * K)), epoch
            assert lying(cache) >= set(range(first, first + K)), "the generation that is read stays until it is over"
            of_use = f"select object_id from uses where epoch between {first} and {first + 2 * K - 1}"
            ((used, useful),) = sql(
                cache,
                f"select sum(bytes), sum(bytes) filter (where object_id in ({of_use})) from copies",
            )
            assert used == useful
        assert trimmed(cache) == cache.owner.ledger.gone["local", "evict"] > 0, "counted where evictions are"
        assert same(got, whole)
    assert_at_rest(tmp_path)


def test_it_is_asked_when_something_may_be_over(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in each epoch of a long generation, of which nothing is over before its end."""
    asked: list[object] = []
    outlived = Catalog.outlived

    def asks(*given: Any) -> Any:
        asked.append(given)
        return outlived(*given)

    monkeypatch.setattr(Catalog, "outlived", asks)
    settings = {"epochs_per_generation": 8, "keep": "leaves"}
    with viewcache.open(given(tmp_path, videos, cache=settings, epochs=24)) as cache:
        read(cache, range(24))
        assert trimmed(cache) > 0
    assert 0 < len(asked) <= 2 * (TURNS + 1)


def test_the_last_generation_stays(tmp_path: Path, videos: Path) -> None:
    """A training that is over leaves what a new one over these videos can use, as long as nobody needs the room."""
    with viewcache.open(given(tmp_path, videos)) as cache:
        read(cache, range(EPOCHS))
        assert lying(cache) == {EPOCHS - 2, EPOCHS - 1}
    with viewcache.open(given(tmp_path, videos)) as cache:
        read(cache, range(EPOCHS - K, EPOCHS))
        assert made(cache) == 0


def test_going_back_makes_the_same_again(tmp_path: Path, videos: Path, whole: Any) -> None:
    """A batch of a generation that was trimmed has the bytes that it had, by path and for who goes on from there."""
    with viewcache.open(given(tmp_path, videos)) as cache:
        read(cache, range(5))
        assert 0 not in lying(cache)
        got = {place: cache.read("train", *place) for place in whole if place[0] == 0}
        assert same(got, {place: batch for place, batch in whole.items() if place[0] == 0})
        got = read(cache, range(1, EPOCHS))
        assert same(got, {place: batch for place, batch in whole.items() if place[0] >= 1})


def test_a_resume_inside_the_generation_makes_nothing(tmp_path: Path, videos: Path, whole: Any) -> None:
    """A checkpoint of the generation's beginning is loaded after its last batch, in a new run: all clips are there."""
    with viewcache.open(given(tmp_path, videos)) as cache:
        read(cache, range(4))
    with viewcache.open(given(tmp_path, videos)) as cache:
        for place in ((2, 0), (2, 1), (3, 0)):
            assert (cache.read("train", *place).video == whole[place].video).all()
            rest(cache)
            assert {2, 3} <= lying(cache)
        ((gone,),) = sql(
            cache, "select count(*) from evictions e join uses u using (object_id) where u.epoch in (2, 3)"
        )
        assert gone == 0


def two(store: Path, videos: Path) -> list[dict[str, Any]]:
    """Two tasks of one definition, so that they share clips."""
    return [given(store, videos), {"dataset": given(store, videos)["dataset"] | {"tag": "val"}}]


def test_what_a_task_that_is_behind_needs_stays(tmp_path: Path, videos: Path, whole: Any) -> None:
    """Two tasks share clips, one is generations ahead; what it is through with leaves when the other is, too."""
    with viewcache.open(two(tmp_path, videos)) as cache:
        cache.read("val", 0, 0)
        got = read(cache, range(5))
        assert lying(cache) >= set(range(5)), "the other is in the first generation"
        behind = read(cache, range(1), "val")
        before = made(cache)
        behind |= read(cache, range(1, 4), "val")
        assert made(cache) == before, "the one ahead has made them"
        read(cache, range(4, 6), "val")
        assert lying(cache) <= set(range(4, EPOCHS))
        assert len(behind) + len(got) == 2 * (4 + 5)


def test_a_task_that_nobody_reads_keeps_its_own_only(tmp_path: Path, videos: Path) -> None:
    """It was planned with the other, as the task of a service is of which only jobs are read: its generations stay."""
    with viewcache.open(two(tmp_path, videos)) as cache:
        read(cache, range(EPOCHS))
        planned = {int(str(epoch)) for (epoch,) in sql(cache, "select epoch from uses where task = 'val'")}
        assert lying(cache) == planned | {EPOCHS - 2, EPOCHS - 1}
        assert planned == {0, 1, 2, 3}


def test_a_task_that_comes_later_finds_what_the_group_reads(tmp_path: Path, videos: Path) -> None:
    """A trial that begins while another is in a generation joins there, and finds its clips though they were read."""
    with viewcache.open(given(tmp_path, videos)) as cache:
        read(cache, range(4))
        before = made(cache)
        (name,) = cache.join({"dataset": given(tmp_path, videos)["dataset"] | {"tag": "trial"}})
        cache.read(name, 0, 0)
        cache.read(name, 0, 1)
        assert made(cache) == before


def test_fixed_clips_stay(tmp_path: Path, videos: Path) -> None:
    """A validation whose clips are the same in every epoch reads each generation's from the first one's."""
    fixed = [single({"resize": {"shape": [24, 24]}})]
    sampling = {"samples_per_video": 1, "frames_per_video": 40, "frame_stride": 1}
    trims = {"epochs_per_generation": K, "eviction": {"trim": True}}
    one = config(tmp_path, videos, cache=trims, sampling=sampling, epochs=6, augmentation=fixed)
    with viewcache.open(one) as cache:
        read(cache, range(1))
        before = made(cache)
        read(cache, range(1, 6))
        assert made(cache) - before <= 2 * 6 * K, "only the longer videos' clips have other starts"
        assert lying(cache) == set(range(6)), "the shortest one's clip is that of all epochs"


def test_held_and_leased_clips_stay(tmp_path: Path, videos: Path) -> None:
    """Who reads a clip, or has leased it, has it until he lets go."""
    with viewcache.open(given(tmp_path, videos)) as cache:
        read(cache, range(1))
        ledger = cache.owner.ledger
        held, leased, *_ = ledger.copies()
        copies = ledger.hold([held])
        assert copies is not None
        assert ledger.lease("somebody", [leased], 3600.0)
        read(cache, range(1, 5))
        assert {held, leased} <= ledger.copies().keys()
        ledger.release(copies)


def test_nothing_is_trimmed_while_a_reader_waits(tmp_path: Path, videos: Path) -> None:
    """What is to leave waits as long as anybody waits for clips."""
    with viewcache.open(given(tmp_path, videos)) as cache:
        read(cache, range(1))
        assert cache.owner.dispatcher is not None
        evictor = cache.owner.dispatcher.evictor
        waiting = evictor.waiting
        evictor.waiting = lambda: 1  # type: ignore[method-assign]
        for place in ((1, 0), (1, 1), (2, 0), (2, 1)):
            cache.read("train", *place)
        rest(cache)
        assert 0 in lying(cache)
        assert not trimmed(cache)
        evictor.waiting = waiting  # type: ignore[method-assign]
        read(cache, range(3, 4))
        assert 0 not in lying(cache)


def test_what_lasts_is_never_trimmed(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While epochs are left; clips of generations that are over do leave."""
    make_decoding_dear(monkeypatch)
    pictures = "select distinct o.object_id from objects o join copies using (object_id) where o.kind <> 'clip'"
    with viewcache.open(given(tmp_path, videos, cache={"budget": 3_000_000})) as cache:
        read(cache, range(4))
        lasting = set(sql(cache, pictures))
        assert len(lasting) == 4
        of = sql(cache, "select o.key, o.video_id from objects o join copies using (object_id) where o.kind <> 'clip'")
        lying = cache.owner.keeper.lying
        for key, video in of:
            assert lying.may_last(str(key), int(str(video)))
            assert not lying.may_last("0" * 32, int(str(video)))
        assert lying.may_last("0" * 32, 10**9), "of a video that nobody has looked at nothing is known"
        read(cache, range(4, EPOCHS))
        assert set(sql(cache, pictures)) == lasting
        gone = sql(cache, f"select object_id from evictions where kind <> 'clip' and detail = '{REASON}'")
        assert not lasting & set(gone), "what was kept of a video before, and is not needed any more, may leave"


def test_it_can_be_turned_off(tmp_path: Path, videos: Path) -> None:
    """For a training that begins again from its first epoch, in another run or as another task: nothing is made."""
    settings = {"eviction": {"trim": False}}
    with viewcache.open(given(tmp_path, videos, cache=settings)) as cache:
        read(cache, range(EPOCHS))
        assert trimmed(cache) == 0
        assert lying(cache) == set(range(EPOCHS))
        before = made(cache)
        for epoch, iteration in ((epoch, iteration) for epoch in range(EPOCHS) for iteration in range(2)):
            cache.read("train", epoch, iteration)
        assert made(cache) == before


@pytest.mark.parametrize("seed", range(3))
def test_any_history_gives_the_same_bytes(tmp_path: Path, videos: Path, whole: Any, seed: int) -> None:
    """Readers jump forth and back, and the cache is closed and opened: nothing that a use to come wants is trimmed."""
    chance = random.Random(seed)
    places = sorted(whole)
    at = 0
    for _ in range(3):
        with viewcache.open(given(tmp_path, videos)) as cache:
            for _ in range(10):
                at = max(0, min(len(places) - 1, at + chance.choice([1, 1, 1, 2, 4, -3, -6])))
                assert (cache.read("train", *places[at]).video == whole[places[at]].video).all()
                if chance.random() < 0.5:
                    rest(cache)
        assert_at_rest(tmp_path)


CHILD = """
import json, sys, viewcache
from tests.faults.caches import digest_of
with viewcache.open(json.loads(sys.argv[1])) as cache:
    task = cache.task("train").task
    for epoch in range(task.spec.epochs):
        for iteration in range(task.iterations(epoch)):
            print(json.dumps([epoch, iteration, digest_of(cache.read("train", epoch, iteration))]), flush=True)
            cache.owner.look_ahead.wait_idle()
            cache.owner.dispatcher.wait_idle(60)
"""


def _lines(one: dict[str, Any], failpoint: str) -> Iterator[list[Any]]:
    root = Path(__file__).resolve().parents[2]
    found = os.environ | {"PYTHONPATH": str(root)}
    child = forked.Popen(
        [sys.executable, "-c", CHILD, json.dumps(one)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env=found | ({"VIEWCACHE_FAILPOINT": failpoint} if failpoint else {}),
    )
    out, _ = child.communicate(timeout=120)
    assert child.returncode == (-signal.SIGKILL if failpoint else 0)
    return (json.loads(line) for line in out.splitlines())


@pytest.mark.parametrize("visit", [1, 4])
def test_a_kill_in_the_middle_of_a_trim(tmp_path: Path, videos: Path, visit: int) -> None:
    """By kill -9 while an object is deleted: the next run reads the same, and nothing lies there unknown."""
    reference = {(epoch, iteration): digest for epoch, iteration, digest in _lines(given(tmp_path / "a", videos), "")}
    one = given(tmp_path / "b", videos)
    for epoch, iteration, digest in _lines(one, f"store.mid-delete:{visit}:kill"):
        assert reference[epoch, iteration] == digest
        assert epoch <= K
    for epoch, iteration, digest in _lines(one, ""):
        assert reference.pop((epoch, iteration)) == digest
    assert not reference
    with viewcache.open(one) as cache:
        assert lying(cache) <= {EPOCHS - 2, EPOCHS - 1}
    assert_at_rest(tmp_path / "b")


def test_what_a_file_gave_stays_though_it_was_to_leave(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may go while what is over leaves, a few copies at a time: what is left of its clips stays."""
    monkeypatch.setattr(trim_module, "READY_COPIES", 1)
    monkeypatch.setattr(trim_module, "FRESH_S", 0.0)
    with viewcache.open(given(tmp_path, videos, cache={"eviction": {"trim": False}})) as cache:
        read(cache, range(K + 1))
        owner = cache.owner
        assert owner.dispatcher is not None
        parts = owner.ledger, owner.dispatcher.evictor, owner.catalog, lambda: owner.look_ahead.going(owner.opened)
        turns = iter([True])
        trim = Trim(*parts, lambda: next(turns, False), owner.keeper.lying.may_last, set)
        assert trim.some()
        files = cache.task("train").task.dataset.files
        left = f"select distinct object_id from copies join objects using (object_id) where video = '{files.names[0]}'"
        before = set(sql(cache, left))
        cache.catalog.mark_missing(files.ids[:1].tolist())
        cache.catalog.flush()
        while trim.some():
            pass
        assert set(sql(cache, left)) == before
        assert trimmed(cache) > K * SAMPLES
