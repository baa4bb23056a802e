"""Orders of images are recorded by digests: the same orders as before, and never another one silently."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import viewcache
from tests.catalog.conftest import (  # noqa: F401
    empty_database,
    server,
)
from tests.catalog.samples import execute
from tests.images.small import config, picture, save, save_folder
from tests.images.test_images import read, same
from tests.images.test_processes import CHILD
from tests.tiny import sql
from viewcache.api.cli.main import main
from viewcache.api.session.cache import Cache
from viewcache.catalog.files import CatalogFiles
from viewcache.errors import CatalogDamaged
from viewcache.failpoints import VARIABLE
from viewcache.materializer.planning import draws

ORDERS = [
    [10, 1, 4, 0, 2, 6, 3, 5, 7, 8, 11, 9],
    [9, 5, 6, 3, 8, 2, 11, 10, 0, 7, 4, 1],
    [2, 7, 0, 6, 8, 10, 4, 9, 5, 1, 3, 11],
]
"""What the release before, which recorded each place, drew of twelve images with seed 7 in epochs 0 to 2."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images."""
    return save_folder(tmp_path_factory.mktemp("images"), {f"{k}.jpg": (60 + k, 48) for k in range(12)})


def _given(store: Path, images: Path, **dataset: Any) -> dict[str, Any]:
    return config(store, images, sampling={"images_per_batch": 4}, **dataset)


def _shown(cache: Cache) -> list[list[int]]:
    rows = sql(cache, "select epoch, video from draws where task = 'train' order by epoch, position")
    return [[int(str(name)) for epoch, name in rows if epoch == each] for each in range(3)]


def _rows(cache: Cache) -> tuple[int, int]:
    """Orders by digest, and rows of single places."""
    by_digest = sql(cache, "select count(*) from orders")[0][0]
    return int(str(by_digest)), cache.catalog.load_draw_rows(1, 0, 9).num_rows


def test_the_order_is_what_it_was(tmp_path: Path, images: Path) -> None:
    """For a given seed; what is read is in that order, and an epoch is one row."""
    with viewcache.open(_given(tmp_path / "store", images), service="off") as cache:
        names = {number: int(str(name)) for number, name in sql(cache, "select image_id, image from images")}
        found: list[list[int]] = [[], [], []]
        for (epoch, _), batch in read(cache).items():
            found[epoch] += [names[number] for number in batch["index"].tolist()]
        assert found == ORDERS
        assert _shown(cache) == ORDERS
        assert _rows(cache) == (3, 0)


def test_what_is_not_shuffled_or_weighted(tmp_path: Path, images: Path) -> None:
    """Without a shuffle images come by name, by digest too; drawn by weight each place is a row as before."""
    with viewcache.open(_given(tmp_path / "named", images, shuffle=False), service="off") as cache:
        read(cache)
        assert _shown(cache) == [[0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]] * 3
        assert _rows(cache) == (3, 0)
    table = tmp_path / "weights.csv"
    table.write_text("image,label,often\n" + "".join(f"{k},x,{1 + k % 2}\n" for k in range(12)))
    weighted = _given(tmp_path / "weighted", images, labels=str(table), weight="often")
    with viewcache.open(weighted, service="off") as cache:
        read(cache)
        assert _rows(cache) == (0, 3 * 18)


