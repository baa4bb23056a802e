"""Objects as another writer of a folder or bucket could forge them: each checksum is right, what they say is not."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from viewcache import store
from viewcache.store.checksum import crc32c

__all__ = ["CRAFTED", "FORGED_ATTRIBUTES", "FORGED_BYTES", "FORGED_TABLES", "SPARSE", "craft"]

Document = dict[str, Any]
Forge = Callable[[Document], object]

SPARSE = 1 << 40
"""Bytes that a file claims to have and that take no room on the disk."""


def _shape(*shape: object, chunk: tuple[object, ...] | None = None) -> Forge:
    def forge(document: Document) -> None:
        document["shape"] = list(shape)
        inner = list(chunk if chunk is not None else (1, *shape[1:]))
        document["codecs"][0]["configuration"]["chunk_shape"] = inner
        document["chunk_grid"]["configuration"]["chunk_shape"] = list(shape)

    return forge


def _attribute(**values: object) -> Forge:
    return lambda document: document["attributes"].update(values)


def _own(**values: object) -> Forge:
    return lambda document: document["attributes"]["viewcache"].update(values)


def _deep(depth: int) -> object:
    value: object = []
    for _ in range(depth):
        value = [value]
    return value


def _table(offset: int, size: int) -> str:
    """A chunk table of the crafted object's four chunks, with their right checksums."""
    crcs = tuple(crc32c(row) for row in _PIXELS)
    return base64.b64encode(store.ChunkTable((offset,) * 4, (size,) * 4, crcs).to_bytes()).decode()


_PIXELS = np.arange(200, dtype=np.uint8).reshape(4, 50)

CRAFTED: dict[str, Forge] = {
    "shape of 2^33 rows": _shape(2**33, 50),
    "shape of 2^62 by 2^62": _shape(2**62, 2**62),
    "as many chunks as are allowed": _shape(2**21, 50),
    "negative shape": _shape(-4, 50),
    "zero shape": _shape(0, 50),
    "shape of texts": _shape("4", "50"),
    "shape of fractions": _shape(4.0, 50.0),
    "shape of booleans": _shape(True, 50),
    "shape of nothing": _shape(None, 50),
    "a thousand dimensions": _shape(*[1] * 1000),
    "a number of 4000 digits": _shape(10**4000, 50),
    "chunk above the shape": _shape(4, 50, chunk=(8, 50)),
    "chunk of another rank": _shape(4, 50, chunk=(1,)),
    "negative chunk": _shape(4, 50, chunk=(-1, 50)),
    "digest below zero": _own(digest="-1"),
    "huge digest": _own(digest="f" * 900),
    "many lists": _attribute(recipe=[[]] * 200_000),
    "attributes are a list": lambda document: document.update(attributes=[]),
    "no codecs": lambda document: document.update(codecs=[]),
}
"""What no store accepts, by what is wrong with ``zarr.json``."""

FORGED_ATTRIBUTES: dict[str, Forge] = {
    "surrogate in kind": _attribute(kind="\ud800"),
    "surrogate in video_key": _attribute(video_key="\udfff"),
    "zero byte in video_key": _attribute(video_key="a\0b"),
    "kind is a list": _attribute(kind=["clip"]),
    "kind of a megabyte": _attribute(kind="x" * (1 << 20)),
    "recipe is a text": _attribute(recipe="resize"),
    "recipe of deep lists": _attribute(recipe=_deep(900)),
    "frames of 2^70": _attribute(frames=[2**70]),
    "frames below zero": _attribute(frames=[-1]),
    "frames are texts": _attribute(frames=["0"]),
    "frames are fractions": _attribute(frames=[0.5, 1e300]),
    "frames are booleans": _attribute(frames=[True]),
    "frames are a number": _attribute(frames=7),
}
"""What a store cannot judge, since the attributes are its caller's."""

FORGED_TABLES: dict[str, Forge] = {
    "table that is none": _own(table="AAAA", write="0" * 16),
    "table that is a number": _own(table=7),
    "table of huge chunks": _own(table=_table(0, 2**61), write="0" * 16),
    "table that points far away": _own(table=_table(2**61, 54), write="0" * 16),
    "table of empty chunks": _own(table=_table(0, 0), write="0" * 16),
}
"""What only a bucket reads: the chunk table in ``zarr.json``."""


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    """Put something else in the place of a file."""
    path.unlink()
    make(path)


def _link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


FORGED_BYTES: dict[str, Callable[[Path, Path], object]] = {
    "zarr.json is a list": lambda text, shard: text.write_text("[]"),
    "zarr.json is empty": lambda text, shard: text.write_bytes(b""),
    "zarr.json is no text": lambda text, shard: text.write_bytes(bytes(range(256)) * 64),
    "zarr.json is nested without end": lambda text, shard: text.write_text("[" * 100_000),
    "zarr.json is a terabyte": lambda text, shard: os.truncate(text, SPARSE),
    "zarr.json is a pipe": lambda text, shard: _replace(text, os.mkfifo),
    "zarr.json is a link": lambda text, shard: _replace(text, _link_to_zeros),
    "the shard is a terabyte": lambda text, shard: os.truncate(shard, SPARSE),
    "the shard is empty": lambda text, shard: os.truncate(shard, 0),
    "the shard is a link": lambda text, shard: _replace(shard, _link_to_zeros),
    "the shard is a folder": lambda text, shard: _replace(shard, Path.mkdir),
    "the index points beyond the end": lambda text, shard: _point(shard, 2**63, 100),
    "the index has huge chunks": lambda text, shard: _point(shard, 0, 2**62),
    "the index has empty chunks": lambda text, shard: _point(shard, 0, 0),
}
"""What only a folder can hold, by what is wrong with its two files."""


def craft(root: Path, key: str, forge: Forge) -> Path:
    """Write an object of four chunks and forge what its ``zarr.json`` says, with the checksum of the forged text.

    Returns:
        The object's folder.
    """
    meta = store.ArrayMeta((4, 50), (1, 50), "raw", {"kind": "clip", "frames": [0, 1, 2, 3], "recipe": []})
    folder = root / store.write_object(root, key, _PIXELS, meta).physical
    document = json.loads((folder / "zarr.json").read_bytes())
    forge(document)
    own = document["attributes"]["viewcache"] if isinstance(document["attributes"], dict) else {}
    own["check"] = "0" * 8
    own["check"] = f"{crc32c(_canonical(document)):08x}"
    (folder / "zarr.json").write_bytes(_canonical(document))
    return folder


def _canonical(document: Document) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _point(shard: Path, offset: int, size: int) -> None:
    """Let a shard of four chunks have an index, with its right checksum, that points somewhere else."""
    body = b"".join(offset.to_bytes(8, "little") + size.to_bytes(8, "little") for _ in range(4))
    data = shard.read_bytes()
    shard.write_bytes(data[: -len(body) - 4] + body + crc32c(body).to_bytes(4, "little"))
