"""One training over images by one system, in a process of its own: ``python -m benchmarks.image_rivals --one SETTING``.

The rivals of `benchmarks.images` are written as people write them: each resizes, crops, flips, and gives batches of
uint8. CPU is that of this process and of all below it, looked at when the system is opened, at the end of each epoch
and after closing. What rivals need is imported here, and nothing of ours but the harness: an environment that has
torchvision or ffcv, and not viewcache, can run them (``--python`` of the benchmark).
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.harness import cpu_seconds, import_ours
from benchmarks.image_pictures import Arrays, Bytes, OnDemand, OpenCV, Pillow, Setting, listed, small_size

__all__ = [
    "ARRAYS",
    "ARRAYS_HERE",
    "FFCV",
    "FFCV_PART",
    "OPENCV",
    "OURS",
    "PILLOW",
    "SYSTEMS",
    "TORCHVISION",
    "Arrays",
    "OpenCV",
    "Pillow",
    "Setting",
    "Took",
    "described",
    "image_folder",
    "listed",
    "missing",
    "small_size",
]

Batches = Iterator[tuple[Bytes, Bytes]]
"""Pictures, uint8, and their labels; epoch after epoch."""

TORCHVISION, PILLOW = "torchvision's ImageFolder", "PIL, doing as ImageFolder does"
OPENCV = "OpenCV by hand"
ARRAYS, ARRAYS_HERE = "resized arrays by hand", "resized arrays by hand, no workers"
FFCV, FFCV_PART = "ffcv, raw", "ffcv, proportion"
OURS = "viewcache"
WORKERS = 2
JPEG_QUALITY = 90
"""Of the images that ffcv keeps as JPEG."""


@dataclass(slots=True)
class Took:
    """What one run took. Times count from the process's start."""

    refused: str = ""
    """Why the system did not run, or not to its end. The other figures are then of no use."""
    imported_wall_s: float = 0.0
    imported_cpu_s: float = 0.0
    """Interpreter and imports."""
    opened_wall_s: float = 0.0
    opened_cpu_s: float = 0.0
    """When the loop began: opening, scanning, and what a rival makes before its first epoch."""
    batch_wall_s: float = 0.0
    batch_cpu_s: float = 0.0
    """When the first batch was there, if that is all that was read."""
    wall_s: list[float] = field(default_factory=list)
    """At the end of each epoch."""
    cpu_s: list[float] = field(default_factory=list)
    """Spent until the end of each epoch, by all processes, the consumer's included."""
    closed_wall_s: float = 0.0
    closed_cpu_s: float = 0.0
    consumer_cpu_s: float = 0.0
    """Touching every byte, in all epochs together."""
    work: list[tuple[int, int, int]] = field(default_factory=list)
    """Images, bytes, and the sum of the labels of each epoch."""
    disk_bytes: int = 0
    """What the folder held at the end, in blocks of the file system."""
    peak_mb: float = 0.0
    """Most memory of this process, libraries included."""


def _one_thread(worker: int) -> None:
    cv2.setNumThreads(0)  # a forked worker's thread pool is gone; torch says one thread a worker by itself


def _with_workers(dataset: Any, setting: Setting) -> Batches:
    """Batches by a torch DataLoader, whose workers live on from epoch to epoch."""
    order = torch.Generator().manual_seed(setting.seed)
    batches: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=setting.images_per_batch,
        shuffle=True,
        generator=order,
        num_workers=WORKERS,
        persistent_workers=True,
        worker_init_fn=_one_thread,
    )
    for _ in range(max(setting.epochs, 1)):
        for images, labels in batches:
            yield images.numpy(), labels.numpy()


def _in_process(dataset: OnDemand, setting: Setting) -> Batches:
    """Batches without worker processes, into one buffer that is used again: nothing goes between processes."""
    order, size = np.random.default_rng(setting.seed), setting.images_per_batch
    buffer, labels = np.zeros((size, 3, setting.crop, setting.crop), np.uint8), np.asarray(dataset.labels)
    for _ in range(setting.epochs):
        numbers = order.permutation(len(dataset))
        for at in range(0, len(numbers), size):
            taken = numbers[at : at + size]
            for place, number in enumerate(taken.tolist()):
                buffer[place] = dataset.picture(number).numpy()
            yield buffer[: len(taken)], labels[taken]


