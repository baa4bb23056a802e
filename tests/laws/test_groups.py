"""Laws 1 to 4 for several tasks over one dataset, whose clips and orders are drawn together."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.scheduling.harness import until
from tests.tiny import AUGMENTATION, config, encode_folder, places, single, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, BadVideo, ViewcacheError, ViewNotFound
from viewcache.materializer.reading.batch import Batch

VIDEOS = 9
SMALL = [single({"resize": {"short_side": 36}}, {"random_crop": {"shape": [16, 16]}})]
EVERY_OTHER = [
    {
        "branch_type": "conditional",
        "inputs": ["frame"],
        "outputs": ["a"],
        "branches": [
            {"condition": "iteration < 7", "config": [{"resize": {"shape": [32, 32]}}]},
            {"condition": "else", "config": [{"resize": {"shape": [32, 32]}}, {"flip": {"flip_prob": 1.0}}]},
        ],
    }
]

Taken = dict[str, list[tuple[int, int]]]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine videos of different lengths."""
    return encode_folder(tmp_path_factory.mktemp("groups"), {f"v{k}.mp4": 40 + 3 * k for k in range(VIDEOS)})


def several(store: Path, videos: Path, *tasks: dict[str, Any], **cache: Any) -> dict[str, Any]:
    """A configuration of several tasks of `config`."""
    whole = config(store, videos, cache={"draw_ahead": 2, **cache})
    return {"cache": whole["cache"], "dataset": [config(store, videos, **task)["dataset"] for task in tasks]}


def wide(tag: str = "wide", **more: Any) -> dict[str, Any]:
    """2 videos a batch, 2 samples of 4 frames, stride 2, crops of 32."""
    return {"tag": tag, "epochs": 4, "augmentation": AUGMENTATION, **more}


def narrow(tag: str = "narrow", **more: Any) -> dict[str, Any]:
    """3 videos a batch, one sample of 4 frames, stride 4, crops of 16; the last batch is dropped."""
    sampling = {"videos_per_batch": 4, "frame_stride": 4, "samples_per_video": 1}
    return {"tag": tag, "epochs": 4, "augmentation": SMALL, "sampling": sampling, "drop_last": True, **more}


def read_mixed(cache: Cache, paces: dict[str, float], random: Random, most: int = 10**9) -> Iterator[tuple[str, Batch]]:
    """Read tasks side by side, each in order, at different paces; at most so many batches."""
    left = {task: list(places(cache, task)) for task in paces}
    for _ in range(most):
        names = [name for name, rest in left.items() if rest]
        if not names:
            return
        name = random.choices(names, [paces[each] for each in names])[0]
        place = left[name].pop(0)
        yield name, cache.read(name, *place)


def seen(batches: Iterable[tuple[str, Batch]]) -> dict[tuple[str, int], Counter[str]]:
    """(task, epoch) → how many clips of each video were read."""
    found: dict[tuple[str, int], Counter[str]] = {}
    for task, batch in batches:
        found.setdefault((task, batch.epoch), Counter()).update(batch.videos)
    return found


@pytest.mark.parametrize(("seed", "ahead"), [(0, 1), (1, 2), (2, 16)])
def test_each_task_sees_each_video_once_an_epoch(tmp_path: Path, videos: Path, seed: int, ahead: int) -> None:
    """Law 1, at any pace, with other batch sizes, a predicate and a last batch that is dropped."""
    part = wide("part", where="name <> 'v3'", sampling={"videos_per_batch": 3, "samples_per_video": 1})
    with viewcache.open(several(tmp_path / "s", videos, wide(), narrow(), part, draw_ahead=ahead)) as cache:
        found = seen(read_mixed(cache, {"wide": 1.0, "narrow": 0.3, "part": 0.6}, Random(seed)))
    everything = {f"v{k}" for k in range(VIDEOS)}
    for epoch in range(4):
        assert found["wide", epoch] == dict.fromkeys(everything, 2)
        assert found["part", epoch] == dict.fromkeys(everything - {"v3"}, 1)
        assert set(found["narrow", epoch].values()) == {1}
        assert len(found["narrow", epoch]) == VIDEOS // 4 * 4


