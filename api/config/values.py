"""Turns the nodes of a configuration into typed values, checked against the table of keys.

Every message says which key is wrong, what it was given and what is allowed, and carries the place. URLs with
credentials are refused here, before they can reach the catalog, a log or another message (law 10).
"""

import os
import re
from decimal import Decimal
from urllib.parse import unquote_plus

from viewcache.api.config.keys import DECIBELS, KINDS, MODULE, NAME, SIZE, Key
from viewcache.api.config.yaml_subset import Node
from viewcache.errors import ConfigCode, ConfigError
from viewcache.suggest import did_you_mean

__all__ = ["READERS", "local_path", "parse_size", "read_url", "short", "wrong"]

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "p": 1000**5} | {
    prefix + "i": 1024**power for power, prefix in enumerate("kmgtp", 1)
}
_MOST_BYTES = 2**63 - 1
_NEEDS_ONE = "; at least one is needed"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRET_PARTS = ("password", "passwd", "secret", "token", "signature", "credential", "apikey", "accesskey")
_SECRET_NAMES = ("sig", "pwd", "key", "pass", "auth", "authorization")
_DATABASE = "postgresql://"
_PASSWORD = re.compile(r"[^/]*:[^/]*@")
# SQLAlchemy lets a password hold slashes.
_DATABASE_PASSWORD = re.compile(r"[^:/]*:[^@]*@")
_LONGEST_TEXT = 10_000
"""Characters; a SQL condition is the longest text there is."""


def parse_size(text: str | int) -> int:
    """Bytes of a size such as ``200GB`` (decimal), ``1.5TiB`` (binary) or ``1000`` (bytes).

    Raises:
        ValueError: not a size, less than one byte or more than 2^63-1.
    """
    size = _bytes_of(text)
    if not 1 <= size <= _MOST_BYTES:
        raise ValueError("not a size, or out of range")
    return size


def _bytes_of(text: str | int) -> int:
    """Bytes of a size, whether or not there can be so many; 0 if it is none."""
    if isinstance(text, int):
        return text
    if len(text) > 40 or not re.fullmatch(SIZE, text):
        return 0
    number, unit = re.fullmatch(r"([0-9.]+)\s*([a-z]*)b", text.strip().lower()).groups()  # type: ignore[union-attr]
    return int(Decimal(number) * _UNITS[unit])


def local_path(url: str, folder: str) -> str | None:
    """The absolute path of a local path or ``file://`` URL, seen from a folder; None for another URL."""
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    elif _SCHEME.match(url) or "::" in url:
        return None
    return os.path.normpath(os.path.join(folder, url))


def short(text: str) -> str:
    """A text as messages quote it: its start, if it is long."""
    return repr(text) if len(text) <= 60 else repr(text[:57]) + "..."


def wrong(code: ConfigCode, node: Node, key: Key, label: str, why: str = "") -> ConfigError:
    """The error of a value that is not what its key expects."""
    if not why and key.kind in _TEXTUAL and isinstance(node.value, bool | int | float):
        why = "; put it in quotes"
    if not why and key.kind in ("integer", "number") and isinstance(node.value, str) and _looks_like_number(node.value):
        why = "; remove the quotes"
    question = did_you_mean(node.value, key.choices)
    return node.error(
        code,
        f"{label} must be {key.expects()}, got {node.shown()}{why}" + (f"; {question}" if question else ""),
    )


def _looks_like_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?[0-9]+(?:\.[0-9]+)?", text) is not None


def _text(node: Node, key: Key, label: str) -> str:
    if not isinstance(node.value, str):
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label)
    if not node.value.strip():
        raise node.error(ConfigCode.MISSING_KEY, f"{label} is empty; it must be {key.expects()}")
    if len(node.value) > _LONGEST_TEXT:
        message = f"{label} has {len(node.value)} characters; at most {_LONGEST_TEXT} are allowed"
        raise node.error(ConfigCode.OUT_OF_RANGE, message)
    return node.value


def _name(node: Node, key: Key, label: str) -> str:
    text = _text(node, key, label)
    if not re.fullmatch(NAME, text):
        raise wrong(ConfigCode.WRONG_FORMAT, node, key, label)
    return text


def _title(node: Node, key: Key, label: str) -> str:
    text = _text(node, key, label)
    if len(text) > 128:
        raise wrong(ConfigCode.OUT_OF_RANGE, node, key, label)
    return text


def _names(node: Node, key: Key, label: str) -> tuple[str, ...]:
    items = node.value if isinstance(node.value, tuple) else (node,)
    if not items:
        raise wrong(ConfigCode.OUT_OF_RANGE, node, key, label, _NEEDS_ONE)
    single = Key(key.name, "name", key.doc)
    return tuple(_name(item, single, label) for item in items)


