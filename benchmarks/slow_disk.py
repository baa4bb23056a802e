"""Whole epochs of images from a disk with a limit: what `viewcache` keeps, beside Liquid's eleven mixes and residents.

Control groups limit what each training reads of the disk, and its page cache, so that an epoch finds little of the one
before in memory, as on a machine whose images are many times its memory. Each training is a process of its own with a
store of its own; all are warmed up, and then take turns, one epoch each a round, in a new order. Wall time counts, so
the load of the machine does, too: look at the ratios within rounds and at their spread.
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
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.groups import Group, group
from benchmarks.harness import ROOT, Aim, Figure, Note, Result, Table, clips_in, cpu_seconds, main
from benchmarks.image_rivals import small_size
from benchmarks.images import KINDS, QUICK, QUICK_SIZE, SIZE, make, pictures_of
from viewcache.api.config.values import parse_size

AUTO, PAGE_CACHE, RESIDENTS = "auto", "all kept, page cache", "all kept, residents"
MIXES = {f"{tenths} : {10 - tenths}": tenths / 10 for tenths in range(11)}
"""Kept : decoded → the share that is kept."""
ENCODED, RAW = next(iter(MIXES)), list(MIXES)[-1]
SHARE = 0.3
"""Of the kept pictures' bytes, that memory has room for: residents, or pages."""
WORKERS, SHORT_SIDE = 2, 256
EPOCHS = 90
"""That a training is said to have: what is kept pays over all of them. It ends when enough of them were read."""
WINDOW = 8
"""Batches that may have been made before an epoch is timed; they are read and not counted."""
PURE, NOISE, MEMORY = 1.15, 0.95, 0.8
"""Aims: of the better pure form's time ÷ auto's, of the best mix's ÷ auto's, of residents ÷ page cache."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One training."""

    name: str
    images: str
    """Folder of the images, in a folder for each class."""
    folder: str
    """An empty folder for its store."""
    group: Mapping[str, Any]
    """The fields of a `Group`."""
    budget_bytes: int
    page_bytes: int
    """Of its page cache."""
    mix: float | None
    """The share of images that is kept; None = `viewcache profile` measures, and `auto` chooses."""
    memory_bytes: int = 0
    """Of a memory tier for residents; 0 = there is none."""
    profile_s: float = 20.0
    warm: int = 3
    """Epochs before the first that is timed."""
    is_favoured: bool = False
    """Whether it has the cores before other processes of the machine."""
    seed: int = 0
    images_per_batch: int = 64
    short_side: int = SHORT_SIDE
    crop: int = 224


@dataclass(slots=True)
class Took:
    """What one training took, an entry a round."""

    kept: float = 0.0
    """Part of the images of which something is kept, in the end."""
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    read_bytes: list[int] = field(default_factory=list)
    """Of the disk."""


