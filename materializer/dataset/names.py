"""A video's name in paths: its path under the dataset, without extension, in an escape that can be undone.

Names are [A-Za-z0-9._-]{1,128}, one component of a ``view://`` path. The dot is the escape sign because it is the
rarest of these in file names: ``..`` is a dot, ``.-`` a slash, ``.`` and two hex digits one byte of UTF-8. ``cats/a
b.mp4`` is named ``cats.-a.20b``. No escape looks like a video's extension, so ``name.mp4`` in a path is never
ambiguous.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from viewcache.errors import BadUrl

__all__ = ["MAX_NAME", "SUFFIXES", "escape", "names_for", "stem", "unescape"]

# fmt: off
SUFFIXES = (
    ".3g2", ".3gp", ".asf", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ogv",
    ".ts", ".webm", ".wmv",
)
# fmt: on
"""Extensions (in any case) that make a file a video."""
MAX_NAME = 128
"""Characters."""
_SHORTENED = ".z"
"""Joins the start of a name that is too long to the hash of the whole; no escape starts so."""
_PLAIN = re.compile(rb"[A-Za-z0-9_-]")
_TOKEN = re.compile(r"[A-Za-z0-9_-]+|\.\.|\.-|\.[0-9a-f]{2}")


def escape(path: str) -> str:
    """The name of a relative path.

    Paths whose name would be longer than 128 characters get its first 94, ``.z`` and a hash of 32 hex digits: still
    unique, but only the catalog knows the path.
    """
    parts: list[str] = []
    for value in path.encode("utf-8", "surrogateescape"):
        byte = bytes((value,))
        if _PLAIN.match(byte):
            parts.append(chr(value))
        else:
            parts.append({b".": "..", b"/": ".-"}.get(byte, f".{value:02x}"))
    if sum(map(len, parts)) <= MAX_NAME:
        return "".join(parts)
    digest = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    room = MAX_NAME - len(_SHORTENED) - len(digest)
    kept = ""
    for part in parts:  # whole escapes only
        if len(kept) + len(part) > room:
            break
        kept += part
    return kept + _SHORTENED + digest


def unescape(name: str) -> str:
    """The relative path of a name (without the extension, if the name has none).

    Raises:
        BadUrl: not a name that `escape` gives, or one that was too long to keep its path.
    """
    out, at = bytearray(), 0
    while at < len(name):
        token = _TOKEN.match(name, at)
        if token is None:
            raise BadUrl(
                f"{name!r} is not a video's name at character {at + 1}: '..' stands for a dot, '.-' for a slash, "
                "'.' and two hex digits for a byte; other characters are A-Z a-z 0-9 _ -"
            )
        text = token.group()
        if text == "..":
            out += b"."
        elif text == ".-":
            out += b"/"
        elif text[0] == ".":
            out.append(int(text[1:], 16))
        else:
            out += text.encode()
        at = token.end()
    return out.decode("utf-8", "surrogateescape")


def stem(path: str) -> str:
    """A path without its video extension."""
    lower = path.lower()
    for suffix in SUFFIXES:
        if lower.endswith(suffix) and len(path) > len(suffix) and path[-len(suffix) - 1] != "/":
            return path[: -len(suffix)]
    return path


def names_for(paths: Sequence[str]) -> list[str]:
    """A unique name for each of a dataset's relative paths: without extension, with it where two would be alike.

    Args:
        paths: distinct relative paths with ``/`` between components.
    """
    names = [escape(stem(path)) for path in paths]
    whole = [False] * len(paths)
    while True:
        count = Counter(names)
        alike = [k for k, name in enumerate(names) if count[name] > 1 and not whole[k]]
        if not alike:
            return names
        for k in alike:
            names[k], whole[k] = escape(paths[k]), True
