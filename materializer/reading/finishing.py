"""The operations that run when a batch is handed out: number types, normalization, and mixing of its clips.

They are no part of a view: ``view://`` and ``cache.read`` give clips as they are stored, and a loader finishes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.ops import Op, Params, ReadOp
from viewcache.materializer.ops.mix import Mix, Mixer, MixOp

__all__ = ["Mixing", "ReadOps", "finished", "mixer_of"]

ReadOps = Sequence[tuple[Op, Params]]
"""The operations of a task that run at reading, in order."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """How the clips that a rank reads of a batch are mixed."""

    mix: Mix
    clips: int
    """How many there are; what a loader fills a batch up with comes behind them."""
    before: NDArray[np.uint8]
    """(m,T,C,H,W), or (m,V,T,C,H,W): the samples of the video that stands before the first in the whole batch."""


def finished(read_ops: ReadOps, video: Any, mixing: Mixing | None = None) -> Any:
    """Apply them to a batch.

    Args:
        read_ops: of the task.
        video: (b, …, H, W) as stored, an array or a tensor; where clips are mixed as bytes, it is written to.
        mixing: how they are mixed; None = they stay apart.

    Returns:
        The same kind.
    """
    before: Any = None
    if mixing is not None:
        before = mixing.before
        if not isinstance(video, np.ndarray):
            import torch

            before = torch.from_numpy(before)
    for op, params in read_ops:
        if isinstance(op, MixOp):
            if mixing is not None:
                mixing.mix.apply(video[: mixing.clips], before)
            before = None
            continue
        assert isinstance(op, ReadOp)  # the graph was checked
        video = op.apply_batch(params, video)
        if before is not None:
            before = op.apply_batch(params, before)
    return video


def mixer_of(read_ops: ReadOps, seed: int, task: str) -> Mixer | None:
    """What mixes a task's batches; None for a task that leaves clips apart."""
    return next((Mixer(op, params, seed, task) for op, params in read_ops if isinstance(op, MixOp)), None)