class Training:
    """A training in a process of its own, which reads an epoch when it is told to and stands still otherwise.

    So it makes nothing ahead while others are timed, and takes nothing from them.
    """

    def __init__(self, setting: Setting, limits: Group) -> None:
        """Start it, and wait until it is warm.

        Raises:
            RuntimeError: it has ended.
        """
        self.took, self._group = Took(), limits
        command = [sys.executable, "-m", "benchmarks.slow_disk", "--one", json.dumps(asdict(setting))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        self.took.kept = self._said()["kept"]
        limits.pause()

    def epoch(self) -> float:
        """Read one; returns its seconds."""
        assert self._process.stdin is not None
        self._group.resume()
        self._process.stdin.write("epoch\n")
        self._process.stdin.flush()
        said = self._said()
        self._group.pause()
        self.took.kept = said["kept"]
        self.took.wall_s.append(said["wall_s"])
        self.took.cpu_s.append(said["cpu_s"])
        self.took.read_bytes.append(said["read_bytes"])
        return self.took.wall_s[-1]

    def close(self) -> None:
        """End it, and wait until it has."""
        self._group.resume()
        self._process.communicate()

    def _said(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a training has ended with exit code {self._process.wait()}; its words are above")
        said: dict[str, Any] = json.loads(line)
        return said


# The rounds -----------------------------------------------------------------------------------------------------------


def bench(args: Namespace) -> Iterator[Result]:
    """Every kind of image in turn."""
    if args.quick:
        args.images, args.warm, args.profile_seconds = min(args.images, 48), 1, 1.0
    folder = Path(tempfile.mkdtemp(prefix="viewcache-slow-disk-", dir=args.dir))
    try:
        try:
            with group("try", folder, args.device_limit):
                pass
        except OSError as error:
            yield Note(f"not measured: this process cannot limit its disk and its page cache ({error})")
            return
        size = QUICK_SIZE if args.quick else SIZE
        pictures = [*pictures_of(clips_in(args.videos), args.images, size, args.seed)]
        for kind in args.kinds:
            images = folder / kind
            file_bytes = make(pictures, images, kind) / len(pictures)
            yield Note(
                f"{kind}: {len(pictures):,} images of {size[0]} x {size[1]}, {file_bytes:,.0f} bytes each; the disk "
                f"gives {args.device_limit / 1e6:,.0f} MB/s, the page cache has {args.page_cache / 1e6:,.0f} MB"
            )
            yield from answers(_race(images, folder / f"{kind} stores", size, args), kind, args.images)
            shutil.rmtree(images)
    finally:
        shutil.rmtree(folder)


def _race(images: Path, stores: Path, size: tuple[int, int], args: Namespace) -> dict[str, Took]:
    how: dict[str, Any] = {"seed": args.seed, "warm": args.warm, "profile_s": args.profile_seconds}
    how["is_favoured"] = args.favoured
    how |= QUICK if args.quick else {}
    resized = args.images * 3 * int(np.prod(small_size(size[1], size[0], how.get("short_side", SHORT_SIDE))))
    in_memory = int(resized * SHARE)
    mixes: dict[str, float | None] = {AUTO: None, **{name: MIXES[name] for name in args.mixes}}
    if args.residents:
        mixes |= {PAGE_CACHE: 1.0, RESIDENTS: 1.0}
    with ExitStack() as held:
        trainings: dict[str, Training] = {}
        for number, (name, mix) in enumerate(mixes.items()):
            store = stores / str(number)
            store.mkdir(parents=True)
            of = held.enter_context(group(f"disk-{number}", store, args.device_limit))
            fields = {key: value if key == "is_first" else str(value) for key, value in asdict(of).items()}
            page_bytes = args.page_cache + (in_memory if name == PAGE_CACHE else 0)
            # Of a memory tier a part is for what comes next; see `_configuration`.
            memory_bytes = in_memory if name == RESIDENTS else 0
            setting = Setting(
                name, str(images), str(store), fields, 4 * resized + 10**8, page_bytes, mix, memory_bytes, **how
            )
            trainings[name] = Training(setting, of)
            held.callback(trainings[name].close)
            _say(f"{name}: warm, {trainings[name].took.kept:.0%} of the images kept")
        order = random.Random(args.seed)
        for repeat in range(args.repeats):
            for name in order.sample(list(trainings), len(trainings)):
                _say(f"round {repeat}, {name}: {trainings[name].epoch():.2f} s")
        return {name: each.took for name, each in trainings.items()}


def _say(words: str) -> None:
    print(f"{words}; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


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
    """Join the group, be warm, and read an epoch for each line of the standard input."""
    import viewcache

    limits = Group(**{key: Path(value) if key in ("disk", "memory", "cores") else value for key, value in setting.group.items()})
    limits.join()
    if setting.is_favoured:
        limits.favour()
    given = _configuration(setting)
    path = Path(setting.folder, "images.yaml")
    path.write_text(json.dumps(given))  # which is YAML
    if setting.mix is None:
        command = [sys.executable, "-m", "viewcache.api.cli.main", "profile", str(path)]
        subprocess.run(
            [*command, "--seconds", str(setting.profile_s)], check=True, stdout=subprocess.DEVNULL, cwd=ROOT
        )
    with viewcache.open(given) as cache:
        loader = cache.loader("train", framework="numpy")
        batches, length = loader.all_epochs(), len(loader)
        for _ in range(setting.warm * length):
            _touch(next(batches))
        print(json.dumps({"kept": _kept(cache)}), flush=True)
        for _ in sys.stdin:
            limits.limit_page_cache(setting.page_bytes)
            for _ in range(min(WINDOW, length)):
                _touch(next(batches))
            read, cpu_s, begun = limits.read_bytes(), cpu_seconds(), time.perf_counter()
            for _ in range(length):
                _touch(next(batches))
            wall_s = time.perf_counter() - begun
            said = {"wall_s": wall_s, "cpu_s": cpu_seconds() - cpu_s, "read_bytes": limits.read_bytes() - read}
            said["kept"] = _kept(cache)
            print(json.dumps(said), flush=True)


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
    parser.set_defaults(repeats=5)
    parser.add_argument("--device-limit", type=parse_size, default=parse_size("150MB"), help="a second (default 150MB)")
    parser.add_argument(
        "--page-cache", type=parse_size, default=parse_size("64MB"), help="that each training has (default 64MB)"
    )
    parser.add_argument("--videos", type=Path, default=default, help=f"clips that frames are of (default {default})")
    parser.add_argument("--images", type=int, default=1056, help="in the dataset (default 1056)")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=["q90"], help="of images (default q90)")
    parser.add_argument("--mixes", nargs="*", choices=MIXES, default=list(MIXES), help="kept : decoded (default all)")
    parser.add_argument("--no-residents", dest="residents", action="store_false", help="leave out those two")
    parser.add_argument("--warm", type=int, default=3, help="epochs of each before the first round (default 3)")
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
