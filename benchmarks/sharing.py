"""What two tasks save by sharing: SAND's Fig. 16 and 19, counted on the plans that viewcache makes.

Nothing is decoded or timed, so the figures are the same on every machine. SlowFast takes 32 frames at stride 2, MAE 16
at stride 4, both crops of 224, one clip a video and epoch, from videos of 300 frames; starts lie on the grid of 2.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Aim, Figure, Result, main
from benchmarks.invented import index_of, plan_of, task_of, videos_of
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.planning.clip_starts import shared_grid
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.sharing import MOST_VIDEOS, Saving, count_savings

FRAMES = 300
GOPS = (1, 10, 30, 150, 300)
TASKS = {"slowfast": (32, 2), "mae": (16, 4)}
"""Name → frames of a clip, stride."""
EPOCHS_PER_GENERATION = 5
OFTEN = 4
"""Fig. 19 asks for frames that are selected so often, or more, in 10 epochs."""
PAPER_DECODE, PAPER_CROP, PAPER_ALONE, PAPER_SHARED = -50.3, -33.1, 10.6, 60.1
"""Percent."""


def bench(args: Namespace) -> Iterator[Result]:
    """Fig. 16, then Fig. 19."""
    parts = [videos_of(MOST_VIDEOS, first=k, frames=FRAMES) for k in range(0, args.videos, MOST_VIDEOS)]
    pairs = [plans(part, epochs=1, seed=args.seed) for part in parts]
    for gop in GOPS:
        index = index_of(FRAMES, gop)
        counts = np.array([in_order(pair, index) for pair in pairs])
        # A video of 10 s that was not cut has one or two key frames, by the defaults of encoders.
        aim = Aim(at_most=-49.5 if gop >= FRAMES // 2 else -48.5)
        yield _fewer(f"Fig. 16, decoded frames, GOP {gop}", counts, f"frames; the paper: {PAPER_DECODE}", aim)
    for gop in GOPS:
        index = index_of(FRAMES, gop)
        found = [savings(pair, index)["packets decoded"] for pair in pairs]
        counts = np.array([(each.by_task, each.together) for each in found])
        yield _fewer(f"what our decoder is fed, GOP {gop}", counts, "packets")
    crops = [savings(pair, index)["random_crop"] for pair in pairs]
    counts = np.array([(each.by_task, each.together) for each in crops])
    exact = Aim(at_most=-100 / 3, at_least=-100 / 3)
    yield _fewer("Fig. 16, random crops of 224", counts, f"crops; the paper: {PAPER_CROP}", exact)
    for spread, expected in ((None, PAPER_ALONE), (0.4, PAPER_SHARED), (0.27, None), (0.5, None)):
        title = "each task alone" if spread is None else f"shared, spread {spread:g}"
        paper = "" if expected is None else f"; the paper: {expected}"
        share = 100 * float(np.mean([often(part, spread=spread, seed=args.seed) for part in parts]))
        unit = f"% of the frames that are selected in 10 epochs{paper}"
        yield Figure(f"Fig. 19, selected at least {OFTEN} times, {title}", share, unit)


def _fewer(title: str, counts: NDArray[np.float64], of: str, aim: Aim | None = None) -> Figure:
    """Percent that doing together saves; ``counts`` has a row of (alone, together) for each part of the videos."""
    alone, together = counts.sum(axis=0)
    return Figure(title, change(alone, together), f"% ({alone:,.0f} → {together:,.0f} {of})", aim)


def plans(
    videos: Videos, *, epochs: int, number: int = 0, seed: int = 0, spread: float | None = 0.4
) -> list[GenerationPlan]:
    """One generation of both tasks; ``spread`` None = each draws independently."""
    asked = {"coordination": "independent"} if spread is None else {"spread": spread}
    grid = shared_grid(stride for _, stride in TASKS.values())
    tasks = [task_of(name, *clip, **asked) for name, clip in TASKS.items()]
    return [plan_of(task, videos, epochs=epochs, number=number, grid=grid, seed=seed) for task in tasks]


def in_order(pair: Sequence[GenerationPlan], index: VideoIndex) -> tuple[int, int]:
    """Frames that a decoder which leaves out none gives, when each task decodes for itself, and when both decode once.

    It begins at the key frame before the first needed frame and goes on to the last one: that is what readers by
    OpenCV, PyAV or decord do, and so what the paper counts.
    """
    frames = [_frames(plan) for plan in pair]
    alone = sum(_run(index, needed) for each in frames for needed in each.values())
    both = {video: np.union1d(*(each[video] for each in frames)) for video in frames[0]}
    return alone, sum(_run(index, needed) for needed in both.values())


def savings(pair: Sequence[GenerationPlan], index: VideoIndex) -> dict[str, Saving]:
    """Kind of work → what `viewcache plan` says of it."""
    return {each.what: each for each in count_savings(pair, [lambda _: index] * len(pair), CostModel())}


def often(videos: Videos, *, spread: float | None, seed: int = 0, epochs: int = 10) -> float:
    """Share of the frames that any clip has which are in `OFTEN` clips or more, over both tasks."""
    count = np.zeros((len(videos), FRAMES), np.int64)
    for number in range(epochs // EPOCHS_PER_GENERATION):
        for plan in plans(videos, epochs=EPOCHS_PER_GENERATION, number=number, seed=seed, spread=spread):
            np.add.at(count, (plan.video[:, None], plan.frames(np.arange(len(plan)))), 1)
    return float(np.count_nonzero(count >= OFTEN) / np.count_nonzero(count))


def change(before: float, after: float) -> float:
    """Percent, negative for less."""
    return 100 * (after - before) / before


def _frames(plan: GenerationPlan) -> dict[int, NDArray[np.int32]]:
    """Row of the videos → the frames that its one clip has."""
    return dict(zip(plan.video.tolist(), plan.frames(np.arange(len(plan))), strict=True))


def _run(index: VideoIndex, frames: NDArray[np.int32]) -> int:
    gops = index.gops_for(frames)
    return gops[-1].stop - gops[0].start


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--videos", type=int, default=2000, help="how many, in parts of 200 (default 2000)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
