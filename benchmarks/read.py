"""Reads and writes of the store against np.load, np.save and zarr-python on the same bytes, page cache warm.

A batch is 8 clips of 32 frames of 3 x 224 x 224 (38.5 MB), random crops of real clips where a folder of videos is
given and a moving texture otherwise. All of ours check every chunk's crc32c, and so does
zarr-python; np.load checks nothing.
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
import zarr
from numpy.typing import NDArray
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BloscCodec, ZstdCodec
from zarr.core.metadata import ArrayV3Metadata

from benchmarks.harness import ROOT, Aim, Result, compare, main
from benchmarks.scale import make_clips, warm_batches
from viewcache import store

Bytes = NDArray[np.uint8]
CLIPS, FRAMES, SIDE, SHORT_SIDE = 8, 32, 224, 256
LONG = 250  # frames of the object out of which 32 are read
MANY = 64  # clip objects, 308 MB: more than any CPU's cache
ZARR_CODECS: dict[str, tuple[BytesBytesCodec, ...]] = {
    "raw": (),
    "lz4": (BloscCodec(typesize=1, cname="lz4", clevel=5, shuffle="noshuffle"),),
    "zstd1": (ZstdCodec(level=1),),
}


def bench(args: Namespace) -> Iterator[Result]:
    """Batches, clips, frames; reads, then writes; and batches of many videos through a whole cache."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-read-", dir=args.dir))
    try:
        yield from _reads(folder, args)
        yield from _writes(folder, args)
        if args.many_videos:
            clips = make_clips(folder / "clips", 50, 250)
            yield from warm_batches(folder / "warm", clips, args.many_videos)
    finally:
        shutil.rmtree(folder)


def _reads(folder: Path, args: Namespace) -> Iterator[Result]:
    tier = store.LocalTier(folder / "store", 1 << 40)
    batch = _batch(args.videos)
    out = store.aligned_empty(batch.shape)
    out[:] = 0
    clips = [_put(tier, clip, FRAMES, "raw") for clip in batch]
    batches = {codec: _put(tier, batch, 1, codec) for codec in store.CODECS}
    npy = folder / "batch.npy"
    np.save(npy, batch)
    raw_file = folder / "batch.bin"
    batch.tofile(raw_file)

    def floor() -> None:
        file = os.open(raw_file, os.O_RDONLY)
        os.preadv(file, [out.data.cast("B")], 0)
        os.close(file)

    def slots() -> None:
        assert not store.read_slots(tier.root, clips, out)

    ours = {codec: _reader(tier, stored, out) for codec, stored in batches.items()}
    for read in (*ours.values(), slots):
        out[:] = 0
        read()
        assert np.array_equal(out, batch)
    rivals: dict[str, Callable[[], object]] = {"np.load": lambda: np.load(npy), "preadv, unchecked": floor}
    aims = [Aim("raw", at_most=1.0), Aim("8 raw clip objects", at_most=1.0), Aim("lz4", at_most=2.0)]
    rivals |= {**ours, "8 raw clip objects": slots}
    yield compare("batch of 38.5 MB", rivals, baseline="np.load", args=args, calls=3, aims=aims)

    for codec, stored in batches.items():
        array = zarr.open_array(f"{tier.root}/{stored.physical}", mode="r")
        pair: dict[str, Callable[[], object]] = {
            "zarr-python, kept open": partial(array.__getitem__, slice(None)),
            "viewcache": ours[codec],
        }
        aim = [Aim("viewcache", at_most=0.25)] if codec != "zstd1" else []
        yield compare(f"the same {codec} object", pair, baseline="zarr-python, kept open", args=args, aims=aim)

    yield from _clips(folder, tier, batch, args)
    yield from _frames(folder, tier, batch, args)


def _clips(folder: Path, tier: store.LocalTier, batch: Bytes, args: Namespace) -> Iterator[Result]:
    """One clip object; in turn out of many, as in training, and the same again and again, out of the CPU's cache."""
    out = store.aligned_empty(batch[0].shape)
    out[:] = 0
    paths = [folder / f"clip{number}.npy" for number in range(MANY)]
    for number, path in enumerate(paths):
        np.save(path, batch[number % CLIPS])
    objects = [_put(tier, batch[number % CLIPS], FRAMES, "raw") for number in range(MANY)]
    for title, count in ((f"clip of 4.8 MB, {MANY} in turn", MANY), ("clip of 4.8 MB, always the same", 1)):
        turn, turns = cycle(paths[:count]), cycle(objects[:count])
        rivals: dict[str, Callable[[], object]] = {
            "np.load": partial(_load_next, turn),
            "viewcache": partial(_read_next, tier.root, turns, out),
        }
        aims = [Aim("viewcache", at_most=1.2)]
        yield compare(title, rivals, baseline="np.load", args=args, calls=MANY, aims=aims)


def _load_next(paths: Iterator[Path]) -> None:
    np.load(next(paths))


def _read_next(root: str, objects: Iterator[store.Stored], out: Bytes) -> None:
    store.read_into(root, next(objects), out)


def _frames(folder: Path, tier: store.LocalTier, batch: Bytes, args: Namespace) -> Iterator[Result]:
    """32 frames, and one, out of an object of 250 with one frame per chunk, from another place each time."""
    video = np.concatenate([batch.reshape(-1, *batch.shape[2:])] * 2)[:LONG]
    stored = {codec: _put(tier, video, 1, codec) for codec in ("raw", "lz4")}
    npy = folder / "video.npy"
    np.save(npy, video)
    out = store.aligned_empty((FRAMES, *video.shape[1:]))
    out[:] = 0
    array = zarr.open_array(f"{tier.root}/{stored['raw'].physical}", mode="r")
    for count in (FRAMES, 1):
        starts = cycle([7 * step % (LONG - count) for step in range(LONG)])
        rivals: dict[str, Callable[[], object]] = {
            "np.load(mmap) + copy": partial(_copy_frames, npy, starts, count),
            "zarr-python raw, kept open": partial(_zarr_frames, array, starts, count),
        }
        for codec, held in stored.items():
            rivals[codec] = partial(_read_frames, tier.root, held, out[:count], starts)
        aims = [Aim("raw", at_most=1.2)]
        title = f"{count} of {LONG} frames"
        yield compare(title, rivals, baseline="np.load(mmap) + copy", args=args, calls=30, aims=aims)


