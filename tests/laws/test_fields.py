"""Further columns, several labels and given classes: the same in every form of a batch, whoever owns the cache.

None of them changes a view: they may be added to a task that was read (docs/labels.md).
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import torch
import zarr

import viewcache
from tests.tiny import AUGMENTATION, config, encode_folder, pixels, same, single
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, ConfigError, NotFound
from viewcache.materializer.dataset import said
from viewcache.materializer.dataset.table import read_table
from viewcache.materializer.field_values import Ragged, as_lists
from viewcache.materializer.reading.batch import Batch

NAMES = [f"v{k}" for k in range(5)]
ROWS: dict[str, dict[str, Any]] = {
    name: {
        "label": ["run", "jump", "sit"][: k % 3],
        "caption": f"clip {k} é" if k else None,
        "age": 10 + k,
        "share": k / 4,
        "boxes": [[k, 1.5, 2, 3]] * (k % 3),
        "at": [k, -k],
        "tags": ["a", "b"][: k % 2 + 1],
        "indoors": k % 2 == 0,
    }
    for k, name in enumerate(NAMES)
}
FIELDS = ["caption", "age", "share", "boxes", "at", "tags", "indoors"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos."""
    return encode_folder(tmp_path_factory.mktemp("fields"), {f"{name}.mp4": 40 + k for k, name in enumerate(NAMES)})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A JSON lines table with a column of each kind."""
    path = tmp_path_factory.mktemp("table") / "t.jsonl"
    path.write_text("\n".join(json.dumps({"video": name} | row) for name, row in ROWS.items()))
    return str(path)


@pytest.fixture(params=["off", "auto"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Who owns the cache: this process, or a service of the store ``s``."""
    monkeypatch.delenv("VIEWCACHE_SERVICE", raising=False)
    yield request.param
    with suppress(NotFound):
        stop(tmp_path / "s", now=True)


def opened(folder: Path, store: Path, service: str = "off", **dataset: Any) -> Cache | AttachedCache:
    """The cache of a task with these keys."""
    cache: Cache | AttachedCache = viewcache.open(config(store, folder, epochs=1, **dataset), service=service)
    return cache


def batches(cache: Cache | AttachedCache) -> list[Batch]:
    """All batches of the task's only epoch."""
    return [cache.read("train", 0, iteration) for iteration in range(3)]


def check_fields(videos: Any, fields: Mapping[str, list[Any]]) -> None:
    """Each clip has what the row of its video says."""
    assert list(fields) == FIELDS
    for k, name in enumerate(videos):
        for field, values in fields.items():
            assert values[k] == ROWS[name][field], (name, field)


def test_every_form_of_a_batch_has_the_fields(tmp_path: Path, folder: Path, table: str, service: str) -> None:
    """Each clip has what its video's row says: in a batch, in metadata, in the Zarr group and for every framework."""
    with opened(folder, tmp_path / "s", service, labels=table, fields=FIELDS) as cache:
        read = batches(cache)
        for batch in read:
            check_fields(batch.videos, {name: as_lists(each) for name, each in batch.fields.items()})
        assert sorted(name for batch in read for name in batch.videos[::2]) == NAMES
        first = read[0]
        about = fsspec.filesystem("view").info("view://train/0/0/view")["view"]
        check_fields(about["videos"], about["fields"])
        assert about["label"] == [[cache.classes("train").index(each) for each in sorted(ROWS[name]["label"])]
                                  for name in first.videos]  # fmt: skip
        group = zarr.open_group("view://train/0/0/view.zarr", mode="r")
        texts: Any = group.attrs["texts"]
        assert texts == {"caption": list(as_lists(first.fields["caption"])), "tags": as_lists(first.fields["tags"])}
        for name in ("age", "share", "at", "indoors"):
            assert np.array_equal(np.asarray(group[name]), np.asarray(first.fields[name])), name
        boxes = first.fields["boxes"]
        assert isinstance(boxes, Ragged)
        assert np.array_equal(np.asarray(group["boxes/values"]), boxes.values)
        assert np.array_equal(np.asarray(group["boxes/offsets"]), boxes.offsets)
        assert np.array_equal(np.asarray(group["label"]), first.label)
        for framework in ("torch", "numpy"):
            for batch, given in zip(read, cache.loader("train", framework=framework), strict=True):
                found = {name: given[name] for name in FIELDS}
                assert isinstance(found["boxes"], Ragged)
                plain = {name: _as_numpy(value) for name, value in found.items()}
                check_fields(batch.videos, {name: as_lists(each) for name, each in plain.items()})
                assert np.array_equal(np.asarray(given["label"]), batch.label)