def _columns(node: Node, key: Key, label: str) -> tuple[str, ...]:
    items = node.value if isinstance(node.value, tuple) else (node,)
    single = Key(key.name, "name", key.doc)
    return _each_once([(item, _name(item, single, label)) for item in items], label)


def _classes(node: Node, key: Key, label: str) -> tuple[str, ...] | str:
    """The names, or the path of the file that has them."""
    if isinstance(node.value, str):
        return read_url(node, key, label)
    if not isinstance(node.value, tuple) or not node.value:
        why = _NEEDS_ONE if node.value == () else ""
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label, why)
    single = Key(key.name, "text", key.doc)
    return _each_once([(item, _text(item, single, f"{label}[{k}]")) for k, item in enumerate(node.value)], label)


def _each_once(named: list[tuple[Node, str]], label: str) -> tuple[str, ...]:
    names: dict[str, Node] = {}
    for node, name in named:
        if name in names:
            raise node.error(ConfigCode.GIVEN_TWICE, f"{label} has {short(name)} twice")
        names[name] = node
    return tuple(names)


def _modules(node: Node, key: Key, label: str) -> tuple[str, ...]:
    if not isinstance(node.value, tuple):
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label)
    for item in node.value:
        if not isinstance(item.value, str) or not re.fullmatch(MODULE, item.value):
            message = f"{label} holds names of modules such as my_package.my_ops, got {item.shown()}"
            raise item.error(ConfigCode.WRONG_FORMAT, message)
    return tuple(str(item.value) for item in node.value)


def _texts(node: Node, key: Key, label: str) -> tuple[str, ...]:
    if not isinstance(node.value, tuple):
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label)
    single = Key(key.name, "text", key.doc)
    return tuple(read_url(item, single, f"{label}[{k}]") for k, item in enumerate(node.value))


def _shares(node: Node, key: Key, label: str) -> tuple[tuple[str, float], ...]:
    """Names and their shares, by name: their order means nothing."""
    if not isinstance(node.value, dict):
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label)
    if not node.value:
        why = f"{label} names nothing; it must be {key.expects()}, such as {{kinetics: 0.7, ssv2: 0.3}}"
        raise node.error(ConfigCode.OUT_OF_RANGE, why)
    for name, share in node.value.items():
        value = share.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise share.error(ConfigCode.WRONG_TYPE, f"{label}.{name} must be a number above 0, got {share.shown()}")
        if not 0 < value < float("inf"):
            raise share.error(ConfigCode.OUT_OF_RANGE, f"{label}.{name} must be a number above 0, got {share.shown()}")
    return tuple(sorted((name, float(str(share.value))) for name, share in node.value.items()))


def _choice(node: Node, key: Key, label: str) -> str:
    for choice in key.choices:  # the members of an enum, where the words are those of a spec
        if node.value == choice:
            return choice
    raise wrong(ConfigCode.UNKNOWN_CHOICE, node, key, label)


def _integer(node: Node, key: Key, label: str) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int):
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label)
    return int(_bounded(node, node.value, key, label))


def _number(node: Node, key: Key, label: str) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label)
    return float(_bounded(node, node.value, key, label))


def _share(node: Node, key: Key, label: str) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label)
    if not 0 <= node.value <= 1:
        raise wrong(ConfigCode.OUT_OF_RANGE, node, key, label, "; 0.3 is three of ten")
    return float(node.value)


def _bounded(node: Node, number: int | float, key: Key, label: str) -> int | float:
    outside = (key.least is not None and number < key.least) or (key.most is not None and number > key.most)
    if outside or (key.inside and number in (key.least, key.most)):
        raise wrong(ConfigCode.OUT_OF_RANGE, node, key, label)
    return number


def _decibels(node: Node, key: Key, label: str) -> float:
    written = re.fullmatch(DECIBELS, node.value) if isinstance(node.value, str) else None
    return float(_bounded(node, float(written[1]), key, label)) if written else _number(node, key, label)


def _flag(node: Node, key: Key, label: str) -> bool:
    if not isinstance(node.value, bool):
        yes_no = isinstance(node.value, str) and node.value.lower() in ("yes", "no", "on", "off")
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label, "; YAML 1.2 knows only true and false" if yes_no else "")
    return node.value


def _size(node: Node, key: Key, label: str) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, str | int):
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label)
    try:
        return parse_size(node.value)
    except ValueError:
        if _bytes_of(node.value) > _MOST_BYTES:
            why = f"; it is too large, at most {_MOST_BYTES} bytes are possible"
            raise wrong(ConfigCode.OUT_OF_RANGE, node, key, label, why) from None
        code = ConfigCode.OUT_OF_RANGE if isinstance(node.value, int) else ConfigCode.WRONG_FORMAT
        raise wrong(code, node, key, label) from None


