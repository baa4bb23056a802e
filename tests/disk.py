"""What the file system says that files take, and small file systems that a test may fill."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from viewcache.catalog.duck import DuckEngine
from viewcache.catalog.engine import Session
from viewcache.catalog.journal import Recording
from viewcache.errors import Full
from viewcache.store.blocks import ENTRY

__all__ = ["allocated", "counted", "fill", "mounted", "without_room"]


def allocated(path: str | os.PathLike[str]) -> int:
    """Bytes of the blocks of a folder and of all that lies in it, or of a file; what vanishes meanwhile takes none."""
    total = 0
    with suppress(FileNotFoundError):
        total += os.lstat(path).st_blocks * 512
    for folder, folders, files in os.walk(path):  # unlike glob it does not mind what vanishes
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def counted(folder: Path) -> int:
    """What is to be counted for an object's folder: its blocks, and its name in the folder above."""
    return allocated(folder) + ENTRY


@contextmanager
def mounted(disk: Path, size: int) -> Iterator[Path]:
    """A file system of its own of so many bytes, in memory, at a folder that is made unless it is there."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "viewcache-test", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> None:
    """Take all that is free, by a file `ballast`."""
    with (disk / "ballast").open("ab") as ballast:
        for block in (1 << 20, 4096):
            with suppress(OSError):
                while True:
                    os.write(ballast.fileno(), bytes(block))


def without_room(refused: list[Path]) -> Callable[[DuckEngine], AbstractContextManager[Session]]:
    """In place of `DuckEngine.transaction`: what changes something fails as on a disk that has no byte left.

    Args:
        refused: gets the catalog's path for each that failed.
    """
    begun = DuckEngine.transaction

    @contextmanager
    def fails(self: DuckEngine) -> Iterator[Session]:
        with begun(self) as session:
            recording = Recording(session)
            yield recording
            if recording.changes:
                refused.append(self._path)
                raise Full(f"catalog {self._path}: No space left on device; free disk space")

    return fails
