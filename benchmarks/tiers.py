"""Reads and writes through memory, folder and bucket, against a plain s3fs GET and PUT of the same bytes.

The bucket is SeaweedFS on loopback, once as it is and once behind a proxy that waits before the first byte of each
answer, as a service in the same region does. Ours check every chunk; the rivals check nothing. Times are wall times,
since a network is waited for. Requests are counted apart from the timings.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any  # s3fs has no types

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import ROOT, Aim, Figure, Result, compare, main
from tests.servers.fault_proxy import proxied
from tests.servers.seaweed import Seaweed, make_bucket, serve
from viewcache import store

Bytes = NDArray[np.uint8]
FRAMES = 32
BUCKET = "bench"
READ_AIM = 1.25
"""Times the plain GET: 0.8 of its rate, checks included."""


def bench(args: Namespace) -> Iterator[Result]:
    """Each latency in turn, then the requests."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-tiers-", dir=args.dir))
    try:
        with serve(folder / "weed") as server:
            make_bucket(server, BUCKET)
            yield from _timed(folder / "direct", server, server.endpoint, "no added latency", args)
            with _delayed(server, args.latency_ms) as endpoint:
                yield from _timed(folder / "delayed", server, endpoint, f"{args.latency_ms:g} ms added", args)
            yield from _counted(server, args)
    finally:
        shutil.rmtree(folder)


def _timed(folder: Path, server: Seaweed, endpoint: str, title: str, args: Namespace) -> Iterator[Result]:
    batch = _batch(args)
    tiers: dict[str, store.Tier] = {"memory": store.MemoryTier(4 * batch.nbytes + (1 << 26))}
    tiers["local"] = store.LocalTier(folder, 1 << 40)
    with ExitStack() as stack:
        stack.enter_context(_environment(server.environment(endpoint)))
        tiers["remote"] = store.RemoteTier(f"s3://{BUCKET}/{folder.name}", 1 << 40)
        for tier in tiers.values():
            stack.callback(tier.close)
        yield from _reads(tiers, batch, title, args)
        yield from _writes(tiers, batch, title, args)


def _reads(tiers: Mapping[str, store.Tier], batch: Bytes, title: str, args: Namespace) -> Iterator[Result]:
    fs = _s3fs()
    out = store.aligned_empty(batch.shape)
    out[:] = 0
    rivals: dict[str, Callable[[], object]] = {}
    for codec in ("raw", "lz4"):
        for name, tier in tiers.items():
            stored = _put(tier, batch, 1, codec)
            rivals[f"{name} {codec}"] = partial(tier.read, stored, out)
    remote = _put(tiers["remote"], batch, 1, "raw")
    path = f"{tiers['remote'].url.removeprefix('s3://')}/{remote.physical}/c.0.0.0.0.0"
    rivals["s3fs GET"] = partial(fs.cat_file, path, start=0, end=_length(remote))
    for name, read in rivals.items():
        out[:] = 0
        read()
        assert name == "s3fs GET" or np.array_equal(out, batch)
    aims = [Aim("remote raw", at_most=READ_AIM)]
    size = f"{batch.nbytes / 1e6:.1f} MB"
    yield compare(
        f"read a batch of {size}, {title}", rivals, baseline="s3fs GET", args=args, measure="wall_s", aims=aims
    )

    clips = {name: [_put(tier, clip, FRAMES, "raw") for clip in batch] for name, tier in tiers.items()}
    root = tiers["remote"].url.removeprefix("s3://")
    paths = [f"{root}/{clip.physical}/c.0.0.0.0" for clip in clips["remote"]]
    ends = [_length(clip) for clip in clips["remote"]]
    together = {name: partial(_gather, tier, clips[name], out) for name, tier in tiers.items()}
    plain = partial(fs.cat_ranges, paths, [0] * len(paths), ends, on_error="raise")
    yield compare(
        f"read {len(paths)} clips into a batch, {title}", {**together, "s3fs GETs": plain}, baseline="s3fs GETs",
        args=args, measure="wall_s", aims=[Aim("remote", at_most=READ_AIM)],
    )  # fmt: skip