# Libraries -----------------------------------------------------------------------------------------------------------


def image_folder(setting: Setting) -> Any:
    """The dataset of torchvision, with the steps that are raced."""
    datasets, steps = (importlib.import_module(f"torchvision.{name}") for name in ("datasets", "transforms"))
    transform = [
        steps.Resize(setting.short_side),
        steps.RandomCrop(setting.crop),
        steps.RandomHorizontalFlip(),
        steps.PILToTensor(),
    ]
    return datasets.ImageFolder(setting.images, steps.Compose(transform))


class _Whole(OpenCV):
    """What ffcv writes its file from: whole images, RGB, and their labels."""

    def __getitem__(self, number: int) -> Any:
        image = cv2.imdecode(np.fromfile(self.files[number], np.uint8), cv2.IMREAD_COLOR)
        assert image is not None, self.files[number]
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB), self.labels[number]


def _ffcv(setting: Setting, share: float | None = None) -> Batches:
    """Batches by ffcv, of (B,H,W,3), which spares it the way to planes.

    Crops are in the centre, as it has no random ones, or of a part of any size (`Setting.resized_crop`).

    Args:
        setting: of the run.
        share: of the bytes of raw images that the file may have: so many images are JPEG; None = all are raw.
    """
    fields, loaders, steps, writers = (
        importlib.import_module(f"ffcv.{name}") for name in ("fields", "loader", "transforms", "writer")
    )
    decoders = importlib.import_module("ffcv.fields.decoders")
    whole, path = _Whole(setting), str(Path(setting.folder, "images.beton"))
    small = whole.resized(0)
    how: dict[str, Any] = {"write_mode": "raw", "max_resolution": max(small.shape)}
    if share is not None:
        as_jpeg = len(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]) / small.size
        how |= {"write_mode": "proportion", "jpeg_quality": JPEG_QUALITY}
        how["compress_probability"] = min((1 - share) / (1 - as_jpeg), 1.0)
    written = {"image": fields.RGBImageField(**how), "label": fields.IntField()}
    writers.DatasetWriter(path, written, num_workers=WORKERS).from_indexed_dataset(whole)
    size = (setting.crop, setting.crop)
    if setting.resized_crop:
        crop = decoders.RandomResizedCropRGBImageDecoder(size)
    else:
        crop = decoders.CenterCropRGBImageDecoder(size, setting.crop / setting.short_side)
    loader = loaders.Loader(
        path,
        batch_size=setting.images_per_batch,
        num_workers=WORKERS,
        os_cache=True,
        order=loaders.OrderOption.RANDOM,
        seed=setting.seed,
        drop_last=False,
        pipelines={
            "image": [crop, steps.RandomHorizontalFlip(), steps.ToTensor()],
            "label": [decoders.IntDecoder(), steps.ToTensor(), steps.Squeeze(1)],
        },
    )

    def batches() -> Batches:
        for _ in range(setting.epochs):
            for images, labels in loader:
                yield images.numpy(), labels.numpy()

    return batches()


def _ours(setting: Setting) -> Batches:
    """Our system, opened now and closed after its last batch."""
    import viewcache

    cache = viewcache.open(described(setting))
    loader = cache.loader("train")

    def batches() -> Batches:
        with cache:
            for batch in loader.all_epochs():
                yield batch["image"].numpy(), batch["label"].numpy()
                del batch

    return batches()


def described(setting: Setting) -> dict[str, Any]:
    """The configuration of our system."""
    first = {"branch_type": "single", "inputs": ["frame"], "outputs": ["small"]}
    second = {"branch_type": "single", "inputs": ["small"], "outputs": ["augmented"]}
    crop = "random_resized_crop" if setting.resized_crop else "random_crop"
    drawn = [{crop: {"shape": [setting.crop, setting.crop]}}, {"flip": {"flip_prob": 0.5}}]
    return {
        "cache": {
            "store": str(Path(setting.folder, "store")),
            "budget": setting.budget_bytes,
            "seed": setting.seed,
            "workers": WORKERS,
        },
        "dataset": {
            "tag": "train",
            "image_dataset_path": setting.images,
            "labels": "folders",
            "epochs": max(setting.epochs, 1),
            "sampling": {"images_per_batch": setting.images_per_batch},
            "augmentation": [
                first | {"config": [{"resize": {"short_side": setting.short_side}}]},
                second | {"config": drawn},
            ],
        },
    }


