"""The parameters of operations as a table: each kind reads one YAML value and gives its one canonical form.

Equal meaning must be equal value, because canonical parameters enter content keys; hence 2 becomes 2.0 where a real
number is meant and ``224`` becomes ``(224, 224)`` where two sides are meant.
"""

import math
from dataclasses import dataclass
from typing import Protocol, TypeVar

from viewcache.errors import BadInput
from viewcache.suggest import did_you_mean

__all__ = [
    "MAX_SIDE",
    "REQUIRED",
    "Channels",
    "Choice",
    "Field",
    "FieldKind",
    "Flag",
    "Numbers",
    "Params",
    "Range",
    "Real",
    "Sides",
    "Text",
    "Whole",
    "WholeRange",
    "frozen",
    "read_params",
]

MAX_SIDE = 16384
"""Longest side of a frame in pixels that an operation may ask for."""

Params = tuple[tuple[str, object], ...]
"""Canonical parameters: (name, value) sorted by name; values are str, int, float, bool, None or tuples of them."""

Number = TypeVar("Number", int, float)

REQUIRED = object()
"""Default of a field that must be given."""


class FieldKind(Protocol):
    """Reads one value; ``allowed`` says in words what it takes."""

    @property
    def allowed(self) -> str:
        """What a user may write, for messages and docs."""

    def read(self, value: object) -> object:
        """Return the canonical value, or raise ValueError."""


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter of an operation."""

    name: str
    kind: FieldKind
    default: object
    """Canonical, or REQUIRED, or None for "not given"."""
    doc: str
    """One phrase, with the unit."""


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(value)
    return float(value) + 0.0  # + 0.0 turns -0.0 into 0.0: one meaning, one value


def _items(value: object, length: int) -> list[object]:
    if not isinstance(value, list | tuple) or len(value) != length:
        raise ValueError(value)
    return list(value)


def _within(value: Number, low: Number, high: Number) -> Number:
    if not low <= value <= high:
        raise ValueError(value)
    return value


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer between two bounds, both included."""

    low: int
    high: int
    odd: bool = False

    @property
    def allowed(self) -> str:
        """The range in words."""
        return f"an {'odd ' if self.odd else ''}integer from {self.low} to {self.high}"

    def read(self, value: object) -> int:
        """Return the integer."""
        number = _within(_integer(value), self.low, self.high)
        if self.odd and number % 2 == 0:
            raise ValueError(value)
        return number


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number between two bounds, both included."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        """The range in words."""
        return f"a number from {self.low:g} to {self.high:g}"

    def read(self, value: object) -> float:
        """Return a float."""
        return _within(_number(value), self.low, self.high)


@dataclass(frozen=True, slots=True)
class Text:
    """Any text."""

    allowed: str = "a text"

    def read(self, value: object) -> str:
        """Return the text."""
        if not isinstance(value, str):
            raise ValueError(value)
        return value


@dataclass(frozen=True, slots=True)
class Numbers:
    """A list of finite numbers; 2 and 2.0 are the same."""

    allowed: str = "a list of numbers"

    def read(self, value: object) -> tuple[float, ...]:
        """Return them as floats."""
        if not isinstance(value, list | tuple):
            raise ValueError(value)
        return tuple(map(_number, value))


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    allowed: str = "true or false"

    def read(self, value: object) -> bool:
        """Return the bool."""
        if not isinstance(value, bool):
            raise ValueError(value)
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some names; a list of one name is taken too, since SAND's Fig. 9 writes ``[bilinear]``."""

    names: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The names."""
        return ", ".join(self.names)

    def read(self, value: object) -> str:
        """Return the name."""
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        if not isinstance(value, str) or value not in self.names:
            raise ValueError(value)
        return value


@dataclass(frozen=True, slots=True)
class Sides:
    """Height and width in pixels; one integer means a square."""

    allowed: str = f"[height, width] or one integer for a square, each from 1 to {MAX_SIDE}"

    def read(self, value: object) -> tuple[int, int]:
        """Return (height, width)."""
        height, width = (value, value) if isinstance(value, int) else _items(value, 2)
        return _within(_integer(height), 1, MAX_SIDE), _within(_integer(width), 1, MAX_SIDE)


@dataclass(frozen=True, slots=True)
class Range:
    """A range of numbers [low, high], or one number that is both."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        """The bounds in words."""
        return f"[low, high] or one number, from {self.low:g} to {self.high:g}"

    def read(self, value: object) -> tuple[float, float]:
        """Return (low, high)."""
        low, high = (value, value) if isinstance(value, int | float) else _items(value, 2)
        return _ordered(_within(_number(low), self.low, self.high), _within(_number(high), self.low, self.high))


@dataclass(frozen=True, slots=True)
class WholeRange:
    """A range of integers [low, high], both included."""

    low: int
    high: int

    @property
    def allowed(self) -> str:
        """The bounds in words."""
        return f"[low, high], integers from {self.low} to {self.high}"

    def read(self, value: object) -> tuple[int, int]:
        """Return (low, high)."""
        low, high = _items(value, 2)
        return _ordered(_within(_integer(low), self.low, self.high), _within(_integer(high), self.low, self.high))


@dataclass(frozen=True, slots=True)
class Channels:
    """One number per colour channel (R, G, B), or one for all three."""

    low: float
    high: float
    whole: bool = False

    @property
    def allowed(self) -> str:
        """The bounds in words."""
        what = "integers" if self.whole else "numbers"
        return f"three {what} (R, G, B) or one for all, from {self.low:g} to {self.high:g}"

    def read(self, value: object) -> tuple[float, ...]:
        """Return three numbers."""
        items = [value] * 3 if isinstance(value, int | float) else _items(value, 3)
        if self.whole:
            return tuple(_within(_integer(item), int(self.low), int(self.high)) for item in items)
        return tuple(_within(_number(item), self.low, self.high) for item in items)


def frozen(value: object) -> object:
    """The value of a parameter that has travelled: lists are tuples again."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def _ordered(low: Number, high: Number) -> tuple[Number, Number]:
    if low > high:
        raise ValueError((low, high))
    return low, high


