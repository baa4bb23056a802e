"""A whole cache on a PostgreSQL catalog: what holds on DuckDB holds there."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode
from tests.decode.test_exact import damaged_copy
from tests.laws.test_uses import told
from tests.tiny import sql
from viewcache.api.audit.verify import verify
from viewcache.api.cli.main import main
from viewcache.api.config.find import Located
from viewcache.api.config.load import load
from viewcache.api.upkeep.evict import evict, policies_of
from viewcache.api.upkeep.gc import collected
from viewcache.catalog.policies import find_policy
from viewcache.errors import BadInput, CatalogBusy


def _config(folder: Path, store: str, catalog: str) -> dict[str, Any]:
    return {
        "cache": {"store": str(folder / store), "catalog": catalog.replace(":@", "@"), "budget": "20MB", "workers": 1},
        "dataset": {
            "tag": "train",
            "video_dataset_path": str(folder / "videos"),
            "input_source": "file",
            "epochs": 2,
            "sampling": {"videos_per_batch": 2, "frames_per_video": 4, "frame_stride": 2},
            "augmentation": [
                {
                    "name": "crop",
                    "branch_type": "single",
                    "inputs": ["frame"],
                    "outputs": ["a0"],
                    "config": [{"resize": {"short_side": 48}}, {"random_crop": {"shape": [32, 32]}}],
                }
            ],
        },
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two clips of 30 frames."""
    (tmp_path / "videos").mkdir()
    for name in ("a.mp4", "b.mp4"):
        encode(tmp_path / "videos" / name, frames=30, size=(80, 64))
    return tmp_path


def _read_all(config: dict[str, Any]) -> list[np.ndarray]:
    with viewcache.open(config) as cache:
        return [cache.read("train", epoch, 0).video.copy() for epoch in range(2)]


def test_a_server_that_is_down_can_be_tried_again(folder: Path) -> None:
    """Every try says that the server does not answer: the first leaves no lock behind."""
    for _ in range(2):
        with pytest.raises(CatalogBusy, match="no PostgreSQL server answers"):
            viewcache.open(_config(folder, "store", "postgresql://127.0.0.1:1/none"))


def test_what_is_no_url_is_refused(folder: Path) -> None:
    """The client library's own error does not come through, nor what it repeats."""
    with pytest.raises(BadInput, match="no URL that PostgreSQL's client library can read"):
        viewcache.open(_config(folder, "store", "postgresql://%zz:1/x"))


def test_uses_name_what_stands_in(folder: Path, empty_database: str) -> None:
    """Uses of a clip that another video gives are on record as they were read, there, too."""
    encode(folder / "videos" / "c.mp4", frames=30, size=(80, 64))
    whole = encode(folder / "whole.mp4", frames=30, gop=30)
    damaged_copy(whole, 0, folder / "videos" / "torn.mp4")
    given = _config(folder, "store", empty_database)
    given["dataset"]["on_bad_video"] = "replace"
    with viewcache.open(given) as cache:
        read = {(epoch, k): list(cache.read("train", epoch, k).keys) for epoch in range(2) for k in range(2)}
        assert sql(cache, "select * from substitutions")
        assert told(cache) == read


def test_bytes_do_not_depend_on_the_catalog(folder: Path, empty_database: str) -> None:
    """Law 3: the same configuration gives the same batches on DuckDB and on PostgreSQL, cold and warm."""
    duck = _read_all(_config(folder, "duck", "duckdb"))
    cold = _read_all(_config(folder, "pg", empty_database))
    warm = _read_all(_config(folder, "pg", empty_database))
    for epoch in range(2):
        assert np.array_equal(duck[epoch], cold[epoch])
        assert np.array_equal(duck[epoch], warm[epoch])


def test_a_warm_start_makes_nothing_again(folder: Path, empty_database: str) -> None:
    """What was made before is found through PostgreSQL after a restart."""
    config = _config(folder, "pg", empty_database)
    _read_all(config)
    with viewcache.open(config) as cache:
        cache.read("train", 0, 0)
        assert cache.task("train").spent.misses == 0


def test_a_store_has_one_owner_beside_postgresql_too(folder: Path, empty_database: str) -> None:
    """Law 9: two caches on one store are refused also where the database would let both in."""
    config = _config(folder, "pg", empty_database)
    with viewcache.open(config), pytest.raises(CatalogBusy):
        viewcache.open(config)


