"""The file in a local store's root that says which format lies there; without it nothing in the folder is ours.

It is written under another name first, so that it is whole or absent. Whoever publishes an object puts it back, since a
store that was emptied while it was in use must open again.
"""

import json
import os
import secrets

from viewcache.errors import BadInput, ChunkDamaged
from viewcache.store.format import FORMAT

__all__ = ["MARKER", "MARKER_TEXT", "UNFINISHED", "check_format", "format_of", "write_marker"]

MARKER = "viewcache-store.json"
"""Its name."""

MARKER_TEXT = json.dumps({"viewcache_store": FORMAT}).encode() + b"\n"
"""What this release writes into it."""

UNFINISHED = MARKER + "."
"""Its name while it is written begins so; eight hexadecimal digits follow."""


def format_of(text: bytes) -> object:
    """The format that a marker names.

    Raises:
        ChunkDamaged: this is no marker.
    """
    try:
        return json.loads(text)["viewcache_store"]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ChunkDamaged("not a viewcache store's marker") from None


def check_format(version: object, marker: object, cure: str) -> None:
    """Refuse a store of another release.

    Args:
        version: what its marker names.
        marker: where that lies.
        cure: what else can be done than using the other release.

    Raises:
        BadInput: this release does not read it.
    """
    if version != FORMAT:
        raise BadInput(
            f"{marker} says format {version!r}, this release reads {FORMAT}; use the release that wrote it, or {cure}"
        )


def write_marker(root: str) -> None:
    """Write the marker of this release's format.

    Args:
        root: the store's folder.

    Raises:
        OSError: the folder is not there, cannot be written, or has no room.
    """
    unfinished = f"{root}/{UNFINISHED}{secrets.token_hex(4)}"
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(file, "wb") as opened:
        opened.write(MARKER_TEXT)
        opened.flush()
        os.fsync(opened.fileno())
    os.rename(unfinished, f"{root}/{MARKER}")
