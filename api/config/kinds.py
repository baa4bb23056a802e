"""What a key of a configuration may hold: the kinds of values, and the form of the table of keys.

The table itself is in ``config_keys.py``.
"""

from dataclasses import dataclass

__all__ = ["DECIBELS", "KINDS", "MODULE", "NAME", "REQUIRED", "SIZE", "Key", "KeySection", "ValueKind"]

REQUIRED = object()
"""Stands as the default of a key that must be given."""

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""What a task and a stream may be called: they are parts of paths."""

SIZE = r"\s*[0-9]+(?:\.[0-9]+)?\s*(?:[kKmMgGtTpP][iI]?)?[bB]\s*"
"""A size with a unit; kB is 1000 bytes, KiB is 1024."""

DECIBELS = r"\s*([0-9]+(?:\.[0-9]+)?)\s*[dD][bB]\s*"
"""A number of decibels with its unit."""

MODULE = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
"""A dotted module name."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A type of value: how people call it and what a JSON Schema says about it."""

    words: str
    schema: dict[str, object]


_TEXT: dict[str, object] = {"type": "string", "minLength": 1}
_NAMES: dict[str, object] = {"type": "string", "pattern": f"^{NAME}$"}
_OPERATION: dict[str, object] = {
    "description": "One operation: its name, alone or with its parameters.",
    "oneOf": [_TEXT, {"type": "object", "minProperties": 1, "maxProperties": 1}],
}

KINDS: dict[str, ValueKind] = {
    "text": ValueKind("text", _TEXT),
    "name": ValueKind("a name of letters, digits, '.', '_' and '-' that starts with a letter or digit", _NAMES),
    "title": ValueKind("text of at most 128 characters", _TEXT | {"maxLength": 128}),
    "names": ValueKind(
        "a list of stream names", {"oneOf": [_NAMES, {"type": "array", "minItems": 1, "items": _NAMES}]}
    ),
    "modules": ValueKind(
        "a list of module names", {"type": "array", "items": {"type": "string", "pattern": f"^{MODULE}$"}}
    ),
    "columns": ValueKind(
        "a list of columns, whose names have letters, digits, '.', '_' and '-' and start with a letter or digit",
        {"oneOf": [_NAMES, {"type": "array", "items": _NAMES, "uniqueItems": True}]},
    ),
    "classes": ValueKind(
        "a list of names, or the path of a text file",
        {"oneOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT, "uniqueItems": True}]},
    ),
    "shares": ValueKind(
        "a mapping from names to numbers above 0",
        {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
    ),
    "texts": ValueKind("a list of texts", {"type": "array", "items": _TEXT}),
    "folders": ValueKind("a list of local folders", {"type": "array", "items": _TEXT}),
    "workers": ValueKind("a mapping from names to mappings", {}),
    "choice": ValueKind("one of the choices", {}),
    "integer": ValueKind("a whole number", {"type": "integer"}),
    "number": ValueKind("a number", {"type": "number"}),
    "share_or_auto": ValueKind(
        "auto, or a share from 0 to 1", {"oneOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"const": "auto"}]}
    ),
    "flag": ValueKind("true or false", {"type": "boolean"}),
    "flag_or_auto": ValueKind("auto, true or false", {"oneOf": [{"type": "boolean"}, {"const": "auto"}]}),
    "size": ValueKind(
        "a size such as 200GB, 1.5TiB or a number of bytes",
        {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^{SIZE}$"}]},
    ),
    "size_or_auto": ValueKind(
        "auto, 0 or a size such as 4GB",
        {
            "oneOf": [
                {"const": "auto"},
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": f"^{SIZE}$"},
            ]
        },
    ),
    "decibels": ValueKind(
        "a number of decibels such as 45dB",
        {"oneOf": [{"type": "number"}, {"type": "string", "pattern": f"^{DECIBELS}$"}]},
    ),
    "url": ValueKind("a path or URL", _TEXT),
    "urls": ValueKind(
        "a path or URL, or a list of them", {"oneOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]}
    ),
    "catalog": ValueKind("duckdb or a postgresql:// URL", _TEXT | {"pattern": "^(duckdb$|postgresql://)"}),
    "store": ValueKind("a path, or a list of tiers", {}),
    "section": ValueKind("a mapping", {}),
    "sections": ValueKind("a list of mappings", {}),
    "tasks": ValueKind("a mapping, or a list of mappings", {}),
    "operations": ValueKind(
        "a list of operations, or None",
        {"oneOf": [{"type": "null"}, {"const": "None"}, {"type": "array", "items": _OPERATION}]},
    ),
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key that a section may have."""

    name: str
    kind: str
    """A key of ``KINDS``."""
    doc: str
    """What it means; ends in a full stop."""
    default: object = None
    """``REQUIRED``, or the value that stands when the key is absent or empty."""
    default_words: str = ""
    """The default in words, where it is computed."""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    inside: bool = False
    """Whether ``least`` and ``most`` are themselves refused."""
    section: str = ""
    """For kinds made of sections: which."""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED

    def expects(self) -> str:
        """What a value must be, for messages and the documentation."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = KINDS[self.kind].words
        if self.inside:
            return f"{words} above {self.least:g} and below {self.most:g}"
        if self.least is not None and self.most is not None:
            return f"{words} from {self.least} to {self.most}"
        return words


@dataclass(frozen=True, slots=True)
class KeySection:
    """A mapping of the file and its keys."""

    name: str
    path: str
    """How it is reached from the top of a document."""
    doc: str
    keys: tuple[Key, ...]

    def key(self, name: str) -> Key:
        """The key of that name."""
        return next(key for key in self.keys if key.name == name)