def test_a_catalog_of_the_release_before_goes_on(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs that it recorded place by place stay so, those after them are recorded by digest, and all are the same.

    Also of one generation: the task had one epoch, and has three now, of which two are a generation.
    """
    given = _given(tmp_path / "store", images)
    with monkeypatch.context() as patch:
        patch.setattr(draws, "draws_by_digest", lambda spec, *, together: False)
        with viewcache.open(given | {"dataset": given["dataset"] | {"epochs": 1}}, service="off") as cache:
            read(cache)
            assert _rows(cache) == (0, 12)
    with viewcache.open(given, service="off") as cache:
        whole = read(cache)
        assert _rows(cache) == (2, 12)
        assert _shown(cache) == ORDERS
    with viewcache.open(_given(tmp_path / "truth", images), service="off") as cache:
        assert same(read(cache), whole)


def test_an_image_that_joins_or_leaves_changes_no_drawn_epoch(tmp_path: Path, images: Path) -> None:
    """A version is for ever: the epochs of a generation keep their images, the next one has those that are there."""
    folder = Path(shutil.copytree(images, tmp_path / "images"))
    given = _given(tmp_path / "store", folder)
    with viewcache.open(given | {"dataset": given["dataset"] | {"epochs": 2}}, service="off") as cache:
        read(cache)
    save(folder / "a.jpg", picture(50, 50))
    with viewcache.open(given, service="off") as cache:
        read(cache)
        rows = sql(cache, "select epoch, video from draws order by epoch, position")
        shown = [[str(name) for epoch, name in rows if epoch == each] for each in range(3)]
        assert shown[:2] == [[str(each) for each in order] for order in ORDERS[:2]]
        assert sorted(shown[2]) == sorted([*map(str, range(12)), "a"])
        assert sql(cache, "select count(distinct version) from orders") == [(2,)]


CHANGES = {
    "forget": "update epoch_order set word = word + 1",
    "journal": "update version_run set first_id = first_id + 1",
}


@pytest.mark.parametrize("way", CHANGES)
def test_another_order_is_never_read_silently(
    tmp_path: Path, images: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A catalog whose rows were changed is refused, by `verify` too, with ways on that lead on."""
    given = _given(tmp_path / "store", images)
    with viewcache.open(given, service="off") as cache:
        read(cache)
    assert main(["verify", str(tmp_path / "store")]) == 0
    with duckdb.connect(str(CatalogFiles(tmp_path / "store").database)) as connection:
        connection.execute(CHANGES[way])
    with pytest.raises(CatalogDamaged, match=r"epoch 0 of task 'train'.*viewcache forget … train"):
        viewcache.open(given, service="off")
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "store")]) != 0
    assert "epoch 0 of task 'train' has another order" in "".join(capsys.readouterr())
    if way == "forget":
        assert main(["forget", str(tmp_path / "store"), "train"]) == 0
    else:
        CatalogFiles(tmp_path / "store").database.unlink()
    with viewcache.open(given, service="off") as cache:
        read(cache)
        assert _shown(cache) == ORDERS


def _kill_at(given: dict[str, Any], place: str) -> int:
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(given)],
        env=os.environ | {VARIABLE: f"{place}:kill", "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"},
        stdout=subprocess.DEVNULL,
        check=False,
        timeout=60,
    ).returncode


@pytest.mark.parametrize("place", ["journal.before-write", "journal.after-write"])
@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
def test_killed_while_an_order_is_recorded(tmp_path: Path, images: Path, place: str, lost: bool) -> None:
    """Kill -9 on both sides of the journal's line for it, with the catalog there afterwards or not: the same order."""
    with viewcache.open(_given(tmp_path / "truth", images), service="off") as cache:
        truth = read(cache)
    lines = CatalogFiles(tmp_path / "truth").journal.read_bytes().splitlines()
    appended = [line for line in lines if b'{"by":"writer' in line]
    visit = next(number for number, line in enumerate(appended, 1) if b"upsert_orders" in line)
    given = _given(tmp_path / "store", images)
    assert _kill_at(given, f"{place}:{visit}") == -signal.SIGKILL
    layout = CatalogFiles(tmp_path / "store")
    assert (b"upsert_orders" in layout.journal.read_bytes()) == (place == "journal.after-write")
    if lost:
        layout.database.unlink()
        layout.log.unlink(missing_ok=True)
    with viewcache.open(given, service="off") as cache:
        assert same(read(cache), truth)
        assert _shown(cache) == ORDERS


@pytest.mark.parametrize("database", ["duckdb", "postgresql"])
def test_a_lost_catalog_draws_the_same(
    tmp_path: Path, images: Path, database: str, request: pytest.FixtureRequest
) -> None:
    """On both databases: an image that came meanwhile, and would sort first, changes no order that was drawn."""
    folder = Path(shutil.copytree(images, tmp_path / "images"))
    url = None if database == "duckdb" else request.getfixturevalue("empty_database")
    where = {} if url is None else {"catalog": str(url).replace(":@", "@")}
    given = config(tmp_path / "store", folder, sampling={"images_per_batch": 4}, cache=where)
    with viewcache.open(given, service="off") as cache:
        truth = read(cache)
        assert _shown(cache) == ORDERS
    if url is None:
        CatalogFiles(tmp_path / "store").database.unlink()
    else:
        execute(str(url), "drop schema public cascade")
        execute(str(url), "create schema public")
    save(folder / "0a.jpg", picture(50, 50))
    with viewcache.open(given, service="off") as cache:
        assert _shown(cache) == ORDERS
        assert same(read(cache), truth)
        assert _rows(cache) == (3, 0)
