"""Epochs in which videos come by weight: ⌊w⌋ or ⌈w⌉ times, w times on average, each time with other clips."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from math import ceil, floor, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.tiny import config, encode_folder, pixels, same
from viewcache.api.audit.verify import verify, weight_mistake, weighted_mistake
from viewcache.api.config.find import locate
from viewcache.api.config.load import load
from viewcache.api.service.stopping import stop
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.errors import BadInput, ConfigError, NotFound
from viewcache.materializer.dataset.weights import ColumnWeights, ValueWeights, epoch_length
from viewcache.materializer.planning.recorded_weights import record_shares, shares_by_epoch
from viewcache.materializer.planning.weighted_order import draw_weighted, occurrences, shares_of
from viewcache.materializer.randomness import ONE
from viewcache.materializer.tasks import task as tasks
from viewcache.materializer.tasks.batch_work import BatchWork
from viewcache.materializer.tasks.opening import open_task

WEIGHTS = {"v0": 2, "v1": 0.5, "v2": 1.5, "v3": 0, "v4": 3, "v5": 1}
"""They add up to 8."""
EPOCHS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six videos, long enough for many different clips."""
    return encode_folder(tmp_path_factory.mktemp("weights"), {f"{name}.mp4": 60 for name in WEIGHTS})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A weight for each, and a class: four of a, two of b."""
    path = tmp_path_factory.mktemp("table") / "t.csv"
    rows = [f"{name},{'b' if k < 2 else 'a'},{weight}" for k, (name, weight) in enumerate(WEIGHTS.items())]
    path.write_text("\n".join(["video,label,often", *rows]))
    return str(path)


@pytest.fixture(params=["off", "auto"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Who owns the cache: this process, or a service of the store ``s``."""
    monkeypatch.delenv("VIEWCACHE_SERVICE", raising=False)
    yield request.param
    with suppress(NotFound):
        stop(tmp_path / "s", now=True)


def given_task(store: Path, folder: Path, table: str, **keys: Any) -> dict[str, Any]:
    """A weighted task of four epochs, two of them a generation."""
    return config(store, folder, labels=table, epochs=EPOCHS, **({"weight": "often"} | keys))


def clips_of(cache: Any, task: str = "train") -> dict[int, list[tuple[str, int, tuple[int, ...]]]]:
    """Epoch → video, ordinal and frames of each clip, in order."""
    handle = cache.task(task)
    return {
        epoch: [
            (name, int(sample), tuple(frames))
            for iteration in range(handle.iterations(epoch))
            for batch in [cache.read(task, epoch, iteration)]
            for name, sample, frames in zip(batch.videos, batch.sample, batch.frame.tolist(), strict=True)
        ]
        for epoch in range(EPOCHS)
    }


