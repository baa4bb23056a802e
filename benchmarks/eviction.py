"""Eviction policies: misses by policy and budget, with the shipped SQL, on drawn and recorded orders and in real runs.

The first two parts count misses of a model cache, so their figures are the same on every machine: JOADER's order of
four jobs, and five jobs of different pace that draw ahead. The third part trains
two tasks over real clips with each policy in turn; the fourth replays the order of videos that those have recorded.
"""

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.cache_model import Cache, Known
from benchmarks.harness import ROOT, Aim, Figure, Result, main
from benchmarks.orders import PACES, count, dependent
from viewcache.catalog import QueryLimits, run_query
from viewcache.catalog.eviction import CANDIDATES, cut
from viewcache.catalog.statements import load_policy, policy_names

AHEAD = 16
"""Elements that each job has drawn ahead."""

FAR_S = 1e12
"""The need of what nobody has drawn."""


class SqlCache(Cache):
    """The model's cache, with a shipped policy's own SQL; like the dispatcher it gives up a twentieth at a time."""

    def __init__(self, slots: int, policy: str, known: Known) -> None:
        """Start empty."""
        super().__init__(slots, "lru", known)
        self._text = load_policy(policy, "duckdb").text
        self._database = duckdb.connect(":memory:")
        self._size = slots
        self._held: set[int] = set()

    def access(self, element: int) -> None:
        """Use an element; its reference counts as past already."""
        self._now += 1
        self._known.used[element] = self._now
        if element in self._held:
            return
        self.misses += 1
        if len(self._held) >= self._size:
            self._held.difference_update(self._victims())
        self._held.add(element)
        self._known.entered[element] = self._now

    def _victims(self) -> list[int]:
        inside, known = np.array(sorted(self._held)), self._known
        need = known.need[inside]
        drawn = np.isfinite(need)
        refs = np.maximum(known.references[inside], drawn)
        count = len(inside)
        columns = {
            "object_id": inside,
            "bytes": np.ones(count, np.int64),
            "refs": refs,
            "drawn_refs": drawn.astype(np.int64),
            "next_need_s": pa.array(np.where(drawn, need, FAR_S), mask=refs == 0),
            "created_tick": known.entered[inside].astype(np.int64),
            "access_tick": known.used[inside].astype(np.int64),
            "cost_s": np.ones(count),
            "load_s": np.zeros(count),
        }
        fields = [field for field in CANDIDATES if field.name in columns]
        self._database.register("candidates", pa.table(columns).cast(pa.schema(fields)))
        rows = self._database.execute(self._text).to_arrow_table()
        gone: list[int] = cut([rows], max(1, self._size // 20))["object_id"].to_pylist()
        return gone


def replay(trace: Sequence[int], slots: int, policy: str, ahead: int) -> int:
    """Misses of a trace of which the uses to come are counted and the next ``ahead`` accesses known."""
    places = np.array(trace, np.int64)
    known = Known(int(places.max()) + 1)
    np.add.at(known.references, places, 1)
    following = _next_uses(places)
    cache = SqlCache(slots, policy, known)
    for at in range(min(ahead, len(places)) - 1, -1, -1):
        known.need[places[at]] = at
    for now, element in enumerate(places.tolist()):
        known.references[element] -= 1
        later = following[now]
        known.need[element] = later if later < now + ahead else np.inf
        entering = now + ahead
        if entering < len(places):
            known.need[places[entering]] = min(known.need[places[entering]], entering)
        cache.access(element)
    return cache.misses


def _next_uses(places: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each access the place of the next one of its element; infinite if there is none."""
    following, last = np.full(len(places), np.inf), dict[int, int]()
    for at in range(len(places) - 1, -1, -1):
        following[at] = last.get(int(places[at]), np.inf)
        last[int(places[at])] = at
    return following


def bench(args: Namespace) -> Iterator[Result]:
    """Model first, then real runs."""
    size = args.elements
    random = np.random.default_rng(args.seed)
    sets = [np.sort(random.choice(size * 4 // 3, size, replace=False)) for _ in range(4)]
    yield from _replayed("4 jobs, random 3/4 of a dataset", dependent(sets, args.seed), args)
    jobs = [(0, pace) for pace in PACES["5 jobs at 1 : 0.7 : 0.5 : 0.35 : 0.25"]]
    for share in args.shares:
        slots = max(1, size // 5 * share // 100)
        counts = {
            name: count(
                size // 5,
                jobs,
                slots,
                name,
                args.seed,
                ahead=AHEAD,
                cache_of=lambda known, name=name, slots=slots: SqlCache(slots, name, known),  # type: ignore[misc]
            )
            for name in args.policies
        }
        yield _figure(f"5 jobs of different pace, {AHEAD} drawn ahead, budget {share} %", counts, "fetches")
    yield from _real(args)


def _replayed(title: str, trace: Sequence[int], args: Namespace) -> Iterator[Figure]:
    elements = len(set(trace))
    for share in args.shares:
        slots = max(1, elements * share // 100)
        counts = {name: replay(trace, slots, name, AHEAD) for name in args.policies}
        yield _figure(f"{title}, budget {share} %", counts, f"misses of {len(trace)} accesses, minimum {elements}")


def _figure(title: str, counts: dict[str, int], unit: str) -> Figure:
    others = ", ".join(f"{name} {each}" for name, each in counts.items() if name != "demand")
    return Figure(f"{title}, demand", counts["demand"], f"{unit}; {others}", Aim(at_most=min(counts.values())))


def _real(args: Namespace) -> Iterator[Result]:
    """Two tasks that take turns over real clips, with each policy; then the order that they have recorded."""
    trace: list[int] = []
    for share in args.shares:
        made: dict[str, int] = {}
        told: list[str] = []
        for name in args.policies:
            with tempfile.TemporaryDirectory(prefix="viewcache-eviction-", dir=args.dir) as folder:
                run = _train(args, folder, name, share)
            made[name] = run["misses"]
            told.append(f"{name}: {run['decoded']} frames decoded, {run['evicted']} evicted")
            trace = run["trace"]
        yield _figure(f"real clips, budget {share} %", made, f"clips that were waited for; {'; '.join(told)}")
    yield from _replayed("the recorded order of videos", trace, args)


def _train(args: Namespace, folder: str, policy: str, share: int) -> dict[str, Any]:
    import viewcache

    def dataset(tag: str, stride: int) -> dict[str, Any]:
        steps = [{"resize": {"short_side": args.side}}, {"random_crop": {"shape": [args.side, args.side]}}]
        return {
            "tag": tag,
            "video_dataset_path": str(args.videos),
            "epochs": args.epochs,
            "sampling": {"videos_per_batch": 2, "frames_per_video": args.frames, "frame_stride": stride},
            "augmentation": [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": steps}],
        }

    videos = sum(1 for path in Path(args.videos).iterdir() if path.suffix == ".mp4")
    clip = args.frames * 3 * args.side**2
    whole = 2 * args.epochs * videos * (clip + 4096)
    cache = {
        "store": folder,
        "budget": max(whole * share // 100, 6 * (clip + 8192)),
        "epochs_per_generation": args.epochs,
        "seed": args.seed,
        "workers": 1,
        "eviction": {"policy": policy},
    }
    tasks = [dataset("wide", 2), dataset("narrow", 1)]
    with viewcache.open({"cache": cache, "dataset": tasks}) as opened:
        for epoch in range(args.epochs):
            for iteration in range(-(-videos // 2)):
                for task in opened.tasks:
                    opened.read(task, epoch, iteration)
        assert opened.owner.dispatcher is not None
        misses, decoded = (
            sum(opened.task(task).spent.misses for task in opened.tasks),
            opened.owner.dispatcher.tally.frames["decoded"],
        )
    # No clip is read twice, their crops are random: what comes again is the video, so that is what a replay keeps.
    order = "select video_id from uses join objects using (object_id) order by seq, task_id, position, sample"
    evicted = run_query(folder, "select count(*) as n from evictions where reason = 'evict'").table()["n"][0].as_py()
    trace = run_query(folder, order, QueryLimits(rows=10**6)).table()["video_id"].to_pylist()
    return {"misses": misses, "decoded": decoded, "evicted": evicted, "trace": trace}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--elements", type=int, default=2000, help="of a job's data set in the model (default 2000)")
    parser.add_argument(
        "--policies", nargs="+", default=policy_names(), help="which, demand among them (default: all that are shipped)"
    )
    parser.add_argument(
        "--shares", nargs="+", type=int, default=(10, 30, 60), help="budgets in percent of all (default 10 30 60)"
    )
    parser.add_argument("--videos", type=Path, default=ROOT.parent / "shared" / "videos" / "train", help="the clips")
    parser.add_argument("--epochs", type=int, default=4, help="of each task in the real runs (default 4)")
    parser.add_argument("--frames", type=int, default=16, help="of a clip in the real runs (default 16)")
    parser.add_argument("--side", type=int, default=112, help="of a clip's square in pixels (default 112)")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