def _copy_frames(path: Path, starts: Iterator[int], count: int) -> None:
    start = next(starts)
    np.load(path, mmap_mode="r")[start : start + count].copy()


def _zarr_frames(array: "zarr.Array[ArrayV3Metadata]", starts: Iterator[int], count: int) -> None:
    start = next(starts)
    array[start : start + count]


def _read_frames(root: str, stored: store.Stored, out: Bytes, starts: Iterator[int]) -> None:
    start = next(starts)
    store.read_into(root, stored, out, slice(start, start + len(out)))


def _writes(folder: Path, args: Namespace) -> Iterator[Result]:
    batch = _batch(args.videos)
    for codec in store.CODECS:
        root = folder / "written"

        def before(_: str, root: Path = root) -> None:
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()

        def save(root: Path = root) -> None:
            np.save(root / "batch.npy", batch)

        def ours(root: Path = root, codec: str = codec) -> None:
            store.LocalTier(root / "ours", 1 << 40)
            store.write_object(root / "ours", "0" * 32, batch, _meta(batch, 1, codec))

        def zarrs(root: Path = root, codec: str = codec) -> None:
            shape = batch.shape
            array = zarr.create_array(
                root / "zarr", shape=shape, dtype="u1", chunks=(1, *shape[1:]), shards=shape, fill_value=0,
                compressors=(*ZARR_CODECS[codec], zarr.codecs.Crc32cCodec()),
            )  # fmt: skip
            array[:] = batch

        rivals = {"np.save": save, "zarr-python": zarrs, "viewcache": ours}
        for measure in ("cpu_s", "wall_s"):
            title = f"write a {codec} batch, no fsync ({measure.removesuffix('_s')})"
            aims = [Aim("viewcache", at_most=0.2)] if codec == "raw" else []
            yield compare(title, rivals, baseline="zarr-python", args=args, before=before, measure=measure, aims=aims)


def _reader(tier: store.LocalTier, stored: store.Stored, out: Bytes) -> Callable[[], None]:
    return partial(store.read_into, tier.root, stored, out)


def _meta(array: Bytes, rows: int, codec: str) -> store.ArrayMeta:
    return store.ArrayMeta(array.shape, (rows, *array.shape[1:]), codec)


def _put(tier: store.LocalTier, array: Bytes, rows: int, codec: str) -> store.Stored:
    written = store.write_object(tier.root, os.urandom(16).hex(), array, _meta(array, rows, codec))
    return store.Stored(
        written.physical, written.shape, written.chunk_rows, written.codec, store.ChunkTable.from_bytes(written.table)
    )


def _batch(videos: Path) -> Bytes:
    """(8, 32, 3, 224, 224): crops of the folder's first clips, or of a moving texture where there are none."""
    rng = np.random.default_rng(0)
    paths = sorted(videos.glob("*.mp4"))[:4] if videos.is_dir() else []
    sources = [_decode(path) for path in paths] or [_texture(rng)]
    batch = store.aligned_empty((CLIPS, FRAMES, 3, SIDE, SIDE))
    for clip in range(CLIPS):
        source = sources[clip % len(sources)]
        y, x = (int(rng.integers(0, size - SIDE + 1)) for size in source.shape[2:])
        frames = np.minimum(np.arange(FRAMES) * 2 + clip, len(source) - 1)
        batch[clip] = source[frames, :, y : y + SIDE, x : x + SIDE]
    return batch


def _decode(path: Path) -> Bytes:
    import av

    frames = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        scale = SHORT_SIDE / min(stream.width, stream.height)
        width, height = (max(SHORT_SIDE, round(size * scale)) for size in (stream.width, stream.height))
        for frame in container.decode(stream):
            frames.append(frame.reformat(width, height, "rgb24").to_ndarray().transpose(2, 0, 1))
            if len(frames) == 2 * FRAMES + CLIPS:
                break
    return np.stack(frames)


def _texture(rng: np.random.Generator) -> Bytes:
    field = rng.normal(0, 1, (3, 512, 640))
    for axis in (1, 2):  # a box blur makes neighbours alike, as in pictures
        field = sum((np.roll(field, shift, axis) for shift in range(12)), np.zeros_like(field))
    still = np.clip(128 + 40 * field / field.std(), 0, 255)
    moving = [np.roll(still, 3 * frame, 2)[:, :SHORT_SIDE, :455] for frame in range(2 * FRAMES + CLIPS)]
    return np.clip(np.stack(moving) + rng.normal(0, 1.5, (len(moving), 3, SHORT_SIDE, 455)), 0, 255).astype(np.uint8)


def _arguments(parser: ArgumentParser) -> None:
    default = Path(os.environ.get("VIEWCACHE_TEST_VIDEOS", ROOT.parent / "shared" / "videos")) / "train"
    parser.add_argument("--videos", type=Path, default=default, help=f"folder of .mp4 clips (default {default})")
    parser.add_argument(
        "--many-videos", type=int, default=10_000, help="read in random order; 0 leaves that out (default 10,000)"
    )
    parser.add_argument("--dir", type=Path, help="where the files are written (default: the system's temporary folder)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
