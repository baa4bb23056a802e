"""Whole epochs of images from a disk with a limit: what `viewcache` keeps, beside Liquid's eleven mixes and residents.

A control group limits what a training reads of the disk, and all files are dropped from memory before each epoch that
is timed, as on a machine whose images are many times its memory. Where the page cache itself is compared, the group
leaves it so much memory instead. Each training is a process of its own with a new store, one after the other in a new
order each round. Wall time counts, so the load of the machine does, too: see ``--favoured``, and the spread.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.groups import Group, group, refusal
from benchmarks.harness import ROOT, Aim, Figure, Note, Result, Table, clips_in, cpu_seconds, main, run_apart
from benchmarks.image_rivals import small_size
from benchmarks.images import KINDS, QUICK, QUICK_SIZE, SIZE, make, pictures_of
from viewcache.api.config.values import parse_size
from viewcache.materializer.profiling.cold import drop
from viewcache.materializer.workers.ahead import Extent

AUTO, PAGE_CACHE, RESIDENTS = "auto", "all kept, page cache", "all kept, residents"
MIXES = {f"{tenths} : {10 - tenths}": tenths / 10 for tenths in range(11)}
"""Kept : decoded → the share that is kept."""
ENCODED, RAW = next(iter(MIXES)), list(MIXES)[-1]
MEMORY_BYTES = 256 << 20
"""For what is on its way, of which a quarter is for blocks that wait for their reader: a few batches."""
GROWTH_BYTES, NO_LIMIT = 32 << 20, 1 << 50
"""What processes may come to need beyond the most that they have needed, where their memory is limited."""
SHARE = 0.3
"""Of the kept pictures' bytes, that memory has room for: residents, or pages."""
WORKERS, SHORT_SIDE = 2, 256
EPOCHS = 90
"""That a training is said to have: what is kept pays over all of them. It ends when enough of them were read."""
PURE, NOISE, MEMORY = 1.15, 0.95, 0.8
"""Aims: of the better pure form's time ÷ auto's, of the best mix's ÷ auto's, of residents ÷ page cache."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One training."""

    images: str
    """Folder of the images, in a folder for each class."""
    folder: str
    """An empty folder for its store."""
    group: Mapping[str, Any]
    """The fields of a `Group`."""
    budget_bytes: int
    page_bytes: int
    """Of its page cache; 0 = files are dropped before each epoch."""
    mix: float | None
    """The share of images that is kept; None = `viewcache profile` measures, and `auto` chooses."""
    memory_bytes: int = 0
    """Of a memory tier for residents; 0 = there is none."""
    profile_s: float = 20.0
    warm: int = 2
    """Epochs before the first that is timed."""
    timed: int = 3
    is_favoured: bool = False
    """Whether it has the cores before other processes of the machine."""
    seed: int = 0
    images_per_batch: int = 64
    short_side: int = SHORT_SIDE
    crop: int = 224


@dataclass(slots=True)
class Took:
    """What one training took, an entry for each epoch of each round."""

    kept: float = 0.0
    """Part of the images of which something is kept, in the end."""
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    read_bytes: list[int] = field(default_factory=list)
    """Of the disk."""


# The rounds -----------------------------------------------------------------------------------------------------------


def bench(args: Namespace) -> Iterator[Result]:
    """Every kind of image in turn."""
    if args.quick:
        args.images, args.epochs, args.settle, args.profile_seconds = min(args.images, 48), 1, 1, 1.0
    folder = Path(tempfile.mkdtemp(prefix="viewcache-slow-disk-", dir=args.dir))
    try:
        if why := refusal(folder, args.device_limit):
            yield Note(f"not measured: this process cannot limit its disk and its page cache ({why})")
            return
        size = QUICK_SIZE if args.quick else SIZE
        pictures = [*pictures_of(clips_in(args.videos), args.images, size, args.seed)]
        for kind in args.kinds:
            images = folder / kind
            file_bytes = make(pictures, images, kind) / len(pictures)
            yield Note(
                f"{kind}: {len(pictures):,} images of {size[0]} x {size[1]}, {file_bytes:,.0f} bytes each; the disk "
                f"gives {args.device_limit / 1e6:,.0f} MB/s"
            )
            yield from answers(_race(images, folder / f"{kind} stores", size, args), kind, args.images)
            shutil.rmtree(images)
    finally:
        shutil.rmtree(folder)


