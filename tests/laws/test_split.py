"""A dataset in parts: disjoint, covering, of the shares that were asked for, and the same whatever comes or goes."""

import shutil
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.tiny import config, encode_folder, pixels
from viewcache.errors import BadInput, ConfigError
from viewcache.materializer.dataset.split import part_mask, parts_of
from viewcache.materializer.spec import SplitSpec

NAMES = [f"folder.-video{k:05d}" for k in range(20_000)]
THREE = SplitSpec(val=0.1, test=0.2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve videos."""
    return encode_folder(tmp_path_factory.mktemp("split"), {f"v{k}.mp4": 40 for k in range(12)})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Who is seen in each of them, and a column that names parts."""
    rows = [f"v{k},{k % 5},p{k % 4},{'validation' if k % 3 == 0 else 'train'}" for k in range(12)]
    path = tmp_path_factory.mktemp("table") / "t.csv"
    path.write_text("\n".join(["video,label,person,split", *rows]))
    return str(path)


def tasks(store: Path, folder: Path, *parts: str, service: str = "off", **dataset: Any) -> dict[str, list[str]]:
    """The videos that each part's task reads in each of its epochs, by name of the part."""
    described = [config(store, folder, tag=part, part=part, epochs=2, **dataset) for part in parts]
    given = {"cache": described[0]["cache"], "dataset": [each["dataset"] for each in described]}
    found: dict[str, list[str]] = {}
    with viewcache.open(given, service=service) as cache:
        for part in parts:
            epochs: dict[int, list[str]] = {0: [], 1: []}
            for epoch in epochs:
                for iteration in range(cache.task(part).iterations(epoch)):
                    epochs[epoch] += cache.read(part, epoch, iteration).videos[::2]
            assert sorted(epochs[0]) == sorted(epochs[1])
            found[part] = sorted(epochs[0])
    return found


@pytest.mark.parametrize("split", [SplitSpec(val=0.1), THREE, SplitSpec(test=0.5, seed=9), SplitSpec(val=0.3, seed=1)])
def test_shares(split: SplitSpec) -> None:
    """Of many videos each part has its share, within five standard deviations; seeds are independent of one another."""
    parts = np.array(parts_of(split, NAMES))
    shares = {"val": split.val or 0.0, "test": split.test or 0.0}
    shares["train"] = 1 - sum(shares.values())
    for name, share in shares.items():
        slack = 5 * sqrt(share * (1 - share) * len(NAMES))
        assert abs((parts == name).sum() - share * len(NAMES)) <= slack, name
    other = np.array(parts_of(SplitSpec(split.val, split.test, split.seed + 1), NAMES))
    chance = sum(share**2 for share in shares.values())
    assert abs((parts == other).mean() - chance) <= 5 * sqrt(chance * (1 - chance) / len(NAMES))


@given(
    st.lists(st.text(max_size=8), min_size=1, max_size=40, unique=True),
    st.floats(0.01, 0.49),
    st.floats(0.01, 0.49),
    st.integers(0, 2**63 - 1),
    st.data(),
)
def test_parts_are_disjoint_covering_and_stable(
    names: list[str], val: float, test: float, seed: int, data: st.DataObject
) -> None:
    """Every video is in one part, which it keeps whichever others there are; a larger share takes from train alone."""
    split = SplitSpec(val, test, seed)
    parts = dict(zip(names, parts_of(split, names), strict=True))
    everything = np.ones(len(names), bool)
    masks = [part_mask(split, part, names, everything, None, may_be_empty=True) for part in split.parts]
    assert (np.sum(masks, axis=0) == 1).all()
    fewer = data.draw(st.lists(st.sampled_from(names), unique=True))
    assert parts_of(split, fewer) == [parts[name] for name in fewer]
    grown = dict(zip(names, parts_of(SplitSpec(val, test + 0.01, seed), names), strict=True))
    assert all(grown[name] == part or (grown[name], part) == ("test", "train") for name, part in parts.items())


def test_parts_never_change() -> None:
    """The part of a name is pinned: one that moved would be trained on and validated with."""
    assert parts_of(THREE, NAMES[:12]) == parts_of(THREE, NAMES)[:12]
    assert "".join(each[:2] for each in parts_of(THREE, NAMES[:12])) == "vavatetrtrtetrtrtevatetr"


@pytest.mark.parametrize("service", ["off", "auto"])
def test_tasks_of_parts(tmp_path: Path, folder: Path, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of all parts read each video in one of them, in every epoch; what is added or removed moves none."""
    monkeypatch.delenv("VIEWCACHE_SERVICE", raising=False)
    split = {"val": 0.25, "test": 0.25, "seed": 0}
    found = tasks(tmp_path / "s", folder, "train", "val", "test", service=service, split=split)
    if service == "auto":
        from viewcache.api.service.stopping import stop

        stop(tmp_path / "s", now=True)
    assert sorted(name for names in found.values() for name in names) == sorted(f"v{k}" for k in range(12))
    part_of = {name: part for part, names in found.items() for name in names}
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / f"{found['val'][0]}.mp4").unlink()
    (copy / "v0.mp4").rename(copy / "more.mp4")
    again = tasks(tmp_path / "t", copy, "train", "val", "test", split=split)
    moved = {name: part for part, names in again.items() for name in names if part_of.get(name, part) != part}
    assert not moved


def test_by_a_column(tmp_path: Path, folder: Path, table: str) -> None:
    """All videos of one value are in one part; another value's rows do not decide about it."""
    split = {"val": 0.5, "by": "person"}
    found = tasks(tmp_path / "s", folder, "train", "val", labels=table, split=split)
    people = {part: {int(name[1:]) % 4 for name in names} for part, names in found.items()}
    assert people["train"] | people["val"] == {0, 1, 2, 3}
    assert not people["train"] & people["val"]
    expected = parts_of(SplitSpec(val=0.5), [f"p{k}" for k in range(4)])
    assert {k for k, part in enumerate(expected) if part == "val"} == people["val"]


def test_a_column_that_names_the_parts(tmp_path: Path, folder: Path, table: str) -> None:
    """Each task has the videos whose cell is its part; where and split both hold."""
    split = {"column": "split"}
    found = tasks(tmp_path / "s", folder, "train", "validation", labels=table, split=split)
    assert found["validation"] == sorted(f"v{k}" for k in range(0, 12, 3))
    assert sorted(found["train"] + found["validation"]) == sorted(f"v{k}" for k in range(12))
    chosen = tasks(tmp_path / "t", folder, "validation", labels=table, split=split, where="person <> 'p0'")
    assert chosen["validation"] == ["v3", "v6", "v9"]


def test_an_empty_part_is_of_the_values_that_are_chosen() -> None:
    """Videos that ``where`` leaves out, and those without a value among them, are not counted."""
    column = pa.array(["x", "x", "y", "z", None], pa.large_string())
    selected = np.array([True, True, True, False, False])
    with pytest.raises(BadInput, match="leaves the part 'val' empty, of 2 values of 'who'"):
        part_mask(SplitSpec(val=0.001, by="who"), "val", list("abcde"), selected, column)


def test_a_task_that_was_read_keeps_its_part(tmp_path: Path, folder: Path) -> None:
    """The split is a part of what a task is: another one needs another tag, and without one nothing changes."""
    with viewcache.open(config(tmp_path / "s", folder, split={"val": 0.5}, part="val")) as cache:
        assert pixels(cache)
    with pytest.raises(BadInput, match=r"split\.val \(0\.5 before, 0\.4 now\)"):
        viewcache.open(config(tmp_path / "s", folder, split={"val": 0.4}, part="val"))


def test_values_that_are_missing() -> None:
    """A video without a value would belong to all its unknown fellows: it is refused by name, unless not selected."""
    column = pa.array(["x", None, "y"], pa.large_string())
    names = ["a", "b", "c"]
    with pytest.raises(BadInput, match=r"split: column 'who' has no value for 'b' .*where: who is not null"):
        part_mask(SplitSpec(val=0.5, by="who"), "val", names, np.ones(3, bool), column)
    mask = part_mask(SplitSpec(column="who"), "x", names, np.ones(3, bool), column)
    assert mask.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"split": {"val": 0.001}, "part": "train"}, "leaves the part 'val' empty, of 12 videos: take a larger share"),
        ({"split": {"val": 0.001, "by": "person"}, "part": "val"}, "'val' empty, of 4 values of 'person'"),
        ({"split": {"column": "split"}, "part": "val"}, "'val' of the split by column .* it has 'train', 'validation'"),
        ({"split": {"column": "side"}, "part": "val"}, "split: the label table has no column 'side'; it has 'label', "),
    ],
)
def test_a_part_that_is_empty(tmp_path: Path, folder: Path, table: str, keys: dict[str, Any], message: str) -> None:
    """Refused when the cache is opened, also for the task that has the other videos."""
    with pytest.raises(BadInput, match=message):
        viewcache.open(config(tmp_path / "s", folder, labels=table, **keys))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"split": {"val": 0.1}}, r"dataset needs the key part: which part of its split"),
        ({"part": "val"}, r"dataset\.part is a part of a split"),
        ({"split": {"val": 0.1}, "part": "valid"}, r"dataset\.part must be one of train, val, got 'valid'"),
        ({"split": {"val": 0.1}, "part": "test"}, r"dataset\.part must be one of train, val, got 'test'"),
        ({"split": {}, "part": "val"}, r"dataset\.split: it needs the share of a part"),
        ({"split": {"val": 0}, "part": "val"}, r"dataset\.split\.val must be a number above 0 and below 1, got 0"),
        ({"split": {"val": 1.5}, "part": "val"}, r"dataset\.split\.val must be a number above 0 and below 1, got 1\.5"),
        ({"split": {"val": 0.5, "test": 0.5}, "part": "val"}, r"val and test add up to 1: nothing is left for train"),
        ({"split": {"column": "c", "val": 0.5}, "part": "val"}, r"column names the parts already: leave out val"),
        ({"split": {"column": "c"}, "part": "val"}, r"column is a column of a label table: name one by labels"),
        ({"split": {"val": 0.5, "by": "c"}, "labels": "folders", "part": "val"}, r"by is a column of a label table"),
    ],
)
def test_splits_that_are_none(tmp_path: Path, folder: Path, keys: dict[str, Any], message: str) -> None:
    """Refused when the configuration is read, with the key."""
    with pytest.raises(ConfigError, match=message):
        viewcache.open(config(tmp_path / "s", folder, **keys))