def _as_numpy(value: Any) -> Any:
    if isinstance(value, Ragged):
        return Ragged(np.asarray(value.values), np.asarray(value.offsets))
    if isinstance(value, list):
        return tuple(tuple(each) if isinstance(each, list) else each for each in value)
    return np.asarray(value)


def test_ragged_fields_are_those_of_torch(tmp_path: Path, folder: Path, table: str) -> None:
    """Values and offsets make a nested tensor, and what fills up a short batch has none."""
    with opened(folder, tmp_path / "s", labels=table, fields="boxes") as cache:
        *_, last = cache.loader("train", even=True)
        values, offsets = last["boxes"]
        nested = torch.nested.nested_tensor_from_jagged(values, offsets)
        lengths = [len(each) for each in nested.unbind()]
        assert lengths[2:] == [0, 0]
        assert last["valid"].tolist() == [True, True, False, False]
        assert last["label"].shape == (4, 2)
        assert not last["label"][2:].any()


def test_fields_change_no_view(tmp_path: Path, folder: Path, table: str) -> None:
    """Other fields need no other tag: all that was read stays, and nothing is drawn or made again."""
    with opened(folder, tmp_path / "s", labels=table) as cache:
        assert isinstance(cache, Cache)
        before = pixels(cache)
        assert all(not batch.fields for batch in before.values())
    for fields in (FIELDS[:2], FIELDS[1:], []):
        with opened(folder, tmp_path / "s", labels=table, fields=fields) as cache:
            assert isinstance(cache, Cache)
            after = pixels(cache)
            assert same(before, after)
            assert all(list(batch.fields) == fields for batch in after.values())
            assert all(batch.keys == before[place].keys for place, batch in after.items())


def test_a_service_has_one_choice_of_fields(tmp_path: Path, folder: Path, table: str, service: str) -> None:
    """A client that asks a service for other fields of an open task is told, instead of getting those of the task."""
    with opened(folder, tmp_path / "s", service, labels=table, fields="age") as cache:
        if service == "auto":
            with pytest.raises(
                ConfigError, match=r"open with fields: \[age\]; here it has fields: \[caption, age\]\. End"
            ):
                opened(folder, tmp_path / "s", service, labels=table, fields=["caption", "age"])
        assert as_lists(cache.read("train", 0, 0).fields["age"])


def test_classes_are_the_same_for_training_and_validation(
    tmp_path: Path, folder: Path, table: str, service: str
) -> None:
    """With one list of names two tasks have the same numbers, though neither has videos of all classes."""
    (tmp_path / "classes.txt").write_text("sit\nfly\n\nrun\njump\n")
    rows = "video,label\nv0,run\nv1,run\nv2,sit\nv3,sit\nv4,jump\n"
    (tmp_path / "t.csv").write_text(rows)
    known: dict[str, Any] = {"labels": str(tmp_path / "t.csv"), "classes": str(tmp_path / "classes.txt")}
    given = config(tmp_path / "s", folder, epochs=1, where="label = 'run'", **known)
    val = config(tmp_path / "s", folder, tag="val", where="label <> 'run'", epochs=1, **known)
    with viewcache.open([given, {"dataset": val["dataset"]}], service=service) as cache:
        assert cache.classes("train") == cache.classes("val") == ("sit", "fly", "run", "jump")
        assert set(cache.read("train", 0, 0).label.tolist()) == {2}
        labels = {name: int(label) for batch in (cache.read("val", 0, k) for k in range(2))
                  for name, label in zip(batch.videos, batch.label, strict=True)}  # fmt: skip
        assert labels == {"v2": 0, "v3": 0, "v4": 3}


def test_several_labels_in_a_csv(tmp_path: Path, folder: Path) -> None:
    """A separator parts the labels of a cell; SQL has them as a list, and a predicate can ask for one of them."""
    (tmp_path / "t.csv").write_text("video,label\nv0,run;sit\nv1,sit\nv2,\nv3,jump\nv4,run\n")
    keys: dict[str, Any] = {
        "labels": str(tmp_path / "t.csv"),
        "label_separator": ";",
        "where": "list_contains(label, 'run')",
    }
    with opened(folder, tmp_path / "s", **keys) as cache:
        assert isinstance(cache, Cache)
        assert cache.classes("train") == ("jump", "run", "sit")
        batch = cache.read("train", 0, 0)
        assert dict(zip(batch.videos, batch.label.tolist(), strict=True)) == {"v0": [0, 1, 1], "v4": [0, 1, 0]}
        cache.catalog.flush()
        recorded = {row["name"]: row["label"] for row in cache.catalog.load_videos(1).to_pylist()}
        assert recorded["v0"] == '["run", "sit"]'
        assert cache.show("train", 0, 0).facts


