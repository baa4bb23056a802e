"""Operations on a finished batch as it is read: number type and normalization.

They are not part of what is stored: bytes of uint8 are a quarter of float32's, and one arithmetic pass over a batch is
cheaper than reading the difference.
"""

from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from viewcache.errors import BadInput
from viewcache.materializer.ops.base import ReadOp
from viewcache.materializer.ops.fields import REQUIRED, Channels, Choice, Field, Flag, Params

if TYPE_CHECKING:
    import torch

__all__ = ["OPS", "Normalize", "ToDtype"]


class Normalize(ReadOp):
    """Subtract a mean and divide by a standard deviation per colour channel; the result is float32.

    A batch of uint8 is divided by 255 first, so mean and std are given for values in [0, 1]; a batch of floats is taken
    as it is and keeps its type.
    """

    name = "normalize"
    fields = (
        Field("mean", Channels(-1e6, 1e6), REQUIRED, "mean of R, G, B"),
        Field("std", Channels(1e-6, 1e6), REQUIRED, "standard deviation of R, G, B"),
    )
    fingerprint = "1"

    def apply_batch(self, params: Params, batch: object) -> object:
        """Return float32 for uint8 input, else the input's type."""
        values = dict(params)
        mean = np.array(values["mean"], dtype=np.float64)[:, None, None]
        std = np.array(values["std"], dtype=np.float64)[:, None, None]
        whole = str(batch.dtype).endswith("uint8")  # type: ignore[attr-defined] # both kinds of array have it
        scale, shift = 1 / (std * (255 if whole else 1)), -mean / std
        if isinstance(batch, np.ndarray):
            kind = np.dtype(np.float32) if whole else batch.dtype
            out = np.multiply(batch, scale.astype(kind), dtype=kind)
            out += shift.astype(kind)
            return out
        import torch

        tensor = cast("torch.Tensor", batch)
        dtype = torch.float32 if whole else tensor.dtype
        factor, offset = (torch.as_tensor(x).to(dtype=dtype, device=tensor.device) for x in (scale, shift))
        return (tensor * factor).add_(offset)


class ToDtype(ReadOp):
    """Change the number type of a batch; uint8 becomes values in [0, 1] unless ``scale`` is false."""

    name = "to_dtype"
    shorthand = "dtype"
    DTYPES: ClassVar[tuple[str, ...]] = ("float32", "float16", "bfloat16", "float64")
    fields = (
        Field("dtype", Choice(DTYPES), REQUIRED, "number type; bfloat16 only for torch tensors"),
        Field("scale", Flag(), True, "divide uint8 values by 255"),
    )
    fingerprint = "1"

    def apply_batch(self, params: Params, batch: object) -> object:
        """Return the same values in another type."""
        values = dict(params)
        name = cast(str, values["dtype"])
        whole = str(batch.dtype).endswith("uint8")  # type: ignore[attr-defined] # both kinds of array have it
        scale = 1 / 255 if whole and values["scale"] else 1
        if isinstance(batch, np.ndarray):
            if name == "bfloat16":
                raise BadInput("to_dtype: bfloat16 for a NumPy batch; allowed: float32, float16, float64")
            wide = np.float64 if name == "float64" else np.float32
            return np.multiply(batch, wide(scale), dtype=wide).astype(name, copy=False)
        import torch

        tensor = cast("torch.Tensor", batch)
        dtype = getattr(torch, name)
        wide_type = torch.float64 if name == "float64" else torch.float32
        return tensor.to(wide_type).mul_(scale).to(dtype) if scale != 1 else tensor.to(dtype, copy=True)


OPS = (Normalize(), ToDtype())
