"""What the file system says that files take, for tests of what is counted for them."""

import os
from contextlib import suppress
from pathlib import Path

from viewcache.store.blocks import ENTRY

__all__ = ["allocated", "counted"]


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
