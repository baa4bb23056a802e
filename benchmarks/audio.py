"""What the audio of clips costs: cut out of one pass over each track, beside decoding the track and nothing else.

The first part takes the stretches that the clips of some epochs ask for of one real clip. Its rivals decode the whole
track, with and without resampling frame by frame as tutorials do. The second part makes and reads all clips of some
epochs in caches with empty stores, with audio and without: what it adds, objects, rows and reads included, is given as
so many bare decodes of all tracks, and as a share of the run.
"""

import shutil
import statistics
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from benchmarks.harness import ROOT, Aim, Figure, Result, Stopwatch, compare, main
from viewcache.materializer.media.audio import AudioTrack, Stretch, read_stretches

EPOCHS, SAMPLES = 5, 2
SECONDS, RATE = 2.0, 16_000
DECODE, RESAMPLE, STRETCHES = "decode alone", "decode, resample each frame", "stretches of clips"


def bench(args: Namespace) -> Iterator[Result]:
    """Both parts."""
    videos = [path for path in args.videos if path.is_file()]
    for path in videos:
        starts = _starts(path)
        rivals: dict[str, Callable[[], object]] = {
            DECODE: lambda path=path: decode(path),  # type: ignore[misc]
            RESAMPLE: lambda path=path: resample(path),  # type: ignore[misc]
            STRETCHES: lambda path=path, starts=starts: stretches(path, starts),  # type: ignore[misc]
        }
        aims = [Aim(STRETCHES, at_most=1.5)]
        yield compare(f"audio of {path.name}", rivals, baseline=DECODE, args=args, aims=aims)
    yield from _caches(videos, args)


def decode(path: Path) -> int:
    """Decode a track in the plainest way; returns its samples."""
    with av.open(str(path)) as container:
        count = 0
        for frame in container.decode(audio=0):
            count += frame.samples
        return count


def resample(path: Path) -> int:
    """The same, resampled frame by frame."""
    with av.open(str(path)) as container:
        resampler, parts = av.AudioResampler(format="fltp", layout="mono", rate=RATE), []
        for frame in container.decode(audio=0):
            parts += [each.to_ndarray() for each in resampler.resample(frame)]
        parts += [each.to_ndarray() for each in resampler.resample(None)]
        return len(np.concatenate(parts, axis=1)[0])


def stretches(path: Path, starts: list[Fraction]) -> int:
    """What a job makes: the audio of clips that begin at some times."""
    wanted = [Stretch(start, np.zeros((1, int(SECONDS * RATE)), np.float32)) for start in starts]
    return len(list(read_stretches(str(path), lambda _: True, AudioTrack(RATE, 1, None), wanted, lambda: False)))


def _starts(path: Path) -> list[Fraction]:
    with av.open(str(path)) as container:
        end = float(container.duration or 0) / av.time_base - SECONDS
    return [Fraction(int(1000 * each), 1000) for each in np.random.default_rng(0).uniform(0, end, EPOCHS * SAMPLES)]


def _caches(videos: list[Path], args: Namespace) -> Iterator[Result]:
    shares, decodes = [], []
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        mine = Path(folder, "videos")
        mine.mkdir()
        for path in videos:
            shutil.copy(path, mine)
        for number in range(args.repeats):
            took = {}
            for heard in sorted((False, True), key=lambda each: hash((args.seed, number, each))):
                with Stopwatch() as watch:
                    _make(Path(folder, f"store{number}{heard}"), mine, heard=heard)
                took[heard] = watch.cpu_s
            with Stopwatch() as bare:
                for path in videos:
                    decode(path)
            more = took[True] - took[False]
            shares.append(more / took[False])
            decodes.append(more / bare.cpu_s)
            print(f"round {number}: {took[False]:.2f} s, with audio {took[True]:.2f} s", file=sys.stderr)
    yield Figure("what audio adds to a run", 100 * statistics.median(shares), "%", None, tuple(100 * x for x in shares))
    title = "what audio adds to a run ÷ decoding every track once"
    yield Figure(title, statistics.median(decodes), "x", None, tuple(decodes))


def _make(store: Path, videos: Path, *, heard: bool) -> None:
    """Read every batch of some epochs from an empty store."""
    import viewcache

    sampling = {"videos_per_batch": 2, "fps": 8, "frames_per_video": 16, "samples_per_video": SAMPLES}
    operations: list[dict[str, Any]] = [{"resize": {"short_side": 256}}, {"random_crop": {"shape": [224, 224]}}]
    step = {"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": operations}
    task: dict[str, Any] = {"tag": "train", "video_dataset_path": str(videos), "epochs": EPOCHS, "sampling": sampling}
    task["augmentation"] = [step]
    if heard:
        task["audio"] = {"rate": RATE}
    cache = {"store": str(store), "budget": "4GB", "epochs_per_generation": EPOCHS}
    with viewcache.open({"cache": cache, "dataset": task}) as opened:
        for epoch in range(EPOCHS):
            for iteration in range(opened.task("train").iterations(epoch)):
                opened.read("train", epoch, iteration)
    shutil.rmtree(store)


def arguments(parser: ArgumentParser) -> None:
    """What may be chosen."""
    folder = ROOT.parent / "shared" / "videos"
    names = "train/dog_720p_h264_aac.mp4", "train/car_432p_h264_12fps.mp4", "train/bbb_720p_vp8.webm"
    videos = [folder / name for name in (*names, "edge/mpeg4_bframes.avi")]
    parser.add_argument("--videos", type=Path, nargs="+", default=videos, help="clips with audio")
    parser.add_argument("--dir", type=Path, help="where the caches are made (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
