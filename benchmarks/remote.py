"""Bytes fetched from a remote dataset over E epochs: viewcache against opening each video for each clip (SAND Fig. 14).

The dataset lies in a real S3 server on this machine; a proxy counts what leaves it. A byte is a byte on any network,
so these figures are counts, not times. The rival reads as tutorials do, by PyAV over fsspec's file; it is charged what
it asks for, its read-ahead included. Beside the bytes stands what the cache's folder holds for them.
"""

import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import av
import fsspec
import numpy as np

import viewcache
from benchmarks.harness import ROOT, Aim, Figure, Result, clips_in, main
from benchmarks.rivals import _disk_bytes
from tests.servers.fault_proxy import FaultProxy, proxied
from tests.servers.seaweed import connected, make_bucket, serve

BUCKET = "dataset"
FRAMES, STRIDE = 16, 2
KINDS = "select kind, sum(bytes) as bytes from objects where state = 'ready' group by kind order by kind"


def bench(args: Namespace) -> Iterator[Result]:
    """On demand, then viewcache with more and more epochs planned at once."""
    clips = clips_in(args.videos)
    clips, epochs = (clips[:2], 2) if args.quick else (clips, args.epochs)
    generations = sorted({min(k, epochs) for k in args.generations or (1, 5, epochs // 2, epochs)} - {0})
    whole = sum(path.stat().st_size for path in clips)
    with tempfile.TemporaryDirectory(dir=args.dir) as folder, serve(Path(folder)) as server:
        make_bucket(server, BUCKET)
        with connected(server) as client:
            for path in clips:
                client.put_object(Bucket=BUCKET, Key=f"videos/{path.name}", Body=path.read_bytes())
        with proxied(server.host, server.port) as proxy, patch.dict(os.environ, server.environment(proxy.endpoint)):
            measured = min(epochs, args.rival_epochs)
            rival = _on_demand(proxy, [path.name for path in clips], measured, args.seed) * epochs // measured
            scaled = "" if measured == epochs else f", {measured} measured and scaled linearly"
            yield Figure(f"on demand ÷ the dataset's bytes, {epochs} epochs", rival / whole, f"x{scaled}")
            for generation in generations:
                where = f"{epochs} epochs, {generation} of them a generation"
                fetched = _cached(proxy, Path(folder) / f"cache-{generation}", epochs, generation)
                print(f"k = {generation}: {fetched}, on demand {rival} bytes", file=sys.stderr)
                yield from _figures(fetched, where, whole, rival, epochs, planned_at_once=generation == epochs)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes that one run of ours fetched and kept."""

    scan: int
    """While the cache was opened, once for ever."""
    loop: int
    """In all epochs, and while the cache was closed."""
    most: int
    """On disk, the most at the end of an epoch, in blocks of the file system; the catalog is in it."""
    last: int
    """The same at the end of the last one."""
    kinds: dict[str, int]
    """Kind of object → bytes that its copies take at the end."""


def _figures(
    fetched: Fetched, where: str, whole: int, rival: int, epochs: int, planned_at_once: bool
) -> Iterator[Result]:
    aim = Aim(at_most=1 / epochs) if planned_at_once else None
    every = fetched.scan + fetched.loop
    yield Figure(f"viewcache ÷ each video in each epoch, {where}", fetched.loop / whole / epochs, "x", aim)
    yield Figure(f"viewcache ÷ on demand, {where}", fetched.loop / rival, "x")
    once = Aim(at_most=1.05 / epochs)
    yield Figure(f"the same with the first scan, {where}", every / rival, f"x, {every / 1e6:.1f} MB", once)
    yield Figure(f"each video is fetched so many times in all, {where}", every / whole, "x")
    yield Figure(f"disk at the end of an epoch, most, {where}", fetched.most / 1e6, "MB")
    kinds = ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in fetched.kinds.items()) or "no objects"
    yield Figure(f"disk at the end of the last epoch, {where}", fetched.last / 1e6, f"MB ({kinds})")


def _on_demand(proxy: FaultProxy, names: list[str], epochs: int, seed: int) -> int:
    """Bytes for one clip of each video in each epoch, the video opened anew each time."""
    rng, before = np.random.default_rng(seed), proxy.object_bytes
    for _ in range(epochs):
        for name in names:
            with fsspec.open(f"s3://{BUCKET}/videos/{name}") as file, av.open(file) as container:
                stream = container.streams.video[0]
                frames = stream.frames or round(float((stream.duration or 0) * (stream.time_base or 0)) * 25)
                assert stream.time_base is not None
                start = int(rng.integers(0, max(1, frames - FRAMES * STRIDE)))
                first = round(start / float(stream.average_rate or 25) / stream.time_base) + (stream.start_time or 0)
                container.seek(first, stream=stream)
                taken = 0
                for frame in container.decode(stream):
                    taken += frame.pts is None or frame.pts >= first
                    if taken >= FRAMES * STRIDE:
                        break
    return proxy.object_bytes - before


def _cached(proxy: FaultProxy, folder: Path, epochs: int, generation: int) -> Fetched:
    """Bytes for opening the dataset and for all epochs out of a cache with room for all, and what its folder holds."""
    before, disk = proxy.object_bytes, list[int]()
    steps = [{"resize": {"short_side": 128}}, {"random_crop": {"shape": [112, 112]}}]
    described = {
        "cache": {"store": str(folder), "budget": "4GB", "epochs_per_generation": generation},
        "dataset": {
            "tag": "train",
            "video_dataset_path": f"s3://{BUCKET}/videos",
            "epochs": epochs,
            "sampling": {"videos_per_batch": 2, "frames_per_video": FRAMES, "frame_stride": STRIDE},
            "augmentation": [
                {"name": "a", "branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": steps}
            ],
        },
    }
    with viewcache.open(described) as cache:
        opened = proxy.object_bytes
        for epoch in range(epochs):
            for iteration in range(cache.task("train").iterations(epoch)):
                cache.read("train", epoch, iteration)
            disk.append(_disk_bytes(str(folder)))
        kinds = {row["kind"]: int(row["bytes"]) for row in cache.sql(KINDS).to_pylist()}
    return Fetched(opened - before, proxy.object_bytes - opened, max(disk), disk[-1], kinds)


def _arguments(parser: ArgumentParser) -> None:
    default = Path(os.environ.get("VIEWCACHE_TEST_VIDEOS", ROOT.parent / "shared" / "videos")) / "train"
    parser.add_argument("--videos", type=Path, default=default, help=f"folder of clips (default {default})")
    parser.add_argument("--epochs", type=int, default=10, help="how many (default 10)")
    parser.add_argument(
        "--rival-epochs", type=int, default=10, help="that the rival runs, which fetches as much in each (default 10)"
    )
    parser.add_argument(
        "--generations",
        type=int,
        nargs="+",
        metavar="K",
        help="epochs that are planned at once (default 1, 5, half, all)",
    )
    parser.add_argument("--dir", type=Path, help="where files are written (default: the system's temporary folder)")
    parser.add_argument("--quick", action="store_true", help="two clips, two epochs: does it all run?")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
