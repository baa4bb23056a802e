"""The questions of docs/catalog.md at a million uses, and what they cost the process that trains beside them.

One task of 32-frame clips, ten a video and epoch (`--samples`), planned as a run plans it, so that 1,000,000 uses are
20,000 videos and clips show 32,000,000 frames. 60 % of the clips have copies, 10 % had one, and the reader is in the
second epoch of the last generation. This process owns the catalog and commits small changes; `viewcache sql` asks from
processes of its own, with a snapshot that must be made first and with a young one.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.harness import ROOT, Aim, Figure, Result, Stopwatch, Table, main
from benchmarks.invented import index_of, plan_of, task_of, videos_of
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.records import (
    CopyRow,
    EventRow,
    IoSampleRow,
    ProgressRow,
    SubstitutionRow,
    TaskRow,
    UsageRow,
    VideoRow,
)
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.digests import record_orders
from viewcache.materializer.planning.needs import frame_needs
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.rows import ids_of, plan_tables

EPOCHS, FRAMES, STRIDE, BATCH, GOP = 5, 32, 2, 8, 150
VIDEO_FRAMES = 300
COPY_BYTES = 4_800_000
BETWEEN_COMMITS_S = 0.02
_ASKED = re.compile(r"^([A-Z][^\n]*\?)\n```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)


def questions() -> dict[str, str]:
    """The page's questions: as it words them, and in SQL."""
    return dict(_ASKED.findall((ROOT / "docs" / "catalog.md").read_text("utf-8")))


def bench(args: Namespace) -> Iterator[Result]:
    """Each question asked in turn, then all of them in a loop beside commits."""
    size = f"at {args.uses * args.generations:.0e} uses, {args.samples} clips of a video in an epoch"
    folders = tempfile.TemporaryDirectory(prefix="viewcache-questions-", dir=args.folder)
    with folders as folder, Catalog.open(folder) as catalog:
        unmade = make(catalog, args.uses, args.generations, args.samples)
        yield Figure(f"snapshot {size}", catalog.publish_snapshot().stat().st_size / 1e6, "MB")
        yield from _asked(folder, args.repeats, size, full=args.uses >= 1_000_000)
        yield from _beside(catalog, folder, unmade, args.seconds)


def _asked(folder: str, repeats: int, size: str, *, full: bool) -> Iterator[Result]:
    columns = ("new snapshot, s", "young snapshot, s", "young snapshot, CPU s")
    rows: dict[str, tuple[float, ...]] = {}
    for question, sql in questions().items():
        taken: list[tuple[float, ...]] = []
        for _ in range(repeats):
            CatalogFiles(Path(folder)).snapshot.unlink(missing_ok=True)
            taken.append((_ask(folder, sql).wall_s, *_wall_and_cpu(_ask(folder, sql))))
        rows[question] = tuple(round(statistics.median(column), 2) for column in zip(*taken, strict=True))
    yield Table(f"questions {size}", columns, rows)
    for column, name in enumerate(columns[:2]):
        slowest = max(taken[column] for taken in rows.values())
        yield Figure(f"slowest question, {name.removesuffix(', s')}", slowest, "s", Aim(at_most=2) if full else None)


def _wall_and_cpu(watch: Stopwatch) -> tuple[float, float]:
    return watch.wall_s, watch.cpu_s


def _ask(folder: str, sql: str) -> Stopwatch:
    """Ask as a person does; the answer must have rows."""
    command = [sys.executable, "-m", "viewcache.api.cli.main", "sql", folder, sql, "--json", "--seconds", "60"]
    with Stopwatch() as watch:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{sql}\n{done.stderr}")
    answer = json.loads(done.stdout)
    assert answer["rows"], sql
    assert answer["source"] == "snapshot"
    return watch


def _beside(catalog: Catalog, folder: str, unmade: NDArray[np.int64], seconds: float) -> Iterator[Result]:
    """How long commits take alone, and while all questions are asked in a loop."""
    half = len(unmade) // 2
    alone = _Commits(catalog, unmade[:half])
    time.sleep(seconds)
    yield from _latencies("commits alone", alone.stop())
    beside, until, asked = _Commits(catalog, unmade[half:]), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for sql in questions().values():
            _ask(folder, sql)
            asked += 1
    yield from _latencies(f"commits beside {asked} questions", beside.stop(), at_most=50)


def _latencies(title: str, taken: list[float], at_most: float | None = None) -> Iterator[Figure]:
    ms = np.array(taken) * 1e3
    yield Figure(f"{title}, p50 of {len(ms):,}", float(np.percentile(ms, 50)), "ms")
    aim = Aim(at_most=at_most) if at_most else None
    yield Figure(f"{title}, p99", float(np.percentile(ms, 99)), "ms", aim)
    yield Figure(f"{title}, longest", float(ms.max()), "ms")


