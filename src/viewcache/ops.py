"""What an operation of your own is made of; docs/custom-ops.md has a whole one.

The names here stay where they are when the modules behind them move. ``viewcache.ops`` is also the name of the entry
point group in which a package announces its operations.
"""

from viewcache.materializer.ops import (
    REQUIRED,
    ClipOp,
    Draw,
    Field,
    FrameOp,
    NativeOp,
    Op,
    Params,
    ReadOp,
    Rows,
    Size,
    StaticSize,
    TimeOp,
    register,
    static_size,
    transform,
)
from viewcache.materializer.ops.fields import (
    Channels,
    Choice,
    Flag,
    Numbers,
    Range,
    Real,
    Sides,
    Text,
    Whole,
    WholeRange,
)
from viewcache.materializer.randomness import ONE, scaled

__all__ = [
    "ONE",
    "REQUIRED",
    "Channels",
    "Choice",
    "ClipOp",
    "Draw",
    "Field",
    "Flag",
    "FrameOp",
    "NativeOp",
    "Numbers",
    "Op",
    "Params",
    "Range",
    "ReadOp",
    "Real",
    "Rows",
    "Sides",
    "Size",
    "StaticSize",
    "Text",
    "TimeOp",
    "Whole",
    "WholeRange",
    "register",
    "scaled",
    "static_size",
    "transform",
]
