"""What the journal costs: bytes per draw, and milliseconds per decision (docs/design/0018-rebuilding-the-catalog.md).

A task of many videos is drawn an epoch at a time; then 32 positions at a time are settled, as tasks that draw together
do. The same with and without a journal, one after the other on the same disk.
"""

import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import Figure, Result, main
from viewcache.catalog import Catalog, schemas
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.records import TaskRow, VideoRow

STEP = 32
"""Positions that are settled at a time."""


def bench(args: Namespace) -> Iterator[Result]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="vc-bench-", dir=args.folder) as folder:
        whole, settling, opening = _measure(Path(folder) / "with", args, journal=True)
        without = _measure(Path(folder) / "without", args, journal=False)
        draws = args.videos * args.epochs
        lines = CatalogFiles(Path(folder) / "with").journal.read_bytes().splitlines(keepends=True)
        size = sum(len(line) for line in lines if b"_draws" in line)
        yield Figure("journal, bytes per draw, each drawn and then moved once", size / draws, "B")
    for title, samples in (("draw an epoch", whole), ("settle 32 positions", settling), ("open", opening)):
        yield Figure(f"{title}, with a journal", statistics.median(samples), "ms", None, tuple(samples))
    for title, samples in (("draw an epoch", without[0]), ("settle 32 positions", without[1]), ("open", without[2])):
        yield Figure(f"{title}, without", statistics.median(samples), "ms", None, tuple(samples))


def _measure(folder: Path, args: Namespace, *, journal: bool) -> tuple[list[float], list[float], list[float]]:
    random = np.random.default_rng(args.seed)
    epochs: list[float] = []
    settling: list[float] = []
    catalog = Catalog.open(folder)
    if not journal:
        catalog._writer._journal = None  # type: ignore[union-attr]  # there is no way to ask for this, on purpose
    dataset = catalog.register_dataset("/videos")
    videos = [VideoRow(f"/videos/{k:06}.mp4", f"{k:06}", f"{k:032x}") for k in range(args.videos)]
    ids = np.array(catalog.upsert_videos(dataset, videos))
    task = catalog.ensure_task(TaskRow("t", dataset, "k", "text", args.epochs, 8, 1, 8, 2, 7))
    for epoch in range(args.epochs):
        order = random.permutation(ids)
        epochs.append(_ms(catalog.record_draws, _draws(task.task_id, epoch, order), _settled(task.task_id, epoch, 0)))
        for first in range(0, len(order), STEP):
            part = _draws(task.task_id, epoch, order[first : first + STEP], first)
            upto = _settled(task.task_id, epoch, first + STEP)
            settling.append(_ms(catalog.settle_draws, part, schemas.empty(schemas.MOVE), upto))
    catalog.close()
    opening = [_ms(lambda: Catalog.open(folder).close()) for _ in range(3)]
    return epochs, settling, opening


def _ms(work: object, *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)  # type: ignore[operator]
    return 1000 * (time.perf_counter() - start)


def _draws(task_id: int, epoch: int, order: np.ndarray, first: int = 0) -> pa.Table:
    count = len(order)
    columns = [[task_id] * count, [epoch] * count, range(first, first + count), order]
    return pa.table(dict(zip(schemas.DRAW.names, map(pa.array, columns), strict=True))).cast(schemas.DRAW)


def _settled(task_id: int, epoch: int, positions: int) -> pa.Table:
    return pa.table({"task_id": [task_id], "epoch": [epoch], "positions": [positions]}).cast(schemas.SETTLED)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--videos", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", help="on which disk (default: the system's temporary folder)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
