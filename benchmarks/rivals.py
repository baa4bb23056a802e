"""The loaders that `benchmarks.epoch` races, each run in a process of its own: ``python -m benchmarks.rivals SETTING``.

The rivals are written as people write them, and spared what they can be: their workers live on from epoch to epoch and
frames stay (H,W,C). They resize with the filter that ours has, swscale's, and their draws are as random.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from multiprocessing import Value
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from benchmarks.harness import Stopwatch, clips_in, cpu_seconds

__all__ = ["SYSTEMS", "Batches", "Run", "Setting", "cached", "described"]

Bytes = NDArray[np.uint8]
LOADER_WORKERS = 2
READ_AHEAD = 2
"""Batches that the ideal reads before they are asked for, as many as our loader."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One run of one system."""

    system: str
    """A key of ``SYSTEMS``."""
    videos: str
    """Folder of the clips."""
    folder: str
    """An empty folder for what the system stores."""
    began_s: float
    """``time.perf_counter()`` when the process was started."""
    budget_bytes: int = 0
    seed: int = 0
    epochs: int = 10
    generation: int = 5
    """Epochs that viewcache plans at once (k)."""
    videos_per_batch: int = 8
    samples: int = 2
    frames: int = 32
    stride: int = 2
    short_side: int = 256
    crop: int = 224
    opencv: bool = False
    """Let the rivals convert at full size and resize with OpenCV's plain bilinear filter: less CPU, and aliasing."""
    step_s: float = 0.3
    """What the consumer takes for one batch."""


@dataclass(slots=True)
class Run:
    """What one run took."""

    ready_wall_s: float = 0.0
    """From the process's start to the loop: interpreter, imports, opening, scanning."""
    ready_cpu_s: float = 0.0
    wall_s: list[float] = field(default_factory=list)
    """Of each epoch; the first begins with the loop."""
    waited_s: list[float] = field(default_factory=list)
    """Of that, until batches came."""
    cpu_s: list[float] = field(default_factory=list)
    """Of each epoch, all processes, the consumer included."""
    end_cpu_s: float = 0.0
    """Of closing."""
    consumer_cpu_s: float = 0.0
    """Touching every byte, in all epochs together."""
    clips: int = 0
    """Received in all."""
    pixels: int = 0
    """Bytes received in all."""
    disk_bytes: int = 0
    """Most that the folder held at the end of an epoch, in blocks of the file system."""


Batches = Iterator[Bytes]
"""Epoch after epoch, uint8, clips first."""


# On demand -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Video:
    path: str
    frames: int
    rate: float
    height: int
    """After the resize."""
    width: int


Draw = tuple[int, int, int]
"""Epoch, video, sample."""


