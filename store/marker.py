"""The file in a local store's root that says which format lies there; without it nothing in the folder is ours.

It is written under another name first, so that it is whole or absent. Whoever publishes an object puts it back, since a
store that was emptied while it was in use must open again.
"""

import json
import os
import secrets

from viewcache.store.format import FORMAT

__all__ = ["MARKER", "UNFINISHED", "write_marker"]

MARKER = "viewcache-store.json"
"""Its name."""

UNFINISHED = MARKER + "."
"""Its name while it is written begins so; eight hexadecimal digits follow."""


def write_marker(root: str) -> None:
    """Write the marker of this release's format.

    Args:
        root: the store's folder.

    Raises:
        OSError: the folder is not there, cannot be written, or has no room.
    """
    unfinished = f"{root}/{UNFINISHED}{secrets.token_hex(4)}"
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(file, "w", encoding="ascii") as opened:
        opened.write(json.dumps({"viewcache_store": FORMAT}) + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    os.rename(unfinished, f"{root}/{MARKER}")
