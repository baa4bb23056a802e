"""Operations on clips: a registry of small modules, one per family; docs/ops.md lists them all.

Importing this package loads neither OpenCV nor torch nor the decoder: those are imported where pixels are touched.

In the order of work:

- ``base``: what an op is
- ``failures``: what is said of one of the user's own that fails
- ``fields``: its parameters as a table
- ``registry``: finding one by name
- ``sizes``: whether all clips come out at one size
- ``resize``: exact, by the short side, jittered
- ``crop``: random, center, five, random-resized
- ``geometry``: flip, rotate
- ``color``: jitter, grayscale, blur, erase
- ``primitives``: what the policies are made of, pixel for pixel as PIL
- ``auto_augment``: random and learned policies
- ``time``: order and choice of frames
- ``read``: normalize and dtype, at read time
- ``mix``: MixUp and CutMix, at read time
- ``lossy``: the loss that a task allows, behind its first resize
- ``transforms``: a function, or another library's transform, as an operation
- ``fingerprint``: what the bytes of such a one depend on
- ``cells``: where its code was written, in a file or in a notebook
- ``loaded``: whether the code that runs is that of its file
- ``made_of``: what such a one holds, read by value
"""

from viewcache.materializer.ops.base import ClipOp, Draw, FrameOp, NativeOp, Op, ReadOp, Rows, Size, TimeOp
from viewcache.materializer.ops.fields import REQUIRED, Field, Params
from viewcache.materializer.ops.registry import (
    Held,
    builtin_names,
    check_importable,
    expect,
    fingerprints,
    get,
    hold,
    latest,
    load_modules,
    names,
    register,
)
from viewcache.materializer.ops.sizes import StaticSize, static_size
from viewcache.materializer.ops.transforms import transform

__all__ = [
    "REQUIRED",
    "ClipOp",
    "Draw",
    "Field",
    "FrameOp",
    "Held",
    "NativeOp",
    "Op",
    "Params",
    "ReadOp",
    "Rows",
    "Size",
    "StaticSize",
    "TimeOp",
    "builtin_names",
    "check_importable",
    "expect",
    "fingerprints",
    "get",
    "hold",
    "latest",
    "load_modules",
    "names",
    "register",
    "static_size",
    "transform",
]
