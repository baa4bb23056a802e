"""What a loader hands out of a batch that was read: a plain dict, which any library walks through."""

from collections.abc import Callable
from functools import partial
from typing import Any

from viewcache.api.training.even import filled_up
from viewcache.api.training.frameworks import Framework
from viewcache.api.training.mixing import Mixture
from viewcache.materializer.choices import Layout, Media
from viewcache.materializer.reading.batch import Batch

__all__ = ["handed_out"]

PER_IMAGE = ("label", "index", "sample")
"""What comes with each image: it has no time, and no frame but one."""


def handed_out(
    batch: Batch,
    mixture: Mixture | None,
    finish: Callable[..., Any],
    framework: Framework,
    layout: str,
    clips: int | None,
) -> dict[str, Any]:
    """The fields of a batch, as a framework has them.

    Args:
        batch: as it was read.
        mixture: what its clips are mixed with; None = they stay apart.
        finish: applies the operations that run at reading; takes ``mixing``.
        framework: whose arrays or tensors are made.
        layout: of the pixels.
        clips: how many there are in every batch, which this one is filled up to; None = as many as were read.
    """
    if Layout(layout).media == Media.IMAGE:
        arrays = {"image": batch.video, **{name: batch.per_clip[name] for name in PER_IMAGE}, **batch.fields}
    else:
        arrays = {"video": batch.video, **batch.per_clip, **batch.fields}
    if mixture is not None:
        arrays |= mixture.labels(batch)
        finish = partial(finish, mixing=mixture.mixing)
    if clips is not None:
        arrays = filled_up(arrays, clips, batch.fields)
    return framework.made(arrays, finish, layout) | {"epoch": batch.epoch, "iteration": batch.iteration}
