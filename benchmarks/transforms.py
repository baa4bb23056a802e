"""What viewcache adds to a transform of one's own: the operation beside the bare call, on one clip, in turns.

The bare call is what the operation does inside: the transform on the same clip, with a generator of the same seed. What
lies between is reading parameters, seeding, and looking at what came out.
"""

import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import Aim, Figure, Result, main
from viewcache.materializer.ops.transforms import Transform
from viewcache.ops import transform

Clip = NDArray[np.uint8]
SEED = 5


def bench(args: Namespace) -> Iterator[Result]:
    """Each kind of transform."""
    clip = np.random.default_rng(0).integers(0, 256, (32, 3, 224, 224), np.uint8)
    for name, (op, bare) in _kinds().items():
        rounds = [_round(op, bare, clip, args.calls) for _ in range(args.repeats)]
        more = tuple(1000 * (whole - alone) for whole, alone in rounds)
        yield Figure(f"{name}: bare call", 1000 * statistics.median(alone for _, alone in rounds), "ms a clip")
        yield Figure(f"{name}: more than the bare call", statistics.median(more), "ms a clip", Aim(at_most=0.2), more)


def _round(op: Transform, bare: Callable[[Clip], object], clip: Clip, calls: int) -> tuple[float, float]:
    """Median seconds of a call, as an operation and bare; the two take turns."""
    row = np.array([0, SEED], np.int32) if op.columns else np.zeros(0, np.int32)
    params = op.parse({})
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(calls):
        both: tuple[Callable[[Clip], object], ...] = partial(op.run_clip, params, row), bare
        for seconds, call in zip(took, both, strict=True):
            began = time.perf_counter()
            call(clip)
            seconds.append(time.perf_counter() - began)
    whole, alone = map(statistics.median, took)
    return whole, alone


def _kinds() -> dict[str, tuple[Transform, Callable[[Clip], object]]]:
    def inverted(clip: Clip) -> Clip:
        return 255 - clip

    def grain(clip: Clip, rng: np.random.Generator, strength: int = 8) -> Clip:
        return np.asarray(clip + rng.integers(0, strength, clip.shape[-2:], np.uint8))

    def rolled(clip: torch.Tensor) -> torch.Tensor:
        return clip.roll(int(torch.randint(1, 32, ())), 0)

    return {
        "array, draws nothing": (transform(inverted, random=False), inverted),
        "array, takes rng": (transform(grain), lambda clip: grain(clip, np.random.default_rng(SEED))),
        "tensor, draws by itself": (
            transform(rolled, takes="tensor"),
            lambda clip: rolled(torch.from_numpy(clip)).numpy(),
        ),
    }


def arguments(parser: ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--calls", type=int, default=40, help="calls of each in a round")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