def test_paths_keep_their_meaning_over_a_restart(tmp_path: Path, videos: Path) -> None:
    """Law 4: what was read in the middle of epochs reads the same later, in any order, and epochs go on whole."""
    whole = several(tmp_path / "s", videos, wide(), narrow())
    with viewcache.open(whole) as cache:
        begun = [*read_mixed(cache, {"wide": 1.0, "narrow": 0.5}, Random(5), most=11)]
    with viewcache.open(whole) as cache:
        for task, before in reversed(begun):
            again = cache.read(task, before.epoch, before.iteration)
            assert np.array_equal(again.video, before.video)
            assert again.videos == before.videos
        found = seen(read_mixed(cache, {"wide": 0.5, "narrow": 1.0}, Random(6)))
        drawn = sql(cache, "select task, epoch, count(distinct video) from draws group by all")
    assert all(found["wide", epoch] == dict.fromkeys((f"v{k}" for k in range(VIDEOS)), 2) for epoch in range(4))
    assert sorted(drawn) == [(task, epoch, VIDEOS) for task in ("narrow", "wide") for epoch in range(4)]


def test_the_catalog_has_what_was_read(tmp_path: Path, videos: Path) -> None:
    """`draws` and `uses` say for every batch which videos and objects it had; nothing else counts as drawn."""
    with viewcache.open(several(tmp_path / "s", videos, wide(), narrow())) as cache:
        for task, batch in read_mixed(cache, {"wide": 1.0, "narrow": 0.5}, Random(2), most=12):
            at = f"task = '{task}' and epoch = {batch.epoch}"
            size = 2 if task == "wide" else 4
            span = f"position between {batch.iteration * size} and {batch.iteration * size + size - 1}"
            drawn = sql(cache, f"select video from draws where {at} and {span} order by position")
            assert [video for (video,) in drawn] == list(dict.fromkeys(batch.videos))
            of = f"uses join objects using (object_id) where {at} and {span}"
            uses = sql(cache, f"select key from {of} order by position, sample")
            assert [key for (key,) in uses] == list(batch.keys)
        uncertain = sql(cache, "select distinct task from deadlines where not drawn order by all")
        assert uncertain == [("narrow",), ("wide",)]


def test_equal_tasks_at_one_pace_read_the_same_batches(tmp_path: Path, videos: Path) -> None:
    """A hyperparameter search: one order, one set of clips, each made once for all."""
    tasks = [wide(f"lr{k}") for k in range(3)]
    with viewcache.open(several(tmp_path / "s", videos, *tasks)) as cache:
        for place in places(cache, "lr0"):
            batches = [cache.read(f"lr{k}", *place) for k in range(3)]
            assert all(batch.keys == batches[0].keys for batch in batches)
        clips = sql(cache, "select count(*) from objects where kind = 'clip'")
        stored = sql(cache, "select sum(n) from io_samples where op = 'store'")
    assert clips == [(VIDEOS * 2 * 4,)]
    assert stored == [(VIDEOS * 2 * 4,)], "each was made once"


def test_different_tasks_decode_a_video_once(tmp_path: Path, videos: Path) -> None:
    """Read side by side, two tasks decode hardly more than the larger one alone, and far less than both apart."""

    def decoded(name: str, *tasks: dict[str, Any]) -> int:
        with viewcache.open(several(tmp_path / name, videos, *tasks)) as cache:
            for _ in read_mixed(cache, {task["tag"]: 1.0 for task in tasks}, Random(1)):
                pass
            assert cache.owner.dispatcher is not None
            return cache.owner.dispatcher.tally.frames["decoded"]

    # The last batch of all is used too, so that both tasks need all videos.
    one, other = wide(), narrow(drop_last=False)
    apart = decoded("one", one) + decoded("other", other)
    assert decoded("both", one, other) < 0.8 * apart