@pytest.mark.parametrize("where", ["label is not null", "kinds is not null"])
def test_where_leaves_out_what_has_no_several_labels(tmp_path: Path, folder: Path, where: str) -> None:
    """A video without a row and one with an empty cell have no label; a separator alone says that it has none of them.

    So they need no weight and no value to be split by, as with one label a video.
    """
    (tmp_path / "t.csv").write_text("video,kinds,often,side\nv0,run;sit,1,val\nv1,,,\nv2,;,2,val\nv3,jump,1,train\n")
    keys: dict[str, Any] = {
        "labels": str(tmp_path / "t.csv"),
        "label_column": "kinds",
        "label_separator": ";",
        "where": where,
    }
    with opened(folder, tmp_path / "weighted", weight="often", **keys) as cache:
        assert isinstance(cache, Cache)
        found = {name: row for batch in pixels(cache).values()
                 for name, row in zip(batch.videos, batch.label.tolist(), strict=True)}  # fmt: skip
        cache.catalog.flush()
        recorded = {row["name"]: row["label"] for row in cache.catalog.load_videos(1).to_pylist()}
    assert found == {"v0": [0, 1, 1], "v2": [0, 0, 0], "v3": [1, 0, 0]}
    assert recorded == {"v0": '["run", "sit"]', "v1": None, "v2": "[]", "v3": '["jump"]', "v4": None}
    # The hash of this seed puts videos on both sides.
    split: dict[str, Any] = {"split": {"val": 0.5, "by": "kinds", "seed": 1}}
    parts = {}
    for part in ("train", "val"):
        with opened(folder, tmp_path / part, part=part, **split, **keys) as cache:
            parts[part] = set(cache.read("train", 0, 0).videos)
    assert not parts["train"] & parts["val"]
    assert parts["train"] | parts["val"] <= {"v0", "v2", "v3"}


def test_segments_have_fields_weights_and_sides_of_their_own(tmp_path: Path, folder: Path) -> None:
    """A row that is a segment has its own columns and weight; all rows of one video are in one part of a split."""
    parts = [(name, at, often) for name in NAMES for at, often in ((0.0, 1), (0.8, 2))]
    rows = [
        {"video": name, "start_s": at, "end_s": at + 0.8, "caption": f"{name} at {at}", "often": often}
        for name, at, often in parts
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    keys: dict[str, Any] = {"labels": str(tmp_path / "t.jsonl"), "fields": "caption", "split": {"val": 0.5}}
    seen: dict[str, list[tuple[str, float]]] = {}
    for part in ("train", "val"):
        with opened(folder, tmp_path / part, weight="often", part=part, **keys) as cache:
            assert isinstance(cache, Cache)
            found = [
                (name, float(start), caption)
                for batch in pixels(cache).values()
                for name, start, caption in zip(
                    batch.videos, batch.start_s.tolist(), as_lists(batch.fields["caption"]), strict=True
                )
            ]
        assert all(caption == f"{name} at {start}" for name, start, caption in found)
        assert {found.count(each) for each in found if each[1] == 0.0} == {2}
        assert {found.count(each) for each in found if each[1] == 0.8} == {4}
        seen[part] = [(name, start) for name, start, _ in found]
    sides = {part: {name for name, _ in items} for part, items in seen.items()}
    assert not sides["train"] & sides["val"]
    assert sides["train"] | sides["val"] == set(NAMES)


def test_several_labels_are_mixed(tmp_path: Path, folder: Path, table: str) -> None:
    """Where clips are mixed, so are the rows of their labels; columns of the table stay the clip's own."""
    steps = [*AUGMENTATION, single({"mixup": 1.0}, of="a", into="b")]
    with opened(folder, tmp_path / "s", labels=table, fields="age", augmentation=steps) as cache:
        for iteration, batch in enumerate(cache.loader("train", framework="numpy")):
            plain = cache.read("train", 0, iteration)
            other = np.roll(plain.label, 2, axis=0)
            assert np.array_equal(batch["label"], plain.label)
            assert np.array_equal(batch["label_other"], other)
            share = batch["lam"][:, None]
            assert np.allclose(batch["label_mixed"], share * plain.label + (1 - share) * other)
            assert np.array_equal(batch["age"], np.asarray(plain.fields["age"]))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"classes": ["x"]}, "'jump', 'run' are labels of the table and not among the 1 names of classes"),
        ({"fields": ["nothing"]}, "task 'train': fields: the label table has no further column 'nothing'"),
        ({"label_separator": ";"}, "these are lists already"),
    ],
)
def test_what_does_not_fit_the_table(
    tmp_path: Path, folder: Path, table: str, keys: dict[str, Any], message: str
) -> None:
    """Refused when the cache is opened, with the values and what there is instead."""
    with pytest.raises(BadInput, match=message):
        opened(folder, tmp_path / "s", labels=table, **keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fields": ["age"]}, r"dataset\.fields is for a label table"),
        ({"labels": "folders", "fields": ["age"]}, r"dataset\.fields is for a label table"),
        ({"classes": ["a"]}, r"dataset\.classes is for labels"),
        ({"labels": "t.csv", "fields": ["age", "age"]}, r"dataset\.fields has 'age' twice"),
        ({"labels": "t.csv", "fields": ["time_s"]}, r"dataset\.fields: 'time_s' is what a batch calls something else"),
        ({"labels": "t.csv", "label_column": "c", "fields": ["c"]}, r"dataset\.fields: 'c' is the label"),
        ({"labels": "t.csv", "fields": ["a/b"]}, r"dataset\.fields must be"),
        ({"labels": "t.csv", "classes": ["a", "b", "a"]}, r"dataset\.classes has 'a' twice"),
        ({"labels": "t.csv", "classes": []}, r"dataset\.classes must be a list of names"),
        ({"labels": "t.csv", "classes": "gone.txt"}, r"gone\.txt: no such file; it has one name in each line"),
        ({"labels": "t.json"}, r"must be a \.csv, \.parquet, \.jsonl or \.ndjson file"),
    ],
)
def test_keys_that_do_not_go_together(tmp_path: Path, folder: Path, keys: dict[str, Any], message: str) -> None:
    """Refused when the configuration is read, before any table is."""
    with pytest.raises(ConfigError, match=message):
        opened(folder, tmp_path / "s", **keys)