class _Commits:
    """A thread that commits what a run commits while it reads: eight clips that were made, and where the reader is."""

    def __init__(self, catalog: Catalog, unmade: NDArray[np.int64]):
        self._catalog, self._unmade = catalog, unmade
        self._taken: list[float] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="viewcache-bench-commits")
        self._thread.start()

    def _run(self) -> None:
        task_id = self._catalog.load_tasks()[0].task_id
        seq = self._catalog.load_progress(task_id)[0].seq
        batches = cycle(self._unmade[at : at + BATCH] for at in range(0, len(self._unmade), BATCH))
        while not self._enough.wait(BETWEEN_COMMITS_S):
            ids = next(batches)
            begun = time.perf_counter()
            self._catalog.mark_ready(_copies(ids))
            self._catalog.advance(ProgressRow(task_id, 0, 0, seq, seq, 0.3))
            self._catalog.flush()
            self._taken.append(time.perf_counter() - begun)

    def stop(self) -> list[float]:
        """Seconds of each commit."""
        self._enough.set()
        self._thread.join()
        return self._taken


def make(catalog: Catalog, uses: int, generations: int, samples: int) -> NDArray[np.int64]:
    """Fill a catalog as a run does; the ids of clips that were never made."""
    count = uses // (EPOCHS * samples)
    asked = task_of("train", FRAMES, STRIDE, samples=samples, batch=BATCH)
    videos = videos_of(count, frames=VIDEO_FRAMES)
    dataset_id = catalog.register_dataset("/videos")
    named = zip(videos.uris, videos.names, videos.keys, strict=True)
    ids = catalog.upsert_videos(dataset_id, [VideoRow(*each, frames=VIDEO_FRAMES) for each in named])
    assert ids == videos.ids.tolist()
    row = TaskRow("train", dataset_id, "", "", 1000, BATCH, samples, FRAMES, STRIDE, 0)
    task_id = catalog.ensure_task(row).task_id
    images = catalog.ensure_task(replace(row, name="images")).task_id
    record_orders(catalog, "images", images, 0, range(EPOCHS), videos.ids)
    clips = np.array([], np.int64)
    for number in range(generations):
        plan = plan_of(asked, videos, epochs=EPOCHS, number=number)
        clips = _record(catalog, plan, task_id)
    shuffled = np.random.default_rng(0).permutation(np.unique(clips))
    made, unmade = np.split(shuffled, [int(0.7 * len(shuffled))])
    for start in range(0, len(made), 20_000):
        catalog.mark_ready(_copies(made[start : start + 20_000]))
        catalog.flush()
    gone = dict.fromkeys(made[: len(made) // 7].tolist(), "not needed soon")
    catalog.mark_evicted(gone, "demand", tier="local")
    epoch = (generations - 1) * EPOCHS + 1
    per_epoch = -(-count // BATCH)
    catalog.advance(ProgressRow(task_id, 0, epoch, per_epoch // 2, epoch * per_epoch + per_epoch // 2, 0.3))
    catalog.add_events([EventRow(kind, task_id, count=9, seconds=0.5) for kind in ("hit", "miss", "stall")])
    catalog.add_io_samples([IoSampleRow("decode", 10, "raw", "local", 3, 0.5, 3000)])
    catalog.add_usage([UsageRow("worker", "decode", 0.5, 0.5, 2.5, "estimate", 0.0)])
    catalog.add_substitutions([SubstitutionRow(task_id, 0, 1, -1, ids[1], "replace", "torn", ids[0])])
    catalog.flush()
    return np.asarray(unmade)


def _record(catalog: Catalog, plan: GenerationPlan, task_id: int) -> NDArray[np.int64]:
    """Record a generation with its draws; the clip of each use."""
    index = index_of(VIDEO_FRAMES, GOP)
    needs = frame_needs(plan, lambda _: index)
    keys = needs.keys(plan.videos.keys)
    clips, known = ids_of(catalog, plan.keys)
    frames, frames_known = ids_of(catalog, keys)
    tables = plan_tables(plan, needs, keys, clips, known, frames, frames_known, task_id=task_id, cost=CostModel())
    catalog.record_plan(tables)
    first = np.flatnonzero(plan.sample == 0)
    draws = {
        "task_id": np.full(len(first), task_id),
        "epoch": plan.epoch[first].astype(np.int32),
        "position": plan.position[first].astype(np.int32),
        "video_id": plan.videos.ids[plan.video[first]],
    }
    catalog.record_draws(pa.table(draws))
    return clips


def _copies(ids: NDArray[np.int64]) -> list[CopyRow]:
    physical, table = "objects/ab/" + "0" * 32, b"t" * 200
    return [CopyRow(i, "local", physical, COPY_BYTES, "raw", 1, table, 1, i, 0) for i in ids.tolist()]


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--uses", type=int, default=1_000_000, help="of one generation (default 1,000,000)")
    parser.add_argument("--generations", type=int, default=1, help="generations recorded in all (default 1)")
    parser.add_argument("--samples", type=int, default=10, help="clips of one video in one epoch (default 10)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of commits alone, and beside (default 60)")
    parser.add_argument("--folder", help="where the catalog is made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
