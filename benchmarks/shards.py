"""What it would save to keep the clips of a video in one shard, and what that would cost, for clips of any size.

A clip is an object of its own: a folder, its metadata and a shard, which leaves when the clip was used. Here the clips
that one video gives in a generation, one an epoch, are written both ways by the product's writer, and their blocks are
counted on the disk. A shard that they share would stay until the last of them was used, so what counts in a budget is
bytes times epochs: alone each clip stays 1, 2, … k epochs, together all of them stay k.
"""

import os
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Result, Table, main
from viewcache.store import ArrayMeta, write_object

SIDES = (16, 32, 48, 64, 112, 224)
FRAMES = 8
VIDEOS = 40
"""Written of each size."""


def bench(args: Namespace) -> Iterator[Result]:
    """Every size of clip, alone and together."""
    rows = {}
    with tempfile.TemporaryDirectory(prefix="viewcache-shards-", dir=args.folder) as folder:
        for side in SIDES:
            clip = np.random.default_rng(side).integers(0, 255, (FRAMES, 3, side, side), np.uint8)
            alone = _bytes_of(Path(folder) / f"{side}-alone", [clip] * args.epochs)
            together = _bytes_of(Path(folder) / f"{side}-together", [np.concatenate([clip] * args.epochs)])
            stays = sum(range(1, args.epochs + 1)) / args.epochs / args.epochs
            rows[f"{FRAMES} x {side}²"] = (
                round(clip.nbytes / 1000, 1),
                round(alone / args.epochs / 1000, 1),
                round(together / args.epochs / 1000, 1),
                round(100 * (1 - together / alone), 1),
                round(together / (alone * stays), 2),
            )
    columns = (
        "raw, kB", "alone, kB on disk", "in a shared shard, kB", "saved, % of bytes",
        "bytes x epochs, shared ÷ alone",
    )  # fmt: skip
    yield Table(f"clips of one video in {args.epochs} epochs", columns, rows)


def _bytes_of(folder: Path, arrays: list[np.ndarray]) -> float:
    """Bytes on the disk of what one video takes, folders included; those that all objects share are not."""
    folder.mkdir()
    for _ in range(VIDEOS):
        for array in arrays:
            meta = ArrayMeta(array.shape, (FRAMES, *array.shape[1:]), "raw", {"kind": "clip"})
            write_object(str(folder), os.urandom(16).hex(), array, meta)
    objects = [Path(at) for at, _, files in os.walk(folder) if "zarr.json" in files]
    assert len(objects) == VIDEOS * len(arrays)
    blocks = sum(each.lstat().st_blocks for at in objects for each in (at, *at.rglob("*")))
    return blocks * 512 / VIDEOS


def arguments(parser: ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--epochs", type=int, default=5, help="of a generation (default 5)")
    parser.add_argument("--folder", help="where objects are written (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