def _size_or_auto(node: Node, key: Key, label: str) -> int | None:
    if node.value == "auto":
        return None
    is_none = node.value == 0 and not isinstance(node.value, bool)
    return 0 if is_none else _size(node, key, label)


def read_url(node: Node, key: Key, label: str) -> str:
    """A path or URL without credentials; relative paths stay as written.

    Args:
        node: the value.
        key: its key, for what messages say is expected.
        label: how messages call it.

    Raises:
        ConfigError: not text, credentials inside, or something that people expect to be expanded.
    """
    text = _text(node, key, label)
    # Some parsers of URLs drop newlines and tabs, and would then see another URL than the one checked here.
    if any(ord(character) < 32 for character in text):
        raise node.error(ConfigCode.WRONG_FORMAT, f"{label} has a line break or tab in a path or URL")
    if text.startswith(("~", "$")):
        message = f"{label}: '~' and variables are not expanded in a configuration; write the path out"
        raise node.error(ConfigCode.WRONG_FORMAT, message)
    for part in text.split("::"):
        _refuse_secrets(part, node, label)
    return text


def _urls(node: Node, key: Key, label: str) -> tuple[str, ...]:
    """One or several paths or URLs, each once."""
    if not isinstance(node.value, tuple):
        return (read_url(node, key, label),)
    if not node.value:
        raise wrong(ConfigCode.WRONG_TYPE, node, key, label, _NEEDS_ONE)
    found: list[str] = []
    for number, item in enumerate(node.value):
        url = read_url(item, key, f"{label}[{number}]")
        if url in found:
            raise item.error(ConfigCode.GIVEN_TWICE, f"{label}[{number}] is {item.shown()} again; each once")
        found.append(url)
    return tuple(found)


def _catalog(node: Node, key: Key, label: str) -> str:
    url = read_url(node, key, label)
    if url != "duckdb" and not url.startswith(_DATABASE):
        # Only a word is shown: a connection string of another form may hold a password.
        given = f", got {url!r}" if re.fullmatch(r"[A-Za-z]{1,20}", url) else ""
        raise node.error(ConfigCode.WRONG_FORMAT, f"{label} must be {key.expects()}{given}")
    return url


def _refuse_secrets(url: str, node: Node, label: str) -> None:
    """Refuse credentials as the libraries behind the URL would find them, which is not always as urlsplit does."""
    if not (scheme := _SCHEME.match(url)):
        return
    cure = "; credentials come from the environment, a profile or ~/.pgpass"
    rest = url[scheme.end() :]
    if _DATABASE_PASSWORD.match(rest) if scheme[0].lower() == _DATABASE else _PASSWORD.match(rest):
        raise node.error(ConfigCode.CREDENTIALS, f"{label} has a password in its URL; remove it{cure}")
    # The name of a database's user is no secret; elsewhere the part before '@' often is one.
    if scheme[0].lower() != _DATABASE and "@" in rest.partition("/")[0]:
        raise node.error(ConfigCode.CREDENTIALS, f"{label} has credentials in its URL; remove them{cure}")
    parameters = re.split(r"[?&;#]", rest)[1:]
    for name in (unquote_plus(parameter.partition("=")[0]).lower() for parameter in parameters):
        bare = name.replace("_", "").replace("-", "")
        if bare in _SECRET_NAMES or any(part in bare for part in _SECRET_PARTS):
            message = f"{label} has credentials in the parameters of its URL; remove them{cure}"
            raise node.error(ConfigCode.CREDENTIALS, message)


READERS = {
    "text": _text,
    "name": _name,
    "title": _title,
    "names": _names,
    "modules": _modules,
    "columns": _columns,
    "classes": _classes,
    "shares": _shares,
    "texts": _texts,
    "folders": _texts,
    "choice": _choice,
    "integer": _integer,
    "number": _number,
    "flag": _flag,
    "flag_or_auto": lambda node, *of: None if node.value == "auto" else _flag(node, *of),
    "share_or_auto": lambda node, *of: None if node.value == "auto" else _share(node, *of),
    "size": _size,
    "size_or_auto": _size_or_auto,
    "decibels": _decibels,
    "url": read_url,
    "urls": _urls,
    "catalog": _catalog,
}
"""Kind of a key → what reads its value."""
_TEXTUAL = ("text", "name", "title", "names", "url", "catalog")
assert set(READERS) < set(KINDS)