def check_epoch(clips: list[tuple[str, int, tuple[int, ...]]], samples: int = 2) -> Counter[str]:
    """Each video has clips 0, 1, … of its own, as many as it comes times samples; returns how often each comes."""
    ordinals: dict[str, list[int]] = {}
    for name, sample, _ in clips:
        ordinals.setdefault(name, []).append(sample)
    assert all(sorted(found) == list(range(len(found))) for found in ordinals.values())
    return Counter({name: len(found) // samples for name, found in ordinals.items()})


# The draw -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30).filter(lambda each: sum(each) >= 0.5), st.integers(0, 50))
def test_each_comes_as_often_as_its_weight(weights: list[float], epoch: int) -> None:
    """An epoch has ⌊Σw⌉ positions, and each item comes ⌊w'⌋ or ⌈w'⌉ times, w' its weight scaled to that sum."""
    given_weights = np.array(weights)
    length = epoch_length(given_weights)
    shares = shares_of(given_weights, length)
    assert int(shares.sum()) == length * ONE
    assert np.allclose(shares / ONE, given_weights * length / given_weights.sum(), atol=1e-8)
    counts = np.bincount(draw_weighted(3, "t", epoch, shares), minlength=len(weights))
    assert counts.sum() == length
    assert (counts >= shares // ONE).all()
    assert (counts <= -(-shares // ONE)).all()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30).filter(any), st.integers(0, 50))
def test_whole_weights_are_exact(weights: list[int], epoch: int) -> None:
    """An item of weight 2 comes twice in every epoch, one of 0 never."""
    shares = shares_of(np.array(weights, float), sum(weights))
    counts = np.bincount(draw_weighted(3, "t", epoch, shares), minlength=len(weights))
    assert counts.tolist() == weights


def test_expected_counts_and_orders_are_exact() -> None:
    """Over many epochs each item comes as often as its weight, and stands at each position alike."""
    weights, epochs = np.array([0.25, 1.5, 0.75, 2.0, 0.5]), 4000
    shares = shares_of(weights, 5)
    drawn = np.stack([draw_weighted(11, "t", epoch, shares) for epoch in range(epochs)])
    means = np.stack([(drawn == item).sum(axis=1) for item in range(5)]).mean(axis=1)
    parts = weights % 1
    assert (np.abs(means - weights) <= 5 * np.sqrt(parts * (1 - parts) / epochs) + 1e-9).all()
    for item, weight in enumerate(weights):
        share = weight / 5
        at = (drawn == item).mean(axis=0)
        assert (np.abs(at - share) <= 5 * sqrt(share * (1 - share) / epochs)).all()


def test_a_draw_is_pinned() -> None:
    """What was drawn by weight once is drawn again, on any machine."""
    shares = shares_of(np.array([0.5, 1.5, 2, 0, 4]), 8)
    assert [draw_weighted(7, "train", epoch, shares).tolist() for epoch in range(2)] == PINNED


PINNED = [[4, 4, 1, 4, 2, 2, 1, 4], [2, 4, 4, 4, 4, 1, 2, 1]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=24), st.integers(0, 50))
def test_strata_come_equally_often(values: list[int], epoch: int) -> None:
    """Of n positions each of K values has ⌊n / K⌋ or ⌈n / K⌉ in every epoch, shared fairly among its items."""
    weights = ValueWeights("balance", "v", pa.array(values), {})
    rows = np.arange(len(values))
    strata = weights.strata(rows)
    assert strata is not None
    drawn = draw_weighted(5, "t", epoch, shares_of(weights.of(rows), len(values)), strata)
    each = len(values) / len(set(values))
    assert all(floor(each) <= (strata[drawn] == one).sum() <= ceil(each) for one in range(int(strata.max()) + 1))
    counts = np.bincount(drawn, minlength=len(values))
    for one in set(values):
        mine = counts[np.array(values) == one]
        assert mine.max() - mine.min() <= 1


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=4))
def test_occurrences(rows: list[list[int]]) -> None:
    """Each is how often the same id stands before it in its row."""
    expected = [[row[:at].count(each) for at, each in enumerate(row)] for row in rows]
    assert occurrences(np.array(rows, np.int64)).tolist() == expected


# Tasks ----------------------------------------------------------------------------------------------------------------


def test_videos_come_by_weight(tmp_path: Path, folder: Path, table: str, service: str) -> None:
    """Every epoch has eight places; a video comes as often as its weight, each time with clips of its own."""
    with viewcache.open(given_task(tmp_path / "s", folder, table), service=service) as cache:
        epochs = clips_of(cache)
        again = clips_of(cache)
        if isinstance(cache, Cache):
            drawn = cache.catalog.load_draws(1, 0, EPOCHS)
            assert len(drawn) == 8 * EPOCHS
    assert again == epochs
    for clips in epochs.values():
        counts = check_epoch(clips)
        assert sum(counts.values()) == 8
        assert all(floor(weight) <= counts[name] <= ceil(weight) for name, weight in WEIGHTS.items())
        starts = [frames[0] for name, _, frames in clips if name == "v4"]
        assert len(starts) == 6
        assert len(set(starts)) > 3, "occurrences have clips of their own"
    assert any(epochs[0][k] != epochs[1][k] for k in range(16))


def test_the_same_bytes_after_a_restart_and_alone(tmp_path: Path, folder: Path, table: str) -> None:
    """What was read is what is read again, from the same store and from an empty one; frames by path are those."""
    with viewcache.open(given_task(tmp_path / "s", folder, table)) as cache:
        first = pixels(cache)
    with viewcache.open(given_task(tmp_path / "s", folder, table)) as cache:
        assert same(pixels(cache), first)
    with viewcache.open(given_task(tmp_path / "t", folder, table)) as cache:
        assert same(dict(reversed(pixels(cache).items())), first)
        batch = first[0, 0]
        for k, (name, sample) in enumerate(zip(batch.videos, batch.sample.tolist(), strict=True)):
            frame = cache.aug("train", name, int(batch.frame[k, 0]), 1, epoch=0, sample=sample)
            assert np.array_equal(frame, batch.video[k, 0])


def test_batches_that_are_read_before_their_generation_is_planned(
    tmp_path: Path, folder: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of a large generation that is planned alone has the clips that the whole plan gives it."""
    monkeypatch.setattr(tasks, "PLANNED_AT_ONCE", 0)
    parsed = load(given_task(tmp_path / "s", folder, table))
    with Catalog.open(str(tmp_path / "s")) as catalog:  # without readers, planners and workers
        task = open_task(parsed.cache, parsed.tasks[0], catalog, budget_bytes=10**8)
        assert task.outline.batch_sizes() == {2}
        early = {(epoch, k): task.batch(epoch, k) for epoch in range(EPOCHS) for k in range(task.iterations(epoch))}
        assert len(early) == 4 * EPOCHS
        for (epoch, iteration), batch in early.items():
            assert isinstance(batch, BatchWork)
            whole = task.generation(task.generation_of(epoch)).plan
            rows = list(whole.rows(epoch, iteration))
            assert batch.plan.hex_keys == [whole.key(row) for row in rows]
            assert batch.plan.ordinal.tolist() == whole.ordinal[rows].tolist()


def test_balanced_classes(tmp_path: Path, folder: Path, table: str, service: str) -> None:
    """Each class comes equally often in an epoch, which stays as long as without."""
    with viewcache.open(
        given_task(tmp_path / "s", folder, table, weight=None, balance="label"), service=service
    ) as cache:
        for clips in clips_of(cache).values():
            counts = check_epoch(clips)
            assert sum(counts.values()) == 6
            assert counts["v0"] + counts["v1"] == 3
            assert all(1 <= counts[name] <= 2 for name in ("v0", "v1"))
            assert all(counts[name] <= 1 for name in ("v2", "v3", "v4", "v5"))


def test_the_label_column_has_two_names(tmp_path: Path, folder: Path) -> None:
    """``label`` and what the table calls it mean one column, wherever columns are named."""
    table = tmp_path / "t.jsonl"
    rows = [{"video": f"v{k}", "Acts": ["run", "sit"][k % 2 :], "who": f"p{k // 2}"} for k in range(6)]
    table.write_text("\n".join(map(json.dumps, rows)))

    def read(name: str, label_column: str, **keys: Any) -> list[str]:
        task = config(tmp_path / name, folder, labels=str(table), label_column=label_column, epochs=1, **keys)
        with viewcache.open(task) as cache:
            batches = range(cache.task("train").iterations(0))
            return [name for iteration in batches for name in cache.read("train", 0, iteration).videos]

    for number, keys in enumerate(
        (
            {"balance": "{}"},
            {"mix": {"p0": 1, "p1": 2, "p2": 3}, "mix_column": "{}"},
            {"split": {"val": 0.5, "by": "{}"}, "part": "val", "where": "{} is not null"},
        )
    ):
        found = []
        for name in ("label", "who"):
            named = json.loads(json.dumps(keys).replace("{}", name))
            found.append(read(f"{number}{name}", "who", **named))
        assert found[0] == found[1]
        assert found[0]
    assert set(read("lists", "Acts", where="list_contains(acts, 'run')")) == {"v0", "v2", "v4"}


def test_another_column_has_its_name(tmp_path: Path, folder: Path) -> None:
    """A further column ``label`` is what ``balance`` names; a label column that is called as a header's is not one."""
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["video,frames,label", *(f"v{k},{k % 2},{'x' if k else 'y'}" for k in range(6))]))
    keys: dict[str, Any] = {"labels": str(table), "label_column": "frames", "where": "frames = 60 and label < 2"}
    with viewcache.open(config(tmp_path / "s", folder, balance="label", epochs=1, **keys)) as cache:
        names = [name for iteration in range(3) for name in cache.read("train", 0, iteration).videos]
    assert len(names) == 12
    assert names.count("v0") == 6, "half of them: it alone is y"


def test_a_weighted_task_draws_alone_and_shares_decoding(tmp_path: Path, folder: Path, table: str) -> None:
    """Beside another task over the same videos it reads what it reads alone, and so does the other."""
    weighted = given_task(tmp_path / "s", folder, table, tag="weighted")
    plain = config(tmp_path / "s", folder, epochs=EPOCHS)
    with viewcache.open(given_task(tmp_path / "t", folder, table, tag="weighted")) as cache:
        alone = pixels(cache, "weighted")
    with viewcache.open([plain, {"dataset": weighted["dataset"]}]) as cache:
        assert not cache.task("weighted").task.draws_together
        assert not cache.task("train").task.draws_together
        assert same(pixels(cache, "weighted"), alone)
        assert check_epoch(clips_of(cache, "train")[0]) == Counter(WEIGHTS.keys())


def test_epochs_that_are_added_later(tmp_path: Path, folder: Path, table: str) -> None:
    """More epochs in a generation that was begun have its length, and what was drawn stays."""
    with viewcache.open(given_task(tmp_path / "s", folder, table)) as cache:
        before = clips_of(cache)
    more = given_task(tmp_path / "s", folder, table)
    more["dataset"]["epochs"] = 5
    with viewcache.open(more) as cache:
        assert clips_of(cache) == before
        assert cache.task("train").iterations(4) == 4


def test_verify_knows_weights(tmp_path: Path, folder: Path, table: str) -> None:
    """Epochs by weight are whole; one in which a video comes too often is told."""
    with viewcache.open(given_task(tmp_path / "s", folder, table)) as cache:
        pixels(cache)
    (tmp_path / "c.yaml").write_text(json.dumps(given_task(tmp_path / "s", folder, table)))
    located = locate(str(tmp_path / "c.yaml"))
    assert verify(located).draws == ()


@pytest.mark.parametrize(
    ("epochs", "message"),
    [
        ([[0, 1, 1, 2], [0, 1, 1, 0]], ""),
        ([[0, 1, 1, 1], [0, 2, 2, 1]], "epoch 1: video 1 is drawn 1 times, and 1 to 3 times in the epochs"),
        ([[0, 1, 1], [0, 1, 1, 2]], "epoch 1: it has 4 draws, the first epoch of its generation 3"),
        ([[0, 0, 0], [1, 1, 1]], "epoch 1: video 0 is drawn 0 times, and 0 to 3"),
    ],
)
def test_verify_finds_epochs_that_are_not_by_weight(epochs: list[list[int]], message: str) -> None:
    """A video comes equally often in the epochs of a generation, or once more, and they have one length."""
    counts: dict[str, dict[int, int]] = {}
    told = [
        weighted_mistake("t", number, np.arange(len(videos)), np.sort(videos), len(epochs[0]), counts)
        for number, videos in enumerate(epochs)
    ]
    assert message in "".join(told)
    assert bool(message) == any(told)
    assert "gaps" in weighted_mistake("t", 0, np.array([0, 2]), np.array([1, 2]), 2, {})


@pytest.mark.parametrize(
    ("videos", "message"),
    [
        ([0, 1, 1, 2], ""),
        ([0, 1, 1, 1], "video 1 is drawn 3 times, and by its weight comes 1 or 2 times"),
        ([0, 0, 1, 2], "video 0 is drawn 2 times, and by its weight comes 1 times"),
        ([1, 1, 2, 2], "video 0 is drawn 0 times, and by its weight comes 1 times"),
        ([0, 1, 2, 3], "video 3 is drawn 1 times, and by its weight comes 0 times"),
    ],
)
def test_verify_finds_epochs_that_miss_their_weights(videos: list[int], message: str) -> None:
    """A video comes as often as its weight says, rounded down or up: counts that are alike in all epochs do not do."""
    shares = dict(enumerate(shares_of(np.array([1, 1.75, 1.25, 0]), 4).tolist()))
    told = weight_mistake("t", 3, np.array(videos), shares)
    assert told.endswith(message)
    assert bool(message) == bool(told)
    assert weight_mistake("t", 3, np.array(videos), None) == "", "of an earlier release nothing is on record"


def test_verify_goes_by_the_weights_of_each_generation(tmp_path: Path, folder: Path, table: str) -> None:
    """Weights are on record as an epoch was drawn by them: editing them makes none wrong, and a bias is found."""
    mine = Path(shutil.copyfile(table, tmp_path / "mine.csv"))
    given = given_task(tmp_path / "s", folder, str(mine))
    with viewcache.open(given) as cache:
        pixels(cache)
        begun = cache.task("train").task.spec.epochs
    lines = mine.read_text().splitlines()
    head, rows = lines[0].split(","), [line.split(",") for line in lines[1:]]
    at = head.index("often")
    rows = [[*row[:at], "1.5" if k % 2 else "0.5", *row[at + 1 :]] for k, row in enumerate(rows)]
    mine.write_text("\n".join(",".join(row) for row in [head, *rows]))
    given["dataset"] |= {"epochs": begun + 4}
    (tmp_path / "c.yaml").write_text(json.dumps(given))
    with viewcache.open(given) as cache:
        pixels(cache)
        task_id = cache.task("train").task.task_id
        known = shares_by_epoch(cache.catalog, task_id)
    assert set(known) >= set(range(begun + 4))
    assert known[0] != known[begun + 3]
    located = locate(str(tmp_path / "c.yaml"))
    assert verify(located).draws == ()
    with Catalog.open(str(tmp_path / "s")) as catalog:
        last = begun + 3
        ids = np.array(list(known[last]))
        shares = np.roll(np.array(list(known[last].values())), 1)
        record_shares(catalog, task_id, range(last, last + 1), ids, shares)
    (wrong,) = verify(located).draws
    assert f"epoch {last}: video" in wrong
    assert "by its weight comes" in wrong


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, -0.5]), "'w' has -0.5 for 'b'"),
        (pa.array([1.0, float("inf")]), "'w' has inf for 'b'"),
        (pa.array([1.0, float("nan")]), "'w' has no value for 'b'"),
        (pa.array([1, None]), "'w' has no value for 'b'"),
        (pa.array([0, 0]), "add up to 0, so an epoch would be empty"),
        (pa.array([0.2, 0.2]), "add up to 0.4, so an epoch would be empty"),
        (pa.array(["much", "1"]), "'w' holds text; a weight is a number from 0"),
        (pa.array([[1], [2]]), "'w' holds lists"),
        (pa.array([True, False]), "'w' holds true and false"),
        (pa.nulls(2), "'w' holds nothing"),
    ],
)
def test_weights_that_are_none(column: pa.Array, message: str) -> None:
    """Refused with the column, the value and a video; those of videos that are not selected do not matter."""
    with pytest.raises(BadInput, match=message):
        ColumnWeights("w", column).check(np.array([True, True]), ["a", "b"])
    if "for 'b'" in message:
        ColumnWeights("w", column).check(np.array([True, False]), ["a", "b"])