def _writes(tiers: Mapping[str, store.Tier], batch: Bytes, title: str, args: Namespace) -> Iterator[Result]:
    fs, data = _s3fs(), batch.tobytes()
    path = f"{tiers['remote'].url.removeprefix('s3://')}/plain"
    written: dict[str, store.Stored] = {}

    def write(name: str) -> None:
        written[name] = _put(tiers[name], batch, 1, "raw")

    def clear(name: str) -> None:
        if name in written:
            tiers[name].delete(written.pop(name).physical)

    rivals: dict[str, Callable[[], object]] = {name: partial(write, name) for name in tiers}
    rivals["s3fs PUT"] = lambda: str(fs.pipe_file(path, data)["ResponseMetadata"]["HTTPStatusCode"])
    yield compare(
        f"write a raw batch, {title}", rivals, baseline="s3fs PUT", args=args, measure="wall_s", before=clear
    )  # fmt: skip
    for name in tiers:
        clear(name)


def _counted(server: Seaweed, args: Namespace) -> Iterator[Result]:
    """GETs through a proxy that counts, as an aim each."""
    batch = _batch(args)
    frames = batch.reshape(-1, *batch.shape[2:])
    with proxied("127.0.0.1", server.port) as proxy, _environment(server.environment(proxy.endpoint)):
        tier = store.RemoteTier(f"s3://{BUCKET}/counted", 1 << 40)
        try:
            whole, video = _put(tier, batch, 1, "raw"), _put(tier, frames, 1, "lz4")
            out = store.aligned_empty(batch.shape)
            every = max(1, len(frames) // FRAMES)
            clip = out.reshape(frames.shape)[: len(range(0, len(frames), every))]
            cases: dict[str, Callable[[], object]] = {
                "a batch object": partial(tier.read, whole, out),
                f"{len(clip)} frames of a video": partial(tier.read, video, clip, slice(None, None, every)),
            }
            for title, read in cases.items():
                before = proxy.count("GET")
                read()
                yield Figure(f"requests for {title}", proxy.count("GET") - before, "GET", Aim(at_most=1))
            before = proxy.count("GET")
            tier.scan(video.physical)
            yield Figure("requests for a look without the catalog", proxy.count("GET") - before, "GET", Aim(at_most=3))
        finally:
            tier.close()


def _gather(tier: store.Tier, clips: list[store.Stored], out: Bytes) -> None:
    assert not tier.read_slots(clips, out)


def _put(tier: store.Tier, array: Bytes, rows: int, codec: str) -> store.Stored:
    meta, key = store.ArrayMeta(array.shape, (rows, *array.shape[1:]), codec), os.urandom(16).hex()
    reservation = tier.reserve(store.bound_bytes(meta, key))
    assert reservation is not None
    with reservation:
        written = tier.write(key, array, meta)
        reservation.commit(written.bytes)
    table = store.ChunkTable.from_bytes(written.table)
    return store.Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)


def _length(stored: store.Stored) -> int:
    """Bytes of the shard's chunks: what our read asks for too."""
    return max(place + size for place, size in zip(stored.table.offsets, stored.table.sizes, strict=True))


def _s3fs() -> Any:
    import s3fs

    return s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)


def _batch(args: Namespace) -> Bytes:
    """(clips, 32, 3, side, side): a ramp with noise, which compresses about as little as random crops do."""
    shape = (args.clips, FRAMES, 3, args.side, args.side)
    batch = store.aligned_empty(shape)
    ramp = np.arange(args.side, dtype=np.int16)
    batch[:] = np.random.default_rng(0).integers(0, 32, shape, np.int16) + ramp % 200
    return batch


@contextmanager
def _delayed(server: Seaweed, latency_ms: float) -> Iterator[str]:
    """URL of a proxy in a process of its own, so that it takes none of this one's time."""
    command = [sys.executable, "-m", "tests.servers.fault_proxy", f"--port={server.port}", f"--latency-ms={latency_ms}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        yield f"http://127.0.0.1:{int(proxy.stdout.readline())}"
        proxy.stdin.write("\n")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Credentials and address, as a process has them; afterwards as it was."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def arguments(parser: ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--clips", type=int, default=8, help="of a batch (default 8)")
    parser.add_argument("--side", type=int, default=224, help="of a frame, in pixels (default 224)")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="added by the proxy (default 20)")
    parser.add_argument("--dir", type=Path, help="where files are written (default: the system's temporary folder)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
