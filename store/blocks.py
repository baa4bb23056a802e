"""What files take of a disk: whole blocks, and for each object a folder of its own.

Worked out from lengths and not asked of each file: a file system may give blocks late, and what is counted must be the
same whenever it is counted. Only the size of a block and what a folder takes are measured, for they differ: ext4 gives
a folder a block, xfs and tmpfs keep a small one in its inode.
"""

import os

from viewcache.store.marker import MARKER

__all__ = ["BLOCK", "OBJECT_BOUND", "block_bytes", "folder_bytes", "taken_bytes", "whole_blocks"]

BLOCK = 4096
"""What nearly every file system gives at least, in bytes; `bound_bytes` counts in it."""

ENTRY = 128
"""Bytes of an object's name in the folder above: ext4 packs 50 to 102 of them in a block, and indexes those."""

OBJECT_BOUND = 3 * BLOCK + ENTRY
"""The most bytes that an object takes beside the lengths of its two files: the rest of a block for each of them, a
folder, and its name."""

_SECTOR = 512  # the unit of st_blocks, whatever a block is


def block_bytes(root: str | os.PathLike[str]) -> int:
    """Bytes of a block in a store's folder: what its marker takes, a file of a few bytes.

    The file system's own word would be a mebibyte on a network, and less than a cluster where ext4 has those; it counts
    where a marker is kept inside its inode, or was deleted.
    """
    try:
        taken = os.lstat(f"{os.fspath(root)}/{MARKER}").st_blocks * _SECTOR
    except FileNotFoundError:
        taken = 0
    return taken if taken >= BLOCK else max(taken, min(os.statvfs(root).f_frsize, BLOCK))


def whole_blocks(length: int, block: int = BLOCK) -> int:
    """What a file of so many bytes takes."""
    return -(-length // block) * block


def folder_bytes(path: str) -> int:
    """What a folder takes, with its name in the one above."""
    return os.lstat(path).st_blocks * _SECTOR + ENTRY


def taken_bytes(root: str | os.PathLike[str], folder: str, *lengths: int) -> int:
    """What an object takes: files of these lengths in a folder of their own, which is there."""
    block = block_bytes(root)
    return sum(whole_blocks(length, block) for length in lengths) + folder_bytes(folder)
