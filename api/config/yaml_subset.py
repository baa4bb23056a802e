"""Reads the part of YAML that a configuration needs, and remembers where every value was written.

Trade-off: a safe subset instead of the whole language. No anchors, aliases, tags or duplicate keys, scalars by the core
schema of YAML 1.2 (``no`` is text, ``010`` is ten), and caps on bytes, depth and nodes, so that no file can run code,
grow in memory or mean something else than it seems to. The events come from PyYAML's parser.
"""

import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from viewcache.errors import BadInput, ConfigCode, ConfigError, NotFound
from viewcache.materializer.spec import Place

__all__ = ["LOADER", "MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Loader", "Node", "from_python", "read_file", "read_text"]

MAX_BYTES = 1 << 20
"""Bytes of one file."""
MAX_DEPTH = 32
"""Mappings and lists inside one another; the deepest key of a real file is at 7."""
MAX_NODES = 20_000
"""Values of one file; a thousand tasks of ordinary size."""

Scalar = str | int | float | bool | None

# Core schema of YAML 1.2 (section 10.3.2): what an unquoted scalar means. Everything else is text.
_NULL = re.compile(r"(?:~|null|Null|NULL)?")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# Characters that no configuration needs and that databases, paths or terminals misread. Tab and newlines are allowed.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
# What follows the scheme of a URL or a word like password= may be a secret: never shown in a message.
_SECRET = re.compile(r"(://).+|((?i:password|passwd|pwd|secret|token|signature|sig|key)\s*=).+", re.DOTALL)
_BIGGEST = 2**64
_LONGEST_NUMBER = 64
"""Characters; longer digit strings cost quadratic time before they can be refused."""

Loader = type[yaml.SafeLoader] | type[yaml.CSafeLoader]
LOADER: Loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""libyaml is in every wheel of PyYAML; the pure parser gives the same events, twenty times slower (tested equal)."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a file and where it is written."""

    value: "Scalar | tuple[Node, ...] | dict[str, Node]"
    """A scalar, the items of a list, or the entries of a mapping in the order of the file."""
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)
    """Where each key of a mapping is written."""

    def plain(self) -> object:
        """The value without places: scalars, lists and dicts, as ``yaml.safe_load`` gives them."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, tuple):
            return [node.plain() for node in self.value]
        return self.value

    def shown(self) -> str:
        """The value in a few words, for messages."""
        if isinstance(self.value, dict):
            return "a mapping" + (f" with {', '.join(list(self.value)[:3])}" if self.value else "")
        if isinstance(self.value, tuple):
            return f"a list of {len(self.value)}"
        if self.value is None:
            return "nothing"
        text = repr(self.value if not isinstance(self.value, str) else _SECRET.sub(_masked, self.value))
        return text if len(text) <= 60 else text[:57] + "..."

    def error(self, code: ConfigCode, message: str) -> ConfigError:
        """An error at this place, for the caller to raise."""
        return error_at(self.place, code, message)


def error_at(place: Place, code: ConfigCode, message: str) -> ConfigError:
    """An error at a place, for the caller to raise."""
    return ConfigError(code, message, place.file, place.line, place.column)


def read_file(path: Path) -> tuple[Node, ...]:
    """Read the documents of one file.

    Raises:
        NotFound: the file does not exist.
        ConfigError: the file cannot be read, or is not what ``read_text`` takes.
    """
    return read_text(read_source(path), str(path))


def read_source(path: Path) -> str:
    """The text of one file.

    Args:
        path: a regular file of UTF-8 text, at most ``MAX_BYTES`` long; pipes and devices are refused.

    Raises:
        NotFound: the file does not exist.
        ConfigError: the file cannot be read.
    """
    name = str(path)
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(
                    ConfigCode.UNREADABLE_FILE, "is not a regular file; give the path of a YAML file", name
                )
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"configuration file {name} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(ConfigCode.UNREADABLE_FILE, f"cannot be read: {reason}", name) from error
    return _decoded(data, name)


def read_text(text: str, file: str = "<string>", *, loader: Loader = LOADER) -> tuple[Node, ...]:
    """Read the documents of a YAML text; empty ones are left out.

    Args:
        text: one or more documents, separated by ``---``.
        file: the name for messages.
        loader: whose parser gives the events.

    Raises:
        ConfigError: not YAML, or outside the subset; with line and column.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ConfigError(ConfigCode.TOO_LARGE, f"is longer than {MAX_BYTES} bytes", file)
    if found := _CONTROL.search(text):
        before = text[: found.start()]
        line, column = before.count("\n") + 1, found.start() - before.rfind("\n")
        message = f"character U+{ord(found[0]):04X} is not allowed in a configuration"
        raise ConfigError(ConfigCode.UNSUPPORTED_YAML, message, file, line, column)
    # A byte order mark is no part of the text, and libyaml would count it as a column.
    return _Composer(text.removeprefix("\ufeff"), file, loader).documents()


def from_python(value: object, file: str = "<mapping>") -> Node:
    """Give the value of a Python mapping the form of a YAML document, under the same rules.

    Args:
        value: dicts, lists, tuples, text, numbers, booleans, None and paths.
        file: the name for messages; Python values have no line.

    Raises:
        ConfigError: another type, a key that is not text, or more than the caps allow.
    """
    return _Converter(file).node(value, 0)


def _decoded(data: bytes, file: str) -> str:
    if len(data) > MAX_BYTES:
        raise ConfigError(ConfigCode.TOO_LARGE, f"is longer than {MAX_BYTES} bytes", file)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(ConfigCode.UNREADABLE_FILE, f"is not UTF-8 text (byte {error.start})", file, line) from None