def _race(images: Path, stores: Path, size: tuple[int, int], args: Namespace) -> dict[str, Took]:
    how: dict[str, Any] = {"timed": args.epochs, "profile_s": args.profile_seconds, "is_favoured": args.favoured}
    how |= QUICK if args.quick else {}
    resized = args.images * 3 * int(np.prod(small_size(size[1], size[0], how.get("short_side", SHORT_SIDE))))
    in_memory = int(resized * SHARE)
    mixes: dict[str, float | None] = {AUTO: None, **{name: MIXES[name] for name in args.mixes}}
    if args.residents:
        mixes |= {PAGE_CACHE: 1.0, RESIDENTS: 1.0}
    took = {name: Took() for name in mixes}
    order = random.Random(args.seed)
    for repeat in range(args.repeats):
        for name in order.sample(list(mixes), len(mixes)):
            store = stores / "store"
            store.mkdir(parents=True)
            os.sync()  # what the one before wrote is not written back at this one's cost
            with group("disk", store, args.device_limit) as limits:
                fields = {key: value if key == "is_first" else str(value) for key, value in asdict(limits).items()}
                setting = Setting(
                    str(images),
                    str(store),
                    fields,
                    budget_bytes=4 * resized + 10**8,
                    mix=mixes[name],
                    page_bytes=in_memory if name == PAGE_CACHE else 0,
                    memory_bytes=in_memory if name == RESIDENTS else 0,
                    warm=args.settle if name == AUTO else args.warm,
                    seed=args.seed + repeat,
                    **how,
                )
                found = Took(**run_apart("benchmarks.slow_disk", setting, None, str(store)))
            shutil.rmtree(store)
            took[name].kept = found.kept
            took[name].wall_s += found.wall_s
            took[name].cpu_s += found.cpu_s
            took[name].read_bytes += found.read_bytes
            said = ", ".join(f"{each:.2f}" for each in found.wall_s)
            print(
                f"round {repeat}, {name}: {found.kept:.0%} kept, {said} s; load {os.getloadavg()[0]:.1f}",
                file=sys.stderr,
                flush=True,
            )
    return took


def answers(took: Mapping[str, Took], kind: str, images: int) -> Iterator[Result]:
    """Every training, and what there is an aim for."""
    columns = ("kept, %", "s an epoch", "from", "to", "images/s", "CPU ms an image", "MB of the disk")
    rows = {
        name: (
            round(100 * each.kept, 1),
            *(round(rule(each.wall_s), 3) for rule in (median, min, max)),
            round(images / median(each.wall_s)),
            round(1e3 * median(each.cpu_s) / images, 2),
            round(median(each.read_bytes) / 1e6, 1),
        )
        for name, each in took.items()
    }
    yield Table(f"{kind}: every training", columns, rows)
    mixes = [name for name in MIXES if name in took]
    if {ENCODED, RAW} <= took.keys():
        pure = min((ENCODED, RAW), key=lambda name: median(took[name].wall_s))
        yield _ratio(f"{kind}: the better pure form, {pure}, ÷ auto, wall", took[pure], took[AUTO], Aim(at_least=PURE))
    if mixes:
        best = min(mixes, key=lambda name: median(took[name].wall_s))
        title = f"{kind}: the best of {len(mixes)} mixes, {best}, ÷ auto, wall"
        yield _ratio(title, took[best], took[AUTO], Aim(at_least=NOISE))
        spreads = [max(took[name].wall_s) / min(took[name].wall_s) for name in mixes]
        yield Note(f"{kind}: the slowest epoch of a mix takes {median(spreads):.2f} times its fastest (median of them)")
    if RESIDENTS in took:
        title = f"{kind}: residents of {SHARE:.0%} ÷ as much page cache, wall"
        yield _ratio(title, took[RESIDENTS], took[PAGE_CACHE], Aim(at_most=MEMORY))


def _ratio(title: str, above: Took, below: Took, aim: Aim) -> Figure:
    """The median over the rounds."""
    ratios = tuple(a / b for a, b in zip(above.wall_s, below.wall_s, strict=True))
    return Figure(title, median(ratios), "", aim, ratios)


# One training ---------------------------------------------------------------------------------------------------------


