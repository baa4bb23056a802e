"""Views through a mount against the same bytes in a plain file and through fsspec, all of them made.

A batch is 8 clips of 32 frames of 3 x 224 x 224 (38.5 MB). ``again`` reads what the kernel has of an earlier reading;
``first`` makes it forget that before, as every batch of a training is new; ``direct`` is opened with O_DIRECT, so that
it keeps nothing. All rivals read into fresh memory, and ``into`` into the same buffer. The mount is a child of this
process; the service is not, and takes 2 ms of CPU a batch.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import fsspec
import yaml

import viewcache
from benchmarks.harness import ROOT, Aim, Comparison, Figure, Result, compare, main
from benchmarks.scale import make_clips
from viewcache.api.service.stopping import stop

BATCH, FRAMES, SIDE = 8, 32, 224
VIEW = "train/0/0/view"
CROPPED = {
    "branch_type": "single",
    "inputs": ["frame"],
    "outputs": ["clip"],
    "config": [{"resize": {"short_side": 240}}, {"random_crop": {"shape": [SIDE, SIDE]}}],
}


def bench(args: Namespace) -> Iterator[Result]:
    """Reading a batch, what is asked beside it, and listing a long epoch."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-mount-", dir=args.dir))
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        clips = make_clips(folder / "videos", 2 * BATCH, 100)
        with _mounted(folder, "few", folder / "videos", BATCH) as views:
            yield from _batches(views, folder, args)
            yield from _asked(views, args)
        many = folder / "many"
        many.mkdir()
        for number in range(args.iterations):
            os.link(clips[number % len(clips)], many / f"v{number:06}.mp4")
        with _mounted(folder, "long", many, 1) as views:
            yield from _listed(views / "train" / "0", args)


@contextmanager
def _mounted(folder: Path, name: str, videos: Path, batch: int) -> Iterator[Path]:
    """A mounted cache of one task; the folder of its views."""
    config, views, store = folder / f"{name}.yaml", folder / f"{name}-views", folder / f"{name}-store"
    dataset = {
        "tag": "train",
        "video_dataset_path": str(videos),
        "sampling": {"videos_per_batch": batch, "frames_per_video": FRAMES, "frame_stride": 2},
        "augmentation": [CROPPED],
    }
    config.write_text(yaml.safe_dump({"cache": {"store": str(store), "budget": "2GB"}, "dataset": dataset}))
    views.mkdir()
    command = [sys.executable, "-m", "viewcache.api.cli.main", "mount", str(config), str(views)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            if "is mounted on" not in said:
                raise SystemExit(f"it did not mount: {said}")
            yield views
        finally:
            process.terminate()
            process.wait()
            stop(store, now=True)


def _batches(views: Path, folder: Path, args: Namespace) -> Iterator[Result]:
    plain, view = folder / "batch.npy", views / VIEW
    with viewcache.open(folder / "few.yaml", service="attach") as cache:
        for _ in cache.materialize():
            time.sleep(0.1)
        plain.write_bytes(view.read_bytes())
        file_system = fsspec.filesystem("view")
        buffer = bytearray(plain.stat().st_size)
        assert view.read_bytes() == plain.read_bytes() == file_system.cat_file(VIEW)

        def into(path: Path, flags: int = 0) -> Callable[[], object]:
            def read() -> None:
                descriptor = os.open(path, os.O_RDONLY | flags)
                assert os.preadv(descriptor, [buffer], 0) == len(buffer)
                os.close(descriptor)

            return read

        rivals: dict[str, Callable[[], object]] = {
            "plain file": plain.read_bytes,
            "mount, again": view.read_bytes,
            "mount, first": view.read_bytes,
            "view:// by fsspec": lambda: file_system.open(VIEW).read(),
            "plain file, into": into(plain),
            "mount, again, into": into(view),
            "mount, first, into": into(view),
            "mount, direct, into": into(view, os.O_DIRECT),
        }

        def before(name: str) -> None:
            if "first" in name:
                _forget(view)

        # One call for each timing: what is read again would be no first reading.
        found = compare("a batch of 38.5 MB", rivals, baseline="plain file", args=args, measure="wall_s", before=before)
    yield found
    for name in ("mount, again", "mount, first", "mount, again, into", "mount, first, into", "mount, direct, into"):
        yield _rate(found, name, len(buffer))


def _rate(found: Comparison, name: str, size: int) -> Figure:
    rates = sorted(size / seconds / 1e9 for seconds in found.timing(name).wall_s)
    return Figure(name, rates[len(rates) // 2], "GB/s", Aim(at_least=1.0), tuple(rates))


def _forget(path: Path) -> None:
    """Have the kernel forget a file's bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def _asked(views: Path, args: Namespace) -> Iterator[Result]:
    view = views / VIEW
    asked: dict[str, Callable[[], object]] = {
        "stat": view.stat,
        "getxattr of the labels": lambda: json.loads(os.getxattr(view, "user.viewcache.label")),
        "open and close of a frame": lambda: (views / "train/0/frame3").open("rb").close(),
    }
    for name, ask in asked.items():
        ask()
        taken = sorted(_microseconds(ask, 200) for _ in range(args.repeats))
        yield Figure(name, taken[len(taken) // 2], "µs", samples=tuple(taken))


def _microseconds(ask: Callable[[], object], calls: int) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        ask()
    return (time.perf_counter() - begun) / calls * 1e6


def _listed(epoch: Path, args: Namespace) -> Iterator[Result]:
    first = _microseconds(lambda: os.listdir(epoch), 1) / 1e3
    assert len(os.listdir(epoch)) == args.iterations
    yield Figure(f"listing {args.iterations:,} iterations, first, which plans them", first, "ms")
    yield Figure("the same again", _microseconds(lambda: os.listdir(epoch), 3) / 1e3, "ms")
    looked = _microseconds(lambda: [each.stat() for each in os.scandir(epoch)], 1) / 1e3
    yield Figure("with a stat of each", looked, "ms")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", help="where the stores are made (default: the system's temporary folder)")
    parser.add_argument("--iterations", type=int, default=10_000, help="of the long epoch (default 10,000)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
