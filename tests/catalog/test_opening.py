"""Opening: one owner, atomic creation, kill -9 at the named places, logs and files that cannot be used, revisions."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests import forked
from tests.catalog.samples import copy, execute
from viewcache import errors, migrations
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.lock import OwnerLock
from viewcache.catalog.opening import is_postgresql

OPEN = "import sys; from viewcache.catalog import Catalog; c = Catalog.open(sys.argv[1]); print('open', flush=True)"
OWN = f"{OPEN}; input()"


def run(code: str, *arguments: object, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python code in a fresh process, killed at a failpoint if one is given."""
    environment = {**os.environ, "VIEWCACHE_FAILPOINT": failpoint} if failpoint else None
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return forked.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


@pytest.fixture
def owner(folder: Path) -> "Iterator[subprocess.Popen[str]]":
    """Another process that owns the catalog in ``folder``; killed by the test or at its end."""
    process = forked.Popen(
        [sys.executable, "-c", OWN, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.kill()
    process.communicate()


def test_opening_is_light(folder: Path) -> None:
    """A current catalog opens without Alembic or SQLAlchemy, which would take longer than the opening."""
    code = f"{OPEN}; c.close(); print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = done.stdout.splitlines()[1]
    for heavy in ("alembic", "sqlalchemy", "psycopg", "torch", "zarr", "av"):
        assert f"'{heavy}'" not in loaded


def test_a_second_owner_is_refused(folder: Path, owner: "subprocess.Popen[str]") -> None:
    """The message has the holder's pid and both ways on (law 9)."""
    with pytest.raises(errors.CatalogBusy, match=f"process {owner.pid}") as refused:
        Catalog.open(folder, wait_s=0)
    assert refused.value.pid == owner.pid
    assert "viewcache sql" in str(refused.value)
    assert f"stop process {owner.pid}" in str(refused.value)
    with pytest.raises(errors.CatalogBusy):
        Catalog.open(folder, writable=False, wait_s=0)


def test_who_is_in_its_own_way_is_told_so(folder: Path) -> None:
    """As with a cache whose name was lost: there is no other process, and this one is not to be stopped."""
    with Catalog.open(folder), pytest.raises(errors.CatalogBusy, match="which is this process") as refused:
        Catalog.open(folder, wait_s=0)
    assert refused.value.pid == os.getpid()
    assert "cache.close()" in str(refused.value)
    assert "stop process" not in str(refused.value)


def test_a_killed_owner_leaves_no_lock(folder: Path, owner: "subprocess.Popen[str]") -> None:
    """Nothing needs cleaning by hand (law 8)."""
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    Catalog.open(folder, wait_s=0).close()


def test_waiting_for_an_owner_that_ends(folder: Path, owner: "subprocess.Popen[str]") -> None:
    """A run that starts while another one closes gets in instead of an error."""
    assert owner.stdin is not None
    owner.stdin.write("\n")
    owner.stdin.flush()
    Catalog.open(folder, wait_s=30).close()


def test_a_forked_child_does_not_hold_the_lock(folder: Path) -> None:
    """A worker that outlives its killed owner must not keep the catalog closed."""
    catalog = Catalog.open(folder)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=theirs.recv)
    child.start()
    catalog.close()
    try:
        OwnerLock(CatalogFiles(folder).lock, exclusive=True).release()
    finally:
        ours.send(None)
        child.join(20)


def test_the_lock_holds_while_the_owner_reads_its_own_file(folder: Path) -> None:
    """Opening and closing the database file drops DuckDB's own lock; ours stays."""
    with Catalog.open(folder):
        shutil.copy(CatalogFiles(folder).database, folder / "elsewhere")
        refused = run(OWN.replace("open(sys.argv[1])", "open(sys.argv[1], wait_s=0)"), folder)
        assert f"process {os.getpid()}" in refused.stderr


def test_of_many_starts_one_wins(folder: Path) -> None:
    """Four processes at once: exactly one owns it, the others are told."""
    code = "input(); " + OWN.replace("open(sys.argv[1])", "open(sys.argv[1], wait_s=0)")
    started = [
        forked.Popen([sys.executable, "-c", code, str(folder)], stdin=-1, stdout=-1, stderr=-1, text=True)
        for _ in range(4)
    ]
    for process in started:  # all are up, and wait for this
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    lost = [process for process in started if (process.stdout or sys.stdin).readline() != "open\n"]
    ended = [process.communicate("\n") for process in started]
    assert len(lost) == 3
    assert sum("CatalogBusy" in err for _, err in ended) == 3


@pytest.mark.parametrize("place", ["catalog.create-before-rename", "catalog.create-after-rename"])
def test_creation_is_all_or_nothing(tmp_path: Path, place: str) -> None:
    """A kill while the catalog is made leaves none or a whole one, and the next start goes on."""
    folder = tmp_path / "new"
    killed = run(OWN, folder, failpoint=f"{place}:1:kill")
    assert killed.returncode == -signal.SIGKILL
    assert CatalogFiles(folder).database.exists() == (place == "catalog.create-after-rename")
    with Catalog.open(folder) as catalog:
        assert catalog.next_object_id(1) == 1
    assert not CatalogFiles(folder).building.exists()


CHANGES = """
import sys
from tests.catalog.samples import copy
from viewcache.catalog import Catalog
catalog = Catalog.open(sys.argv[1])
for i in range(40):
    catalog.mark_ready([copy(i), copy(1000 + i)])
    catalog.flush()
    print(i, flush=True)
    if i % 10 == 9:
        catalog.publish_snapshot()
"""


@pytest.mark.parametrize("place", ["before-commit", "after-commit", "before-checkpoint", "after-checkpoint"])
@pytest.mark.parametrize("visit", [1, 3, 4])
def test_kill_loses_nothing_acknowledged(folder: Path, place: str, visit: int) -> None:
    """After kill -9 every flushed change is there, and no transaction by halves (law 8)."""
    killed = run(CHANGES, folder, failpoint=f"catalog.{place}:{visit}:kill")
    assert killed.returncode == -signal.SIGKILL
    acknowledged = [int(line) for line in killed.stdout.splitlines()]
    with Catalog.open(folder) as catalog:
        assert catalog.quarantined == ()
        found = set(catalog.load_copies()["object_id"].to_pylist())
    assert found >= {i + offset for i in acknowledged for offset in (0, 1000)}
    assert {i + 1000 for i in found if i < 1000} == {i for i in found if i >= 1000}
    assert len(found) <= 2 * (len(acknowledged) + 1)


def test_a_log_that_cannot_be_replayed_is_put_aside(folder: Path) -> None:
    """The catalog opens without it and says which file it could not use, so that the store is walked."""
    killed = run(CHANGES.replace("publish_snapshot", "flush"), folder, failpoint="catalog.after-commit:20:kill")
    assert killed.returncode == -signal.SIGKILL
    log = CatalogFiles(folder).log
    damaged = bytearray(log.read_bytes())
    damaged[40:4000] = os.urandom(3960)
    log.write_bytes(damaged)
    with Catalog.open(folder) as catalog:
        assert [path.name.split(".quarantined-")[0] for path in catalog.quarantined] == [log.name]
        catalog.mark_ready([copy(1)])
    with Catalog.open(folder) as catalog:
        assert catalog.quarantined == ()
        assert catalog.load_copies().num_rows == 1


def test_a_log_without_its_database_is_put_aside(tmp_path: Path) -> None:
    """A new catalog never replays another one's log."""
    folder = tmp_path / "new"
    folder.mkdir()
    CatalogFiles(folder).log.write_bytes(b"left over")
    with Catalog.open(folder) as catalog:
        assert len(catalog.quarantined) == 1


def test_a_damaged_file_is_named(folder: Path) -> None:
    """Who only looks at an existing catalog is told which file it is, and changes nothing."""
    database = CatalogFiles(folder).database
    database.write_bytes(os.urandom(5000))
    for writable in (True, False):
        with pytest.raises(errors.CatalogDamaged, match=r"catalog\.duckdb cannot be opened"):
            Catalog.open(folder, create=False, writable=writable)
    assert database.stat().st_size == 5000


def test_files_are_private(tmp_path: Path) -> None:
    """Other users of the machine read neither the catalog nor its snapshot."""
    folder = tmp_path / "new"
    with Catalog.open(folder) as catalog:
        catalog.publish_snapshot()
        assert folder.stat().st_mode & 0o777 == 0o700
        layout = CatalogFiles(folder)
        for path in (layout.database, layout.lock, layout.snapshot, layout.reserve):
            assert path.stat().st_mode & 0o777 == 0o600, path.name


@pytest.mark.parametrize("writable", [True, False])
def test_no_catalog_is_said(tmp_path: Path, writable: bool) -> None:
    """Asking for one that must exist names the folder, whether it is there or not."""
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(errors.NotFound, match=str(folder)):
            Catalog.open(folder, create=False, writable=writable)


def test_no_catalog_on_postgresql_is_said(empty_database: str) -> None:
    """An empty database is not turned into a catalog by somebody who only looks."""
    with pytest.raises(errors.NotFound, match="holds no catalog"):
        Catalog.open(empty_database, create=False)


def test_no_server_is_said() -> None:
    """A server that does not answer is busy, and no password is in the message."""
    with pytest.raises(errors.CatalogBusy, match="no PostgreSQL server answers") as refused:
        Catalog.open("postgresql://me:secret@/nowhere?host=/nonexistent")
    assert "secret" not in str(refused.value)


def test_a_newer_revision_is_refused(where: str) -> None:
    """An old release does not touch what a newer one made."""
    Catalog.open(where).close()
    _set_revision(where, "9999")
    with pytest.raises(errors.CatalogVersion, match=r"'9999'.*upgrade viewcache"):
        Catalog.open(where)
    with pytest.raises(errors.CatalogVersion, match="'9999'"):
        Catalog.open(where, writable=False)


def _set_revision(where: str, revision: str) -> None:
    sql = f"update alembic_version set version_num = '{revision}'"
    if is_postgresql(where):
        execute(where, sql)
    else:
        with duckdb.connect(str(CatalogFiles(Path(where)).database)) as connection:
            connection.execute(sql)


def test_an_older_revision(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's is brought up to date at open; a reader, and PostgreSQL's other machines, are told the command."""
    Catalog.open(where).close()
    monkeypatch.setattr(migrations, "HEAD", f"{int(migrations.HEAD) + 1:04}")
    upgraded: list[str] = []
    monkeypatch.setattr(migrations, "upgrade", lambda url, _: upgraded.append(url))
    with pytest.raises(errors.CatalogVersion, match="viewcache db upgrade"):
        Catalog.open(where, writable=False)
    if where.startswith("postgresql"):
        with pytest.raises(errors.CatalogVersion, match="viewcache db upgrade"):
            Catalog.open(where)
        from viewcache.catalog.opening import upgrade_catalog

        assert upgrade_catalog(where) == migrations.HEAD
    else:
        Catalog.open(where).close()
    assert len(upgraded) == 1


def test_open_and_close_leave_nothing(folder: Path, no_leaks: None) -> None:
    """Twenty cycles: no thread, descriptor or child is left."""
    started = time.monotonic()
    for _ in range(20):
        with Catalog.open(folder) as catalog:
            catalog.mark_ready([copy(1)])
    assert time.monotonic() - started < 30
