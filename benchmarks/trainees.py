"""Trainings that `benchmarks.search` measures, each a process: fed by a service, a cache, a loader, or in lock step.

A training touches every byte of a batch and then either sleeps until its step is over, or takes a step of a small 3D
network on one thread. It says when it is ready, waits for the word to begin, and tells at its end what it took.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lockstep import Desk, taken
from benchmarks.rivals import Batches, Bytes, Setting, _data_loader, _OnDemand

__all__ = ["APART", "FEEDS", "LOCK_STEP", "ON_DEMAND", "SERVICE", "Job", "Took", "described", "setting_of", "train"]

SERVICE, APART = "one service for all", "a cache for each"
LOCK_STEP, ON_DEMAND = "one loader in lock step", "on demand"
FEEDS = (SERVICE, APART, LOCK_STEP, ON_DEMAND)


@dataclass(frozen=True, slots=True)
class Job:
    """One training."""

    name: str
    feed: str
    """One of `FEEDS`."""
    videos: str
    folder: str
    """For what the feed stores."""
    number: int = 0
    """Among the trainings of a run."""
    seed: int = 0
    epochs: int = 5
    generation: int = 5
    """Epochs that viewcache plans at once (k)."""
    budget_bytes: int = 2 * 10**9
    videos_per_batch: int = 4
    samples: int = 2
    frames: int = 32
    stride: int = 2
    short_side: int = 256
    crop: int = 224
    where: str = ""
    """Which videos, in SQL; all if empty. Then the task has the job's name."""
    step_s: float = 1.0
    """Seconds that a step takes; 0 = a step of the network, as long as that takes."""


@dataclass(slots=True)
class Took:
    """What one training took, from the word to begin to the end of closing."""

    wall_s: float = 0.0
    """Of all epochs."""
    first_s: float = 0.0
    """Of the first of them, in which nothing is there yet."""
    waited_s: float = 0.0
    """Of that, until batches came."""
    own_s: float = 0.0
    """What its steps take by themselves; of the network, took."""
    own_first_s: float = 0.0
    """Of that, in the first epoch."""
    batches: int = 0
    clips: int = 0
    memory_mb: float = 0.0
    """Most that this process held, torch included."""
    service_cpu_s: tuple[float, float] = (0.0, 0.0)
    """Of the service and its workers: until the training was ready, and until its end."""
    work: dict[str, float] = field(default_factory=dict)
    """What the workers of the service have done until then."""

    @property
    def later(self) -> float:
        """The epochs after the first ÷ what their steps take by themselves."""
        return (self.wall_s - self.first_s) / (self.own_s - self.own_first_s)


def train(job: Job, line: Connection, desk: Desk | None = None) -> None:
    """The main function of a training's process.

    It says ``ready``, waits for the word to begin, says ``half`` an epoch and what it took, and waits for the end.
    """
    took = Took()
    with ExitStack() as ends:
        batches, per_epoch = _opened(job, desk, took, ends)
        step = _network(job) if job.step_s == 0 else _touch
        line.send("ready")
        line.recv()
        begun = time.perf_counter()
        while (came := _next(batches, took)) is not None:
            own = time.perf_counter()
            step(came)
            del came
            time.sleep(max(own + job.step_s - time.perf_counter(), 0.0))
            took.own_s += job.step_s or time.perf_counter() - own
            took.batches += 1
            if took.batches == max(per_epoch // 2, 1):
                line.send("half")
            if took.batches == per_epoch:
                took.first_s, took.own_first_s = time.perf_counter() - begun, took.own_s
        took.wall_s = time.perf_counter() - begun
    took.memory_mb = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    line.send(took)
    line.recv()


def _next(batches: Batches, took: Took) -> Bytes | None:
    asked = time.perf_counter()
    batch = next(batches, None)
    if batch is not None:
        took.waited_s += time.perf_counter() - asked
        took.clips += len(batch)
    return batch


def _touch(batch: Bytes) -> None:
    np.bitwise_xor.reduce(batch.reshape(-1).view(np.int64))


def _network(job: Job) -> Callable[[Bytes], None]:
    """A step of training a small 3D network on one thread."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    model = nn.Sequential(
        nn.Conv3d(3, 16, (3, 7, 7), (2, 4, 4)), nn.ReLU(), nn.Conv3d(16, 32, 3, 2), nn.ReLU(),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(32, 8),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Bytes) -> None:
        order = (0, 4, 1, 2, 3) if batch.shape[-1] == 3 else (0, 2, 1, 3, 4)
        video = torch.from_numpy(batch).permute(order).float() / 255
        loss = nn.functional.cross_entropy(model(video), torch.zeros(len(batch), dtype=torch.int64))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch gives it no types
        optimizer.step()

    return step


# Feeds ---------------------------------------------------------------------------------------------------------------


def _opened(job: Job, desk: Desk | None, took: Took, ends: ExitStack) -> tuple[Batches, int]:
    """The batches of a training, clips first, and how many there are in an epoch."""
    if job.feed in (SERVICE, APART):
        return _cached(job, took, ends)
    setting = setting_of(job)
    dataset = _OnDemand(setting)
    per_epoch = -(-len(dataset.videos) // job.videos_per_batch)
    if job.feed == ON_DEMAND:
        return _data_loader(dataset), per_epoch
    assert desk is not None
    return taken(desk, job.number), per_epoch


def setting_of(job: Job) -> Setting:
    """The same for the loaders that `benchmarks.epoch` races."""
    return Setting(
        job.feed, job.videos, job.folder, 0.0, seed=job.seed, epochs=job.epochs, videos_per_batch=job.videos_per_batch,
        samples=job.samples, frames=job.frames, stride=job.stride, short_side=job.short_side, crop=job.crop,
    )  # fmt: skip


def described(job: Job) -> dict[str, Any]:
    """Its configuration; the store is the job's own where each has a cache."""
    steps = [
        {"resize": {"short_side": job.short_side}},
        {"random_crop": {"shape": [job.crop, job.crop]}},
        {"flip": {"flip_prob": 0.5}},
    ]
    return {
        "cache": {
            "store": job.folder if job.feed == SERVICE else f"{job.folder}/{job.name}",
            "budget": job.budget_bytes,
            "epochs_per_generation": job.generation,
            "seed": job.seed,
            "service_idle": 600,
        },
        "dataset": {
            "tag": job.name if job.where else "train",
            "video_dataset_path": job.videos,
            **({"where": job.where} if job.where else {}),
            "epochs": job.epochs,
            "sampling": {
                "videos_per_batch": job.videos_per_batch,
                "frames_per_video": job.frames,
                "frame_stride": job.stride,
                "samples_per_video": job.samples,
            },
            "augmentation": [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": steps}],
        },
    }


def _cached(job: Job, took: Took, ends: ExitStack) -> tuple[Batches, int]:
    import viewcache

    if job.feed == APART:
        cache: Any = ends.enter_context(viewcache.open(described(job), service="off"))
    else:
        cache = ends.enter_context(viewcache.open(described(job), service="auto", job="" if job.where else job.name))
        ready_s = cache.stats().cpu_s

        def tell() -> None:
            stats = cache.stats()
            took.service_cpu_s, took.work = (ready_s, stats.cpu_s), dict(cache.snapshot().work)

        ends.callback(tell)
    loader = cache.loader(cache.tasks[0])
    return _pixels(loader), len(loader)


def _pixels(loader: Any) -> Iterator[Any]:
    for batch in loader.all_epochs():
        yield batch["video"].numpy()
        del batch
