"""What is kept where a disk is as scarce as cores: one form, the best of Liquid's eleven mixes, or each item by price.

A model: nothing is timed in it. Its costs were measured once on the machine of docs/benchmarks.md, for images of
500x375 that are resized to 256: what reading the file and decoding takes of a core, and what the kept picture takes. An
epoch takes as long as the cores together or the disk, whichever is longer. A mix is drawn at random for each share, as
Liquid makes its copies and as ``compress_probability`` of FFCV does.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Aim, Figure, Result, main
from viewcache.materializer.retention.balance import balance, times_of
from viewcache.materializer.retention.choice import Options
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


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=20_000, help="in the model (default 20000)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