def test_clips_do_not_depend_on_the_order(tmp_path: Path, videos: Path) -> None:
    """Law 3: at another pace a task has another order, and the same clips of the same videos in the same epochs."""

    def clips(name: str, pace: float) -> set[tuple[int, str, str]]:
        with viewcache.open(several(tmp_path / name, videos, wide(), narrow())) as cache:
            read = read_mixed(cache, {"wide": 1.0, "narrow": pace}, Random(1))
            return {
                (b.epoch, v, k) for task, b in read if task == "wide" for v, k in zip(b.videos, b.keys, strict=True)
            }

    assert clips("fast", 3.0) == clips("slow", 0.1)


def test_a_task_that_joins_ends_its_generations_with_the_others(tmp_path: Path, videos: Path) -> None:
    """Joining in epoch 3 of generations of two, it has one epoch, then two, and reads the clips of the others."""
    store, late = tmp_path / "s", wide("late")
    with viewcache.open(several(store, videos, wide())) as cache:
        for epoch, iteration in places(cache, "wide"):
            cache.read("wide", epoch, iteration)
            if (epoch, iteration) == (3, 1):
                assert cache.join({"dataset": config(store, videos, **late)["dataset"]}) == ("late",)
                cache.read("late", 0, 0)
        both = "uses a join uses b using (object_id, sample) where a.task = 'late' and b.task = 'wide'"
        same = sql(cache, f"select count(*) from {both} and a.epoch = 0 and b.epoch = 3")
        assert same == [(VIDEOS * 2,)], "each clip is one of theirs"
        found = sql(cache, "select number, first_epoch, last_epoch, group_epoch from generations where task = 'late'")
        assert seen(read_mixed(cache, {"late": 1.0}, Random(1))).keys() == {("late", epoch) for epoch in range(4)}
    assert found[:2] == [(0, 0, 0, 3), (1, 1, 2, 4)]
    with viewcache.open(several(store, videos, wide(), late)) as cache:
        assert cache.task("late").task.joined == 3
        assert cache.task("late").task.epochs_of(0) == range(1)


def test_a_task_that_leaves_holds_nothing_back(tmp_path: Path, videos: Path) -> None:
    """Stopped in the middle of an epoch: nothing waits for it, the others go on, and it may come back."""
    with viewcache.open(several(tmp_path / "s", videos, wide(), narrow())) as cache:
        begun = [*read_mixed(cache, {"wide": 1.0, "narrow": 1.0}, Random(4), most=12)]
        cache.leave("narrow")
        assert sql(cache, "select count(*) from deadlines where task = 'narrow'") == [(0,)]
        rest = seen(read_mixed(cache, {"wide": 1.0}, Random(4)))
        assert all(rest["wide", epoch] == dict.fromkeys((f"v{k}" for k in range(VIDEOS)), 2) for epoch in range(4))
        before = next(batch for task, batch in begun if task == "narrow")
        again = cache.read("narrow", before.epoch, before.iteration)
        assert np.array_equal(again.video, before.video)
        assert sql(cache, "select count(*) > 0 from deadlines where task = 'narrow'") == [(True,)]
        with pytest.raises(ViewNotFound, match="no task 'other'"):
            cache.leave("other")


