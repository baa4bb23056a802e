"""Another process that looks at a store in use: every folder in sight is a whole object, or goes away at once.

Run as `python -m tests.faults.onlooker STORE` in the root of the repository; says ``ready``, ends when its standard
input does, and says how many objects it has seen.
"""

import os
import select
import sys
from pathlib import Path

from tests.faults.caches import objects_of
from viewcache.errors import ChunkDamaged
from viewcache.store import verify_object

__all__ = ["look"]


def look(store: Path) -> int:
    """Look at every object once; how many were whole."""
    whole = 0
    for folder in objects_of(store).values():
        inode = _inode(folder)
        try:
            verify_object(store, str(folder.relative_to(store)))
            whole += 1
        except ChunkDamaged:
            if inode is not None and _inode(folder) == inode:
                raise
    return whole


def _inode(folder: Path) -> int | None:
    try:
        return os.stat(folder).st_ino
    except FileNotFoundError:
        return None


def main() -> None:
    """Look until nobody wants to know any more."""
    print("ready", flush=True)
    seen, wanted = 0, True
    while wanted:
        wanted = not select.select([sys.stdin], [], [], 0)[0]
        seen += look(Path(sys.argv[1]))
    print(seen)


if __name__ == "__main__":
    main()
