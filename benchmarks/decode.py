"""Decoding against PyAV as tutorials write it, torchcodec and decord2 where they load, and the ffmpeg command.

The work of a sample: 32 frames of one clip, short side to 256 pixels, a 224x224 crop, uint8 channels first. Ours reads
a packet index that was made before, as it lies in the catalog; the others open the file, as on-demand loaders do.
"""

import shutil
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import av
import numpy as np

from benchmarks.harness import Aim, Comparison, Figure, Result, Stopwatch, compare, main
from viewcache.materializer.media.decode import DecodeStats, decode
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.pixels import to_rgb
from viewcache.materializer.media.probe import probe

FRAMES, SHORT, CROP = 32, 256, 224
SUFFIXES = (".mp4", ".mkv", ".webm", ".avi", ".ts")


@dataclass(frozen=True)
class Sample:
    """One clip to make."""

    path: str
    index: VideoIndex
    frames: np.ndarray
    size: tuple[int, int]
    """Height and width after the resize."""
    corner: tuple[int, int]
    """Top and left of the crop."""


def samples(paths: list[Path], stride: int, each: int, rng: np.random.Generator) -> list[Sample]:
    """Random clips and crops, ``each`` of them per video that is long enough."""
    made: list[Sample] = []
    for path in paths:
        index = probe(str(path))
        span = (FRAMES - 1) * stride + 1
        height, width = index.shown_size
        scale = SHORT / min(height, width)
        size = (round(height * scale), round(width * scale))
        for _ in range(each if index.frames >= span else 0):
            start = int(rng.integers(0, index.frames - span + 1))
            corner = (int(rng.integers(0, size[0] - CROP + 1)), int(rng.integers(0, size[1] - CROP + 1)))
            made.append(Sample(str(path), index, start + stride * np.arange(FRAMES), size, corner))
    return made


def ours(sample: Sample, stats: DecodeStats) -> np.ndarray:
    """Packets by the index, skipping, one swscale step to planar RGB."""
    out = np.empty((FRAMES, 3, CROP, CROP), np.uint8)
    y, x = sample.corner
    at = {int(frame): k for k, frame in enumerate(sample.frames)}
    for number, frame in decode(sample.path, sample.index, sample.frames, stats=stats):
        out[at[number]] = to_rgb(frame, *sample.size, rotation=sample.index.rotation)[:, y : y + CROP, x : x + CROP]
    return out


def tutorial(sample: Sample) -> np.ndarray:
    """PyAV as tutorials use it: open, seek to the key frame, decode on, resize each wanted frame to rgb24."""
    out = np.empty((FRAMES, 3, CROP, CROP), np.uint8)
    y, x = sample.corner
    height, width = sample.size
    times = {int(pts): k for k, pts in enumerate(sample.index.frame_pts[sample.frames])}
    with av.open(sample.path) as container:
        stream = container.streams.video[0]
        container.seek(min(times), stream=stream)
        for frame in container.decode(stream):
            k = times.pop(frame.pts, None) if frame.pts is not None else None
            if k is not None:
                picture = frame.to_ndarray(width=width, height=height, format="rgb24")
                out[k] = picture[y : y + CROP, x : x + CROP].transpose(2, 0, 1)
                if not times:
                    break
    return out


def torchcodec(sample: Sample) -> np.ndarray:
    """torchcodec, one thread, exact seeking, antialiased bilinear resize by torch."""
    import torch

    decoder = import_module("torchcodec.decoders").VideoDecoder(sample.path, num_ffmpeg_threads=1)
    frames = decoder.get_frames_at(sample.frames.tolist()).data
    small = torch.nn.functional.interpolate(frames, sample.size, mode="bilinear", antialias=True)
    y, x = sample.corner
    return np.ascontiguousarray(small[:, :, y : y + CROP, x : x + CROP].numpy())


def decord2(sample: Sample) -> np.ndarray:
    """decord2, one thread, its own resize."""
    decord = import_module("decord")
    height, width = sample.size
    reader = decord.VideoReader(sample.path, ctx=decord.cpu(0), height=height, width=width, num_threads=1)
    frames = reader.get_batch(sample.frames.tolist()).asnumpy()
    y, x = sample.corner
    return np.ascontiguousarray(frames[:, y : y + CROP, x : x + CROP].transpose(0, 3, 1, 2))


def loads(name: str, one: Callable[[], object]) -> bool:
    """Whether an optional rival is installed and works here."""
    if find_spec(name) is None:
        return False
    try:
        one()
    except Exception as failed:  # missing FFmpeg libraries raise what they like
        print(f"({name} does not load here: {str(failed).splitlines()[0]})", flush=True)
        return False
    return True


