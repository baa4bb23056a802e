"""One process owns a PostgreSQL catalog, whichever folders its store was copied to."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import viewcache
from tests.catalog.samples import execute, registered
from tests.house.tree import ROOT
from tests.tiny import config, encode_folder
from viewcache.catalog import Catalog
from viewcache.catalog.opening import upgrade_catalog
from viewcache.errors import CatalogBusy

OWNER = """
import os, sys, time
from viewcache.catalog import Catalog
catalog = Catalog.open(sys.argv[1])
child = os.fork() if sys.argv[2:] else 1
if not child:
    os.close(1)  # else who waits for the parent's end waits for this one
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""


def owning(where: str, *arguments: str) -> tuple["subprocess.Popen[str]", int]:
    """A process that owns a catalog, and the number of the child that it has forked."""
    command = [sys.executable, "-c", OWNER, where, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def killed(process: "subprocess.Popen[str]") -> None:
    """End a process as the kernel does that has no memory left."""
    process.kill()
    process.communicate()


def test_one_process_owns_a_catalog(empty_database: str) -> None:
    """Another is told who does, and what to do; who only reads is let in; afterwards it is free."""
    process, _ = owning(empty_database)
    try:
        with pytest.raises(CatalogBusy, match=rf"owned by process {process.pid} on .*Stop that process first") as busy:
            Catalog.open(empty_database)
        assert busy.value.pid == 0, "of another machine, perhaps"
        with Catalog.open(empty_database, writable=False) as reader:
            assert reader.load_tasks() == []
    finally:
        killed(process)
    with Catalog.open(empty_database) as catalog:
        registered(catalog)
    Catalog.open(empty_database).close()


def test_nobody_upgrades_a_catalog_that_is_in_use(empty_database: str) -> None:
    """A process of an older release goes on with the schema that it knows."""
    process, _ = owning(empty_database)
    try:
        execute(empty_database, "update alembic_version set version_num = '0014'")
        with pytest.raises(CatalogBusy, match=rf"owned by process {process.pid} on "):
            upgrade_catalog(empty_database)
        assert execute(empty_database, "select version_num from alembic_version") == [("0014",)]
    finally:
        killed(process)


def test_a_forked_child_owns_nothing(empty_database: str) -> None:
    """A worker of a DataLoader that outlives the owner is not in the way of the next one."""
    process, child = owning(empty_database, "fork")
    try:
        killed(process)
        Catalog.open(empty_database).close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lost_session_is_owned_again(empty_database: str) -> None:
    """The server has ended all sessions: the owner's next one has the lock, and others are refused as before."""
    with Catalog.open(empty_database) as catalog:
        execute(empty_database, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        registered(catalog)
        catalog.flush()
        with pytest.raises(
            CatalogBusy, match=rf"owned by process {os.getpid()} on .*This process has it open already.*close\("
        ):
            Catalog.open(empty_database)


def test_a_copied_store_is_not_a_second_owner(tmp_path: Path, empty_database: str) -> None:
    """Both folders have the same `store_id`: each would record what lies in its own."""
    videos = encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 + k for k in range(2)})
    where = {"catalog": empty_database.replace(":@", "@")}
    with viewcache.open(config(tmp_path / "s", videos, cache=where)) as cache:
        first = cache.read("train", 0, 0)
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    with viewcache.open(config(tmp_path / "s", videos, cache=where)) as cache:
        with pytest.raises(CatalogBusy, match="also where its folder was copied"):
            viewcache.open(config(tmp_path / "copy", videos, cache=where))
        assert cache.read("train", 0, 0).keys == first.keys