def _train(setting: Setting) -> None:
    """Join the group, be warm, and read epochs as fast as they come."""
    import viewcache

    fields: dict[str, Any] = {
        key: Path(value) if key in ("disk", "memory", "cores") else value for key, value in setting.group.items()
    }
    limits = Group(**fields)
    limits.join()
    if setting.is_favoured:
        limits.favour()
    given = _configuration(setting)
    path = Path(setting.folder, "images.yaml")
    path.write_text(json.dumps(given))  # which is YAML
    if setting.mix is None:
        command = [sys.executable, "-m", "viewcache.api.cli.main", "profile", str(path)]
        subprocess.run([*command, "--seconds", str(setting.profile_s)], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    took, needed = Took(), 0
    with viewcache.open(given) as cache:
        loader = cache.loader("train", framework="numpy")
        batches, length = loader.all_epochs(), len(loader)
        for _ in range(setting.warm * length):
            _touch(next(batches))
            needed = max(needed, limits.needed_bytes())
        os.sync()  # only what was written can be dropped
        if setting.page_bytes:
            limits.limit_memory(needed + GROWTH_BYTES + setting.page_bytes)
        for _ in range(setting.timed):
            if not setting.page_bytes:
                drop(_files(setting))
            read, cpu_s, begun = limits.read_bytes(), cpu_seconds(), time.perf_counter()
            for _ in range(length):
                _touch(next(batches))
            took.wall_s.append(time.perf_counter() - begun)
            took.cpu_s.append(cpu_seconds() - cpu_s)
            took.read_bytes.append(limits.read_bytes() - read)
        limits.limit_memory(NO_LIMIT)  # a query has a process of its own
        took.kept = _kept(cache)
    print(json.dumps(asdict(took)))


def _files(setting: Setting) -> list[Extent]:
    """All files that the training reads."""
    folders = Path(setting.images), Path(setting.folder, "store", "objects")
    return [Extent(str(path)) for folder in folders for path in folder.rglob("*") if path.is_file()]


def _kept(cache: Any) -> float:
    """Part of the images of which something lies in the store."""
    kept = "select count(distinct image) from packs where state = 'ready'"
    share: float = cache.sql(f"select ({kept}) / (select count(*) from images)")[0][0].as_py()
    return share


def _touch(batch: Mapping[str, Any]) -> None:
    """Look at every byte, as a training does."""
    np.bitwise_xor.reduce(batch["image"].reshape(-1).view(np.int64))


def _configuration(setting: Setting) -> dict[str, Any]:
    single = {"branch_type": "single", "inputs": ["frame"], "outputs": ["small"]}
    drawn = [{"random_crop": {"shape": [setting.crop, setting.crop]}}, {"flip": {"flip_prob": 0.5}}]
    tiers: list[dict[str, Any]] = [{"url": str(Path(setting.folder, "store")), "budget": setting.budget_bytes}]
    if setting.memory_bytes:  # its window takes from a tenth of it on, of which there is no use here
        size = setting.memory_bytes
        tiers.append({"url": "memory://", "budget": size + size // 4, "residents": size})
    return {
        "cache": {
            "store": tiers,
            "seed": setting.seed,
            "workers": WORKERS,
            "memory": MEMORY_BYTES,
            "mix": "auto" if setting.mix is None else setting.mix,
        },
        "dataset": {
            "tag": "train",
            "image_dataset_path": setting.images,
            "labels": "folders",
            "epochs": EPOCHS,
            "sampling": {"images_per_batch": setting.images_per_batch},
            "augmentation": [
                single | {"config": [{"resize": {"short_side": setting.short_side}}]},
                single | {"inputs": ["small"], "outputs": ["augmented"], "config": drawn},
            ],
        },
    }


def _arguments(parser: ArgumentParser) -> None:
    default = Path(os.environ.get("VIEWCACHE_TEST_VIDEOS", ROOT.parent / "shared" / "videos")) / "train"
    parser.set_defaults(repeats=1)
    parser.add_argument("--device-limit", type=parse_size, default=parse_size("150MB"), help="a second (default 150MB)")
    parser.add_argument("--videos", type=Path, default=default, help=f"clips that frames are of (default {default})")
    parser.add_argument("--images", type=int, default=1056, help="in the dataset (default 1056)")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=["q90"], help="of images (default q90)")
    parser.add_argument("--mixes", nargs="*", choices=MIXES, default=list(MIXES), help="kept : decoded (default all)")
    parser.add_argument("--no-residents", dest="residents", action="store_false", help="leave out those two")
    parser.add_argument("--epochs", type=int, default=3, help="of a training that are timed (default 3)")
    parser.add_argument("--warm", type=int, default=2, help="epochs before these (default 2)")
    parser.add_argument("--settle", type=int, default=6, help="the same where `auto` looks for its mix (default 6)")
    parser.add_argument("--profile-seconds", type=float, default=20.0, help="of `viewcache profile` (default 20)")
    parser.add_argument(
        "--favoured", action="store_true", help="give trainings the cores before what else the machine does"
    )
    parser.add_argument("--dir", type=Path, help="where images and stores are made (default: the temporary folder)")
    parser.add_argument("--quick", action="store_true", help="few small images: does it all run?")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _train(Setting(**json.loads(sys.argv[2])))
    else:
        main(__doc__, bench, _arguments)
