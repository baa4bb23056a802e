"""The loss that a task allows (`dataset.intermediate`), as an operation: what comes behind it sees lossy pictures.

It stands in a task's graph behind the first resize, so its parameters are part of every content key and of the task's
definition. It is no operation of one frame alone: workers encode a few frames together (``workers/lossy.py``), and here
is only what planning must know.
"""

from typing import ClassVar, cast

import numpy as np

from viewcache.errors import Broken
from viewcache.materializer.media.loss import GROUP, Loss
from viewcache.materializer.ops.base import FrameOp
from viewcache.materializer.ops.fields import Params

__all__ = ["LOSSY_OP", "loss_of", "lossy_params", "stride_of"]

LOSSY_OP = "lossy"
"""The operation's name, which no configuration can write."""


class Lossy(FrameOp):
    """Encoded with a loss and decoded again."""

    name = LOSSY_OP
    hidden: ClassVar[bool] = True
    fingerprint = "1"

    def apply(self, params: Params, row: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Not by itself.

        Raises:
            Broken: always: who makes pictures has them encoded in groups.
        """
        raise Broken("a picture with a loss is made together with its neighbours, not alone")


def lossy_params(loss: Loss, encoder: str, stride: int) -> Params:
    """The operation's parameters.

    Args:
        loss: what is allowed.
        encoder: name and version of the encoder, which decide the pixels too.
        stride: of the task's clips, see `viewcache.materializer.media.loss.encoding_order`.
    """
    # An earlier release looked for a quality among constant rate factors, and did not say so.
    control = () if loss.quality_db is None else (("rate_control", "cqp"),)
    return (
        ("codec", "h264"),
        ("crf", loss.crf),
        ("encoder", encoder),
        ("group", GROUP),
        ("quality_db", loss.quality_db),
        *control,
        ("stride", stride),
    )


def stride_of(params: Params) -> int:
    """By which frames are put in groups."""
    return cast(int, dict(params)["stride"])


def loss_of(params: Params) -> Loss:
    """What is allowed."""
    values = dict(params)
    return Loss(cast(int | None, values["crf"]), cast(float | None, values["quality_db"]))


OPS = (Lossy(),)
