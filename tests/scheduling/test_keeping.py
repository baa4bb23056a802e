"""What is kept when the budget cannot hold every clip: reads give the same bytes all the same, and the budget holds."""

import os
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.scheduling.kept import intermediate_recipe
from tests.tiny import config, encode_folder, pixels, places, same, sql
from viewcache.api.session.cache import Cache
from viewcache.api.session.making import AheadOfTime
from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow
from viewcache.errors import Full, ViewcacheError
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.ladder import Ladder
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import Intermediate, IntermediateObject, Recipe
from viewcache.materializer.retention.balance import RULES
from viewcache.materializer.retention.chosen import KeepSettings
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.scheduling.keeping import Keeping
from viewcache.materializer.tasks.task import Task
from viewcache.materializer.workers.job import FolderTarget, Job, Made, Report
from viewcache.materializer.workers.make import make
from viewcache.store import read_into

EPOCHS, SAMPLES = 4, 3
ROOM_OF_A_CLIP = 33_400
"""Bytes that the budget counts for a clip, metadata included."""


def test_a_clip_is_made_from_what_is_kept_of_its_stretch() -> None:
    """Of a long video hundreds of parts are kept; the ends of each are looked for once, and not for each clip."""

    class Counted(np.ndarray):
        looks = 0

        def min(self, *given: Any, **named: Any) -> Any:
            Counted.looks += 1
            return super().min(*given, **named)

    def part(number: int, frames: Any) -> IntermediateObject:
        kept = np.array(frames, np.int32).view(Counted)
        recipe = Recipe(f"{number:032x}", Program(()), np.zeros(0, np.int32), kept, (len(frames), 3, 4, 4), 0, 1)
        return IntermediateObject(number, "v", recipe)

    # Pictures of a group are kept in another order than they are shown in.
    parts = tuple(part(k, [*range(10 * k, 10 * k + 10, 2), *range(10 * k + 1, 10 * k + 10, 2)]) for k in range(50))
    keeping = Keeping(np.zeros(1, np.bool_), 1, 0, {"v": parts})
    for start in range(0, 460, 7):
        frames = np.arange(start, start + 24, 2, dtype=np.int32)
        expected = [each for each in parts if np.isin(np.arange(start, start + 23), each.recipe.frames).any()]
        assert keeping.made_from("v", frames) == expected
    assert Counted.looks == len(parts)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six videos."""
    return encode_folder(tmp_path_factory.mktemp("keep"), {f"v{k}.mp4": 40 + k for k in range(6)})


def opened(store: Path, videos: Path, share: float, probe: str = "lazy", **cache: Any) -> Cache:
    """A task of four epochs in one generation, with room for a share of its clips."""
    budget = int(6 * SAMPLES * EPOCHS * ROOM_OF_A_CLIP * share)
    settings = {"budget": budget, "epochs_per_generation": EPOCHS, **cache}
    sampling = {"samples_per_video": SAMPLES}
    return viewcache.open(config(store, videos, cache=settings, sampling=sampling, epochs=EPOCHS, probe=probe))


@pytest.fixture(scope="module")
def plenty(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Any:
    """Every batch, read with room for all."""
    with opened(tmp_path_factory.mktemp("plenty"), videos, 3) as cache:
        return pixels(cache)


@pytest.fixture
def prefer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a kind of picture be so cheap that it is kept: small videos decide by their metadata otherwise."""

    def choose(way: str) -> None:
        rates = {"frames": (1e-5, 1e-12), "aug": (1e-5, 1e-6)}[way]
        cost = CostModel(decode_s_per_pixel=rates[0], convert_s_per_pixel=rates[1])
        monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))

    return choose


def kept_kinds(cache: Cache) -> set[object]:
    """Kinds of the objects that the plan keeps and that are or were in the store."""
    made = "select object_id from copies union select object_id from evictions"
    return {kind for (kind,) in sql(cache, f"select kind from objects where keep and object_id in ({made})")}


def kept_at_first(cache: Cache, task: str) -> set[object]:
    """The same when the first batch is read and all is made ahead that there is room for.

    What is kept is decided again as epochs are read, and in the end there is room for all that is left.
    """
    cache.read(task, 0, 0)
    cache.owner.look_ahead.wait_idle()
    assert cache.owner.dispatcher is not None
    assert cache.owner.dispatcher.wait_idle(60)
    return kept_kinds(cache)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_no_rule_and_no_budget_changes_a_byte(
    tmp_path: Path, videos: Path, plenty: Any, rule: str, share: float
) -> None:
    """Law 3, and law 7 after every batch."""
    with opened(tmp_path, videos, share, keep=rule) as cache:
        got = {}
        for place in places(cache):
            got[place] = cache.read("train", *place)
            assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
        assert same(got, plenty)


