"""The memory tier against the page cache: reads of the same batch and clips, and what it costs to bring a clip up.

A batch is 8 clips of 32 frames of 3 x 224 x 224 (38.5 MB). Both tiers check every chunk's crc32c; np.load and a plain
copy in memory check nothing. What the page cache cannot promise, that the bytes are still there, is not measured here.
"""

import os
import shutil
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Aim, Result, compare, main
from viewcache import store
from viewcache.store.passing import PassingMemory

Bytes = NDArray[np.uint8]
CLIP = (32, 3, 224, 224)
CLIPS = 8
MANY = 64  # clip objects, 308 MB: more than any CPU's cache


def bench(args: Namespace) -> Iterator[Result]:
    """Reads and copies, each from an owner's side and from that of an attached process."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-memory-", dir=args.dir))
    memory = store.MemoryTier(1 << 30)
    passing, other = PassingMemory(1 << 30), PassingMemory(1 << 30)
    local = store.LocalTier(folder / "store", 1 << 40)
    try:
        yield from _batch(folder, local, memory, args)
        yield from _clips(local, memory, args)
        yield from _passing(local, passing, other, args)
    finally:
        memory.close()
        passing.close()
        other.close()
        shutil.rmtree(folder)


def _batch(folder: Path, local: store.Tier, memory: store.MemoryTier, args: Namespace) -> Iterator[Result]:
    batch = np.random.default_rng(0).integers(0, 256, (CLIPS, *CLIP), np.uint8)
    np.save(folder / "batch.npy", batch)
    out = store.aligned_empty(batch.shape)
    disk, ram = (_put(tier, batch, 1) for tier in (local, memory))
    with memory.handle.attach() as attached:
        rivals: dict[str, Callable[[], object]] = {
            "np.load": partial(np.load, folder / "batch.npy"),
            "a copy in memory": partial(np.copyto, out, batch),
            "local tier": partial(local.read, disk, out),
            "memory tier": partial(memory.read, ram, out),
            "memory tier, attached": partial(attached.read, ram, out),
        }
        for name in list(rivals)[2:]:
            out[:] = 0
            rivals[name]()
            assert np.array_equal(out, batch)
        yield compare("batch of 38.5 MB", rivals, baseline="local tier", args=args, calls=3)


def _clips(local: store.Tier, memory: store.Tier, args: Namespace) -> Iterator[Result]:
    rng = np.random.default_rng(1)
    clips = [rng.integers(0, 256, CLIP, np.uint8) for _ in range(CLIPS)]
    out = store.aligned_empty(CLIP)
    turns = {
        tier: cycle([_put(tier, clips[number % CLIPS], CLIP[0]) for number in range(MANY)]) for tier in (local, memory)
    }
    reads: dict[str, Callable[[], object]] = {
        f"{tier.name} tier": partial(_read_next, tier, turn, out) for tier, turn in turns.items()
    }
    yield compare(f"clip of 4.8 MB, {MANY} in turn", reads, baseline="local tier", args=args, calls=MANY)
    writes: dict[str, Callable[[], object]] = {
        "local to memory": partial(_copied, local, turns[local], memory),
        "memory to local": partial(_copied, memory, turns[memory], local),
        "written to local": partial(_written, clips[0], local),
        "written to memory": partial(_written, clips[0], memory),
    }
    yield compare("clip of 4.8 MB, copied and deleted again", writes, baseline="written to local", args=args, calls=8)


def _passing(local: store.Tier, passing: PassingMemory, other: PassingMemory, args: Namespace) -> Iterator[Result]:
    """A clip from its worker to its one reader: what worker and owner do, the copy, and the end of it."""
    clip = np.random.default_rng(2).integers(0, 256, CLIP, np.uint8)
    out = store.aligned_empty(CLIP)
    ways: dict[str, Callable[[], object]] = {
        "through the folder": partial(_through_folder, clip, local, out),
        "through memory": partial(_through_memory, clip, passing, out, reuse=True),
        "through memory, each time a new place": partial(_through_memory, clip, other, out, reuse=False),
    }
    for way in ways.values():
        out[:] = 0
        way()
        assert np.array_equal(out, clip)
    aims = [Aim("through memory", at_most=0.6)]
    yield compare(
        "clip of 4.8 MB, written, read once and gone",
        ways,
        baseline="through the folder",
        args=args,
        calls=16,
        aims=aims,
    )


def _through_folder(clip: Bytes, tier: store.Tier, out: Bytes) -> None:
    stored = _put(tier, clip, len(clip))
    tier.read(stored, out)
    tier.delete(stored.physical)


def _through_memory(clip: Bytes, passing: PassingMemory, out: Bytes, *, reuse: bool) -> None:
    meta = store.ArrayMeta(clip.shape, clip.shape, "raw")
    key = os.urandom(16).hex()
    passage = passing.claim(store.bound_bytes(meta, key))
    assert passage is not None
    written = passage.place.write(passing.handle, key, clip, meta)
    passage.arrived(written.physical)
    table = store.ChunkTable.from_bytes(written.table)
    stored = store.Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)
    passing.read(stored, out)
    passing.delete(stored)
    if not reuse:
        passing.trim()


def _read_next(tier: store.Tier, objects: Iterator[store.Stored], out: Bytes) -> None:
    tier.read(next(objects), out)


def _copied(source: store.Tier, objects: Iterator[store.Stored], target: store.Tier) -> None:
    target.delete(store.copy_object(source, next(objects), target, "raw", os.urandom(16).hex()).physical)


def _written(clip: Bytes, tier: store.Tier) -> None:
    tier.delete(_put(tier, clip, len(clip)).physical)


def _put(tier: store.Tier, array: Bytes, rows: int) -> store.Stored:
    meta = store.ArrayMeta(array.shape, (rows, *array.shape[1:]), "raw")
    written = tier.write(os.urandom(16).hex(), array, meta)
    table = store.ChunkTable.from_bytes(written.table)
    return store.Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, help="folder on the disk to measure; default: the system's temporary one")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