def test_labels_that_cannot_be_balanced() -> None:
    """A video without a label belongs to no class, and one with several to more than one."""
    with pytest.raises(BadInput, match=r"balance: column 'label' has no value for 'b' \(1 videos\)"):
        ValueWeights("balance", "label", pa.array(["x", None]), {}).check(np.array([True, True]), ["a", "b"])
    with pytest.raises(BadInput, match="several values of a video"):
        ValueWeights("balance", "label", pa.array([["x"], ["y"]]), {})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"balance": "label"}, r"dataset\.balance: weight says already"),
        ({"labels": None}, r"dataset\.weight: it is a column of a label table"),
        ({"labels": "folders"}, r"dataset\.weight: it is a column of a label table"),
        ({"shuffle": False}, r"dataset\.weight: videos that come by weight are drawn by lot, so shuffle must be true"),
        ({"sampling": {"clips": "uniform"}}, r"dataset\.weight: a video that comes again has other clips"),
    ],
)
def test_keys_that_do_not_go_with_weights(
    tmp_path: Path, folder: Path, table: str, keys: dict[str, Any], message: str
) -> None:
    """Refused when the configuration is read."""
    given_keys: dict[str, Any] = {"labels": table, "weight": "often"} | keys
    with pytest.raises(ConfigError, match=message):
        viewcache.open(config(tmp_path / "s", folder, **given_keys))


def test_weights_of_an_epoch_that_no_plan_could_hold() -> None:
    """Refused with what they add up to, before anything of that size is made."""
    for weight in (1e9, 1e300):
        with pytest.raises(BadInput, match=r"add up to 1e.*at most 16777216 places"):
            ColumnWeights("w", pa.array([weight, 1.0])).check(np.array([True, True]), ["a", "b"])


def test_shares_of_any_size() -> None:
    """Shares are in proportion, whatever their sum is."""
    weights = ValueWeights("mix", "v", pa.array(["a", "b", "b"]), {"a": 1e308, "b": 1e308})
    assert weights.of(np.arange(3)).tolist() == [1.5, 0.75, 0.75]