def test_who_drew_with_a_task_that_is_closed_reads_on(tmp_path: Path, videos: Path) -> None:
    """In the middle of an epoch it has nobody to draw with any more when another comes, which shares nothing."""
    store = tmp_path / "s"
    with viewcache.open(several(store, videos, wide(), narrow(), draw_ahead=1)) as cache:
        begun = [*read_mixed(cache, {"wide": 1.0, "narrow": 1.0}, Random(4), most=4)]
        until(lambda: cache.owner.retire("narrow"), "it is not being planned")
        alone = wide("alone", sampling={"coordination": "independent"})
        cache.join({"dataset": config(store, videos, **alone)["dataset"]})
        assert not cache.task("wide").task.draws_together
        for before in (batch for task, batch in begun if task == "wide"):
            assert cache.read("wide", before.epoch, before.iteration).keys == before.keys
        found = seen(read_mixed(cache, {"wide": 1.0, "alone": 1.0}, Random(4)))
    assert all(each == dict.fromkeys((f"v{k}" for k in range(VIDEOS)), 2) for each in found.values())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dataset": {"tag": "wide"}}, "already that of a task"),
        ({"cache": {"store": "elsewhere"}}, "elsewhere, that of the open cache is"),
        ({"dataset": {"tag": "new", "where": "name = 'nobody'"}}, "selects none of 9"),
        ({"dataset": {"tag": "new", "sampling": {"frames_per_video": 40_000}}}, "cache.budget"),
    ],
)
def test_who_cannot_join_is_told_and_the_others_go_on(
    tmp_path: Path, videos: Path, more: dict[str, Any], message: str
) -> None:
    """A taken name, another store, a predicate that selects nothing, a batch too large for the budget."""
    with viewcache.open(several(tmp_path / "s", videos, wide(), narrow())) as cache:
        one: Any = config(tmp_path / "s", videos)["dataset"]
        given: dict[str, Any] = {**one, "tag": "new", **more.get("dataset", {})}
        given["sampling"] = {"videos_per_batch": 2, "frames_per_video": 4} | given.get("sampling", {})
        changed: dict[str, Any] = more | {"dataset": given}
        with pytest.raises(ViewcacheError, match=message):
            cache.join(changed)
        assert cache.tasks == ("wide", "narrow")
        assert len(cache.read("wide", 0, 0).videos) == 4


def test_a_task_without_a_batch_cannot_join(tmp_path: Path, videos: Path) -> None:
    """Fewer videos than a batch under ``drop_last``: refused before the task is recorded; corrected, it joins."""
    with viewcache.open(several(tmp_path / "s", videos, wide(), narrow())) as cache:
        one: Any = config(tmp_path / "s", videos)["dataset"]
        given = {**one, "tag": "new", "drop_last": True, "where": "video < 'v3'"}
        given["sampling"] = {"videos_per_batch": 4, "frames_per_video": 4}
        with pytest.raises(BadInput, match="there are 3 videos to draw, and drop_last leaves out a batch"):
            cache.join({"dataset": given})
        assert [row.name for row in cache.catalog.load_tasks()] == ["wide", "narrow"]
        given["sampling"] = {"videos_per_batch": 3, "frames_per_video": 4}
        assert cache.join({"dataset": given}) == ("new",)
        assert len(cache.read("new", 0, 0).videos) == 3


def test_who_shares_follows_from_the_videos(tmp_path: Path, videos: Path) -> None:
    """Tasks share with those that have videos in common, also through a third; strides then lie on one grid."""
    of = "sampling"
    left = wide("left", where="name < 'v4'", **{of: {"frame_stride": 6}})
    right = wide("right", where="name > 'v4'", **{of: {"frame_stride": 4}})
    alone = wide("alone", **{of: {"frame_stride": 5, "coordination": "independent"}})
    between = wide("between", where="name in ('v3', 'v5')", **{of: {"frame_stride": 8}})

    def settings(store: str, *tasks: dict[str, Any]) -> dict[str, tuple[int, bool]]:
        with viewcache.open(several(tmp_path / store, videos, *tasks)) as cache:
            found = {name: cache.task(name).task for name in cache.tasks}
            return {name: (task.generation(0).plan.context.grid, task.draws_together) for name, task in found.items()}

    assert settings("apart", left, right, alone) == {"left": (6, False), "right": (4, False), "alone": (5, False)}
    joined = {"left": (2, True), "right": (2, True), "between": (2, True), "alone": (5, False)}
    assert settings("joined", left, right, between, alone) == joined
    assert settings("joined", left, alone) == {"left": (2, False), "alone": (5, False)}, "what is planned stays"


