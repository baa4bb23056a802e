"""A copy of the catalog that is put back: what the store has by now is looked through, and counts."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import viewcache
from tests import forked
from tests.catalog.conftest import empty_database, server  # noqa: F401  # fixtures
from tests.catalog.samples import execute
from tests.faults.caches import assert_at_rest, config, read_all
from tests.house.tree import ROOT
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.records import CLEAN
from viewcache.failpoints import VARIABLE

KEEPING: dict[str, Any] = {"eviction": {"trim": False}}
"""What was read stays."""


def lying_there(cache: Cache) -> int:
    """Bytes of all objects of the store."""
    return sum(size for _, size in cache.tier.iter_objects())


def test_a_copy_that_is_put_back_is_not_trusted(tmp_path: Path, videos: Path) -> None:
    """It was made while nobody had the cache open, and says so; what was made since counts against the budget."""
    whole = config(tmp_path, videos, **KEEPING)
    with viewcache.open(whole) as cache:
        cache.read("t", 0, 0)
    shutil.copy2(CatalogFiles(tmp_path).database, tmp_path / "copy")
    with viewcache.open(whole) as cache:
        assert not cache.owner.recovered.walked
        truth = dict(read_all(cache))
        used = cache.tier.used_bytes
    os.replace(tmp_path / "copy", CatalogFiles(tmp_path).database)
    with viewcache.open(config(tmp_path, videos, budget=used // 2, **KEEPING)) as cache:
        assert cache.owner.recovered.walked
        assert lying_there(cache) == cache.tier.used_bytes <= used // 2
        assert dict(read_all(cache)) == truth
    assert_at_rest(tmp_path)
    with viewcache.open(whole) as cache:
        assert not cache.owner.recovered.walked


def test_postgresql_that_is_put_back_is_not_trusted(tmp_path: Path, videos: Path, empty_database: str) -> None:  # noqa: F811
    """Neither are the tables of a server, as they were after an earlier end."""
    whole = config(tmp_path, videos, catalog=empty_database.replace(":@", "@"), **KEEPING)
    with viewcache.open(whole) as cache:
        cache.read("t", 0, 0)
    execute(empty_database, "create table copies_before as select * from object_copy")
    execute(empty_database, "create table settings_before as select * from setting")
    with viewcache.open(whole) as cache:
        assert not cache.owner.recovered.walked
        dict(read_all(cache))
        used = cache.tier.used_bytes
    for table, before in (("object_copy", "copies_before"), ("setting", "settings_before")):
        execute(empty_database, f"delete from {table}")
        execute(empty_database, f"insert into {table} select * from {before}")
    with viewcache.open(whole) as cache:
        assert cache.owner.recovered.walked
        assert lying_there(cache) == cache.tier.used_bytes == used


def test_the_catalog_of_an_earlier_release_is_looked_through_once(tmp_path: Path, videos: Path) -> None:
    """It said alone that its end was clean."""
    with viewcache.open(config(tmp_path, videos)) as cache:
        cache.read("t", 0, 0)
    (tmp_path / CLEAN).unlink()
    with Catalog.open(tmp_path) as catalog:
        catalog.set_setting(CLEAN, "yes")
    for walked in (True, False):
        with viewcache.open(config(tmp_path, videos)) as cache:
            assert cache.owner.recovered.walked is walked


CHILD = "import json, sys, viewcache\nviewcache.open(json.loads(sys.argv[1])).close()"


def test_killed_while_it_ends_it_did_not_end(tmp_path: Path, videos: Path) -> None:
    """Between the catalog's word and the file in the store nothing is trusted, and the start after the next is."""
    whole = config(tmp_path, videos)
    with viewcache.open(whole) as cache:
        cache.read("t", 0, 0)
    child = forked.run(
        [sys.executable, "-c", CHILD, json.dumps(whole)],
        cwd=ROOT,
        env=os.environ
        | {VARIABLE: "catalog.ended:1:kill", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        timeout=120,
    )
    assert child.returncode == -signal.SIGKILL
    assert not (tmp_path / CLEAN).exists()
    for walked in (True, False):
        with viewcache.open(whole) as cache:
            assert cache.owner.recovered.walked is walked