def _scalar(text: str) -> Scalar:
    """The meaning of an unquoted scalar; ValueError for numbers that nothing here can hold."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text[0] in "tT"
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    is_int = _INT.fullmatch(text)
    if not is_int and not _FLOAT.fullmatch(text):
        return text
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters is too long; put text in quotes")
    number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if is_int else float(text)
    _check_number(number)
    return number


def _check_number(number: int | float) -> None:
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    if isinstance(number, int) and abs(number) >= _BIGGEST:
        raise ValueError("whole numbers have at most 64 bits")


def _masked(found: re.Match[str]) -> str:
    return (found[1] or found[2]) + "***"


class _Counter:
    """Counts nodes and depth while a tree is built."""

    def __init__(self, file: str):
        self.file = file
        self.nodes = 0

    def enter(self, place: Place, depth: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise error_at(place, ConfigCode.TOO_LARGE, f"more than {MAX_NODES} values in one configuration")
        if depth > MAX_DEPTH:
            raise error_at(place, ConfigCode.TOO_LARGE, f"nested deeper than {MAX_DEPTH} levels")


class _Composer(_Counter):
    """Builds nodes from the events of PyYAML's parser, one document after the other."""

    def __init__(self, text: str, file: str, loader: Loader):
        super().__init__(file)
        self._events = self._parse(text, loader)
        self._under: list[str] = []
        """The keys above what is being read."""

    def documents(self) -> tuple[Node, ...]:
        found = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                node = self._node(next(self._events), 1)
                if node.value is not None:
                    found.append(node)
        return tuple(found)

    def _parse(self, text: str, loader: Loader) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(text, Loader=loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            reason = ", ".join(part for part in (error.problem, error.context) if part)
            line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
            raise ConfigError(ConfigCode.NOT_YAML, f"not YAML: {reason}", self.file, line, column) from None
        # The parser lets errors of int() and chr() through, for directives and escapes that are out of range.
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            if isinstance(error, BadInput):
                raise
            raise ConfigError(ConfigCode.NOT_YAML, f"not YAML: {error}", self.file) from None

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1) if mark else Place(self.file)

    def _node(self, event: yaml.Event, depth: int) -> Node:
        place = self._place(event)
        self.enter(place, depth)
        if isinstance(event, yaml.AliasEvent):
            message = f"alias *{event.anchor:.80}: write the value out, aliases are not supported"
            raise error_at(place, ConfigCode.UNSUPPORTED_YAML, message)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.anchor is not None:
            message = f"anchor &{event.anchor:.80}: remove it, anchors and aliases are not supported"
            raise error_at(place, ConfigCode.UNSUPPORTED_YAML, message)
        if event.tag is not None:
            message = f"tag {event.tag!r:.80}: remove it, tags are not supported"
            raise error_at(place, ConfigCode.UNSUPPORTED_YAML, message)
        if isinstance(event, yaml.ScalarEvent):
            return Node(self._value(event, place), place)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(event, depth + 1))
            return Node(tuple(items), place)
        return self._mapping(place, depth)

    def _mapping(self, place: Place, depth: int) -> Node:
        """A mapping; a key that is no text is told with the names of those above it."""
        entries: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key.value, str):
                under = f"{'.'.join(self._under)}: " if self._under else ""
                cure = "" if isinstance(key.value, tuple | dict) else ", which is one in quotes"
                raise key.error(ConfigCode.WRONG_TYPE, f"{under}a key must be a name, got {key.shown()}{cure}")
            if key.value in keys:
                message = f"key {key.shown()} is already given in line {keys[key.value].line}"
                raise key.error(ConfigCode.DUPLICATE_KEY, message)
            keys[key.value] = key.place
            self._under.append(key.value)
            entries[key.value] = self._node(next(self._events), depth + 1)
            self._under.pop()
        return Node(entries, place, keys)

    def _value(self, event: yaml.ScalarEvent, place: Place) -> Scalar:
        text: str = event.value
        if found := _CONTROL.search(text):  # by an escape in double quotes
            raise _control_character(place, found)
        if event.style:
            return text
        try:
            return _scalar(text)
        except ValueError as error:
            raise error_at(place, ConfigCode.OUT_OF_RANGE, str(error)) from None


def _control_character(place: Place, found: re.Match[str]) -> ConfigError:
    message = f"character U+{ord(found[0]):04X} is not allowed in a configuration"
    return error_at(place, ConfigCode.UNSUPPORTED_YAML, message)


class _Converter(_Counter):
    """Builds nodes from Python values; a value that contains itself meets the depth cap."""

    def node(self, value: object, depth: int) -> Node:
        place = Place(self.file)
        self.enter(place, depth)
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, bool) or value is None:
            return Node(value, place)
        if isinstance(value, int | float):
            try:
                _check_number(value)
            except ValueError as error:
                raise error_at(place, ConfigCode.OUT_OF_RANGE, str(error)) from None
            return Node(value, place)
        if isinstance(value, str):
            if found := _CONTROL.search(value):
                raise _control_character(place, found)
            return Node(str(value), place)
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    raise error_at(place, ConfigCode.WRONG_TYPE, f"a key must be text, got {key!r:.60}")
            entries = {str(key): self.node(item, depth + 1) for key, item in value.items()}
            return Node(entries, place, dict.fromkeys(entries, place))
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
            return Node(tuple(self.node(item, depth + 1) for item in value), place)
        message = f"a value of type {type(value).__name__} cannot be in a configuration"
        raise error_at(place, ConfigCode.WRONG_TYPE, message)
