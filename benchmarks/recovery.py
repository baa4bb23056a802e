"""What the start after an unclean end takes of a store of many objects: until it is open, and until it is recovered.

The objects are made up: folders of their own with hard links of a few files, and rows in the catalog; a few have no
row, and a few rows have no object. Each size is opened in a process of its own, whose peak memory is the owner's.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import viewcache
from benchmarks.harness import ROOT, Aim, Figure, Result, Table, main
from benchmarks.scale import make_clips
from viewcache.api.session import owner, storage
from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import CLEAN, CopyRow
from viewcache.store import ArrayMeta, LocalTier, Written, physical_of

LINKS = 30_000
"""Names that one file is given; ext4 allows 65,000."""
ODD = 200
"""Objects without a row, and rows without an object."""
BATCH = 20_000


def bench(args: Namespace) -> Iterator[Result]:
    """Every size."""
    rows: dict[str, tuple[float, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="viewcache-recovery-", dir=args.folder) as folder:
        make_clips(Path(folder) / "videos", 8, 50)
        for count in args.objects:
            at = Path(folder) / str(count)
            _invent(at, count)
            command = [sys.executable, "-m", "benchmarks.recovery", "--one", str(at)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            rows[f"{count:,}"] = tuple(round(each, 2) for each in found.values())
            yield Figure(f"{count:,} objects: recovered", found["done_s"], "s", Aim(at_most=30))
    yield Table("the start after an unclean end", tuple(name.replace("_s", ", s") for name in found), rows)


def _invent(folder: Path, count: int) -> None:
    """A closed cache that did not end cleanly, with so many objects beside what its task will make."""
    with viewcache.open(_config(folder)):
        pass
    tier = LocalTier(folder / "cache", 1 << 50)
    rng = np.random.default_rng(count)
    keys = [row.tobytes().hex() for row in rng.integers(0, 256, (count + ODD, 16), np.uint8)]
    meta = ArrayMeta((8, 3, 16, 16), (8, 3, 16, 16), "raw", {"kind": "clip", "frames": list(range(8))})
    pixels = np.zeros(meta.shape, np.uint8)
    with Catalog.open(folder / "cache") as catalog:
        for first in range(0, count, BATCH):
            mine = keys[first : min(first + BATCH, count)]
            if first % LINKS < BATCH:  # a file of which not too many names are there yet
                original = tier.write(keys[-1 - first // BATCH], pixels, meta)
                tier_place = Path(tier.root, original.physical)
            for key in mine[: len(mine) if first else len(mine) - ODD]:
                place = Path(tier.root, physical_of(key))
                place.mkdir(parents=True, mode=0o700)
                for name in ("zarr.json", meta.shard_name):
                    os.link(tier_place / name, place / name)
            _record(catalog, mine, original)
        for key in keys[count : count + ODD // 2]:
            tier.write(key, pixels, meta)
        catalog.set_setting(CLEAN, "no")


def _record(catalog: Catalog, keys: list[str], like: Written) -> None:
    first = catalog.next_object_id(len(keys))
    shape = "x".join(map(str, like.shape))
    columns: dict[str, Any] = {
        "object_id": range(first, first + len(keys)),
        "key": keys,
        "kind": ["clip"] * len(keys),
        "video_key": [""] * len(keys),
        "depth": [0] * len(keys),
        "est_bytes": [like.raw_bytes] * len(keys),
        "cost_s": [0.01] * len(keys),
        "shape": [shape] * len(keys),
        "frame_list": [list(range(8))] * len(keys),
    }
    catalog.adopt_objects(pa.Table.from_pydict(columns, schema=schemas.FOUND))
    catalog.mark_ready(
        [
            CopyRow(first + k, "local", physical_of(key), like.bytes, like.codec, like.chunk_rows, like.table, like.crc)
            for k, key in enumerate(keys)
        ]
    )
    catalog.flush()


def measure(folder: Path) -> dict[str, float]:
    """Open the cache, read a batch, wait for the end of its recovery, and say what that took."""
    spent = {"catalog": 0.0, "storage": 0.0}

    def timed(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - begun

        return call

    Catalog.open = timed("catalog", Catalog.open)  # type: ignore[method-assign]  # this process does nothing else
    owner.open_storage = timed("storage", storage.open_storage)  # type: ignore[attr-defined]  # it is imported there
    begun, before = time.perf_counter(), time.process_time()
    with viewcache.open(_config(folder)) as cache:
        opened = time.perf_counter()
        cache.owner.recovery.wait()
        done, cpu = time.perf_counter(), time.process_time() - before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cache.read("t", 0, 0)
        first = time.perf_counter()
    return {
        "catalog_s": spent["catalog"],
        "storage_s": spent["storage"],
        "open_s": opened - begun,
        "done_s": done - begun,
        "batch_s": first - begun,
        "cpu_s": cpu,
        "peak_mb": peak,
    }


def _config(folder: Path) -> dict[str, Any]:
    step = {"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": [{"resize": {"shape": [16, 16]}}]}
    return {
        "cache": {"store": str(folder / "cache"), "budget": "900GB", "memory": "1GB", "workers": 1},
        "dataset": {
            "tag": "t",
            "video_dataset_path": str(folder.parent / "videos"),
            "epochs": 1,
            "sampling": {"videos_per_batch": 8, "frames_per_video": 8, "frame_stride": 2},
            "augmentation": [step],
        },
    }


def arguments(parser: ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--objects", type=int, nargs="+", default=[20_000, 100_000], help="objects in the store")
    parser.add_argument("--folder", help="where stores are made (default: the folder for temporary files)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(Path(sys.argv[2]))))
    else:
        main(__doc__, bench, arguments)
