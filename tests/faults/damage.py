"""Ways to damage an object on disk, each of which must be noticed when the object is read."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from viewcache.materializer.storage.ledger import Copy
from viewcache.store.format import METADATA_NAME

__all__ = ["KINDS", "Damage", "shard_of"]

Damage = Callable[[Path, Copy, Path, random.Random], None]
"""(folder of the object, what the catalog knows of it, folder of another object, dice) → the folder is damaged."""


def shard_of(folder: Path) -> Path:
    """The file that holds the chunks."""
    return next(path for path in folder.iterdir() if path.name != METADATA_NAME)


def _place(copy: Copy, dice: random.Random) -> int:
    """A byte of the first chunk or its checksum."""
    table = copy.stored.table
    return table.offsets[0] + dice.randrange(table.sizes[0])


def _flip(folder: Path, copy: Copy, other: Path, dice: random.Random) -> None:
    place, shard = _place(copy, dice), shard_of(folder)
    data = bytearray(shard.read_bytes())
    data[place] ^= 1 << dice.randrange(8)
    shard.write_bytes(data)


def _zero(folder: Path, copy: Copy, other: Path, dice: random.Random) -> None:
    table, shard = copy.stored.table, shard_of(folder)
    data = bytearray(shard.read_bytes())
    data[table.offsets[0] : table.offsets[0] + table.sizes[0]] = bytes(table.sizes[0])
    shard.write_bytes(data)


def _truncate(folder: Path, copy: Copy, other: Path, dice: random.Random) -> None:
    os.truncate(shard_of(folder), _place(copy, dice))


def _delete_shard(folder: Path, copy: Copy, other: Path, dice: random.Random) -> None:
    shard_of(folder).unlink()


def _delete_object(folder: Path, copy: Copy, other: Path, dice: random.Random) -> None:
    shutil.rmtree(folder)


def _swap(folder: Path, copy: Copy, other: Path, dice: random.Random) -> None:
    """Another object's whole folder lies here: every checksum in it is right."""
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def _link(folder: Path, copy: Copy, other: Path, dice: random.Random) -> None:
    """The shard is a link that leads elsewhere."""
    shard = shard_of(folder)
    shard.rename(folder.parent / "elsewhere")
    shard.symlink_to(folder.parent / "elsewhere")


def _grow(folder: Path, copy: Copy, other: Path, dice: random.Random) -> None:
    """Bytes were inserted: all that follows is in the wrong place."""
    shard = shard_of(folder)
    shard.write_bytes(os.urandom(4096) + shard.read_bytes())


KINDS: dict[str, Damage] = {
    "flip": _flip,
    "zero": _zero,
    "truncate": _truncate,
    "delete shard": _delete_shard,
    "delete object": _delete_object,
    "swap": _swap,
    "link": _link,
    "grow": _grow,
}