SYSTEMS: dict[str, Callable[[Setting], Batches]] = {
    TORCHVISION: lambda setting: _with_workers(image_folder(setting), setting),
    PILLOW: lambda setting: _with_workers(Pillow(setting), setting),
    OPENCV: lambda setting: _with_workers(OpenCV(setting), setting),
    ARRAYS: lambda setting: _with_workers(Arrays(setting), setting),
    ARRAYS_HERE: lambda setting: _in_process(Arrays(setting), setting),
    FFCV: _ffcv,
    FFCV_PART: lambda setting: _ffcv(setting, 0.3),
    OURS: _ours,
}
"""Name → what opens the system; the loop starts with the first batch that is asked for."""
LIBRARIES = {TORCHVISION: "torchvision", FFCV: "ffcv", FFCV_PART: "ffcv"}
"""System → what it is written for, and may not be there."""


# The consumer --------------------------------------------------------------------------------------------------------


def _train(setting: Setting) -> Took:
    """Import, open, read, close; or say why not."""
    if setting.system == OURS:
        import_ours()
        from viewcache.errors import ViewcacheError

        try:
            return _read(setting)
        except ViewcacheError as error:
            return Took(refused=f"viewcache said: {error}")
    refused = missing(LIBRARIES.get(setting.system, ""))
    return Took(refused=refused) if refused else _read(setting)


def missing(library: str) -> str:
    """Why a library cannot be imported; empty if it can, or if none is named."""
    try:
        if library:
            importlib.import_module(library)
    except (ImportError, OSError, RuntimeError) as error:  # also where it was built for another torch
        return f"{library} is not importable: {error}"
    return ""


def _read(setting: Setting) -> Took:
    """All epochs, or one batch."""
    took, count = Took(), len(listed(setting.images)[0])
    took.imported_wall_s, took.imported_cpu_s = time.perf_counter() - setting.began_s, cpu_seconds()
    batches = SYSTEMS[setting.system](setting)
    took.opened_wall_s, took.opened_cpu_s = time.perf_counter() - setting.began_s, cpu_seconds()
    for _ in range(setting.epochs):
        _epoch(took, batches, count)
        took.wall_s.append(time.perf_counter() - setting.began_s)
        took.cpu_s.append(cpu_seconds())
    if setting.epochs:
        assert next(batches, None) is None, f"{setting.system} has more batches than it should"
    else:
        next(batches)
        took.batch_wall_s, took.batch_cpu_s = time.perf_counter() - setting.began_s, cpu_seconds()
        batches.close()  # type: ignore[attr-defined]  # all are generators
    took.closed_wall_s, took.closed_cpu_s = time.perf_counter() - setting.began_s, cpu_seconds()
    took.disk_bytes = sum(path.lstat().st_blocks * 512 for path in Path(setting.folder).rglob("*"))
    # Not `ru_maxrss`: that begins with what the process had that started this one.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    took.peak_mb = int(status["VmHWM"].split()[0]) / 1024
    return took


def _epoch(took: Took, batches: Batches, count: int) -> None:
    """Read every image once, touching every byte."""
    images = pixels = total = 0
    while images < count:
        batch, labels = next(batches)
        busy = time.thread_time()
        np.bitwise_xor.reduce(batch.reshape(-1).view(np.int64))
        took.consumer_cpu_s += time.thread_time() - busy
        images, pixels, total = images + len(batch), pixels + batch.size, total + int(labels.sum())
    took.work.append((images, pixels, total))


if __name__ == "__main__":
    if sys.argv[1:2] != ["--one"]:
        sys.exit("this is one run of benchmarks.images, which starts it")
    print(json.dumps(asdict(_train(Setting(**json.loads(sys.argv[2]))))))
