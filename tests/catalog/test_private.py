"""What lies beside a catalog for a while is this user's alone, and does not outlive who made it."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import forked
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.private import private_folder

_HOLDER = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
from viewcache.catalog.private import private_folder
with private_folder() as folder:
    (folder / "catalog.duckdb").write_text("secret")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the machine that only this test uses."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_copy_goes_with_who_made_it(temporary: Path, number: signal.Signals) -> None:
    """One of a living process stays; after its death, however sudden, the next who makes one removes it."""
    holder = forked.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with private_folder():
        assert (folder / "catalog.duckdb").exists()
    holder.send_signal(number)
    holder.wait()
    holder.communicate()
    assert folder.exists()
    with private_folder() as mine:
        assert list(temporary.iterdir()) == [mine]
    assert list(temporary.iterdir()) == []


def test_what_others_put_there_stays(temporary: Path) -> None:
    """A link or a file of such a name is not followed nor removed, nor is a folder that is just being made."""
    (temporary / "precious").mkdir()
    (temporary / "precious" / "held").touch()
    (temporary / "viewcache-copy-link").symlink_to(temporary / "precious")
    (temporary / "viewcache-copy-file").touch()
    (temporary / "viewcache-copy-new").mkdir()
    before = sorted(temporary.rglob("*"))
    with private_folder():
        pass
    assert sorted(temporary.rglob("*")) == before


def test_every_file_of_a_catalog_is_private(folder: Path) -> None:
    """Also where the folder is open to all and the umask, too: the log after each checkpoint, and the snapshot."""
    os.chmod(folder, 0o755)
    before = os.umask(0o022)
    try:
        with Catalog.open(folder) as catalog:
            for number in range(3):
                catalog.set_setting("a", str(number))
                assert CatalogFiles(folder).log.exists()
                assert open_to_others(folder) == []
                catalog.publish_snapshot()
        assert open_to_others(folder) == []
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Names of the files that another user of the machine can read."""
    return [path.name for path in folder.iterdir() if path.stat().st_mode & 0o077]


def test_a_folder_that_is_being_made_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for folders of dead makers at the moment before a new one is locked leaves it alone."""
    lock, looked = fcntl.flock, list[str]()

    def late(held: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not looked:
            looked.append("first")
            with private_folder():
                pass
        lock(held, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with private_folder() as mine:
        (mine / "copy").touch()
        assert looked
    assert not mine.exists()
