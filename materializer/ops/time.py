"""Operations on time: the order and the choice of a clip's frames.

They only rearrange frame numbers, so a frame that is left out is never decoded.
"""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.materializer.ops.base import Draw, Fixed, Rows, TimeOp
from viewcache.materializer.ops.fields import Field, Flag, Params, Real, Whole

__all__ = ["OPS", "InvSample", "Subsample"]

_MAX_FRAMES = 1 << 20


class InvSample(TimeOp):
    """Play a clip backwards (SAND's ``inv_sample: true``)."""

    name = "inv_sample"
    shorthand = "enabled"
    fields = (
        Field("enabled", Flag(), True, "false leaves the clip as it is"),
        Field("prob", Real(0.0, 1.0), 1.0, "probability that a clip is reversed"),
    )
    columns = ("reverse",)
    keyed = ()
    fingerprint = "1"

    def resolve(self, params: Params, draw: Draw, h: np.ndarray, w: np.ndarray) -> tuple[Rows, Fixed, Fixed]:
        """Decide for each clip."""
        values = dict(params)
        reverse = draw.chance(cast(float, values["prob"])) & cast(bool, values["enabled"])
        return reverse[:, None].astype(np.int32), np.asarray(h, np.int64), np.asarray(w, np.int64)

    def identity(self, params: Params, rows: Rows, h: np.ndarray, w: np.ndarray) -> NDArray[np.bool_]:
        """True where the clip is not reversed."""
        return np.asarray(rows[:, 0] == 0)

    def frames(self, params: Params, rows: Rows, idx: np.ndarray) -> np.ndarray:
        """Reverse the last axis where the row says so."""
        return np.where(rows[..., :1] != 0, idx[..., ::-1], idx)


class Subsample(TimeOp):
    """Keep every n-th frame of a clip, or a number of frames that are evenly spaced over it."""

    name = "subsample"
    fields = (
        Field("step", Whole(1, _MAX_FRAMES), None, "keep frames 0, step, 2 * step, ..."),
        Field("frames", Whole(1, _MAX_FRAMES), None, "keep so many, the first and the last among them"),
    )
    fingerprint = "1"

    def check(self, values: dict[str, object]) -> None:
        """Exactly one of the two ways to choose."""
        if (values["step"] is None) == (values["frames"] is None):
            raise BadInput("subsample: give exactly one of step: n and frames: n")

    def out_frames(self, params: Params, frames: int) -> int:
        """The number of frames that are kept."""
        return len(_kept(params, frames))

    def frames(self, params: Params, rows: Rows, idx: np.ndarray) -> np.ndarray:
        """Choose along the last axis."""
        return idx[..., _kept(params, idx.shape[-1])]


def _kept(params: Params, frames: int) -> NDArray[np.int64]:
    """Positions within the clip; evenly spaced ones are rounded half up, a single one is the middle frame."""
    values = cast(dict[str, int | None], dict(params))
    step, wanted = values["step"], values["frames"]
    if wanted is None:
        return np.arange(0, frames, step)
    if wanted > frames:
        raise BadInput(f"subsample: frames is {wanted}, but the clip has only {frames}; allowed: 1 to {frames}")
    if wanted == 1:
        return np.array([(frames - 1) // 2])
    return (2 * np.arange(wanted) * (frames - 1) + wanted - 1) // (2 * (wanted - 1))


OPS = (InvSample(), Subsample())