@pytest.mark.parametrize("way", ["frames", "aug"])
def test_clips_are_made_from_kept_pictures(tmp_path: Path, videos: Path, plenty: Any, prefer: Any, way: str) -> None:
    """Decoded or resized frames lie in the store, workers read them, and the clips are the same to the bit."""
    prefer(way)
    with opened(tmp_path, videos, 0.5) as cache:
        assert same(pixels(cache), plenty)
        assert cache.busy_seconds()["load"] > 0
        assert way in kept_kinds(cache)


def test_damaged_pictures_are_noticed_and_made_again(tmp_path: Path, videos: Path, plenty: Any, prefer: Any) -> None:
    """Each intermediate is cut short between two epochs; clips are decoded instead, the bytes are the same (law 5)."""
    prefer("aug")
    got = {}
    with opened(tmp_path, videos, 0.5) as cache:
        for place in places(cache):
            if place == (1, 0):
                for (physical,) in sql(
                    cache, "select physical from copies join objects using (object_id) where objects.kind = 'aug'"
                ):
                    (shard,) = Path(tmp_path, str(physical)).glob("c*")
                    os.truncate(shard, shard.stat().st_size // 2)
            got[place] = cache.read("train", *place)
        assert same(got, plenty)
        (found,) = sql(cache, "select task, sum(count) from events where kind = 'rebuild' group by all")
        assert found[0] == "train", "who looks at `status` learns of it"
        assert int(str(found[1])) > 0


def test_another_budget_takes_effect_at_the_next_opening(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Lowered, it is decided what is kept; raised, everything is kept again; the bytes stay."""
    for share, unkept in ((3, False), (0.3, True), (3, False)):
        with opened(tmp_path, videos, share) as cache:
            cache.read("train", 0, 0)
            cache.owner.look_ahead.wait_idle()
            assert bool(sql(cache, "select 1 from objects where kind = 'clip' and not keep")) == unkept
            assert same(pixels(cache), plenty)
            assert cache.tier.used_bytes <= cache.tier.budget_bytes


def test_two_tasks_of_one_cache_keep_one_set_of_pictures(tmp_path: Path, videos: Path, prefer: Any) -> None:
    """What is kept of a video serves the clips of both; each reads what it reads with room for all."""
    prefer("aug")
    settings = {"epochs_per_generation": EPOCHS}
    tasks = [
        config(tmp_path, videos, tag=tag, epochs=EPOCHS, sampling={"frames_per_video": frames, "samples_per_video": 2})
        for tag, frames in (("wide", 8), ("narrow", 4))
    ]

    def read(store: Path, budget: int) -> tuple[dict[str, Any], set[object]]:
        whole = config(store, videos, cache={"budget": budget, **settings})["cache"]
        with viewcache.open([{"cache": whole}, *({"dataset": each["dataset"]} for each in tasks)]) as cache:
            kinds = kept_at_first(cache, "wide")
            return {tag: pixels(cache, tag) for tag in ("wide", "narrow")}, kinds

    plenty, kinds = read(tmp_path / "plenty", 10**8)
    assert kinds == {"clip"}
    little, kinds = read(tmp_path / "little", 900_000)
    assert "aug" in kinds
    assert all(same(little[tag], plenty[tag]) for tag in plenty)


def full(*_: object) -> None:
    """What a catalog says that cannot write."""
    raise Full("no space left on the catalog's disk")


def test_a_decision_that_cannot_be_recorded_harms_nothing(
    tmp_path: Path, videos: Path, plenty: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The catalog's disk is full whenever it is decided: it is logged, look-ahead goes on, and reads are the same."""
    monkeypatch.setattr(Catalog, "record_keeping", full)
    with opened(tmp_path, videos, 0.5) as cache:
        assert same(pixels(cache), plenty)
        assert cache.task("train").spent.hits > 0
    assert "could not be decided" in caplog.text


def test_a_decision_that_fails_forgets_nothing(
    tmp_path: Path, videos: Path, prefer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier one had made may leave when another way is kept next, as if the failed one had not been."""
    prefer("frames")
    with opened(tmp_path, videos, 0.5) as cache:
        task, sizes = cache.task("train").task, dict[str, int]()
        work = task.generation(0)
        keeper = Keeper(cache.catalog, KeepSettings.of(cache.config.cache), sizes.get)

        def decide() -> set[str]:
            """What is to be made."""
            keeper.decide([(work, task.index_of(work.plan))], nullcontext)
            return {each.key(row) for each in keeper.intermediates() for row in range(len(list(each.recurring())))}

        made = decide()
        assert made
        sizes |= dict.fromkeys(made, 1000)
        with monkeypatch.context() as patch:
            patch.setattr(Catalog, "record_keeping", full)
            prefer("aug")
            assert not decide()
            assert keeper.decide([(work, task.index_of(work.plan))], nullcontext) == {0: None}
        work.from_rank = work.rank_after(0, task.iterations(0) - 1)
        wanted = decide()
        assert wanted
        assert wanted != made
        kept = {str(key) for (key,) in sql(cache, "select key from objects where keep and kind in ('frames', 'aug')")}
        assert wanted <= kept
        assert not made & kept


def test_every_clip_is_kept_again_behind_a_decision_that_fails(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog is told so, though the decision before the failed one told it otherwise."""
    with opened(tmp_path, videos, 0.5) as cache:
        task = cache.task("train").task
        work = task.generation(0)
        keeper = Keeper(cache.catalog, KeepSettings.of(cache.config.cache), lambda _: None)

        def decide(epochs_read: int) -> object:
            work.from_rank = work.rank_after(epochs_read - 1, task.iterations(0) - 1) if epochs_read else 0
            return keeper.decide([(work, task.index_of(work.plan))], nullcontext)[work.group_generation]

        assert decide(0) is not None
        left = "select count(*) from objects join uses using (object_id) where epoch = 3 and not keep"
        assert sql(cache, left) != [(0,)]
        with monkeypatch.context() as patch:
            patch.setattr(Catalog, "add_events", full)
            assert decide(1) is None
        assert sql(cache, left) != [(0,)]
        assert decide(3) is None
        assert sql(cache, left) == [(0,)]


# A worker with intermediates -----------------------------------------------------------------------------------------


def run(job: Job) -> tuple[dict[str, Made], Report]:
    """All that a job makes."""
    *made, report = make(job, lambda: False)
    assert isinstance(report, Report)
    return {each.key: each for each in made if isinstance(each, Made)}, report


@pytest.mark.parametrize("way", ["frames", "aug"])
def test_a_job_with_all_pictures_at_hand_needs_no_video(tmp_path: Path, videos: Path, way: str) -> None:
    """It makes the same bytes from a file that is gone; without its pictures it cannot."""
    with opened(tmp_path / "cache", videos, 3, probe="full") as cache:
        active = cache.task("train").task.generation(0)
        source, recipe = active.source(0), active.recipe(0)
    index = VideoIndex.from_bytes(source.index)

    def job(root: str, uri: str, recipes: tuple[Recipe, ...], intermediates: tuple[Intermediate, ...] = ()) -> Job:
        (tmp_path / root / "objects").mkdir(parents=True, exist_ok=True)
        target = FolderTarget(str(tmp_path / root), durable=False)
        recipes = tuple(replace(recipe, codec="lz4") for recipe in recipes)
        return Job(1, uri, source.name, source.key, source.index, recipes, target, intermediates=intermediates)

    kept = intermediate_recipe(recipe, source.key, way, index)
    decoded, report = run(job("one", source.uri, (recipe, kept)))
    assert not report.error
    intermediate = Intermediate(kept.key, decoded[kept.key].stored, kept.frames, kept.program, kept.row)
    gone = str(tmp_path / "gone.mp4")
    nothing, report = run(job("two", gone, (recipe,)))
    assert report.error
    assert not nothing
    # The intermediate lies in the first store, where the worker also writes: take the clip away so that it is made
    # again.
    clip = decoded[recipe.key]
    before = pixels_of(tmp_path / "one", clip)
    again, report = run(replace(job("one", gone, (replace(recipe, key="ab" * 16),), (intermediate,))))
    assert not report.error
    assert report.frames["loaded"] == len(set(recipe.frames.tolist()))
    assert np.array_equal(pixels_of(tmp_path / "one", again["ab" * 16]), before)


def pixels_of(root: Path, made: Made) -> Any:
    """An object's bytes."""
    out = np.empty(made.stored.shape, np.uint8)
    read_into(root, made.stored, out)
    return out


def test_closing_does_not_wait_until_all_is_weighed(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a quarter of a million videos weighing takes seconds: it ends with the video that it is at."""
    at, go, asked = threading.Event(), threading.Event(), 0

    def index_of(task: Task, plan: GenerationPlan) -> Any:
        def index(row: int) -> Any:
            nonlocal asked
            asked += 1
            at.set()
            assert go.wait(30)
            return task.dataset.index(int(plan.videos.ids[row]))

        return index

    cache = opened(tmp_path / "s", videos, 0.5)
    cache.task("train").task.generation(0)
    monkeypatch.setattr(Task, "index_of", index_of)

    def read() -> None:
        with suppress(ViewcacheError):  # the cache is closed under it
            cache.read("train", 0, 0)

    reader = threading.Thread(target=read)
    reader.start()
    assert at.wait(30)
    closing = threading.Thread(target=cache.close)
    closing.start()
    look_ahead = cache.owner.look_ahead
    until = time.monotonic() + 30
    while not look_ahead.closed:
        assert time.monotonic() < until
        time.sleep(0.001)
    go.set()
    closing.join(30)
    reader.join(30)
    assert not closing.is_alive()
    assert asked == 1


def test_what_is_predicted_is_of_what_was_decided(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one thread makes ahead for one task, another decides for two that have more kinds of clips."""
    decide = Keeper.decide
    settings = {"budget": 10**6, "epochs_per_generation": EPOCHS, "keep": "leaves"}
    whole: dict[str, Any] = config(
        tmp_path / "s", videos, cache=settings, sampling={"samples_per_video": SAMPLES}, epochs=EPOCHS
    )
    whole["dataset"] = [whole["dataset"], {**whole["dataset"], "tag": "other", "augmentation": []}]
    with viewcache.open(whole) as cache:
        mine, others = (cache.task(tag).task for tag in ("train", "other"))
        active = others.generation(0)

        def decide_and_meddle(keeper: Keeper, works: Any, guard: Any, making: Any) -> Any:
            chosen: Any = decide(keeper, works, guard, making)
            both: Any = decide(keeper, [*works, (active, others.index_of(active.plan))], guard, making)
            assert both[0].option.max() >= len(chosen[0].ways), "more ways of keeping"
            return chosen

        monkeypatch.setattr(Keeper, "decide", decide_and_meddle)
        owner = cache.owner
        making = AheadOfTime.begin([mine], None, owner.keeper, owner.look_ahead, owner.dispatcher_now())
        assert making.predicted.objects > 0


# What it will take ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [3, 0.5])
def test_what_was_predicted_is_what_it_takes(tmp_path: Path, videos: Path, share: float) -> None:
    """Packets, frames, objects and bytes of making ahead, with room for all and without; nothing when all is read."""
    with opened(tmp_path, videos, share, probe="full") as cache:
        for _ in cache.materialize():
            pass
        assert cache.making is not None
        predicted, measured = cache.making.predicted, cache.making.measured
        if share == 3:
            assert measured.objects == predicted.objects == 6 * SAMPLES * EPOCHS
            assert measured.object_bytes == predicted.object_bytes
            assert (measured.packets, measured.frames) == (predicted.packets, predicted.frames)
        else:
            # What is read soon is made beside what is kept; what waits for room that reading makes is not made here.
            assert 0.5 <= measured.objects / predicted.objects <= 1.5
        for place in places(cache):
            cache.read("train", *place)
        for _ in cache.materialize():
            pass
        assert cache.making.predicted.objects == 0


# When it is decided again --------------------------------------------------------------------------------------------


def test_it_is_decided_again_when_costs_move_or_an_epoch_is_over(tmp_path: Path, videos: Path) -> None:
    """And not otherwise: a decision is some work."""
    with opened(tmp_path, videos, 0.5) as cache:
        task = cache.task("train").task
        work = task.generation(0)
        keeper = Keeper(cache.catalog, KeepSettings.of(cache.config.cache), lambda _: None)

        def decide() -> object:
            return keeper.decide([(work, task.index_of(work.plan))], nullcontext)[0]

        first = decide()
        assert first is not None
        assert decide() is first
        cache.catalog.add_io_samples([IoSampleRow("decode", 20, "raw", "local", 1000, 0.1, 1 << 30)])
        cache.catalog.flush()
        second = decide()
        assert second is not first, "decoding turned out cheaper than guessed"
        work.from_rank = work.rank_after(0, task.iterations(0) - 1)
        third = decide()
        assert third is not second, "there is less to come"
        assert decide() is third


def test_costs_are_guessed_until_enough_is_measured() -> None:
    """A rate is measured seconds by measured bytes, of the codec at hand; frames count one and a half bytes a pixel."""
    few = [IoSampleRow("decode", 20, "raw", "local", 1, 1.0, 1 << 20)]
    assert CostModel.measured(few, "raw") == CostModel(ladder=Ladder(("raw",)))
    many = [
        IoSampleRow("decode", 20, "raw", "local", 100, 3.0, 3 << 30),
        IoSampleRow("store", 20, "raw", "local", 100, 1.0, 1 << 30),
        IoSampleRow("store", 22, "raw", "local", 100, 1.0, 1 << 30),
        IoSampleRow("store", 20, "zstd1", "local", 100, 50.0, 1 << 30),
    ]
    found = CostModel.measured(many, "raw")
    assert found.decode_s_per_pixel == pytest.approx(1.5 / (1 << 30))
    assert found.store_s_per_byte == pytest.approx(1 / (1 << 30))
    assert found.convert_s_per_pixel == CostModel().convert_s_per_pixel
    assert found.moved(CostModel()) == CostModel().moved(found)
    assert not found.moved(found)