class _OnDemand:
    """A map-style dataset of clips: open, seek, decode, convert, resize and crop, each time anew."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.videos = [_scan(path, setting.short_side) for path in clips_in(setting.videos)]

    def __getitem__(self, draw: Draw) -> Bytes:
        setting, rng = self.setting, np.random.default_rng((self.setting.seed, *draw))
        video = self.videos[draw[1]]
        span = (setting.frames - 1) * setting.stride + 1
        start = int(rng.integers(0, max(video.frames - span, 0) + 1))
        y, x = (int(rng.integers(0, size - setting.crop + 1)) for size in (video.height, video.width))
        clip = self.window(video, start, slice(y, y + setting.crop), slice(x, x + setting.crop))
        return np.ascontiguousarray(self.flipped(clip) if rng.random() < 0.5 else clip)

    def flipped(self, clip: Bytes) -> Bytes:
        """Left is right."""
        return clip[:, :, ::-1]

    def window(self, video: _Video, start: int, rows: slice, columns: slice) -> Bytes:
        """(T,h,w,3): the crop of every ``stride``-th frame from ``start``."""
        setting = self.setting
        out = np.empty((setting.frames, setting.crop, setting.crop, 3), np.uint8)
        count = 0
        for frame in islice(_decoded(video, start), 0, None, setting.stride):
            out[count] = self.resized(frame, video)[rows, columns]
            count += 1
            if count == setting.frames:
                break
        out[count:] = out[count - 1]  # times are rounded: the last clip of a video may end a frame early
        return out

    def resized(self, frame: av.VideoFrame, video: _Video) -> Bytes:
        """(H,W,3) at the size of the resize."""
        if not self.setting.opencv:
            return np.asarray(frame.to_ndarray(format="rgb24", width=video.width, height=video.height), np.uint8)
        full = frame.to_ndarray(format="rgb24")
        return np.asarray(cv2.resize(full, (video.width, video.height), interpolation=cv2.INTER_LINEAR), np.uint8)


def _scan(path: Path, short_side: int) -> _Video:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = sum(packet.size > 0 for packet in container.demux(stream))
        scale = short_side / min(stream.width, stream.height)
        height, width = (max(short_side, round(size * scale)) for size in (stream.height, stream.width))
        return _Video(str(path), packets, float(stream.average_rate or 25), height, width)


def _decoded(video: _Video, start: int = 0) -> Iterator[av.VideoFrame]:
    with av.open(video.path) as container:
        stream = container.streams.video[0]
        assert stream.time_base is not None
        origin = stream.start_time or 0
        first = origin + round(start / video.rate / stream.time_base)
        if start:
            container.seek(first, stream=stream)
        half_a_frame = round(0.5 / video.rate / stream.time_base)
        for frame in container.decode(stream):
            if frame.pts is None or frame.pts >= first - half_a_frame:
                yield frame


class _Naive(_OnDemand):
    """The same, keeping resized whole videos as .npy files, first come first served, until the budget is full."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._left = Value("q", setting.budget_bytes)

    def window(self, video: _Video, start: int, rows: slice, columns: slice) -> Bytes:
        setting = self.setting
        kept = Path(setting.folder, Path(video.path).name + ".npy")
        if not kept.exists():
            size = video.frames * video.height * video.width * 3
            with self._left.get_lock():
                fits = self._left.value >= size
                self._left.value -= size if fits else 0
            if not fits:
                return super().window(video, start, rows, columns)
            self._keep(video, kept)
        frames = np.load(kept, mmap_mode="r")
        last = len(frames) - (setting.frames - 1) * setting.stride - 1
        start = max(min(start, last), 0)
        numbers = np.minimum(start + np.arange(setting.frames) * setting.stride, len(frames) - 1)
        if last >= 0:  # as slices: only the crop is copied
            window: Bytes = frames[start : start + numbers[-1] - numbers[0] + 1 : setting.stride, rows, columns]
            return window
        return np.stack([frames[number, rows, columns] for number in numbers])

    def _keep(self, video: _Video, kept: Path) -> None:
        frames = np.empty((video.frames, video.height, video.width, 3), np.uint8)
        count = 0
        for frame in islice(_decoded(video), video.frames):
            frames[count] = self.resized(frame, video)
            count += 1
        part = kept.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            np.save(file, frames[:count])
        part.replace(kept)


