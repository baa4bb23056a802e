"""Trainings on an accelerator: how much of its time is steps, fed by viewcache and by what people use instead.

Each run is a process of its own: a network of torchvision learns in bf16 from images (beside ImageFolder with a
DataLoader) or from clips (beside PyAV on demand with a DataLoader). What the steps take by themselves, over one batch
that lies on the device, is measured in the same process, behind the last epoch. The loop waits for the device at the
end of an epoch only.
"""

import importlib
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from benchmarks import image_rivals, images, rivals
from benchmarks.harness import ROOT, Note, Result, Stopwatch, Table, clips_in, main, run_apart
from benchmarks.image_pictures import Pillow, listed
from benchmarks.image_pictures import Setting as ImageSetting
from benchmarks.image_rivals import OURS, PILLOW, TORCHVISION, missing

BY_HAND = "viewcache, the loop pins and sends"
WITHIN = "viewcache, no service"
"""``service: off``: what owns the cache is a part of the training's process."""
ON_DEMAND = "PyAV on demand"
IMAGES, CLIPS = "images", "clips"
MINE = (OURS, BY_HAND, WITHIN)
SYSTEMS = {IMAGES: (TORCHVISION, PILLOW, *MINE), CLIPS: (ON_DEMAND, *MINE)}
NETWORKS = {IMAGES: ("resnet18", "resnet50", "small"), CLIPS: ("r3d_18", "small")}
"""``small`` is a few layers of our own, for machines without torchvision or without an accelerator."""
STEPS_ALONE = 30
QUICK: dict[str, Any] = {"short_side": 64, "crop": 56, "frames": 4, "per_batch": 4}
Batch = tuple[torch.Tensor, torch.Tensor]
"""Pixels uint8 (b,C,H,W) or (b,C,T,H,W) and labels int64 (b,), on the device."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One run."""

    system: str
    kind: str
    """``images`` or ``clips``."""
    network: str
    data: str
    """The folder of images or videos."""
    folder: str = ""
    """An empty one, for what viewcache stores."""
    device: str = "cuda"
    epochs: int = 5
    workers: int = 2
    per_batch: int = 256
    """Images, or clips."""
    samples: int = 4
    """Clips of a video in an epoch."""
    frames: int = 16
    stride: int = 2
    short_side: int = 256
    crop: int = 224
    seed: int = 0


@dataclass(slots=True)
class Took:
    """What one run took."""

    refused: str = ""
    """Why there was none."""
    opened_s: float = 0.0
    wall_s: list[float] = field(default_factory=list)
    """Of each epoch, until the device was through with it; with opening in the first."""
    cpu_s: list[float] = field(default_factory=list)
    """Of all processes."""
    waited_s: list[float] = field(default_factory=list)
    """Of the wall time, until batches came."""
    samples: list[int] = field(default_factory=list)
    alone_s: float = 0.0
    """A step over a batch that lies on the device, by itself."""
    batches: int = 0
    """In an epoch."""


# What feeds it -------------------------------------------------------------------------------------------------------


def _feed(setting: Setting, beside: list[Callable[[], float]]) -> Iterator[Batch]:
    """Batches of all epochs, one after the other; ``beside`` is told of CPU seconds that are not this process's."""
    if setting.system in MINE:
        yield from _ours(setting, beside)
        return
    loader = _loaded(setting)
    for epoch in range(setting.epochs):
        if isinstance(loader.batch_sampler, rivals._Order):
            loader.batch_sampler.epoch = epoch
        for pixels, labels in loader:
            yield pixels.to(setting.device, non_blocking=True), labels.to(setting.device, non_blocking=True)


def _loaded(setting: Setting) -> DataLoader[Any]:
    """A DataLoader as people write it, with pinned memory where that is of use."""
    options: dict[str, Any] = {
        "num_workers": setting.workers,
        "persistent_workers": True,
        "pin_memory": torch.accelerator.is_available(),
    }
    if setting.kind == CLIPS:
        clips = rivals._OnDemand(_as_rival(setting))
        order = rivals._Order(clips.setting, len(clips.videos))
        options |= {"batch_sampler": order, "collate_fn": _clips_in_batch}
        return DataLoader(clips, **options)  # type: ignore[arg-type]  # a map-style dataset by its methods
    options |= {"batch_size": setting.per_batch, "shuffle": True, "drop_last": True}
    dataset: Callable[[ImageSetting], Any] = Pillow if setting.system == PILLOW else image_rivals.image_folder
    return DataLoader(dataset(_as_image_setting(setting)), **options)


