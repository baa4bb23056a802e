"""What is kept where a disk is as scarce as cores: one form, the best of Liquid's eleven mixes, or each item by price.

A model: nothing is timed in it. Its costs were measured once on the machine of docs/benchmarks.md, for images of
500x375 that are resized to 256: what reading the file and decoding takes of a core, and what the kept picture takes. An
epoch takes as long as the cores together or the disk, whichever is longer. A mix is drawn at random for each share, as
Liquid makes its copies and as ``compress_probability`` of FFCV does. At last kept pictures may be packed: all by one
codec, or each by its own, chosen as a worker does it by the prices of the balance before.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Aim, Figure, Result, main
from viewcache.materializer.retention.balance import balance, times_of
from viewcache.materializer.retention.choice import Options, WayChoice
from viewcache.materializer.storage.codecs import Rates, costs_of
from viewcache.store.codec_choice import CodecTable
from viewcache.store.tier import LOCAL

SOURCE, RAW = 0, 1
RAW_BYTES, RAW_S = 262e3, 0.085e-3
"""Of a resized picture: bytes, and core seconds to load it."""

SPREAD = 0.6
"""Sigma of the log-normal sizes of ImageNet's files, about."""


@dataclass(frozen=True, slots=True)
class Form:
    """Files of one kind."""

    file_bytes: float
    decode_s: float
    """Core seconds to read, decode and resize one."""


FORMS = {"q98": Form(121e3, 2.28e-3), "q90": Form(41e3, 1.18e-3), "png": Form(241e3, 4.1e-3)}

ALIKE = (("q98", 2, 200), ("q98", 2, 400), ("q98", 8, 800), ("q90", 2, 400), ("q90", 2, 800), ("png", 2, 200))
"""Form, cores, MB/s of the disk."""

SPREAD_OUT = (("q98", 2, 200, 1.0), ("q98", 2, 400, 1.0), ("q98", 8, 400, 1.0), ("q98", 2, 400, 0.3))
"""The same, and the part of all pictures for which there is room."""

PACKED = {"raw": (0.0, 0.055e-3), "lz4": (0.3e-3, 0.11e-3), "zstd1": (0.8e-3, 0.33e-3)}
"""Core seconds to pack a resized picture, and to read it without what cropping takes."""

CONTENTS = {"noise": (1.0, 1.0, 1.0), "photographs": (1.0, 0.80, 0.68), "drawings": (1.0, 0.12, 0.06)}
"""What these codecs leave of a resized picture; as many images are of each kind."""

EPOCHS = 10
"""That read what is packed once."""

ROUNDS = 4
"""In which what is kept is chosen again, by what packing has made of it, and packed by the prices of that."""


def bench(args: Namespace) -> Iterator[Result]:
    """Images that are all alike, then images of different sizes."""
    rng = np.random.default_rng(args.seed)
    for name, cores, speed in ALIKE:
        graph = _options(FORMS[name], np.ones(args.images), cores, speed)
        yield from _rates(f"{name}, {cores} cores, {speed} MB/s", graph, 1.0, rng)
    sizes = rng.lognormal(-(SPREAD**2) / 2, SPREAD, args.images)
    for name, cores, speed, room in SPREAD_OUT:
        graph = _options(FORMS[name], sizes, cores, speed)
        title = f"{name} of different sizes, {cores} cores, {speed} MB/s, room for {room:.0%}"
        yield from _rates(title, graph, room, rng)

    for name, cores, speed, room in SPREAD_OUT:
        title = f"{name} of three kinds, {cores} cores, {speed} MB/s, room for {room:.0%}"
        yield _codecs(title, FORMS[name], sizes, cores, speed, room, rng)


def _options(form: Form, size: NDArray[np.float64], cores: int, speed: float) -> Options:
    """Images of some sizes, relative to the mean: what the file takes grows with it, the resized picture does not."""
    count = len(size)
    core_s = np.stack([form.decode_s * size, np.full(count, RAW_S)], axis=1)
    device_s = np.stack([form.file_bytes * size, np.full(count, RAW_BYTES)], axis=1) / (speed * 1e6)
    kept = np.tile(np.array([0, RAW_BYTES], np.int64), (count, 1))
    return Options(kept, core_s, core_s, RAW, SOURCE, {LOCAL: device_s}, cores)