def clips_of(args: Namespace) -> list[Path]:
    """The videos to measure on: a folder, or clips encoded here."""
    folder = args.videos or Path(__file__).resolve().parents[2] / "shared" / "videos" / "train"
    found = sorted(path for path in Path(folder).rglob("*") if path.suffix in SUFFIXES)
    if found:
        return found
    from tests.clips import encode

    made = Path(tempfile.mkdtemp(prefix="viewcache-bench-"))
    return [encode(made / f"{n}.mp4", frames=200, size=(640, 360), gop=48, options={"bf": "2"}) for n in range(2)]


def per_sample(paths: list[Path], stride: int, args: Namespace) -> Iterator[Result]:
    """CPU per sample at one stride, and packets against the floor."""
    todo = samples(paths, stride, args.samples, np.random.default_rng(args.seed))
    stats = DecodeStats()

    def all_of(make: Callable[[Sample], np.ndarray]) -> Callable[[], None]:
        def run() -> None:
            for sample in todo:
                make(sample)

        return run

    rivals = {"PyAV tutorial": all_of(tutorial), "viewcache": all_of(lambda sample: ours(sample, DecodeStats()))}
    optional = {"torchcodec": ("torchcodec", torchcodec), "decord2": ("decord", decord2)}
    for name, (module, make) in optional.items():
        if loads(module, lambda make=make: make(todo[0])):  # type: ignore[misc]  # bound now, on purpose
            rivals[name] = all_of(make)
    yield compare(
        f"{len(todo)} samples of {FRAMES} frames, stride {stride}, to {SHORT}, crop {CROP}",
        rivals,
        baseline="PyAV tutorial",
        args=args,
        aims=[Aim("viewcache", at_most=0.65)],
    )
    for sample in todo:
        ours(sample, stats)
    wanted = FRAMES * len(todo)
    yield Figure(
        f"stride {stride}: packets fed {stats.packets}, floor {stats.floor} ({wanted} frames, {stats.decoded} decoded)",
        stats.packets / stats.floor,
        "x",
        Aim(at_most=1.0),
    )


def against_ffmpeg(paths: list[Path], args: Namespace) -> Iterator[Result]:
    """CPU of decoding every frame of a clip, without conversion, against the command that does nothing else."""
    command = shutil.which("ffmpeg")
    limit = "ffmpeg -f null" if command else "PyAV, bare loop"

    def bare() -> None:
        for path in paths:
            if command:
                quiet = [command, "-v", "error", "-threads", "1", "-i", str(path), "-map", "0:v:0", "-f", "null", "-"]
                subprocess.run(quiet, check=True)
            else:
                with av.open(str(path)) as container:
                    container.streams.video[0].codec_context.thread_count = 1
                    for _ in container.decode(video=0):
                        pass

    indexes = {path: probe(str(path)) for path in paths}

    def every() -> None:
        for path, index in indexes.items():
            for _ in decode(str(path), index, np.arange(index.frames)):
                pass

    frames = sum(index.frames for index in indexes.values())
    yield compare(f"all {frames} frames, not converted", {limit: bare, "viewcache": every}, baseline=limit, args=args)
    todo = samples(paths, 2, args.samples, np.random.default_rng(args.seed))

    def clips() -> None:
        for sample in todo:
            for _ in decode(sample.path, sample.index, sample.frames):
                pass

    with Stopwatch() as whole:
        bare()
    clips()
    with Stopwatch() as part:
        clips()
    needed = FRAMES * len(todo)
    yield Figure(
        f"CPU per needed frame (stride 2) against CPU per frame of {limit}",
        (part.cpu_s / needed) / (whole.cpu_s / frames),
        "x",
    )


def probing(paths: list[Path], args: Namespace) -> Comparison:
    """CPU of indexing a clip against opening it and reading its packets."""

    def open_and_demux() -> None:
        for path in paths:
            with av.open(str(path)) as container:
                for _ in container.demux(video=0):
                    pass

    def index() -> None:
        for path in paths:
            probe(str(path))

    rivals = {"av.open + demux": open_and_demux, "probe": index}
    return compare(f"index {len(paths)} videos", rivals, baseline="av.open + demux", args=args)


def bench(args: Namespace) -> Iterator[Result]:
    """All comparisons."""
    paths = clips_of(args)
    for stride in (2, 4):
        yield from per_sample(paths, stride, args)
    yield from against_ffmpeg(paths, args)
    yield probing(paths, args)


def arguments(parser: ArgumentParser) -> None:
    """Which videos, how many samples."""
    parser.add_argument("--videos", type=Path, help="a folder of videos; default: the real clips, else encoded ones")
    parser.add_argument("--samples", type=int, default=2, help="samples a video (default 2)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
