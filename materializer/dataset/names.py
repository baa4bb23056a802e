"""A video's name in paths: its path under the dataset, without extension, in an escape that can be undone.

Names are [A-Za-z0-9._-]{1,128}, one component of a ``view://`` path. The dot is the escape sign because it is the
rarest of these in file names: ``..`` is a dot, ``.-`` a slash, ``.`` and two hex digits one byte of UTF-8. ``cats/a
b.mp4`` is named ``cats.-a.20b``. No escape looks like the extension of a video or an image, so ``name.mp4`` in a path
is never ambiguous.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from viewcache.errors import BadUrl
from viewcache.materializer.choices import Media
from viewcache.materializer.dataset.texts import Texts
from viewcache.materializer.media.picture_head import PICTURE_SUFFIXES

__all__ = ["MAX_NAME", "SUFFIXES", "escape", "names_for", "new_names", "shortened", "stem", "unescape"]

# fmt: off
SUFFIXES: Mapping[Media, tuple[str, ...]] = {
    Media.VIDEO: (
        ".3g2", ".3gp", ".asf", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts",
        ".ogv", ".ts", ".webm", ".wmv",
    ),
    Media.IMAGE: PICTURE_SUFFIXES,
}
# fmt: on
"""Extensions (in any case) that make a file a video, or an image."""
_ALL_SUFFIXES = frozenset(chain.from_iterable(SUFFIXES.values()))
MAX_NAME = 128
"""Characters."""
_SHORTENED = ".z"
"""Joins the start of a name that is too long to the hash of the whole; no escape starts so."""
_ESCAPED = re.compile(rb"[^A-Za-z0-9_-]")
_SHORT = {b".": b"..", b"/": b".-"}
_PLAIN = r"^[A-Za-z0-9_./-]*$"
"""Paths whose names are made as columns: what RE2 and Python may take for different letters is in none of them."""
_STEM = rf"(?i)^(.*[^/])(?:{'|'.join(sorted(map(re.escape, _ALL_SUFFIXES)))})$"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+|\.\.|\.-|\.[0-9a-f]{2}")


def escape(path: str) -> str:
    """The name of a relative path.

    Paths whose name would be longer than 128 characters get its first 94, ``.z`` and a hash of 32 hex digits: still
    unique, but only the catalog knows the path.
    """
    data = path.encode("utf-8", "surrogateescape")
    if len(data) <= MAX_NAME:
        name = _ESCAPED.sub(_escape, data).decode()
        if len(name) <= MAX_NAME:
            return name
    return shortened(path)


def _escape(byte: re.Match[bytes]) -> bytes:
    return _SHORT.get(byte[0]) or b".%02x" % ord(byte[0])


def shortened(path: str) -> str:
    """The start of a name, ``.z`` and a hash of the whole path."""
    data = path.encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    room = MAX_NAME - len(_SHORTENED) - len(digest)
    kept = ""
    for value in data:  # whole escapes only
        part = _ESCAPED.sub(_escape, bytes((value,))).decode()
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
    """A path without the extension of a video or an image."""
    before, dot, extension = path.rpartition(".")
    return before if dot + extension.lower() in _ALL_SUFFIXES and before and before[-1] != "/" else path


def names_for(paths: Sequence[str], given: Mapping[str, str] | None = None, taken: Collection[str] = ()) -> list[str]:
    """A unique name for each of a dataset's relative paths.

    A name that was given stays. Without the extension a path is named only if no other path ever was or would now be
    named so; else with it; and with a hash of the path should that be taken too.

    Args:
        paths: distinct relative paths with ``/`` between components.
        given: path → the name that it was given when it was first seen.
        taken: further names that were given, to files that are gone.
    """
    given = given or {}
    known = {*given.values(), *taken}
    ways = (lambda path: escape(stem(path)), escape, shortened)
    fresh = [path for path in paths if path not in given]
    way, names = dict.fromkeys(fresh, 0), {path: ways[0](path) for path in fresh}
    while True:
        count = Counter(names.values())
        alike = [path for path in fresh if names[path] in known or count[names[path]] > 1]
        waiting = {names[path] for path in alike if way[path] == 0}  # who has no extension yet takes it first
        longer = [path for path in alike if way[path] == 0 or (way[path] == 1 and names[path] not in waiting)]
        if not longer:
            return [given.get(path) or names[path] for path in paths]
        for path in longer:
            way[path] += 1
            names[path] = ways[way[path]](path)


def new_names(paths: Texts, taken: Texts) -> Texts:
    """The same as columns, of paths of which none has a name; ``taken`` are the names that were given.

    Of a million files most are plain, and are named without their extension: these are no objects.
    """
    plain = pc.match_substring_regex(paths.array, _PLAIN)
    names = pc.replace_substring_regex(paths.array, _STEM, r"\1")
    for character, escaped in ((".", ".."), ("/", ".-")):  # in this order: a slash becomes a dot and more
        names = pc.replace_substring(names, character, escaped)
    plain = pc.and_(plain, pc.less_equal(pc.binary_length(names), MAX_NAME))
    others = [escape(stem(path)) for path in paths.array.filter(pc.invert(plain)).to_pylist()]
    names = pc.replace_with_mask(names, pc.invert(plain), pa.array(others, pa.large_string()))
    if pc.count_distinct(names).as_py() == len(names) and not pc.any(pc.is_in(names, taken.array)).as_py():
        return Texts(names)
    return Texts.of(names_for(paths, taken=taken))
