"""A disk whose power can be cut, and a process that writes to it: for `test_power`.

The disk is a file that is mounted as ext4 or xfs. ``xfs_io shutdown`` stops the file system as it is, without flushing:
what was not flushed before is gone, as after a power cut on a device without a cache of its own.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.catalog.samples import registered
from tests.scheduling.harness import until
from viewcache.catalog import Catalog, schemas
from viewcache.materializer.storage.found import copy_row
from viewcache.materializer.storage.ledger import Ledger
from viewcache.materializer.storage.recover import recover
from viewcache.store import ArrayMeta, LocalTier, write_object
from viewcache.store.format import physical_of

__all__ = ["Disk", "content", "key_of", "opened", "recovering", "run", "writing"]

SHAPE = (2, 40, 50)
DRAWN = 4
"""Videos of an epoch."""


@dataclass(frozen=True)
class Disk:
    """A file system in a file."""

    image: Path
    mount: Path
    kind: str
    """``ext4`` or ``xfs``."""

    @classmethod
    def make(cls, folder: Path, kind: str) -> "Disk":
        """Format it; xfs takes 300 MB at least, of which the file has few."""
        image, mount = folder / f"{kind}.img", folder / kind
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(320 << 20)
        run(f"mkfs.{kind}", "-q", "-F" if kind == "ext4" else "-f", str(image))
        return cls(image, mount, kind)

    @property
    def store(self) -> Path:
        """Where the cache lies on it."""
        return self.mount / "cache"

    @contextmanager
    def on(self) -> Iterator[None]:
        """Power is on."""
        run("mount", "-o", "loop", str(self.image), str(self.mount))
        try:
            yield
        finally:
            until(self._is_off, "the disk to be let go")

    def cut(self) -> None:
        """The power is cut; who has files open gets errors."""
        run("xfs_io", "-x", "-c", "shutdown", str(self.mount))

    def _is_off(self) -> bool:
        return subprocess.run(["umount", str(self.mount)], capture_output=True, check=False).returncode == 0


def run(*command: str) -> None:
    """A command that must succeed."""
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def key_of(number: int) -> str:
    """Content key of an object."""
    return f"{number:032x}"


def content(number: int) -> NDArray[np.uint8]:
    """What the object of this number shows."""
    return np.random.default_rng(number).integers(0, 256, SHAPE, dtype=np.uint8)


@contextmanager
def opened(store: Path) -> Iterator[tuple[Catalog, LocalTier, Ledger]]:
    """A cache as a run opens it, after an end that was not clean."""
    tier = LocalTier(store, 10**9)
    with Catalog.open(store) as catalog:
        ledger = Ledger(catalog)
        recover(catalog, tier, ledger, clean=False)
        yield catalog, tier, ledger


def writing(store: Path, first: int, durable: bool, said: Connection) -> None:
    """Draw, make objects and say what the catalog has acknowledged, until the disk is gone."""
    with opened(store) as (catalog, tier, _):
        task, videos = registered(catalog, DRAWN)
        for number in range(first, first + 10_000):
            array = content(number)
            meta = ArrayMeta(SHAPE, (1, *SHAPE[1:]), "raw", {"kind": "clip", "video": "v", "video_key": "0" * 32})
            write_object(store, key_of(number), array, meta, durable=durable)
            object_id = catalog.next_object_id(1)
            catalog.record_objects(_row(object_id, number))
            catalog.record_draws(_order(task.task_id, number, videos))
            catalog.mark_ready([copy_row(object_id, "local", tier.scan(physical_of(key_of(number))))])
            catalog.flush()
            said.send(number)


def recovering(store: Path, said: Connection) -> None:
    """Open the cache again and again."""
    said.send(os.getpid())
    while True:
        with opened(store):
            pass


def _order(task_id: int, epoch: int, videos: list[int]) -> pa.Table:
    turned = np.roll(videos, epoch).tolist()
    columns = {"task_id": [task_id] * DRAWN, "epoch": [epoch] * DRAWN, "position": range(DRAWN), "video_id": turned}
    return pa.table({name: pa.array(values) for name, values in columns.items()}).cast(schemas.DRAW)


def _row(object_id: int, number: int) -> pa.Table:
    row = {
        "object_id": object_id,
        "key": key_of(number),
        "kind": "clip",
        "video_id": 1,
        "depth": 1,
        "est_bytes": 1,
        "cost_s": 0.0,
        "keep": True,
        "shape": "x".join(map(str, SHAPE)),
        "frame_list": [1],
    }
    return pa.Table.from_pylist([row], schemas.OBJECT)