def read_params(op: str, fields: tuple[Field, ...], shorthand: str | None, value: object) -> dict[str, object]:
    """Read what stands behind an operation's name in a config.

    Args:
        op: the operation's name, for messages.
        fields: its table of parameters.
        shorthand: the field that a bare value (not a mapping) is given to, if the operation allows that.
        value: a mapping of parameters, None (all defaults) or a bare value.

    Returns:
        Every field with its canonical value.

    Raises:
        BadInput: unknown, missing or wrong parameter; the message says which, the value and what is allowed.
    """
    names = [field.name for field in fields]
    if value is None:
        value = {}
    elif not isinstance(value, dict):
        if shorthand is None:
            raise BadInput(f"{op}: got {value!r}; allowed: a mapping of {', '.join(names) or 'nothing'}")
        value = {shorthand: value}
    for name in value:
        if name not in names:
            hint = did_you_mean(name, names)
            raise BadInput(
                f"{op}: unknown parameter {name!r}; allowed: {', '.join(names) or 'none'}"
                + (f"; {hint}" if hint else "")
            )
    return {field.name: _read_field(op, field, value) for field in fields}


def _read_field(op: str, field: Field, given: dict[str, object]) -> object:
    if field.name not in given:
        if field.default is REQUIRED:
            raise BadInput(f"{op}: parameter {field.name!r} is missing; allowed: {field.kind.allowed}")
        return field.default
    value = given[field.name]
    if value is None and field.default is None:
        return None
    try:
        return field.kind.read(value)
    except ValueError:
        raise BadInput(f"{op}: {field.name} is {value!r}; allowed: {field.kind.allowed}") from None
