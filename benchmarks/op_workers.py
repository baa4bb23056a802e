"""An operation in an op worker against the same one in the worker's own process: what it costs a clip to go there.

A clip is 32 frames of 3 x 224 x 224 (4.8 MB). One operation inverts, which takes a fraction of what its frames' way
does; one blurs, as an operation that is worth a library of its own. CPU is that of both processes.
"""

import statistics
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Aim, Comparison, Figure, Result, compare, main
from viewcache.materializer import ops
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.op_workers.process import python_command
from viewcache.materializer.op_workers.remote import remote_op
from viewcache.materializer.ops import FrameOp
from viewcache.materializer.spec import OpWorkerSpec

FRAMES, SIDE = 32, 224
HERE, THERE = "in the worker's process", "in an op worker"

MODULE = '''
import numpy as np
from viewcache.ops import FrameOp

class Invert(FrameOp):
    name = "bench_invert"

    def apply(self, params, row, frame):
        return 255 - frame

class Soften(FrameOp):
    """The mean of each pixel and its four neighbours."""

    name = "bench_soften"

    def apply(self, params, row, frame):
        wide = np.pad(frame, ((0, 0), (1, 1), (1, 1)), mode="edge").astype(np.uint16)
        total = wide[:, 1:-1, 1:-1] + wide[:, :-2, 1:-1] + wide[:, 2:, 1:-1] + wide[:, 1:-1, :-2] + wide[:, 1:-1, 2:]
        return (total // 5).astype(np.uint8)

OPS = [Invert, Soften]
'''


def bench(args: Namespace) -> Iterator[Result]:
    """Whole clips through both operations, and what a start costs."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench_ops.py").write_text(MODULE)
        sys.path.insert(0, folder)
        try:
            ops.load_modules(["bench_ops"])
        finally:
            sys.path.remove(folder)
        crew = Crew(OpWorkerSpec("bench", python_command(str(args.python), (folder,)), ("bench_ops",)))
        try:
            for described in crew.ops():
                here, there = ops.get(described.name), remote_op(crew, described)
                assert isinstance(here, FrameOp)
                assert isinstance(there, FrameOp)
                yield from _clips(described.name.removeprefix("bench_"), here, there, args)
        finally:
            crew.close()


def _clips(name: str, here: FrameOp, there: FrameOp, args: Namespace) -> Iterator[Result]:
    clip = np.random.default_rng(5).integers(0, 256, (FRAMES, 3, SIDE, SIDE), np.uint8)
    out = np.empty_like(clip)
    rivals = {HERE: lambda: _apply(here, clip, out), THERE: lambda: _apply(there, clip, out)}
    timed = compare(f"a clip through `{name}`", rivals, baseline=HERE, args=args, calls=args.clips)
    yield timed
    for measure in ("cpu_s", "wall_s"):
        more = _more_ms(timed, measure)
        aim = Aim(at_most=1.5) if measure == "cpu_s" and name == "invert" else None
        what = measure.removesuffix("_s").upper() if measure == "cpu_s" else "wall time"
        yield Figure(f"{what} more for a clip through `{name}` there", statistics.median(more), "ms", aim, tuple(more))


def _apply(op: FrameOp, clip: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """As a worker does: into the clip's array, frame by frame."""
    row = np.zeros(0, np.int32)
    for t, picture in enumerate(op.run_all((), row, list(clip))):
        out[t] = picture


def _more_ms(timed: Comparison, measure: str) -> list[float]:
    here, there = (getattr(timed.timing(name), measure) for name in (HERE, THERE))
    return [1e3 * (far - near) for near, far in zip(here, there, strict=True)]


def arguments(parser: ArgumentParser) -> None:
    """Which Python serves, and how many clips a round has."""
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="of the op worker's environment")
    parser.add_argument("--clips", type=int, default=100, help="clips in a round")


if __name__ == "__main__":
    main(__doc__, bench, arguments)
