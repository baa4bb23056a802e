"""What a caller gives to an open cache, looked at where it comes in: of the right type, or a `BadInput` that names it.

Past here an integer is an ``int``, whoever owns the cache. Whether there is such an epoch or frame is asked later, of
the task: here nothing is known of it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from operator import index
from reprlib import repr as short_repr
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import numpy as np

from viewcache.errors import BadInput

__all__ = ["flag", "integer", "number", "optional", "several", "text"]

_MOST = 2**63 - 1
"""What travels to a service, and what NumPy computes with, has 64 bits."""

T = TypeVar("T")


def integer(name: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """A whole number: an ``int``, or what stands for one, as NumPy's integers do; true and false do not.

    Args:
        name: of the argument.
        value: what was given for it.
        least: the smallest that may be; None = any.
        most: the largest; likewise.

    Raises:
        BadInput: it is something else, too small, too large, or has more than 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise _wrong(name, value, "a whole number", f"int({short_repr(value)})" if _is_whole(value) else "")
    try:
        found = index(value)
    except TypeError:  # an array, or a tensor of floats
        raise _wrong(name, value, "a whole number") from None
    if least is not None and found < least:
        raise BadInput(f"{name}={short_repr(found)}: at least {least}")
    if most is not None and found > most:
        raise BadInput(f"{name}={short_repr(found)}: at most {most}")
    if abs(found) > _MOST:
        raise BadInput(f"{name}={short_repr(found)}: at most {_MOST}, and at least {-_MOST}")
    return found


def number(name: str, value: Any) -> float:
    """A finite number, as ``float``.

    Raises:
        BadInput: it is none; true, false and text are none either.
    """
    known = isinstance(value, SupportsFloat | SupportsIndex) and not isinstance(value, bool | np.bool_)
    if not known or np.ndim(value):
        raise _wrong(name, value, "a number", f"float({short_repr(value)})" if _is_whole(value) else "")
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(name, value, "a number") from None
    if not math.isfinite(found):
        raise BadInput(f"{name}={found}: a finite number")
    return found


def text(name: str, value: object) -> str:
    """A text, as plain ``str``.

    Raises:
        BadInput: it is something else.
    """
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return str.__str__(value)  # of NumPy's text, or an enumeration's, what it holds


def flag(name: str, value: object) -> bool:
    """True or false; no text or number stands for them, since ``"no"`` would be true.

    Raises:
        BadInput: it is neither.
    """
    if not isinstance(value, bool | np.bool_):
        raise _wrong(name, value, "True or False")
    return bool(value)


def several(check: Callable[[str, object], T], name: str, values: object) -> list[T]:
    """All of a list, an array or the like, each as ``check`` wants it.

    Raises:
        BadInput: it is no list, or one of them is wrong, which the message names by its place.
    """
    if isinstance(values, str | bytes | Mapping):
        raise _wrong(name, values, "a list")
    if not isinstance(values, Iterable):
        raise _wrong(name, values, "a list", f"[{short_repr(values)}]")
    try:
        each = iter(values)
    except TypeError:  # an array without axes
        raise _wrong(name, values, "a list", f"[{short_repr(values)}]") from None
    return [check(f"{name}[{k}]", value) for k, value in enumerate(each)]


def optional(check: Callable[[str, object], T], name: str, value: object) -> T | None:
    """None where nothing was given, else what ``check`` makes of it.

    Raises:
        BadInput: see ``check``.
    """
    return None if value is None else check(name, value)


def _is_whole(value: object) -> bool:
    """Whether ``int`` makes the number of it that its caller most likely means."""
    if isinstance(value, str):
        return value.isascii() and value.removeprefix("-").isdigit()
    return isinstance(value, float | np.floating) and float(value).is_integer()


def _wrong(name: str, value: object, needed: str, cure: str = "") -> BadInput:
    given = f"{name}={short_repr(value)}: {needed} is needed, and this is of type {type(value).__name__}"
    return BadInput(f"{given}; write {cure}" if cure else given)