def test_batches_may_be_read_in_any_order(tmp_path: Path, videos: Path) -> None:
    """Paths of later epochs and iterations first, from several threads: each epoch is whole, each path stays."""
    with viewcache.open(several(tmp_path / "s", videos, wide(), narrow())) as cache:
        for name in cache.tasks:
            cache.task(name).task.generation(0)
        all_places = [(task, *place) for task in cache.tasks for place in places(cache, task)]
        Random(9).shuffle(all_places)
        with ThreadPoolExecutor(4) as pool:
            first = list(pool.map(lambda where: cache.read(*where), all_places))
        found = seen((task, batch) for (task, *_), batch in zip(all_places, first, strict=True))
        for (task, *place), batch in zip(all_places, first, strict=True):
            assert cache.read(task, *place).keys == batch.keys
    for epoch in range(4):
        assert found["wide", epoch] == dict.fromkeys((f"v{k}" for k in range(VIDEOS)), 2)
        assert set(found["narrow", epoch].values()) == {1}


def test_one_task_that_cannot_go_on_does_not_stop_the_others(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose next epochs cannot be planned fails when it is read; its group reads on."""

    def fail(number: int) -> None:
        raise BadVideo("v3 is gone")

    with viewcache.open(several(tmp_path / "s", videos, wide(), narrow())) as cache:
        begun = seen(read_mixed(cache, {"wide": 1.0, "narrow": 1.0}, Random(1), most=4))
        assert len(begun) == 2
        monkeypatch.setattr(cache.task("narrow").task, "generation", fail)
        found = seen(read_mixed(cache, {"wide": 1.0}, Random(1)))
        assert all(found["wide", epoch] == dict.fromkeys((f"v{k}" for k in range(VIDEOS)), 2) for epoch in range(4))
        with pytest.raises(BadVideo, match="v3 is gone"):
            cache.read("narrow", 3, 0)


@pytest.mark.parametrize("others", [[], [narrow()]])
def test_a_bad_file_that_came_later_stops_nothing_that_is_drawn(
    tmp_path: Path, videos: Path, others: list[dict[str, Any]]
) -> None:
    """Opening looks at who shares, not at who may be drawn: epochs that were drawn before the file came are read on."""
    folder = Path(shutil.copytree(videos, tmp_path / "videos"))
    whole = several(tmp_path / "s", folder, wide(epochs=2), *others)
    with viewcache.open(whole) as cache:
        before = cache.read("wide", 0, 0)
    (folder / "broken.mp4").write_bytes(b"no video")
    with viewcache.open(whole) as cache:
        assert cache.read("wide", 0, 0).keys == before.keys
        assert sum(len(cache.read("wide", *place).videos) for place in places(cache, "wide")) == VIDEOS * 2 * 2


def test_conditions_count_the_tasks_own_epochs_and_iterations(tmp_path: Path, videos: Path) -> None:
    """A task whose steps depend on the iteration draws its epochs whole, and has what it would have alone."""
    every = wide("every", augmentation=EVERY_OTHER)
    with viewcache.open(several(tmp_path / "s", videos, wide(), every)) as cache:
        together = {place: cache.read("every", *place) for place in places(cache, "every")}
    with viewcache.open(several(tmp_path / "alone", videos, every)) as cache:
        for place, batch in together.items():
            assert np.array_equal(cache.read("every", *place).video, batch.video)


def test_bad_videos_have_one_stand_in_wherever_they_are_drawn(tmp_path: Path, videos: Path) -> None:
    """A video that cannot be decoded is replaced in both tasks, recorded at the place where it was drawn."""
    folder = tmp_path / "videos"
    folder.mkdir()
    for path in videos.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "v4.mp4").write_bytes((folder / "v4.mp4").read_bytes()[:900])
    tasks = [wide(on_bad_video="replace"), narrow(on_bad_video="replace", drop_last=False)]
    with viewcache.open(several(tmp_path / "s", folder, *tasks)) as cache:
        for task, batch in read_mixed(cache, {"wide": 1.0, "narrow": 1.0}, Random(3)):
            assert "v4" not in batch.videos, task
        wrong = sql(
            cache,
            "select count(*) from substitutions s join draws d using (task, epoch, position) where d.video <> s.video",
        )
        counted = sql(
            cache, "select task, count(*) from substitutions where policy = 'replace' group by all order by all"
        )
    assert wrong == [(0,)]
    assert counted == [("narrow", 4), ("wide", 4)]