def _clips_in_batch(clips: list[Any]) -> Batch:
    """(b,C,T,H,W), as a 3D network takes them; which label it is makes no difference."""
    pixels = torch.stack([torch.from_numpy(clip) for clip in clips]).permute(0, 4, 1, 2, 3)
    return pixels, torch.zeros(len(clips), dtype=torch.int64)


def _as_rival(setting: Setting) -> rivals.Setting:
    return rivals.Setting(
        ON_DEMAND,
        setting.data,
        setting.folder,
        0.0,
        budget_bytes=64 * 10**9,
        seed=setting.seed,
        epochs=setting.epochs,
        videos_per_batch=max(setting.per_batch // setting.samples, 1),
        samples=setting.samples,
        frames=setting.frames,
        stride=setting.stride,
        short_side=setting.short_side,
        crop=setting.crop,
    )


def _as_image_setting(setting: Setting) -> ImageSetting:
    return ImageSetting(
        setting.system,
        setting.data,
        setting.folder,
        budget_bytes=64 * 10**9,
        seed=setting.seed,
        epochs=setting.epochs,
        images_per_batch=setting.per_batch,
        short_side=setting.short_side,
        crop=setting.crop,
    )


def _ours(setting: Setting, beside: list[Callable[[], float]]) -> Iterator[Batch]:
    import viewcache

    if setting.kind == IMAGES:
        config = image_rivals.described(_as_image_setting(setting))
        options: dict[str, Any] = {}
    else:
        config = rivals.described(_as_rival(setting))
        options = {"layout": "CTHW"}
    config["cache"]["workers"] = setting.workers
    config["dataset"]["drop_last"] = True
    options |= {"pin_memory": True} if setting.system == BY_HAND else {"device": setting.device}
    name = "image" if setting.kind == IMAGES else "video"
    service = "off" if setting.system == WITHIN else "auto"
    with viewcache.open(config, service=service) as cache:
        if service == "auto":  # it is nobody's child
            beside.append(lambda: cache.stats().cpu_s)  # type: ignore[attr-defined]  # of an attached one
        for batch in cache.loader("train", **options).all_epochs():
            pixels, labels = batch[name], batch["label"].clamp(min=0)
            del batch
            if setting.system == BY_HAND:
                pixels, labels = (each.to(setting.device, non_blocking=True) for each in (pixels, labels))
            yield pixels, labels
            del pixels, labels


# What it learns ------------------------------------------------------------------------------------------------------


def _network(setting: Setting) -> nn.Module:
    if setting.network == "small":
        wide, pool = (nn.Conv2d, nn.AdaptiveAvgPool2d) if setting.kind == IMAGES else (nn.Conv3d, nn.AdaptiveAvgPool3d)
        return nn.Sequential(wide(3, 16, 7, stride=4, padding=3), nn.ReLU(), pool(1), nn.Flatten(), nn.Linear(16, 1000))
    models = importlib.import_module("torchvision.models" if setting.kind == IMAGES else "torchvision.models.video")
    made: nn.Module = getattr(models, setting.network)()
    return made


def _step(setting: Setting) -> Callable[[Batch], None]:
    """One step of training, started and not waited for."""
    layout = torch.channels_last if setting.kind == IMAGES else torch.channels_last_3d
    network = _network(setting).to(setting.device, memory_format=layout)  # type: ignore[call-overload]  # a string, too
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    kind = torch.device(setting.device).type

    def step(batch: Batch) -> None:
        pixels, labels = batch
        with torch.autocast(kind, torch.bfloat16):
            seen = (pixels.to(torch.bfloat16) / 127.5 - 1).contiguous(memory_format=layout)
            loss = nn.functional.cross_entropy(network(seen), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        optimizer.step()

    return step


def _wait() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _train(setting: Setting) -> Took:
    """All epochs, then steps alone."""
    if (setting.system == TORCHVISION or setting.network != "small") and (refused := missing("torchvision")):
        return Took(refused=refused)
    torch.set_num_threads(1)
    took, step = Took(), _step(setting)
    pixels = (
        (3, setting.crop, setting.crop) if setting.kind == IMAGES else (3, setting.frames, setting.crop, setting.crop)
    )
    there = torch.randint(256, (setting.per_batch, *pixels), dtype=torch.uint8, device=setting.device)
    fake = there, torch.zeros(setting.per_batch, dtype=torch.int64, device=setting.device)
    for _ in range(3):  # kernels are chosen and compiled
        step(fake)
    _wait()
    count = len(listed(setting.data)[0]) if setting.kind == IMAGES else len(clips_in(setting.data)) * setting.samples
    took.batches = count // setting.per_batch
    opening = time.perf_counter()
    beside: list[Callable[[], float]] = []
    batches, others_s = _feed(setting, beside), 0.0
    for _ in range(setting.epochs):
        waited, seen = 0.0, 0
        with Stopwatch() as watch:
            for _ in range(took.batches):
                asked = time.perf_counter()
                batch = next(batches)
                waited += time.perf_counter() - asked
                took.opened_s = took.opened_s or time.perf_counter() - opening
                seen += len(batch[0])
                step(batch)
                del batch
            _wait()
        took.wall_s.append(watch.wall_s)
        before_s, others_s = others_s, sum(each() for each in beside)
        took.cpu_s.append(watch.cpu_s + others_s - before_s)
        took.waited_s.append(waited)
        took.samples.append(seen)
    assert next(batches, None) is None, f"{setting.system} has more batches than it should"
    begun = time.perf_counter()
    for _ in range(STEPS_ALONE):
        step(fake)
    _wait()
    took.alone_s = (time.perf_counter() - begun) / STEPS_ALONE
    return took


# The runs ------------------------------------------------------------------------------------------------------------


def bench(args: Namespace) -> Iterator[Result]:
    """Images, then clips; all systems in each round, in a new order."""
    if not torch.accelerator.is_available() and args.device != "cpu":
        yield Note(f"this machine has no accelerator, so that nothing is measured on {args.device!r}")
        return
    folder = Path(tempfile.mkdtemp(prefix="viewcache-accelerator-", dir=args.dir))
    base = Setting("", "", "", "", device=args.device, epochs=args.epochs, workers=args.workers)
    try:
        if args.images:
            data = folder / IMAGES
            clips = clips_in(args.videos)
            distinct = min(args.images, args.distinct)
            images.make([*images.pictures_of(clips, distinct, images.SIZE, args.seed)], data, "q90")
            _repeat(data, args.images)
            setting = replace(base, kind=IMAGES, data=str(data), per_batch=args.images_per_batch)
            yield from _race(setting, args)
            shutil.rmtree(data)
        if args.clips:
            data = folder / CLIPS
            data.mkdir()
            for clip in clips_in(args.videos):
                for number in range(-(-args.clips // (base.samples * len(clips_in(args.videos))))):
                    shutil.copy(clip, data / f"{clip.stem}_{number:03}{clip.suffix}")
            small = {"short_side": 128, "crop": 112, "per_batch": args.clips_per_batch}
            yield from _race(replace(base, kind=CLIPS, data=str(data), **small), args)
    finally:
        shutil.rmtree(folder)


def _repeat(data: Path, count: int) -> None:
    """More names of images, as links, until there are so many."""
    files = sorted(path for path in data.rglob("*") if path.is_file())
    for number in range(len(files), count):
        file = files[number % len(files)]
        os.link(file, file.with_name(f"{number:06}{file.suffix}"))


def _race(base: Setting, args: Namespace) -> Iterator[Result]:
    base = replace(base, **QUICK) if args.quick else base
    order = random.Random(args.seed)
    for network in (each for each in args.networks if each in NETWORKS[base.kind]):
        took: dict[str, list[Took]] = {name: [] for name in SYSTEMS[base.kind] if name in args.systems}
        for repeat in range(args.repeats):
            for name in order.sample(list(took), len(took)):
                setting = replace(base, system=name, network=network, seed=args.seed + repeat)
                os.sync()
                run = Took(**run_apart("benchmarks.accelerator", setting, args.dir))
                if run.refused:
                    yield Note(f"{name}, {network}, does not run: {run.refused}")
                    del took[name]
                    continue
                took[name].append(run)
                said = f"{_rate(run):,.0f} {base.kind}/s in later epochs, {_busy(run):.0%} of the time steps"
                epochs = " ".join(f"{wall:.2f}" for wall in run.wall_s)
                print(f"{network}, round {repeat}, {name}: {said}; epochs {epochs} s", file=sys.stderr, flush=True)
        if took:
            yield _account(f"{base.kind}, {network}, batches of {base.per_batch}, {base.workers} workers", took)


def _rate(run: Took) -> float:
    """Samples a second in epochs after the first."""
    return sum(run.samples[1:]) / sum(run.wall_s[1:])


def _busy(run: Took) -> float:
    """Share of the time of later epochs that their steps take by themselves."""
    return run.alone_s * run.batches * (len(run.wall_s) - 1) / sum(run.wall_s[1:])


def _account(title: str, took: dict[str, list[Took]]) -> Table:
    columns: dict[str, Callable[[Took], float]] = {
        "steps alone, a second": lambda run: run.samples[-1] / run.batches / run.alone_s,
        "first epoch with opening, a second": lambda run: run.samples[0] / run.wall_s[0],
        "later epochs, a second": _rate,
        "of their time steps, %": lambda run: 100 * _busy(run),
        "loop waits, %": lambda run: 100 * sum(run.waited_s[1:]) / sum(run.wall_s[1:]),
        "first epoch, CPU ms each": lambda run: 1e3 * run.cpu_s[0] / run.samples[0],
        "later epochs, CPU ms each": lambda run: 1e3 * sum(run.cpu_s[1:]) / sum(run.samples[1:]),
        "first batch, s": lambda run: run.opened_s,
    }
    rows = {
        name: tuple(round(statistics.median(map(value, runs)), 2) for value in columns.values())
        for name, runs in took.items()
    }
    return Table(title, tuple(columns), rows)


def arguments(parser: ArgumentParser) -> None:
    """Sizes, and what runs."""
    default = Path(os.environ.get("VIEWCACHE_TEST_VIDEOS", ROOT.parent / "shared" / "videos")) / "train"
    every = list(dict.fromkeys(name for names in SYSTEMS.values() for name in names))
    networks = list(dict.fromkeys(name for names in NETWORKS.values() for name in names))
    usual = [name for name in networks if name != "small"]
    parser.set_defaults(repeats=2)
    parser.add_argument("--videos", type=Path, default=default, help=f"clips that all is made of (default {default})")
    parser.add_argument("--images", type=int, default=16384, help="in the dataset, 0 for none (default 16384)")
    parser.add_argument("--distinct", type=int, default=1024, help="of them; others are links to these (default 1024)")
    parser.add_argument("--clips", type=int, default=2048, help="in an epoch at least, 0 for none (default 2048)")
    parser.add_argument("--images-per-batch", type=int, default=256, help="(default 256)")
    parser.add_argument("--clips-per-batch", type=int, default=32, help="(default 32)")
    parser.add_argument("--epochs", type=int, default=11, help="of each run (default 11: three generations)")
    parser.add_argument("--networks", nargs="*", choices=networks, default=usual, help="(default: torchvision's)")
    parser.add_argument("--systems", nargs="*", choices=every, default=every, help="which run (default all)")
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="of each system (default: one per core)"
    )
    parser.add_argument("--device", default="cuda", help="that learns (default cuda)")
    parser.add_argument("--dir", type=Path, help="where data and stores are made (default: the temporary folder)")
    parser.add_argument("--quick", action="store_true", help="small pictures and batches: does it all run?")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(asdict(_train(Setting(**json.loads(sys.argv[2]))))))
    else:
        main(__doc__, bench, arguments)