class _Order:
    """A batch sampler: a new order of the videos each epoch; the samples of a video lie side by side."""

    def __init__(self, setting: Setting, videos: int) -> None:
        self.setting = setting
        self.videos = videos
        self.epoch = 0

    def __len__(self) -> int:
        return -(-self.videos // self.setting.videos_per_batch)

    def __iter__(self) -> Iterator[list[Draw]]:
        order = np.random.default_rng((self.setting.seed, self.epoch)).permutation(self.videos).tolist()
        size = self.setting.videos_per_batch
        for at in range(0, len(order), size):
            yield [
                (self.epoch, video, sample) for video in order[at : at + size] for sample in range(self.setting.samples)
            ]


def _data_loader(dataset: _OnDemand) -> Batches:
    order = _Order(dataset.setting, len(dataset.videos))
    batches: DataLoader[Any] = DataLoader(
        dataset,  # type: ignore[arg-type]  # torch takes anything with __getitem__, its types ask for its base class
        batch_sampler=order,
        num_workers=LOADER_WORKERS,
        persistent_workers=True,
        worker_init_fn=_one_thread,
    )
    for order.epoch in range(dataset.setting.epochs):
        for batch in batches:
            yield batch.numpy()


def _one_thread(worker: int) -> None:
    cv2.setNumThreads(0)  # a forked worker's thread pool is gone; torch says one thread a worker by itself


# The ideal -----------------------------------------------------------------------------------------------------------


def _stored_batches(setting: Setting, batches: int, clips: int) -> list[Path]:
    """Every batch of every epoch as a file. Which bytes they hold makes no difference to reading them."""
    shape = (clips, setting.frames, 3, setting.crop, setting.crop)
    content = np.random.default_rng(setting.seed).integers(0, 256, shape, np.uint8)
    paths = [Path(setting.folder, f"{number}.raw") for number in range(setting.epochs * batches)]
    for path in paths:
        content.tofile(path)
    return paths


def _ideal(setting: Setting) -> Batches:
    """A thread reads whole files ahead, into memory that is used again."""
    videos = len(clips_in(setting.videos))
    assert videos % setting.videos_per_batch == 0, "the ideal's batches are all of one size"
    clips = setting.videos_per_batch * setting.samples
    paths = _stored_batches(setting, videos // setting.videos_per_batch, clips)
    shape = (clips, setting.frames, 3, setting.crop, setting.crop)
    free: queue.Queue[Bytes] = queue.Queue()
    for _ in range(READ_AHEAD + 2):  # one with the consumer, one being filled
        free.put(np.zeros(shape, np.uint8))
    ready: queue.Queue[Bytes] = queue.Queue(READ_AHEAD)

    def read() -> None:
        for path in paths:
            batch = free.get()
            with path.open("rb", buffering=0) as file:
                file.readinto(batch.data.cast("B"))
            ready.put(batch)

    thread: threading.Thread | None = None

    def batches() -> Batches:
        nonlocal thread
        thread = threading.Thread(target=read)
        thread.start()
        for _ in paths:
            batch = ready.get()
            yield batch
            free.put(batch)
        thread.join()

    return batches()


# Ours ----------------------------------------------------------------------------------------------------------------


def described(setting: Setting) -> dict[str, Any]:
    """The configuration of our system."""
    steps: list[dict[str, Any]] = [
        {"resize": {"short_side": setting.short_side}},
        {"random_crop": {"shape": [setting.crop, setting.crop]}},
        {"flip": {"flip_prob": 0.5}},
    ]
    return {
        "cache": {
            "store": setting.folder,
            "budget": setting.budget_bytes,
            "epochs_per_generation": setting.generation,
            "seed": setting.seed,
        },
        "dataset": {
            "tag": "train",
            "input_source": "file",
            "video_dataset_path": setting.videos,
            "epochs": setting.epochs,
            "sampling": {
                "videos_per_batch": setting.videos_per_batch,
                "frames_per_video": setting.frames,
                "frame_stride": setting.stride,
                "samples_per_video": setting.samples,
            },
            "augmentation": [
                {
                    "name": "slowfast",
                    "branch_type": "single",
                    "inputs": ["frame"],
                    "outputs": ["augmented"],
                    "config": steps,
                }
            ],
        },
    }


def cached(config: dict[str, Any] | Path) -> Batches:
    """Our system, opened now and closed after its last batch."""
    import viewcache

    cache = viewcache.open(config)
    loader = cache.loader("train")

    def batches() -> Batches:
        with cache:
            for batch in loader.all_epochs():
                yield batch["video"].numpy()
                del batch

    return batches()


SYSTEMS: dict[str, Callable[[Setting], Batches]] = {
    "on demand": lambda setting: _data_loader(_OnDemand(setting)),
    "naive": lambda setting: _data_loader(_Naive(setting)),
    "ideal": _ideal,
    "viewcache": lambda setting: cached(described(setting)),
}
"""Name → what opens the system; the loop starts with the first batch that is asked for."""


# The consumer --------------------------------------------------------------------------------------------------------


def _consume(setting: Setting) -> Run:
    """Read all batches, at a fixed time for each, touching every byte."""
    run = Run()
    batches = SYSTEMS[setting.system](setting)
    steps = -(-len(clips_in(setting.videos)) // setting.videos_per_batch)
    run.ready_wall_s, run.ready_cpu_s = time.perf_counter() - setting.began_s, cpu_seconds()
    for _ in range(setting.epochs):
        with Stopwatch() as watch:
            run.waited_s.append(sum(_step(run, batches, setting.step_s) for _ in range(steps)))
        run.wall_s.append(watch.wall_s)
        run.cpu_s.append(watch.cpu_s)
        run.disk_bytes = max(run.disk_bytes, _disk_bytes(setting.folder))
    with Stopwatch() as watch:
        assert next(batches, None) is None, f"{setting.system} has more batches than it should"
    run.end_cpu_s = watch.cpu_s
    return run


def _step(run: Run, batches: Batches, step_s: float) -> float:
    """One batch; returns the seconds until it came."""
    asked = time.perf_counter()
    batch = next(batches)
    came = time.perf_counter()
    busy = time.thread_time()
    np.bitwise_xor.reduce(batch.reshape(-1).view(np.int64))
    run.consumer_cpu_s += time.thread_time() - busy
    run.clips += len(batch)
    run.pixels += batch.size
    time.sleep(max(came + step_s - time.perf_counter(), 0.0))
    return came - asked


def _disk_bytes(folder: str) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # renamed or evicted meanwhile
    return total


if __name__ == "__main__":
    print(json.dumps(asdict(_consume(Setting(**json.loads(sys.argv[1]))))))
