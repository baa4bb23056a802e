"""What is said of a user's own operation that fails: which one, with which parameters, and its own error and frames.

Frames of viewcache above the user's code are left out: they say nothing about the mistake. A failure of a built-in
operation is viewcache's own, and keeps them.
"""

import itertools
import traceback
from types import TracebackType

from viewcache.errors import OpFailed
from viewcache.materializer.ops.fields import Params

__all__ = ["SAY_SIZE", "is_ours", "named", "op_failed"]

SAY_SIZE = "another size is said beforehand: @transform(size=…), or `sizes`, `resolve` and `out_size` of a class"
"""What to do about clips that are not as large as planned."""

_FRAMES = 16
"""Most frames that are told, the last ones."""


def is_ours(cls: type) -> bool:
    """Whether viewcache itself has a class."""
    return cls.__module__.partition(".")[0] == "viewcache"


def named(name: str, params: Params) -> str:
    """The operation with its parameters, as a message begins."""
    given = ", ".join(f"{each}={value!r}" for each, value in params)
    return f"operation {name!r} with {given}" if given else f"operation {name!r}"


def op_failed(name: str, params: Params, error: Exception) -> OpFailed:
    """What an exception of a user's own operation becomes; to be called where it is handled."""
    theirs = list(itertools.dropwhile(_is_of_viewcache, _steps(error.__traceback__)))
    own = theirs[0] if theirs else error.__traceback__
    told = traceback.TracebackException(type(error), error, own, limit=-_FRAMES)
    return OpFailed(f"{named(name, params)} failed:\n{''.join(told.format()).rstrip()}")


def _steps(step: TracebackType | None) -> list[TracebackType]:
    steps: list[TracebackType] = []
    while step is not None:
        steps.append(step)
        step = step.tb_next
    return steps


def _is_of_viewcache(step: TracebackType) -> bool:
    return str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "viewcache"