# What comes and goes --------------------------------------------------------------------------------------------------


def test_a_video_that_is_gone_keeps_its_row(
    tmp_path: Path, folder: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clips of a removed file that are stored come with their labels and fields, as before."""
    videos = tmp_path / "videos"
    shutil.copytree(folder, videos)
    with opened(videos, tmp_path / "s", labels=table, fields=FIELDS) as cache:
        before = batches(cache)
    (videos / "v3.mp4").unlink()
    reads: list[str] = []

    def counted(labels: str) -> pa.Table:
        reads.append(labels)
        return read_table(labels)

    monkeypatch.setattr(said, "read_table", counted)
    with opened(videos, tmp_path / "s", labels=table, fields=FIELDS) as cache:
        after = batches(cache)
    assert reads == [table], "rows of both are numbered in one reading: the table may be edited meanwhile"
    assert any("v3" in batch.videos for batch in after)
    for batch, earlier in zip(after, before, strict=True):
        assert batch.videos == earlier.videos
        assert np.array_equal(batch.video, earlier.video)
        assert np.array_equal(batch.label, earlier.label)
        check_fields(batch.videos, {name: as_lists(each) for name, each in batch.fields.items()})


def test_a_segment_without_its_row_keeps_its_values(tmp_path: Path, folder: Path) -> None:
    """What was drawn of a row that left the table has no other row's values, but its own; of lists there are none."""
    rows = [
        {"video": name, "start_s": start, "end_s": start + 0.6, **ROWS[name], "label": name}
        for name in NAMES
        for start in (0.0, 0.7)
    ]
    path = tmp_path / "t.jsonl"
    keys: dict[str, Any] = {"labels": str(path), "fields": FIELDS, "sampling": {"videos_per_batch": 4}}
    path.write_text("\n".join(map(json.dumps, rows)))
    with opened(folder, tmp_path / "s", **keys) as cache:
        before = batches(cache)
    path.write_text("\n".join(map(json.dumps, rows[1:])))
    with opened(folder, tmp_path / "s", **keys) as cache:
        after = batches(cache)
    lost = 0
    for batch, earlier in zip(after, before, strict=True):
        assert np.array_equal(batch.item, earlier.item)
        assert np.array_equal(batch.label, earlier.label)
        plain = {name: as_lists(each) for name, each in batch.fields.items()}
        for k, (name, start) in enumerate(zip(batch.videos, batch.start_s.tolist(), strict=True)):
            mine = {field: plain[field][k] for field in FIELDS}
            if (name, start) == ("v0", 0.0):
                lost += 1
                recorded = {field: ROWS[name][field] for field in FIELDS}
                assert mine == recorded | {"boxes": [], "at": [-1, -1], "tags": []}
            else:
                assert mine == {field: ROWS[name][field] for field in FIELDS}
    assert lost == 2


def test_a_number_of_a_class_that_no_batch_could_hold(tmp_path: Path, folder: Path) -> None:
    """Several labels are a column for each class: a number of billions is refused when the cache is opened."""
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps({"video": name, "label": [0, 7_000_000_000]}) for name in NAMES))
    with pytest.raises(BadInput, match=r"the number 7000000000.*at most 1000000"):
        opened(folder, tmp_path / "s", labels=str(path))
