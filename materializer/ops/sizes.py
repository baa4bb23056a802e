"""Whether all clips of a task have one size, which a batch needs, and which operation is to blame if not."""

from collections.abc import Iterable
from dataclasses import dataclass

from viewcache.materializer.ops.base import Size
from viewcache.materializer.ops.fields import Params
from viewcache.materializer.ops.registry import get

__all__ = ["StaticSize", "static_size"]


@dataclass(frozen=True, slots=True)
class StaticSize:
    """The size of a chain's output, if every clip has the same."""

    size: Size | None
    """(height, width), or None if it depends on the clip."""
    culprit: int | None = None
    """Index of the operation that leaves the size open; None if ``size`` is known or no operation sets one."""
    reason: str = ""
    """What to tell the user when ``size`` is None."""


def static_size(chain: Iterable[tuple[str, Params]], size: Size | None = None) -> StaticSize:
    """Follow the size of a frame through a chain of operations.

    Args:
        chain: names and canonical parameters.
        size: the size that goes in if all clips have the same, e.g. that of another chain or of all videos.

    Returns:
        The size, or who leaves it open and what to do.
    """
    culprit: int | None = None
    reason = "no op sets a size, so every video keeps its own; add resize: {shape: [height, width]} or a crop"
    for index, (name, params) in enumerate(chain):
        op = get(name)
        size = op.out_size(params, size)
        if size is None and op.sizes:
            culprit, reason = index, f"{name}: {op.size_hint(params)}"
    return StaticSize(size) if size is not None else StaticSize(None, culprit, reason)