def test_one_database_serves_one_store(folder: Path, empty_database: str) -> None:
    """A second store on the database, or a new database for the store, is refused: neither's objects are forgotten."""
    _read_all(_config(folder, "pg", empty_database))
    before = sorted((folder / "pg").glob("objects/*/*"))
    with pytest.raises(BadInput, match="another store"):
        viewcache.open(_config(folder, "other", empty_database))
    shutil.copytree(folder / "pg", folder / "duck", ignore=shutil.ignore_patterns("*.lock"))
    (folder / "duck" / "store_id").write_text("0" * 32)
    with pytest.raises(BadInput, match="another store"):
        viewcache.open(_config(folder, "duck", empty_database))
    assert sorted((folder / "pg").glob("objects/*/*")) == before
    with viewcache.open(_config(folder, "pg", empty_database)) as cache:
        cache.read("train", 0, 0)
        assert cache.task("train").spent.misses == 0


def test_a_store_of_another_catalog_is_not_emptied(folder: Path, empty_database: str, other_database: str) -> None:
    """Pointed at an empty database by mistake, a full store is refused and keeps its objects."""
    _read_all(_config(folder, "pg", empty_database))
    before = sorted((folder / "pg").glob("objects/*/*"))
    with pytest.raises(BadInput, match="another catalog"):
        viewcache.open(_config(folder, "pg", other_database))
    assert sorted((folder / "pg").glob("objects/*/*")) == before


def test_a_wiped_store_is_made_anew(folder: Path, empty_database: str) -> None:
    """The folder on the fast disk may be lost: the catalog goes on, and the batches are the same."""
    config = _config(folder, "pg", empty_database)
    before = _read_all(config)
    shutil.rmtree(folder / "pg")
    assert all(map(np.array_equal, _read_all(config), before))


def _commands(folder: Path, catalog: str) -> dict[str, Callable[[], object]]:
    """What owns a closed cache, by the name of its command; each changes something."""
    config = _config(folder, "pg", catalog)
    (folder / "train.yaml").write_text(json.dumps(config))
    located = Located(str(config["cache"]["catalog"]), str(folder / "pg"), load(config))
    return {
        "verify": lambda: verify(located),
        "gc": lambda: collected(located),
        "evict": lambda: evict(located, find_policy("demand", policies_of(located)[0]), 20 * 10**6),
        "forget": lambda: main(["forget", str(folder / "train.yaml"), "train"]),
    }


@pytest.mark.parametrize("name", ["verify", "gc", "evict", "forget"])
def test_a_cache_that_is_open_is_owned_by_nobody_else(folder: Path, empty_database: str, name: str) -> None:
    """No command gets in beside the owner, whose journal stays its own; afterwards each does what it is for."""
    config = _config(folder, "pg", empty_database)
    command = _commands(folder, empty_database)[name]
    with viewcache.open(config) as cache:
        first = cache.read("train", 0, 0)
        (journal,) = (folder / "pg").glob("catalog-*.journal")
        before = journal.read_bytes()
        if name == "forget":
            assert command() == 4
        else:
            with pytest.raises(CatalogBusy, match=f"owned by process {os.getpid()}"):
                command()
        assert journal.read_bytes() == before
        cache.read("train", 1, 0)
    assert command() is not None
    with viewcache.open(config) as cache:
        assert name == "forget" or cache.read("train", 0, 0).videos == first.videos


@pytest.mark.parametrize("name", ["verify", "gc", "evict"])
def test_the_objects_of_another_catalog_are_left_alone(
    folder: Path, empty_database: str, other_database: str, name: str
) -> None:
    """A store beside a database that is not its own is refused before anything in it is taken for garbage."""
    _read_all(_config(folder, "pg", empty_database))
    _read_all(_config(folder, "other", other_database))
    before = sorted((folder / "pg").glob("objects/*/*"))
    with pytest.raises(BadInput, match="another store"):
        _commands(folder, other_database)[name]()
    assert sorted((folder / "pg").glob("objects/*/*")) == before


def test_rows_that_leave_the_label_table(folder: Path, empty_database: str) -> None:
    """What was drawn of a row keeps its label and fields when the row is gone; the next generation has neither."""
    rows = ["a.mp4,run,0.25", "b.mp4,walk,0.5"]
    config = _config(folder, "store", empty_database)
    config["cache"]["epochs_per_generation"] = 1
    config["dataset"] |= {"labels": str(folder / "labels.csv"), "fields": ["share"], "augmentation": []}
    read = []
    for left, epochs in ((rows, 1), (rows[1:], 2)):
        (folder / "labels.csv").write_text("\n".join(["video,label,share", *left]))
        config["dataset"]["epochs"] = epochs
        with viewcache.open(config) as cache:
            batches = [cache.read("train", epoch, 0) for epoch in range(epochs)]
            assert cache.classes("train") == ("run", "walk")
        read.append(
            [
                {
                    name: (label, str(share))
                    for name, label, share in zip(
                        batch.videos, batch.label.tolist(), batch.fields["share"], strict=True
                    )
                }
                for batch in batches
            ]
        )
    assert read[0] == [{"a": (0, "0.25"), "b": (1, "0.5")}]
    assert read[1] == [read[0][0], {"a": (-1, "nan"), "b": (1, "0.5")}]