def _rates(title: str, graph: Options, room: float, rng: np.random.Generator) -> Iterator[Result]:
    count = len(graph.bytes)
    budget = int(graph.bytes[:, RAW].sum() * room)

    def rate(option: NDArray[np.int64]) -> float:
        return count / times_of(graph, option).seconds

    mixes = {}
    for tenths in (each for each in range(11) if each <= 10 * room + 1e-9):
        drawn = rng.permutation(count) < count * tenths // 10
        mixes[tenths] = rate(np.where(drawn, RAW, SOURCE))
    best = max(mixes, key=mixes.__getitem__)
    option = balance(graph, budget).option
    ours = rate(option)
    held = f"raw only {mixes[10]:,.0f}" if 10 in mixes else "raw only is over the budget"
    yield Figure(
        f"{title}: images/s by price ÷ best mix",
        ours / mixes[best],
        f"({ours:,.0f}, {(option == RAW).mean():.0%} kept; mix {best}:{10 - best} {mixes[best]:,.0f}; "
        f"source only {mixes[0]:,.0f}, {held})",
        Aim(at_least=1.0),
    )


def _codecs(
    title: str, form: Form, sizes: NDArray[np.float64], cores: int, speed: float, room: float, rng: np.random.Generator
) -> Figure:
    """One codec for each picture against the best one for all."""
    kind = rng.integers(0, len(CONTENTS), len(sizes))
    left = np.array(list(CONTENTS.values()))[kind]  # (images, codecs)
    pack_s, load_s = np.array(list(PACKED.values())).T
    kept, plain = left * RAW_BYTES, _options(form, sizes, cores, speed)
    core_s = pack_s / EPOCHS + load_s + (RAW_S - load_s[0])
    budget = int(len(sizes) * RAW_BYTES * room)

    def graph(codec: NDArray[np.int64]) -> Options:
        mine = np.take_along_axis(kept, codec[:, None], axis=1)[:, 0]
        cost_s = np.stack([plain.cost_s[:, SOURCE], core_s[codec]], axis=1)
        device_s = np.stack([plain.device_s[LOCAL][:, SOURCE], mine / (speed * 1e6)], axis=1)
        size = np.stack([np.zeros(len(mine)), mine], axis=1).astype(np.int64)
        return replace(plain, bytes=size, cost_s=cost_s, work_s=cost_s, device_s={LOCAL: device_s})

    def rate(codec: NDArray[np.int64]) -> float:
        options = graph(codec)
        return len(sizes) / times_of(options, balance(options, budget).option).seconds

    fixed = {name: rate(np.full(len(sizes), place)) for place, name in enumerate(PACKED)}
    best = max(fixed, key=fixed.__getitem__)
    own = np.zeros(len(sizes), np.int64)
    for _ in range(ROUNDS):
        options = graph(own)
        own = _by_prices(options, balance(options, budget), budget, speed, left)
    ours = rate(own)
    shares = ", ".join(f"{name} {(own == place).mean():.0%}" for place, name in enumerate(PACKED))
    each = ", ".join(f"{name} {found:,.0f}" for name, found in fixed.items())
    return Figure(
        f"{title}: images/s by codec per object ÷ best codec for all",
        ours / fixed[best],
        f"({ours:,.0f}, {shares}; for all {each})",
        Aim(at_least=1.0),
    )


def _by_prices(
    options: Options, choice: WayChoice, budget: int, speed: float, left: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The codec that each picture gets by the prices of what is kept, which is how `CodecChooser` reckons."""
    image = np.arange(len(left))
    size, cost_s = options.bytes[image, choice.option], options.cost_s[image, choice.option]
    byte_s = 0.0
    if ((options.cost_s < cost_s[:, None]) & (options.bytes - size[:, None] > budget - choice.bytes)).any():
        saved = options.cost_s[:, SOURCE] - cost_s
        byte_s = max(0.0, float((saved[size > 0] / size[size > 0]).min()))
    names: Sequence[str] = list(PACKED)
    rates = {
        name: Rates(pack_s / RAW_BYTES, load_s / RAW_BYTES + PACKED["raw"][1] / RAW_BYTES * (1 if place else 0), 1.0)
        for place, (name, (pack_s, load_s)) in enumerate(PACKED.items())
    }
    read_s = choice.device_price.get(LOCAL, 0.0) / (speed * 1e6)
    table = CodecTable(
        tuple(
            replace(each, ratio=1.0 if each.codec == "raw" else None)
            for each in costs_of(rates, uses=1.0, byte_s=byte_s, read_s=read_s, generations=EPOCHS).values()
        )
    )
    chosen = {
        tuple(ratios): names.index(table.cheapest(dict(zip(names[1:], ratios[1:], strict=True))))
        for ratios in np.unique(left, axis=0).tolist()
    }
    return np.array([chosen[tuple(ratios)] for ratios in left.tolist()], np.int64)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=20_000, help="in the model (default 20000)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
